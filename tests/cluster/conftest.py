"""Nodes of a cluster, each a process of its own on loopback."""
import os
import sys

import pytest

sys.path.append(os.path.dirname(os.path.abspath(__file__)))

from nodes import has_nats, Nats, Node, Provider, wait_until  # noqa: E402


@pytest.fixture
def cluster(tmp_path):
    """Starts nodes: cluster(3) is a list of three, which know each other."""
    if not has_nats():
        pytest.skip("nats-server is not installed")
    nats = Nats(tmp_path / "nats")
    nodes = []

    def start(count, *flags):
        for _ in range(count):
            home = tmp_path / f"node{len(nodes)}"
            home.mkdir()
            nodes.append(Node(home, nats, None, "--node", f"node{len(nodes)}", *flags))
        made = [node.ask("POST", "/v1/sandboxes", {})[1]["id"] for node in nodes]
        for node in nodes:   # each has heard of each
            wait_until(lambda node=node: set(made) <= node.sandboxes())
        for sandbox in made:
            nodes[0].ask("DELETE", f"/v1/sandboxes/{sandbox}")
        wait_until(lambda: not set(made) & nodes[0].sandboxes())
        return nodes
    start.nats = nats
    yield start
    for node in nodes:
        node.kill()
    nats.kill()


@pytest.fixture
def nats(tmp_path):
    nats = Nats(tmp_path / "nats")
    yield nats
    nats.kill()


@pytest.fixture
def provider():
    provider = Provider()
    yield provider
    provider.close()


@pytest.fixture
def start(tmp_path, nats, provider):
    """start(flags…): one more node."""
    nodes = []

    def start(*flags):
        home = tmp_path / ("node%d" % len(nodes))
        home.mkdir()
        nodes.append(Node(home, nats, provider, *flags))
        return nodes[-1]

    yield start
    for node in nodes:
        if node.process.poll() is None:
            node.kill()
