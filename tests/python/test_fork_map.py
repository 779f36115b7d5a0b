"""fork_map(): a function in copies of the interpreter, several at a time."""
import pytest

from droste import Interpreter


@pytest.fixture
def interp():
    with Interpreter() as made:
        yield made


def value_of(interp, code):
    result = interp.execute(code)
    assert result.status == "submitted", result.stderr or result.error
    return result.v


# -- values, exceptions, output

def test_values_return_in_order_and_changes_stay_in_the_copy(interp):
    """More items than copies at once: each call starts from the caller's state."""
    code = ("total = 100\n"
            "def add(x):\n    global total\n    total += x\n    return total\n"
            "SUBMIT(v=[fork_map(add, range(20)), fork_map(add, [], max_workers=1), total])")
    assert value_of(interp, code) == [[100 + x for x in range(20)], [], 100]


def test_closures_and_typed_values_pass(interp):
    """Functions need no name, items are never copied, and values keep their types."""
    code = ("import datetime\nclass Odd: pass\nodd = [Odd(), (x for x in 'ab')]\n"
            "found = fork_map(lambda o: (type(o).__name__, {1: b'\\0'}, "
            "datetime.date(2026, 1, 2)), odd)\n"
            "SUBMIT(v=found == [(type(o).__name__, {1: b'\\0'}, datetime.date(2026, 1, 2)) "
            "for o in odd])")
    assert value_of(interp, code) is True


def test_the_first_exception_is_raised_as_it_is(interp):
    """Its type and arguments are those of the copy, and its cause is the traceback there."""
    code = ("class Own(Exception): pass\n"
            "def f(x):\n    if x: raise Own('no', x)\n    return x\n"
            "try: fork_map(f, [0, 1, 2])\n"
            "except Own as e: SUBMIT(v=[list(e.args), 'in f' in str(e.__cause__)])")
    assert value_of(interp, code) == [["no", 1], True]


def test_exceptions_can_be_returned(interp):
    """The other values are there, too; a value that cannot be passed on is a TypeError."""
    code = ("found = fork_map(lambda x: 1 / x if x < 2 else (y for y in 'ab'), [0, 1, 2], "
            "return_exceptions=True)\n"
            "SUBMIT(v=[type(found[0]).__name__, found[1], type(found[2]).__name__])")
    assert value_of(interp, code) == ["ZeroDivisionError", 1, "TypeError"]


def test_output_is_attributed_in_the_order_of_items(interp):
    """What the copies print comes with the number of the item, whichever ends first."""
    result = interp.execute("import sys, time\n"
                            "def f(x):\n    time.sleep(0.05 * (2 - x))\n    print('a', x)\n"
                            "    print('b', x, file=sys.stderr)\n"
                            "fork_map(f, range(3))\nprint('end')")
    assert result.stdout == "[item 0] a 0\n[item 1] a 1\n[item 2] a 2\nend\n"
    assert result.stderr == "[item 0] b 0\n[item 1] b 1\n[item 2] b 2\n"


def test_submit_belongs_to_the_cell(interp):
    """A copy cannot end the cell; the cell itself can."""
    result = interp.execute("fork_map(lambda x: SUBMIT(v=x), [1])")
    assert result.status == "error" and "within fork_map" in result.error.message
    assert value_of(interp, "SUBMIT(v=1)") == 1


@pytest.mark.parametrize("arguments, kind, message", [
    ("3, [1]", "TypeError", "calls a function"),
    ("str, range(5000)", "ValueError", "at most 4096"),
    ("str, [1], max_workers=0", "ValueError", "max_workers"),
    ("str, [1], timeout=0", "ValueError", "timeout"),
])
def test_wrong_arguments_are_refused(interp, arguments, kind, message):
    result = interp.execute("fork_map(%s)" % arguments)
    assert result.error.type == kind and message in result.error.message


def test_calls_count_in_one_budget():
    """Calls of the copies are calls of the session: the third is refused."""
    def answer(messages):
        return "re: " + messages[-1]["content"]
    with Interpreter(model=answer, max_llm_calls=2) as interp:
        code = ("found = fork_map(llm_query, ['a', 'b', 'c'], max_workers=1, "
                "return_exceptions=True)\n"
                "SUBMIT(v=[str(x) if isinstance(x, str) else type(x).__name__ for x in found])")
        assert value_of(interp, code) == ["re: a", "re: b", "BudgetExceeded"]


# -- copies that die

def test_a_copy_that_exits_or_is_killed_is_an_error_of_its_item(interp):
    """The others return, and the session goes on."""
    code = ("import os, signal\n"
            "def f(x):\n    if x == 0: os._exit(3)\n"
            "    if x == 1: os.kill(os.getpid(), signal.SIGKILL)\n    return x\n"
            "found = fork_map(f, range(4), return_exceptions=True)\n"
            "SUBMIT(v=[type(x).__name__ for x in found[:2]] + found[2:] + [str(found[0])])")
    found = value_of(interp, code)
    assert found[:4] == ["ForkError", "ForkError", 2, 3]
    assert "item 0" in found[4] and "exited with status 3" in found[4]


def test_a_copy_that_runs_too_long_is_ended(interp):
    """A stubborn one is killed; one that is in time returns."""
    code = ("import signal, time\n"
            "def f(x):\n    if not x: return 'in time'\n"
            "    signal.signal(signal.SIGINT, signal.SIG_IGN)\n    while True: time.sleep(1)\n"
            "found, seconds = [None], 0.5\n"
            "while found[0] != 'in time' and seconds < 60:\n"
            "    seconds *= 2\n"
            "    found = fork_map(f, [0, 1], timeout=seconds, return_exceptions=True)\n"
            "SUBMIT(v=[found[0], type(found[1]).__name__])")
    assert value_of(interp, code) == ["in time", "TimeoutError"]


