"""Calls from futures, tasks and threads of a guest, what a batch has for a failed item, and prompts
that are more than a text."""
import pytest

from harness import PATIENT, line, repl, wait_until

GATED = [{"model": "sub", "contains": "gated", "content": "in", "gate": 8, "repeat": True},
         {"model": "sub", "contains": "hang", "hang": True, "repeat": True},
         {"model": "sub", "contains": "broken", "status": 400, "repeat": True},
         {"model": "sub", "contains": "second", "content": "in", "gate": 2, "repeat": True},
         {"model": "sub", "content": "fine", "repeat": True}]
LLM = ("--llm-call-timeout", "120", "--retries", "0")


@pytest.fixture
def sub(serve):
    """A server, and the flags that have guests ask it: prompts with `gated` are answered when eight
    are open, those with `second` when two are, those with `hang` never; those with `broken`
    fail."""
    server = serve(script=GATED)
    return server, ("--base-url", server.url, "--model", "scripted-sub", *LLM)


def submitted(result):
    assert result["status"] == "submitted", result
    return result["submit"]


WAYS = {
    "futures": "from concurrent.futures import as_completed\n"
               "replies = [f.result() for f in as_completed([llm_submit('gated %d' % i) for i in "
               "range(8)])]",
    "tasks": "import asyncio\n"
             "replies = await asyncio.gather(*[llm_query_async('gated %d' % i) for i in range(8)])",
    "threads": "from concurrent.futures import ThreadPoolExecutor\n"
               "with ThreadPoolExecutor(8) as pool:\n"
               "    replies = list(pool.map(llm_query, ['gated %d' % i for i in range(8)]))",
    "a batch of tasks": "import asyncio\n"
                        "replies = sum(await asyncio.gather(*[llm_query_batched_async(['gated %d "
                        "%d' % (i, k)\n"
                        "          for k in range(4)]) for i in range(2)]), [])",
    "all at once": "import asyncio, threading\n"
                   "replies = []\n"
                   "thread = threading.Thread(target=lambda: replies.append(llm_query('gated "
                   "t')))\n"
                   "thread.start()\n"
                   "futures = [llm_submit('gated %d' % i) for i in range(3)]\n"
                   "replies += await asyncio.gather(*[llm_query_async('gated %d' % i) for i in "
                   "range(4)])\n"
                   "replies += [f.result() for f in futures]\n"
                   "thread.join()",
}


@pytest.mark.parametrize("isolation", ["full", "landlock"])
@pytest.mark.parametrize("case", WAYS)
def test_calls_are_under_way_at_once(droste, sub, case, isolation):
    """The server answers nobody before eight requests are open: one after the other would never
    end."""
    server, flags = sub
    result = droste.cell(WAYS[case] + "\nSUBMIT(replies=replies)", "--isolation", isolation, *flags)
    assert submitted(result) == {"replies": ["in"] * 8}
    assert server.stats()["requests"] == 8


def test_answers_go_to_who_asked(droste, serve):
    """1,220 futures, tasks and threads at once, each with a prompt of its own."""
    server = serve()
    code = ("import asyncio, threading\n"
            "async def ask(i):\n    return i, await llm_query_async('task %d' % i)\n"
            "got = []\n"
            "threads = [threading.Thread(target=lambda i=i: got.append((i, llm_query('task %d' % "
            "i))))\n"
            "           for i in range(1200, 1220)]\n"
            "for t in threads: t.start()\n"
            "futures = [(i, llm_submit('task %d' % i)) for i in range(1000)]\n"
            "got += await asyncio.gather(*[ask(i) for i in range(1000, 1200)])\n"
            "got += [(i, f.result()) for i, f in futures]\n"
            "for t in threads: t.join()\n"
            "SUBMIT(count=len(got), wrong=[g for g in got if g[1] != '%d:task %d' % (len('task %d' "
            "% g[0]), g[0])])")
    result = droste.cell(code, "--base-url", server.url, "--model", "echo", "--max-llm-calls",
                         "2000")
    assert submitted(result) == {"count": 1220, "wrong": []}
    stats = server.stats()
    assert stats["requests"] == 1220 and set(stats["idempotency"].values()) == {1}


