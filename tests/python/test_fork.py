"""Forks of a session, and what they share."""
import asyncio
import gc
import os

import pytest

import droste
from deadlines import DEAF, cut_short
from droste import Interpreter
from hostile_guest import PATCH


@pytest.fixture
def interp():
    with Interpreter() as made:
        yield made


def pid_of(interp):
    return interp.execute("import os; SUBMIT(pid=os.getpid())").pid


def is_there(interp, pid):
    return interp.execute("import os\ntry: os.kill(%d, 0); found = True\n"
                          "except ProcessLookupError: found = False\nSUBMIT(found=found)"
                          % pid).found


def wait_until_gone(interp, pid):
    """The end of a process is not immediate; the test's own limit ends a wait that never ends."""
    code = ("import os, time\n"
            "while True:\n    try: os.kill(%d, 0)\n    except ProcessLookupError: break\n"
            "    time.sleep(0.01)" % pid)
    assert interp.execute(code, timeout=60).ok


# -- copies

def test_a_fork_has_the_state_and_its_own_future(level):
    """Variables, functions and imports are there; what either changes afterwards is its own."""
    with Interpreter(isolation=level) as interp:
        interp.execute("import math\nitems = [1, {'a': 2}]\ndef twice(x): return 2 * x")
        with interp.fork() as fork:
            assert fork.isolation == level and fork.alive
            assert fork.execute(
                "items[1]['a'] = 3; SUBMIT(v=[items, twice(21), math.pi > 3])").v == [
                [1, {"a": 3}], 42, True]
            assert interp.execute("SUBMIT(v=items)").v == [1, {"a": 2}]
            interp.execute("del items")
            assert fork.execute("SUBMIT(v=items)").v == [1, {"a": 3}]


def test_output_is_that_of_the_session_that_wrote_it(level):
    """Also the output of subprocesses, which inherit the descriptors."""
    with Interpreter(isolation=level) as interp, interp.fork() as fork:
        code = "import subprocess; print('%s'); subprocess.run(['echo', '%s'])"
        assert fork.execute(code % ("of", "fork")).stdout == "of\nfork\n"
        assert interp.execute(code % ("the", "first")).stdout == "the\nfirst\n"


def test_forks_have_random_numbers_of_their_own(interp):
    interp.execute("import random")
    drawn = {interp.execute("SUBMIT(r=random.getrandbits(100))").r}
    for fork in interp.fork(4):
        with fork:
            drawn.add(fork.execute("SUBMIT(r=random.getrandbits(100))").r)
    assert len(drawn) == 5


def test_values_and_tools_work_in_forks(interp):
    """Large values, which travel in a memory file, and a function of this program; both also once
    the first session is closed."""
    interp.tools["double"] = lambda x: 2 * x
    interp.set("text", "x" * 300000)
    assert interp.execute("SUBMIT(n=double(len(text)))").n == 600000
    fork = interp.fork()
    interp.shutdown()
    with fork:
        fork.set("more", "y" * 200000)
        assert fork.execute("SUBMIT(n=double(len(text + more)))").n == 1000000
        assert len(fork.get("text")) == 300000


@pytest.mark.parametrize("name", ["llm_query", "_mine"])
def test_a_tool_with_a_name_of_the_guests_works_in_forks(name):
    """A session's tool may replace a function of the guest; its forks and checkpoints have it."""
    with Interpreter(isolation="process", tools={name: lambda text: text * 2}) as interp:
        assert interp.execute("SUBMIT(a=%s('x'))" % name).a == "xx"
        kept = interp.checkpoint()
        for copy in (interp.fork(), interp.at(kept)):
            with copy:
                assert copy.execute("SUBMIT(a=%s('x'))" % name).a == "xx"



def test_models_answer_forks_from_one_budget():
    """A limit on calls is the family's: what a fork has asked, the first session may not ask."""
    with Interpreter(model=lambda messages: "re: " + messages[-1]["content"], max_llm_calls=2,
                     max_recursion_depth=0) as interp:
        fork = interp.fork()
        assert fork.execute("SUBMIT(a=llm_query('1'))").a == "re: 1"
        assert interp.execute("SUBMIT(a=llm_query('2'))").a == "re: 2"
        assert interp.execute("llm_query('3')").error.type == "BudgetExceeded"
        interp.shutdown()
        assert fork.execute("llm_query('4')").error.type == "BudgetExceeded"
        fork.shutdown()


