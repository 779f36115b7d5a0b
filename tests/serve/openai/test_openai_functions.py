"""Functions of a client: its run's code calls them, the answer ends with the calls, and the next
request brings the results; the cell goes on in the same interpreter."""
import json
import subprocess

import pytest

from harness import repl
from server_process import DROSTE, WAIT, until
from openai_fakes import CHAT, Stream, error
from openai_fakes import models  # noqa: F401: a fixture
from test_keys import Client, create

RESPONSES = "/v1/responses"
WEATHER = {"name": "get-weather", "description": "The weather of a city.",
           "parameters": {"type": "object", "properties": {"city": {"type": "string"}},
                          "required": ["city"], "additionalProperties": False}}
TOOLS = [{"type": "function", **WEATHER}]
CHAT_TOOLS = [{"type": "function", "function": WEATHER}]
TURNS = [repl("before = 2\nsaid = functions.get_weather('Oslo')\nprint(said)"),
         repl("SUBMIT('%s after %d' % (said, before))")]
FAILS = [repl("try: functions.get_weather(3)\nexcept Exception as e: print(type(e).__name__)\n"
              "SUBMIT('no call')")]
BOTH = [repl("from concurrent.futures import ThreadPoolExecutor\n"
             "with ThreadPoolExecutor() as pool:\n"
             "    said = list(pool.map(functions.get_weather, ['Oslo', 'Rome']))\n"
             "SUBMIT(' '.join(said))")]


def ask(client, input="q", tools=TOOLS, **more):
    answer = client.ask("POST", RESPONSES,
                        {"model": "droste/turns", "input": input, "tools": tools, **more})
    assert answer.status == 200, answer.body
    return answer.json


def calls(response):
    return [item for item in response["output"] if item["type"] == "function_call"]


def results(response, *outputs):
    return [{"type": "function_call_output", "call_id": call["call_id"], "output": output}
            for call, output in zip(calls(response), outputs)]


def text(response):
    return "".join(part["text"] for item in response["output"] if item["type"] == "message"
                   for part in item["content"])


def test_a_call_ends_the_response_and_its_result_goes_on(models):  # noqa: F811
    server = models(turns=TURNS)
    one = ask(server)
    call, = calls(one)
    assert one["status"] == "completed" and one["output"][-1] == call and one["usage"] is None
    assert (call["name"], call["arguments"]) == ("get-weather", '{"city": "Oslo"}')
    two = ask(server, results(one, "rain"), previous_response_id=one["id"])
    assert text(two) == "rain after 2" and calls(two) == [] and two["usage"]["total_tokens"] > 0
    for response in (one, two):
        assert server.ask("GET", RESPONSES + "/" + response["id"]).json == response
    assert ask(server, results(one, "rain"), previous_response_id=one["id"]) == two
    assert len(server.ask("GET", "/v1/runs").json["runs"]) == 1
    ask(server, "and?", previous_response_id=two["id"])
    question = server.ask("GET", "/v1/runs").json["runs"][0]["question"]
    assert question.index("user: q") < question.index("get-weather") < question.index("tool: rain")


def test_events_of_a_stream_end_with_the_call(models):  # noqa: F811
    server = models(turns=TURNS)
    body = {"model": "droste/turns", "input": "q", "tools": TOOLS}
    events = list(Stream(server, body, path=RESPONSES))
    assert [event["type"] for event in events[-5:]] == [
        "response.output_item.added", "response.function_call_arguments.delta",
        "response.function_call_arguments.done", "response.output_item.done",
        "response.completed"]
    assert events[-5]["item"]["arguments"] == "" and events[-4]["delta"] == '{"city": "Oslo"}'
    one = events[-1]["response"]
    assert calls(one) == [events[-2]["item"]]
    assert one["tools"] == [{**TOOLS[0], "strict": None}]
    body.update(input=results(one, "rain"), previous_response_id=one["id"])
    assert text(list(Stream(server, body, path=RESPONSES))[-1]["response"]) == "rain after 2"


@pytest.mark.parametrize("parallel", [True, False])
def test_calls_of_threads_come_together_unless_the_client_wants_one(models, parallel):  # noqa: F811
    server = models(turns=BOTH)
    one = ask(server, parallel_tool_calls=parallel)
    asked, response = [], one
    while calls(response):
        asked.append([call["arguments"] for call in calls(response)])
        response = ask(server, results(response, *["fine"] * len(asked[-1])),
                       previous_response_id=response["id"], parallel_tool_calls=parallel)
    assert text(response) == "fine fine"
    assert list(map(len, asked)) == ([2] if parallel else [1, 1])


