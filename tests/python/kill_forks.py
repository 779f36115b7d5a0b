"""One round of test_fork_kills.py, in a process of its own: kill_forks.py SEED LEVEL

Starts a host that forks sessions without end, kills one of its processes at a random moment, and
waits until no process is left: the orphans of a killed host become children of this process.
"""
import ctypes
import os
import random
import signal
import subprocess
import sys
import time

HOST = """
import random, select, sys
import droste
from droste import Interpreter
level = sys.argv[1]
other = Interpreter(isolation=level, preload="fractions", pool=0)      # has a zygote of its own
other.execute("x = 5")
print("ready", flush=True)
while not select.select([sys.stdin], [], [], 0)[0]:
    try:
        with Interpreter(isolation=level, checkpoint="auto", pool=0) as interp:
            interp.execute("y = [0] * 1000")
            checkpoint = interp.checkpoint()
            forks = interp.fork(3)
            for fork in forks:
                fork.execute("y[0] += 1")
            interp.rollback(checkpoint)
            interp.execute("y")
            for fork in forks:
                fork.shutdown()
    except droste.Error:
        pass
assert other.execute("SUBMIT(x=x)").x == 5
with other.fork() as fork:
    assert fork.execute("SUBMIT(x=x + 1)").x == 6
other.shutdown()
print("fine", flush=True)
"""
NEXT = """
import sys
from droste import Interpreter
with Interpreter(isolation=sys.argv[1], pool=0) as interp:
    interp.execute("1")
"""
PR_SET_CHILD_SUBREAPER = 36


def children(pid):
    try:
        with open("/proc/%d/task/%d/children" % (pid, pid)) as file:
            return [int(word) for word in file.read().split()]
    except OSError:
        return []


def descendants(pid):
    """[(pid, its depth below)…]; what ends meanwhile may be missing."""
    found, at = [(pid, 0)], 0
    while at < len(found):
        found += [(child, found[at][1] + 1) for child in children(found[at][0])]
        at += 1
    return found[1:]


def wait_for_all():
    """Until this process has no child; the test has the limit."""
    while True:
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def main():
    chance = random.Random(int(sys.argv[1]))
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    host = subprocess.Popen([sys.executable, "-c", HOST, sys.argv[2]], stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE, text=True)
    assert host.stdout.readline() == "ready\n"
    spared = {pid for pid, _ in descendants(host.pid)}     # the other session's zygote and keeper
    kill_host = chance.random() < 0.25
    time.sleep(chance.random() * 0.4)
    victims = [] if kill_host else [p for p, _ in descendants(host.pid) if p not in spared]
    victim = chance.choice(victims) if victims else host.pid
    try:
        os.kill(victim, signal.SIGKILL)
    except ProcessLookupError:
        pass            # it has ended by itself
    if victim != host.pid:
        host.stdin.write("end\n")
        host.stdin.flush()
        output = host.stdout.read()
        assert host.wait() == 0 and output == "fine\n", (host.returncode, output)
    wait_for_all()
    # Of a host that is killed before its zygote exists, the next host removes the directory.
    subprocess.run([sys.executable, "-c", NEXT, sys.argv[2]], check=True)
    wait_for_all()


if __name__ == "__main__":
    main()
