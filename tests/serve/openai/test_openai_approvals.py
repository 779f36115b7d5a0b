"""Approval items of responses: a client answers for the calls of its run by its next request; the
run waits meanwhile, and each tool is executed once."""
import json

import pytest

from server_process import until
from harness import repl
from openai_fakes import Stream, error
from openai_fakes import models  # noqa: F401: a fixture
from test_keys import Client, create

RESPONSES = "/v1/responses"
MCP = {"tools": [{"type": "mcp", "server_label": "ours", "require_approval": "always"}]}
TURNS = [repl("before = 2\ntry: out = write(n=4)\nexcept Exception as e: out = str(e)\nprint(out)"),
         repl("SUBMIT('%s after %d' % (out, before))")]
BOTH = [repl("import threading\nsaid = []\n"
             "threads = [threading.Thread(target=lambda n=n: said.append(write(n=n))) "
             "for n in range(2)]\n[t.start() for t in threads]\n[t.join() for t in threads]\n"
             "SUBMIT('%d' % len(said))")]


@pytest.fixture
def asking(models, tmp_path):  # noqa: F811
    """asking(turns, flags…): a server whose tool asks; `done` counts its executions."""
    program = tmp_path / "write"
    program.write_text("#!/bin/sh\ncat >/dev/null\necho x >> %s/done\necho 40\n" % tmp_path)
    program.chmod(0o755)

    def start(turns, *flags, **more):
        server = models("--tool", "write=%s" % program, "--ask", "write", *flags, turns=turns,
                        **more)
        log = tmp_path / "done"
        server.done = lambda: len(log.read_text().split()) if log.exists() else 0
        return server
    return start


def ask(client, input="q", **more):
    answer = client.ask("POST", RESPONSES, {"model": "droste/turns", "input": input, **MCP, **more})
    assert answer.status == 200, answer.body
    return answer.json


def requests(response):
    return [item for item in response["output"] if item["type"] == "mcp_approval_request"]


def answers(response, approve, **more):
    return [{"type": "mcp_approval_response", "approval_request_id": item["id"],
             "approve": approve, **more} for item in requests(response)]


def go_on(client, response, approve=True, **more):
    return ask(client, answers(response, approve), previous_response_id=response["id"], **more)


def text(response):
    return "".join(part["text"] for item in response["output"] if item["type"] == "message"
                   for part in item["content"])


def test_an_approved_call_goes_on_in_the_next_response(asking):
    server = asking(TURNS, "--detach", "0.3")
    one = ask(server)
    item, = requests(one)
    assert one["status"] == "completed" and one["output"][-1] == item
    assert (item["name"], item["server_label"]) == ("write", "ours")
    assert item["arguments"] == '{"n": 4}' and server.done() == 0
    two = go_on(server, one)
    assert text(two) == "40 after 2" and server.done() == 1 and requests(two) == []
    assert two["id"] != one["id"] and two["previous_response_id"] == one["id"]
    assert two["usage"]["total_tokens"] > 0
    assert [i["type"] for i in one["output"] + two["output"]].count("reasoning") == 2
    for response in (one, two):
        assert server.ask("GET", RESPONSES + "/" + response["id"]).json == response
    again = go_on(server, one)      # a client's next try
    assert again == two and server.done() == 1
    assert len(server.ask("GET", "/v1/runs").json["runs"]) == 1
    ask(server, "and?", previous_response_id=two["id"])
    question = server.ask("GET", "/v1/runs").json["runs"][0]["question"]
    assert question.count("40 after 2") == 1 and "user: q" in question


def test_a_denied_call_fails_with_the_reason(asking):
    server = asking(TURNS)
    one = ask(server)
    two = ask(server, answers(one, False, reason="not today"), previous_response_id=one["id"])
    assert "not today after 2" in text(two) and server.done() == 0
    changed = server.ask("POST", RESPONSES, {"model": "droste/turns", **MCP, "input": answers(
        one, True), "previous_response_id": one["id"]})
    assert error(changed, 409)["code"] == "decided" and server.done() == 0


def test_events_of_a_stream_end_with_the_request(asking):
    server = asking(TURNS)
    body = {"model": "droste/turns", "input": "q", **MCP}
    events = list(Stream(server, body, path=RESPONSES))
    assert [event["type"] for event in events[-3:]] == [
        "response.output_item.added", "response.output_item.done", "response.completed"]
    one = events[-1]["response"]
    assert requests(one) == [events[-2]["item"]]
    body.update(input=answers(one, True), previous_response_id=one["id"])
    assert text(list(Stream(server, body, path=RESPONSES))[-1]["response"]) == "40 after 2"


