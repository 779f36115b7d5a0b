"""As root, each local sandbox is another user of the machine, so that nothing that the kernel
counts by user is shared."""
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile

import pytest

import droste

pytestmark = pytest.mark.skipif(os.geteuid() != 0,
                                reason="needs root, who alone can give a sandbox another user")
PYTHON = "/usr/bin/python3"     # at landlock root's guest reads what everybody can
LEVELS = ("full", "light", "landlock")
NOBODY = 65534
DROSTE = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))),
                      os.environ.get("BUILD", "build"), "droste")
OUTSIDE = """
def outside():
    "Who this is to the host."
    import os
    try:
        first, second = open("/proc/self/uid_map").read().split()[:2]
    except PermissionError:     # at landlock, where there is no user namespace
        return os.getuid()
    return int(second) if int(first) else os.getuid()
SUBMIT(user=outside())
"""
# As many timers as it gets: each is a signal that waits, of which the kernel lets a user have so
# many.
TAKE = """
import ctypes
def take(most):
    libc, ident, count = ctypes.CDLL(None), ctypes.c_int(), 0
    while count < most and libc.timer_create(1, None, ctypes.byref(ident)) == 0:
        count += 1
    return count
SUBMIT(count=take(%d))
"""


def session(level, **settings):
    return droste.Interpreter(isolation=level, python=PYTHON, **settings)


def user_of(interpreter):
    return interpreter.execute(OUTSIDE).user


@pytest.mark.parametrize("level", LEVELS)
def test_each_sandbox_is_another_user(level):
    """Of one host and of two: four sandboxes at once are four users, none of them nobody or
    root."""
    code = ("import sys, droste\nwith droste.Interpreter(isolation=%r, python=%r) as i:\n"
            "    print(i.execute(%r).user, flush=True)\n    sys.stdin.read()"
            % (level, PYTHON, OUTSIDE))
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    other = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE, env=env)
    try:
        with session(level) as one, session(level) as two, session(level) as three:
            users = [user_of(one), user_of(two), user_of(three), int(other.stdout.readline())]
    finally:
        other.communicate()
    assert len(set(users)) == 4 and not set(users) & {0, NOBODY}


def test_the_ids_are_a_setting():
    """A range of one's own, and `shared`, with which all are nobody."""
    first = 70000 + 2 * random.randrange(5000)      # others may run this test as well
    ids = "%d-%d" % (first, first + 1)
    with session("full", sandbox_users=ids) as one, session("full", sandbox_users=ids) as two:
        assert {user_of(one), user_of(two)} == {first, first + 1}
    with session("full", sandbox_users="shared") as one:
        assert user_of(one) == NOBODY
    with pytest.raises(droste.Error, match="sandbox-users"):
        session("full", sandbox_users="70000").execute("1")


def test_signals_that_wait_are_not_shared():
    """One guest at landlock takes all that it gets, and the next has as many."""
    with session("landlock") as one, session("landlock") as two:
        assert 1000 <= one.execute(TAKE % 5000).count <= 1024
        assert two.execute(TAKE % 100).count == 100


def test_processes_are_not_shared():
    """At landlock, without a namespace, the limit is the sandbox's own: what a neighbour has
    started does not count."""
    fork = ("import os, time\ncount = 0\ntry:\n    while count < 100:\n        if os.fork() == 0:\n"
            "            time.sleep(1000)\n        count += 1\nexcept BlockingIOError:\n    "
            "pass\nSUBMIT(count=count)")
    with session("landlock", processes=40) as one, session("landlock", processes=40) as two:
        assert one.execute(fork).count == two.execute(fork).count < 40


ADD = ("open('%s/x', 'a').write('%s')\nSUBMIT(x=open('%s/x').read(), "
       "mine=__import__('os').stat('%s/x').st_uid)")


def add(interpreter, text, at="/data"):
    return interpreter.execute(ADD % (at, text, at, at))


def owners(directory):
    """Whose the files are on this machine."""
    return {entry.stat(follow_symlinks=False).st_uid for entry in os.scandir(directory)}


def volumes_can_be_mapped(root):
    """As `droste doctor` has it."""
    found = subprocess.run([DROSTE, "doctor", "--json", "--volume-root", str(root)], text=True,
                           stdout=subprocess.PIPE)
    text = {check["name"]: check for check in json.loads(found.stdout)["checks"]}["users"]["text"]
    assert ("(ID-mapped mounts)" in text) != ("share user" in text), text
    return "(ID-mapped mounts)" in text


@pytest.fixture
def place(tmp_path):
    """A volume in a place that all users can reach."""
    root = tempfile.mkdtemp(dir="/var/tmp")
    os.chmod(root, 0o755)
    if not volumes_can_be_mapped(root):
        shutil.rmtree(root)
        pytest.skip("the file system of /var/tmp has no idmapped mounts")
    yield dict(volume_root=root, volume_name="v")
    shutil.rmtree(root)


