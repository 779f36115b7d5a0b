"""Calls from cells to models and tools: each is made once, ends in time, and gives its reply or
raises; other tasks go on meanwhile.

Each docstring says first what other runtimes for recursive language models (alexzhang13/rlm,
dspy.RLM, verifiers, fleet-rlm, agentic-codebase-navigator) do there, then what is right here.
"""

import base64

import pytest

from harness import PATIENT, answered, at, line, repl, wait_until

# The smallest image that services accept: one grey pixel.
PIXEL = ("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR42mNgAAAAAgAB5Sfe/AAAAABJRU5ErkJg"
         "gg==")
TEXTS = ["Error: LM query failed - x", "[ERROR] x", "Error: None", "None", ""]


def test_an_error_is_no_text_and_a_text_no_error(droste, serve):
    """There: failures come back as texts that begin with `Error:`, as a model's reply may, and an
    empty reply becomes `Error: None`. Here: replies are what they are, also an empty one; a
    failure raises, and in a batch has its own type."""
    server = serve(script=[line("sub", text, "say %d" % n, repeat=True)
                           for n, text in enumerate(TEXTS)]
                   + [line("sub", contains="fail", status=400, repeat=True)])
    code = ("def name(p, m=None):\n    try: return llm_query(p, model=m)\n"
            "    except Exception as e: return [type(e).__name__, getattr(e, 'code', '')]\n"
            "r = llm_query_batched(['say %d' % n for n in range(5)] + ['fail'])\n"
            "SUBMIT([type(x).__name__ for x in r], r[:5], name('say 1'), name('fail'), name('x', "
            "'nullcontent'),\n"
            "       name(''))")
    result = droste.cell(code, "--base-url", server.url, "--model", "scripted-sub", "--retries",
                         "0")
    assert result["submit"]["output"] == [["str"] * 5 + ["FailedReply"], TEXTS, "[ERROR] x",
                                          ["LLMError", "model"],
                                          ["LLMError", "model_reply"], ["ValueError", ""]]


def test_256_threads_ask_at_once(droste, serve):
    """There: a queue of five connections, so that 64 threads wait for seconds. Here: 256 threads
    have their calls open at the same time, more than which the server would not answer, over one
    channel."""
    server = serve(script=[line("sub", "in", gate=256, repeat=True)])
    code = (
        "from concurrent.futures import ThreadPoolExecutor\nwith ThreadPoolExecutor(256) as pool:\n"
        "    r = list(pool.map(llm_query, map(str, range(256))))\nSUBMIT(r == ['in'] * 256)")
    flags = ["--base-url", server.url, "--model", "scripted-sub", "--concurrency", "256",
             "--max-llm-calls", "256",
             "--processes", "512"]
    assert droste.cell(code, *flags)["submit"] == {"output": True}


LEVELS = ["full", "light", "landlock", "process"]


@pytest.fixture
def sub(droste, serve):
    """sub(code, script, flags…): a cell whose code asks the model scripted-sub; (its result, the
    server)."""
    def run(code, script, *flags):
        server = serve(script=script)
        return droste.cell(code, "--base-url", server.url, "--model", "scripted-sub",
                           *flags), server
    return run


def test_a_call_that_waits_for_its_turn_loses_no_time(sub):
    """There: a batch is asked one by one, and the wait counts against the time of each call, so
    that half of them fail. Here: where one at a time is what was set, the last waits longer than a
    call may take, and is answered."""
    result, server = sub("SUBMIT(llm_query_batched(['x'] * 13))",
                         [line("sub", "in", delay_ms=250, repeat=True)],
                         "--concurrency", "1", "--llm-call-timeout", "3", "--retries", "0")
    assert result["submit"] == {"output": ["in"] * 13} and server.stats()["max_in_flight"] == 1


def test_a_long_call_is_made_once(sub):
    """There: a call that takes longer than its lease is given out again, and its answer is
    refused. Here: it is one request, whose answer is taken, while eight short ones come and go."""
    code = "slow = llm_submit('slow')\nfor i in range(8): llm_query('fast')\nSUBMIT(slow.result())"
    result, server = sub(code, [line("sub", "at last", "slow", delay_ms=1000),
                                line("sub", "in", "fast", repeat=True)])
    assert result["submit"] == {"output": "at last"}
    stats = server.stats()
    assert stats["requests"] == 9 and set(stats["idempotency"].values()) == {1} and stats[
        "cancelled"] == 0


REPLIES = ["[1, 2]", '{"error": "x"}', "null", "1", "true", '"quoted"', " spaces \n", "{"]


def test_a_reply_is_the_text_that_it_is(ask):
    """There: a reply that looks like JSON comes back as a list, and an error as a dict. Here: a
    model's reply is a str, and the value of a child run is of the type that it submitted."""
    turns = [repl("r = [llm_query(str(n)) for n in range(%d)]\n"
                  "SUBMIT(r, [rlm_query('t', '[1, 2]'), rlm_query('t', [1, 2])])" % len(REPLIES)),
             at(1, repl("SUBMIT(context)"), "Question: t", repeat=True)]
    answered(ask(turns + [at(1, text) for text in REPLIES]), [REPLIES, ["[1, 2]", [1, 2]]])


