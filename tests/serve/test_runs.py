"""Runs of models over HTTP: what a client may ask for, what it sees, and what survives a server."""
import http.client
import json
import os
import signal
import sqlite3

import pytest

from server_process import WAIT, Server, until
from harness import repl
from lives import VERSION_13
from test_keys import Client, create

# Turns with calls of code; what one finds the next needs.
TURNS = [repl("a = llm_query_batched(['a%d' % i for i in range(4)])\nprint(len(context), a[0])"),
         repl("b = llm_query('b after %s' % a[0])\nprint(b)"), repl("SUBMIT([len(context), a, b])")]
# The code's call gets no answer when its idempotency key comes for the first time.
HANGING = [repl("a = llm_query('hang')"), repl("SUBMIT(a)")]


class Models:
    """Servers of runs whose model is a fake: models(turns, flags…)."""

    def __init__(self, home, serve):
        self.home, self.serve, self.running = home, serve, []

    def __call__(self, turns, *flags, model=None, home=None, env=None):
        model = model or self.serve(turns=turns)
        self.running.append(Server(home or self.home, "--model", "turns", "--sub-model", "digest",
                                   "--base-url", model.url, "--drain", "1", *flags,
                                   env={"OPENAI_API_KEY": "k", **(env or {})}))
        self.running[-1].model = model
        return self.running[-1]


@pytest.fixture
def models(tmp_path, serve):
    made = Models(tmp_path, serve)
    yield made
    for server in made.running:
        server.stop()


class Events:
    """An event stream, event by event: (number, name, data)."""

    def __init__(self, server, run, last=None, headers=None):
        self.connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=WAIT)
        headers = {**(headers or {}), **({"Last-Event-ID": str(last)} if last is not None else {})}
        self.connection.request("GET", run + "/events", headers=headers)
        self.response = self.connection.getresponse()
        assert self.response.status == 200, self.response.read()
        assert self.response.headers["Content-Type"] == "text/event-stream"

    def __iter__(self):
        fields = {}
        for line in self.response:
            name, _, value = line.decode().rstrip("\n").partition(": ")
            if name:
                fields[name] = value
                continue
            yield int(fields.get("id", 0)), fields["event"], json.loads(fields["data"])
            fields = {}

    def close(self):
        self.response.close()
        self.connection.close()


def ask(client, question="q", headers=None, **body):
    """Starts a run; its path."""
    answer = client.ask("POST", "/v1/runs", {"question": question, **body}, headers)
    assert answer.status == 201, answer.body
    path = "/v1/runs/" + answer.json["run"]
    assert answer.headers["Location"] == path
    return path


def ended(client, run):
    """Follows a run to its end; what the server then says of it."""
    assert client.ask("GET", run + "/events").status == 200    # its place is free afterwards
    return client.ask("GET", run).json


def steps(events):
    return [(kind, data.get("status")) for _, kind, data in events]


def test_a_run_is_followed_to_its_answer(models):
    """From its beginning, live or afterwards: the same events, whose numbers increase. Any event
    may be the last one that a client has seen; the stream then goes on behind it."""
    server = models(TURNS)
    run = ask(server, context="needle " * 10)
    live = list(Events(server, run))
    one = server.ask("GET", run).json
    assert (one["status"], one["question"]) == ("answered", "q")
    assert one["answer"][0] == 70 and len(one["answer"][1]) == 4
    numbers = [number for number, _, _ in live]
    assert numbers == sorted(set(numbers)) and numbers[0] > 0
    assert live[0][1] == "run" and live[-1][1] == "end"
    assert sum(kind == "call" and data["status"] == "ok" for _, kind, data in live) == 8
    later = list(Events(server, run))
    assert later == live
    for index in range(len(live)):
        assert list(Events(server, run, last=numbers[index])) == live[index + 1:]
    assert server.ask("DELETE", run).status == 204
    assert server.ask("GET", run).status == 404 and server.ask("DELETE", run).status == 404


def test_a_context_of_json_is_a_value(models):
    """A text is a text."""
    server = models([repl("SUBMIT([type(context).__name__, len(context)])")])
    for context, expected in ([{"a": 1, "b": [2]}, ["dict", 2]], [[1, 2, 3], ["list", 3]],
                              ["two", ["str", 3]], ["", ["str", 0]]):
        assert ended(server, ask(server, context=context))["answer"] == expected