def test_a_client_that_keeps_the_conversation_itself_goes_on(models):  # noqa: F811
    """As the Agents SDK does: the whole input comes again, with calls and results; nothing is
    stored."""
    server = models(turns=TURNS)
    question = [{"role": "user", "content": "q"}]
    one = ask(server, question, store=False)
    two = ask(server, question + one["output"] + results(one, "rain"), store=False)
    assert text(two) == "rain after 2"
    assert len(server.ask("GET", "/v1/runs").json["runs"]) == 1
    history = question + one["output"] + results(one, "rain") + two["output"]
    three = ask(server, history + question, store=False)
    assert calls(three) and calls(three)[0]["call_id"] != calls(one)[0]["call_id"]


def complete(server, messages, **more):
    answer = server.ask("POST", CHAT, {"model": "droste/turns", "messages": messages,
                                       "tools": CHAT_TOOLS, **more})
    assert answer.status == 200, answer.body
    return answer.json["choices"][0]


def test_chat_completions_end_with_tool_calls(models):  # noqa: F811
    server = models(turns=TURNS)
    messages = [{"role": "user", "content": "q"}]
    one = complete(server, messages)
    call, = one["message"]["tool_calls"]
    assert one["finish_reason"] == "tool_calls" and one["message"]["content"] is None
    assert call["function"] == {"name": "get-weather", "arguments": '{"city": "Oslo"}'}
    messages += [one["message"], {"role": "tool", "tool_call_id": call["id"], "content": "rain"}]
    two = complete(server, messages)
    assert (two["finish_reason"], two["message"]["content"]) == ("stop", "rain after 2")
    assert complete(server, messages) == two
    messages += [two["message"], {"role": "user", "content": "and?"}]
    assert complete(server, messages)["message"]["tool_calls"][0]["id"] != call["id"]


def test_chunks_of_chat_completions_end_with_tool_calls(models):  # noqa: F811
    server = models(turns=TURNS)
    body = {"model": "droste/turns", "messages": [{"role": "user", "content": "q"}],
            "tools": CHAT_TOOLS, "stream_options": {"include_usage": True}}
    *chunks, call, last, usage, done = list(Stream(server, body))
    assert usage["choices"] == [] and usage["usage"]["total_tokens"] == 0
    assert call["usage"] is None and last["usage"] is None
    delta, = call["choices"][0]["delta"]["tool_calls"]
    assert delta["index"] == 0 and delta["function"]["name"] == "get-weather"
    assert last["choices"][0]["finish_reason"] == "tool_calls" and done == "[DONE]"
    body["messages"] += [{"role": "assistant", "tool_calls": [delta]},
                         {"role": "tool", "tool_call_id": delta["id"], "content": "rain"}]
    told = "".join(chunk["choices"][0]["delta"].get("content") or ""
                   for chunk in Stream(server, {**body, "stream_options": {}})
                   if chunk != "[DONE]")
    assert told == "rain after 2"


def killed(server, models):  # noqa: F811
    """Another server over the same record, after this one was killed."""
    server.process.kill()
    server.process.wait()
    return models(turns=TURNS, model=server.model)


def test_it_survives_the_server(models):  # noqa: F811
    server = models(turns=TURNS)
    one = ask(server)
    again = killed(server, models)
    assert text(ask(again, results(one, "rain"), previous_response_id=one["id"])) == "rain after 2"
    assert len(again.ask("GET", "/v1/runs").json["runs"]) == 1


def test_chat_completions_survive_the_server(models):  # noqa: F811
    """It is killed between a call and its result, whole or streamed; a repeated result after it is
    killed again has the same answer."""
    server = models(turns=TURNS)
    messages = [{"role": "user", "content": "q"}]
    one = complete(server, messages)
    body = {"model": "droste/turns", "messages": messages, "tools": CHAT_TOOLS}
    streamed = [chunk["choices"][0]["delta"].get("tool_calls") for chunk in Stream(server, body)
                if chunk != "[DONE]"]
    delta, = [call for calls in streamed for call in calls or []]
    server = killed(server, models)
    messages = messages + [one["message"], {"role": "tool", "content": "rain",
                                            "tool_call_id": one["message"]["tool_calls"][0]["id"]}]
    two = complete(server, messages)
    assert two["message"]["content"] == "rain after 2"
    body["messages"] += [{"role": "assistant", "tool_calls": [delta]},
                         {"role": "tool", "tool_call_id": delta["id"], "content": "snow"}]
    told = "".join(chunk["choices"][0]["delta"].get("content") or ""
                   for chunk in Stream(server, body) if chunk != "[DONE]")
    assert told == "snow after 2"
    assert complete(killed(server, models), messages) == two
    assert server.model.stats()["requests"] == 4


