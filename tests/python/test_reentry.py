"""A tool that uses the session whose code called it, by itself or through a thread that it waits
for: an error, never a hang."""
import asyncio
import concurrent.futures
import queue
import threading

import pytest

import droste
from droste import _engine, Interpreter
from droste._shared import Shared

POOL = concurrent.futures.ThreadPoolExecutor(4)


def use_with(interp):
    with interp:
        pass


USES = {"execute": lambda i: i.execute("1"), "start": lambda i: i.start(), "with": use_with,
        "shutdown": lambda i: i.shutdown(),
        "set": lambda i: i.set("x", 1), "get": lambda i: i.get("x"),
        "load": lambda i: i.load("x", __file__), "close": lambda i: i.close()}


def caught(use):
    """What it raises, as text."""
    try:
        use()
    except droste.Error as e:
        return str(e)
    return "nothing was raised"


# -- how a tool has another thread do it, and waits for that

def by_itself(use):
    return caught(use)


def in_a_thread(use):
    text = []
    thread = threading.Thread(target=lambda: text.append(caught(use)), daemon=True)
    thread.start()
    thread.join()
    return text[0]


def polled_for(use):
    text = []
    thread = threading.Thread(target=lambda: text.append(caught(use)), daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(0.05)
    return text[0]


def in_a_pool(use):
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        return pool.submit(caught, use).result()


def in_a_pool_that_was_there(use):
    POOL.submit(int).result()
    return POOL.submit(caught, use).result()


def mapped(use):
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        return list(pool.map(caught, [use]))[0]


def completed(use):
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        (future,) = concurrent.futures.as_completed([pool.submit(caught, use)])
        return future.result()


def waited_for_all(use):
    future = POOL.submit(caught, use)
    concurrent.futures.wait([future])
    return future.result()


def signalled(use):
    text, done = [], threading.Event()

    def work(event):
        text.append(caught(use))
        event.set()
    threading.Thread(target=work, args=(done,), daemon=True).start()
    done.wait()
    return text[0]


def queued(use):
    answers = queue.Queue()

    def work(to):
        to.put(caught(use))
    threading.Thread(target=work, args=(answers,), daemon=True).start()
    return answers.get()


async def in_an_executor(use):
    return await asyncio.get_running_loop().run_in_executor(None, caught, use)


async def in_an_executor_and_a_task(use):
    return (await asyncio.gather(asyncio.ensure_future(in_an_executor(use))))[0]


async def in_a_thread_with_its_context(use):
    import contextvars
    return await asyncio.get_running_loop().run_in_executor(None, contextvars.copy_context().run,
                                                            caught, use)


def on_a_loop_of_its_own(use):
    return asyncio.run(in_an_executor(use))


async def awaited_by_itself(use):
    return caught(use)


SYNC = [by_itself, in_a_thread, polled_for, in_a_pool, in_a_pool_that_was_there, mapped, completed,
        waited_for_all, signalled, queued,
        on_a_loop_of_its_own]
ASYNC = [in_an_executor, in_an_executor_and_a_task, in_a_thread_with_its_context, awaited_by_itself]


def within_a_minute(work):
    """A hang is a failure."""
    text = []
    thread = threading.Thread(target=lambda: text.append(work()), daemon=True)
    thread.start()
    thread.join(60)
    assert text, "it hangs"
    return text[0]


def tool_of(caller, use):
    if caller in ASYNC:
        async def tool():
            return await caller(use)
    else:
        def tool():
            return caller(use)
    return tool


@pytest.mark.parametrize("threads", [False, True], ids=["in the thread that waits", "tool_threads"])
@pytest.mark.parametrize("caller", SYNC + ASYNC)
def test_a_tool_cannot_use_its_own_session(caller, threads):
    """However it goes about it; the session goes on."""
    def work():
        interp = Interpreter(tool_threads=threads)
        interp.tools["tool"] = tool_of(caller, lambda: interp.execute("1"))
        with interp:
            text = interp.execute("SUBMIT(text=tool())").raise_for_status().text
            return text, interp.execute("2").echo
    text, echo = within_a_minute(work)
    assert echo == "2" and ("each would wait for the other" in text
                            or "the session is busy" in text), text


@pytest.mark.parametrize("caller", [by_itself, in_a_thread, in_an_executor])
@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("threads", [False, True], ids=["in the thread that waits", "tool_threads"])
def test_no_entry_hangs(use, caller, threads):
    def work():
        interp = Interpreter(tool_threads=threads)
        interp.tools["tool"] = tool_of(caller, lambda: USES[use](interp))
        with interp:
            return interp.execute("SUBMIT(text=tool())").raise_for_status().text, interp.execute(
                "2").echo
    text, echo = within_a_minute(work)
    assert echo == "2" and any(words in text for words in (
        "each would wait for the other", "the session is busy",
        "cannot shut down the session")), text


@pytest.mark.parametrize("caller", SYNC + ASYNC)
@pytest.mark.parametrize("use", ["execute", "start", "shutdown"])
def test_a_shared_session_is_the_same(use, caller):
    """Those on Droste's own loop, as dspy has them."""
    def work():
        session = Shared("Shared")
        session.tools = {"tool": tool_of(caller, lambda: USES[use](session))}
        session.start()
        text, echo = session.execute(
            "SUBMIT(text=tool())").raise_for_status().text, session.execute("2").echo
        session.shutdown()
        return text, echo
    text, echo = within_a_minute(work)
    assert echo == "2" and "each would wait for the other" in text, text


@pytest.mark.parametrize("caller", ASYNC + [by_itself, in_a_thread])
def test_within_asyncio_it_is_the_same(caller):
    """A thread is told of the loop; awaiting an earlier result of the session in a tool is refused,
    too."""
    async def main():
        pending = []

        async def again():
            try:
                return await pending[0]
            except droste.Error as e:
                return str(e)

        interp = Interpreter()
        interp.tools.update(tool=tool_of(caller, lambda: interp.execute("1").ok), again=again)
        async with interp:
            text = [(await interp.execute("SUBMIT(text=tool())")).raise_for_status().text]
            pending.append(interp.execute("SUBMIT(text=again())"))
            text.append((await pending[0]).text)
            assert (await interp.execute("2")).echo == "2"
            return text
    text, awaited = within_a_minute(lambda: asyncio.run(asyncio.wait_for(main(), 50)))
    assert "each would wait for the other" in text or "another running event loop" in text, text
    assert "each would wait for the other" in awaited


@pytest.mark.parametrize("threads", [False, True], ids=["in the thread that waits", "tool_threads"])
@pytest.mark.parametrize("shared", [False, True], ids=["its own engine", "shared"])
def test_a_thread_that_no_tool_waits_for_waits_its_turn(shared, threads):
    """Also one that began while the tool runs, with the tool waiting for something else."""
    def work():
        interp = Shared("Shared") if shared else Interpreter(tool_threads=threads)
        asked, say = threading.Event(), threading.Event()

        def tool():
            asked.set()
            say.wait()
            return 1

        interp.tools = {"tool": tool}
        interp.start()
        found = []
        first = threading.Thread(target=lambda: found.append(interp.execute("x = tool(); x").echo))
        first.start()
        asked.wait()
        second = threading.Thread(target=lambda: found.append(interp.execute("x + 1").echo))
        second.start()
        second.join(1)      # several looks
        assert second.is_alive() and not found
        say.set()
        first.join()
        second.join()
        interp.shutdown()
        return found
    assert within_a_minute(work) == ["1", "2"]


def test_a_tool_may_start_a_session_of_its_own():
    """Also one that was never opened before, in a tool of a run, of which no session is the
    owner."""
    def tool():
        with Interpreter() as interp:
            return interp.execute("SUBMIT(a=1)").a

    async def main():
        return (await droste.RLM(lambda messages: "```repl\nSUBMIT(answer=tool())\n```",
                                 tools=[tool], database="none").arun("q")).answer
    assert within_a_minute(lambda: asyncio.run(main())) == 1


def test_sessions_that_wait_for_one_another_do_not_run_out_of_threads(monkeypatch):
    """A tool that waits for another session keeps its thread; those of that session have others."""
    monkeypatch.setattr(_engine, "_threads", {})
    monkeypatch.setattr(_engine, "THREADS", 1)
    assert within_a_minute(lambda: nested(Shared("Shared"), 0)) == 20


def nested(session, depth):
    if depth == 20:
        return depth
    session.tools = {"tool": lambda: nested(Shared("Shared"), depth + 1)}
    session.start()
    try:
        return session.execute("SUBMIT(a=tool())").raise_for_status().a
    finally:
        session.shutdown()
