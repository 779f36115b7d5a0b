"""Calls that wait for an approval, on several nodes: any node lists and decides them, and which one
is meant is never open."""
import json
import os
import sys

import pytest

from nodes import has_nats, ROOT, Turns, wait_until, wait_until_joined

sys.path.insert(0, os.path.join(ROOT, "python"))
import droste       # noqa: E402

pytestmark = pytest.mark.skipif(not has_nats(), reason="there is no nats-server")
PAYS = ["try: out = pay(to=context)\nexcept Exception as e: out = type(e).__name__\nSUBMIT(out)"]


@pytest.fixture
def provider():
    provider = Turns({"pay": PAYS})
    yield provider
    provider.close()


@pytest.fixture
def nodes(start, tmp_path):
    program = tmp_path / "pay"
    program.write_text("#!/bin/sh\ncat >> %s/paid\necho 1\n" % tmp_path)
    program.chmod(0o755)
    nodes = [start("--node", "n%d" % i, "--tool", "pay=%s" % program, "--ask", "pay")
             for i in range(3)]
    wait_until_joined(nodes)
    return nodes


def test_any_node_decides_and_equal_ids_are_not_confused(nodes, tmp_path):
    runs = [node.ask("POST", "/v1/runs", {"question": "Q:pay", "context": name})[1]["run"]
            for node, name in zip(nodes, ("Ann", "Bob"))]
    first, second, third = nodes
    wait_until(lambda: len(third.ask("GET", "/v1/approvals")[1]["approvals"]) == 2)
    listed = {a["root"]: a for a in third.ask("GET", "/v1/approvals")[1]["approvals"]}
    assert set(listed) == set(runs) and len({a["id"] for a in listed.values()}) == 1
    of_ann, of_bob = ("/v1/approvals/%d" % listed[run]["id"] for run in runs)
    for node in nodes:
        status, answer = node.ask("POST", of_ann, {"decision": "approve"})     # of which run?
        assert status == 400 and "run" in answer["error"]["message"]
        assert node.ask("GET", of_ann + "?run=" + runs[0])[1]["arguments"] == {"to": "Ann"}
        assert node.ask("POST", of_ann + "?run=" + "0" * 32, {"decision": "approve"})[0] == 404
    status, decided = second.ask("POST", of_ann + "?run=" + runs[0], {"decision": "approve"})
    assert (status, decided["arguments"], decided["decision"]) == (200, {"to": "Ann"}, "approved")
    denied = droste.runs.deny(listed[runs[1]]["id"], "no", run=runs[1], server=first.address)
    assert denied.arguments == {"to": "Bob"} and denied.decision == "denied"
    for run, answer in zip(runs, ("1", "PermissionError")):
        wait_until(lambda run=run: third.ask("GET", "/v1/runs/" + run)[1]["status"] == "answered")
        assert str(third.ask("GET", "/v1/runs/" + run)[1]["answer"]) == answer
    paid, = (tmp_path / "paid").read_text().splitlines()
    assert json.loads(paid)["arguments"] == {"to": "Ann"}
    assert third.ask("GET", "/v1/approvals")[1]["approvals"] == []
