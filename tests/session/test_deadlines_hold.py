"""DESIGN.md: "Deadlines belong to the host: at the soft one the guest is interrupted and the state
is kept; after the grace it is killed." No test asserts how long something took: a deadline that did
not hold would hold the test up until its own limit, and cells sleep for a minute where they must be
ended before.
"""
import contextlib
import threading

import pytest

import droste
from deadlines import cut_short

SOON = 0.1


@pytest.fixture(autouse=True)
def kept(request):
    """Every session has a variable, to see whether its state is kept, and its modules: an import
    that a deadline stops half-way is half a module for ever, as in any Python."""
    if "session" in request.fixturenames:
        request.getfixturevalue("session").execute(
            "kept = 41\nimport asyncio, os, queue, signal, subprocess, threading, time")


def still_there(interp):
    return interp.execute("SUBMIT(n=kept + 1)").n == 42


WAYS_TO_LAST = {
    "a loop": "while True: pass",
    "a sleep": "import time; time.sleep(60)",
    "a lock": "import threading; l = threading.Lock(); l.acquire(); l.acquire()",
    "an event": "import threading; threading.Event().wait()",
    "a thread that is joined":
    "import threading; t = threading.Thread(target=threading.Event().wait, daemon=True); "
    "t.start(); t.join()",
    "a queue": "import queue; queue.Queue().get()",
    "a program": "import subprocess; subprocess.run(['sleep', '60'])",
    "a pipe": "import os; r, w = os.pipe(); os.read(r, 1)",
    "an await": "import asyncio; await asyncio.sleep(60)",
    "a helper": "run('sleep 60')",
    "an expression": "grep('a' * 60 + 'b', '(a+)+$')",
    "a last expression": "x = 1\n[n for n in iter(int, 1)]",
    "a broad except": "try:\n    while True: pass\nexcept Exception: pass",
}


@pytest.mark.parametrize("case", WAYS_TO_LAST)
def test_the_soft_deadline_keeps_the_state(session, case):
    """At the soft deadline the guest is interrupted and the state is kept, whatever it waits
    for."""
    result = session.execute(WAYS_TO_LAST[case], timeout=SOON)
    assert (result.status, result.error.type, result.alive) == ("timeout", "TimeoutError", True)
    assert still_there(session)


def test_a_call_that_waits_for_its_answer_is_interrupted(opened):
    """The code that waits in llm_query stops; the next question gets its own answer, and not the
    late one."""
    go = threading.Event()

    def model(messages):
        if messages[-1]["content"] == "slow":
            go.wait(60)
        return "re: " + messages[-1]["content"]

    interp = opened(model=model)
    interp.execute("kept = 41")
    result = interp.execute("llm_query('slow')", timeout=SOON)
    assert result.status == "timeout", (result, result.error, result.stderr)
    threading.Timer(0.1, go.set).start()
    assert interp.execute(
        "[llm_query('q%d' % n) for n in range(3)]").echo == "['re: q0', 're: q1', 're: q2']"
    go.set()
    assert still_there(interp)


ESCAPES = {
    "an ignored signal":
    "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass",
    "a signal handler":
    "import signal\nsignal.signal(signal.SIGINT, lambda *a: None)\nwhile True: pass",
    "a blocked signal":
    "import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, range(1, 64))\nwhile True: pass",
    "code in C": "sum(range(10 ** 15))",
    "a stopped process": "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)",
}
# What an interrupt may reach all the same, as the host does not ask only once.
HIDING_PLACES = {
    "except BaseException":
    "while True:\n    try:\n        while True: pass\n    except BaseException: pass",
    "finally": "import time\ntry: time.sleep(60)\nfinally: time.sleep(60)",
    "a __del__": "class D:\n    def __del__(self):\n        while True: pass\nd = D()\ndel d",
}


@pytest.mark.parametrize("case", ESCAPES)
def test_no_code_escapes_the_kill(opened, case):
    """After the grace it is killed: nothing that the code does about interrupts makes it last."""
    interp = opened(grace=SOON)
    interp.execute("1")         # a start may take longer than that
    result = cut_short(interp, ESCAPES[case], lambda result: not result.alive)
    assert (result.status, result.error.type, result.killed,
            result.alive) == ("timeout", "TimeoutError", "timeout", False)
    with pytest.raises(droste.TimedOut):
        interp.execute("1")


@pytest.mark.parametrize("place", HIDING_PLACES)
def test_no_code_hides_from_the_deadline(opened, place):
    """It is stopped or killed, and the result says which: either way it ends as a timeout."""
    interp = opened(grace=SOON)
    interp.execute("kept = 41")
    result = interp.execute(HIDING_PLACES[place], timeout=SOON)
    assert (result.status, result.killed) == ("timeout", None if result.alive else "timeout")
    if result.alive:
        assert still_there(interp)
    else:
        with pytest.raises(droste.TimedOut):
            interp.execute("1")


