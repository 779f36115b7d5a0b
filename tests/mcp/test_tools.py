"""The tools, resources and prompts of `droste mcp`."""
import base64
import http.server
import json
import os
import threading

import jsonschema
import pytest

PNG = ("import base64\n"
       "data = base64.b64decode('iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGNgYGBg"
       "AAAABQABh6FO1AAAAABJRU5ErkJggg==')\n"
       "class Image:\n"
       "    def _repr_png_(self): return data\n")


def test_every_tool_is_described(client):
    """as the protocol asks: a name, a schema of an object, and what it does to the world."""
    tools = client.result("tools/list")["tools"]
    assert len({tool["name"] for tool in tools}) == len(tools) == 10
    for tool in tools:
        assert tool["description"].endswith(".") and tool["title"]
        assert tool["inputSchema"]["type"] == tool["outputSchema"]["type"] == "object"
        jsonschema.Draft202012Validator.check_schema(tool["inputSchema"])
        jsonschema.Draft202012Validator.check_schema(tool["outputSchema"])
        assert {"readOnlyHint", "openWorldHint"} <= tool["annotations"].keys()


def test_variables_persist_between_cells(client):
    assert client.tool("run_python", code="x = 20\nprint('set')")["stdout"] == "set\n"
    cell = client.tool("run_python", code="x * 2 + 2")
    assert (cell["result"], cell["status"], cell["session"]) == ("42", "ok", "main")
    assert {"name": "x", "type": "int", "preview": "20"} in cell["variables"]


def test_results_fit_their_schema(client):
    tools = {tool["name"]: tool for tool in client.result("tools/list")["tools"]}
    for name, arguments in [("run_python", {"code": "print(1)\n2"}),
                            ("write_file", {"path": "a", "text": "b"}),
                            ("read_file", {"path": "a"}), ("list_files", {}),
                            ("fork_session", {"name": "other"}), ("list_sessions", {}),
                            ("interrupt_session", {}), ("close_session", {"session": "other"})]:
        jsonschema.validate(client.tool(name, **arguments), tools[name]["outputSchema"])


def test_an_exception_is_a_failed_tool_with_its_traceback(client):
    text = client.failure("run_python", code="1 / 0")
    assert "ZeroDivisionError" in text and "line 1" in text
    assert client.python("'still here'") == "'still here'"


def test_a_figure_is_an_image(client):
    result = client.result("tools/call", name="run_python", arguments={
        "code": PNG + "display(Image())"})
    kinds = [(item["type"], item.get("mimeType")) for item in result["content"]]
    assert ("image", "image/png") in kinds
    image = next(item for item in result["content"] if item["type"] == "image")
    assert base64.b64decode(image["data"]).startswith(b"\x89PNG")


def test_a_cell_that_takes_too_long_is_interrupted(client):
    client.python("x = 1")
    text = client.failure("run_python", code="while True: pass", timeout_seconds=0.3)
    assert "time was up. Variables are kept" in text
    assert client.python("x") == "1"


def test_a_cancelled_cell_is_interrupted_and_its_session_continues(client):
    client.python("x = 1")
    number = client.start("tools/call", name="run_python",
                          arguments={"code": "x = 2\nwhile True: pass"})
    client.notify("notifications/cancelled", requestId=number, reason="enough")
    assert client.python("x") in ("1", "2")
    assert not any(message.get("id") == number for message in client.seen)


def test_calls_of_a_session_run_in_their_order(client):
    client.python("order = []")
    numbers = [client.start("tools/call", name="run_python",
                            arguments={"code": "order.append(%d)" % n}) for n in range(5)]
    for number in numbers:
        client.wait(number)
    assert client.python("order") == "[0, 1, 2, 3, 4]"


