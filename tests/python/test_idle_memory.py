"""What a session has freed goes back to the system while it is idle."""
import os
import time

import pytest

from droste import Interpreter

MANY = "blocks = [bytes(1000 + i % 3000) for i in range(40000)]; last = blocks[-1]"  # 100 MB
LEVELS = ["full", "process"]


def resident(pid):
    with open("/proc/%d/statm" % pid) as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") >> 20


def processes():
    found = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/stat" % name) as f:
                found[int(name)] = int(f.read().rpartition(")")[2].split()[1])
        except OSError:
            continue
    return found


def largest_below(pid):
    """The descendant with the most memory, and how many MB that is."""
    parents, below = processes(), {pid}
    while True:
        more = {child for child, parent in parents.items() if parent in below} - below
        if not more:
            break
        below |= more
    sizes = []
    for child in below - {pid}:
        try:
            sizes.append((resident(child), child))
        except OSError:
            continue
    return max(sizes)[::-1]


def becomes_less(pid, megabytes):
    end = time.monotonic() + 60
    while resident(pid) > megabytes and time.monotonic() < end:
        time.sleep(0.05)
    return resident(pid)


@pytest.mark.parametrize("level", LEVELS)
def test_an_idle_session_returns_what_its_code_has_freed(level):
    with Interpreter(isolation=level, pool=0) as interp:
        interp.execute(MANY)
        worker, megabytes = largest_below(os.getpid())
        assert megabytes > 100
        interp.execute("del blocks")
        assert becomes_less(worker, 60) <= 60
        assert interp.execute("len(last)").echo == "1999"


def test_what_is_in_use_stays():
    """And a fork that has freed it leaves the session's own memory alone."""
    with Interpreter(isolation="full", pool=0) as interp:
        interp.execute(MANY)
        worker, megabytes = largest_below(os.getpid())
        with interp.fork() as fork:
            fork.execute("del blocks")
            assert fork.execute("len(last)").echo == "1999"
        assert interp.execute("sum(map(len, blocks))").echo == str(
            sum(1000 + i % 3000 for i in range(40000)))
        assert resident(worker) > 100