def test_a_copy_that_takes_too_much_memory_is_ended():
    """Its item fails, with or without a cgroup; a copy that stays below the limit returns."""
    with Interpreter(memory="256M") as interp:
        code = ("def f(x):\n    data = bytearray(x)\n    return len(data)\n"
                "found = fork_map(f, [1000, 10 ** 9], max_workers=1, return_exceptions=True)\n"
                "SUBMIT(v=[found[0], type(found[1]).__name__])")
        result = interp.execute(code)
        if result.status == "submitted":        # otherwise the whole sandbox shares the limit
            assert result.v[0] == 1000 and result.v[1] in ("ForkError", "MemoryError")
        else:
            assert result.killed == "memory"


def test_an_interrupted_cell_ends_its_copies(interp):
    """At the deadline of the cell, copies that are at work end, and the session can fork again."""
    interp.execute("import os, time\nsleepers = []")
    result = interp.execute("fork_map(lambda x: time.sleep(600), range(3))", timeout=2)
    assert result.status == "timeout" and interp.alive
    assert value_of(interp, "SUBMIT(v=fork_map(lambda x: x + 1, [1]))") == [2]


# -- hostile code

def test_nesting_has_a_bound(interp):
    """Two levels work; a third is an error there."""
    code = ("def a(x): return fork_map(lambda y: (x, y), range(3))\n"
            "def b(x): return fork_map(a, range(2))\n"
            "try: fork_map(b, [1])\nexcept ValueError as e: why = str(e)\n"
            "SUBMIT(v=[fork_map(a, range(10))[9][2], why])")
    found = value_of(interp, code)
    assert list(found[0]) == [9, 2] and "nested" in found[1]


def test_threads_and_tasks_are_refused_by_name(interp):
    """A copy would lack them. Without them the same call works."""
    code = ("import threading, time\ndone = threading.Event()\n"
            "thread = threading.Thread(target=done.wait, name='counter')\nthread.start()\n"
            "try: fork_map(str, [1])\nexcept RuntimeError as e: why = str(e)\n"
            "done.set(); thread.join()\nSUBMIT(v=[why, fork_map(str, [1])])")
    why, found = value_of(interp, code)
    assert "counter" in why and found == ["1"]


FRAMES = ("import json, os, socket, struct, sys\n"
          "link = sys.modules['droste_guest'].state.link\n")


def test_a_guest_that_claims_forks_gets_none(interp):
    """Asks for forks and makes none: each item fails when the socket is closed, and no other."""
    code = (FRAMES + "guest = sys.modules['droste_guest']\n"
            "real = guest.state.library\n"
            "class Liar:\n    def zygote_fork(self, status, ident):\n        os.close(status)\n"
            "        return 0\n"
            "guest.state.library = Liar()\n"
            "found = fork_map(str, range(20), return_exceptions=True)\n"
            "guest.state.library = real\n"
            "SUBMIT(v=[{type(x).__name__ for x in found} == {'ForkError'}, fork_map(str, [1])])")
    assert value_of(interp, code) == [True, ["1"]]


def test_a_fork_bomb_of_calls_ends_at_the_bounds(interp):
    """Two calls of one session at once, by hand: the second is refused, and the first returns."""
    code = (FRAMES + "import threading\n"
            "guest = sys.modules['droste_guest']\n"
            "waiter = guest.Waiter()\nident = next(link.ids)\n"
            "def slow(x):\n"
            "    if x == 0:\n"
            "        import time; time.sleep(0.2)\n    return x\n"
            "forking = guest.Forking(slow, list(range(12)))\n"
            "link.begin(ident, waiter, {'name': 'fork_map', 'workers': 10 ** 9}, [b''] * 12)\n"
            "head, parts = guest.open_reply(forking.wait({'name': 'fork_map'}))\n"
            "link.cancel(ident)\n"
            "SUBMIT(v=head)")
    assert "under way" in value_of(interp, code)["error"]["message"]
    assert value_of(interp, "SUBMIT(v=fork_map(str, [1]))") == ["1"]


def test_an_endless_fork_bomb_within_copies_stays_in_the_sandbox():
    """Copies that fork processes reach the limit of processes; the session answers afterwards."""
    with Interpreter(processes=40) as interp:
        code = ("import os\n"
                "def bomb(x):\n    made = 0\n    try:\n        while True:\n"
                "            if os.fork() == 0:\n                import time; time.sleep(600)\n"
                "            made += 1\n    except OSError: return made\n"
                "found = fork_map(bomb, range(4), return_exceptions=True)\n"
                "SUBMIT(v=sum(x for x in found if isinstance(x, int)))")
        assert 0 < value_of(interp, code) <= 160
        # The end of their processes is not immediate; a wait that never ends runs into a limit.
        code = ("import time\nfound = []\nwhile not found:\n    try: found = fork_map(str, [1])\n"
                "    except ForkError: time.sleep(0.05)\nSUBMIT(v=found)")
        assert value_of(interp, code) == ["1"]


def test_forks_of_the_session_can_use_it(interp):
    """A fork that the host made calls fork_map like any session."""
    interp.execute("base = 5")
    with interp.fork() as fork:
        assert value_of(fork, "SUBMIT(v=fork_map(lambda x: x + base, [1, 2]))") == [6, 7]
    assert value_of(interp, "SUBMIT(v=fork_map(lambda x: x * base, [1, 2]))") == [5, 10]
