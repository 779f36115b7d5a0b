"""Chat completions: answered with a run, or by the model's provider, and what is refused."""
import base64
import http.client
import json
import signal
import socket
import subprocess

import pytest

from server_process import DROSTE, WAIT, until
from harness import repl
from openai_fakes import CHAT, HANGING, KEY, Stream, ask, content, error
from openai_fakes import models, server  # noqa: F401: fixtures
from test_keys import Client, create


def runs(server):
    return server.ask("GET", "/v1/runs").json["runs"]


def attached(data, name="notes.txt"):
    return {"type": "file", "file": {"filename": name, "file_data":
            "data:application/octet-stream;base64," + base64.b64encode(data).decode()}}


# ---- models ----

def test_models_are_those_of_the_operator(server):
    """Each by its name, as itself and as a run; those of a whole provider are not listed."""
    listed = server.ask("GET", "/v1/models").json
    names = [one["id"] for one in listed["data"]]
    assert listed["object"] == "list" and names[:4] == ["droste/turns", "turns", "droste/rl", "rl"]
    assert not [name for name in names if "*" in name]
    for name in ("turns", "droste/rl", "openai/gpt-5", "droste/openai/gpt-5"):
        one = server.ask("GET", "/v1/models/" + name).json
        assert (one["id"], one["object"]) == (name, "model")
    for name in ("gpt-5", "droste/gpt-5", "openai/", "exec:sh", "droste/exec:sh", "replay:/x"):
        assert error(server.ask("GET", "/v1/models/" + name), 404)["code"] == "model_not_found"
        answer = server.ask("POST", CHAT, ask("hi", model=name))
        assert error(answer, 404)["param"] == "model"


@pytest.mark.parametrize("names,fine", [
    ("turns,fast=turns", True), ("openai/*", True), ("", True), ("*", False), ("a=b/*", False),
    ("=turns", False), ("fast=", False), ("turns,,ok", False),
    pytest.param("x" * 300, False, id="long")])
def test_a_list_of_models_is_checked(tmp_path, names, fine):
    """Also without a server (`--check`)."""
    done = subprocess.run([DROSTE, "serve", "--check", "--listen", "127.0.0.1:0",
                           "--models", names], capture_output=True, text=True, timeout=WAIT,
                          env={"PATH": "/usr/bin:/bin", "DROSTE_HOME": str(tmp_path)})
    assert (done.returncode == 0) == fine, done.stderr
    assert fine or "NAME=MODEL" in done.stderr


# ---- runs ----

def test_a_run_answers_and_is_recorded(server):
    """Its usage is that of all calls of the tree, and the run is one of the native interface."""
    answer = server.ask("POST", CHAT, ask("how long?", context="x" * 70))
    assert content(answer) == "answer 70"
    usage, run = answer.json["usage"], answer.headers["X-Droste-Run"]
    tokens = server.model.stats()["tokens"].values()
    assert len(tokens) == 3
    assert usage["prompt_tokens"] == sum(prompted for prompted, _ in tokens)
    assert usage["completion_tokens"] == sum(received for _, received in tokens)
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    one = server.ask("GET", "/v1/runs/" + run).json
    assert (one["status"], one["answer"]) == ("answered", "answer 70")
    figures = server.ask("GET", "/metrics").body.decode()
    assert 'droste_key_input_tokens_total{key="local"} %d' % usage["prompt_tokens"] in figures
    assert 'droste_key_output_tokens_total{key="local"} %d' % usage["completion_tokens"] in figures


def test_steps_stream_as_reasoning(server):
    """One id; the role first, then what the model and its code said, the answer, and the end."""
    events = list(Stream(server, ask("q", context="abc",
                                     stream_options={"include_usage": True})))
    assert events.pop() == "[DONE]"
    assert len({event["id"] for event in events}) == 1
    usage = events.pop()
    assert usage["choices"] == [] and usage["usage"]["total_tokens"] > 0
    assert all(event["usage"] is None for event in events)
    deltas = [event["choices"][0]["delta"] for event in events]
    assert deltas[0] == {"role": "assistant"} and deltas[-1] == {}
    assert events[-1]["choices"][0]["finish_reason"] == "stop"
    reasoning = "".join(delta.get("reasoning_content", "") for delta in deltas)
    assert "llm_query('x')" in reasoning and "Output:\nlength 3\n" in reasoning
    assert "".join(delta.get("content", "") for delta in deltas) == "answer 3"
    silent = list(Stream(server, ask("q", context="abc")))
    assert silent[-1] == "[DONE]" and not [e for e in silent[:-1] if "usage" in e]


