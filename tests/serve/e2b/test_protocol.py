"""What clients of E2B must not reach, and the errors that they understand, over plain HTTP."""
import base64
import gzip
import hashlib
import http.client
import json
import os
import signal
import struct
import subprocess
import threading

import pytest

from client import (  # noqa: F401: fixtures
    client, Client, CONNECT, envelope, envelopes, error, KEY, sandbox)
from server_process import DROSTE, Server, until


def test_requests_without_a_key_are_refused(server, client):
    """With the body that the SDKs read."""
    answer = server.ask("GET", "/v2/sandboxes")
    assert error(answer)[0] == 401
    assert client.control("GET", "/v2/sandboxes").status == 200


@pytest.mark.parametrize("version,seconds", [("", 15), ("/v2", 300)])
def test_the_default_timeout_is_that_of_the_version(client, version, seconds):
    answer = client.server.ask("POST", version + "/sandboxes", {"templateID": "base"}, client.key)
    assert answer.status == 201
    info = client.control("GET", "/sandboxes/" + answer.json["sandboxID"]).json
    ends = [int(info[key][17:19]) + 60 * int(info[key][14:16]) for key in ("startedAt", "endAt")]
    assert (ends[1] - ends[0]) % 3600 in (seconds, seconds + 1)


@pytest.mark.parametrize("body", [
    {}, {"templateID": 5}, {"templateID": ""}, {"templateID": "base", "timeout": -1},
    {"templateID": "base", "timeout": "5"}, {"templateID": "base", "envVars": {"A": 1}},
    {"templateID": "base", "metadata": [1]}, {"templateID": "base", "timeout": 10 ** 9},
    {"templateID": "base", "volumeMounts": [{"name": "v", "path": "/v"}]},
    {"templateID": "base", "autoPauseMemory": False}, {"templateID": "base", "iam": {}}])
def test_creations_that_are_wrong_or_unsupported_are_refused(client, body):
    assert error(client.control("POST", "/v2/sandboxes", body))[0] == 400


@pytest.mark.parametrize("method,path", [
    ("POST", "/v3/templates"), ("POST", "/volumes"), ("GET", "/volumes"), ("GET", "/volumes/x"),
    ("DELETE", "/volumes/x"), ("GET", "/secrets")])
def test_what_is_not_supported_says_so(client, method, path):
    status, message = error(client.control(method, path, {} if method == "POST" else None))
    assert status == 400 and "here" in message


def test_templates_have_names(server, client):
    """Those of the account, in any worker; a removed one is unknown."""
    made = server.ask("POST", "/v1/templates", {"name": "named", "cells": ["x = 41"]}, client.key)
    for name in ("named", made.json["id"]):
        found = client.control("GET", "/templates/aliases/" + name)
        assert (found.status, found.json["public"]) == (200, False)
    for _ in range(4):     # placed in any worker
        own = client.create(templateID="named")
        answer = client.data(own, 49999, "POST", "/execute", {"code": "print(x + 1)"})
        assert b'"42\\n"' in answer.body
        client.control("DELETE", "/sandboxes/" + own["sandboxID"])
    assert server.ask("DELETE", "/v1/templates/" + made.json["id"], None, client.key).status == 204
    assert error(client.control("GET", "/templates/aliases/named"))[0] == 404
    refused = client.control("POST", "/v2/sandboxes", {"templateID": "named"})
    assert error(refused)[0] == 404 and "named" in error(refused)[1]


def test_metrics_of_several_sandboxes(client):
    """Of those that are asked for, of any worker, and times that are none are refused."""
    ids = [client.create()["sandboxID"] for _ in range(3)]

    def asked():
        return client.control("GET", "/sandboxes/metrics?sandbox_ids=%s,%s,none" % (
            ids[0], ids[2])).json["sandboxes"]
    until(lambda: len(asked()) == 2)    # as on E2B's machines, a new one may have none yet
    found = asked()
    assert set(found) == {ids[0], ids[2]}
    assert all(0 < one["memUsed"] < one["memTotal"] for one in found.values())
    assert error(client.control("GET", "/sandboxes/metrics"))[0] == 400
    for wrong in ("start=x", "end=-1", "start="):
        path = "/sandboxes/%s/metrics?%s" % (ids[0], wrong)
        assert error(client.control("GET", path))[0] == 400
    for one in ids:
        client.control("DELETE", "/sandboxes/" + one)


@pytest.fixture(scope="module")
def two_keys(tmp_path_factory):
    """A server, and the clients of two keys; the first may have three sandboxes."""
    home = tmp_path_factory.mktemp("keys")
    keys = [subprocess.run([DROSTE, "keys", "create", name, "--keys", home / "keys.json", *more],
                           check=True, capture_output=True, text=True, env={"HOME": str(home)}
                           ).stdout.strip()
            for name, more in (("one", ["--limit", "sandboxes=3"]), ("two", []))]
    server = Server(home, "--keys", str(home / "keys.json"))
    yield [Client(server, key) for key in keys]
    server.stop()