TOOL = '''#!/usr/bin/python3
import json, sys
print(json.loads(sys.stdin.readline())["arguments"]["say"] or sys.exit("no"))
'''


def test_a_tools_answer_is_the_value_and_its_error_an_exception(droste, tmp_path):
    """There: a text that looks like a list becomes one, and a tool that fails gives a dict with
    its error. Here: what a tool says is JSON of whatever type, a dict with `error` is a dict, and
    a failure raises."""
    (tmp_path / "tool").write_text(TOOL)
    (tmp_path / "tool").chmod(0o755)
    code = ("try: tool(say='')\nexcept RuntimeError as e: why = str(e)\n"
            "SUBMIT([tool(say='\"[1, 2]\"'), tool(say='[1, 2]'), tool(say='{\"error\": \"x\"}'), "
            "why])")
    result = droste.cell(code, "--tool", "tool=%s" % (tmp_path / "tool"))
    assert result["submit"]["output"] == ["[1, 2]", [1, 2], {"error": "x"},
                                          "tool ended with exit status 1: no"]


ALIASES = {
    "another name": "f = llm_query\nr = f('a')", "map": "r = list(map(llm_query, ['a']))[0]",
    "partial": "import functools\nr = functools.partial(llm_query, 'a')()",
    "eval": "r = eval('llm_' 'query')('a')",
    "getattr": "import builtins\nr = getattr(builtins, 'llm' + '_query')('a')",
    "a method": "class A:\n    ask = staticmethod(llm_query)\nr = A.ask('a')",
    "a list": "def g(x): return [f(x) for f in (llm_query,)]\nr = g('a')[0]",
}


@pytest.mark.parametrize("alias", ALIASES)
def test_a_call_is_a_call_by_any_name(droste, replay, alias):
    """There: calls work only where the text of the cell holds `llm_query(`. Here: it is a
    function."""
    assert droste.cell(ALIASES[alias] + "\nSUBMIT(r)", "--model",
                       replay(at(1, "said")))["submit"] == {"output": "said"}


def test_deadlines_hold_while_the_host_waits_for_a_model(sub):
    """There: the deadline is ignored while a model is asked, and the time of a call from code
    is not used. Here: both end the wait, the cell catches the one, and the server sees its clients
    go."""
    script = [line("sub", hang=True, repeat=True)]
    for limit in "1", "10":
        result, server = sub("try: llm_query('a')\nexcept LLMTimeout as e: SUBMIT(str(e))", script,
                             "--broker-timeout", limit)
        if server.stats()["requests"] == 1:
            break       # else the deadline came before the request
    assert "broker-timeout" in result["submit"]["output"]
    wait_until(lambda: server.stats()["cancelled"] == 1, what="the end of the request")
    for limit in "2", "10":
        result, server = sub("print('asks')\nllm_query_batched(['b', 'c'])", script,
                             "--execute-timeout", limit, *PATIENT)
        if server.stats()["requests"] == 2:
            break
    assert (result["status"], result["stdout"], result["alive"]) == ("timeout", "asks\n", True)
    wait_until(lambda: server.stats()["cancelled"] == 2, what="the end of the requests")


@pytest.mark.parametrize("isolation", LEVELS)
def test_calls_need_no_network_in_the_sandbox(droste, serve, isolation):
    """There: a container asks a proxy on an address that it cannot reach. Here: code that cannot
    connect to the model's server is answered by it, at each isolation; only `process` can."""
    server = serve()
    code = ("import socket\ntry: socket.create_connection(('127.0.0.1', %s), 2); met = True\n"
            "except OSError: met = False\nSUBMIT(met, llm_query('x'))"
            % server.url.split(":")[2].split("/")[0])
    result = droste.cell(code, "--base-url", server.url, "--model", "ok", "--isolation", isolation)
    assert result["submit"] == {"output": [isolation == "process", "The answer is ⟨42⟩."]}


BATCHES = ["llm_query_batched(%s)", "await llm_query_batched_async(%s)", "rlm_query_batched(%s)",
           "await rlm_query_batched_async(%s)"]


