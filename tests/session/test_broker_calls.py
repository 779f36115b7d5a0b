"""Calls from the guest to models: from threads, asyncio and futures; batches and their failures;
budgets; what is late.

SECURITY.md: "A forged call is a call". DESIGN.md: "Many calls may be open at once, from many guest
threads; replies come back in any order." And of the budget: "what cannot be reserved is refused
with a typed error in the guest (`BudgetExceeded`), saying what was spent of what".
"""
import threading

import pytest

import adapters


class Backwards:
    """A model that answers nobody until `count` have asked, and then the last one first."""

    def __init__(self, count):
        self.count, self.asked, self.lock = count, [], threading.Condition()

    def __call__(self, messages):
        question = messages[-1]["content"]
        with self.lock:
            self.asked.append(question)
            self.lock.notify_all()
            assert self.lock.wait_for(lambda: len(self.asked) >= self.count, 60)
            assert self.lock.wait_for(lambda: self.asked[-1] == question, 60)
            self.asked.pop()
            self.count -= 1
            self.lock.notify_all()
        return "re: " + question


WAYS = {
    "threads": "import threading\ngot = {}\ndef ask(q): got[q] = llm_query(q)\n"
               "ts = [threading.Thread(target=ask, args=(q,)) for q in qs]\n[t.start() for t in "
               "ts]\n[t.join() for t in ts]",
    "asyncio":
    "import asyncio\ngot = dict(zip(qs, await asyncio.gather(*[llm_query_async(q) for q in qs])))",
    "futures":
    "from concurrent.futures import as_completed\nfs = {llm_submit(q): q for q in qs}\ngot = "
    "{fs[f]: f.result() for f in as_completed(fs)}",
    "a pool":
    "from concurrent.futures import ThreadPoolExecutor\nwith ThreadPoolExecutor(8) as p: got = "
    "dict(zip(qs, p.map(llm_query, qs)))",
    "a batch": "got = dict(zip(qs, llm_query_batched(qs)))",
    "batches of children": "got = dict(zip(qs, rlm_query_batched(qs)))",
}


@pytest.mark.parametrize("caller", WAYS)
def test_answers_go_to_who_asked(opened, caller):
    """Eight calls are open at once and are answered in the reverse of their order: each gets its
    own answer."""
    # no child may begin: a model is asked
    interp = opened(model=Backwards(8), max_recursion_depth=0)
    result = interp.execute("qs = ['question %d' % n for n in range(8)]\n" + WAYS[caller]
                            + "\nSUBMIT(got=got)")
    assert result.ok, result.error.traceback
    assert result.got == {"question %d" % n: "re: question %d" % n for n in range(8)}


def test_a_child_run_has_a_session_of_its_own(opened):
    """In the same environment, with its context as the value that it was; and so has one below
    it."""
    def model(messages):
        deeper = "" if "below" in messages[1]["content"] else ", rlm_query('below', context)"
        return "```repl\nmine = 'theirs' not in globals()\nSUBMIT([mine, context%s])\n```" % deeper

    result = opened(model=model).execute("theirs = 1\nSUBMIT(got=rlm_query('q', {'a': [1, None]}))")
    assert result.ok, result.error.traceback
    assert result.got == [True, {"a": [1, None]}, [True, {"a": [1, None]}]]


def test_many_calls_of_many_threads(session):
    """Hundreds of calls from 32 threads, none lost and none exchanged."""
    assert session.execute("from concurrent.futures import ThreadPoolExecutor\n"
                           "with ThreadPoolExecutor(32) as p: got = list(p.map(lambda n: "
                           "llm_query('q%d' % n) == 're: q%d' % n, range(300)))\n"
                           "SUBMIT(good=sum(got))").good == 300