def test_snapshots_of_other_keys_do_not_exist(two_keys):
    """In lists, names, creations and deletions; their owner's do."""
    owner, other = two_keys
    sandbox = owner.create()
    made = owner.control("POST", "/sandboxes/%s/snapshots" % sandbox["sandboxID"],
                         {"name": "private"}).json["snapshotID"]
    assert other.control("GET", "/snapshots").json == []
    for name in ("private", made):
        path = "/templates/" + name.replace(":", "%3A")
        assert error(other.control("DELETE", path))[0] == 404
        assert error(other.control("GET", "/templates/aliases/private"))[0] == 404
        refused = other.control("POST", "/v2/sandboxes", {"templateID": name})
        assert error(refused)[0] == 404
    again = owner.create(templateID="private")
    assert [one["snapshotID"] for one in owner.control("GET", "/snapshots").json] == [made]
    assert owner.control("GET", "/templates/aliases/private").status == 200
    assert owner.control("DELETE", "/templates/private%3Adefault").status == 204
    for one in (sandbox, again):
        owner.control("DELETE", "/sandboxes/" + one["sandboxID"])


def test_forks_beyond_a_limit_are_errors_of_their_own(two_keys):
    """Those within it run; wrong numbers of forks are refused as a whole."""
    owner = two_keys[0]
    path = "/sandboxes/" + owner.create()["sandboxID"]
    done = owner.control("POST", path + "/fork", {"count": 4})
    assert done.status == 201
    assert [sorted(one) for one in done.json] == [["sandbox"]] * 2 + [["error"]] * 2
    assert done.json[2]["error"]["code"] == 429
    running = owner.control("GET", "/v2/sandboxes").json
    assert len(running) == 3
    for count in (0, 101, -1, "2"):
        assert error(owner.control("POST", path + "/fork", {"count": count}))[0] == 400
    for one in running:
        owner.control("DELETE", "/sandboxes/" + one["sandboxID"])


@pytest.mark.parametrize("body", [{"name": "a/b"}, {"name": "x" * 65}, {"name": "base"},
                                  {"name": "\u00e9"}, {"memory": "no"}])
def test_snapshots_with_wrong_names_are_refused(client, sandbox, body):
    path = "/sandboxes/%s/snapshots" % sandbox["sandboxID"]
    assert error(client.control("POST", path, body))[0] == 400


def test_snapshots_that_do_not_fit_into_the_memory_are_refused(tmp_path):
    """The sandbox goes on, and smaller ones fit."""
    server = Server(tmp_path, "--memory", "200M", "--tmp-size", "400M")
    try:
        client = Client(server)
        sandbox = client.create()
        path = "/sandboxes/%s/snapshots" % sandbox["sandboxID"]

        def fill(size):
            code = "with open('/tmp/f', 'wb') as f:\n" \
                "    for _ in range(%d): f.write(b'x' * 2 ** 20)" % size
            data = client.data(sandbox, 49999, "POST", "/execute", {"code": code})
            assert b'"error"' not in data.body, data.body
        fill(150)
        assert "memory" in error(client.control("POST", path, {}))[1].lower()
        fill(1)
        assert client.control("POST", path, {}).status == 201
    finally:
        server.stop()


def test_forks_of_a_client_that_left_end(client):
    """Nobody knows their ids; the forked sandbox stays."""
    sandbox = client.create(metadata={"left": "yes"})
    head = "POST /sandboxes/%s/fork HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nX-API-Key: %s\r\n" \
        "Content-Type: application/json\r\nContent-Length: 13\r\n\r\n{\"count\": 20}" % (
            sandbox["sandboxID"], client.server.port, KEY["X-API-Key"])
    listed = "/v2/sandboxes?metadata=left%3Dyes"
    connection = client.server.connect()
    connection.sendall(head.encode())
    until(lambda: len(client.control("GET", listed).json) > 1)
    connection.close()
    until(lambda: [one["sandboxID"] for one in client.control("GET", listed).json] ==
          [sandbox["sandboxID"]])


