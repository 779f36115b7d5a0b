"""Responses: items and events in order; stored, continued, cancelled, deleted, in background."""
import pytest

from server_process import until
from harness import repl
from openai_fakes import HANGING, TURNS, Stream, error
from openai_fakes import models, server  # noqa: F401: fixtures
from test_keys import create

RESPONSES = "/v1/responses"
CODE = {"tools": [{"type": "code_interpreter", "container": {"type": "auto"}}],
        "include": ["code_interpreter_call.outputs"]}
# Every key of the object, null where there is nothing (Open Responses).
KEYS = set("""id object created_at completed_at status incomplete_details model previous_response_id
    instructions output error tools tool_choice truncation parallel_tool_calls text top_p
    presence_penalty frequency_penalty top_logprobs temperature reasoning usage max_output_tokens
    max_tool_calls store background service_tier metadata safety_identifier prompt_cache_key
    """.split())


def ask(server, input="how long?", **more):
    answer = server.ask("POST", RESPONSES, {"model": "droste/turns", "input": input, **more})
    assert answer.status == 200, answer.body
    return answer.json


def text(response):
    return "".join(part["text"] for item in response["output"] if item["type"] == "message"
                   for part in item["content"])


def test_a_response_is_a_run(server):
    """With all keys, and the usage of the tree; afterwards it is the same."""
    one = ask(server, context="x" * 70, instructions="Be brief.", metadata={"a": "b"})
    assert set(one) == KEYS and one["status"] == "completed" and text(one) == "answer 70"
    assert [item["type"] for item in one["output"]] == ["reasoning", "reasoning", "message"]
    tokens = server.model.stats()["tokens"].values()
    assert one["usage"]["input_tokens"] == sum(prompted for prompted, _ in tokens)
    assert one["usage"]["output_tokens"] == sum(received for _, received in tokens)
    assert one["metadata"] == {"a": "b"} and one["instructions"] == "Be brief."
    assert server.ask("GET", RESPONSES + "/" + one["id"]).json == one
    items = server.ask("GET", RESPONSES + "/%s/input_items" % one["id"]).json
    assert [(item["role"], item["content"]) for item in items["data"]] == [
        ("user", [{"type": "input_text", "text": "how long?"}])]


def test_events_come_in_order(server):
    """Created first, then each item from its beginning to its end, and the whole response last."""
    events = list(Stream(server, {"model": "droste/turns", "input": "q", **CODE},
                         path=RESPONSES))
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    kinds = [event["type"] for event in events]
    assert kinds[:2] == ["response.created", "response.in_progress"]
    assert kinds[-1] == "response.completed"
    reasoning = ["response.output_item.added", "response.reasoning_summary_part.added",
                 "response.reasoning_summary_text.delta", "response.reasoning_summary_text.done",
                 "response.reasoning_summary_part.done", "response.output_item.done"]
    code = ["response.output_item.added", "response.code_interpreter_call.in_progress",
            "response.code_interpreter_call_code.delta", "response.code_interpreter_call_code.done",
            "response.code_interpreter_call.interpreting",
            "response.code_interpreter_call.completed", "response.output_item.done"]
    message = ["response.output_item.added", "response.content_part.added",
               "response.output_text.delta", "response.output_text.done",
               "response.content_part.done", "response.output_item.done"]
    assert kinds[2:-1] == 2 * (reasoning + code) + message
    whole = events[-1]["response"]
    done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert whole["output"] == done and {event["response"]["id"] for event in events
                                        if "response" in event} == {whole["id"]}
    indexes = [event["output_index"] for event in events if "output_index" in event]
    assert indexes == sorted(indexes)
    for event in events:
        if "item_id" in event:
            assert event["item_id"] == done[event["output_index"]]["id"]
    assert server.ask("GET", RESPONSES + "/" + whole["id"]).json == whole


def test_cells_are_items_of_the_code_interpreter(server):
    """If the tool was asked for; outputs only if they are included."""
    one = ask(server, context="abc", **CODE)
    cells = [item for item in one["output"] if item["type"] == "code_interpreter_call"]
    assert "llm_query" in cells[0]["code"] and cells[0]["status"] == "completed"
    assert cells[0]["outputs"] == [{"type": "logs", "logs": "length 3\n"}]
    bare = ask(server, tools=CODE["tools"])
    assert [item["outputs"] for item in bare["output"]
            if item["type"] == "code_interpreter_call"] == [None, None]


