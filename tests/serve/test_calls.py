"""Calls of the code that a client answers, as any program sees them over HTTP."""
import http.client
import json

import pytest

from server_process import WAIT, until


class Stream:
    """A cell as a stream of events."""

    def __init__(self, server, sandbox, code, **more):
        self.connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=WAIT)
        self.connection.request("POST", sandbox + "/execute",
                                json.dumps({"code": code, "stream": True, **more}))
        self.response = self.connection.getresponse()

    def next(self, kind):
        """The data of the next event of this kind."""
        fields = {}
        for line in self.response:
            name, _, value = line.decode().rstrip("\n").partition(": ")
            if name:
                fields[name] = value
            elif fields.get("event") == kind:
                return json.loads(fields["data"])

    def close(self):
        self.response.close()
        self.connection.close()


@pytest.fixture
def stream(server, sandbox):
    streams = []

    def start(code, **more):
        streams.append(Stream(server, sandbox, code, **more))
        return streams[-1]
    yield start
    for one in streams:
        one.close()


def offer(server, sandbox, *tools):
    assert server.ask("PUT", sandbox + "/tools", {"tools": list(tools)}).status == 204


ADD = {"name": "add", "description": "Adds.", "parameters": {
    "type": "object", "required": ["a"], "properties": {"a": {"type": "integer"},
                                                        "b": {"type": "integer", "default": 1}}}}


def test_a_call_is_an_event_and_its_answer_a_request(server, sandbox, stream):
    offer(server, sandbox, ADD, {"name": "fails"})
    cell = stream("x = add(a=2)\ntry: fails(1)\nexcept ValueError as e: SUBMIT(x=x, e=str(e))")
    call = cell.next("call")
    assert (call["kind"], call["name"], call["arguments"]) == ("tool", "add", {"a": 2, "b": 1})
    path = "%s/calls/%d" % (sandbox, call["call"])
    assert server.ask("POST", path, {"values": "?"}).status == 400      # it still waits
    assert server.ask("POST", path, {"value": 3 ** 50}).status == 204
    assert server.ask("POST", path, {"value": 0}).status == 404
    call = cell.next("call")
    answer = {"error": {"type": "ValueError", "message": "not today"}}
    assert server.ask("POST", "%s/calls/%d" % (sandbox, call["call"]), answer).status == 204
    assert cell.next("result")["submit"] == {"x": 3 ** 50, "e": "not today"}


def test_without_a_stream_calls_fail_at_once(server, sandbox):
    offer(server, sandbox, ADD)
    assert "stream" in server.execute(sandbox, "add(1)")["error"]["message"]
    assert server.execute(sandbox, "1")["echo"] == "1"


def test_a_client_that_leaves_fails_its_calls(server, sandbox, stream):
    offer(server, sandbox, ADD)
    cell = stream("try: add(1)\nexcept BaseException as e: said = type(e).__name__")
    cell.next("call")
    cell.close()
    until(lambda: server.ask("GET", sandbox).json["state"] == "idle")
    assert server.execute(sandbox, "said")["status"] == "ok"


def test_a_call_of_a_stopped_cell_is_cancelled(server, sandbox, stream):
    offer(server, sandbox, ADD)
    cell = stream("add(1)")
    number = cell.next("call")["call"]
    assert server.ask("POST", sandbox + "/interrupt").status == 204
    assert cell.next("cancel") == {"call": number}
    assert cell.next("result")["error"]["type"] == "KeyboardInterrupt"
    assert server.ask("POST", "%s/calls/%d" % (sandbox, number), {"value": 1}).status == 404


def test_tools_are_replaced_and_checked(server, sandbox, stream):
    offer(server, sandbox, ADD)
    refused = server.ask("PUT", sandbox + "/tools", {"tools": [{"name": "no name"}]})
    assert (refused.status, refused.code) == (400, "schema")
    assert server.ask("PUT", sandbox + "/tools", {"tools": [{}]}).code == "schema"
    offer(server, sandbox)
    assert server.execute(sandbox, "add(1)")["error"]["type"] == "NameError"


def test_a_model_that_the_client_answers(server, stream):
    sandbox = server.create(options={"model": "callback"})
    cell = Stream(server, sandbox, "SUBMIT(said=llm_query('q', model='m'))")
    call = cell.next("call")
    assert (call["kind"], call["name"], call["model"]) == ("model", "model", "m")
    assert call["messages"][-1] == {"role": "user", "text": "q"}
    path = "%s/calls/%d" % (sandbox, call["call"])
    assert server.ask("POST", path, {"text": "re: q"}).status == 204
    assert cell.next("result")["submit"] == {"said": "re: q"}
    cell.close()
    server.ask("DELETE", sandbox)


def test_checkpoints_over_http(server, sandbox):
    server.execute(sandbox, "x = 1")
    made = server.ask("POST", sandbox + "/checkpoints")
    assert made.status == 201
    one = "%s/checkpoints/%d" % (sandbox, made.json["id"])
    assert server.execute(sandbox, "import os; os._exit(1)")["alive"] is False
    refused = server.ask("POST", sandbox + "/execute", {"code": "1"})
    assert (refused.status, refused.code) == (410, "lost")
    assert server.ask("POST", one + "/rollback").status == 204
    assert server.execute(sandbox, "x")["echo"] == "1"
    fork = server.ask("POST", one + "/fork")
    assert fork.status == 201
    assert server.ask("DELETE", "/v1/sandboxes/" + fork.json["id"]).status == 204
    assert server.ask("DELETE", one).status == 204
    assert server.ask("GET", sandbox + "/checkpoints").json == {"checkpoints": []}
    for name in ("0", "x", "-1", "99999999999"):
        assert server.ask("DELETE", sandbox + "/checkpoints/" + name).status == 400


def test_a_lost_sandbox_says_why_for_a_while(server):
    def started():
        answer = server.ask("POST", "/v1/sandboxes", {"options": {"timeout": 1}})
        return answer.status == 201 and "/v1/sandboxes/" + answer.json["id"]
    path = until(started)       # that is part of its time
    answer = server.ask("POST", path + "/execute", {"code": "while True: pass"})
    assert answer.status == 410 or answer.json["killed"] == "timeout"
    answer = server.ask("POST", path + "/execute", {"code": "1"})
    assert (answer.status, answer.code) == (410, "timeout")
