"""What the server asks of its clients: their model, their roots; and what clients follow. In both
revisions, on standard input and over HTTP."""
import json

import pytest

from http_client import HttpClient, Server

REPLY = {"role": "assistant", "model": "theirs", "stopReason": "endTurn",
         "content": {"type": "text", "text": "```repl\nSUBMIT(answer=str(6 * 7))\n```"}}
SAMPLING = {"sampling": {}}


@pytest.fixture(params=["stdio", "stdio-stateless", "http", "http-stateless"])
def open_client(request, connect, tmp_path):
    """open_client(path, can): a client with these capabilities."""
    transport, _, stateless = request.param.partition("-")
    servers = []

    def start(path=None, can=None):
        words = [path] if path else []
        if transport == "stdio":
            return connect(*words, can=can, stateless=bool(stateless))
        flags = ["--mcp-path", path] if path else []
        servers.append(Server(tmp_path / "home", *flags))
        return HttpClient(servers[-1], can=can, stateless=bool(stateless))
    start.is_local = transport == "stdio"
    yield start
    for server in servers:
        assert server.stop() == 0


def test_ask_needs_no_key_with_the_clients_model(open_client):
    client = open_client(can=SAMPLING)
    client.answer["sampling/createMessage"] = REPLY
    assert client.tool("ask", question="What is six times seven?")["answer"] == "42"
    params = client.asked[0]["params"]
    assert "What is six times seven?" in json.dumps(params["messages"])
    assert params["maxTokens"] > 0 and params["systemPrompt"]
    assert {message["role"] for message in params["messages"]} <= {"user", "assistant"}


def test_without_sampling_ask_needs_a_model(open_client):
    client = open_client()
    assert "model" in client.failure("ask", question="?")
    assert client.asked == []


def test_a_model_that_gives_no_text_fails_the_run(open_client):
    client = open_client(can=SAMPLING)
    client.answer["sampling/createMessage"] = {"role": "assistant", "content": {"type": "audio"}}
    assert "gave no text" in client.failure("ask", question="?")
    assert client.python("1 + 1") == "2"


def test_the_code_of_a_run_asks_the_clients_model_in_parallel(open_client):
    client = open_client(can=SAMPLING)
    code = "```repl\nSUBMIT(answer=' '.join(llm_query_batched(['a', 'b', 'c'])))\n```"

    class Answers(dict):
        def __getitem__(self, method):
            first = len(client.asked) == 1
            return {**REPLY, "content": {"type": "text", "text": code if first else "word"}}
    client.answer = Answers()
    assert client.tool("ask", question="?")["answer"] == "word word word"
    assert len(client.asked) == 4


def test_roots_bound_the_files_of_a_local_client(open_client, tmp_path):
    data = tmp_path / "data"
    for name in ("in side", "out"):
        (data / name).mkdir(parents=True)
        (data / name / "f.txt").write_text(name)
    client = open_client(data, can={"roots": {"listChanged": True}})
    client.answer["roots/list"] = {"roots": [{"uri": "file://%s/in%%20side" % data}]}
    assert client.tool("load_context", path=str(data / "in side" / "f.txt"))["length"] == 7
    if open_client.is_local:
        assert "root of the client" in client.failure("load_context",
                                                      path=str(data / "out" / "f.txt"))
        assert client.asked[0]["method"] == "roots/list"
    else:   # the client's directories are those of another machine
        assert client.tool("load_context", path=str(data / "out" / "f.txt"))["length"] == 3
    assert "not below" in client.failure("load_context", path="/etc/passwd")


def test_changed_roots_are_asked_for_again(connect, tmp_path):
    (tmp_path / "f.txt").write_text("abc")
    client = connect(tmp_path, can={"roots": {"listChanged": True}})
    client.answer["roots/list"] = {"roots": [{"uri": "file:///nowhere"}]}
    for _ in range(2):
        assert "root" in client.failure("load_context", path=str(tmp_path / "f.txt"))
    assert len(client.asked) == 1
    client.answer["roots/list"] = {"roots": [{"uri": "file://%s" % tmp_path}]}
    client.notify("notifications/roots/list_changed")
    assert client.tool("load_context", path=str(tmp_path / "f.txt"))["length"] == 3
    assert len(client.asked) == 2


def test_a_state_that_was_not_given_is_refused(open_client):
    client = open_client(can=SAMPLING)
    if not client.stateless:
        pytest.skip("a session's questions are requests")
    meta = client.meta() if hasattr(client, "meta") else {}

    def request(**params):
        stream = client.open("tools/call", **params) if hasattr(client, "open") else None
        if stream:
            message = next(stream.messages())
            stream.cut()
            return message
        return client.wait(client.start("tools/call", **params, **meta))
    call = {"name": "ask", "arguments": {"question": "?"}}
    first = request(**call)["result"]
    assert first["resultType"] == "input_required"
    responses = {key: REPLY for key in first["inputRequests"]}
    state = first["requestState"]
    for more in ({"requestState": state + "x"}, {"requestState": ""}, {"requestState": 7},
                 {"requestState": state, "arguments": {"question": "another"}},
                 {"requestState": state, "inputResponses": None}):
        answer = request(**{**call, "inputResponses": responses, **more})
        assert answer["error"]["code"] == -32602, more
    answer = request(**call, inputResponses=responses, requestState=state)
    assert answer["result"]["structuredContent"]["answer"] == "42"
    again = request(**call, inputResponses=responses, requestState=state)
    assert again["error"]["code"] == -32602     # it holds once