def test_a_key_spends_so_much_a_day(models, tmp_path):
    """What runs have cost is missing in the next one's limit, also when the server starts again;
    what a run may still cost is held for it, and refused to others."""
    prices = tmp_path / "prices"
    prices.write_text("* 1000 1000\n")   # dollars for a million tokens
    keys = [create(tmp_path, name, "--scopes", "read,runs", *limit) for name, limit in
            (("rich", ()), ("spender", ("--limit", "cost=1000")))]
    flags = ("--prices", str(prices), "--max-cost", "5000")
    server = models(HANGING, *flags)
    rich, spender = (Client(server, key) for key in keys)

    def most(client, run):
        return client.ask("GET", run).json["limits"]["cost"]
    hanging = ask(spender)
    assert most(spender, hanging) == 1000
    answer = spender.ask("POST", "/v1/runs", {"question": "q"})
    assert (answer.status, answer.code) == (429, "cost")
    assert 0 < int(answer.headers["Retry-After"]) <= 86400
    assert most(rich, ask(rich)) == 5000   # a key without a limit, at the same time
    until(lambda: server.model.stats()["models"].get("digest") == 2)    # both have spent something
    assert spender.ask("POST", hanging + "/cancel").status == 204
    cost = ended(spender, hanging)["usage"]["cost"]
    assert cost > 0
    both = [ask(spender, options={"max-cost": 300}) for _ in range(2)]
    assert [most(spender, run) for run in both] == [300, 300]
    last = ask(spender, options={"max-cost": 900})
    assert most(spender, last) == pytest.approx(400 - cost, abs=1e-5)
    for run in (*both, last):
        spender.ask("POST", run + "/cancel")
    spent = cost + sum(ended(spender, run)["usage"]["cost"] or 0 for run in (*both, last))
    server.stop()
    again = Client(models([repl("SUBMIT(1)")], *flags), keys[1])
    assert most(again, ask(again)) == pytest.approx(1000 - spent, abs=1e-5)


def spans_in(file):
    """Those of each line, a list of lists; a line that is being written is left out."""
    return [json.loads(line)["resourceSpans"][0]["scopeSpans"][0]["spans"]
            for line in file.read_text().splitlines(keepends=True) if line.endswith("\n")]


def named(file, name, count=1):
    """The spans of this name, in the order of their beginning. A worker writes that of a request
    after its answer, when the client's next request may be another worker's already."""
    def found():
        return [span for spans in spans_in(file) for span in spans if span["name"] == name]
    until(lambda: len(found()) >= count)
    return sorted(found(), key=lambda span: int(span["startTimeUnixNano"]))


def attributes(span):
    return {one["key"]: one["value"].get("stringValue") or one["value"].get("intValue")
            for one in span["attributes"]}


def test_runs_are_traced(models, tmp_path):
    """--traces gets a span for each request, and a line of spans for each run that ended, in the
    trace of the client's request, which the model's server sees, too. What is not a trace is
    ignored, so that the request begins one."""
    file = tmp_path / "traces.jsonl"
    server = models(TURNS, "--traces", str(file))
    trace = "0af7651916cd43dd8448eb211c80319c"
    parent = "00-%s-b7ad6b7169203331-01" % trace
    ended(server, ask(server, context="needle", headers={"traceparent": parent}))
    assert server.model.stats()["last"]["headers"]["traceparent"][3:35] == trace
    ended(server, ask(server, context="needle", headers={"traceparent": parent[:-1]}))
    runs, requests = named(file, "invoke_agent droste", 2), named(file, "POST /v1/runs", 2)
    assert requests[0]["parentSpanId"] == parent[36:52] and "parentSpanId" not in requests[1]
    assert [span["traceId"] for span in runs] == [span["traceId"] for span in requests]
    assert [span["parentSpanId"] for span in runs] == [span["spanId"] for span in requests]
    assert [span["traceId"] == trace for span in runs] == [True, False]
    assert server.model.stats()["last"]["headers"]["traceparent"][3:35] == runs[1]["traceId"]
    lines = [len(spans) for spans in spans_in(file) if len(spans) > 1]
    assert len(lines) == 2 and lines[0] == lines[1]
    assert file.stat().st_mode & 0o777 == 0o600