SHOW = [repl("import json\nSUBMIT(json.dumps([type(context).__name__, "
             "context if len(context) < 9 else len(context)]))")]


@pytest.mark.parametrize("body,seen", [
    (ask("q", context=["a", "b"]), ["list", ["a", "b"]]),
    (ask("q", context="text"), ["str", "text"]),
    (ask([{"type": "text", "text": "q"}, attached("né".encode())]), ["str", "né"]),
    (ask([{"type": "text", "text": "q"}, attached(b"\xff\x00\x01" * 5)]), ["bytes", 15]),
    (ask([{"type": "text", "text": "q"}, attached(b"one"), attached(b"\xff"), attached(b"2", "b")]),
     ["dict", {"notes.txt": "one", "notes.txt (2)": {"base64": "/w=="}, "b": "2"}]),
    (ask("Which? " + "long " * 2000), ["str", 10007]),
    (ask("q", context="c" * 9), ["str", 9]),
])
def test_what_becomes_the_context(models, body, seen):
    """Attached files, `context`, and texts above the threshold; several of them are a dict."""
    server = models(turns=SHOW)
    assert json.loads(content(server.ask("POST", CHAT, body))) == seen


def test_earlier_messages_are_the_conversation(models):
    """Before the question if they are short, otherwise in the context."""
    server = models(turns=SHOW)
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "first"},
                {"role": "assistant", "content": "reply"}, {"role": "user", "content": "second"}]
    server.ask("POST", CHAT, {"model": "droste/turns", "messages": messages})
    question = runs(server)[0]["question"]
    for part in ("Instructions:\n\nBe brief.", "user: first", "assistant: reply", "second"):
        assert part in question
    messages[1]["content"] = "first " * 2000
    answer = server.ask("POST", CHAT, {"model": "droste/turns", "messages": messages})
    assert json.loads(content(answer)) == [
        "list", [{"role": "user", "content": "first " * 2000},
                 {"role": "assistant", "content": "reply"}]]
    question = runs(server)[0]["question"]
    assert "2 messages" in question and "first first" not in question and "second" in question


def test_a_small_window_reads_a_large_attachment(models, serve):
    """20 MB attached, a model that takes 8,000 tokens: its code counts what it cannot read."""
    model = serve(turns=[repl("print(len(context), context[:20])"),
                         repl("SUBMIT(str(context.count('needle')))")], key=KEY, window=8000)
    server = models(model=model)
    data = (b"needle " + b"hay " * 2498 + b"\n") * 2000
    assert len(data) == 20_000_000
    answer = server.ask("POST", CHAT, ask([{"type": "text", "text": "How many needles?"},
                                           attached(data)]))
    assert content(answer) == "2000"
    tokens = model.stats()["tokens"].values()
    assert max(prompted for prompted, _ in tokens) < 8000
    assert answer.json["usage"]["prompt_tokens"] == sum(prompted for prompted, _ in tokens)
    # The fake is no kinder than a real one: the same text as a message is refused.
    passed = server.ask("POST", CHAT, ask(data.decode()[:100000], model="ok"))
    assert error(passed, 400)["code"] == "context_length_exceeded"


def test_a_schema_is_that_of_the_answer(models):
    """An answer that does not fit goes back to the model."""
    server = models(turns=[repl("SUBMIT(n='one')"), repl("SUBMIT(n=1)")])
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    body = ask("q", response_format={"type": "json_schema",
                                     "json_schema": {"name": "x", "schema": schema}})
    assert json.loads(content(server.ask("POST", CHAT, body))) == {"n": 1}
    body = ask("q", response_format={"type": "grammar"})
    assert error(server.ask("POST", CHAT, body), 400)["param"] == "response_format"


# ---- tries ----

