"""As root, each local sandbox is another user of the machine, so that nothing that the kernel counts by user is shared."""
import os
import subprocess
import sys

import pytest

import droste

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, who alone can give a sandbox another user")
PYTHON = "/usr/bin/python3"     # at landlock root's guest reads what everybody can
LEVELS = ("full", "light", "landlock")
NOBODY = 65534
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
# As many timers as it gets: each is a signal that waits, of which the kernel lets a user have so many.
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
    """Of one host and of two: four sandboxes at once are four users, none of them nobody or root."""
    code = ("import sys, droste\nwith droste.Interpreter(isolation=%r, python=%r) as i:\n"
            "    print(i.execute(%r).user, flush=True)\n    sys.stdin.read()" % (level, PYTHON, OUTSIDE))
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    other = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env)
    try:
        with session(level) as one, session(level) as two, session(level) as three:
            users = [user_of(one), user_of(two), user_of(three), int(other.stdout.readline())]
    finally:
        other.communicate()
    assert len(set(users)) == 4 and not set(users) & {0, NOBODY}


def test_the_ids_are_a_setting():
    """A range of one's own, and `shared`, with which all are nobody."""
    with session("full", sandbox_users="70000-70001") as one, session("full", sandbox_users="70000-70001") as two:
        assert {user_of(one), user_of(two)} == {70000, 70001}
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
    """At landlock, without a namespace, the limit is the sandbox's own: what a neighbour has started does not count."""
    fork = ("import os, time\ncount = 0\ntry:\n    while count < 100:\n        if os.fork() == 0:\n"
            "            time.sleep(1000)\n        count += 1\nexcept BlockingIOError:\n    pass\nSUBMIT(count=count)")
    with session("landlock", processes=40) as one, session("landlock", processes=40) as two:
        assert one.execute(fork).count == two.execute(fork).count < 40


def test_a_volume_is_written_by_all_its_sessions(tmp_path):
    """Sessions of one volume are one user, and its files stay theirs: at once, and later. Others are others."""
    place = dict(volume_root=str(tmp_path / "volumes"), volume_name="v")
    at = "at = '/data' if __import__('os').path.isdir('/data/logs') else VOLUME\n"
    with session("full", **place) as one, session("full", **place) as two:
        assert user_of(one) == user_of(two)
        one.execute("open('/data/x', 'w').write('1')")
        assert two.execute("open('/data/x', 'a').write('2')\nSUBMIT(x=open('/data/x').read())").x == "12"
    with session("full", **place) as later, session("full") as without:
        assert later.execute("open('/data/x', 'a').write('3')\nSUBMIT(x=open('/data/x').read())").x == "123"
        assert user_of(without) != user_of(later)
