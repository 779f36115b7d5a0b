"""A server of its own for each module's tests."""
import os
import sys

import pytest

from server_process import ROOT, Server

sys.path.append(os.path.join(ROOT, "tests", "e2e"))   # also for browser.py

from model_servers import serve, servers  # noqa: E402, F401: fixtures


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    started = Server(tmp_path_factory.mktemp("serve"))
    yield started
    assert started.stop() == 0


@pytest.fixture
def start(tmp_path):
    """start(flags…): a server of the test's own."""
    servers = []

    def run(*flags):
        servers.append(Server(tmp_path, *flags))
        return servers[-1]
    yield run
    for one in servers:
        one.stop()


@pytest.fixture
def sandbox(server):
    path = server.create()
    yield path
    server.ask("DELETE", path)