# -- what a fork refuses

@pytest.mark.parametrize("begin, named, end", [
    ("import threading; e = threading.Event(); t = threading.Thread(target=e.wait, "
     "name='worker-7'); t.start()",
     "threads run: worker-7", "e.set(); t.join()"),
    ("import _thread; lock = _thread.allocate_lock(); lock.acquire(); "
     "_thread.start_new_thread(lock.acquire, ())",
     "threads run: a thread of a library",
     "import os, time; lock.release()\nwhile len(os.listdir('/proc/self/task')) > 1: "
     "time.sleep(0.01)"),
    ("import asyncio; t = asyncio.create_task(asyncio.sleep(1000), name='sleeper'); "
     "await asyncio.sleep(0)",
     "asyncio tasks are pending: sleeper", "t.cancel(); await asyncio.sleep(0)"),
])
def test_what_a_copy_would_lose_is_named(interp, begin, named, end):
    """And the session goes on; once that has ended, it can be forked."""
    assert interp.execute(begin).ok
    with pytest.raises(droste.ArgumentError, match=named):
        interp.fork()
    assert interp.execute(end).ok
    with interp.fork() as fork:
        assert fork.execute("import asyncio; await asyncio.sleep(0); SUBMIT(x=1)").x == 1


def test_the_limit_of_processes_is_the_familys():
    """A fork needs two processes; without room for them it is refused, and nothing is lost."""
    with Interpreter(isolation="full", processes=7) as interp:
        forks = [interp.fork(), interp.fork()]
        with pytest.raises(droste.ArgumentError, match="forking the session.*processes"):
            interp.fork(3)
        assert all(f.execute("SUBMIT(x=1)").x == 1 for f in [interp, *forks])
        forks.pop().shutdown()
        with forks[0]:
            pass


@pytest.mark.parametrize("count", [0, -1, 1.5, "2"])
def test_a_wrong_count_is_an_error(interp, count):
    with pytest.raises(droste.ArgumentError, match="count must be a positive int"):
        interp.fork(count)


# -- ends

def test_sessions_of_a_family_end_in_any_order(level):
    """The first one, a fork, and a fork of a fork: the others go on each time."""
    interp = Interpreter(isolation=level)
    interp.start()
    fork = interp.fork()
    grandchild, other = fork.fork(2)
    fork.shutdown()
    assert grandchild.execute("SUBMIT(x=1)").x == interp.execute("SUBMIT(x=1)").x == 1
    interp.shutdown()
    assert grandchild.execute("SUBMIT(x=2)").x == 2
    grandchild.shutdown()
    assert other.execute("SUBMIT(x=3)").x == 3
    other.shutdown()


def test_a_session_that_dies_takes_no_other_with_it(level):
    """By its own exit or by a signal, the first session as well as a fork."""
    with Interpreter(isolation=level) as interp:
        forks = interp.fork(3)
        r = forks[0].execute("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")
        assert (r.status, r.alive) == ("killed", False) and "SIGSEGV" in r.error.message
        r = interp.execute("import os; os._exit(3)")
        assert (r.status, r.alive) == ("killed", False) and "status 3" in r.error.message
        for fork in forks[1:]:
            assert fork.execute("SUBMIT(x=1)").x == 1
        assert forks[1].fork().execute("SUBMIT(x=4)").x == 4


def test_an_interrupt_reaches_one_session_alone(level):
    """A fork's cell stops at its deadline, and its variables stay."""
    with Interpreter(isolation=level, grace=60) as interp:
        interp.execute("x = 1")
        with interp.fork() as fork:
            r = fork.execute("while True: pass", timeout=0.2)
            assert (r.status, r.alive) == ("timeout", True)
            assert fork.execute("SUBMIT(x=x)").x == interp.execute("SUBMIT(x=x)").x == 1


