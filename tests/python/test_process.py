"""What concerns the whole process: threads, forks, Ctrl-C, leaks."""
import gc
import os
import signal
import subprocess
import sys
import threading

import pytest

import droste
from droste import Interpreter

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# A shell that starts the tests in the background ignores Ctrl-C, and processes inherit that.
CTRL_C = "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
ENV = {**os.environ, "PYTHONPATH": os.path.join(ROOT, "python"), "PYTHONUNBUFFERED": "1"}


def script(code, **kwargs):
    return subprocess.run([sys.executable, "-W", "error", "-c", code], env=ENV, capture_output=True,
                          text=True,
                          timeout=60, **kwargs)


def descriptors():
    """But for the directories of control groups: a host has up to four, and nothing comes through
    them."""
    links = []
    for name in os.listdir("/proc/self/fd"):
        try:
            links.append(os.readlink("/proc/self/fd/" + name))
        except OSError:     # that of the list itself
            pass
    return sum(not link.startswith("/sys/fs/cgroup") for link in links)


def test_threads_have_an_interpreter_each():
    """Eight at once: each gets its own results, and all of them."""
    found = {}

    def work(n):
        with Interpreter(tools={"own": lambda: n}) as interp:
            interp.execute("total = 0")
            for i in range(30):
                interp.execute("total += %d + own()" % i)
            found[n] = interp.get("total")

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    [t.start() for t in threads]
    [t.join(50) for t in threads]
    assert found == {n: sum(range(30)) + 30 * n for n in range(8)}


def test_threads_share_an_interpreter():
    """Calls take their turn; none is lost."""
    with Interpreter() as interp:
        interp.execute("n = 0")
        threads = [threading.Thread(target=lambda: [interp.execute("n += 1") for _ in range(20)])
                   for _ in range(5)]
        [t.start() for t in threads]
        [t.join(50) for t in threads]
        assert interp.get("n") == 100


def test_a_thread_that_ended_leaves_a_warm_engine():
    """The next interpreter, in another thread, starts from it: no second zygote."""
    from droste import _engine
    droste.close_idle_engines()
    thread = threading.Thread(target=lambda: Interpreter().__enter__().shutdown())
    thread.start()
    thread.join(50)
    (engine,) = _engine._idle
    with Interpreter() as interp:
        assert interp._engine is engine and interp.execute("1").ok


def test_idle_engines_are_so_many(monkeypatch):
    """The one that has been idle for longest is ended; the number is the one that docs/python.md
    says."""
    from droste import _engine
    assert _engine.IDLE_MAX == 16
    monkeypatch.setattr(_engine, "IDLE_MAX", 2)
    droste.close_idle_engines()
    interpreters = [Interpreter().__enter__() for _ in range(3)]
    engines = [interp._engine for interp in interpreters]
    for interp in interpreters:
        interp.shutdown()
    assert _engine._idle == engines[1:] and [e.handle is None
                                             for e in engines] == [True, False, False]
    droste.close_idle_engines()
    assert all(e.handle is None for e in engines)


def test_an_engine_serves_those_of_its_kind(monkeypatch):
    """The same kind of sandbox in the same environment of variables; others get one of their
    own."""
    droste.close_idle_engines()

    def engine(**settings):
        with Interpreter(**settings) as interp:
            return interp._engine

    first = engine()
    assert engine() is first is engine(memory="1G", execute_timeout=20)
    assert engine(isolation="process") is not first is not engine(preload=["csv"])
    monkeypatch.setenv("DROSTE_ENVIRONMENT", "modal")
    monkeypatch.setenv("DROSTE_MODAL_PYTHON", "/nowhere/python3")
    with pytest.raises(droste.NotFoundError, match="modal"):
        engine()
    monkeypatch.delenv("DROSTE_MODAL_PYTHON")
    monkeypatch.delenv("DROSTE_ENVIRONMENT")
    assert engine() is first


def test_the_child_of_a_fork_harms_nothing_and_may_open_its_own():
    """The parent's session goes on; the child has none of its descriptors, is told so where it uses
    it, and works with an interpreter of its own."""
    droste.close_idle_engines()
    gc.collect()
    before = descriptors()
    with Interpreter() as interp:
        interp.execute("x = 1")
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                with pytest.raises(droste.Error, match="parent process of a fork"):
                    interp.execute("x")
                interp.shutdown()
                own = descriptors() - before
                with Interpreter() as mine:
                    code = 0 if mine.execute("1").ok and own <= 4 else 2
                droste.close_idle_engines()
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0 if hasattr(
            os, "waitstatus_to_exitcode") else True
        assert interp.execute("x").echo == "1"


def test_a_fork_while_another_thread_has_the_interpreter():
    """The thread is not there in the child, and its lock neither."""
    done = script("""
import os, threading, droste
running = threading.Event()
with droste.Interpreter(tools={"started": running.set}) as interp:
    thread = threading.Thread(target=interp.execute, args=("started(); import time; time.sleep(1)",))
    thread.start()
    running.wait()
    pid = os.fork()
    if pid == 0:
        try:
            interp.execute("1")
        except droste.Error as e:
            interp.shutdown()
            os._exit(3 if "parent process of a fork" in str(e) else 4)
    print(os.waitpid(pid, 0)[1] >> 8)
    thread.join()
""")
    assert done.stdout == "3\n", done.stderr


