"""Runs as traces of OpenTelemetry: droste runs export --format otlp, and the field traceparent."""
import json
import os
import subprocess

import pytest

from harness import BUILD, answered, kill_tree, refused, repl, wait_until

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
SCHEMAS = os.path.join(BUILD, "schemas", "bin", "python")
SCRIPT = [repl("x = llm_query_batched(['one CANARY', 'two'])\n1/0"), "ONE", "TWO",
          repl("SUBMIT(rlm_query('child'))"), repl("SUBMIT('inner')")]


def spans_of(droste):
    traces = [json.loads(line) for line in
              droste("runs", "export", "--all", "--format", "otlp").out.splitlines()]
    return [[span for group in trace["resourceSpans"] for scope in group["scopeSpans"]
             for span in scope["spans"]] for trace in traces]


def attributes(span):
    return {one["key"]: next(iter(one["value"].values())) for one in span["attributes"]}


@pytest.fixture
def traced(droste, ask):
    """A run with a batch of calls, an exception and a child run; its spans by id."""
    result = ask(SCRIPT, "--traceparent", PARENT)
    answered(result, "inner")
    trace, = spans_of(droste)
    return {span["spanId"]: span for span in trace}


def test_every_step_is_a_span(droste, traced):
    """One of each run, turn, cell and call, in the trace that was given, each within its parent."""
    kinds = [span["name"] for span in traced.values()]
    steps = [line for kind in ("run", "turn", "cell", "call") for line in droste.lines(kind)]
    assert len(kinds) == len(steps) == len(traced)
    assert kinds.count("invoke_agent droste") == 2 and kinds.count("execute_tool python") == 3
    assert {span["traceId"] for span in traced.values()} == {PARENT[3:35]}
    roots = 0
    for span in traced.values():
        start, end = int(span["startTimeUnixNano"]), int(span["endTimeUnixNano"])
        assert start <= end
        if span["parentSpanId"] == PARENT[36:52]:
            roots += 1
            continue
        outer = traced[span["parentSpanId"]]
        assert int(outer["startTimeUnixNano"]) <= start
        assert end <= int(outer["endTimeUnixNano"])
    assert roots == 1


def test_what_spans_say(droste, traced):
    """The conventions' attributes; an exception is an error; nothing of what was said."""
    runs = [span for span in traced.values() if span["name"] == "invoke_agent droste"]
    outer = next(attributes(span) for span in runs if span["parentSpanId"] == PARENT[36:52])
    calls = [span for span in traced.values() if span["name"].startswith("chat ")]
    assert outer["gen_ai.operation.name"] == "invoke_agent"
    assert outer["droste.calls"] == str(len(calls))
    assert sum(int(attributes(span)["gen_ai.usage.input_tokens"]) for span in calls) == \
        int(outer["gen_ai.usage.input_tokens"])
    assert {span["kind"] for span in calls} == {3}
    cells = [span for span in traced.values() if span["name"] == "execute_tool python"]
    failed = [span for span in cells if "status" in span]
    expected = [line["status"] for line in droste.lines("cell") if line["status"] == "error"]
    assert [attributes(span)["error.type"] for span in failed] == expected != []
    assert failed[0]["status"] == {"code": 2}
    text = json.dumps(traced)
    assert "CANARY" not in text and "inner" not in text


def test_the_protocol_knows_every_member(droste, traced):
    """As the official definition reads it, with nothing left over."""
    if not os.path.exists(SCHEMAS):
        pytest.skip("scripts/setup schemas did not get opentelemetry-proto")
    code = ("import sys\nfrom google.protobuf import json_format\n"
            "from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as service\n"
            "for line in sys.stdin:\n"
            "    read = json_format.Parse(line, service.ExportTraceServiceRequest())\n"
            "    print(len(read.resource_spans[0].scope_spans[0].spans))\n")
    text = droste("runs", "export", "--all", "--format", "otlp").out
    done = subprocess.run([SCHEMAS, "-c", code], input=text, capture_output=True, text=True)
    assert done.stdout == "%d\n" % len(traced), done.stderr


def test_a_run_has_a_trace_of_its_own(droste, ask):
    """Without traceparent; the same one each time, and another for another run."""
    answered(ask([repl("SUBMIT(1)")]), 1)
    answered(ask([repl("SUBMIT(1)")]), 1)
    ids = [{span["traceId"] for span in trace} for trace in spans_of(droste)]
    assert all(len(one) == 1 for one in ids) and ids[0] != ids[1]
    assert ids == [{span["traceId"] for span in trace} for trace in spans_of(droste)]
    assert [sum("parentSpanId" not in span for span in trace) for trace in spans_of(droste)] == \
        [1, 1]


def test_models_are_told(online, droste):
    """The request's field names the trace and the call's own span; without a trace it is absent."""
    result, server = online([repl("SUBMIT('x')")], env={"TRACEPARENT": PARENT})
    answered(result, "x")
    call, = [span for trace in spans_of(droste) for span in trace if span["kind"] == 3]
    assert server.stats()["last"]["headers"]["traceparent"] == \
        "00-%s-%s-01" % (PARENT[3:35], call["spanId"])
    result, server = online([repl("SUBMIT('x')")])
    answered(result, "x")
    assert "traceparent" not in server.stats()["last"]["headers"]


@pytest.mark.parametrize("wrong", ["x", PARENT[:-1], PARENT.upper(), PARENT.replace("0af7", "0xf7"),
                                   "ff" + PARENT[2:], PARENT + "-more",
                                   "00-" + "0" * 32 + PARENT[35:]])
def test_what_is_no_traceparent(ask, wrong):
    """Is refused by name before the run."""
    refused(ask([repl("SUBMIT(1)")], "--traceparent", wrong), 2, "traceparent")


def test_a_later_version(droste, ask):
    """May have more members, which are ignored."""
    answered(ask([repl("SUBMIT(1)")], "--traceparent", "cc" + PARENT[2:] + "-what-else"), 1)
    assert {span["traceId"] for trace in spans_of(droste) for span in trace} == {PARENT[3:35]}


def test_a_step_that_has_not_ended_has_no_span(droste, replay):
    """Of a run that was killed: what ended is there, under parents that are not."""
    model = replay(repl("print(1)"), {"content": "late", "delay_ms": 60000})
    process = droste.start("run", "--question", "q", "--model", model)
    wait_until(lambda: os.path.exists(droste.record.path)
               and [cell for cell in droste.lines("cell") if cell["ended"]], what="a cell")
    kill_tree(process.pid)
    process.wait()
    trace, = spans_of(droste)
    assert "execute_tool python" in [span["name"] for span in trace]
    assert "invoke_agent droste" not in [span["name"] for span in trace]