@pytest.mark.parametrize("deduplicate, requests", [("no", 8), ("yes", 1)])
def test_identical_calls_are_each_asked_or_one(droste, sub, deduplicate, requests):
    """Several answers to one question are several calls, each paid; where it is said, those that
    are under way at the same time are one. What is asked afterwards is asked again."""
    server, flags = sub
    code = ("SUBMIT(a=llm_query_batched(['What is it?'] * 8), b=llm_query_batched(['What else?', "
            "'What is it?']))")
    result = droste.cell(code, *flags, "--deduplicate", deduplicate)
    assert submitted(result) == {"a": ["fine"] * 8, "b": ["fine"] * 2}
    assert server.stats()["requests"] == requests + 2


def test_a_run_pays_for_one_of_identical_calls(tree, droste):
    """The record has them all, and the tokens of the one that was sent."""
    script = [line("root", repl("SUBMIT(llm_query_batched(['same'] * 4))")),
              line("one", "fine", repeat=True)]
    result, server = tree(script, "--deduplicate", "yes")
    assert result.json["answer"] == ["fine"] * 4 and server.stats()["models"][
        "scripted-one"] == 1, result
    calls = [c for c in droste.record.calls if c["kind"] == "sub"]
    assert len(calls) == 4 and sorted(c["attempts"] for c in calls) == [0, 0, 0, 1]
    assert result.json["usage"]["depths"][1]["input_tokens"] == sum(c["input_tokens"]
                                                                    for c in calls) == \
        server.stats()["reported"]["scripted-one"][0]


CANCELLED = {
    "a future": "f = llm_submit('hang')\n%s\nassert f.cancel() and f.cancelled()",
    "a task": "import asyncio\n"
              "task = asyncio.ensure_future(llm_query_async('hang'))\n"
              "await asyncio.sleep(0)\n%s\ntask.cancel()\n"
              "try:\n    await task\nexcept asyncio.CancelledError: pass",
    "a time limit": "import asyncio\n"
                    "task = asyncio.ensure_future(llm_query_async('hang'))\n"
                    "await asyncio.sleep(0)\n%s\n"
                    "try:\n    await asyncio.wait_for(task, 0.1)\nexcept "
                    "asyncio.TimeoutError: pass",
    "an exception of a signal": "import signal, threading\n"
                                "def ring(*_): raise InterruptedError\n"
                                "signal.signal(signal.SIGALRM, ring)\n"
                                "def later():\n    %s\n    signal.pthread_kill("
                                "threading.main_thread().ident, signal.SIGALRM)\n"
                                "threading.Thread(target=later).start()\n"
                                "try:\n    llm_query('hang')\nexcept InterruptedError: pass",
}


@pytest.mark.parametrize("how", CANCELLED)
def test_an_abandoned_call_is_cancelled(droste, sub, how):
    """The server sees its client go while the session lives on and asks again; the record says
    so."""
    server, flags = sub
    wait = "llm_query('second')"        # the server has the other call by then
    code = CANCELLED[how] % wait + ("\nimport time\nfor _ in range(3): llm_query('fine')\n"
                                    "SUBMIT(llm_query('fine'))")
    assert submitted(droste.cell(code, *flags)) == {"output": "fine"}
    wait_until(lambda: server.stats()["cancelled"] == 1, what="the end of the request")
    assert server.stats()["idempotency"] and server.stats()["requests"] == 6