def test_a_retry_joins_the_run(models):
    """A client that gave up and asks again waits for the same run, also by an Idempotency-Key;
    the same question asked anew is another run."""
    server = models("--detach", "1h", turns=HANGING)
    first = Stream(server, ask("q"))
    until(lambda: server.model.stats()["models"].get("digest") == 1)
    first.close()
    again = Stream(server, ask("q"), {"X-Stainless-Retry-Count": "1"})
    assert again.headers["X-Droste-Run"] == first.headers["X-Droste-Run"]
    anew = Stream(server, ask("q"), {"X-Stainless-Retry-Count": "0"})
    assert anew.headers["X-Droste-Run"] != first.headers["X-Droste-Run"]
    keyed = [Stream(server, ask("q"), {"Idempotency-Key": "k"}).headers["X-Droste-Run"]
             for _ in range(2)]
    assert keyed[0] == keyed[1] and len(runs(server)) == 3
    assert server.ask("POST", "/v1/runs/%s/cancel" % keyed[0]).status == 204
    ended = server.ask("POST", CHAT, {**ask("q"), "stream": True}, {"Idempotency-Key": "k"})
    assert "run_cancelled" in ended.body.decode() and "[DONE]" not in ended.body.decode()


def test_a_try_after_the_server_died_resumes(models):
    """No answered call is paid for again."""
    server = models("--detach", "1h", turns=HANGING)
    headers = {"X-Stainless-Retry-Count": "0"}
    first = Stream(server, ask("q"), headers)
    until(lambda: server.model.stats()["models"].get("digest") == 1)
    server.process.send_signal(signal.SIGKILL)
    first.close()
    server.process.wait(WAIT)
    server = models(model=server.model)
    answer = server.ask("POST", CHAT, ask("q", stream=True), {"X-Stainless-Retry-Count": "1"})
    assert answer.status == 200 and '"content":"late"' in answer.body.decode()
    assert answer.headers["X-Droste-Run"] == first.headers["X-Droste-Run"]
    assert server.model.stats()["models"] == {"turns": 2, "digest": 2}


def test_a_run_ends_some_time_after_its_client(models):
    """Unless the client, or its next try, waits; runs of the native interface go on."""
    server = models("--detach", "0.5", turns=HANGING)
    first = Stream(server, ask("q"))
    native = server.ask("POST", "/v1/runs", {"question": "q"}).json["run"]
    stays = Stream(server, ask("other"))
    run = first.headers["X-Droste-Run"]
    first.close()
    until(lambda: server.ask("GET", "/v1/runs/" + run).json["status"] == "cancelled")
    for other in (native, stays.headers["X-Droste-Run"]):
        assert server.ask("GET", "/v1/runs/" + other).json["status"] == "running"


def test_runs_without_an_answer_are_errors_that_are_not_retried(models):
    """A run that fails would fail again, three times as dear."""
    server = models("--max-iterations", "1", turns=[repl("1"), repl("2")])
    answer = server.ask("POST", CHAT, ask("q"))
    assert error(answer, 500)["code"] in ("run_exhausted", "run_failed")
    assert answer.headers["x-should-retry"] == "false"
    events = list(Stream(server, ask("q")))
    assert events[-1]["error"]["type"] == "server_error" and "[DONE]" not in events


# ---- other models ----

def test_a_provider_answers_itself(server):
    """What is asked and what is answered pass as they are, but for the model's name; so does the
    client's trace, if it is one."""
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
    body = ask("héllo", model="openai/echo", tools=tools, temperature=0.25, seed=12345678901234567)
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    for field in (trace, trace[1:]):
        answer = server.ask("POST", CHAT, body, {"traceparent": field})
        assert content(answer) == "5:héllo"
        last = server.model.stats()["last"]
        assert last["body"] == {**body, "model": "echo"}
        assert last["headers"].get("traceparent") == (trace if field == trace else None)
    called = server.ask("POST", CHAT, ask("x", model="tool-calls", tools=tools))
    assert called.json["choices"][0]["message"]["tool_calls"]
    used = server.ask("GET", "/metrics").body.decode()
    assert 'droste_key_output_tokens_total{key="local"} 0' not in used