def test_multiprocessing_by_fork_works():
    done = script("""
import multiprocessing, droste
def work(n):
    with droste.Interpreter() as interp:
        return interp.execute("SUBMIT(n=%d * 2)" % n).n
if __name__ == "__main__":
    with droste.Interpreter() as interp:
        interp.execute("x = 1")
        with multiprocessing.get_context("fork").Pool(2) as pool:
            print(pool.map(work, [1, 2, 3]), interp.execute("x").echo)
""")
    assert done.stdout == "[2, 4, 6] 1\n", done.stderr


INTERRUPTED = """
import os, signal, threading, time, droste
def started():
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
def tool():
    started()
    time.sleep(60)
with droste.Interpreter(tools=[started, tool], grace=60) as interp:
    interp.execute("import time; x = 1")
    try:
        interp.execute(%r)
        print("went on")
    except KeyboardInterrupt:
        print("interrupted", interp.execute("x").echo)
"""


@pytest.mark.parametrize("code", ["started()\nwhile True: pass", "started(); time.sleep(60)",
                                  "tool()"])
def test_ctrl_c_stops_the_cell_and_raises(code):
    """In a loop, in a sleep, and in a tool of this program; the session goes on with its
    variables."""
    done = script(CTRL_C + INTERRUPTED % code)
    assert done.stdout == "interrupted 1\n", done.stderr


def test_ctrl_c_where_a_result_holds_up_the_loop():
    """As in a notebook's cell that does not await."""
    done = script(CTRL_C + """
import asyncio, os, threading, droste
async def main():
    async with droste.Interpreter(tools={"started": threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start}, grace=60) as interp:
        await interp.execute("x = 1")
        try:
            interp.execute("started()\\nwhile True: pass").status
        except KeyboardInterrupt:
            print("interrupted", (await asyncio.wait_for(interp.execute("x"), 50)).echo)
asyncio.new_event_loop().run_until_complete(main())
""")
    assert done.stdout == "interrupted 1\n", done.stderr


def test_ctrl_c_again_while_the_cell_does_not_stop():
    """It is not waited for any longer, and ends before the next one begins."""
    done = script(CTRL_C + """
import os, signal, threading, droste
def signals():
    for _ in range(2):
        printed.acquire()
        os.kill(os.getpid(), signal.SIGINT)
printed = threading.Semaphore(0)
threading.Thread(target=signals).start()
with droste.Interpreter(on_output=lambda stream, text: printed.release(), grace=60) as interp:
    interp.execute("x = 1")
    try:
        interp.execute(""" + repr("""
import time
try:
    print(1, flush=True)
    while True: pass
except KeyboardInterrupt:
    x = 2
    try:
        print(2, flush=True)
        time.sleep(30)
    finally:
        x = 3""") + """)
    except KeyboardInterrupt:
        print("interrupted", interp._under_way, interp.execute("x").echo)
""")
    assert done.stdout == "interrupted True 3\n", done.stderr


def test_ctrl_c_without_a_reason_hits_nothing():
    """The twin: a signal that Python ignores does not end a cell."""
    done = script("import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n"
                  + INTERRUPTED % "started(); time.sleep(1)")
    assert done.stdout == "went on\n", done.stderr


def test_nothing_is_left_at_the_end_of_the_program():
    """An interpreter that was not closed, and idle engines, end with the process, quietly."""
    done = script("""
import warnings, droste
warnings.simplefilter("ignore", ResourceWarning)        # test_interpreter.py has the warning
with droste.Interpreter() as a: a.execute("1")
b = droste.Interpreter(); b.execute("1"); print("end")
""")
    assert (done.returncode, done.stdout) == (0, "end\n"), done.stderr
    assert "Traceback" not in done.stderr


def memory_kb():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024


def test_sessions_leave_nothing_behind():
    """Descriptors and memory are what they were after 150 more sessions with tools, values, models
    and results; bench/python takes ten thousand."""
    def some(n):
        for _ in range(n):
            with Interpreter(tools={"f": lambda: 1}, model=lambda messages: "m") as interp:
                interp.execute("f(); llm_query('q'); SUBMIT(x=v)", {"v": "x" * 100000}).x

    some(30)
    gc.collect()
    before, memory = descriptors(), memory_kb()
    some(150)
    gc.collect()
    assert descriptors() <= before + 2
    assert memory_kb() - memory < 4000


def test_pending_signals_are_the_programs(tmp_path):
    """Handlers of the program run while a cell does, and may end it: the library installs none."""
    done = script("""
import os, signal, threading, droste
def handle(number, frame):
    print("handled", flush=True)
    interp.interrupt()
signal.signal(signal.SIGUSR1, handle)
before = [signal.getsignal(n) for n in signal.valid_signals()]
kill = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGUSR1)).start
with droste.Interpreter(tools={"started": kill}, grace=60) as interp:
    ended = interp.execute("started(); import time; time.sleep(1000)").error.type
    print(ended, [signal.getsignal(n) for n in signal.valid_signals()] == before)
""")
    assert done.stdout == "handled\nKeyboardInterrupt True\n", done.stderr
