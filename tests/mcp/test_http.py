"""`/mcp` of `droste serve`: both revisions, sessions, streams that are cut, limits and workers."""
import json
import os
import subprocess
import threading
import time

import pytest

from droste_cli import DROSTE, PATIENCE, environment
from http_client import HttpClient, Server

CELL = {"jsonrpc": "2.0", "id": 90, "method": "tools/call",
        "params": {"name": "run_python", "arguments": {"code": "1"}}}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    started = Server(tmp_path_factory.mktemp("mcp"))
    yield started
    assert started.stop() == 0


@pytest.fixture
def start(tmp_path):
    """start(words…): a server of the test's own."""
    servers = []

    def run(*words, **env):
        servers.append(Server(tmp_path, *words, **env))
        return servers[-1]
    yield run
    for one in servers:
        one.stop()


@pytest.fixture(params=[False, True], ids=["session", "stateless"])
def client(request, server):
    client = HttpClient(server, stateless=request.param)
    yield client
    for name in [one["session"] for one in client.tool("list_sessions")["sessions"]]:
        client.tool("close_session", session=name)


def until(what):
    deadline = time.monotonic() + PATIENCE
    while not (value := what()):
        assert time.monotonic() < deadline, "it never became true"
        time.sleep(0.02)
    return value


def keys(home, *words):
    done = subprocess.run([DROSTE, "keys", "create", *words], env=environment(home), text=True,
                          capture_output=True, check=True)
    return next(word for word in done.stdout.split() if word.startswith("e2b_"))


def test_variables_persist_between_requests(client):
    assert client.python("x = 41") is None
    assert client.python("x + 1") == "42"
    assert client.tool("fork_session", name="copy") == {"session": "copy"}
    assert client.python("x = 0; x", session="copy") == "0"
    assert client.python("x") == "41"


def test_sessions_are_sandboxes_of_the_server(client, server):
    before = len(server.sandboxes())
    client.python("1")
    made = [one for one in server.sandboxes() if one["metadata"] == {"client": "mcp"}]
    assert len(server.sandboxes()) == before + 1 and len(made) == 1
    path = "/v1/sandboxes/" + made[0]["id"]
    assert server.ask("POST", path + "/execute", json.dumps({"code": "y = 5"}))[0] == 200
    assert client.python("y") == "5"
    client.tool("close_session")
    assert len(server.sandboxes()) == before
    assert server.ask("GET", path)[0] == 404


def test_a_sandbox_that_is_ended_elsewhere_ends_its_calls(client, server):
    client.python("x = 1")
    identifier = server.sandboxes()[0]["id"]
    stream = client.open("tools/call", name="run_python",
                         arguments={"code": "while True: pass"}) if not client.stateless else None
    assert server.ask("DELETE", "/v1/sandboxes/" + identifier)[0] == 204
    if stream:
        answer = next(stream.messages())
        assert "was closed meanwhile" in answer["result"]["content"][0]["text"]
        stream.cut()
    assert client.python("'x' in dir()") == "False"


def test_output_comes_as_progress(client):
    stream = client.open("tools/call", name="run_python", arguments={"code": "print('hi')"},
                         _meta={"progressToken": "p"})
    messages = list(stream.messages())
    assert messages[0]["method"] == "notifications/progress"
    assert messages[0]["params"]["message"] == "hi\n"
    assert messages[-1]["result"]["structuredContent"]["stdout"] == "hi\n"


@pytest.mark.parametrize("body, status, code", [
    (b"{", 400, -32700), (b"\xff", 400, -32700), (b"[]", 400, -32600), (b"", 400, -32700),
    (b'{"jsonrpc": "2.0", "id": 1, "method": 3}', 400, -32600),
    (b'{"jsonrpc": "2.0", "id": {}, "method": "ping"}', 400, -32600),
])
def test_bad_messages_get_errors_of_the_protocol(client, body, status, code):
    headers = {"MCP-Protocol-Version": "2026-07-28"} if client.stateless else {}
    answer = client.send(body, **headers)
    assert answer[0] == status
    assert json.loads(answer[2])["error"]["code"] == code
    assert client.python("1 + 1") == "2"


def test_a_large_body_is_refused_by_its_head(client, server):
    connection = server.connection()
    connection.putrequest("POST", "/mcp")
    for name, value in {**client.headers, "Content-Length": str(9 << 20)}.items():
        connection.putheader(name, value)
    connection.endheaders()
    answer = connection.getresponse()
    assert answer.status == 413 and json.loads(answer.read())["error"]["code"] == -32600
    connection.close()
    assert client.python("len('%s')" % ("x" * (2 << 20))) == str(2 << 20)