@pytest.mark.parametrize("isolation", ["full", "process"])
def test_batches_fail_alike(sub, isolation):
    """There: all or nothing in one environment, item by item in others. Here: each batch of each
    kind gives the good items, a typed text in the place of the bad one, or by choice the
    exception, and none of it where it does not fit."""
    asks = [call % p for call in BATCHES for p in ("p", "p, errors='return'")]
    code = ("p = ['x', 'broken', 'y']\nr = [%s]\n"
            "SUBMIT([[type(x).__name__ for x in one] for one in r], [one[0] for one in r])"
            % ", ".join(asks))
    script = [line("sub", contains="broken", status=400, repeat=True),
              line("sub", repl("SUBMIT('in')"), contains="Turn 1 of", repeat=True),
              line("sub", "in", repeat=True)]
    result, _ = sub(code, script, "--isolation", isolation, "--retries", "0")
    kinds = [["str", "FailedReply", "str"], ["str", "LLMError", "str"]] * len(BATCHES)
    assert result["submit"]["output"] == [kinds, ["in"] * len(kinds)]
    tries = ["try: %s\nexcept BudgetExceeded: n += 1\n" % (call % "['x'] * 3") for call in BATCHES]
    result, server = sub("n = 0\n" + "".join(tries) + "SUBMIT(n)", script, "--isolation", isolation,
                         "--max-llm-calls", "2")
    assert result["submit"] == {"output": 4} and server.stats()["requests"] == 0


def test_each_call_may_name_its_model_and_go_deeper(tree):
    """There: one model for all calls of code, and no recursion. Here: a run below a run below the
    root, each call to the model that it names."""
    script = [line("root",
                   repl(
        "SUBMIT(rlm_query('a', model='scripted-x'), llm_query('b', model='scripted-y'))")),
              line("x", repl("SUBMIT(rlm_query('c'))"), "Question: a"),
              line("two", repl("SUBMIT('deep')"), "Question: c"),
              line("y", "flat")]
    result, server = tree(script)
    answered(result, ["deep", "flat"])
    assert server.stats()["models"] == {"scripted-" + name: 1 for name in ("root", "x", "two", "y")}


def test_a_context_of_bytes_is_sent_as_an_image(droste, serve, tmp_path):
    """There: texts only. Here: a context of bytes, sent to a model as the image that it is."""
    (tmp_path / "c.png").write_bytes(base64.b64decode(PIXEL))
    server = serve()
    result = droste.cell("SUBMIT(type(context).__name__, llm_query(['what?', context]))",
                         "--context", tmp_path / "c.png", "--base-url", server.url, "--model", "ok")
    assert result["submit"]["output"] == ["bytes", "The answer is ⟨42⟩."]
    (message,) = server.stats()["last"]["body"]["messages"]
    assert message["content"][1]["image_url"]["url"] == "data:image/png;base64," + PIXEL


def test_an_awaited_call_lets_other_tasks_go_on(droste, serve):
    """There: the asynchronous way blocks the event loop. Here: the first call is only answered
    when the second, of another task, is open too; a third task has counted meanwhile."""
    server = serve(script=[line("sub", "in", gate=2, repeat=True)])
    code = ("import asyncio\nticks = 0\nasync def tick():\n    global ticks\n"
            "    while True:\n        ticks += 1\n        await asyncio.sleep(0)\n"
            "t = asyncio.ensure_future(tick())\na = asyncio.ensure_future(llm_query_async('a'))\n"
            "while ticks < 100: await asyncio.sleep(0)\n"
            "r = [await llm_query_async('b'), await a]\nSUBMIT(r + [ticks >= 100])")
    result = droste.cell(code, "--base-url", server.url, "--model", "scripted-sub")
    assert result["submit"] == {"output": ["in", "in", True]}


def test_a_batch_is_as_wide_as_it_is_allowed_to_be(droste, serve):
    """There: eight calls of a batch at a time, at most. Here: all 64 are open before the first is
    answered."""
    server = serve(script=[line("sub", "in", gate=64, repeat=True)])
    result = droste.cell("SUBMIT(set(llm_query_batched(['x'] * 64)))", "--base-url", server.url,
                         "--model", "scripted-sub", "--max-llm-calls", "64")
    assert result["submit"] == {"output": ["in"]}


def test_an_answer_ends_the_calls_in_flight(tree):
    """Wanted: cancellation when the answer is there. Here: the run ends, and the server sees the
    client of a call that a future still waited for go."""
    root = repl("f = llm_submit('hang')\nwhile llm_query('fine') != 'fine': pass\nSUBMIT('done')")
    result, server = tree([line("root", root), line("one", hang=True, contains="hang"),
                           line("one", "fine", gate=2)])
    answered(result, "done")
    wait_until(lambda: server.stats()["cancelled"] == 1, what="the end of the request")


def test_a_model_has_a_concurrency_of_its_own(tree):
    """Wanted: bounds for each model, over batches and threads. Here: two batches in threads, never
    more than three open."""
    code = ("import threading\nr = []\ndef ask(): r.extend(llm_query_batched(['x'] * 8))\n"
            "t = [threading.Thread(target=ask) for _ in range(2)]\n"
            "for one in t: one.start()\nfor one in t: one.join()\nSUBMIT(r)")
    result, server = tree([line("root", repl(code)), line("one", "in", gate=3, repeat=True)],
                          "--model-concurrency", "3")
    answered(result, ["in"] * 16)
    assert server.stats()["max_in_flight"] == 3