def test_a_kill_ends_one_session_alone(level):
    """Of a cell that hears no interrupt."""
    with Interpreter(isolation=level, grace=0.1) as interp:
        interp.execute("x = 1")
        with interp.fork() as fork:
            r = cut_short(fork, DEAF + "while True: pass", lambda result: not result.alive)
            assert (r.status, r.alive) == ("timeout", False)
            assert interp.execute("SUBMIT(x=x)").x == 1


def test_what_a_fork_has_started_ends_with_it(level):
    """Its processes end; those of the first session stay."""
    start = "import subprocess; SUBMIT(pid=subprocess.Popen(['sleep', '1000']).pid)"
    with Interpreter(isolation=level) as interp:
        kept = interp.execute(start).pid
        fork = interp.fork()
        pids = [pid_of(fork), fork.execute(start).pid]
        fork.shutdown()
        for pid in pids:
            wait_until_gone(interp, pid)
        assert is_there(interp, kept)


def test_a_volume_is_the_familys(tmp_path, monkeypatch):
    """All of them write to it, and it stays in use until the last one is closed."""
    monkeypatch.setenv("DROSTE_HOME", str(tmp_path))
    droste.close_idle_engines()
    interp = Interpreter(volume_name="shared")
    interp.execute("open('/data/a', 'w').write('first')")
    fork = interp.fork()
    interp.shutdown()
    assert fork.execute(
        "open('/data/b', 'w').write('fork'); SUBMIT(a=open('/data/a').read())").a == "first"
    fork.shutdown()
    with Interpreter(volume_name="shared") as again:
        assert again.execute("SUBMIT(b=open('/data/b').read())").b == "fork"


# -- a hostile guest

@pytest.mark.parametrize("what", [
    "pass",  # keeps the socket, does nothing
    "os.close(status)",  # closes it
    "os.write(status, b'?' * 32)",  # writes no record
    "os.write(status, ENDED)",
])
def test_a_fork_that_was_only_claimed_ends_at_its_deadline(level, what):
    """The guest answers that it has forked. The session that is said to exist ends with an error,
    the others do not notice, and a true fork works afterwards."""
    with Interpreter(isolation=level, grace=1) as interp:
        assert interp.execute(
            PATCH + "class Claim(Kept):\n    def zygote_fork(self, status, ident):\n"
            "        %s\n        return UNANSWERED\nstate.library = Claim()" % what).ok
        fork = interp.fork()
        try:
            r = fork.execute("SUBMIT(x=1)", timeout=0.5)
            assert not r.ok and not r.alive
        except droste.Error:
            pass
        fork.shutdown()
        assert interp.execute("state.library = kept; SUBMIT(x=1)").x == 1
        with interp.fork() as fork:
            assert fork.execute("SUBMIT(x=2)").x == 2


LOOK = """
import os
def seen(call, path):
    try:
        call(path)
    except OSError as e:
        return "refused"
    return "success"
def look(pid):
    return {name: seen(call, "/proc/%d/%s" % (pid, name)) for name, call in (
        ("mem", lambda path: os.close(os.open(path, os.O_RDONLY))), ("fd", os.listdir),
        ("fd/0", os.readlink), ("ns/mnt", os.readlink), ("environ", lambda path: open(path).read()))}
"""


@pytest.mark.parametrize("isolation", ["full", "light", "landlock"])
def test_the_code_of_a_fork_cannot_look_into_its_keeper(isolation):
    """Into a process that it has started it can, where /proc shows processes."""
    try:
        with Interpreter(isolation=isolation) as interp:
            interp.execute(LOOK)
            fork = interp.fork()
    except droste.UnsupportedError as e:
        pytest.skip("%s is not available here: %s" % (isolation, e))
    with fork:
        saw = fork.execute("SUBMIT(saw=look(os.getppid()))").saw
        assert set(saw.values()) == {"refused"}, saw
        own = fork.execute("""
import signal
child = os.fork()
if child == 0:
    signal.pause()
saw = look(child)
os.kill(child, 9)
os.waitpid(child, 0)
SUBMIT(saw=saw)""").saw
        readable = {"fd/0", "ns/mnt"} if isolation == "landlock" else set(own)
        assert {name for name in own if own[name] == "success"} == readable, own


