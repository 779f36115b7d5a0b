"""The messages of the Model Context Protocol: both revisions, and what is not a message."""
import pytest

from mcp_client import STATELESS


@pytest.mark.parametrize("version", ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"])
def test_a_version_that_is_known_is_agreed_on(connect, version):
    result = connect(initialize=False).initialize(version)
    assert result["protocolVersion"] == version
    assert result["serverInfo"]["name"] == "droste"
    assert result["capabilities"] == {
        "tools": {}, "prompts": {}, "completions": {}, "logging": {},
        "resources": {"subscribe": True, "listChanged": True}}


def test_another_version_is_answered_with_the_newest(connect):
    assert connect(initialize=False).initialize("1999-01-01")["protocolVersion"] == "2025-11-25"


def test_before_initialize_only_ping_is_answered(connect):
    client = connect(initialize=False)
    assert client.result("ping") == {}
    assert client.error("tools/list")["code"] == -32600
    client.initialize()
    assert client.result("tools/list")["tools"]


def test_a_stateless_request_needs_no_initialize(connect):
    client = connect(initialize=False)
    result = client.result("tools/list", _meta=STATELESS)
    assert result["resultType"] == "complete"
    assert result["cacheScope"] == "private" and result["ttlMs"] == 0
    found = client.result("server/discover", _meta=STATELESS)
    assert found["supportedVersions"] == ["2026-07-28"]
    called = client.result("tools/call", name="run_python", arguments={"code": "6 * 7"},
                           _meta=STATELESS)
    assert called["structuredContent"]["result"] == "42"


def test_a_stateless_request_of_another_version_is_refused(client):
    error = client.error("tools/list", _meta=dict(
        STATELESS, **{"io.modelcontextprotocol/protocolVersion": "2030-01-01"}))
    assert error["code"] == -32022
    assert error["data"] == {"supported": ["2026-07-28"], "requested": "2030-01-01"}


def test_a_stateless_request_states_the_clients_capabilities(client):
    error = client.error("tools/list", _meta={
        "io.modelcontextprotocol/protocolVersion": "2026-07-28"})
    assert error["code"] == -32602 and "clientCapabilities" in error["message"]


@pytest.mark.parametrize("method", ["initialize", "ping", "logging/setLevel"])
def test_methods_of_connections_are_none_of_stateless_requests(client, method):
    assert client.error(method, _meta=STATELESS, protocolVersion="2026-07-28")["code"] == -32601


@pytest.mark.parametrize("method, params", [
    ("resources/subscribe", {}), ("logging/setLevel", {"level": "loud"}),
    ("completion/complete", {"ref": {}}), ("resources/unsubscribe", {})])
def test_bad_parameters_are_refused(client, method, params):
    assert client.error(method, **params)["code"] == -32602


def test_levels_of_logs_are_accepted(client):
    assert client.result("logging/setLevel", level="warning") == {}


def test_paths_are_completed_below_what_is_allowed(connect, tmp_path):
    data = tmp_path / "data"
    (data / "sub").mkdir(parents=True)
    (data / "a.txt").write_text("")
    (tmp_path / "secret").mkdir()
    client = connect(data)

    def complete(value):
        return client.result("completion/complete", ref={"type": "ref/prompt", "name": "explore"},
                             argument={"name": "path", "value": value})["completion"]["values"]
    assert complete("") == [str(data)]
    assert sorted(complete("%s/" % data)) == [str(data / "a.txt"), str(data / "sub") + "/"]
    assert complete("%s/a" % data) == [str(data / "a.txt")]
    assert complete("%s/s" % tmp_path) == [] and complete("/etc/pass") == []


@pytest.mark.parametrize("line, code", [
    (b"no JSON", -32700),
    (b'{"jsonrpc": "2.0", "id": 1, "method": "ping"', -32700),
    (b'{"jsonrpc": "2.0", "id": 1, "method": "p\xff"}', -32700),
    (b"[]", -32600),
    (b'[{"jsonrpc": "2.0", "id": 1, "method": "ping"}]', -32600),
    (b"3", -32600),
    (b"null", -32600),
    (b'{"id": 7, "method": "ping"}', -32600),
    (b'{"jsonrpc": "1.0", "id": 7, "method": "ping"}', -32600),
    (b'{"jsonrpc": "2.0", "id": null, "method": "ping"}', -32600),
    (b'{"jsonrpc": "2.0", "id": [], "method": "ping"}', -32600),
    (b'{"jsonrpc": "2.0", "id": 7, "method": 3}', -32600),
    (b'{"jsonrpc": "2.0", "id": 7, "method": "ping", "params": []}', -32602),
    (b'{"jsonrpc": "2.0", "id": 7, "method": "nope"}', -32601),
    (b'{"jsonrpc": "2.0", "id": 7, "method": "tools/call"}', -32602),
    (b'{"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "nope"}}', -32602),
    (b'{"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "run_python", '
     b'"arguments": []}}', -32602),
    (b'{"jsonrpc": "2.0", "id": 7, "method": "resources/read"}', -32602),
    (b'{"jsonrpc": "2.0", "id": 7, "method": "resources/read", "params": {"uri": "x:y"}}', -32002),
    (b'{"jsonrpc": "2.0", "id": 7, "method": "prompts/get", "params": {"name": "nope"}}', -32602),
    (b'{"jsonrpc": "2.0", "id": 7, "method": "prompts/get", "params": {"name": "explore"}}',
     -32602),
    (b"[" * 100000, -32700),
])
def test_what_is_no_valid_message_is_an_error_of_the_protocol(client, line, code):
    """and the connection goes on."""
    client.send_bytes(line + b"\n")
    answer = client.receive()
    assert answer["error"]["code"] == code, answer
    assert answer["error"]["message"]
    assert client.result("ping") == {}


def test_messages_may_arrive_in_pieces_and_together(client):
    client.send_bytes(b'\n\r\n{"jsonrpc": "2.0", "id": "a", "met')
    client.send_bytes(b'hod": "ping"}\r\n{"jsonrpc": "2.0", "id": "b", "method": "ping"}\n')
    assert [client.receive()["id"], client.receive()["id"]] == ["a", "b"]


def test_notifications_and_stray_answers_get_no_answer(client):
    client.notify("notifications/unknown")
    client.notify("notifications/cancelled", requestId=12345)
    client.notify("notifications/cancelled")
    client.send({"jsonrpc": "2.0", "id": 99, "result": {}})
    assert client.wait(client.start("ping"))["result"] == {} and not client.seen


def test_an_id_that_is_in_use_is_refused(client):
    first = client.start("tools/call", name="run_python", arguments={"code": "input_from = 1"})
    busy = client.start("tools/call", name="run_python", arguments={
        "code": "import time\nwhile True: time.sleep(0.01)"})
    client.wait(first)
    client.send({"jsonrpc": "2.0", "id": busy, "method": "ping"})
    answer = client.receive()
    assert answer["error"]["code"] == -32600 and "under way" in answer["error"]["message"]
    client.notify("notifications/cancelled", requestId=busy)
    assert client.python("input_from") == "1"


def test_the_end_of_the_input_ends_the_server_with_its_sessions(client):
    pid = int(client.python("import os\nos.getpid()"))
    assert pid > 0
    client.start("tools/call", name="run_python", arguments={
        "code": "import time\nwhile True: time.sleep(0.01)"})
    assert client.end() == 0


def test_a_path_that_does_not_exist_is_a_usage_error(connect):
    client = connect("/does/not/exist", initialize=False)
    assert client.receive() is None
    assert b"/does/not/exist" in client.process.stderr.read()
    assert client.process.wait() == 2
