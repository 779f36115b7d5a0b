"""Watched directories: what changes between two questions, and as a stream."""
import http.client
import json
import struct

import pytest

from client import (  # noqa: F401: fixtures
    client, CONNECT, envelope, envelopes, error, sandbox)
from server_process import WAIT

CREATE, WRITE, REMOVE, RENAME, CHMOD = ("EVENT_TYPE_" + name for name in (
    "CREATE", "WRITE", "REMOVE", "RENAME", "CHMOD"))


@pytest.fixture
def call(client, sandbox):
    """call(METHOD, **MESSAGE): the answer to a unary call of the file system's service."""
    def ask(method, **message):
        return client.data(sandbox, 49983, "POST", "/filesystem.Filesystem/" + method, message)
    return ask


@pytest.fixture
def run(client, sandbox):
    """run(SCRIPT): runs a shell in the sandbox."""
    def start(script):
        message = {"process": {"cmd": "/bin/sh", "args": ["-ec", script]}}
        found = envelopes(client.data(sandbox, 49983, "POST", "/process.Process/Start",
                                      envelope(message), **CONNECT).body)
        assert "error" not in found[-2][1]["event"]["end"], found
    return start


@pytest.fixture
def place(run, request):
    """A new directory's path."""
    path = "/tmp/" + request.node.name.partition("[")[0]
    run("rm -rf %s; mkdir %s" % (path, path))
    return path


def events(call, watcher):
    """Since the last question: [(type, name)], without the entries."""
    answer = call("GetWatcherEvents", watcherId=watcher)
    assert answer.status == 200, answer.body
    return [(one["type"], one["name"]) for one in answer.json["events"]]


def test_each_change_is_an_event(call, run, place):
    watcher = call("CreateWatcher", path=place).json["watcherId"]
    assert events(call, watcher) == []
    for script, expected in [
            ("echo 1 > a", [(CREATE, "a"), (CHMOD, "a"), (WRITE, "a")]),
            ("echo 22 > a", [(WRITE, "a")]), ("chmod 600 a", [(CHMOD, "a")]),
            ("mv a b", [(CREATE, "b"), (CHMOD, "b"), (WRITE, "b"), (RENAME, "a")]),
            ("mkdir d; echo > d/in", [(CREATE, "d")]), ("echo > d/more", []),
            ("rm b", [(REMOVE, "b")]), ("true", []),
            ("cd ..; rm -rf %s" % place, [(REMOVE, "d")])]:
        run("cd %s; %s" % (place, script))
        seen = events(call, watcher)
        assert sorted(seen) == sorted(expected), script
    assert call("RemoveWatcher", watcherId=watcher).status == 200
    assert call("GetWatcherEvents", watcherId=watcher).status == 404


def test_below_and_with_entries(call, run, place):
    watcher = call("CreateWatcher", path=place, recursive=True, includeEntry=True
                   ).json["watcherId"]
    run("mkdir -p %s/x/y; printf 123 > %s/x/y/f" % (place, place))
    found = call("GetWatcherEvents", watcherId=watcher).json["events"]
    assert [(one["type"], one["name"]) for one in found] == [
        (CREATE, "x"), (CREATE, "x/y"), (CREATE, "x/y/f"), (CHMOD, "x/y/f"), (WRITE, "x/y/f")]
    assert found[-1]["entry"]["path"] == place + "/x/y/f" and found[-1]["entry"]["size"] == "3"


@pytest.mark.parametrize("path,status", [("/none", 404), ("/etc/passwd", 400)])
def test_what_is_no_directory_is_not_watched(client, sandbox, call, path, status):
    """Refused, or the end of the stream; others are watched afterwards as before."""
    answer = call("CreateWatcher", path=path)
    assert answer.status == status
    stream = client.data(sandbox, 49983, "POST", "/filesystem.Filesystem/WatchDir",
                         envelope({"path": path}), **CONNECT)
    assert envelopes(stream.body)[-1][1]["error"]["code"] == answer.json["code"]
    made = call("CreateWatcher", path="/tmp").json["watcherId"]
    assert call("RemoveWatcher", watcherId=made).status == 200


def test_watchers_are_bounded(call, run, place):
    """Their number, and what one has; both give room again."""
    made = []
    while (answer := call("CreateWatcher", path="/tmp")).status == 200:
        made.append(answer.json["watcherId"])
    assert (len(made) <= 16, answer.status) == (True, 429)
    assert call("RemoveWatcher", watcherId=made[0]).status == 200
    run("cd %s; touch $(seq 5001)" % place)
    assert call("CreateWatcher", path=place).status == 429
    run("cd %s; rm 1" % place)
    made.append(call("CreateWatcher", path=place).json["watcherId"])
    for one in made[1:]:
        assert call("RemoveWatcher", watcherId=one).status == 200


def test_a_watcher_is_its_sandboxs(client, sandbox, call):
    watcher = call("CreateWatcher", path="/tmp").json["watcherId"]
    other = client.create()
    for method in ("GetWatcherEvents", "RemoveWatcher"):
        answer = client.data(other, 49983, "POST", "/filesystem.Filesystem/" + method,
                             {"watcherId": watcher})
        assert answer.status == 404
    assert call("RemoveWatcher", watcherId=watcher).status == 200


def test_a_stream_tells_of_changes_until_the_sandbox_ends(client):
    own = client.create()
    stream = http.client.HTTPConnection("127.0.0.1", client.server.port, timeout=WAIT)
    stream.request("POST", "/filesystem.Filesystem/WatchDir", envelope({"path": "."}), {
        **CONNECT, "E2b-Sandbox-Id": own["sandboxID"], "E2b-Sandbox-Port": "49983",
        "X-Access-Token": own["envdAccessToken"]})
    answer = stream.getresponse()

    def next_message():
        return json.loads(answer.read(struct.unpack(">BI", answer.read(5))[1]))
    assert next_message() == {"start": {}}
    assert client.data(own, 49983, "POST", "/files?path=new.txt", b"x", **{
        "Content-Type": "application/octet-stream"}).status == 200
    assert [next_message()["filesystem"]["type"] for _ in range(3)] == [CREATE, CHMOD, WRITE]
    client.control("DELETE", "/sandboxes/" + own["sandboxID"])
    with pytest.raises((http.client.IncompleteRead, ConnectionError, struct.error)):
        next_message()
    stream.close()