def test_code_beyond_what_may_wait_is_refused(client):
    """With a time after which to ask again; what waits runs in its order."""
    sandbox = client.create()
    answers = []

    def execute(code):
        answer = client.data(sandbox, 49999, "POST", "/execute", {"code": code})
        answers.append(answer)
        return answer.status
    first = threading.Thread(target=execute, args=(
        "import os, time\nwhile not os.path.exists('/tmp/go'): time.sleep(0.01)",))
    first.start()
    until(lambda: client.data(sandbox, 49999, "GET", "/contexts").json)
    large = "n = globals().get('n', 0) + 1\nprint('n', n)\n#" + "x" * (6 << 20)
    waiting = [threading.Thread(target=execute, args=(large,)) for _ in range(4)]
    for one in waiting:
        one.start()
    until(lambda: [one for one in answers if one.status == 429])
    client.data(sandbox, 49983, "POST", "/files?path=/tmp/go", b"", **{
        "Content-Type": "application/octet-stream"})
    for one in [first, *waiting]:
        one.join()
    refused = [one for one in answers if one.status == 429]
    assert all(int(one.headers["Retry-After"]) > 0 for one in refused)
    done = [one for one in answers if one.status == 200 and b'"text": "n ' in one.body]
    assert len(done) + len(refused) == 4 and done
    assert execute("print(n == %d)" % len(done)) == 200 and b"True" in answers[-1].body


def test_the_data_plane_wants_the_token(client, sandbox):
    """Another sandbox's does not do; /health needs none."""
    other = client.create()
    for port, method, path, body in [(49983, "GET", "/files?path=/tmp/x", None),
                                     (49983, "POST", "/files?path=/tmp/x", "x"),
                                     (49999, "POST", "/execute", {"code": "1"})]:
        for token in (None, "", "x", other["envdAccessToken"],
                      sandbox["envdAccessToken"] + "0", sandbox["envdAccessToken"][:-1]):
            answer = client.data(sandbox, port, method, path, body,
                                 **{"X-Access-Token": token})
            assert answer.status == 401, (path, token)
    assert client.data(sandbox, 49983, "GET", "/health",
                       **{"X-Access-Token": None}).status == 204
    assert client.data(sandbox, 49999, "POST", "/execute", {"code": "1"}).status == 200


@pytest.mark.parametrize("identity", [
    {"E2b-Sandbox-Id": "0" * 32}, {"E2b-Sandbox-Id": "../../etc"}, {"E2b-Sandbox-Id": "A" * 32},
    {"E2b-Sandbox-Id": "a" * 100}, {"E2b-Sandbox-Port": "0"}, {"E2b-Sandbox-Port": "99999"},
    {"E2b-Sandbox-Port": "-1"}, {"E2b-Sandbox-Port": None}, {"E2b-Sandbox-Id": None}])
def test_a_sandbox_that_is_none_is_gone(client, sandbox, identity):
    """502 in the form from which the SDKs conclude that it does not run."""
    answer = client.data(sandbox, 49983, "GET", "/health", **identity)
    assert error(answer) == (502, "The sandbox was not found")


def test_ports_of_programs_are_not_open(client, sandbox):
    answer = client.data(sandbox, 8000, "GET", "/v2/sandboxes")
    assert error(answer) == (502, "The sandbox is running but port is not open")


def test_foreign_hosts_need_the_token(client, sandbox):
    """A Host that names a sandbox may have any domain; a page knows no token."""
    host = f"49999-{sandbox['sandboxID']}.example.com"
    headers = {"Host": host, "X-Access-Token": sandbox["envdAccessToken"]}
    ask = client.server.ask
    assert ask("GET", "/contexts", None, headers).status == 200
    assert ask("GET", "/contexts", None, {"Host": host}).status == 401
    assert ask("GET", "/contexts", None, {**headers, "Origin": "http://example.com"}).status == 403
    assert ask("GET", "/v2/sandboxes", None, {**KEY, "Host": "api.example.com"}).status == 403
    # What such a Host reaches is a sandbox, whatever the path.
    assert ask("GET", "/v1/sandboxes", None, headers).status == 404
    assert ask("GET", "/v2/sandboxes", None, {**KEY, "Host": host}).status in (401, 404)


def test_traffic_tokens_protect_other_ports(client):
    sandbox = client.create(network={"allowPublicTraffic": False})
    with_token = {"E2b-Traffic-Access-Token": sandbox["trafficAccessToken"]}
    for port, path, status in [(49999, "/contexts", 200), (8000, "/", 502)]:
        assert client.data(sandbox, port, "GET", path).status == 403
        assert client.data(sandbox, port, "GET", path, **with_token).status == status
    assert client.data(sandbox, 49983, "GET", "/health").status == 204


def test_idempotent_creations(client):
    """The same key gives the same sandbox; another request with it is refused."""
    headers = {**KEY, "Idempotency-Key": "abc-1"}
    body = {"templateID": "base", "timeout": 60}
    first, again = (client.server.ask("POST", "/v2/sandboxes", body, headers) for _ in "12")
    assert first.status == again.status == 201 and first.json == again.json
    other = client.server.ask("POST", "/v2/sandboxes", {**body, "timeout": 61}, headers)
    assert 400 <= other.status < 500 and other.json["code"] == other.status


@pytest.mark.parametrize("query", ["limit=0", "limit=101", "limit=x", "nextToken=x",
                                   "startedAfter=yesterday"])