def test_a_failed_item_of_a_batch_fails_alone(session):
    """Per-item failures: the others have their replies, in order; the place says what failed, and
    `.error` has it."""
    result = session.execute("r = llm_query_batched(['a', 'fail b', 'c'])\n"
                             "SUBMIT(texts=r, failed=[isinstance(x, FailedReply) for x in r], "
                             "error=[type(r[1].error).__name__, r[1].error.code != ''])")
    assert result.texts[0] == "re: a" and result.texts[2] == "re: c" and result.texts[1].startswith(
        "[ERROR] ") and "fail b" in result.texts[1]
    assert (result.failed, result["error"]) == ([False, True, False], ["LLMError", True])
    assert session.execute(
        "type(llm_query_batched(['a', 'fail'], errors='return')[1]).__name__").echo == "'LLMError'"


def test_a_failed_call_raises_and_the_session_goes_on(session):
    """LLMError in the guest, with the host's words and a code."""
    result = session.execute(
        "try: llm_query('fail so')\nexcept LLMError as e: SUBMIT(message=str(e), code=e.code)")
    assert "told to fail so" in result.message and result.code
    assert session.execute("llm_query('a')").echo == "'re: a'"
    assert session.execute("llm_query('fail so')").error.type == "LLMError"


@pytest.mark.parametrize("code, kind", [
    ("llm_query(5)", "TypeError"), ("llm_query('')", "ValueError"),
    ("llm_query([{'role': 'odd', 'content': 'x'}])", "ValueError"),
    ("llm_query_batched('one')", "TypeError"), ("llm_query_batched([1])", "TypeError"),
    ("llm_query('a', model=5)", "TypeError")])
def test_a_prompt_of_a_wrong_kind_is_refused(session, asked, code, kind):
    """In the guest, before anything is asked."""
    assert session.execute(code).error.type == kind and asked == []


def test_prompts_may_be_conversations(opened):
    """Messages with roles arrive as they were given."""
    seen = []
    interp = opened(model=lambda messages: seen.append(messages) or "said")
    conversation = [{"role": "system", "content": "Be short."}, {"role": "user", "content": "q"}]
    assert interp.execute("llm_query(%r)" % conversation).echo == "'said'"
    assert [(m["role"], m["content"]) for m in seen[0]] == [("system", "Be short."), ("user", "q")]


def test_without_a_model_calls_say_so(opened):
    """LLMError, `config`."""
    assert opened().execute(
        "try: llm_query('a')\nexcept LLMError as e: SUBMIT(code=e.code)").code == "config"


def test_a_budget_that_is_spent_refuses_typed(opened):
    """Budgets are refused typed: BudgetExceeded says what was spent of what; nothing is asked any
    more."""
    asked = []
    interp = opened(model=lambda messages: asked.append(1) or "a", max_llm_calls=3)
    result = interp.execute(
        "llm_query('1'); llm_query('2')\ntry: llm_query_batched(['3', '4'])\nexcept BudgetExceeded "
        "as e: SUBMIT(message=str(e))")
    # a batch that has no room is refused as a whole
    assert "3" in result.message and len(asked) == 2
    assert interp.execute("llm_query('3')").ok and len(asked) == 3
    error = interp.execute("llm_query('4')").error
    assert error.type == "BudgetExceeded" and "3" in error.message and len(asked) == 3


def test_a_budget_holds_for_threads(opened):
    """Of eight calls at once, as many as there is room for are made."""
    asked = []
    interp = opened(model=lambda messages: asked.append(1) or "a", max_llm_calls=5)
    result = interp.execute(
        "import threading\ngot = []\ndef ask():\n    try: got.append(llm_query('q'))\n    except "
        "BudgetExceeded: got.append(None)\n"
        "ts = [threading.Thread(target=ask) for _ in range(8)]\n[t.start() for t in ts]\n[t.join() "
        "for t in ts]\nSUBMIT(got=got)")
    assert (len(asked), result.got.count("a"), result.got.count(None)) == (5, 5, 3)


def test_a_future_may_outlive_its_cell(session):
    """An answer that comes in a later cell is there for whoever asks then."""
    session.execute("f = llm_submit('early')")
    assert session.execute("f.result()").echo == "'re: early'"


