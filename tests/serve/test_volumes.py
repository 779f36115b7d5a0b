"""Volumes over the native interface: what outlives sandboxes, and belongs to one key."""
import http.client
import json
import re

import pytest

from server_process import Server, WAIT, until
from test_keys import Client, create, example


@pytest.fixture
def volume(server):
    assert server.ask("POST", "/v1/volumes", {"name": "data"}).status == 201
    yield "/v1/volumes/data"
    # A body that broke off may still be looked at.
    until(lambda: server.ask("DELETE", "/v1/volumes/data").status == 204)


def names(server):
    return [one["name"] for one in server.ask("GET", "/v1/volumes").json["volumes"]]


def test_a_volume_is_created_once_and_removed(server):
    """It is described with its limits; a second one of its name is refused."""
    made = server.ask("POST", "/v1/volumes", {"name": "one", "size_limit": 1 << 20})
    assert (made.status, made.headers["Location"]) == (201, "/v1/volumes/one")
    assert made.json["size_limit"] == 1 << 20 and made.json["files_limit"] == 100000
    again = server.ask("POST", "/v1/volumes", {"name": "one"})
    assert (again.status, again.code) == (409, "conflict")
    assert names(server) == ["one"]
    assert server.ask("GET", "/v1/volumes/one").json["name"] == "one"
    assert server.ask("DELETE", "/v1/volumes/one").status == 204
    assert names(server) == []
    for method, path in (("GET", ""), ("DELETE", ""), ("GET", "/files?path=a")):
        assert server.ask(method, "/v1/volumes/one" + path).status == 404


def test_a_repeated_creation_is_one(server):
    """With the same Idempotency-Key."""
    key = {"Idempotency-Key": "volume-1"}
    for replayed in (None, "true"):
        answer = server.ask("POST", "/v1/volumes", {"name": "once"}, key)
        assert (answer.status, answer.headers["Idempotency-Replayed"]) == (201, replayed)
    assert server.ask("DELETE", "/v1/volumes/once").status == 204


@pytest.mark.parametrize("body", [
    {"name": ".hidden"}, {"name": "a/b"}, {"name": ".."}, {"name": ""}, {"name": "x" * 65}, {},
    {"name": "big", "size_limit": 1 << 50}, {"name": "small", "size_limit": 1}])
def test_what_a_volume_cannot_be_is_refused(server, body):
    assert server.ask("POST", "/v1/volumes", body).status == 400
    assert names(server) == []


def test_limits_and_snapshots(server, volume):
    """A limit is at most the server's; a snapshot outlives what it has copied."""
    assert server.ask("PATCH", volume, {"size_limit": 1 << 20}).json["size_limit"] == 1 << 20
    assert server.ask("PATCH", volume, {"files_limit": 40}).json["size_limit"] == 1 << 20
    answer = server.ask("PATCH", volume, {"size_limit": 1 << 50})
    assert (answer.status, answer.code) == (400, "limit")
    server.ask("PUT", volume + "/files?path=a", b"first")
    assert server.ask("POST", volume + "/snapshots", {"snapshot": "s"}).json == {"bytes": 5}
    assert server.ask("POST", volume + "/snapshots", {"snapshot": "s"}).status == 409
    assert server.ask("POST", volume + "/snapshots", {"snapshot": "../s"}).status == 400
    assert server.ask("DELETE", volume + "/snapshots?snapshot=..").status == 400
    server.ask("PUT", volume + "/files?path=a", b"second")
    assert server.ask("POST", volume + "/restore", {"snapshot": "s"}).json == {"bytes": 5}
    assert server.ask("GET", volume + "/files?path=a").body == b"first"
    found = server.ask("GET", volume + "/snapshots").json["snapshots"]
    assert [(one["name"], one["files"]) for one in found] == [("s", 1)]
    assert server.ask("POST", volume + "/restore", {"snapshot": "none"}).status == 404
    assert server.ask("DELETE", volume + "/snapshots?snapshot=s").status == 204
    assert server.ask("GET", volume + "/snapshots").json == {"snapshots": []}


def test_a_volume_has_a_limited_number_of_snapshots(server, volume):
    """They do not count towards its size."""
    for i in range(16):
        assert server.ask("POST", volume + "/snapshots", {"snapshot": "s%d" % i}).status == 200
    answer = server.ask("POST", volume + "/snapshots", {"snapshot": "more"})
    assert (answer.status, answer.code) == (409, "conflict")
    server.ask("DELETE", volume + "/snapshots?snapshot=s1")
    assert server.ask("POST", volume + "/snapshots", {"snapshot": "more"}).status == 200


def test_files_go_in_and_come_out(server, volume):
    """Of any size, in directories that are made; a file is replaced as a whole."""
    data = bytes(range(256)) * 16384        # more than a piece
    for content in (data, b"second", b""):
        answer = server.ask("PUT", volume + "/files?path=a/b/file.bin", content)
        assert answer.status == 204, answer.body
        got = server.ask("GET", volume + "/files?path=/data/a/b/file.bin")
        assert (got.status, got.body) == (200, content)
    listed = server.ask("GET", volume + "/directory?path=.&depth=3").json
    assert [(e["name"], e["kind"]) for e in listed["entries"]] == [
        ("a", "directory"), ("a/b", "directory"), ("a/b/file.bin", "file")]
    assert listed["more"] is False
    assert server.ask("GET", volume + "/directory?path=.&depth=3&limit=1").json["more"] is True
    assert server.ask("DELETE", volume + "/files?path=a").status == 204
    assert server.ask("GET", volume + "/directory?path=.").json["entries"] == []
    assert server.ask("GET", volume + "/files?path=a/b/file.bin").status == 404


