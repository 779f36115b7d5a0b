"""Sessions of callers that wait, which share an engine on Droste's own event loop, as those of dspy
do."""
import asyncio
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

import droste
from droste import _engine
from droste._shared import Shared

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


@pytest.fixture
def many():
    """Twenty that are open."""
    sessions = [Shared("Shared") for _ in range(20)]
    for session in sessions:
        session.start()
    yield sessions
    for session in sessions:
        session.shutdown()


def test_those_that_are_alive_share_an_engine(many):
    """And with it the zygotes; each has its own variables. Another kind of sandbox has an engine of
    its own."""
    assert len({id(session._session._engine) for session in many}) == 1
    for n, session in enumerate(many):
        session.execute("x = %d" % n)
    assert [session.execute("x").echo for session in many] == [str(n) for n in range(20)]
    other = Shared("Shared", isolation="process")
    other.start()
    assert other._session._engine is not many[0]._session._engine
    other.shutdown()
    many[0].shutdown()
    many[0].shutdown()
    assert not many[0].alive and many[1].alive


def test_their_cells_run_at_once(many):
    """In as many threads, each of which waits in a tool for all others."""
    together, found = threading.Barrier(len(many), timeout=50), []

    def work(session):
        session.tools = {"meet": together.wait}
        found.append(session.execute("SUBMIT(n=meet())").raise_for_status().n)
    threads = [threading.Thread(target=work, args=(session,)) for session in many]
    [thread.start() for thread in threads]
    [thread.join(55) for thread in threads]
    assert sorted(found) == list(range(len(many)))


def test_a_coroutine_of_the_program_does_not_hold_them_up(many):
    """One that blocks its event loop: other sessions, and other tools of its own, are answered
    meanwhile."""
    blocked, released = threading.Event(), threading.Event()

    async def rude():
        blocked.set()
        return released.wait(50)

    many[0].tools = {"rude": rude}
    thread = threading.Thread(target=many[0].execute, args=("rude()",))
    thread.start()
    assert blocked.wait(50)
    assert many[1].execute("2").echo == "2"
    released.set()
    thread.join(55)
    assert many[0].execute("3").echo == "3"


def test_within_an_event_loop_they_wait_and_do_not_use_it(many):
    async def main():
        session = Shared("Shared")
        session.start()
        assert session.execute("1 + 1").echo == "2" and session._session._engine is many[
            0]._session._engine
        session.shutdown()
    asyncio.run(main())


def test_ctrl_c_stops_the_cell_and_keeps_the_session():
    """KeyboardInterrupt reaches the thread that waits; the variables are there."""
    program = subprocess.Popen([sys.executable, "-c", """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from droste._shared import Shared
session = Shared("Shared", grace=60)
session.tools = {"started": lambda: print("running", flush=True)}
session.start()
try:
    session.execute("x = 41; started()\\nwhile True: pass")
except KeyboardInterrupt:
    print(session.execute("x + 1").echo, flush=True)
session.shutdown()
"""], env={**os.environ, "PYTHONPATH": os.path.join(ROOT, "python")}, stdout=subprocess.PIPE,
                               text=True)
    assert program.stdout.readline() == "running\n"
    program.send_signal(signal.SIGINT)
    assert program.communicate(timeout=50)[0] == "42\n" and program.returncode == 0


def test_one_that_is_forgotten_is_closed():
    with pytest.warns(ResourceWarning, match="Shared was not shut down"):
        session = Shared("Shared")
        session.start()
        engine, users = session._session._engine, session._session._engine.users
        del session
        until = time.monotonic() + 50
        while engine.users == users and time.monotonic() < until:
            time.sleep(0.01)
    assert engine.users == users - 1


def test_the_child_of_a_fork_may_open_its_own(many):
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            with pytest.raises(droste.Error, match="parent process of a fork"):
                many[0].execute("1")
            own = Shared("Shared")
            own.start()
            code = 0 if own.execute("2").echo == "2" else 2
            own.shutdown()
            droste.close_idle_engines()
        finally:
            os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0
    assert many[0].execute("3").echo == "3"


def test_a_listener_that_uses_its_session_is_refused():
    """It runs in the thread that serves all of them."""
    refused = []

    def listen(stream, text):
        try:
            session.execute("1")
        except droste.Error as e:
            refused.append(str(e))

    session = Shared("Shared", on_output=listen)
    session.start()
    assert session.execute("print(1, flush=True); 2").echo == "2"
    session.shutdown()
    assert refused and "callback of its engine" in refused[
        0] and threading.current_thread() is not _engine.sessions().thread
