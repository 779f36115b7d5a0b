"""Volumes with a commit, which another node opens: one node at a time writes them."""
import concurrent.futures
import os
import shutil
import time

import pytest

from nodes import has_nats, wait_until, wait_until_joined

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


def chunks_of(node, end=""):
    """The files of the chunks that a node keeps."""
    return [os.path.join(place, name)
            for place, _, names in os.walk(os.path.join(node.home, "data", "volumes.chunks"))
            for name in names if len(name) == 64 + len(end) and name.endswith(end)]


def chunks_of_last_commit(node):
    lists = [path for path in chunks_of(node) if open(path, "rb").read(14) == b"droste volume "]
    last = max(lists, key=os.path.getmtime)
    names = open(last).read().split("\n")[3:-1]
    return {path for path in chunks_of(node) if os.path.basename(path) in names} | {last}


def restart_with_old_chunks(node):
    """As if all were stored, or taken out of sight, two hours ago."""
    node.kill()
    for path in chunks_of(node) + chunks_of(node, ".old"):
        os.utime(path, (time.time() - 7200,) * 2)
    node.start()


def lose_disk(node):
    node.kill()
    for name in ("volumes", "volumes.chunks"):
        shutil.rmtree(os.path.join(node.home, "data", name))


def test_without_a_shared_directory_another_node_keeps_the_last_commit(start, nats):
    first, second = [start("--node", "n%d" % i) for i in range(2)]
    lost = os.path.join(first.home, "data", "volumes.lost")
    blob = ["%064x" % (i * 2654435761 % 2**64) for i in range(40000)]     # some chunks

    def read(node, name):
        status, answer = node.ask("GET", FILE + name)
        return answer if status == 200 else status
    wait_until(lambda: len(first.ask("GET", "/v1/cluster")[1]["nodes"]) == 2)
    assert first.ask("POST", "/v1/volumes", {"name": "data"})[0] == 201
    assert first.ask("PUT", FILE + "blob", blob)[0] == 204
    assert first.ask("POST", "/v1/volumes/data/snapshots", {"snapshot": "one"})[0] == 200
    assert len(chunks_of(second)) > 2                        # before the answer
    assert first.ask("PUT", FILE + "blob", [1])[0] == 204
    assert first.ask("POST", "/v1/volumes/data/snapshots", {"snapshot": "other"})[0] == 200
    assert first.ask("PUT", FILE + "blob", blob[1:])[0] == 204
    assert first.ask("POST", "/v1/volumes/data/snapshots", {"snapshot": "last"})[0] == 200
    assert first.ask("PUT", FILE + "b", [2])[0] == 204       # is in no commit
    blob = blob[1:]
    live = chunks_of_last_commit(second)
    assert live < set(chunks_of(second))
    restart_with_old_chunks(second)                          # sweeps: takes them out of sight
    wait_until(lambda: set(chunks_of(second)) == live)
    restart_with_old_chunks(second)                          # and removes them
    wait_until(lambda: not chunks_of(second, ".old"))
    assert set(chunks_of(second)) == live

    lose_disk(first)
    good = {path: open(path, "rb").read() for path in chunks_of(second)}
    for path, data in good.items():                          # a node whose data are wrong
        with open(path, "r+b") as f:
            f.write(bytes([data[0] ^ 1]))
    first.start()
    wait_until(lambda: read(first, "blob") == 503 and
               "is not the chunk" in open(os.path.join(first.home, "log")).read())
    assert not os.path.exists(os.path.join(first.home, "data", "volumes", "data"))
    for path, data in good.items():
        with open(path, "wb") as f:
            f.write(data)
    wait_until(lambda: read(first, "blob") == blob)
    assert read(first, "b") == 404

    first.kill()
    wait_until(lambda: read(second, "blob") == blob)
    assert second.ask("DELETE", "/v1/volumes/data")[0] == 204
    first.start()                                            # still has what was removed
    wait_until(lambda: os.path.exists(lost) and os.listdir(lost))
    for node in (first, second):
        wait_until(lambda: read(node, "blob") == 404)
        assert node.ask("GET", "/v1/volumes")[1]["volumes"] == []
    assert first.ask("POST", "/v1/volumes", {"name": "data"})[0] == 201

    assert first.ask("POST", "/v1/volumes/data/snapshots", {"snapshot": "two"})[0] == 200
    nats.kill()                                              # and then its disk is lost
    parked = os.path.join(lost, "data")
    wait_until(lambda: os.path.exists(parked))
    shutil.rmtree(parked)
    nats.start()
    wait_until(lambda: first.ask("GET", "/v1/volumes/data")[0] == 200)


