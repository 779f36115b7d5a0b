"""Environments as agentic-codebase-navigator has them, over Droste's sandboxes; and the address at
which models are asked."""
import json
import socket
import struct
import subprocess
import sys

import pytest

import droste
from droste.compat import wire as _wire
from droste.compat.adapters import DockerEnvironmentAdapter, LocalEnvironmentAdapter


class Broker:
    """Answers prompts; one about failure fails."""

    def __init__(self):
        self.asked = []

    def complete(self, prompt, model=None):
        self.asked.append((prompt, model))
        if prompt == "fail":
            raise droste.BudgetError("no more calls")
        if prompt == "break":
            raise KeyError("the host's own business")
        return "said %s" % prompt


@pytest.fixture
def server():
    broker = Broker()
    one = _wire.Server(broker, "the run's own")
    one.broker = broker
    yield one
    one.close()


def exchange(server, request, raw=None):
    """What one connection is told."""
    with socket.create_connection(server.address, timeout=60) as connection:
        data = json.dumps(request).encode() if raw is None else raw
        connection.sendall(data if raw is not None else struct.pack(">I", len(data)) + data)
        connection.shutdown(socket.SHUT_WR)
        with connection.makefile("rb") as stream:
            head = stream.read(4)
            return json.loads(stream.read(struct.unpack(">I", head)[0])) if head else None


def test_an_answer_arrives_though_more_was_sent(server):
    """A refusal is read whole by a client that goes on to send: the connection is not reset
    before."""
    for _ in range(50):
        with socket.create_connection(server.address, timeout=60) as connection:
            connection.sendall(struct.pack(">I", 0xFFFFFFFF) + b"x" * 200000)
            connection.shutdown(socket.SHUT_WR)
            with connection.makefile("rb") as stream:
                (length,) = struct.unpack(">I", stream.read(4))
                assert "Frame too large" in json.loads(stream.read(length))["error"]


# ---- the environment

def test_code_runs_and_state_stays():
    with LocalEnvironmentAdapter(correlation_id="mine") as adapter:
        adapter.load_context({"a": [1, 2]})
        first = adapter.execute_code("n = len(context['a'])\nprint(n)")
        assert (first.stdout, first.stderr, first.correlation_id,
                first.locals["n"]) == ("2\n", "", "mine", "2")
        assert adapter.execute_code("print(n + 1)").stdout == "3\n" and first.execution_time > 0
        assert isinstance(adapter, droste.EnvironmentPort)


def test_the_end_of_the_time_stands_in_stderr():
    """As `TimeoutError`, behind what the code has written there; what it printed is kept, and the
    session goes on."""
    with LocalEnvironmentAdapter(execute_timeout_s=2) as adapter:
        late = adapter.execute_code(
            "import sys\nprint('out')\nprint('err', file=sys.stderr)\nwhile True: pass")
        assert late.stdout == "out\n" and late.stderr.startswith(
            "err\n\nTimeoutError: the cell ran longer than 2 s")
        assert adapter.execute_code("print(1)").stdout == "1\n"


def test_what_code_raises_stands_in_stderr():
    with LocalEnvironmentAdapter() as adapter:
        assert adapter.execute_code("1 / 0").stderr == "\nZeroDivisionError: division by zero"
        assert "rules of this session" in adapter.execute_code("import os").stderr


def test_parameters_are_those_of_the_environment():
    """setup_code before each execution, allowed_import_roots, execute_timeout_cap_s,
    broker_timeout_s."""
    with LocalEnvironmentAdapter(setup_code="x = 1", allowed_import_roots={"math"},
                                 execute_timeout_s=20.0,
                                 execute_timeout_cap_s=25.0, broker_timeout_s=7.0) as adapter:
        adapter.execute_code("x = 2")
        assert adapter.execute_code("import math\nprint(x)").stdout == "1\n"
        assert "json" in adapter.execute_code("import json").stderr
        pairs = dict(adapter._interpreter._pairs)
        assert (pairs["execute-timeout"], pairs["execute-timeout-cap"],
                pairs["broker-timeout"]) == ("20", "25", "7")