def test_requests_cells_and_commands_are_spans(models, tmp_path):
    """Cells and commands are below their request, whichever worker has the sandbox, and a cell's
    calls of models below the cell, whoever began the trace. What a client does not record, nobody
    does, and no span has code or paths."""
    file = tmp_path / "traces.jsonl"
    server = models(TURNS, "--traces", str(file), "--workers", "2")
    trace = "0af7651916cd43dd8448eb211c80319c"
    field = {"traceparent": "00-%s-b7ad6b7169203331-01" % trace}
    code = {"code": "secret = 'hidden'\nllm_query('is it?')"}
    path = "/v1/sandboxes/" + server.ask("POST", "/v1/sandboxes", {}).json["id"]

    def asked(headers):
        assert server.ask("POST", path + "/execute", code, headers).json["status"] == "ok"
        return server.model.stats()["last"]["headers"].get("traceparent")
    seen = [asked(field), asked({})]
    server.ask("GET", path + "/files?path=/tmp/hidden", None, field)
    unsampled = asked({"traceparent": field["traceparent"][:-1] + "0"})
    server.ask("GET", "/health", None, field)
    server.ask("POST", path + "/commands", {"command": ["/bin/sh", "-c", ": hidden; exit 3"],
                                            "stream": True}, field)
    server.ask("POST", path + "/commands", {"command": "sleep 1000"}, field)
    server.ask("POST", path + "/execute", {"code": "1/0"})
    server.ask("DELETE", path)
    requests = named(file, "POST /v1/sandboxes/{id}/execute", 3)
    cells = named(file, "execute_tool python", 3)
    assert [span["traceId"] == trace for span in requests] == [True, False, False]
    assert [span["parentSpanId"] for span in cells] == [span["spanId"] for span in requests]
    assert [one[3:52] for one in seen] == [
        "%s-%s" % (span["traceId"], span["spanId"]) for span in cells[:2]]
    assert unsampled == field["traceparent"][:-1] + "0"
    assert {attributes(span)["droste.sandbox.id"]
            for span in cells + requests} == {path.rpartition("/")[2]}
    assert attributes(cells[0])["gen_ai.operation.name"] == "execute_tool"
    assert [attributes(span).get("error.type") for span in cells] == [None, None, "error"]
    assert all(int(span["endTimeUnixNano"]) >= int(span["startTimeUnixNano"])
               for span in requests + cells)
    codes = {attributes(span).get("process.exit.code"): span for span in named(file, "sh", 2)}
    assert set(codes) == {"3", None}    # one was left behind
    assert codes["3"]["traceId"] == trace and codes["3"]["status"] == {"code": 2}
    assert {span["parentSpanId"] for span in codes.values()} == {
        span["spanId"] for span in named(file, "POST /v1/sandboxes/{id}/commands", 2)}
    missing = named(file, "GET /v1/sandboxes/{id}/files")[0]
    assert attributes(missing)["http.response.status_code"] == "404"
    assert attributes(named(file, "POST /v1/sandboxes")[0])["droste.created"] == path
    assert named(file, "DELETE /v1/sandboxes/{id}")
    assert "hidden" not in file.read_text() and "GET /health" not in file.read_text()


def test_a_killed_server_leaves_runs_that_can_be_resumed(models):
    """`kill -9` while the model is asked: the run is interrupted, and its followers see that. A
    client that goes on behind its last event loses nothing and sees nothing twice, and no call
    whose answer was recorded is paid for again; also if the killed server was of an older version,
    whose record is changed when it is opened."""
    server = models(HANGING)
    model = server.model
    run = ask(server)
    events, seen = Events(server, run), []
    for event in events:
        seen.append(event)
        if event[1] == "call" and event[2]["kind"] == "sub":
            break    # it has begun
    until(lambda: model.stats()["requests"] == 2)
    server.process.send_signal(signal.SIGKILL)
    events.close()
    server.process.wait(WAIT)
    record = sqlite3.connect(os.path.join(server.home, "data", "runs.db"))
    record.executescript(VERSION_13)
    record.close()
    server = models(HANGING, model=model)
    assert server.ask("GET", run).json["status"] == "interrupted"
    assert list(Events(server, run, last=seen[-1][0])) == [(0, "interrupted", {})]
    answer = server.ask("POST", run + "/resume")
    assert (answer.status, answer.json["status"]) == (200, "running")
    rest = list(Events(server, run, last=seen[-1][0]))
    numbers = [number for number, _, _ in seen + rest]
    assert numbers == sorted(set(numbers))
    assert list(Events(server, run)) == seen + rest
    assert server.ask("GET", run).json["status"] == "answered"
    repeated = [count for count in model.stats()["idempotency"].values() if count > 1]
    assert repeated == [2]    # only what was in flight
    again = server.ask("POST", run + "/resume")
    assert (again.status, again.code) == (409, "not_interrupted")