def test_wrong_versions_methods_and_tools_are_refused(client):
    assert client.request("tools/call", name="none")["error"]["code"] == -32602
    stream = client.open("no/method")
    assert stream.status == (404 if client.stateless else 200)
    assert next(stream.messages())["error"]["code"] == -32601
    answer = client.send(CELL, **{"MCP-Protocol-Version": "2030-01-01"})
    assert answer[0] == 400 and json.loads(answer[2])["error"]["code"] == -32022


@pytest.mark.parametrize("field, value, status", [
    ("Accept", "application/json", 406), ("Accept", "text/html", 406),
    ("Accept", "*/*", 200), ("Content-Type", "text/plain", 415),
    ("Origin", "http://evil.example", 403), ("Host", "evil.example", 403),
    ("Content-Type", "application/json; charset=utf-8", 200)])
def test_fields_of_requests_are_checked(server, field, value, status):
    client = HttpClient(server)
    assert client.send({"jsonrpc": "2.0", "id": 1, "method": "ping"}, **{field: value})[0] == status
    assert client.end() == 204


@pytest.mark.parametrize("changes, code", [
    ({"Mcp-Method": "tools/list"}, -32020), ({"Mcp-Name": "ask"}, -32020),
    ({"Mcp-Name": ""}, -32020), ({"Mcp-Name": "=?base64?bGlzdF9zZXNzaW9ucw==?="}, None),
    ({"Mcp-Name": "=?base64?!?="}, -32020), ({"MCP-Protocol-Version": "2025-11-25"}, None),
    ({}, None)])
