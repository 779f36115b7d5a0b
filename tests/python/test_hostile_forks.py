"""Forks of hostile code: what they do stays within their family of sessions."""
import asyncio
import os
import platform

import pytest

import droste
from deadlines import DEAF, cut_short
from droste import Interpreter
from hostile_guest import PATCH

# A session whose copies do something else than wait for operations.
HOSTILE = PATCH + """
class Hostile(Kept):
    def zygote_fork(self, status, ident):
        if fork_by_hand(status):
            %s
        return UNANSWERED
state.library = Hostile()
x = 1"""
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
            r = cut_short(fork, DEAF + "while True:\n    try:\n        os.fork()\n"
                          "    except OSError:\n        pass", lambda result: not result.alive, 0.5)
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
    with Interpreter(isolation=level, grace=0.2, execute_timeout=30) as interp:
        interp.execute(HOSTILE % act)
        held = interp.checkpoint()
        with pytest.raises(droste.Error):
            interp.rollback(held)
        assert interp.execute("state.library = kept; x = 2; SUBMIT(x=x)").x == 2
        true = interp.checkpoint()
        interp.execute("x = 3")
        interp.rollback(true)
        assert interp.execute("SUBMIT(x=x)").x == 2


def test_a_checkpoint_that_does_not_answer_is_ended():
    """One that stops itself, one that spins with signals blocked, and one that fills its memory:
    going back to them is an error, after which the session goes on, and a true checkpoint works.
    All at once, since each takes the deadline of a checkpoint."""
    stop = "os.kill(os.getpid(), signal.SIGSTOP)"
    spin = "signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 32))\n            while True: pass"
    fill = "hoard = [os.urandom(1 << 20) for _ in range(1 << 20)]"
    # With a limit of its address space, the last one ends by a MemoryError.
    ended = ("the checkpoint did not answer within|reached the limit of memory"
             "|the sandbox is gone")

    async def go_back(level, act):
        try:
            interp = await Interpreter(isolation=level, grace=60, memory="200M").__aenter__()
        except droste.UnsupportedError:
            return None
        async with interp:
            await interp.execute(HOSTILE % act)
            held = await interp.checkpoint()
            with pytest.raises(droste.Error, match=ended):
                await interp.rollback(held)
            await interp.execute("state.library = kept; x += 1")
            with pytest.raises(droste.Error, match="is lost: .*(%s)" % ended):
                await interp.at(held)
            true = await interp.checkpoint()
            await interp.execute("x = 5")
            await interp.rollback(true)
            return (await interp.execute("SUBMIT(x=x)")).x

    async def all_at_once():
        return await asyncio.gather(*(go_back(level, stop) for level in LEVELS),
                                    *(go_back("process", act) for act in (spin, fill)))
    seen = asyncio.run(all_at_once())
    assert seen[-2:] == [2, 2] and set(seen) <= {2, None}


def test_descriptors_that_were_taken_twice_do_not_keep_a_fork(level, bystander):
    """The parent keeps copies of what was lent to the fork: the fork still ends when it is closed,
    and what the parent writes to its channel ends the fork alone."""
    with Interpreter(isolation=level, grace=0.2) as interp:
        interp.execute(PATCH + """
taken = []
class Twice(Kept):
    def zygote_fork(self, status, ident):
        lent = socket.socket(fileno=os.dup(status))
        _, more, _, _ = lent.recvmsg(1, 1000, socket.MSG_PEEK)
        rc = kept.zygote_fork(status, ident)
        if rc == 0:
            taken[:] = array.array('i', more[0][2])
        return rc
state.library = Twice()""")
        with interp.fork() as fork:
            assert fork.execute("SUBMIT(x=1)").x == 1
        first = interp.fork()
        assert interp.execute("os.write(taken[0], b'?' * 100); SUBMIT(n=len(taken))").n == 4
        with pytest.raises(droste.ProtocolError):
            first.execute("SUBMIT(x=1)")
        first.shutdown()
        interp.execute("for fd in taken: os.close(fd)\nstate.library = kept")
        with interp.fork() as fork:
            assert fork.execute("SUBMIT(x=2)").x == 2


REACH = PATCH + """
import ctypes, resource
libc = ctypes.CDLL(None, use_errno=True)
def word(call, *args):
    try:
        call(*args)
    except OSError:
        return "refused"
    return "success"
def raw(name, *args):
    number = NUMBERS[name]
    return "success" if libc.syscall(number, *map(ctypes.c_long, args)) >= 0 else "refused"
def opened(path, how):
    os.close(os.open(path, how))
def reach(pid, at):
    here = ctypes.create_string_buffer(8)
    local = (ctypes.c_uint64 * 2)(ctypes.addressof(here), 8)
    remote = (ctypes.c_uint64 * 2)(at, 8)
    places = ctypes.addressof(local), 1, ctypes.addressof(remote), 1, 0
    return {
        "attach": raw("ptrace", 16, pid, 0, 0),
        "read": raw("process_vm_readv", pid, *places),
        "write": raw("process_vm_writev", pid, *places),
        "take": raw("pidfd_getfd", pid, 3, 0),
        "limits": word(resource.prlimit, pid, resource.RLIMIT_CPU, (1, 1)),
        "mem": word(opened, "/proc/%d/mem" % pid, os.O_RDONLY),
        "mem, to write": word(opened, "/proc/%d/mem" % pid, os.O_RDWR),
        "memory file": word(opened, "/proc/%d/fd/%d" % (pid, file), os.O_RDWR),
        "output": word(opened, "/proc/%d/fd/1" % pid, os.O_WRONLY),
        "channel": word(opened, "/proc/%d/fd/3" % pid, os.O_RDWR)}
text = ctypes.create_string_buffer(b"12345678")
file = os.memfd_create("file")
"""
NUMBERS = {"x86_64": {"ptrace": 101, "process_vm_readv": 310, "process_vm_writev": 311,
                      "pidfd_getfd": 438},
           "aarch64": {"ptrace": 117, "process_vm_readv": 270, "process_vm_writev": 271,
                       "pidfd_getfd": 438}}[platform.machine()]