def test_the_end_of_a_server_suspends_its_runs(models):
    """After the drain, whose time a run may use to end."""
    server = models(HANGING)
    run = ask(server)
    until(lambda: server.model.stats()["requests"] == 2)
    assert server.stop() == 0
    server = models(HANGING, model=server.model)
    assert server.ask("GET", run).json["status"] == "interrupted"
    assert server.ask("POST", run + "/resume").status == 200
    assert ended(server, run)["status"] == "answered"


def test_a_run_is_cancelled(models):
    """Once: afterwards there is nothing to cancel. While it runs it cannot be deleted."""
    server = models(HANGING)
    run = ask(server)
    until(lambda: server.model.stats()["requests"] == 2)
    assert server.ask("DELETE", run).code == "busy"
    assert server.ask("POST", run + "/resume").code == "not_interrupted"
    assert server.ask("POST", run + "/cancel").status == 204
    assert [kind for _, kind, _ in Events(server, run)][-1] == "end"
    assert server.ask("GET", run).json["status"] == "cancelled"
    assert server.ask("POST", run + "/cancel").code == "not_active"


def test_lists_have_pages_and_filters(models):
    """Newest first; `next` leads to the end."""
    server = models([repl("SUBMIT(1)")])
    made = [ask(server, "question %d" % i).rpartition("/")[2] for i in range(5)]
    for run in made:
        ended(server, "/v1/runs/" + run)
    found, before = [], 0
    while before is not None:
        page = server.ask("GET", "/v1/runs?limit=2&before=%d" % before).json
        assert len(page["runs"]) <= 2
        found += [run["run"] for run in page["runs"]]
        before = page["next"]
    assert found == made[::-1]
    for query, count in (("status=answered", 5), ("status=error", 0), ("model=turns", 5),
                         ("model=other", 0)):
        assert len(server.ask("GET", "/v1/runs?" + query).json["runs"]) == count
    for query in ("limit=0", "limit=1001", "limit=x", "before=-1", "limit=" + "9" * 30):
        assert server.ask("GET", "/v1/runs?" + query).status == 400


REFUSED = [("model", "replay:/etc/passwd"), ("model", "exec:/bin/true"), ("model", "callback"),
           ("model", "callback:x"), ("sub-model", "exec:x"), ("depth-model", "1=exec:/bin/true"),
           ("depth-model", ["1=turns", "2=replay:x"]), ("instructions", "@/etc/passwd"),
           ("system-prompt", "@/etc/passwd"), ("answer-schema", "/etc/passwd"),
           ("select", "callback"), ("artifacts", "*"), ("repo-url", "file:///tmp"),
           ("context-path", "/etc"), ("api-key", "k"), ("base-url", "http://127.0.0.1:1"),
           ("memory", "1G"), ("database", "/tmp/x"), ("env", "docker"), ("tool", "a=/bin/true"),
           ("nothing", 1), ("ask-webhook", "https://example.com/"),
           ("max-iterations", {"a": 1}), ("max-iterations", None),
           ("max-iterations", "many"), ("instructions", "a\0b"),
           ("max-cost", 2.5), ("max-cost", 0), ("max-cost", "nan"), ("max-iterations", 6),
           ("max-recursion-depth", 1), ("sub-max-tokens", 101), ("timeout", "2h")]
TAKEN = {"model": "openai/turns", "depth-model": ["1=digest"], "instructions": "be brief",
         "answer-schema": {"type": "integer"}, "max-iterations": 5, "max-cost": 2,
         "max-recursion-depth": 0, "sub-max-tokens": 100, "timeout": "1h", "sampling":
         ["temperature=0.5", "seed=1"], "select": "vote", "max-llm-calls": 7}


def test_options(models, tmp_path):
    """Nothing that names a file, a program, a key or a directory of the server is an option of its
    clients, and what the operator has set is the most."""
    prices = tmp_path / "prices"
    prices.write_text("turns 1 1\ndigest 1 1\n")
    server = models([repl("SUBMIT(1)")], "--prices", str(prices), "--max-cost", "2",
                    "--max-iterations", "5",
                    "--max-recursion-depth", "0", "--max-tokens", "100", "--timeout", "1h")
    for name, value in REFUSED:
        answer = server.ask("POST", "/v1/runs", {"question": "q", "options": {name: value}})
        assert answer.status == 400, (name, value)
        assert name in answer.json["error"]["message"]
    for body in ({}, {"question": ""}, {"question": "q", "path": "/etc/passwd"},
                 {"question": "q", "options": []}, {"question": "a\0b"}):
        assert server.ask("POST", "/v1/runs", body).status == 400
    assert server.ask("GET", "/v1/runs").json == {"runs": [], "next": None}
    run = ended(server, ask(server, options=TAKEN))
    assert (run["status"], run["error"], run["answer"]) == ("answered", None, 1)
    assert run["model"] == "openai/turns"