def test_runs_are_followed_as_resources(open_client):
    client = open_client(can=SAMPLING)
    client.answer["sampling/createMessage"] = REPLY
    http = hasattr(client, "open")
    if client.stateless:
        filters = {"resourcesListChanged": True, "toolsListChanged": True}
        if http:
            messages = client.open("subscriptions/listen", notifications=filters).messages()
        else:
            number = client.start("subscriptions/listen", notifications=filters, **client.meta())
            messages = iter(client.receive, None)
        note = next(messages)
        assert note["method"] == "notifications/subscriptions/acknowledged"
        assert note["params"]["notifications"] == {"resourcesListChanged": True}
        tag = {"io.modelcontextprotocol/subscriptionId": client.number if http else number}
        assert note["params"]["_meta"] == tag
        client.tool("ask", question="?")
        note = next(messages) if http else next(
            one for one in client.seen if one.get("method", "").endswith("list_changed"))
        assert note["method"] == "notifications/resources/list_changed"
        assert note["params"]["_meta"] == tag
        return
    messages = client.listen().messages() if http else None
    run = client.tool("ask", question="?")["run"]
    uri = "droste://runs/" + run
    if http:
        assert next(messages)["method"] == "notifications/resources/list_changed"
    assert client.request("resources/subscribe", uri=uri)["result"] == {}
    lines = client.request("resources/read", uri=uri)["result"]["contents"][0]["text"]
    assert json.loads(lines.splitlines()[0])
    assert client.request("completion/complete", ref={
        "type": "ref/resource", "uri": "droste://runs/{run}"}, argument={
            "name": "run", "value": run[:3]})["result"]["completion"]["values"] == [run]
    assert client.request("resources/unsubscribe", uri=uri)["result"] == {}


ELICITATION = {"elicitation": {"form": {}}}
TRIED = "try: out = write(n=4)\nexcept Exception as e: out = str(e)\nout"


@pytest.fixture
def asking(connect, tmp_path, request):
    """asking(can): a client of a server whose tool `write` asks for an approval; `done` says how
    often it was executed."""
    program = tmp_path / "write"
    program.write_text("#!/bin/sh\ncat >/dev/null\necho >> %s/done\necho 40\n" % tmp_path)
    program.chmod(0o755)

    def start(can, stateless=False):
        client = connect("--tool", "write=%s" % program, "--ask", "write", can=can,
                         stateless=stateless)
        log = tmp_path / "done"
        client.done = lambda: len(log.read_text()) if log.exists() else 0
        return client
    return start


@pytest.mark.parametrize("stateless", [False, True])
@pytest.mark.parametrize("answer, result, done", [
    ({"action": "accept", "content": {"approve": True}}, "40", 1),
    ({"action": "accept", "content": {"approve": False, "reason": "no"}}, "MCP client: no", 0),
    ({"action": "decline"}, "was denied by the user", 0),
    ({"action": "cancel"}, "nothing is left that could decide", 0)])
def test_a_form_approves_a_call(asking, answer, result, done, stateless):
    client = asking(ELICITATION, stateless)
    client.answer["elicitation/create"] = answer
    assert result in client.python(TRIED) and client.done() == done
    params = client.asked[0]["params"]
    assert "write({\"n\": 4})" in params["message"] and params["mode"] == "form"
    assert client.python("1 + 1") == "2"


def test_without_elicitation_a_call_is_denied(asking):
    client = asking({})
    assert "nothing is left that could decide" in client.python(TRIED)
    assert client.asked == [] and client.done() == 0


def test_a_run_asks_the_user_of_its_client(asking):
    client = asking({**SAMPLING, **ELICITATION})
    code = "```repl\nSUBMIT(answer=write(n=4))\n```"
    client.answer["sampling/createMessage"] = {**REPLY, "content": {"type": "text", "text": code}}
    client.answer["elicitation/create"] = {"action": "accept", "content": {"approve": True}}
    assert client.tool("ask", question="?")["answer"] == 40 and client.done() == 1


@pytest.mark.parametrize("approve", [True, False])
def test_a_run_asks_the_user_of_its_client_about_spending(connect, tmp_path, approve):
    (tmp_path / "prices").write_text("* 1000 0\n")
    client = connect("--prices", str(tmp_path / "prices"), "--ask-cost", "0.01",
                     can={**SAMPLING, **ELICITATION})
    client.answer["sampling/createMessage"] = REPLY
    client.answer["elicitation/create"] = {"action": "accept", "content": {"approve": approve}}
    if approve:
        assert client.tool("ask", question="?")["answer"] == "42"
    else:
        assert "spending more was denied" in client.failure("ask", question="?")
    form, = [asked["params"] for asked in client.asked if asked["method"] == "elicitation/create"]
    assert "spend" in form["message"] and "0.01" in form["message"]