@pytest.mark.parametrize("level", ["full", "light"])
def test_sandboxes_of_one_volume_are_users_of_their_own(level, place):
    """Two at once write the same files and find them theirs; on this machine all are the
    volume's owner's. A later one goes on with them."""
    with session(level, **place) as one, session(level, **place) as two:
        assert len({user_of(one), user_of(two), NOBODY}) == 3
        assert add(one, "1").x == "1"
        assert add(two, "2").x == "12"
        assert (add(one, "3").x, add(one, "").mine) == ("123", 1000)
        two.execute("open('/data/y', 'w').write('2')")
    with session(level, **place) as later:
        assert (add(later, "4").x, add(later, "").mine) == ("1234", 1000)
    assert owners(place["volume_root"] + "/v/data") == {NOBODY}


def test_sandboxes_that_share_a_user_share_a_volume(place):
    """The plain twin: all are nobody, see the same and leave the same on disk."""
    with session("full", sandbox_users="shared", **place) as one, session("full", **place) as two:
        assert user_of(one) == NOBODY != user_of(two)
        assert add(one, "1").x == "1"
        assert (add(two, "2").x, add(two, "").mine) == ("12", 1000)
        assert (add(one, "3").x, add(one, "").mine) == ("123", 1000)
    assert owners(place["volume_root"] + "/v/data") == {NOBODY}


def test_at_landlock_a_volume_belongs_to_the_user_nobody(place):
    """Without mounts of its own a sandbox has the volume as it is: those of one volume share a
    user, without they do not."""
    with session("landlock", **place) as one, session("landlock", **place) as two, session(
        "landlock") as without:
        assert user_of(one) == user_of(two) == NOBODY != user_of(without)
        at = place["volume_root"] + "/v/data"
        assert add(one, "1", at).x == "1"
        assert add(two, "2", at).x == "12"


def test_both_names_of_a_volume_are_one(place):
    """Under other systems' names a volume and a workspace are mounted twice, and each is the
    sandbox's own."""
    with session("full", layout="daytona", **place) as one:
        assert user_of(one) != NOBODY
        assert add(one, "1").x == "1"
        assert (add(one, "2", "/home/daytona/memory").x, add(one, "").mine) == ("12", 1000)


# What one sandbox may try on another that it shares a volume with, by the process id that the host
# knows.
REACH = """
import ctypes, os, signal
libc = ctypes.CDLL(None, use_errno=True)
def seen(function, *arguments):
    try:
        function(*arguments)
        return "done"
    except OSError as e:
        return type(e).__name__
def call(*arguments):
    if libc.syscall(*arguments) < 0:
        raise OSError(ctypes.get_errno(), "")
def tries(pid):
    return {"kill": seen(os.kill, pid, signal.SIGKILL), "stop": seen(os.kill, pid, signal.SIGSTOP),
            "attach": seen(call, 101, 16, pid, 0, 0), "seize": seen(call, 101, 0x4206, pid, 0, 0),
            "memory": seen(open, "/proc/%d/mem" % pid, "rb"), "notes": seen(call, 294, 0),
            "limits": seen(call, 302, pid, 7, 0, 0)}
"""
OF_OTHER = {"full": {"ProcessLookupError", "PermissionError", "FileNotFoundError", "OSError"},
            "landlock": {"PermissionError", "OSError"}}


@pytest.mark.parametrize("level", sorted(OF_OTHER))
def test_a_sandbox_cannot_reach_another_of_its_volume(level, place):
    """Signals, ptrace, memory, watches and limits of another's process fail, and it lives on; of
    one's own child a signal arrives."""
    with session(level, **place) as one, session(level, **place) as two:
        two.execute("x = 41")
        processes = processes_of(two, level)
        assert processes
        one.execute(REACH)
        for pid in processes:
            saw = one.execute("SUBMIT(saw=tries(%d) if %d != os.getpid() else None)"
                              % (pid, pid)).saw
            assert saw is None or set(saw.values()) <= OF_OTHER[level], saw
        assert two.execute("SUBMIT(x=x + 1)").x == 42
        assert one.execute(
            "pid = os.fork()\nif pid == 0:\n    signal.pause()\nos.kill(pid, signal.SIGKILL)\n"
            "SUBMIT(ended=os.waitpid(pid, 0)[1])").ended == 9


def processes_of(interpreter, level):
    """Their ids on this machine. At landlock they are the guest's own; else its user has no
    others."""
    if level == "landlock":
        return [interpreter.execute("import os\nSUBMIT(pid=os.getpid())").pid]
    user = user_of(interpreter)
    return [int(pid) for pid in os.listdir("/proc") if pid.isdigit() and owner_of(int(pid)) == user]


def owner_of(pid):
    try:
        return os.stat("/proc/%d" % pid).st_uid
    except OSError:
        return None