def test_a_call_that_waits_can_be_cancelled(client):
    client.python("order = []")
    busy = client.start("tools/call", name="run_python", arguments={"code": "while True: pass"})
    waiting = client.start("tools/call", name="run_python", arguments={"code": "order.append(1)"})
    client.notify("notifications/cancelled", requestId=waiting)
    client.notify("notifications/cancelled", requestId=busy)
    assert client.python("order") == "[]"


def test_another_session_does_not_wait(client):
    busy = client.start("tools/call", name="run_python",
                        arguments={"code": "while True: pass", "session": "busy"})
    assert client.python("1 + 1", session="free") == "2"
    states = {row["session"]: row["state"] for row in client.tool("list_sessions")["sessions"]}
    assert states == {"busy": "executing", "free": "idle"}
    client.tool("interrupt_session", session="busy")
    assert client.wait(busy)["result"]["isError"]
    assert client.python("'again'", session="busy") == "'again'"


def test_a_fork_has_the_variables_and_goes_its_own_way(client):
    client.python("x = [1]")
    assert client.tool("fork_session", name="copy") == {"session": "copy"}
    client.python("x.append(2)", session="copy")
    assert client.python("x", session="copy") == "[1, 2]"
    assert client.python("x") == "[1]"


@pytest.mark.parametrize("name, says", [("main", "already"), ("a b", "not a name"), ("", "name")])
def test_a_fork_needs_a_free_name(client, name, says):
    client.python("1")
    assert says in client.failure("fork_session", name=name)
    assert client.tool("fork_session", name="free") == {"session": "free"}


def test_sessions_are_limited_and_can_be_closed(connect):
    client = connect("--max-sessions", 2)
    client.python("1", session="a")
    client.python("1", session="b")
    assert "close_session" in client.failure("run_python", code="1", session="c")
    assert "close_session" in client.failure("fork_session", session="a", name="c")
    client.tool("close_session", session="a")
    assert client.python("1", session="c") == "1"
    assert "no session" in client.failure("close_session", session="a")


def test_a_session_whose_sandbox_ended_begins_anew(client):
    client.python("x = 1")
    text = client.failure("run_python", code="import os\nos._exit(3)")
    assert "exited with status 3; its variables are gone" in text
    assert "NameError" in client.failure("run_python", code="x")


def test_output_is_progress_for_a_client_that_asks(client):
    answer = client.result("tools/call", name="run_python", arguments={"code": "print('early')"},
                           _meta={"progressToken": "p"})
    notes = [m["params"] for m in client.seen if m.get("method") == "notifications/progress"]
    assert answer["structuredContent"]["stdout"] == "early\n"
    assert "".join(note["message"] for note in notes) == "early\n"
    assert [note["progressToken"] for note in notes] == ["p"] * len(notes)
    counts = [note["progress"] for note in notes]
    assert counts == sorted(set(counts))


def test_a_file_becomes_a_variable(connect, tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    (data / "long.txt").write_text("x" * 3_000_000)
    (data / "rows.jsonl").write_text('{"a": 1}\n{"a": 2}\n')
    client = connect(data)
    loaded = client.tool("load_context", path=str(data / "long.txt"))
    assert loaded == {"session": "main", "name": "context", "type": "str", "length": 3_000_000}
    assert client.python("len(context)") == "3000000"
    loaded = client.tool("load_context", path=str(data / "rows.jsonl"), name="rows", session="b")
    assert (loaded["type"], loaded["length"]) == ("list", 2)
    assert client.tool("load_context", path=str(data), name="all")["type"] == "dict"


class Pages(http.server.BaseHTTPRequestHandler):
    """Files by path; 404 for others."""
    files = {"/a.txt": (b"caf\xc3\xa9", "text/plain"), "/b?x": (b'{"b": [1]}', "application/json"),
             "/c.jsonl?y": (b'1\n{"c": 2}\n', "application/octet-stream"),
             "/d": (b"\xff\x00", "application/octet-stream")}

    def do_GET(self):
        data, media = self.files.get(self.path, (b"", ""))
        self.send_response(200 if media else 404)
        self.send_header("Content-Type", media or "text/plain")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args):
        pass