def test_a_body_that_breaks_off_leaves_the_file(server, volume):
    """The old one, unchanged."""
    assert server.ask("PUT", volume + "/files?path=f", b"old").status == 204
    with server.connect() as client:
        client.sendall(b"PUT %s/files?path=f HTTP/1.1\r\nHost: localhost\r\n"
                       b"Content-Length: 100\r\n\r\nnew" % volume.encode())
    assert server.ask("GET", volume + "/files?path=f").body == b"old"


def test_a_volume_takes_no_more_than_its_limit(server):
    """The body is refused when it is too long, and a file that fits is taken."""
    made = server.ask("POST", "/v1/volumes", {"name": "tight", "size_limit": 1 << 20})
    assert made.status == 201
    large = server.ask("PUT", "/v1/volumes/tight/files?path=x", b"x" * (3 << 20))
    assert (large.status, large.code) == (413, "too_large")
    assert server.ask("PUT", "/v1/volumes/tight/files?path=x", b"x" * 1000).status == 204
    assert server.ask("DELETE", "/v1/volumes/tight").status == 204


@pytest.mark.parametrize("path", ["..", "../x", "/etc/passwd", "a/../../x", "/data/../x", "%2e%2e",
                                  ""])
def test_no_path_leads_out(server, volume, path):
    """In any operation."""
    for method, below, body in (("GET", "files", None), ("PUT", "files", b"x"),
                                ("DELETE", "files", None), ("GET", "directory", None)):
        answer = server.ask(method, "%s/%s?path=%s" % (volume, below, path), body)
        assert answer.status in (400, 403, 404), (method, below, answer.body)


def test_a_sandbox_mounts_a_volume(server, volume):
    """Its code reads what was put there, and what it writes stays. A link is not followed."""
    assert server.ask("PUT", volume + "/files?path=in.txt", b"from outside").status == 204
    sandbox = server.create(options={"volume-name": "data"})
    code = ("import os; open('/data/out.txt', 'w').write(open('/data/in.txt').read().upper()); "
            "os.symlink('/etc/passwd', '/data/link'); os.mkfifo('/data/fifo')")
    assert server.execute(sandbox, code)["status"] == "ok"
    busy = server.ask("DELETE", volume)
    assert (busy.status, busy.code) == (409, "conflict")
    assert server.ask("DELETE", sandbox).status == 204
    assert server.ask("GET", volume + "/files?path=out.txt").body == b"FROM OUTSIDE"
    for name in ("link", "fifo"):
        assert server.ask("GET", volume + "/files?path=" + name).status == 400
    missing = server.ask("POST", "/v1/sandboxes", {"options": {"volume-name": "none"}})
    assert (missing.status, missing.code) == (404, "not_found")


def test_another_keys_volumes_are_not_found(tmp_path):
    """By any operation, and its names are free; an administrator has volumes of its own."""
    keys = {name: create(tmp_path, name) for name in ("one", "other")}
    keys["reader"] = create(tmp_path, "reader", "--scopes", "read")
    server = Server(tmp_path)
    try:
        clients = {name: Client(server, key) for name, key in keys.items()}
        assert clients["one"].ask("POST", "/v1/volumes", '{"name": "mine"}').status == 201
        assert clients["one"].ask("PUT", "/v1/volumes/mine/files?path=x", "secret").status == 204
        assert clients["reader"].ask("POST", "/v1/volumes", '{"name": "mine"}').status == 403
        tried = 0
        for path, methods in server.ask("GET", "/openapi.json").json["paths"].items():
            for method, operation in methods.items():
                if not path.startswith("/v1/volumes/{name}"):
                    continue
                tried += 1
                kinds = operation.get("requestBody", {}).get("content", {})
                body = json.dumps(example(kinds.get("application/json", {}).get("schema", {}))
                                  ) if kinds else None
                answers = [clients["other"].ask(method.upper(), path.replace("{name}", name)
                                                + "?path=x&to=y", body)
                           for name in ("mine", "none")]
                assert [a.status for a in answers] == [404, 404], (method, path)
                assert answers[0].body.replace(b"mine", b"none") == answers[1].body
        assert tried >= 6
        refused = clients["other"].ask("POST", "/v1/sandboxes",
                                       '{"options": {"volume-name": "mine"}}')
        assert refused.status == 404
        assert clients["other"].ask("POST", "/v1/volumes", '{"name": "mine"}').status == 201
        assert clients["other"].ask("GET", "/v1/volumes/mine/files?path=x").status == 404
        assert clients["one"].ask("GET", "/v1/volumes/mine/files?path=x").body == b"secret"
    finally:
        server.stop()


def test_a_slow_client_delays_no_other(server, volume):
    """While many files come in, none of which is whole, others are written and read."""
    slow = []
    for i in range(12):
        client = http.client.HTTPConnection("127.0.0.1", server.port, timeout=WAIT)
        client.putrequest("PUT", volume + "/files?path=slow%d" % i)
        client.putheader("Content-Length", "2")
        client.endheaders(b"a")
        slow.append(client)
    assert server.ask("PUT", volume + "/files?path=quick", b"q").status == 204
    assert server.ask("GET", volume + "/files?path=quick").body == b"q"
    for client in slow:
        client.send(b"b")
        assert client.getresponse().status == 204
        client.close()
    listed = server.ask("GET", volume + "/directory?path=.").json["entries"]
    assert len([e for e in listed if re.match("slow", e["name"])]) == 12