def test_wrong_queries_of_lists_are_refused(client, query):
    assert error(client.control("GET", "/v2/sandboxes?" + query))[0] == 400


def test_executions_are_lines_of_json(client, sandbox):
    answer = client.data(sandbox, 49999, "POST", "/execute",
                         {"code": "print(1)\n2", "context_id": None, "language": None,
                          "env_vars": None})
    lines = [json.loads(line) for line in answer.body.decode().splitlines()]
    assert [line["type"] for line in lines] == ["number_of_executions", "stdout", "result",
                                                "end_of_execution"]
    assert set(lines[1]) == {"type", "text", "timestamp"}
    both = client.data(sandbox, 49999, "POST", "/execute",
                       {"code": "1", "context_id": "x", "language": "python"})
    assert (both.status, both.headers["Content-Type"].split(";")[0]) == (400, "text/plain")
    unknown = client.data(sandbox, 49999, "POST", "/execute", {"code": "1", "context_id": "x"})
    assert unknown.status == 404


# ---- envd ----

START = {"process": {"cmd": "/bin/sh", "args": ["-c", "echo $A; exit 2"], "envs": {"A": "x"}}}


def test_javascript_is_refused_without_epoll(start):
    """The operator decides; bash works all the same. What is allowed is in test_sdk.py."""
    client = Client(start("--epoll", "no"))
    own = client.create()
    for path, more in (("/execute", {"code": "1"}), ("/contexts", {})):
        answer = client.data(own, 49999, "POST", path, {"language": "js", **more})
        assert answer.status == 400 and b"--epoll yes" in answer.body, answer.body
    answer = client.data(own, 49999, "POST", "/execute", {"language": "bash", "code": "echo a"})
    assert answer.status == 200 and b'"a\\n"' in answer.body, answer.body
    listed = client.data(own, 49999, "GET", "/contexts").json
    assert [one["language"] for one in listed] == ["bash", "python"], listed


@pytest.fixture(scope="module")
def logged(client):
    """A sandbox in which a command and two cells have run."""
    own = client.create(envVars={"TOKEN": "s3cret"})
    body = envelope({"process": {"cmd": "/bin/sh",
                                 "args": ["-c", "echo out; test -n $TOKEN"]}})
    assert client.data(own, 49983, "POST", "/process.Process/Start", body, **CONNECT).status == 200
    for code in ("print('p\\u20ac' * 1000)", "1 / 0"):
        assert client.data(own, 49999, "POST", "/execute", {"code": code}).status == 200
    return own


def logs(client, own, query="", version="/v2"):
    answer = client.control("GET", f"{version}/sandboxes/{own['sandboxID']}/logs{query}")
    assert answer.status == 200, answer.body
    return answer.json


def test_logs_have_what_ran_and_what_it_printed(client, logged):
    entries = logs(client, logged, "?direction=forward")["logs"]
    events = [one["fields"]["event_type"] for one in entries]
    assert events[0] == "sandbox_start" and events.count("process_start") == 1
    assert events.count("cell_start") == events.count("cell_end") == 2, events
    by_event = {one["fields"]["event_type"]: one for one in entries}
    start, end, cell = (by_event[name] for name in ("process_start", "process_end", "cell_end"))
    assert start["fields"]["command"].startswith("echo out") and start["level"] == "info"
    assert end["fields"]["pid"] == start["fields"]["pid"]
    assert end["fields"]["status"] == "exit status 0"
    assert (cell["level"], cell["fields"]["error"]) == ("error", "division by zero"), cell
    printed = [one for one in entries if one["fields"]["event_type"] == "stdout"]
    assert printed[0]["message"] == "out\n" and printed[0]["fields"]["pid"]
    assert printed[1]["message"].startswith("p\u20acp\u20ac") and "bytes" in printed[1]["fields"]
    assert all(isinstance(value, str) for one in entries for value in one["fields"].values())
    text = json.dumps(entries)
    assert "s3cret" not in text and logged["envdAccessToken"] not in text


def test_logs_of_the_first_version_are_lines(client, logged):
    both = logs(client, logged, version="")
    assert both["logEntries"] == logs(client, logged, "?direction=forward")["logs"]
    for line, entry in zip(both["logs"], both["logEntries"], strict=True):
        parsed = json.loads(line["line"])
        assert (parsed["level"], parsed["message"]) == (entry["level"], entry["message"])
        assert parsed["logger"] == "sandbox" and entry["fields"].items() <= parsed.items()
    assert logs(client, logged, "?start=9000000000000", "") == {"logs": [], "logEntries": []}
    assert logs(client, logged, "?limit=1", "")["logEntries"] == both["logEntries"][:1]