def test_a_key_with_a_limit_of_cost_has_models_with_a_price(models, tmp_path):
    """What a request costs could not be counted otherwise; another key may ask any model."""
    prices = tmp_path / "prices"
    prices.write_text("openai/echo 1 1\n")
    keys = [create(tmp_path, name, "--scopes", "read,models", *limit) for name, limit in
            (("rich", ()), ("spender", ("--limit", "cost=1000")))]
    server = models("--prices", str(prices), names="openai/*")
    rich, spender = (Client(server, key) for key in keys)
    for client in (rich, spender):
        assert content(client.ask("POST", CHAT, ask("x", model="openai/echo"))) == "1:x"
    assert content(rich.ask("POST", CHAT, ask("x", model="openai/ok")))
    refused = spender.ask("POST", CHAT, ask("x", model="openai/ok"))
    assert error(refused, 403)["code"] == "cost" and "--prices" in refused.json["error"]["message"]
    assert refused.headers["x-should-retry"] == "false"


def test_a_stream_of_a_provider(server):
    """Event by event; the usage, which is always counted, only if the client asks for it."""
    for options in ({}, {"stream_options": {"include_usage": True}}):
        events = list(Stream(server, ask("hi", model="ok", **options)))
        text = "".join(e["choices"][0]["delta"].get("content") or "" for e in events[:-1]
                       if e["choices"])
        assert text == "The answer is ⟨42⟩." and events[-1] == "[DONE]"
        assert any(not e["choices"] for e in events[:-1]) == bool(options)
    figures = server.ask("GET", "/metrics").body.decode()
    assert 'droste_key_output_tokens_total{key="local"} 8\n' in figures


@pytest.mark.parametrize("model", ["leak", "auth"])
def test_the_provider_s_key_stays_here(server, model):
    """Not in answers, in pieces of streams, or in refusals that repeat it."""
    whole = server.ask("POST", CHAT, ask("hi", model=model))
    with pytest.raises(http.client.IncompleteRead) if model == "leak" else open("/dev/null"):
        parts = server.ask("POST", CHAT, ask("hi", model=model, stream=True))
        assert error(parts, 502)["code"] == "provider_refused"
    stream = Stream(server, ask("hi", model=model))
    try:
        body = stream.response.read()
    except http.client.IncompleteRead as cut:
        body = cut.partial
    for text in (whole.body.decode(), body.decode()):
        assert KEY not in text and KEY[:10] not in text
    if model == "auth":
        assert error(whole, 502)["code"] == "provider_refused"


@pytest.mark.parametrize("model", ["stream-cut", "stream-end"])
def test_a_stream_that_breaks_off_is_seen(server, model):
    """An error in the stream, and no end of it."""
    stream = Stream(server, ask("hi", model=model))
    with pytest.raises(http.client.IncompleteRead) as cut:
        stream.response.read()
    events = cut.value.partial.decode()
    last = json.loads(events.strip().rpartition("\n\ndata: ")[2])
    assert "half an" in events and "[DONE]" not in events
    assert set(last["error"]) == {"message", "type", "param", "code"}


def test_a_provider_waits_for_a_slow_client(models):
    """Nothing is read for a client that does not read: what is held is bounded."""
    server = models(names="openai/*")
    body = json.dumps(ask("hi", model="openai/big-16000000", stream=True)).encode()
    with socket.socket() as client:
        client.settimeout(WAIT)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        client.connect(("127.0.0.1", server.port))
        client.sendall(b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s"
                       % (CHAT.encode(), len(body), body))
        assert client.recv(100).startswith(b"HTTP/1.1 200")
        seen = [0]
        # It grows by what is asked here alone.
        until(lambda: seen.append(sent(server)) or seen[-1] - seen[-2] < 20000)
        assert seen[-1] < 8_000_000
        total = 0
        while piece := client.recv(1 << 20):
            total += len(piece)
            if b"[DONE]" in piece:
                break
        assert total > 16_000_000


def sent(server):
    figures = server.ask("GET", "/metrics").body.decode()
    return int(figures.partition("\ndroste_sent_bytes_total ")[2].split()[0])


def test_a_client_that_leaves_ends_its_request(server):
    """The provider's answer is not wanted any more."""
    for model in ("hang", "stall"):
        before = server.model.stats()["cancelled"]
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=WAIT)
        connection.request("POST", CHAT, json.dumps(ask("hi", model=model, stream=True)))
        until(lambda: server.model.stats()["models"].get(model))
        connection.close()
        until(lambda: server.model.stats()["cancelled"] > before)