@pytest.fixture
def pages():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Pages) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield "127.0.0.1:%d" % server.server_port
        server.shutdown()


def test_a_url_becomes_a_variable_where_the_network_rules_allow_it(connect, client, pages):
    allowed = connect("--allow-net", "http://%s/**" % pages)
    for path, value in (("a.txt", "'café'"), ("b?x", "{'b': [1]}"), ("c.jsonl?y", "[1, {'c': 2}]"),
                        ("d", repr(b"\xff\x00"))):
        loaded = allowed.tool("load_context", url="http://%s/%s" % (pages, path), name="found")
        assert loaded["name"] == "found" and allowed.python("found") == value
    url = "http://%s/b?x" % pages
    assert allowed.tool("load_context", url=url, type="bytes")["type"] == "bytes"
    assert "_fetch" not in allowed.python("dir()")
    assert "404" in allowed.failure("load_context", url="http://%s/none" % pages)
    assert "--allow-net" in allowed.failure("load_context", url="http://127.0.0.2:1/")
    assert allowed.python("context") == repr(b'{"b": [1]}')     # as before the failures
    assert "--allow-net" in client.failure("load_context", url=url)


def test_only_paths_that_the_operator_named_are_read(connect, tmp_path):
    """also through links and dots, by `ask` as by load_context."""
    data, secret = tmp_path / "data", tmp_path / "data-secret"
    data.mkdir()
    secret.mkdir()
    (data / "open.txt").write_text("open")
    (secret / "key.txt").write_text("secret")
    os.symlink(secret / "key.txt", data / "link.txt")
    client = connect(data)
    for path in (secret / "key.txt", data / "link.txt", data / ".." / "data-secret" / "key.txt",
                 "/etc/passwd"):
        assert "not below" in client.failure("load_context", path=str(path))
        assert "not below" in client.failure("ask", question="?", contexts=[str(path)])
    assert "No such file" in client.failure("load_context", path=str(data / "none.txt"))
    assert client.tool("load_context", path=str(data / "open.txt"))["length"] == 4


def test_without_paths_no_file_is_read(client, tmp_path):
    (tmp_path / "a").write_text("a")
    assert "no files of this machine" in client.failure("load_context", path=str(tmp_path / "a"))


@pytest.mark.parametrize("name", ["a b", "1", "for", "a.b", "x" * 65])
def test_a_context_needs_the_name_of_a_variable(connect, tmp_path, name):
    (tmp_path / "a").write_text("a")
    client = connect(tmp_path / "a")
    assert "variable" in client.failure("load_context", path=str(tmp_path / "a"), name=name)
    assert client.tool("load_context", path=str(tmp_path / "a"), name="ok")["name"] == "ok"


def test_files_go_in_and_out(client):
    assert client.tool("write_file", path="d.txt", text="text ä")["bytes"] == 7
    assert client.python("open('d.txt').read()") == "'text ä'"
    data = bytes(range(256))
    client.tool("write_file", path="b.bin", base64=base64.b64encode(data).decode())
    result = client.result("tools/call", name="read_file", arguments={"path": "b.bin"})
    assert result["structuredContent"] == {"offset": 0, "bytes": 256, "encoding": "base64"}
    assert base64.b64decode(result["content"][0]["text"]) == data
    result = client.result("tools/call", name="read_file",
                           arguments={"path": "d.txt", "offset": 1, "length": 3})
    assert result["content"][0]["text"] == "ext"
    names = {entry["name"]: entry["kind"] for entry in client.tool("list_files")["entries"]}
    assert names == {"d.txt": "file", "b.bin": "file"}


def test_a_file_of_several_pieces_arrives_whole(client):
    client.tool("write_file", path="big", text="0123456789" * 250_000)
    assert client.python("open('big').read() == '0123456789' * 250_000") == "True"


