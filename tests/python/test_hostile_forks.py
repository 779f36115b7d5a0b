"""Forks of hostile code: what they do stays within their family of sessions."""
import asyncio

import pytest

import droste
from droste import Interpreter

PATCH = """
import array, os, signal, socket, struct, sys
state = sys.modules['droste_guest'].state
kept = state.library
"""
LEVELS = ["full", "light", "landlock", "process"]


@pytest.fixture(params=LEVELS)
def level(request):
    try:
        with Interpreter(isolation=request.param):
            pass
    except droste.UnsupportedError as e:
        pytest.skip("%s is not available here: %s" % (request.param, e))
    return request.param


@pytest.fixture
def bystander(level):
    """A session that has nothing to do with the family, and is as before at the end."""
    with Interpreter(isolation=level) as other:
        other.execute("x = 5")
        yield other
        assert other.execute("SUBMIT(x=x)").x == 5


def test_a_fork_that_stops_its_family_harms_no_other_session(level, bystander):
    """The stopped sessions end at their deadlines; a fork that stops nothing leaves them as they
    are."""
    with Interpreter(isolation=level, grace=0.2) as interp:
        parent = interp.execute("import os, signal\nSUBMIT(pid=os.getpid())").pid
        first, second = interp.fork(2)
        sibling = first.execute("SUBMIT(pid=os.getpid())").pid
        with second:
            assert second.execute("SUBMIT(x=1)").x == 1
            assert interp.execute("SUBMIT(x=2)").x == 2
            assert second.execute("for pid in (%d, %d): os.kill(pid, signal.SIGSTOP)"
                                  % (parent, sibling)).ok
            for stopped in (interp, first):
                r = stopped.execute("1", timeout=0.3)
                assert r.status == "timeout" and not r.alive
            assert second.execute("SUBMIT(x=3)").x == 3
        first.shutdown()


def fork_when_there_is_room(interp):
    """The end of processes is not immediate; the test's own limit ends a wait that never ends."""
    while True:
        try:
            return interp.fork()
        except droste.ArgumentError as e:
            assert "as many processes as they may" in str(e)


def test_a_fork_bomb_in_a_fork_ends_with_the_fork(level, bystander):
    """It takes the family's processes, and no others; then the family can fork again."""
    if level == "process":
        pytest.skip("isolation process does not limit processes")
    with Interpreter(isolation=level, processes=24, grace=0.2) as interp:
        interp.execute("import os, time")
        with interp.fork() as fork:
            r = fork.execute("import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n"
                             "while True:\n    try:\n        os.fork()\n"
                             "    except OSError:\n        pass", timeout=0.5)
            assert r.status == "timeout" and not r.alive
        assert interp.execute("SUBMIT(x=1)").x == 1
        with fork_when_there_is_room(interp) as fork:
            assert fork.execute("SUBMIT(x=2)").x == 2


@pytest.mark.parametrize("act", [
    "os._exit(0)",                              # ends
    "os.kill(os.getpid(), signal.SIGSEGV)",     # crashes
    "os.write(3, b'?' * 1000)",                 # says what it was not asked for
    "os.close(3)",                              # closes its channel
])
def test_a_checkpoint_that_is_held_by_hostile_code_costs_itself_alone(level, bystander, act):
    """Going back to it is an error, the session lives, and a true checkpoint works afterwards."""
    with Interpreter(isolation=level, grace=0.2, execute_timeout=1) as interp:
        interp.execute(PATCH + """
class Hostile:
    def zygote_fork(self, status):
        rc = kept.zygote_fork(status)
        if rc == 1:
            %s
        return rc
state.library = Hostile()
x = 1""" % act)
        held = interp.checkpoint()
        with pytest.raises(droste.Error):
            interp.rollback(held)
        assert interp.execute("state.library = kept; x = 2; SUBMIT(x=x)").x == 2
        true = interp.checkpoint()
        interp.execute("x = 3")
        interp.rollback(true)
        assert interp.execute("SUBMIT(x=x)").x == 2


def test_a_checkpoint_that_does_not_answer_is_ended():
    """One that stops itself, and one that spins with signals blocked: going back to them is an
    error, after which the session goes on, and a true checkpoint works. All at once, since each
    takes the deadline of a checkpoint."""
    hostile = PATCH + """
class Hostile:
    def zygote_fork(self, status):
        rc = kept.zygote_fork(status)
        if rc == 1:
            %s
        return rc
state.library = Hostile()
x = 1"""
    stop = "os.kill(os.getpid(), signal.SIGSTOP)"
    spin = "signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 32))\n            while True: pass"

    async def go_back(level, act):
        try:
            interp = await Interpreter(isolation=level, grace=60).__aenter__()
        except droste.UnsupportedError:
            return None
        async with interp:
            await interp.execute(hostile % act)
            held = await interp.checkpoint()
            with pytest.raises(droste.Error, match="the checkpoint did not answer within"):
                await interp.rollback(held)
            await interp.execute("state.library = kept; x += 1")
            with pytest.raises(droste.Error, match="is lost: the checkpoint did not answer"):
                await interp.at(held)
            true = await interp.checkpoint()
            await interp.execute("x = 5")
            await interp.rollback(true)
            return (await interp.execute("SUBMIT(x=x)")).x

    async def all_at_once():
        return await asyncio.gather(*(go_back(level, stop) for level in LEVELS),
                                    go_back("process", spin))
    seen = asyncio.run(all_at_once())
    assert seen[-1] == 2 and set(seen) <= {2, None}


def test_descriptors_that_were_taken_twice_do_not_keep_a_fork(level, bystander):
    """The parent keeps copies of what was lent to the fork: the fork still ends when it is closed,
    and what the parent writes to its channel ends the fork alone."""
    with Interpreter(isolation=level, grace=0.2) as interp:
        interp.execute(PATCH + """
taken = []
class Twice:
    def zygote_fork(self, status):
        lent = socket.socket(fileno=os.dup(status))
        _, more, _, _ = lent.recvmsg(1, 1000, socket.MSG_PEEK)
        rc = kept.zygote_fork(status)
        if rc == 0:
            taken[:] = array.array('i', more[0][2])
        return rc
state.library = Twice()""")
        with interp.fork() as fork:
            assert fork.execute("SUBMIT(x=1)").x == 1
        first = interp.fork()
        assert interp.execute("os.write(taken[0], b'?' * 100); SUBMIT(n=len(taken))").n == 4
        with pytest.raises(droste.ProtocolError):
            first.execute("SUBMIT(x=1)", timeout=2)
        first.shutdown()
        interp.execute("for fd in taken: os.close(fd)\nstate.library = kept")
        with interp.fork() as fork:
            assert fork.execute("SUBMIT(x=2)").x == 2
