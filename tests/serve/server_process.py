"""A running `droste serve`, and what it answers: for the tests of this directory and for bench."""
import http.client
import json
import os
import signal
import socket
import subprocess
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DROSTE = os.path.join(ROOT, os.environ.get("BUILD", "build"), "droste")
WORKERS = os.environ.get("SERVE_WORKERS", "1")
WAIT = 60   # generous: nothing here is about speed


class Answer:
    """A status, headers and a body."""

    def __init__(self, response):
        self.status, self.headers, self.body = response.status, response.headers, response.read()

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def code(self):
        """The code of an error."""
        return self.json["error"]["code"]


def until(what):
    """Waits for a condition, generously; returns its value."""
    deadline = time.monotonic() + WAIT
    while not (value := what()):
        assert time.monotonic() < deadline, "it never became true"
        time.sleep(0.05)
    return value


class Server:
    """A running `droste serve`."""

    def __init__(self, home, *flags, stderr=None, workers=WORKERS, env=None):
        self.home = home
        env = {**(env or {}), "PATH": "/usr/bin:/bin", "HOME": str(home), "LANG": "C.UTF-8",
               "DROSTE_HOME": os.path.join(str(home), "data")}
        # A guest without a processor has time to take an interrupt.
        self.process = subprocess.Popen([DROSTE, "serve", "--listen", "127.0.0.1:0",
                                         "--grace", "30", "--workers", workers, *flags],
                                        stdout=subprocess.PIPE, stderr=stderr, env=env,
                                        text=True)
        self.address = self.process.stdout.readline().strip()
        self.port = int(self.address.rpartition(":")[2])

    def ask(self, method, path, body=None, headers=None):
        """One request on a connection of its own; dicts are sent as JSON."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=WAIT)
        if isinstance(body, dict):
            body = json.dumps(body)
        try:
            connection.request(method, path, body, headers or {})
            return Answer(connection.getresponse())
        finally:
            connection.close()

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.port), timeout=WAIT)

    def create(self, **body):
        answer = self.ask("POST", "/v1/sandboxes", body)
        assert answer.status == 201, answer.body
        return "/v1/sandboxes/" + answer.json["id"]

    def execute(self, sandbox, code, **more):
        answer = self.ask("POST", sandbox + "/execute", {"code": code, **more})
        assert answer.status == 200, answer.body
        return answer.json

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(WAIT)
        self.process.stdout.close()
        return status