def test_logs_have_pages_and_filters(client, logged):
    everything = logs(client, logged, "?direction=forward")["logs"]
    assert logs(client, logged)["logs"] == everything[::-1]
    assert logs(client, logged, "?limit=2")["logs"] == everything[::-1][:2]
    assert logs(client, logged, "?cursor=1")["logs"] == []
    assert logs(client, logged, "?cursor=1&direction=forward&limit=3")["logs"] == everything[:3]
    assert logs(client, logged, "?level=error")["logs"] == [everything[-1]]
    found = logs(client, logged, "?search=Execution%202")["logs"]
    assert [one["message"] for one in found] == ["Execution 2 ended", "Execution 2 started"]
    for query in ("limit=1001", "limit=x", "direction=up", "level=loud", "cursor=-1",
                  "search=" + "x" * 257):
        path = f"/v2/sandboxes/{logged['sandboxID']}/logs?{query}"
        assert client.control("GET", path).status == 400, query


def test_logs_keep_the_newest_entries(client):
    """They cost the server a bounded amount of memory."""
    own = client.create()
    for i in range(70):
        answer = client.data(own, 49999, "POST", "/execute",
                             {"code": f"print({i}, end='\\0')  # {'x' * 2000}"})
        assert answer.status == 200
    entries = logs(client, own)["logs"]
    assert [one["message"] for one in entries[:3]] == [
        "Execution 70 ended", "69\0", "Execution 70 started"]
    assert 30 < len(entries) < 150 and len(entries[2]["fields"]["code"]) == 1024


def test_a_process_is_a_stream_of_envelopes(client, sandbox):
    answer = client.data(sandbox, 49983, "POST", "/process.Process/Start", envelope(START),
                         **CONNECT)
    assert answer.status == 200 and answer.headers["Content-Type"] == "application/connect+json"
    found = envelopes(answer.body)
    assert [list(message.get("event", {"": 0}))[0] for _, message in found] == [
        "start", "data", "end", ""]
    assert found[0][1]["event"]["start"]["pid"] > 0
    assert found[1][1]["event"]["data"] == {"stdout": "eAo="}
    assert found[2][1]["event"]["end"] == {
        "exitCode": 2, "exited": True, "status": "exit status 2", "error": "exit status 2"}
    assert found[3] == (2, {})


@pytest.mark.parametrize("body,status", [
    (b"", 400), (b"\0\0\0", 400), (envelope(START)[:-1], 400), (envelope(START) + b"x", 400),
    (envelope(START) * 2, 400), (envelope(START, 1), 400), (envelope(START, 2), 400),
    (envelope(b"{"), 400), (envelope(b"[" * 200), 400), (envelope(b"\xff"), 400),
    (struct.pack(">BI", 0, 0xffffffff) + b"{}", 413),
    (struct.pack(">BI", 0, (4 << 20) + 1) + b"{}", 413)])
def test_wrong_envelopes_are_refused(client, sandbox, body, status):
    for method in ("Start", "Connect"):
        answer = client.data(sandbox, 49983, "POST", "/process.Process/" + method, body, **CONNECT)
        assert answer.status == status and isinstance(answer.json["code"], str)


@pytest.mark.parametrize("message,code", [
    ({}, "invalid_argument"), ({"process": {}}, "invalid_argument"),
    ({"process": {"cmd": "/none"}}, "invalid_argument"),
    ({"process": {"cmd": "/bin/sh", "args": ["x"] * 5000}}, "invalid_argument"),
    ({"process": {"cmd": "/bin/sh", "cwd": "/none"}}, "invalid_argument")])
def test_processes_that_cannot_start_end_their_stream(client, sandbox, message, code):
    answer = client.data(sandbox, 49983, "POST", "/process.Process/Start", envelope(message),
                         **CONNECT)
    flags, end = envelopes(answer.body)[-1]
    assert (answer.status, flags, end["error"]["code"]) == (200, 2, code)


def test_unary_errors_have_a_code(client, sandbox):
    for method, message, status, code in [
            ("process.Process/SendSignal", {"process": {"pid": 99999},
                                            "signal": "SIGNAL_SIGKILL"}, 404, "not_found"),
            ("process.Process/SendSignal", {"process": {"pid": 1}, "signal": "SIGNAL_SIGHUP"}, 400,
             "invalid_argument"),
            ("process.Process/SendInput", {"process": {"pid": 1}, "input": {"stdin": "!"}}, 400,
             "invalid_argument"),
            ("filesystem.Filesystem/Stat", {"path": "/none"}, 404, "not_found"),
            ("filesystem.Filesystem/ListDir", {"path": "/none"}, 404, "not_found")]:
        answer = client.data(sandbox, 49983, "POST", "/" + method, message)
        assert (answer.status, answer.json["code"]) == (status, code), method


@pytest.mark.parametrize("path", ["/../../etc/passwd", "../../../etc/passwd", "/proc/1/environ",
                                  "/tmp/../../root/.ssh/id_rsa", "~/../../../etc/shadow"])
