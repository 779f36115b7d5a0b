"""Several workers: one address, limits of all together, and what is left when one dies."""
import base64
import concurrent.futures
import hashlib
import http.client
import json
import os
import signal
import urllib.parse

import pytest

from server_process import WAIT, Server, until
from harness import descendants, still_alive
from test_keys import Client, create


def worker_of(path):
    """The number of the worker that has a sandbox."""
    return int(path.rpartition("/")[2][:2], 16)


def workers(server):
    """The processes of the workers, in the order of their start."""
    pid = server.process.pid
    with open("/proc/%d/task/%d/children" % (pid, pid)) as f:
        return [int(word) for word in f.read().split()]


@pytest.fixture
def three(tmp_path):
    server = Server(tmp_path, workers="3")
    yield server
    assert server.stop() == 0


def test_sandboxes_are_spread_and_reached_through_every_worker(three):
    """Each new connection is accepted by any of them; a list has the sandboxes of all."""
    paths = [three.create(metadata={"n": str(n)}) for n in range(9)]
    assert {worker_of(path) for path in paths} == {0, 1, 2}
    for n, path in enumerate(paths):
        assert three.execute(path, "x = %d" % n)["status"] == "ok"
    for _ in range(3):
        for n, path in enumerate(paths):
            assert three.execute(path, "x")["echo"] == str(n)
        listed = three.ask("GET", "/v1/sandboxes").json["sandboxes"]
        assert {one["metadata"]["n"] for one in listed} == {str(n) for n in range(9)}
        times = [one["created_ms"] for one in listed]   # those of two workers may be the same
        assert times == sorted(times, reverse=True)
    for path in paths:
        assert three.ask("DELETE", path).status == 204
    assert three.ask("GET", "/v1/sandboxes").json["sandboxes"] == []


def test_what_workers_share_is_listed_once(three):
    """It is in directories that all of them read."""
    assert three.ask("POST", "/v1/volumes", {"name": "data"}).status == 201
    stored = three.ask("POST", "/v1/contexts?name=text", b"text").json["id"]
    container = three.ask("POST", "/v1/containers", {"name": "c"}).json["id"]
    for _ in range(4):      # whichever worker is asked
        assert [v["name"] for v in three.ask("GET", "/v1/volumes").json["volumes"]] == ["data"]
        assert [c["id"] for c in three.ask("GET", "/v1/contexts").json["contexts"]] == [stored]
        assert [c["id"] for c in three.ask("GET", "/v1/containers").json["data"]] == [container]


def test_one_connection_reaches_all_workers(three):
    """Request after request."""
    paths = [three.create() for _ in range(6)]
    connection = http.client.HTTPConnection("127.0.0.1", three.port, timeout=WAIT)
    for n in range(60):
        connection.request("POST", paths[n % 6] + "/execute", json.dumps({"code": str(n)}))
        assert json.loads(connection.getresponse().read())["echo"] == str(n)
    connection.close()


def test_limits_hold_for_all_workers_together(tmp_path):
    """Of a key that asks through all of them at once."""
    key = create(tmp_path, "five", "--limit", "sandboxes=5")
    server = Server(tmp_path, workers="3")
    try:
        client = Client(server, key)
        with concurrent.futures.ThreadPoolExecutor(24) as pool:
            got = list(pool.map(lambda _: client.ask("POST", "/v1/sandboxes", {}), range(24)))
        made = [answer.json["id"] for answer in got if answer.status == 201]
        assert len(made) == 5 and {answer.status for answer in got} == {201, 429}
        assert client.ask("DELETE", "/v1/sandboxes/" + made[0]).status == 204
        client.create()
        assert client.ask("POST", "/v1/sandboxes", {}).code == "sandboxes"
    finally:
        assert server.stop() == 0


def test_a_repeated_request_comes_to_one_worker(three):
    """Whichever accepted it."""
    def ask(_):
        answer = three.ask("POST", "/v1/sandboxes", {}, {"Idempotency-Key": "k"})
        return answer.json["id"] if answer.status == 201 else answer.code
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        got = set(pool.map(ask, range(16)))
    assert len(got - {"idempotency_in_progress"}) == 1
    assert len(three.ask("GET", "/v1/sandboxes").json["sandboxes"]) == 1