@pytest.mark.parametrize("by", ["broker", "broker_address"])
def test_models_are_asked_by_the_broker_or_at_its_address(by, server):
    options = {"broker": server.broker} if by == "broker" else {"broker_address": server.address}
    with LocalEnvironmentAdapter(correlation_id="the run's own", **options) as adapter:
        done = adapter.execute_code(
            "print(llm_query('a'), llm_query('b', model='other'))\nprint(llm_query_batched(['c', "
            "'d']))")
        assert done.stdout == "said a said b\n['said c', 'said d']\n"
        assert [call["prompt"] for call in done.rlm_calls[:2]] == ["a", "b"] and (
            "b", "other") in server.broker.asked
        failed = adapter.execute_code("llm_query('fail')")
        assert "no more calls" in failed.stderr


def test_parameters_of_dockers_environment(monkeypatch, server):
    """DockerEnvironmentAdapter: image, subprocess_timeout_s, proxy_http_timeout_s are settings of
    the container (tests/seeds/test_docker_page.py runs one); setup_code, broker, broker_address and
    correlation_id are as in the local one, which here takes its place."""
    monkeypatch.delenv("DROSTE_ENVIRONMENT", raising=False)
    pairs = dict(DockerEnvironmentAdapter(image="mine:1", subprocess_timeout_s=9.0,
                                          proxy_http_timeout_s=8.0)._interpreter._pairs)
    assert (pairs["env"], pairs["image"], pairs["execute-timeout"],
            pairs["broker-timeout"]) == ("docker", "mine:1", "9", "8")
    monkeypatch.setenv("DROSTE_ENVIRONMENT", "local")
    with DockerEnvironmentAdapter(setup_code="x = 1", broker=Broker(),
                                  correlation_id="mine") as adapter:
        adapter.execute_code("x = 2")
        done = adapter.execute_code("print(x, llm_query('a'))")
        assert (done.stdout, done.correlation_id) == ("1 said a\n", "mine")
    with DockerEnvironmentAdapter(broker_address=server.address,
                                  correlation_id="the run's own") as adapter:
        assert adapter.execute_code("print(llm_query('a'))").stdout == "said a\n"


def test_an_environment_of_ones_own_may_use_one():
    """Registered, it is where an RLM's code runs."""
    droste.registry.register("mine", LocalEnvironmentAdapter)
    turns = ["```repl\nn = len(context)\nprint(n, llm_query('half?'))\n```", "FINAL(done)"]
    try:
        rlm = droste.RLM(lambda messages: "sub" if messages[-1]["content"] == "half?"
                         else turns.pop(0), environment="mine",
                         environment_kwargs={"execute_timeout_s": 20.0})
        assert rlm.run("How long?", "abcd").answer == "done"
    finally:
        droste.registry.unregister("mine")


CLIENT = """
import json, socket, struct, sys
host, port, secret = sys.argv[1], int(sys.argv[2]), sys.argv[3]
with socket.create_connection((host, port)) as connection:
    data = json.dumps({"correlation_id": secret, "prompts": ["half?", "FINAL(no)"]}).encode()
    connection.sendall(struct.pack(">I", len(data)) + data)
    stream = connection.makefile("rb")
    told = json.loads(stream.read(struct.unpack(">I", stream.read(4))[0]))
print([r["chat_completion"]["response"] for r in told["results"]])
"""


class InAProcess:
    """An environment whose code runs in a process of its own, which asks models at the address."""
    seen = []

    def __init__(self, *, broker, broker_address, correlation_id):
        self.address, self.secret = broker_address, correlation_id
        InAProcess.seen.append(broker_address)

    def load_context(self, context_payload):
        pass

    def execute_code(self, code):
        done = subprocess.run([sys.executable, "-c", CLIENT, self.address[0], str(self.address[1]),
                               self.secret], capture_output=True, text=True)
        return droste.ReplResult(stdout=done.stdout, stderr=done.stderr,
                                 final_answer=done.stdout.strip() or None)

    def cleanup(self):
        pass