@pytest.mark.parametrize("is_shared", [False, True])
def test_a_node_that_is_stopped_in_order_commits_its_volumes_first(start, tmp_path, is_shared):
    """What was written after the last snapshot, also by a sandbox that lived until the end, is on
    the next node; a volume that was never committed stays."""
    share = tmp_path / "share"
    share.mkdir()
    flags = ("--share", str(share)) if is_shared else ()
    first, second = [start("--node", "n%d" % i, *flags) for i in range(2)]
    wait_until_joined([first, second])
    for name in ("data", "own"):
        assert first.ask("POST", "/v1/volumes", {"name": name})[0] == 201
    assert first.ask("POST", "/v1/volumes/data/snapshots", {"snapshot": "one"})[0] == 200
    assert first.ask("PUT", FILE + "b", [2])[0] == 204
    sandbox = first.ask("POST", "/v1/sandboxes", {"options": {"volume-name": "data"}})[1]["id"]
    assert first.ask("POST", "/v1/sandboxes/%s/execute" % sandbox, {
        "code": "save_to_volume('c', '[3]')"})[1]["status"] == "ok"
    first.stop()
    log = open(os.path.join(first.home, "log")).read()
    wait_until(lambda: second.ask("GET", "/v1/volumes/data")[0] == 200)
    assert [second.ask("GET", FILE + name) for name in "bc"] == [(200, [2]), (200, [3])], log
    assert second.ask("GET", "/v1/volumes/own")[0] in (404, 503)
    first.start()
    wait_until(lambda: first.ask("GET", "/v1/volumes/own")[0] == 200)
    assert first.ask("GET", FILE + "c") == (200, [3])         # of the second one


def test_a_node_that_drains_ends_what_has_begun_and_refuses_the_rest(start):
    """It still listens, because other nodes fetch what it commits."""
    node = start("--node", "n0", "--drain", "600")
    assert node.ask("POST", "/v1/volumes", {"name": "data"})[0] == 201
    sandbox = node.ask("POST", "/v1/sandboxes", {"options": {"volume-name": "data"}})[1]["id"]
    place = os.path.join(node.home, "data", "volumes", "data", "data")
    cell = {"code": "import os, time\nsave_to_volume('begun', '')\n"
                    "while not os.path.exists(os.environ['DROSTE_VOLUME'] + '/end'):\n"
                    "    time.sleep(0.01)\n'done'"}
    with concurrent.futures.ThreadPoolExecutor() as pool:
        answer = pool.submit(
            node.ask, "POST", "/v1/sandboxes/%s/execute" % sandbox, cell)
        wait_until(lambda: os.path.exists(place + "/begun"))
        assert node.ask("GET", "/v1/sandboxes")[0] == 200
        node.process.terminate()
        wait_until(lambda: node.ask("GET", "/v1/sandboxes")[1].get(
            "error", {}).get("code") == "draining")
        open(place + "/end", "w").close()
        assert answer.result()[1]["echo"] == "'done'"
    assert node.process.wait(60) == 0


def test_what_cannot_be_committed_by_a_node_that_is_stopped_is_logged(start, tmp_path):
    share = tmp_path / "share"
    share.mkdir()
    node = start("--node", "n0", "--share", str(share))
    wait_until(lambda: node.ask("GET", "/v1/cluster")[0] == 200)
    assert node.ask("POST", "/v1/volumes", {"name": "data"})[0] == 201
    assert node.ask("POST", "/v1/volumes/data/snapshots", {"snapshot": "one"})[0] == 200
    assert node.ask("PUT", FILE + "b", [2])[0] == 204
    shutil.rmtree(share)
    share.write_text("no directory")
    node.stop()
    log = open(os.path.join(node.home, "log")).read()
    assert "what the volume 'data' has since its last commit is on this node only: " in log, log
    node.start()
    wait_until(lambda: node.ask("GET", FILE + "b") == (200, [2]))


def test_only_nodes_get_chunks(start):
    node = start("--node", "n0")
    assert node.ask("POST", "/v1/volumes", {"name": "data"})[0] == 201
    assert node.ask("POST", "/v1/volumes/data/snapshots", {"snapshot": "one"})[0] == 200
    name = os.path.basename(chunks_of(node)[0])
    for method, path in (("GET", "/v1/chunks/"), ("PUT", "/v1/commits/")):
        status, answer = node.ask(method, path + name)
        assert status == 401 and answer["error"]["code"] == "ticket"