def test_a_request_that_is_repeated_starts_one_run(models):
    """With an Idempotency-Key."""
    server = models([repl("SUBMIT(1)")])
    made = {ask(server, headers={"Idempotency-Key": "one"}) for _ in range(3)}
    assert len(made) == 1 and len(server.ask("GET", "/v1/runs").json["runs"]) == 1


@pytest.mark.parametrize("last", ["x", "-1", "1x", "9" * 40])
def test_an_event_id_is_a_number(models, last):
    """Others are refused, as are events of a run that does not exist."""
    server = models(TURNS)
    answer = server.ask("GET", "/v1/runs/x/events", headers={"Last-Event-ID": last})
    assert answer.status == 400
    assert server.ask("GET", "/v1/runs/x/events").status == 404


def test_without_a_database_there_are_no_runs(models):
    """The server says so; sandboxes work."""
    server = models(TURNS, "--database", "none")
    answer = server.ask("POST", "/v1/runs", {"question": "q"})
    assert (answer.status, answer.code) == (501, "unsupported")
    assert server.ask("DELETE", server.create()).status == 204


def test_another_keys_run_is_not_found(models, tmp_path):
    """By any operation; its owner and an administrator have it, and a reader with that key's
    scopes alone starts none. A run takes a sandbox's place of its key until its end."""
    scopes = "read,sandboxes,runs"
    made = [create(tmp_path, name, "--scopes", scopes, "--limit", "sandboxes=1")
            for name in ("one", "other")]
    made += [create(tmp_path, "admin", "--scopes", "admin"), create(tmp_path, "plain")]
    server = models(HANGING)
    one, other, admin, plain = [Client(server, key) for key in made]
    run = ask(one)
    until(lambda: server.model.stats()["requests"] == 2)
    for method, path in (("GET", ""), ("DELETE", ""), ("GET", "/events"), ("POST", "/cancel"),
                         ("POST", "/resume")):
        refused = other.ask(method, run + path)
        absent = other.ask(method, "/v1/runs/" + "0" * 32 + path)
        assert refused.status == absent.status == 404
        assert refused.body.replace(run[-32:].encode(), b"0" * 32) == absent.body
    assert other.ask("GET", "/v1/runs").json["runs"] == []
    assert plain.ask("GET", "/v1/runs").json["runs"] == []
    assert plain.ask("POST", "/v1/runs", {"question": "q"}).code == "scope"
    for client in (one, admin):
        assert [r["run"] for r in client.ask("GET", "/v1/runs").json["runs"]] == [run[-32:]]
        assert client.ask("GET", run).status == 200
    for path in ("/v1/runs", "/v1/sandboxes"):
        body = {"question": "q"} if path == "/v1/runs" else {}
        assert one.ask("POST", path, body).code == "sandboxes"
    assert one.ask("POST", run + "/cancel").status == 204
    assert ended(one, run)["status"] == "cancelled"
    until(lambda: one.ask("POST", "/v1/sandboxes", {}).status == 201)


def test_any_worker_answers_for_a_run(models):
    """Each connection reaches some worker; the run is in one of them, and outlives it."""
    server = models(HANGING, "--workers", "2")
    runs = [ask(server, "question %d" % i) for i in range(4)]
    assert {run[len("/v1/runs/"):][:2] for run in runs} == {"00", "01"}
    until(lambda: server.model.stats()["requests"] == 8)
    for run in runs[1:]:
        assert server.ask("POST", run + "/cancel").status == 204
        assert list(Events(server, run))[-1][1] == "end"
        assert server.ask("GET", run).json["status"] == "cancelled"
    assert len(server.ask("GET", "/v1/runs").json["runs"]) == 4
    server.process.send_signal(signal.SIGKILL)
    server.process.wait(WAIT)
    server = models(HANGING, "--workers", "2", model=server.model)
    assert server.ask("POST", runs[0] + "/resume").status == 200
    assert ended(server, runs[0])["status"] == "answered"