def test_a_conversation_goes_on(models):
    """From the response before, as far back as it goes, or from items that the client sends."""
    server = models(turns=[repl("SUBMIT('answer')")])
    first = ask(server, "first question")
    second = ask(server, "second question", previous_response_id=first["id"])
    assert second["previous_response_id"] == first["id"]
    ask(server, "third question", previous_response_id=second["id"])
    question = server.ask("GET", "/v1/runs").json["runs"][0]["question"]
    parts = ["user: first question", "assistant: answer", "user: second question",
             "assistant: answer", "third question"]
    at = 0
    for part in parts:
        at = question.index(part, at) + len(part)
    sent = ask(server, [{"role": "user", "content": "one"}, *second["output"],
                        {"role": "user", "content": [{"type": "input_text", "text": "two"}]}])
    assert text(sent) == "answer"
    question = server.ask("GET", "/v1/runs").json["runs"][0]["question"]
    assert "user: one" in question and "assistant: answer" in question and "two" in question


def test_what_is_not_stored_is_gone(server):
    """It can neither be retrieved nor continued."""
    one = ask(server, store=False)
    assert error(server.ask("GET", RESPONSES + "/" + one["id"]), 404)["code"] == "not_found"
    body = {"model": "droste/turns", "input": "q", "previous_response_id": one["id"]}
    found = error(server.ask("POST", RESPONSES, body), 400)
    assert found["code"] == "previous_response_not_found"


def test_a_response_is_deleted(server):
    path = RESPONSES + "/" + ask(server)["id"]
    assert server.ask("DELETE", path).json["deleted"] is True
    for method, more in (("GET", ""), ("DELETE", ""), ("POST", "/cancel"), ("GET", "/input_items")):
        assert error(server.ask(method, path + more), 404)["code"] == "not_found"


def test_a_background_response(models):
    """Is answered at once, goes on without a client, and can be cancelled."""
    server = models("--detach", "0.3", turns={"": TURNS, "hanging": HANGING},
                    names="turns,hanging=turns-hanging")
    one = ask(server, background=True)
    assert one["status"] == "in_progress" and one["output"] == [] and one["usage"] is None
    path = RESPONSES + "/" + one["id"]
    until(lambda: server.ask("GET", path).json["status"] == "completed")
    assert text(server.ask("GET", path).json) == "answer 0"
    waits = server.ask("POST", RESPONSES, {"model": "droste/hanging", "input": "q",
                                           "background": True}).json
    path = RESPONSES + "/" + waits["id"]
    until(lambda: server.model.stats()["models"].get("digest", 0) >= 2)
    assert server.ask("GET", path).json["status"] == "in_progress"
    assert server.ask("POST", path + "/cancel").json["status"] == "cancelled"
    until(lambda: server.ask("GET", path).json["status"] == "cancelled")


def test_a_response_without_an_answer(models):
    """Is incomplete, whole and as a stream; it is not an error that a client would repeat."""
    server = models("--max-iterations", "1", turns=[repl("1"), repl("2"), repl("3")])
    one = ask(server)
    assert one["status"] in ("incomplete", "failed") and text(one) == ""
    events = list(Stream(server, {"model": "droste/turns", "input": "q"}, path=RESPONSES))
    assert events[-1]["type"] == "response." + one["status"]


def test_each_key_has_its_own_responses(models):
    one, other = ({"Authorization": "Bearer " + create(models.home, name, "--scopes", "models")}
                  for name in ("one", "other"))
    server = models("--keys", str(models.home / "data" / "keys.json"))
    made = server.ask("POST", RESPONSES, {"model": "droste/turns", "input": "q"}, one).json
    path = RESPONSES + "/" + made["id"]
    assert server.ask("GET", path, headers=one).json == made
    for method, more in (("GET", ""), ("DELETE", ""), ("POST", "/cancel"), ("GET", "/input_items")):
        assert error(server.ask(method, path + more, headers=other), 404)
    body = {"model": "droste/turns", "input": "q", "previous_response_id": made["id"]}
    assert error(server.ask("POST", RESPONSES, body, other), 400)


@pytest.mark.parametrize("body,code,param", [
    ({"input": "q"}, "schema", None),
    ({"model": "droste/turns", "input": 1}, "schema", None),
    ({"model": "droste/turns", "input": []}, "no_question", "input"),
    ({"model": "droste/turns", "input": [{"role": "assistant", "content": "x"}]}, "no_question",
     "input"),
    ({"model": "droste/turns", "input": [{"type": "computer_call_output", "output": "x"},
                                         {"role": "user", "content": "q"}]},
     "unsupported_item", "input"),
    ({"model": "droste/turns", "input": "q", "tools": [{"type": "custom", "name": "f"}]},
     "unsupported_parameter", "tools"),
    ({"model": "droste/turns", "input": "q", "previous_response_id": "resp_x"},
     "previous_response_not_found", "previous_response_id"),
    ({"model": "ok", "input": "q"}, "unsupported_model", "model"),
])
def test_bad_responses(server, body, code, param):
    found = error(server.ask("POST", RESPONSES, body), 400)
    assert (found["code"], found["param"]) == (code, param)
    assert server.ask("GET", "/v1/runs").json["runs"] == []