AT_THE_DEADLINE = """import threading
said = []
def ask():
    try: llm_query('hang thread')
    except LLMError as e: said.append([type(e).__name__, e.code, isinstance(e, TimeoutError)])
thread = threading.Thread(target=ask)
thread.start()
try: llm_query('hang own')
except BaseException as e:
    said.append(type(e).__name__)
    raise"""
AFTER_IT = "thread.join()\nSUBMIT(said)"


def test_at_its_deadline_a_cell_gives_up_its_call_and_its_threads_time_out(tree, droste):
    """The cell's own thread is interrupted, and its call is `cancelled`; that of another is a
    `timeout`, for the guest and in the record."""
    script = [line("root", repl(AT_THE_DEADLINE), "Turn 1 of"),
              line("root", repl(AFTER_IT), "longer than"),
              line("one", hang=True, repeat=True)]
    for limit in 1, 10:
        result, _ = tree(script, "--execute-timeout", limit, *PATIENT)
        calls = {call["request"]: call["status"] for call in droste.lines("call")
                 if call["kind"] == "sub" and call["run"] == result.json["run"]}
        if len(calls) == 2:
            break       # else the deadline came before the calls
    assert result.status == 0 and result.json["answer"] == ["KeyboardInterrupt",
                                                            ["LLMTimeout", "timeout", True]], result
    assert calls == {"hang own": "cancelled", "hang thread": "timeout"}


def test_a_session_has_the_same_at_a_deadline(droste, sub):
    """`droste repl`: the next cell finds its thread's call over, and asks again."""
    server, flags = sub
    cells = AT_THE_DEADLINE + "\n\n" + AFTER_IT.replace("SUBMIT(said)",
                                                        "print(said, llm_query('fine'))") + "\n"
    for limit in "1", "10":
        before = server.stats()["requests"]
        result = droste("repl", *flags, "--execute-timeout", limit, *PATIENT, input=cells)
        if server.stats()["requests"] == before + 3:
            break       # else the deadline came before the calls
    assert "['KeyboardInterrupt', ['LLMTimeout', 'timeout', True]] fine" in result.out, result


def test_a_future_outlives_its_cell(droste, replay):
    """It was asked for in one cell and is there in the next; an answered one is not cancelled."""
    turns = [repl("f = llm_submit('one')"), repl("assert f.result() == 'child' and not f.cancel()"),
             repl("SUBMIT(f.result())")]
    result = droste("run", "--question", "q", "--json", "--model",
                    replay(*turns, {"content": "child", "depth": 1, "repeat": True}))
    assert result.json["answer"] == "child"


def test_exceptions_reach_futures_and_tasks(droste, sub):
    """As they would reach a plain call: what the server refused, what is not a prompt, what the
    budget has no room for."""
    _, flags = sub
    code = ("import asyncio\n"
            "def name(f):\n    try: return f()\n    except Exception as e: return "
            "type(e).__name__, getattr(e, 'code', '')\n"
            "found = [name(llm_submit('broken').result), name(lambda: llm_submit('')), "
            "name(lambda: llm_submit(3)),\n"
            "         name(llm_submit('fine').result)]\n"
            "try: await llm_query_async('broken')\n"
            "except LLMError as e: found.append(e.code)\n"
            "found.append(type(llm_submit('fine').exception()).__name__)\n"
            "SUBMIT(found)")
    found = submitted(droste.cell(code, *flags, "--max-llm-calls", "3"))["output"]
    assert found == [["LLMError", "model"], ["ValueError", ""], ["TypeError", ""], "fine", "model",
                     "BudgetExceeded"]


