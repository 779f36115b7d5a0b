"""The list of runs has those of all nodes, the newest first, in pages."""
import json
import os
import subprocess
import sys

import pytest

from nodes import DROSTE, has_nats, ROOT, Turns, wait_until, wait_until_joined

sys.path.insert(0, os.path.join(ROOT, "python"))
import droste       # noqa: E402

pytestmark = pytest.mark.skipif(not has_nats(), reason="there is no nats-server")


@pytest.fixture
def provider():
    provider = Turns({"one": ["SUBMIT(1)"]})
    yield provider
    provider.close()


def ended(node):
    status, run = node.ask("POST", "/v1/runs", {"question": "Q:one"})
    assert status == 201
    wait_until(lambda: node.ask("GET", "/v1/runs/" + run["run"])[1]["status"] == "answered")
    return run["run"]


def pages(node, limit, query=""):
    found, before = [], 0
    while before is not None:
        status, page = node.ask("GET", "/v1/runs?limit=%d&before=%s%s" % (limit, before, query))
        assert status == 200 and len(page["runs"]) <= limit
        found += page["runs"]
        before = page["next"]
    return found


def test_any_node_lists_the_runs_of_all(start, tmp_path):
    nodes = [start("--node", "m%d" % i) for i in range(3)]
    wait_until_joined(nodes)
    assert nodes[0].ask("GET", "/v1/runs") == (200, {"runs": [], "next": None})
    made = [(ended(nodes[i]), "m%d" % i) for i in (0, 0, 1, 0, 0, 0, 1, 0, 0)][::-1]
    for node in nodes:
        for limit in (1, 2, 3, 9, 1000):
            assert [(run["run"], run["node"]) for run in pages(node, limit)] == made, limit
        assert pages(node, 2, "&status=running") == []
        for before in ("x", "m0:", "m0:x", "m0:1;m1:2", ":1", "m0:1,,"):
            assert node.ask("GET", "/v1/runs?before=" + before)[0] == 400, before
    ids = [run for run, _ in made]
    assert [run.id for run in droste.runs.ls(server=nodes[2].address, limit=5)] == ids[:5]
    env = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "DROSTE_SERVER": nodes[1].address}
    listed = subprocess.run([DROSTE, "runs", "ls", "--limit", "7", "--json"], env=env, check=True,
                            stdout=subprocess.PIPE, text=True).stdout
    assert [run["run"] for run in json.loads(listed)] == ids[:7]
    page = nodes[2].ask("GET", "/v1/runs?limit=4")[1]
    later = ended(nodes[1])         # is not on the next page
    rest = nodes[2].ask("GET", "/v1/runs?limit=1000&before=" + page["next"])[1]
    assert [run["run"] for run in page["runs"] + rest["runs"]] == ids
    nodes[1].kill()
    wait_until(lambda: [run["run"] for run in pages(nodes[2], 2)] == [
        run for run, node in made if node != "m1"] and later)
