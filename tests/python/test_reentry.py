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
    said = []
    thread = threading.Thread(target=lambda: said.append(caught(use)), daemon=True)
    thread.start()
    thread.join()
    return said[0]


def polled_for(use):
    said = []
    thread = threading.Thread(target=lambda: said.append(caught(use)), daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(0.05)
    return said[0]


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
    said, done = [], threading.Event()

    def work(event):
        said.append(caught(use))
        event.set()
    threading.Thread(target=work, args=(done,), daemon=True).start()
    done.wait()
    return said[0]


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
    said = []
    thread = threading.Thread(target=lambda: said.append(work()), daemon=True)
    thread.start()
    thread.join(60)
    assert said, "it hangs"
    return said[0]


def tool_of(way, use):
    if way in ASYNC:
        async def tool():
            return await way(use)
    else:
        def tool():
            return way(use)
    return tool


@pytest.mark.parametrize("threads", [False, True], ids=["in the thread that waits", "tool_threads"])
@pytest.mark.parametrize("way", SYNC + ASYNC)
def test_a_tool_cannot_use_its_own_session(way, threads):
    """However it goes about it; the session goes on."""
    def work():
        interp = Interpreter(tool_threads=threads)
        interp.tools["tool"] = tool_of(way, lambda: interp.execute("1"))
        with interp:
            said = interp.execute("SUBMIT(said=tool())").raise_for_status().said
            return said, interp.execute("2").echo
    said, echo = within_a_minute(work)
    assert echo == "2" and ("each would wait for the other" in said
                            or "the session is busy" in said), said


@pytest.mark.parametrize("way", [by_itself, in_a_thread, in_an_executor])
@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("threads", [False, True], ids=["in the thread that waits", "tool_threads"])
def test_no_entry_hangs(use, way, threads):
    def work():
        interp = Interpreter(tool_threads=threads)
        interp.tools["tool"] = tool_of(way, lambda: USES[use](interp))
        with interp:
            return interp.execute("SUBMIT(said=tool())").raise_for_status().said, interp.execute(
                "2").echo
    said, echo = within_a_minute(work)
    assert echo == "2" and any(words in said for words in (
        "each would wait for the other", "the session is busy",
        "cannot shut down the session")), said


@pytest.mark.parametrize("way", SYNC + ASYNC)
@pytest.mark.parametrize("use", ["execute", "start", "shutdown"])
def test_a_shared_session_is_the_same(use, way):
    """Those on Droste's own loop, as dspy has them."""
    def work():
        session = Shared("Shared")
        session.tools = {"tool": tool_of(way, lambda: USES[use](session))}
        session.start()
        said, echo = session.execute(
            "SUBMIT(said=tool())").raise_for_status().said, session.execute("2").echo
        session.shutdown()
        return said, echo
    said, echo = within_a_minute(work)
    assert echo == "2" and "each would wait for the other" in said, said


@pytest.mark.parametrize("way", ASYNC + [by_itself, in_a_thread])
def test_within_asyncio_it_is_the_same(way):
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
        interp.tools.update(tool=tool_of(way, lambda: interp.execute("1").ok), again=again)
        async with interp:
            said = [(await interp.execute("SUBMIT(said=tool())")).raise_for_status().said]
            pending.append(interp.execute("SUBMIT(said=again())"))
            said.append((await pending[0]).said)
            assert (await interp.execute("2")).echo == "2"
            return said
    said, awaited = within_a_minute(lambda: asyncio.run(asyncio.wait_for(main(), 50)))
    assert "each would wait for the other" in said or "another running event loop" in said, said
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