def test_a_call_of_a_function_is_no_approval(models):  # noqa: F811
    """It is not listed, described or decided as one; only its result ends it."""
    server = models(turns=TURNS)
    one = ask(server)
    number = calls(one)[0]["id"].rpartition("_")[2]
    assert server.ask("GET", "/v1/approvals").json == {"approvals": []}
    assert server.ask("GET", "/v1/approvals/" + number).status == 404
    for decision in ("approve", "deny"):
        answer = server.ask("POST", "/v1/approvals/" + number, {"decision": decision})
        assert answer.status == 404
    listed = subprocess.run(
        [DROSTE, "runs", "approvals", "--json"], capture_output=True, timeout=WAIT,
        env={"PATH": "/usr/bin:/bin", "HOME": str(server.home),
             "DROSTE_HOME": str(server.home / "data")})
    assert json.loads(listed.stdout) == [], listed
    assert text(ask(server, results(one, "rain"), previous_response_id=one["id"])) == "rain after 2"


def test_a_wrong_argument_fails_in_the_sandbox(models):  # noqa: F811
    assert text(ask(models(turns=FAILS))) == "no call"


def test_a_choice_is_asked_for_or_takes_them_away(models):  # noqa: F811
    server = models(turns=[repl("try: SUBMIT('has ' + functions.__name__)\n"
                                "except NameError: SUBMIT('none')")])
    for choice, words in [("auto", None), ("required", "at least one"),
                          ({"type": "function", "name": "get-weather"}, "functions.get_weather")]:
        assert text(ask(server, tool_choice=choice)) == "has functions"
        question = server.ask("GET", "/v1/runs").json["runs"][0]["question"]
        assert words is None or words in question
    assert text(ask(server, tool_choice="none")) == "none"


def test_mistakes_are_named(models):  # noqa: F811
    server = models(turns=TURNS)
    unknown = {"role": "tool", "tool_call_id": "call_%s_1_1" % ("0" * 32), "content": "rain"}
    body = {"model": "droste/turns", "tools": CHAT_TOOLS, "messages": [
        {"role": "user", "content": "q"}, unknown]}
    assert error(server.ask("POST", CHAT, body), 400)["code"] == "call_not_found"   # no record yet
    one = ask(server)
    result, = results(one, "rain")
    for more, status, code in [
            ({"input": [{**result, "call_id": "call_999_1"}]}, 400, "call_not_found"),
            ({"input": [{**result, "call_id": "x"}]}, 400, "call_not_found"),
            ({"input": [{**result, "output": [{"type": "input_file"}]}]}, 400,
             "unsupported_content"),
            ({"input": "q", "tools": [{"type": "function", "name": "a b"}]}, 400, "invalid_value"),
            ({"input": "q", "tools": TOOLS * 2}, 400, "invalid_value"),
            ({"input": "q", "tool_choice": "sometimes"}, 400, "invalid_value"),
            ({"input": "q", "tool_choice": {"type": "function", "name": "other"}}, 400,
             "invalid_value"),
            ({"input": "q", "tools": [{"type": "custom", "name": "x"}]}, 400,
             "unsupported_parameter")]:
        body = {"model": "droste/turns", "tools": TOOLS, "input": [result],
                "previous_response_id": None, **more}
        assert error(server.ask("POST", RESPONSES, body), status)["code"] == code, more
    two = ask(server, results(one, "rain"), previous_response_id=one["id"])
    assert text(two) == "rain after 2"
    late = {"model": "droste/turns", "tools": TOOLS, "input": results(one, "sun")}
    assert error(server.ask("POST", RESPONSES, late), 409)["code"] == "decided"


def test_only_the_key_of_the_run_answers(models, tmp_path):  # noqa: F811
    made = {name: create(tmp_path, name, "--scopes", "models") for name in ("mine", "other")}
    server = models(turns=TURNS)
    mine, other = (Client(server, made[name]) for name in ("mine", "other"))
    one = ask(mine)
    body = {"model": "droste/turns", "tools": TOOLS, "input": results(one, "rain")}
    assert error(other.ask("POST", RESPONSES, body), 400)["code"] == "call_not_found"
    assert text(ask(mine, results(one, "rain"))) == "rain after 2"


def test_a_run_that_waits_too_long_gives_its_sandbox_back_and_goes_on(models):  # noqa: F811
    server = models("--detach", "0.05", turns=TURNS)
    one = ask(server)
    until(lambda: server.ask("GET", "/v1/runs").json["runs"][0]["status"] == "interrupted")
    assert text(ask(server, results(one, "rain"))) == "rain after 2"
    assert len(server.ask("GET", "/v1/runs").json["runs"]) == 1