@pytest.mark.parametrize("tool, arguments, says", [
    ("read_file", {"path": "none"}, "No such file"),
    ("write_file", {"path": "none/a", "text": ""}, "No such file"),
    ("write_file", {"path": "a"}, "either"),
    ("write_file", {"path": "a", "text": "", "base64": ""}, "either"),
    ("write_file", {"path": "a", "base64": "%"}, "base64"),
    ("list_files", {"path": "none"}, "No such file"),
    ("run_python", {}, "code"),
    ("run_python", {"code": "1", "more": 1}, "more"),
    ("run_python", {"code": 1}, "string"),
    ("run_python", {"code": "1", "timeout_seconds": 0}, "timeout_seconds"),
    ("ask", {"question": ""}, "question"),
])
def test_arguments_that_cannot_be_are_named(client, tool, arguments, says):
    assert says in client.failure(tool, **arguments)
    assert client.python("1") == "1"


def test_files_do_not_wait_for_a_cell(client):
    client.python("1")
    busy = client.start("tools/call", name="run_python", arguments={"code": "while True: pass"})
    client.tool("write_file", path="a.txt", text="a")
    assert [entry["name"] for entry in client.tool("list_files")["entries"]] == ["a.txt"]
    client.notify("notifications/cancelled", requestId=busy)


def write_model(tmp_path, *replies):
    path = tmp_path / "model.jsonl"
    path.write_text("".join(json.dumps({"content": reply}) + "\n" for reply in replies))
    return "replay:%s" % path


def test_a_question_is_answered_by_a_run(connect, tmp_path):
    (tmp_path / "long.txt").write_text("needle " + "hay " * 100_000)
    client = connect(tmp_path / "long.txt", "--model", write_model(
        tmp_path, "```python\nprint(len(context))\n```",
        "```python\nSUBMIT(context.split()[0])\n```"))
    result = client.result("tools/call", name="ask", arguments={
        "question": "What is the first word?", "contexts": [str(tmp_path / "long.txt")]},
        _meta={"progressToken": 7})
    assert result["content"][0] == {"type": "text", "text": "needle"}
    data = result["structuredContent"]
    assert (data["status"], data["answer"], data["usage"]["calls"]) == ("answered", "needle", 2)
    notes = [m["params"]["message"] for m in client.seen
             if m.get("method") == "notifications/progress"]
    assert any("turn 2" in note for note in notes)
    # Its record is a resource.
    uri = "droste://runs/" + data["run"]
    assert uri in [r["uri"] for r in client.result("resources/list")["resources"]]
    text = client.result("resources/read", uri=uri)["contents"][0]["text"]
    assert "What is the first word?" in text
    assert [json.loads(line) for line in text.splitlines()]


def test_a_run_that_fails_says_why(connect, tmp_path):
    client = connect("--model", write_model(tmp_path))
    text = client.failure("ask", question="What?")
    assert "has no answer for this call" in text


def test_a_run_can_be_cancelled(connect, tmp_path):
    client = connect("--model", write_model(
        tmp_path, "```python\nwhile True: pass\n```"))
    number = client.start("tools/call", name="ask", arguments={"question": "What?"},
                          _meta={"progressToken": 1})
    while client.receive().get("method") != "notifications/progress":
        pass
    client.notify("notifications/cancelled", requestId=number)
    assert client.python("1") == "1"


def test_a_prompt_has_its_arguments_filled_in(client):
    prompts = client.result("prompts/list")["prompts"]
    assert {"explore", "answer"} == {prompt["name"] for prompt in prompts}
    for prompt in prompts:
        message = client.result("prompts/get", name=prompt["name"], arguments={
            "path": "/data/{question}.txt", "question": "How many?"})["messages"][0]
        assert "/data/{question}.txt" in message["content"]["text"]
        assert "How many?" in message["content"]["text"]