def test_a_client_cannot_pose_as_a_worker(tmp_path):
    """The fields between workers are not those of clients."""
    one, other = create(tmp_path, "one"), create(tmp_path, "other")
    server = Server(tmp_path, workers="2")
    try:
        path = Client(server, one).create()
        ids = [k["id"] for k in json.loads((tmp_path / "data" / "keys.json").read_text())["keys"]]
        for _ in range(6):   # through both workers
            for name in ids:
                headers = {"X-Droste-Account": name, "X-Droste-Client": "127.0.0.1:1"}
                assert server.ask("GET", path, headers=headers).status == 401
                headers["X-API-Key"] = other
                assert server.ask("GET", path, headers=headers).status == 404
    finally:
        assert server.stop() == 0


def test_a_worker_that_dies_takes_only_its_own_sandboxes(three):
    """A request that it was answering gets 502, later ones 410; others go on, and it is started
    again."""
    paths = {}
    while len(paths) < 3:
        path = three.create()
        paths.setdefault(worker_of(path), path)
    # Connections that other workers accepted, so that they are relayed.
    waiting, code = [], "import time; time.sleep(1000)"
    for _ in range(4):
        fresh = three.create()
        while worker_of(fresh) != 1:
            fresh = three.create()
        connection = http.client.HTTPConnection("127.0.0.1", three.port, timeout=WAIT)
        connection.request("POST", fresh + "/execute", json.dumps({"code": code}))
        waiting.append(connection)
        until(lambda path=fresh: three.ask("GET", path).json["state"] == "executing")
    assert b'droste_worker_up{worker="1"} 1' in three.ask("GET", "/metrics").body
    os.kill(workers(three)[1], signal.SIGKILL)
    got = []
    for connection in waiting:
        try:
            answer = connection.getresponse()
            got.append((answer.status, json.loads(answer.read())["error"]["code"]))
        except (ConnectionError, http.client.HTTPException):
            got.append("its own connection")   # which the worker itself had accepted
        connection.close()
    assert set(got) <= {(502, "worker_lost"), "its own connection"} and len(got) == 4

    def again(method, path):
        try:
            return three.ask(method, path)
        except (ConnectionError, http.client.HTTPException):
            return None   # accepted by the worker while it died
    until(lambda: again("GET", paths[1]) is not None)
    for method, end in [("GET", ""), ("DELETE", ""), ("GET", "/variables/x")]:
        answer = three.ask(method, paths[1] + end)
        assert (answer.status, answer.code) == (410, "worker_lost")
    for number in (0, 2):
        assert three.execute(paths[number], "1")["status"] == "ok"
    until(lambda: len(workers(three)) == 3)
    made = [three.create() for _ in range(6)]
    assert 1 in {worker_of(path) for path in made}
    for path in made:
        assert three.execute(path, "2")["echo"] == "2"
    assert three.ask("GET", paths[1]).status == 410


def test_places_of_a_dead_worker_are_free_again(tmp_path):
    """Those of the key and of the server."""
    key = create(tmp_path, "two", "--limit", "sandboxes=2")
    server = Server(tmp_path, "--max-sandboxes", "2", "--queue", "0", workers="2")
    try:
        client = Client(server, key)
        for _ in range(2):
            client.create()
        assert client.ask("POST", "/v1/sandboxes", {}).status == 429
        for pid in workers(server):
            os.kill(pid, signal.SIGKILL)

        def is_free():
            try:
                return client.ask("POST", "/v1/sandboxes", {}).status == 201
            except (ConnectionError, http.client.HTTPException):
                return False
        until(is_free)
    finally:
        assert server.stop() == 0


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_is_left_when_the_parent_ends(tmp_path, number):
    """The kernel ends the workers, and their sandboxes end as those of any host."""
    server = Server(tmp_path, "--drain", "0.2", workers="2")
    for _ in range(4):
        server.create()
    below = descendants(server.process.pid)
    assert len(below) >= 4
    server.process.send_signal(number)
    assert server.process.wait(WAIT) == (0 if number == signal.SIGTERM else -number)
    server.process.stdout.close()
    until(lambda: not still_alive(below))