def test_calls_that_wait_at_once_are_answered_one_by_one(asking):
    """What is not answered is requested again."""
    server = asking(BOTH)
    response, seen = ask(server), []
    while requests(response):
        seen += [item["id"] for item in requests(response)]
        response = ask(server, answers(response, True)[:1], previous_response_id=response["id"])
    assert text(response) == "2" and server.done() == 2 and len(set(seen)) == 2


def test_a_client_that_does_not_ask_waits_for_others(asking):
    """And a background response has its requests when it is retrieved."""
    server = asking(TURNS)
    one = ask(server, tools=[], background=True)
    waiting = until(lambda: server.ask("GET", "/v1/approvals").json["approvals"])
    found = server.ask("GET", RESPONSES + "/" + one["id"]).json
    assert found["status"] == "in_progress" and requests(found) == []
    decided = server.ask("POST", "/v1/approvals/%s" % waiting[0]["id"], {"decision": "approve"})
    assert decided.status == 200
    until(lambda: server.ask("GET", RESPONSES + "/" + one["id"]).json["status"] == "completed")
    other = ask(server, background=True)
    shown = until(lambda: [found for found in [server.ask("GET", "%s/%s" % (
        RESPONSES, other["id"])).json] if found["status"] == "completed"])[0]
    assert text(go_on(server, shown)) == "40 after 2" and server.done() == 2


def test_it_survives_the_server(asking):
    server = asking(TURNS)
    one = ask(server)
    server.process.kill()
    server.process.wait()
    again = asking(TURNS, model=server.model)
    assert text(go_on(again, one)) == "40 after 2" and again.done() == 1


def test_mistakes_are_named(asking):
    server = asking(TURNS)
    one = ask(server)
    answer, = answers(one, True)
    for more, status, code in [
            ({"input": [{**answer, "approval_request_id": "mcpr_999"}]}, 400, "approval_not_found"),
            ({"input": [{**answer, "approval_request_id": "x"}]}, 400, "approval_not_found"),
            ({"input": [{**answer, "approve": "yes"}]}, 400, "unsupported_item"),
            ({"previous_response_id": "resp_x"}, 400, "previous_response_not_found"),
            ({"store": False}, 400, "unsupported_parameter"),
            ({"input": "q"}, 400, "previous_response_not_found"),
            ({"tools": [{"type": "mcp", "server_label": "x", "server_url": "http://x"}]}, 400,
             "unsupported_parameter")]:
        body = {"model": "droste/turns", **MCP, "input": [answer],
                "previous_response_id": one["id"], **more}
        assert error(server.ask("POST", RESPONSES, body), status)["code"] == code, more
    assert server.done() == 0
    assert text(go_on(server, one)) == "40 after 2"


def test_a_key_needs_the_scope_and_the_run(asking, tmp_path):
    made = {name: create(tmp_path, name, "--scopes", scopes) for name, scopes in
            {"plain": "models", "decider": "models,approvals"}.items()}
    server = asking(TURNS)
    plain, decider = (Client(server, made[name]) for name in ("plain", "decider"))
    for owner, other, status in [(plain, plain, 403), (plain, decider, 400)]:
        one = ask(owner)
        body = {"model": "droste/turns", **MCP, "input": answers(one, True),
                "previous_response_id": one["id"]}
        error(other.ask("POST", RESPONSES, body), status)
    assert server.done() == 0
    assert text(go_on(decider, ask(decider))) == "40 after 2"


@pytest.mark.parametrize("approve", [True, False])
def test_spending_is_an_item_too(models, tmp_path, approve):  # noqa: F811
    (tmp_path / "prices").write_text("* 1000 0\n")
    server = models("--prices", str(tmp_path / "prices"), "--ask-cost", "0.01",
                    turns=[repl("SUBMIT('done')")])
    one = ask(server)
    item, = requests(one)
    assert item["name"] == "ask-cost" and json.loads(item["arguments"])["limit"] == 0.01
    two = go_on(server, one, approve)
    assert (two["status"], text(two)) == (("completed", "done") if approve else ("incomplete", ""))