def test_paths_stay_in_the_sandbox(client, sandbox, path):
    """A path is one of the sandbox, whatever it is: its own code sees the same."""
    from urllib.parse import quote
    answer = client.data(sandbox, 49983, "GET", "/files?path=" + quote(path))
    absolute = path if path[0] == "/" else "/home/user/" + path.removeprefix("~/")
    code = f"try: print(open({absolute!r}).read(), end='')\nexcept OSError: print('none')"
    seen = client.data(sandbox, 49999, "POST", "/execute", {"code": code}).body.decode()
    lines = [json.loads(line) for line in seen.splitlines()]
    text = "".join(line["text"] for line in lines if line["type"] == "stdout")
    assert text == (answer.body.decode() if answer.status == 200 else "none\n")


def multipart(parts):
    body = b"".join(b'--limit\r\nContent-Disposition: form-data; name="file"; filename="' + name +
                    b'"\r\n\r\n' + data + b"\r\n" for name, data in parts)
    return body + b"--limit--\r\n", {"Content-Type": "multipart/form-data; boundary=limit"}


def test_names_that_are_not_text_are_uploaded(client, sandbox):
    """The answer is JSON all the same."""
    for name, shown in [(b"/tmp/\xff\xe9", "/tmp/\ufffd\ufffd"), ("/tmp/é".encode(), "/tmp/é")]:
        body, headers = multipart([(name, b"data")])
        answer = client.data(sandbox, 49983, "POST", "/files", body, **headers)
        assert answer.status == 200
        assert json.loads(answer.body.decode("utf-8"))[0]["path"] == shown


def test_uploads_of_too_many_files_are_refused(client, sandbox):
    for count, status in [(1001, 413), (3, 200)]:
        body, headers = multipart([(b"/tmp/many/%d" % i, b"") for i in range(count)])
        answer = client.data(sandbox, 49983, "POST", "/files", body, **headers)
        assert answer.status == status


@pytest.mark.parametrize("body,headers", [
    (b"--limit\r\nContent-Disposition: form-data", {
        "Content-Type": "multipart/form-data; boundary=limit"}),
    (b"x", {"Content-Type": "multipart/form-data"}),
    (b"x", {"Content-Type": "application/octet-stream"}),
    (multipart([(b"", b"x")])), (multipart([(b"/tmp/" + b"x" * 5000, b"x")])),
    (b"no gzip", {"Content-Type": "application/octet-stream", "Content-Encoding": "gzip"}),
    (gzip.compress(b"x" * 1000, mtime=0)[:-20], {"Content-Encoding": "gzip"}),
    (b"x", {"Content-Encoding": "br"})])
def test_wrong_uploads_are_refused(client, sandbox, body, headers):
    path = "/files" if "multipart" in headers.get("Content-Type", "") else "/files?path=/tmp/w"
    if headers == {"Content-Type": "application/octet-stream"}:
        path = "/files"
    answer = client.data(sandbox, 49983, "POST", path, body, **headers)
    assert answer.status in (400, 415) and answer.json["code"] == answer.status


@pytest.mark.parametrize("key,value,status", [
    ("a", "b", 200), ("a" * 246, "b", 200), ("a" * 247, "b", 400), ("", "b", 400),
    ("a", "\u00e9", 400), ("a", "", 400), ("a", "b" * 4000, 400)])
def test_metadata_is_bounded_and_printable(client, sandbox, key, value, status):
    answer = client.data(sandbox, 49983, "POST", "/files?path=/tmp/marked", b"x", **{
        "Content-Type": "application/octet-stream", "X-Metadata-" + key: value})
    assert answer.status == status
    if status == 200:
        assert answer.json[0]["metadata"] == {key: value}


def test_a_bomb_fills_the_sandbox_and_no_more(client):
    """Zeros beyond its 256 MiB: the sandbox's quota ends it, and the server keeps little."""
    own = client.create()
    body = gzip.compress(bytes(280 << 20), 1)
    answer = client.data(own, 49983, "POST", "/files?path=/tmp/bomb", body,
                         **{"Content-Encoding": "gzip"})
    assert answer.status == 507
    with open(f"/proc/{client.server.process.pid}/status") as f:
        peak = next(int(line.split()[1]) for line in f if line.startswith("VmHWM"))
    assert peak < 300_000
    assert client.data(own, 49983, "GET", "/health").status == 204