def test_e2bs_clients_reach_sandboxes_of_all_workers(three):
    """By the headers that name them, and in the pages of a list."""
    key = {"X-API-Key": "e2b_" + "0" * 40}
    made = []
    for _ in range(12):     # a worker with three fewer than another gets the next
        answer = three.ask("POST", "/sandboxes", {"templateID": "base", "secure": True,
                                                  "timeout": 300}, key)
        assert answer.status == 201, answer.body
        made.append(answer.json)
    assert len({one["sandboxID"][:2] for one in made}) == 3
    for n in range(18):
        one = made[n % len(made)]
        answer = three.ask("POST", "/execute", {"code": "print(%d)" % n},
                           {"E2b-Sandbox-Id": one["sandboxID"], "E2b-Sandbox-Port": "49999",
                            "X-Access-Token": one["envdAccessToken"]})
        assert answer.status == 200 and b'"text": "%d\\n"' % n in answer.body.replace(
            b'"text":"', b'"text": "'), answer.body
        seen = three.ask("GET", "/sandboxes/" + one["sandboxID"], headers=key)
        assert seen.status == 200
        other = three.ask("GET", "/", headers={"E2b-Sandbox-Id": one["sandboxID"],
                                               "E2b-Sandbox-Port": "8000"})
        assert other.status == 502 and other.json["sandboxId"] == one["sandboxID"]
    pages, cursor = [], ""
    while cursor is not None:
        page = three.ask("GET", "/v2/sandboxes?limit=4" + cursor, headers=key)
        assert int(page.headers["X-Total-Running"]) >= 6 and len(page.json) <= 4
        pages += [one["sandboxID"] for one in page.json]
        token = page.headers["X-Next-Token"]
        cursor = "&nextToken=" + token if token else None
    ids = {one["sandboxID"] for one in made}
    assert ids <= set(pages) and len(set(pages)) == len(pages)
    for one in made:
        assert three.ask("DELETE", "/sandboxes/" + one["sandboxID"], headers=key).status == 204


def signed_url(sandbox, method, path, expiry=None):
    """A URL as E2B's clients sign it with a sandbox's token."""
    words = [path, "read" if method == "GET" else "write", "user", sandbox["envdAccessToken"]]
    digest = hashlib.sha256(":".join(words + ([str(expiry)] if expiry else [])).encode()).digest()
    query = {"path": path, "username": "user",
             "signature": "v1_" + base64.b64encode(digest).decode().rstrip("=")}
    if expiry:
        query["signature_expiration"] = str(expiry)
    return "/files?" + urllib.parse.urlencode(query)


def test_signed_urls_of_e2bs_clients_work_through_every_worker(three):
    """They name no sandbox: the workers are asked in turn, for downloads and uploads of any size;
    a signature that fits no sandbox, and one that has expired, are refused by all."""
    key = {"X-API-Key": "e2b_" + "0" * 40}
    made = {}
    while len(made) < 3:
        one = three.ask("POST", "/sandboxes", {"templateID": "base", "timeout": 300}, key).json
        made.setdefault(one["sandboxID"][:2], one)
    content = os.urandom(3 << 20)
    for number, one in enumerate(made.values()):
        path = "/tmp/signed-%d" % number
        for part in (content[:100], content):
            for _ in range(4):      # each connection is accepted by any worker
                answer = three.ask("POST", signed_url(one, "POST", path), part,
                                   {"Content-Type": "application/octet-stream"})
                assert (answer.status, answer.json[0]["path"]) == (200, path), answer.body
            for expiry in (None, 10 ** 10) * 3:
                assert three.ask("GET", signed_url(one, "GET", path, expiry)).body == part
        for _ in range(4):
            assert three.ask("GET", signed_url(one, "POST", path)).status == 401
            expired = three.ask("GET", signed_url(one, "GET", path, 1))
            assert (expired.status, expired.json["message"]) == (
                401, "signature is already expired")
    stranger = signed_url({"envdAccessToken": "0" * 32}, "GET", "/tmp/signed-0")
    for headers in ({}, {"X-Droste-First": "1"}, {"X-Droste-First": "999"}):
        for _ in range(4):
            answer = three.ask("GET", stranger, headers=headers)
            assert answer.json["message"] == "the signature fits no sandbox", answer.body