def test_an_environments_processes_ask_at_its_address():
    """Under the run's budget; when the run is over nobody listens there any more."""
    droste.registry.register("process", InAProcess)
    InAProcess.seen.clear()
    try:
        rlm = droste.RLM(lambda messages: "```repl\nask()\n```", environment="process",
                         sub_model=lambda messages: "re: " + messages[-1]["content"])
        done = rlm.run("q")
        assert done.answer == "['re: half?', 're: FINAL(no)']" and done.usage["calls"] == 3
    finally:
        droste.registry.unregister("process")
    (address,) = InAProcess.seen
    with pytest.raises(OSError):
        socket.create_connection(address, timeout=5)


# ---- the address

def test_a_request_is_answered(server):
    got = exchange(server, {"correlation_id": "the run's own", "prompt": "a", "model": "m"})
    (result,) = got["results"]
    assert got["correlation_id"] == "the run's own" and got["error"] is None and result[
        "error"] is None
    assert result["chat_completion"]["response"] == "said a" and result["chat_completion"][
        "root_model"] == "m"


def test_several_are_answered_in_their_order_and_fail_alone(server):
    """A failure of the broker's is told by its words, one of the host's is not."""
    got = exchange(server, {"correlation_id": "the run's own",
                            "prompts": ["a", "fail", [{"role": "user", "content": "x"}], "break"]})
    errors = [result["error"] for result in got["results"]]
    assert errors == [None, "no more calls", None, "Internal broker error"]
    assert got["results"][0]["chat_completion"]["response"] == "said a"


@pytest.mark.parametrize("request_, why", [
    ({"prompt": "a"}, "Invalid correlation_id"),
    ({"correlation_id": "another's", "prompt": "a"}, "Invalid correlation_id"),
    ({"correlation_id": 123, "prompt": "a"}, "Invalid correlation_id"),
    ({"correlation_id": "the run's own"}, "missing 'prompt'"),
    ({"correlation_id": "the run's own", "prompt": "a", "prompts": ["b"]}, "only one of"),
    ({"correlation_id": "the run's own", "prompts": []}, "must not be empty"),
    ({"correlation_id": "the run's own", "prompts": "nope"}, "must not be empty"),
    ({"correlation_id": "the run's own", "prompt": 5}, "valid Prompt"),
    ({"correlation_id": "the run's own", "prompt": "a", "model": 5}, "Invalid model"),
    ({"correlation_id": "the run's own", "prompt": "a", "odd": 1},
     "Unknown keys in WireRequest: ['odd']"),
    (["not", "an", "object"], "must be an object")])
def test_what_is_no_request_of_the_run_is_refused(server, request_, why):
    """With a reason, and nothing of a traceback; no model is asked."""
    got = exchange(server, request_)
    assert why in got["error"] and got["results"] is None and "Traceback" not in json.dumps(got)
    assert server.broker.asked == []


@pytest.mark.parametrize("raw, why", [
    (struct.pack(">I", 10_000_001), "Frame too large: 10000001 bytes (max 10000000)"),
    (struct.pack(">I", 0xFFFFFFFF) + b"x", "Frame too large"),
    (struct.pack(">I", 4) + b"nope", "Invalid JSON payload"),
    (struct.pack(">I", 2) + b"\xff\xfe", "Invalid JSON payload"),
    (struct.pack(">I", 40000) + b"[" * 40000, "Invalid JSON payload"),
    (b"", None), (struct.pack(">I", 10) + b"{}", None), (b"\0", None)])
def test_frames_that_are_none_end_their_connection_alone(server, raw, why):
    """The next one is answered."""
    got = exchange(server, None, raw)
    assert got is None if why is None else why in got["error"]
    assert exchange(server, {"correlation_id": "the run's own", "prompt": "a"})["error"] is None


def test_silent_connections_do_not_delay_others(server, monkeypatch):
    """As many as there may be at once; each has its time, and then the next are served."""
    monkeypatch.setattr(_wire, "SECONDS_MOST", 0.2)
    silent = [socket.create_connection(server.address) for _ in range(_wire.CONNECTIONS_MOST + 5)]
    assert exchange(server, {"correlation_id": "the run's own", "prompt": "a"})["error"] is None
    for connection in silent:
        connection.close()


def test_no_request_is_answered_after_the_end(server):
    server.close()
    with pytest.raises(OSError):
        socket.create_connection(server.address,
                                 timeout=5).recv(1) or (_ for _ in ()).throw(ConnectionError())