def test_the_head_of_a_stateless_request_agrees_with_it(server, changes, code):
    """With the version of a session, and none, the request is refused for that."""
    client = HttpClient(server, stateless=True)
    message = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {
        "name": "list_sessions", "arguments": {}, "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {}}}}
    status, _, body = client.send(message, **{
        "MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call",
        "Mcp-Name": "list_sessions", **changes})
    answer = json.loads(body)
    if "MCP-Protocol-Version" in changes:
        assert status == 400
    elif code:
        assert (status, answer["error"]["code"], answer["id"]) == (400, code, 7)
    else:
        assert status == 200 and answer["result"]["resultType"] == "complete"


def test_a_session_is_needed_and_ends(server):
    client = HttpClient(server)
    assert len(client.session) == 32
    bare = {key: value for key, value in client.headers.items() if key != "Mcp-Session-Id"}
    assert server.ask("POST", "/mcp", json.dumps(CELL), bare)[0] == 400
    assert server.ask("GET", "/mcp", headers=bare)[0] == 400
    client.python("1")
    listener = client.listen()
    assert client.end() == 204
    assert list(listener.messages()) == []
    assert client.send(CELL)[0] == 404 and client.end() == 404
    assert client.listen().status == 404
    assert not [one for one in server.sandboxes() if one["metadata"] == {"client": "mcp"}]


def test_stateless_requests_have_neither_get_nor_delete(server):
    headers = {"MCP-Protocol-Version": "2026-07-28", "Accept": "text/event-stream"}
    for method in ("GET", "DELETE"):
        assert server.ask(method, "/mcp", headers=headers)[0] == 405


def test_a_cut_stream_is_resumed_and_loses_nothing(server, tmp_path):
    client = HttpClient(server)
    gate = "import time, os\nwhile not os.path.exists('gate'): time.sleep(0.01)\n'through'"
    stream = client.open("tools/call", name="run_python", arguments={"code": gate})
    stream.prime()
    stream.cut()
    client.tool("write_file", path="gate", text="")
    for _ in range(2):      # also a second time
        answers = list(client.listen(stream.last).messages())
        assert answers[-1]["result"]["structuredContent"]["result"] == "'through'"
    assert client.listen("77-1").status == 400 and client.listen("x").status == 400
    client.end()


def test_closing_a_stateless_stream_cancels_its_request(server):
    client = HttpClient(server, stateless=True)
    connection = server.connection()
    client.python("import os, time; n = 0")
    code = "open('begun', 'w')\ntry:\n  while True: time.sleep(0.01)\nfinally: n = 7"
    headers = {**client.headers, "MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call",
               "Mcp-Name": "run_python"}
    connection.request("POST", "/mcp", json.dumps({
        "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
            "name": "run_python", "arguments": {"code": code}, "_meta": {
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientCapabilities": {}}}}), headers)
    until(lambda: "begun" in [one["name"] for one in client.tool("list_files")["entries"]])
    connection.close()
    assert client.python("n") == "7"
    client.tool("close_session")


def test_a_client_of_a_session_cancels_by_name(server):
    client = HttpClient(server)
    stream = client.open("tools/call", name="run_python", arguments={"code": "while True: pass"})
    stream.prime()
    assert client.send({"jsonrpc": "2.0", "method": "notifications/cancelled",
                        "params": {"requestId": client.number}})[0] == 202
    assert client.python("6 * 7") == "42"
    assert client.end() == 204


def test_keys_see_only_their_own(start, tmp_path):
    one, two = keys(tmp_path, "one"), keys(tmp_path, "two", "--limit", "sandboxes=1")
    server = start()
    assert server.ask("POST", "/mcp", b"{}")[0] == 401
    first, second = HttpClient(server, key=one), HttpClient(server, key=two)
    second.headers["Mcp-Session-Id"] = first.session
    assert second.send(CELL)[0] == 404
    second.headers["Mcp-Session-Id"] = second.session
    assert second.python("1") == "1"
    assert "as many sandboxes as it may have" in second.failure(
        "run_python", code="1", session="more")
    stateless = HttpClient(server, key=one, stateless=True)
    stateless.python("x = 1")
    other = HttpClient(server, key=two, stateless=True)
    assert other.tool("list_sessions")["sessions"] == []
    assert len(server.sandboxes(Authorization="Bearer " + two)) == 1
    assert second.end() == 204
    assert other.python("'x' in dir()") == "False"


def test_a_key_without_the_scope_starts_no_run(start, tmp_path):
    key = keys(tmp_path, "one", "--scopes", "sandboxes")
    server = start()
    client = HttpClient(server, key=key)
    assert "scope" in client.failure("ask", question="?")
    reader = keys(tmp_path, "two", "--scopes", "read")
    until(lambda: server.ask("GET", "/v1/sandboxes",
                             headers={"Authorization": "Bearer " + reader})[0] == 200)
    answer = server.ask("POST", "/mcp", json.dumps(CELL),
                        {**client.headers, "Authorization": "Bearer " + reader})
    assert answer[0] == 403


def test_requests_come_to_the_worker_of_their_session(start):
    server = start("--workers", "2")
    clients = []
    while len({client.session[:2] for client in clients}) < 2:
        clients.append(HttpClient(server))      # in the end of the worker with fewer sandboxes
        clients[-1].python("x = %d" % (len(clients) - 1))
    stateless = HttpClient(server, stateless=True)
    stateless.python("x = 'shared'")
    for _ in range(4):      # on connections of any worker
        assert [client.python("x") for client in clients] == \
            [str(number) for number in range(len(clients))]
        assert stateless.python("x") == "'shared'"
    lost = "ff" + clients[0].session[2:]
    answer = server.ask("POST", "/mcp", json.dumps(CELL),
                        {**clients[0].headers, "Mcp-Session-Id": lost})
    assert answer[0] == 404
    assert {client.end() for client in clients} == {204}


def test_the_audit_log_names_the_tool(start, tmp_path):
    server = start("--audit-log", tmp_path / "audit")
    HttpClient(server).python("1")
    HttpClient(server, stateless=True).python("1")
    until(lambda: open(tmp_path / "audit").read().count('"tools/call run_python"') == 2)


def test_idle_sessions_end_with_their_sandboxes(start):
    server = start("--idle", "2")
    client = HttpClient(server)
    client.python("1")

    def is_gone():
        time.sleep(2.5)     # each look uses the session
        stream = client.listen()
        stream.cut()
        return stream.status == 404
    until(is_gone)
    assert server.sandboxes() == []


def test_a_server_that_stops_ends_its_streams(start):
    server = start("--drain", "1000")   # it does not wait for them
    client = HttpClient(server)
    listener = client.listen()
    stream = HttpClient(server, stateless=True).open(
        "subscriptions/listen", notifications={"resourcesListChanged": True})
    messages = stream.messages()
    assert next(messages)["method"] == "notifications/subscriptions/acknowledged"
    assert server.stop() == 0
    assert next(messages)["result"]["resultType"] == "complete"
    assert list(listener.messages()) == []


def test_a_thousand_sessions_wait_without_an_interpreter(start):
    server = start()

    def resident():
        with open("/proc/%d/status" % server.process.pid) as f:
            return next(int(line.split()[1]) for line in f if line.startswith("VmRSS"))
    first = HttpClient(server)
    first.python("1")
    before, clients, lock = resident(), [], threading.Lock()

    def open_some():
        for _ in range(125):
            client = HttpClient(server)
            with lock:
                clients.append(client)
    threads = [threading.Thread(target=open_some) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(clients) == 1000
    assert resident() - before < 16 << 10   # KiB
    assert len(server.sandboxes()) == 1
    assert clients[500].python("6 * 7") == "42"
    assert {client.request("ping")["result"] is not None for client in clients[::50]} == {True}
    assert {client.end() for client in clients[:100]} == {204}
    assert os.path.exists("/proc/%d" % server.process.pid)
