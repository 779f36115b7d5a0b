"""Fixtures of the tests of `droste mcp`."""
import os
import sys

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(os.path.dirname(HERE), "e2e")]

from mcp_client import Client  # noqa: E402


@pytest.fixture
def connect(tmp_path):
    """connect(words…): a client of a server with these words, which has been initialized unless
    told not to. All are ended."""
    clients = []
    (tmp_path / "home").mkdir()

    def start(*words, initialize=True, can=None, stateless=False, **more):
        client = Client(tmp_path / "home", words, **more)
        client.can, client.stateless = can or {}, stateless
        clients.append(client)
        if initialize and not stateless:
            client.initialize()
        return client

    yield start
    for client in clients:
        client.end()


@pytest.fixture
def client(connect):
    return connect()
