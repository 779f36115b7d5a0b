"""Handlers that code sets with signal.signal(): the usual way to give something a time limit."""
import asyncio
import time

ALARM = """import random, signal
def ring(*_): raise TimeoutError('too late')
signal.signal(signal.SIGALRM, ring)
"""


def test_a_handler_may_raise_at_any_moment_of_a_call(opened):
    """A timer ends calls of a tool wherever it finds them, 500 times. None of the others is lost or
    gets the result of another, and the session goes on."""
    session = opened(max_tool_calls=10**6, tools={"twice": lambda n: 2 * n})
    cell = session.execute(ALARM + """rung = calls = wrong = 0
while rung < 500:
    try:
        try:
            signal.setitimer(signal.ITIMER_REAL, random.random() * 0.0005 + 1e-6)
            while True:
                calls += 1
                wrong += twice(calls) != 2 * calls
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except TimeoutError:
        rung += 1
SUBMIT(rung=rung, wrong=wrong, next=twice(4))""")
    assert cell.fields == {"rung": 500, "wrong": 0, "next": 8}, cell
    assert session.execute("twice(5)").echo == "10"


def test_a_handler_runs_while_a_call_waits(opened):
    """What it raises ends the call; if it raises nothing, the call gets its result."""
    session = opened(tools={"wait": asyncio.sleep})
    assert session.execute(ALARM + """signal.setitimer(signal.ITIMER_REAL, 0.1)
try: wait(60)
except TimeoutError as e: said = str(e)
said""").echo == "'too late'"
    assert session.execute("""rung = []
signal.signal(signal.SIGALRM, lambda *_: rung.append(1))
signal.setitimer(signal.ITIMER_REAL, 0.1)
while not rung: kept = wait(0.3, result='done')
kept""").echo == "'done'"


def test_a_handler_between_cells_cannot_end_the_session(opened):
    """It runs at once; what it raises is a traceback, as it is at Python's prompt."""
    session = opened()
    assert session.execute("""import os, signal
def ring(*_):
    os.mkdir('rung')
    raise TimeoutError('too late')
signal.signal(signal.SIGALRM, ring)
here, x = os.getcwd(), 5
signal.setitimer(signal.ITIMER_REAL, 0.2)""").ok
    here = session.execute("print(here, end='')").stdout
    deadline = time.monotonic() + 60
    while not any(entry.name == "rung" for entry in session.files.list(here)):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert session.execute("os.rmdir('rung')\nx").echo == "5"


def test_a_handler_that_calls_the_host_within_a_wait_gets_an_error(opened):
    """Its thread reads for the call that waits; a second one would wait for ever. Elsewhere a
    handler may call."""
    session = opened(tools={"wait": asyncio.sleep})
    assert session.execute("""import signal
said, refused = [], []
def ring(*_):
    try: said.append(wait(0, result='called'))
    except RuntimeError as e: refused.append(e)
signal.signal(signal.SIGALRM, ring)
signal.raise_signal(signal.SIGALRM)
signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
while not refused: kept = wait(0.3, result='done')
signal.setitimer(signal.ITIMER_REAL, 0)
kept, said[0]""").echo == "('done', 'called')"


def test_handlers_are_those_that_were_set(opened):
    """For code that asks for them, puts them back, or forks."""
    session = opened()
    assert session.execute("""import os, signal
def one(number, frame): seen.append((number, frame.f_code.co_name))
seen = []
before = signal.signal(signal.SIGUSR1, one)
again = signal.signal(signal.SIGUSR1, signal.SIG_IGN)
signal.raise_signal(signal.SIGUSR1)
ignored = signal.signal(signal.SIGUSR1, again)
def here(): signal.raise_signal(signal.SIGUSR1)
here()
child = os.fork()
if child == 0:
    here()
    os._exit(len(seen))
status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
kept = signal.getsignal(signal.SIGUSR1)
(before, again is one, ignored, seen, status, kept is one)""").echo == (
        "(<Handlers.SIG_DFL: 0>, True, <Handlers.SIG_IGN: 1>, [(10, 'here')], 2, True)")
    refused = session.execute("signal.signal(signal.SIGKILL, one)")
    assert refused.error.type == "OSError"
    assert session.execute("signal.getsignal(signal.SIGKILL)").echo == "<Handlers.SIG_DFL: 0>"


def test_a_signal_right_before_a_wait_is_not_late(opened):
    """Another thread sends it while a call begins to wait, 200 times: a system call that begins
    after it is not interrupted. Each of the calls is cancelled, and none runs to its end."""
    ended = []

    async def wait():
        await asyncio.sleep(60)
        ended.append(1)

    session = opened(max_tool_calls=10**6, tools={"wait": wait})
    assert session.execute(ALARM + """import _thread, threading, time
main, rung = threading.get_ident(), 0
signal.signal(signal.SIGUSR1, ring)
def kill(pause):
    until = time.perf_counter() + pause
    while time.perf_counter() < until: time.sleep(0)
    signal.pthread_kill(main, signal.SIGUSR1)
for _ in range(200):
    try:
        _thread.start_new_thread(kill, (random.random() * 0.0006,))
        wait()
    except TimeoutError: rung += 1
rung""").echo == "200"
    assert ended == []