def test_threads_that_spin_do_not_keep_the_deadline_away(opened):
    """The main thread is interrupted while others have the processor, and other threads go on."""
    interp = opened()
    interp.execute(
        "kept, stop = 41, False\nimport threading\ndef spin():\n    while not stop: pass\n"
        "for _ in range(4): threading.Thread(target=spin, daemon=True).start()")
    assert interp.execute("import time; time.sleep(60)", timeout=SOON).status == "timeout"
    assert interp.execute("stop = True\nSUBMIT(n=kept + 1)").n == 42


def test_a_cell_within_its_deadline_is_not_disturbed(session):
    """The twin; and no interrupt of one cell reaches the next."""
    for n in range(20):
        assert session.execute("x = sum(range(1000))", timeout=60).status == "ok"
    for n in range(3):
        session.execute("while True: pass", timeout=0.05)
        assert session.execute("import time; time.sleep(0.05); 5").echo == "5"


def test_an_interrupted_loop_of_asyncio_can_be_used_again(session):
    """Top-level await after a deadline that hit one."""
    session.execute("import asyncio")
    assert session.execute("await asyncio.sleep(60)", timeout=SOON).status == "timeout"
    result = session.execute("await asyncio.sleep(0, 'again')")
    assert result.echo == "'again'", result.json


def test_what_was_interrupted_in_an_await_does_not_go_on_later(session):
    """The rest of the cell is not run by the next one that awaits; its `finally` was."""
    session.execute("import asyncio\nseen, go = [], asyncio.Event()")
    code = ("try:\n    await go.wait()\n    seen.append('went on')\nfinally:\n    "
            "seen.append('finally')")
    result = cut_short(session, code, lambda _: session.execute("seen").echo != "[]")
    assert result.status == "timeout"
    assert session.execute(
        "go.set()\nfor _ in range(5): await asyncio.sleep(0)\nseen").echo == "['finally']"


def test_a_late_cell_may_still_submit(session):
    """What is submitted within the grace counts, and the result says that it was late."""
    code = "import time\ntry: time.sleep(60)\nexcept KeyboardInterrupt: SUBMIT(late=True)"
    result = cut_short(session, code, lambda result: result.fields)
    assert (result.status, result.fields) == ("submitted", {"late": True}) and result.json["error"][
        "type"] == "TimeoutError"


def test_the_sessions_own_deadline_ends_it(opened):
    """`timeout` of a session kills at once, cells that would have been quick included."""
    for timeout in (1, 10, 60):     # the start takes some of it
        with contextlib.suppress(droste.TimedOut):
            interp = opened(timeout=timeout)
            result = interp.execute("import time\ntime.sleep(100)")
            break
    assert (result.status, result.killed, result.alive) == ("timeout", "timeout", False)
    with pytest.raises(droste.TimedOut):
        interp.execute("1")


def interrupt_when_running(opened, code, **settings):
    """Runs a cell that calls started(), upon which somebody in another thread interrupts it."""
    running = threading.Event()
    interp = opened(tools={"started": running.set}, **settings)
    interp.execute("kept = 41")
    thread = threading.Thread(target=lambda: running.wait(60) and interp.interrupt())
    thread.start()
    result = interp.execute(code)
    thread.join(60)
    return interp, result


@pytest.mark.parametrize("code", ["started()\nwhile True: pass",
                                  "import time\nstarted()\ntime.sleep(60)"])
def test_an_interrupt_stops_the_cell_and_keeps_the_state(opened, code):
    """Interpreter.interrupt, the way of Ctrl-C: KeyboardInterrupt in the cell, and the session goes
    on."""
    interp, result = interrupt_when_running(opened, code)
    assert (result.status, result.error.type, result.alive) == ("error", "KeyboardInterrupt", True)
    assert still_there(interp)


def test_an_interrupt_that_is_caught_is_the_codes(opened):
    """As in Python: the handler runs, and the cell ends well."""
    interp, result = interrupt_when_running(
        opened,
        "import time\ntry:\n    started()\n    time.sleep(60)\n"
        "except KeyboardInterrupt: caught = True")
    assert result.status == "ok" and interp.execute("caught").echo == "True"


def test_an_interrupt_that_is_ignored_becomes_a_kill(opened):
    """After the grace."""
    interp, result = interrupt_when_running(
        opened, "import signal, threading\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n"
                "threading.Thread(target=started, daemon=True).start()\nwhile True: pass",
        grace=SOON)
    assert (result.status, result.killed, result.alive) == ("killed", "interrupt", False)
    with pytest.raises(droste.Cancelled):
        interp.execute("1")


def test_an_interrupt_while_nothing_runs_has_no_effect(session):
    """The twin."""
    session.interrupt()
    assert session.execute("import time; time.sleep(0.05); kept").echo == "41"
