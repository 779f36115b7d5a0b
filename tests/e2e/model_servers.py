"""Servers of models, which tests of several directories run against."""
import json
import os
import signal
import subprocess
import urllib.request

import pytest

SERVER = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "fakes",
                      "model_server.py")


class Server:
    """tests/fakes/model_server.py, running."""

    def __init__(self, ready):
        self.pid = ready["pid"]
        self.url = "http://127.0.0.1:%d/v1" % ready["port"]
        self.tls_url = "https://localhost:%d/v1" % ready["tls_port"]
        self.ca_file = ready["ca_file"]

    def stats(self):
        with urllib.request.urlopen(self.url[:-len("/v1")] + "/stats") as reply:
            return json.load(reply)


@pytest.fixture(scope="session")
def servers():
    """servers(flags…): starts a server, and says what it said of itself."""
    process = subprocess.Popen(["/usr/bin/python3", SERVER, "--many"], stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE)

    def start(*flags):
        process.stdin.write(json.dumps(flags).encode() + b"\n")
        process.stdin.flush()
        return json.loads(process.stdout.readline())

    yield start
    process.communicate(timeout=120)


@pytest.fixture
def serve(tmp_path, servers):
    """serve(key=…, script=[…], turns=[…], window=N) starts a server of OpenAI's protocol."""
    running = []

    def start(key=None, script=None, turns=None, window=None):
        flags = ["--key", key] if key else []
        flags += ["--window", str(window)] if window else []
        for name, texts in (("script", script), ("turns", turns)):
            if texts is not None:
                path = tmp_path / ("%s%d.json" % (name, len(running)))
                path.write_text(json.dumps(texts))
                flags += ["--" + name, str(path)]
        running.append(Server(servers(*flags)))
        return running[-1]

    yield start
    for server in running:
        os.kill(server.pid, signal.SIGKILL)