def test_threads_may_ask_between_cells(session):
    """A thread that goes on after its cell still gets answers."""
    session.execute(
        "import threading\ngot = []\ndef work():\n    for n in range(5): "
        "got.append(llm_query(str(n)))\nt = threading.Thread(target=work)\nt.start()")
    assert session.execute("t.join()\nSUBMIT(got=got)").got == ["re: %d" % n for n in range(5)]


def test_a_task_that_is_cancelled_cancels_its_call(opened):
    """asyncio.wait_for: the others go on, and the late answer is nobody's."""
    go = threading.Event()

    def model(messages):
        if messages[-1]["content"] == "slow":
            go.wait(60)
        return "re: " + messages[-1]["content"]

    interp = opened(model=model)
    result = interp.execute(
        "import asyncio\ntry: await asyncio.wait_for(llm_query_async('slow'), 0.1)\nexcept "
        "asyncio.TimeoutError: late = True\n"
        "SUBMIT(late=late, next=await llm_query_async('next'))")
    go.set()
    assert result.fields == {"late": True, "next": "re: next"}


def test_a_call_that_waits_too_long_is_a_timeout_in_the_guest(opened):
    """broker_timeout: LLMTimeout, which is a TimeoutError, and the code goes on."""
    go = threading.Event()
    interp = opened(model=lambda messages: go.wait(60) and "late", broker_timeout=0.2)
    result = interp.execute(
        "try: llm_query('a')\nexcept TimeoutError as e: SUBMIT(kind=type(e).__name__)")
    go.set()
    assert result.kind == "LLMTimeout"


def test_a_fork_does_not_speak_for_the_guest(session):
    """A child of the guest's own has no channel and is told so; the parent's goes on."""
    result = session.execute(
        "import os\nr, w = os.pipe()\npid = os.fork()\nif pid == 0:\n    try: llm_query('x')\n"
        "    except RuntimeError as e: x = os.write(w, str(e).encode())\n    os._exit(0)\nx = "
        "os.waitpid(pid, 0)\n"
        "SUBMIT(message=os.read(r, 1000).decode(), mine=llm_query('a'))")
    assert "no channel" in result.message and result.mine == "re: a"


def test_a_forged_call_is_a_call(environment, opened):
    """It counts against the limits like an honest one, and its answer is nobody's."""
    asked = []
    interp = opened(model=lambda messages: asked.append(messages[-1]["content"]) or "a",
                    max_llm_calls=2)
    interp.execute(environment.raw
                   + "import struct\ndef forge(ident):\n    head = b'{\"name\":\"llm_query\"}'\n"
                   "    blob = struct.pack('<IQ', 1, 1) + b'x'\n    raw(struct.pack('<BBHIQQ', 1, "
                   "19, 0, len(head), ident, len(blob)) + head + blob)")
    interp.execute("forge(10 ** 9)")
    result = interp.execute(
        "llm_query('1')\ntry: llm_query('2')\nexcept BudgetExceeded: SUBMIT(refused=True)")
    assert result.fields == {"refused": True}
    assert adapters.wait_for(lambda: len(asked) == 2) and sorted(asked) == ["1", "x"]


AWKWARD = ["nul \0 in it", "\ufeffBOM", "\U0001f600 \U0001f468\u200d\U0001f469", "a\r\nb\rc\n\n",
           "\u2028\u2029\x85", "'''\"\"\"\\", "\x1b[0m\x7f", " "]


@pytest.mark.parametrize("text", AWKWARD, ids=["NUL", "BOM", "emoji", "line ends", "separators",
                                               "quotes", "controls", "blank"])
def test_texts_arrive_unchanged_in_both_directions(session, asked, text):
    """Prompts and answers are not changed on the way."""
    assert session.execute("SUBMIT(same=llm_query('%s' + text) == 're: %s' + text)" % ("q", "q"),
                           {"text": text}).same is True
    assert asked == ["q" + text]


def test_large_prompts_and_answers(session, asked):
    """5 MiB to the model, and back."""
    assert session.execute(
        "n = 5 << 20\nSUBMIT(same=llm_query('x' * n) == 're: ' + 'x' * n)").same is True
    assert asked == ["x" * (5 << 20)]
