"""A NATS server and nodes of a cluster, each a process of its own on loopback."""
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time

import pytest

sys.path.append(os.path.dirname(os.path.abspath(__file__)))

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DROSTE = os.path.join(ROOT, os.environ.get("BUILD", "build"), "droste")
WAIT = 20   # generous: nothing here is about speed
NATS = shutil.which("nats-server", path="/usr/sbin:/usr/bin:/usr/local/bin")


def until(what):
    """Waits for a condition, generously; returns its value."""
    deadline = time.monotonic() + WAIT
    while not (value := what()):
        assert time.monotonic() < deadline, "it never became true"
        time.sleep(0.05)
    return value


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Nats:
    """A NATS server with JetStream."""

    def __init__(self, home):
        self.home, self.port, self.process = home, free_port(), None
        self.url = f"nats://127.0.0.1:{self.port}"
        self.start()

    def start(self):
        self.process = subprocess.Popen(
            [NATS, "-js", "-a", "127.0.0.1", "-p", str(self.port), "-sd", str(self.home)],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

        def answers():
            with socket.socket() as s:
                return s.connect_ex(("127.0.0.1", self.port)) == 0
        until(answers)

    def kill(self):
        self.process.kill()
        self.process.wait()


class Node:
    """A running `droste serve --join`."""

    def __init__(self, home, nats, name, *flags):
        env = {"PATH": "/usr/bin:/bin", "HOME": str(home), "LANG": "C.UTF-8",
               "DROSTE_HOME": os.path.join(str(home), "data")}
        self.process = subprocess.Popen(
            [DROSTE, "serve", "--listen", "127.0.0.1:0", "--join", nats.url, "--node", name,
             *flags], stdout=subprocess.PIPE, env=env, text=True)
        self.address = self.process.stdout.readline().strip()
        self.port = int(self.address.rpartition(":")[2])

    def ask(self, method, path, body=None, headers=None, timeout=WAIT):
        """The status and the JSON of an answer."""
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        c.request(method, path, None if body is None else json.dumps(body), headers or {})
        answer = c.getresponse()
        text = answer.read()
        c.close()
        return answer.status, json.loads(text) if text else None

    def sandboxes(self):
        return {s["id"] for s in self.ask("GET", "/v1/sandboxes")[1]["sandboxes"]}

    def end(self):
        self.process.send_signal(signal.SIGCONT)
        self.process.kill()
        self.process.wait()


@pytest.fixture
def cluster(tmp_path):
    """Starts nodes: cluster(3) is a list of three, which know each other."""
    if not NATS:
        pytest.skip("nats-server is not installed")
    nats = Nats(tmp_path / "nats")
    nodes = []

    def start(count, *flags):
        for _ in range(count):
            home = tmp_path / f"node{len(nodes)}"
            home.mkdir()
            nodes.append(Node(home, nats, f"node{len(nodes)}", *flags))
        made = [node.ask("POST", "/v1/sandboxes", {})[1]["id"] for node in nodes]
        for node in nodes:   # each has heard of each
            until(lambda node=node: set(made) <= node.sandboxes())
        for sandbox in made:
            nodes[0].ask("DELETE", f"/v1/sandboxes/{sandbox}")
        until(lambda: not set(made) & nodes[0].sandboxes())
        return nodes
    start.nats = nats
    yield start
    for node in nodes:
        node.end()
    nats.kill()