def test_input_that_is_echoed_does_not_stop_the_process(client, sandbox):
    """More than all buffers hold: the input waits for its output's reader, for nothing else."""
    connection = http.client.HTTPConnection("127.0.0.1", client.server.port, timeout=60)
    start = {"process": {"cmd": "/bin/cat"}, "stdin": True, "tag": "echo"}
    connection.request("POST", "/process.Process/Start", envelope(start), {
        **CONNECT, "E2b-Sandbox-Id": sandbox["sandboxID"], "E2b-Sandbox-Port": "49983",
        "X-Access-Token": sandbox["envdAccessToken"]})
    response, found = connection.getresponse(), []
    flags, size = struct.unpack(">BI", response.read(5))
    assert "start" in json.loads(response.read(size))["event"]
    reader = threading.Thread(target=lambda: found.extend(envelopes(response.read())))
    reader.start()
    data = b"0123456789abcdef" * 40000
    select = {"tag": "echo"}
    assert client.data(sandbox, 49983, "POST", "/process.Process/SendInput", {
        "process": select, "input": {"stdin": base64.b64encode(data).decode()}}).status == 200
    assert client.data(sandbox, 49983, "POST", "/process.Process/CloseStdin",
                       {"process": select}).status == 200
    reader.join()
    got = b"".join(base64.b64decode(message["event"]["data"]["stdout"])
                   for _, message in found if "data" in message.get("event", {}))
    assert got == data
    connection.close()


def stream_input(client, own, *messages, flags=0, tail=b""):
    """The answer's messages to one StreamInput, which sends its messages in chunks."""
    connection = http.client.HTTPConnection("127.0.0.1", client.server.port, timeout=60)
    parts = [envelope(message, flags) for message in messages] + [tail]
    connection.request("POST", "/process.Process/StreamInput", iter(filter(None, parts)), {
        **CONNECT, "E2b-Sandbox-Id": own["sandboxID"], "E2b-Sandbox-Port": "49983",
        "X-Access-Token": own["envdAccessToken"], "Transfer-Encoding": "chunked"},
        encode_chunked=True)
    response = connection.getresponse()
    assert response.status == 200 and response.headers["Content-Type"] == CONNECT["Content-Type"]
    found = list(envelopes(response.read()))
    connection.close()
    return found


def input_message(data):
    """A message of input."""
    return {"data": {"input": {"stdin": base64.b64encode(data).decode()}}}


def test_input_comes_in_a_stream(client, sandbox):
    """Much more than a pipe holds, for a process that reads all of it and counts."""
    start = {"process": {"cmd": "/bin/sh", "args": ["-c", "echo on; md5sum"]}, "tag": "streamed"}
    connection = http.client.HTTPConnection("127.0.0.1", client.server.port, timeout=60)
    connection.request("POST", "/process.Process/Start", envelope(start), {
        **CONNECT, "E2b-Sandbox-Id": sandbox["sandboxID"], "E2b-Sandbox-Port": "49983",
        "X-Access-Token": sandbox["envdAccessToken"]})
    response, got = connection.getresponse(), b""
    while b"data" not in got:
        got += response.read1()
    data, select = os.urandom(3 << 20), {"process": {"tag": "streamed"}}
    pieces = [input_message(data[at:at + 300000]) for at in range(0, len(data), 300000)]
    assert stream_input(client, sandbox, {"start": select}, *pieces[:4], {"keepalive": {}},
                        *pieces[4:]) == [(0, {}), (2, {})]
    assert client.data(sandbox, 49983, "POST", "/process.Process/CloseStdin",
                       select).status == 200
    got += response.read()
    output = b"".join(base64.b64decode(message["event"]["data"].get("stdout", ""))
                      for _, message in envelopes(got) if "data" in message.get("event", {}))
    assert hashlib.md5(data).hexdigest().encode() in output
    connection.close()


@pytest.mark.parametrize("messages,more,code", [
    ([{"start": {"process": {"pid": 999999}}}], {}, "not_found"),
    ([{"start": {}}], {}, "invalid_argument"), ([input_message(b"x")], {}, "invalid_argument"),
    ([{"other": {}}], {}, "invalid_argument"), ([], {"tail": b"\0\0\0"}, "invalid_argument"),
    ([], {"tail": b"\0\0\0\0\2{]"}, "invalid_argument"),
    ([], {"tail": b"\0\xff\xff\xff\xff"}, "resource_exhausted"),
    ([{"keepalive": {}}], {}, "invalid_argument"),
    ([{"keepalive": {}}], {"flags": 1}, "invalid_argument")])
def test_wrong_streams_of_input_are_refused(client, sandbox, messages, more, code):
    assert [(flags, message["error"]["code"]) for flags, message in stream_input(
        client, sandbox, *messages, **more)] == [(2, code)]


def processor_time(marker):
    """The ticks of each process of this machine with a word in its command line, in all."""
    ticks = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                if marker.encode() not in f.read():
                    continue
            with open(f"/proc/{pid}/stat", encoding="utf-8") as f:
                ticks.append(sum(map(int, f.read().rpartition(")")[2].split()[11:13])))
        except OSError:
            pass
    return ticks


