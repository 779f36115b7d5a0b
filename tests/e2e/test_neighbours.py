"""What a guest of an ordinary user can use up of what the kernel counts for each user."""
import os
import subprocess

import pytest

from harness import PYTHON, needs_root
from droste_cli import DROSTE

SEND_ALL = """
import array, os, socket, time
pairs, fd = [], os.open("/dev/null", 0)
try:
    while True:
        pairs.append(socket.socketpair())
        for i in range(4):
            pairs[-1][0].sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd] * 100))])
except OSError as e:
    print(e.errno, flush=True)
time.sleep(600)
"""
PASS_ONE = """
import array, resource, socket
resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))
a, b = socket.socketpair()
a.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0]))])
"""


@needs_root
@pytest.mark.xdist_group("descriptors on their way")       # they count for the user
@pytest.mark.parametrize("settings, passes", [((), True), (("--open-files", "2000"), False)],
                         ids=["default", "more files"])
def test_a_user_can_still_pass_a_descriptor(ordinary_user, settings, passes):
    """A guest that has as many descriptors on their way as it can leaves its user the right to pass
    one, with the default limit of open files; with a larger one it does not, which shows that the
    guest tried."""
    guest = ordinary_user.start("exec", *settings, "-c", SEND_ALL)
    try:
        assert guest.stdout.readline() == b"109\n"      # ETOOMANYREFS
        ours = subprocess.run(ordinary_user.prefix + [PYTHON, "-c", PASS_ONE],
                              stderr=subprocess.PIPE, text=True)
        assert (ours.returncode == 0) is passes, ours.stderr
    finally:
        guest.kill()
        guest.communicate()


@needs_root
@pytest.mark.parametrize("level", ["full", "light", "landlock", "process"])
@pytest.mark.parametrize("policy, seen", [("SCHED_FIFO", "SCHED_OTHER"),
                                          ("SCHED_IDLE", "SCHED_IDLE")])
def test_a_guest_has_no_real_time_priority(policy, seen, level):
    """Where droste runs at real-time priority its guests do not: they could keep a processor from
    all that would end them. One that gives way to all others has guests that do so too."""
    def schedule():
        os.sched_setscheduler(0, getattr(os, policy),
                              os.sched_param(1 if policy == "SCHED_FIFO" else 0))
    try:
        subprocess.run(["true"], preexec_fn=schedule, check=True)
    except subprocess.SubprocessError:
        pytest.skip("%s is not allowed here, as in a group of the cpu controller" % policy)
    code = "import os; print(os.sched_getscheduler(0) == os.%s)" % seen
    done = subprocess.run([DROSTE, "exec", "--isolation", level, "-c", code], preexec_fn=schedule,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.stdout == "True\n", done.stderr
