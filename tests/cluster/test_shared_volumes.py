"""Volumes with a commit in a shared directory: one node at a time writes them."""
import os
import shutil
import time

import pytest

from nodes import has_nats, wait_until

pytestmark = pytest.mark.skipif(not has_nats(), reason="there is no nats-server")
FILE = "/v1/volumes/data/files?path="


def test_a_volume_goes_on_elsewhere_from_its_last_commit_and_has_one_writer(start, nats, tmp_path):
    share = tmp_path / "share"
    share.mkdir()
    nodes = [start("--node", "n%d" % i, "--share", str(share)) for i in range(2)]
    first, second = nodes
    places = [os.path.join(node.home, "data", "volumes") for node in nodes]

    def read(node, name):
        status, answer = node.ask("GET", FILE + name)
        return answer if status == 200 else status
    wait_until(lambda: len(first.ask("GET", "/v1/cluster")[1]["nodes"]) == 2)
    assert first.ask("POST", "/v1/volumes", {"name": "data"})[0] == 201
    assert first.ask("PUT", FILE + "a", [1])[0] == 204
    assert first.ask("POST", "/v1/volumes/data/snapshots", {"snapshot": "one"})[0] == 200
    assert first.ask("PUT", FILE + "b", [2])[0] == 204       # is in no commit
    sandbox = first.ask("POST", "/v1/sandboxes", {"options": {"volume-name": "data"}})[1]["id"]
    wait_until(lambda: read(second, "b") == [2])              # asks the first one

    first.pause()
    assert second.ask("GET", "/v1/volumes/data")[0] in (502, 503)
    wait_until(lambda: read(second, "a") == [1])
    assert read(second, "b") == 404
    assert second.ask("PUT", FILE + "c", [3])[0] == 204
    first.go_on()
    wait_until(lambda: not os.path.exists(places[0] + "/data"))
    wait_until(lambda: read(first, "c") == [3])              # of the second one
    kept, = os.listdir(places[0] + ".lost")
    assert sorted(os.listdir(os.path.join(places[0] + ".lost", kept, "data"))) == ["a", "b"]
    wait_until(lambda: not first.ask("GET", "/v1/sandboxes/" + sandbox)[1].get("alive"))
    for node in nodes:
        assert [v["name"] for v in node.ask("GET", "/v1/volumes")[1]["volumes"]] == ["data"]

    second.kill()                                            # and its disk is lost
    shutil.rmtree(places[1])
    second.start()
    wait_until(lambda: read(second, "a") == [1])
    assert read(second, "c") == 404

    assert second.ask("PUT", FILE + "d", [4])[0] == 204
    nats.kill()                                              # nobody can know whose it is
    wait_until(lambda: second.ask("GET", "/v1/volumes/data")[1].get("error", {}).get(
        "code") == "node_cut_off")
    nats.start()
    wait_until(lambda: read(second, "d") == [4])