def test_a_failed_item_is_a_text_or_an_exception_by_choice(droste, sub):
    """Neither way loses the others; another word is refused before anything is asked."""
    server, flags = sub
    code = ("a = llm_query_batched(['x', 'broken', 'y'])\n"
            "b = llm_query_batched(['x', 'broken', 'y'], errors='return')\n"
            "try: llm_query_batched(['x'], errors='never')\n"
            "except ValueError as e: word = str(e)\n"
            "SUBMIT(a=[a[0], a[1][:8], a[1].error.code, a[2]], b=[b[0], type(b[1]).__name__, "
            "b[1].code, b[2]], word=word)")
    found = submitted(droste.cell(code, *flags))
    assert found["a"] == ["fine", "[ERROR] ", "model", "fine"]
    assert found["b"] == ["fine", "LLMError", "model", "fine"]
    assert found["word"] == "errors must be 'mark' or 'return', not 'never'"
    assert server.stats()["requests"] == 6


# The smallest image that services accept: one grey pixel.
PIXEL = ("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR42mNg"
         "AAAAAgAB5Sfe/AAAAABJRU5ErkJggg==")
PNG = "__import__('base64').b64decode(%r)" % PIXEL
PROMPTS = {
    "bytes beside a text": "['what is it?', %s]" % PNG,
    "bytes in a message": "[{'role': 'user', 'content': ['what is it?', %s]}]" % PNG,
    "a part with its type": "[{'role': 'user', 'content': [{'type': 'text', 'text': 'what is it?'},"
                            " {'type': 'image', 'media_type': 'image/png', 'data': %s}]}]" % PNG,
    "as OpenAI spells it":
    "[{'role': 'user', 'content': [{'type': 'text', 'text': 'what is it?'}, {'type': 'image_url',"
                           " 'image_url': {'url': 'data:image/png;base64,' + "
                           "__import__('base64').b64encode(%s).decode()}}]}]" % PNG,
}
URL = "data:image/png;base64," + PIXEL


@pytest.mark.parametrize("prompt", PROMPTS)
def test_an_image_reaches_the_model(droste, serve, prompt):
    """However it is given, the server gets one message with the text and the image as parts of
    it."""
    server = serve()
    result = droste.cell("SUBMIT(llm_query(%s))" % PROMPTS[prompt], "--base-url", server.url,
                         "--model", "ok")
    assert submitted(result) == {"output": "The answer is ⟨42⟩."}
    (message,) = server.stats()["last"]["body"]["messages"]
    assert message["content"] == [{"type": "text", "text": "what is it?"},
                                  {"type": "image_url", "image_url": {"url": URL}}]


def test_what_is_no_part_is_refused_before_it_is_asked(droste, serve):
    """Twins of the images: unknown bytes, an image from the net, nothing, a number, and an image of
    the model's side."""
    server = serve()
    code = (
        "def why(p):\n    try: return llm_query(p)\n    except (ValueError, TypeError) as e: "
        "return type(e).__name__, str(e)[:40]\n"
        "SUBMIT([why([b'what?']), why([]), why(['x', 3]), why([{'role': 'user', 'content': []}]),\n"
        "  why([{'role': 'user', 'content': [{'type': 'image_url', 'image_url': "
        "'http://a/b.png'}]}]),\n"
        "  why([{'role': 'assistant', 'content': [%s]}]), why([{'role': 'user', 'content': "
        "[{'type': 'image',\n"
        "  'media_type': 'nonsense', 'data': b'x'}]}])])" % PNG)
    found = submitted(droste.cell(code, "--base-url", server.url, "--model", "ok"))["output"]
    assert [kind for kind, _ in found] == ["ValueError", "TypeError", "TypeError", "TypeError",
                                           "ValueError",
                                           "ValueError", "ValueError"], found
    assert server.stats()["requests"] == 0


def test_a_prompt_of_100_mb(droste, serve):
    """It arrives whole, and the next call works too."""
    server = serve()
    code = "n = 100 * 1000 * 1000\nSUBMIT([llm_query('x' * n), llm_query('short')])"
    result = droste.cell(code, "--base-url", server.url, "--model", "echo", "--memory", "2G")
    assert submitted(result)["output"] == ["100000000:" + "x" * 32, "5:short"]
    assert server.stats()["bytes_in"] > 100 * 1000 * 1000