def test_a_paused_sandbox_does_not_run(client):
    """Neither commands nor what cells have started; all of it goes on afterwards."""
    own, marker = client.create(), "paused-" + os.urandom(8).hex()
    path, loop = "/sandboxes/" + own["sandboxID"], f"while :; do :; done # {marker}"
    code = f"import subprocess; p = subprocess.Popen(['/bin/sh', '-c', {loop!r}])"
    assert client.data(own, 49999, "POST", "/execute", {"code": code}).status == 200
    start = {"process": {"cmd": "/bin/sh", "args": ["-c", "/bin/sh -c \"$0\" >/dev/null 2>&1 &",
                                                     loop]}}
    assert client.data(own, 49983, "POST", "/process.Process/Start", envelope(start),
                       **CONNECT).status == 200
    until(lambda: len(processor_time(marker)) >= 2 and all(processor_time(marker)))
    assert client.control("POST", path + "/pause", {}).status == 204
    assert client.control("POST", path + "/pause", {}).status == 409
    assert client.data(own, 49999, "POST", "/execute", {"code": "1"}).status == 502

    def rest():
        """Time passes, because another sandbox uses it."""
        before = processor_time(marker)
        burn = "import time\nwhile time.process_time() < 0.2: pass"
        assert client.data(client.create(), 49999, "POST", "/execute",
                           {"code": burn}).status == 200
        return before == processor_time(marker)
    until(rest)
    assert rest()
    before = sum(processor_time(marker))
    assert client.control("POST", path + "/connect", {"timeout": 100}).status == 201
    until(lambda: sum(processor_time(marker)) > before)
    assert b"true" in client.data(own, 49999, "POST", "/execute", {
        "code": "print(str(p.poll() is None).lower())"}).body
    assert client.control("POST", path + "/pause", {}).status == 204
    assert client.control("DELETE", path).status == 204
    until(lambda: not processor_time(marker))


def test_what_a_dead_worker_kept_is_not_found(start):
    """Paused sandboxes and snapshots, with the answers that E2B's packages understand."""
    server = start("--workers", "2")
    client = Client(server)
    own = client.create()
    path = "/sandboxes/" + own["sandboxID"]
    made = client.control("POST", path + "/snapshots", {}).json["snapshotID"]
    assert client.control("POST", path + "/pause", {}).status == 204
    copy = {"templateID": made, "timeout": 60}
    assert client.control("POST", "/v2/sandboxes", copy).status == 201
    with open("/proc/%d/task/%d/children" % ((server.process.pid,) * 2)) as f:
        for pid in f.read().split():
            os.kill(int(pid), signal.SIGKILL)

    def connected():
        try:
            return client.control("POST", path + "/connect", {"timeout": 60})
        except (ConnectionError, http.client.HTTPException):
            return None    # accepted by a worker while it died
    until(connected)
    assert connected().status == 404
    assert client.data(own, 49999, "POST", "/execute", {"code": "1"}).status == 502
    assert client.control("POST", "/v2/sandboxes", copy).status == 404
    assert client.control("GET", "/snapshots").json == []
    assert client.control("DELETE", "/templates/" + made.replace(":", "%3A")).status == 404


def test_kills_end_streams(client):
    """With an error that says so, after which clients ask whether the sandbox still runs."""
    own = client.create()
    connection = http.client.HTTPConnection("127.0.0.1", client.server.port, timeout=60)
    start = {"process": {"cmd": "/bin/sh", "args": ["-c", "echo on; sleep 100"]}}
    connection.request("POST", "/process.Process/Start", envelope(start), {
        **CONNECT, "E2b-Sandbox-Id": own["sandboxID"], "E2b-Sandbox-Port": "49983",
        "X-Access-Token": own["envdAccessToken"]})
    response = connection.getresponse()
    while b"data" not in response.read1():
        pass
    assert client.control("DELETE", "/sandboxes/" + own["sandboxID"]).status == 204
    flags, last = envelopes(response.read())[-1]
    assert flags == 2 and last["error"]["code"] == "unavailable"
    assert "killed" in last["error"]["message"]
    connection.close()


@pytest.mark.parametrize("size,whole", [("64K", False), ("1M", True)])
def test_an_exception_is_cut_only_beyond_the_size_of_a_result(start, size, whole):
    """Its message and its traceback alike, in bytes; the context goes on."""
    client = Client(start("--result-size", size))
    made = client.create()

    def run(code):
        answer = client.data(made, 49999, "POST", "/execute", {"code": code})
        return {one["type"]: one for one in map(json.loads, answer.body.splitlines())}
    error = run("raise ValueError('\u20ac' * 100_000)")["error"]
    for text in (error["value"], error["traceback"]):
        assert ("\u20ac" * 100_000 in text) is whole
        assert ("characters left out" in text) is not whole
        assert len(text.encode()) <= (1 << 20 if whole else 4 * 60_000 + 100)
    assert {"stdout", "end_of_execution"} <= set(run("print(1)"))