def test_what_code_of_a_fork_can_reach_of_its_family(level):
    """Of its parent and of a sibling: it can open a memory file, at `full` and `light` also read
    memory (docs/fork.md), and nothing else. Both then answer as before. Of itself it may change
    limits."""
    if level == "process":
        pytest.skip("isolation process is not a security boundary")
    with Interpreter(isolation=level) as interp:
        interp.execute("NUMBERS = %r\n" % NUMBERS + REACH)
        at = interp.execute("SUBMIT(at=ctypes.addressof(text))").at
        sibling, fork = interp.fork(2)
        with sibling, fork:
            for other in (interp, sibling):
                pid = other.execute("SUBMIT(pid=os.getpid())").pid
                saw = fork.execute("SUBMIT(saw=reach(%d, %d))" % (pid, at)).saw
                reached = {name for name in saw if saw[name] == "success"}
                assert reached == {"memory file", "mem"} - {level == "landlock" and "mem"}
            assert fork.execute("SUBMIT(word=word(resource.prlimit, 0, resource.RLIMIT_CPU, "
                                "(1000, 1000)))").word == "success"
            for other in (interp, sibling):
                assert other.execute("SUBMIT(text=text.value.decode(), cpu="
                                     "resource.getrlimit(resource.RLIMIT_CPU)[0] != 1000)"
                                     ).json["submit"] == {"text": "12345678", "cpu": True}


def test_a_fork_inherits_what_its_code_has_opened_and_nothing_of_the_host(level):
    """Its channel and its output are its own; a file, a memory file and a pipe are the parent's."""
    code = """
import os
def held():
    found = {}
    for fd in range(200):
        try:
            found[str(fd)] = "%d:%d" % os.fstat(fd)[1:3][::-1]
        except OSError:
            pass
    return found
"""
    with Interpreter(isolation=level) as interp:
        before = interp.execute(code + "SUBMIT(held=held())").held
        opened = interp.execute("mine = [os.memfd_create('m'), *os.pipe()]\n"
                                "SUBMIT(opened=mine, held=held())")
        with interp.fork() as fork:
            got = fork.execute("SUBMIT(held=held())").held
            assert fork.execute("os.write(mine[0], b'x'); os.write(mine[2], b'y')").ok
        assert interp.execute("SUBMIT(m=os.pread(mine[0], 1, 0).decode(), p=os.read(mine[1], 1)"
                              ".decode())").json["submit"] == {"m": "x", "p": "y"}
    mine = {str(fd) for fd in opened.opened}
    assert mine and all(got[fd] == opened.held[fd] for fd in mine)
    assert not {fd for fd in ("1", "2", "3") if got[fd] == before[fd]}
    assert set(got) == set(before) | mine


def test_shared_memory_by_name_is_the_familys_and_no_other_sessions(level, bystander):
    """/dev/shm is the sandbox's; where the host's files are seen, it is closed or the user's."""
    if level in ("landlock", "process"):
        pytest.skip("no /dev/shm of its own at " + level)
    name = "/dev/shm/droste-hostile-forks"
    with Interpreter(isolation=level) as interp, interp.fork() as fork:
        assert fork.execute("open(%r, 'w').write('fork')" % name).ok
        assert interp.execute("SUBMIT(text=open(%r).read())" % name).text == "fork"
        look = "import os\nSUBMIT(there=os.path.exists(%r))" % name
        assert bystander.execute(look).there is False
    assert not os.path.exists(name)
    with Interpreter(isolation=level) as later:
        assert later.execute(look).there is False


def test_frames_of_forks_that_were_not_asked_for_end_their_session_alone(level, bystander):
    """A guest asks the host to fork, and answers a fork that there was none of; its other forks go
    on. A true fork is answered as before."""
    frames = ("import os, struct\n"
              "def send(kind, ident):\n"
              "    os.write(3, struct.pack('<BBHIQQ', 1, kind, 0, 2, ident, 0) + b'{}')\n")
    with Interpreter(isolation=level, grace=0.2) as interp:
        interp.execute(frames)
        for kind in (10, 17, 20):       # FORK, READY, RESULT
            with interp.fork() as hostile:
                r = hostile.execute("send(%d, 1 << 63 | 5)\nwhile True: os.getpid()" % kind)
                assert "broke the protocol" in r.error.message and not r.alive
        with interp.fork() as fork:
            assert fork.execute("SUBMIT(x=1)").x == 1


def test_endless_forks_of_forks_end_at_the_limit_of_processes(level, bystander):
    """A chain of forks, each of the one before, is refused by name at the limit, and the family
    works; where some are closed, it can go on."""
    if level == "process":
        pytest.skip("isolation process does not limit processes")
    with Interpreter(isolation=level, processes=24) as interp:
        chain = [interp]
        with pytest.raises(droste.ArgumentError, match="as many processes as they may"):
            for _ in range(24):
                chain.append(chain[-1].fork())
                chain[-1].execute("1")      # its worker may be the first that is too many
        chain.pop().shutdown()
        assert len(chain) > 4
        assert [s.execute("SUBMIT(x=1)").x for s in (chain[0], chain[-1])] == [1, 1]
        for last in chain[:4:-1]:
            last.shutdown()
        with fork_when_there_is_room(chain[4]) as fork:
            assert fork.execute("SUBMIT(x=2)").x == 2
        for last in chain[4:0:-1]:
            last.shutdown()