def test_a_guest_that_says_it_is_the_keeper_is_treated_as_one(level):
    """Only itself is interrupted and ended; a session that has nothing to do with it goes on."""
    with Interpreter(isolation=level, grace=1) as interp, Interpreter(isolation=level) as other:
        interp.execute(PATCH + "class Claim(Kept):\n    def zygote_fork(self, status, ident):\n"
                       "        os.write(status, FORKED)\n"
                       "        return UNANSWERED\nstate.library = Claim()")
        fork = interp.fork()
        try:
            assert not fork.execute("SUBMIT(x=1)", timeout=0.5).alive
        except droste.Error:
            pass
        fork.shutdown()
        assert other.execute("SUBMIT(x=1)").x == 1


def test_a_flood_of_records_ends_the_fork_alone(level):
    """A process that keeps the status socket says without end that it is the keeper. The host goes
    on at once, and so does the session that did it."""
    with Interpreter(isolation=level, grace=1) as interp:
        interp.execute(PATCH +
                       "def flood(status):\n    signal.signal(signal.SIGUSR1, signal.SIG_IGN)\n"
                       "    while True: os.write(status, FORKED)\n"
                       "class Claim(Kept):\n    def zygote_fork(self, status, ident):\n"
                       "        if os.fork() == 0: flood(status)\n"
                       "        os.close(status)\n        return UNANSWERED\n"
                       "state.library = Claim()")
        fork = interp.fork()
        with pytest.raises(droste.Error):
            fork.execute("SUBMIT(x=1)").raise_for_status()
        fork.shutdown()
        assert interp.execute("state.library = kept; SUBMIT(x=1)").x == 1


# -- asyncio

def test_forks_run_at_the_same_time_within_asyncio():
    """Each waits for what the others write, so none could end if they ran in turn."""
    async def main():
        async with Interpreter(isolation="full") as interp:
            await interp.execute("import os, time")
            forks = await interp.fork(3)
            code = ("open('/tmp/%d', 'w').close()\n"
                    "while not all(os.path.exists('/tmp/%%d' %% n) for n in range(3)): "
                    "time.sleep(0.01)\nSUBMIT(n=%d)")
            results = await asyncio.gather(*(f.execute(code % (n, n)) for n, f in enumerate(forks)))
            for fork in forks:
                await fork.ashutdown()
            return [r.n for r in results]
    assert asyncio.run(main()) == [0, 1, 2]


def test_a_refused_fork_within_asyncio_raises():
    async def main():
        async with Interpreter() as interp:
            await interp.execute(
                "import threading; e = threading.Event(); threading.Thread(target=e.wait).start()")
            with pytest.raises(droste.ArgumentError, match="threads run"):
                await interp.fork()
            await interp.execute("e.set()")
    asyncio.run(main())


def test_nothing_is_left_behind():
    """Descriptors of this process, after a hundred forks."""
    def held():
        gc.collect()        # what earlier tests have left in cycles
        droste.close_idle_engines()
        return len(os.listdir("/proc/self/fd"))
    with Interpreter() as interp:
        interp.fork().shutdown()
    before = held()
    for _ in range(5):
        with Interpreter() as interp:
            forks = interp.fork(20)
            interp.checkpoint()
            interp.rollback(interp.checkpoint())
            interp.shutdown()
            for fork in forks:
                fork.shutdown()
    assert held() == before


def test_many_forks_are_made_in_one_operation_and_are_independent():
    """More than go into one operation."""
    with Interpreter(processes=300) as interp:
        interp.execute("x = 41")
        forks = interp.fork(40)
        for number, fork in enumerate(forks):
            fork.execute("x += %d" % number)
        assert [fork.execute("SUBMIT(x=x)").x for fork in forks] == list(range(41, 81))
        assert interp.execute("SUBMIT(x=x)").x == 41
        for fork in forks:
            fork.shutdown()


def test_if_one_of_many_forks_is_refused_none_is_left():
    """The sandbox has room for some of them; the session goes on."""
    with Interpreter(processes=12) as interp:
        interp.execute("x = 41")
        with pytest.raises(droste.ArgumentError, match="as many processes as they may"):
            interp.fork(30)
        assert interp.execute("SUBMIT(x=x)").x == 41
        with interp.fork() as fork:
            assert fork.execute("SUBMIT(x=x + 1)").x == 42