# ---- what is refused ----

@pytest.mark.parametrize("body,status,code,param", [
    ("{", 400, "json", None),
    ({"model": "droste/turns"}, 400, "schema", None),
    ({"model": "droste/turns", "messages": []}, 400, "schema", None),
    ({"model": 1, "messages": [{"role": "user"}]}, 400, "schema", None),
    ({"model": "droste/turns", "messages": [{"role": "system", "content": "x"}]}, 400,
     "no_question", "messages"),
    (ask(""), 400, "empty_question", "messages"),
    (ask([{"type": "image_url", "image_url": {"url": "http://x"}}]), 400, "invalid_image_url",
     "messages"),
    (ask([{"type": "file", "file": {"file_data": "data:x,abc"}}]), 400, "invalid_file_data",
     "messages"),
    (ask([{"type": "file", "file": {"file_data": "@@@"}}]), 400, "invalid_file_data", "messages"),
    (ask([{"type": "file", "file": {}}]), 400, "invalid_file", "messages"),
    (ask("a\0b"), 400, "invalid_text", "messages"),
    (ask("q", tools=[{"type": "function"}]), 400, "invalid_value", "tools"),
    (ask("q", tools=[{"type": "custom"}]), 400, "unsupported_parameter", "tools"),
    (ask("q", n=2), 400, "unsupported_parameter", "n"),
    (ask("q", logprobs=True), 400, "unsupported_parameter", "logprobs"),
])
def test_bad_input(server, body, status, code, param):
    found = error(server.ask("POST", CHAT, body), status)
    assert (found["type"], found["code"], found["param"]) == ("invalid_request_error", code, param)
    assert not runs(server) and server.model.stats()["requests"] == 0


def test_what_is_not_supported_says_so(server):
    """In OpenAI's form; paths that are not OpenAI's keep the native form."""
    for method, path in (("POST", "/v1/embeddings"), ("POST", "/v1/images/generations"),
                         ("GET", "/v1/chat/completions/x"), ("POST", "/v1/completions")):
        found = error(server.ask(method, path, {}), 404)
        assert found["code"] == "unknown_url" and "does not support" in found["message"]
    assert error(server.ask("DELETE", CHAT), 405)["code"] == "method"
    assert set(server.ask("GET", "/v1/nothing").json["error"]) == {"code", "message"}


def test_other_protocols_of_providers(models):
    """A provider that does not speak OpenAI's protocol is only reached by runs."""
    server = models(names="anthropic/claude-x")
    found = error(server.ask("POST", CHAT, ask("q", model="claude-x")), 400)
    assert found["code"] == "unsupported_model" and "droste/" in found["message"]


def test_keys_need_the_scope(models):
    """`models`, as Bearer; each key has its own runs and its own figures."""
    made = {name: create(models.home, name, "--scopes", name) for name in ("models", "sandboxes")}
    other = create(models.home, "other", "--scopes", "models,runs")
    server = models("--keys", str(models.home / "data" / "keys.json"))
    found = error(server.ask("POST", CHAT, ask("q")), 401)
    assert found["code"] == "invalid_api_key"
    bearer = {"Authorization": "Bearer " + made["sandboxes"]}
    found = error(server.ask("POST", CHAT, ask("q"), bearer), 403)
    assert (found["type"], found["code"]) == ("permission_error", "insufficient_permissions")
    bearer = {"Authorization": "Bearer " + made["models"], "Idempotency-Key": "k"}
    first = server.ask("POST", CHAT, ask("q", context="x"), bearer)
    assert content(first) == "answer 1"
    theirs = server.ask("POST", CHAT, ask("q", context="x"),
                        {"Authorization": "Bearer " + other, "Idempotency-Key": "k"})
    assert theirs.headers["X-Droste-Run"] != first.headers["X-Droste-Run"]
    mine = Client(server, other)
    assert mine.ask("GET", "/v1/runs/" + theirs.headers["X-Droste-Run"]).status == 200
    assert mine.ask("GET", "/v1/runs/" + first.headers["X-Droste-Run"]).status == 404
