"""What the kernel keeps for the whole machine, or counts by user, is not a guest's to take:
thousands of attempts from one sandbox at `full` with the default limits, and then a sandbox
beside it and one after it. Only here: where a guest could take it, the machine would be lost."""
import ctypes
import json
import os
import re
import socket
import struct
import subprocess

import pytest

from test_limits import DROSTE, read, run, wait_for

ROOT = os.geteuid() == 0
SO_ATTACH_FILTER = 26
FILTERS = 12000

# Processes, each with as many descriptors as it may have, hold what they get until the end.
TAKE = """
import ctypes, json, os, signal, socket
libc = ctypes.CDLL(None, use_errno=True)
ret = (ctypes.c_uint64 * 1)(0x6 | 0x7fff0000 << 32)
program = (ctypes.c_uint64 * 2)(1, ctypes.addressof(ret))
name = ctypes.create_string_buffer(b"/q")
page = ctypes.create_string_buffer(4096)
def attach(i, held):
    if not held or i % 2 == 0:
        held.append(socket.socketpair())
    return libc.setsockopt(held[-1][i % 2].fileno(), 1, 26, program, 16)
def own(*arguments):
    return lambda i, held: libc.syscall(*arguments)
def key(i, held):
    return libc.syscall(248, b"user", b"k%d-%d" % (os.getpid(), i), page, 64, -3)
def pipe(i, held):
    held.append(os.pipe())
    return libc.fcntl(held[-1][1], 1031, 1 << 20)
TRIES = {"filters": (attach, 400), "own filters": (own(317, 1, 0, program), 100), "programs": (own(321, 0, page, 64), 100),
         "keys": (key, 200), "watches": (own(294, 0), 200), "epolls": (own(233, 0, 1, 0, page), 100),
         "queues": (own(240, name, 0o102, 0o600, None), 100), "messages": (own(68, 0, 0o1600), 100),
         "semaphores": (own(64, 0, 100, 0o1600), 100), "segments": (own(29, 0, 4096, 0o1600), 100),
         "aio": (own(206, 1000, page), 100), "pipes": (pipe, 200)}
def attempt(out):
    got, everything = {}, []
    for what, (take, count) in TRIES.items():
        held = []
        got[what] = [sum(take(i, held) >= 0 for i in range(count)), count]
        if what == "filters":       # which need as many descriptors as there may be
            everything.append([end.detach() for pair in held[:20] for end in pair])
            del held[20:]
        everything.append(held)
    os.write(out, (json.dumps(got) + "\\n").encode())
    signal.pause()
reader, writer = os.pipe()
for i in range(CHILDREN):
    if os.fork() == 0:
        attempt(writer)
got = {}
with os.fdopen(reader) as lines:
    for i in range(CHILDREN):
        for what, (taken, tried) in json.loads(lines.readline()).items():
            sums = got.setdefault(what, [0, 0])
            sums[0] += taken; sums[1] += tried
print(json.dumps(got), flush=True)
signal.pause()
"""


def lines_of(path, text):
    with open(path) as f:
        return sum(text in line for line in f)


def pools():
    """Programs of the kernel's own machine (a page each), keys, and requests of asynchronous
    I/O."""
    return {"programs": lines_of("/proc/vmallocinfo", "bpf_prog_alloc"),
            "keys": sum(int(re.split(r"[ /:]+", line.strip())[2])
                        for line in open("/proc/key-users")),
            "aio": int(read("/proc/sys/fs/aio-nr")), "queues": lines_of("/proc/sysvipc/msg", " "),
            "segments": lines_of("/proc/sysvipc/shm", " ")}


@pytest.fixture
def attack():
    """Gives what a guest got of what it tried, as [taken, tried] of each kind; it holds that
    until the end of the test."""
    hosts = []

    def begin(*words):
        code = TAKE.replace("CHILDREN", str(FILTERS // 400))
        host = subprocess.Popen([DROSTE, "exec", "--isolation", "full", "-c", code, *words],
                                stdout=subprocess.PIPE, text=True)
        hosts.append(host)
        return json.loads(host.stdout.readline())

    def end():
        for host in hosts:
            host.kill()
            host.wait()
        del hosts[:]
    begin.end = end
    yield begin
    end()


BESIDE = """
import fcntl, os
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
pipes = [os.pipe() for i in range(20)]
SUBMIT(mode=int(status["Seccomp"]), sizes=sorted({fcntl.fcntl(p[1], 1032) for p in pipes}))
"""


def test_a_guest_takes_nothing_of_what_all_share(attack):
    """It gets no filter, program, key, watch, queue, segment or request of asynchronous I/O in
    thousands of attempts, and pipes of the usual size only; a sandbox beside it and one after it
    start, with their filters loaded."""
    got = attack()
    assert got["filters"][1] == FILTERS and sum(tried for _, tried in got.values()) > 50000
    assert {what: taken for what, (taken, _) in got.items() if taken} == {}
    assert run(BESIDE, "full")["submit"]["mode"] == 2
    attack.end()
    assert run(BESIDE, "full")["submit"] == {"mode": 2, "sizes": [65536]}


@pytest.mark.skipif(not ROOT, reason="only root sees how much the kernel holds")
def test_the_kernels_pools_are_as_before(attack):
    """While the guest holds all that it got, and after its end; a program outside that attaches
    a hundred filters is seen, and gives them back."""
    run("pass", "full")
    before = pools()
    attack()
    during = pools()
    # the filters of its own and its zygote's processes
    assert during["programs"] < before["programs"] + 20
    assert {**during, "programs": 0, "keys": 0} == {**before, "programs": 0, "keys": 0}
    assert during["keys"] <= before["keys"] + 8
    attack.end()
    wait_for(lambda: pools()["programs"] <= before["programs"])
    sockets = [socket.socketpair() for _ in range(100)]
    place = ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, 0x7fff0000))
    for one, _ in sockets:
        one.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER,
                       struct.pack("HL", 1, ctypes.addressof(place)))
    assert pools()["programs"] >= before["programs"] + 100
    for pair in sockets:
        for end in pair:
            end.close()
    wait_for(lambda: pools()["programs"] <= before["programs"])


@pytest.mark.skipif(not ROOT, reason="root alone can give a sandbox another user")
@pytest.mark.parametrize("users", ["auto", "shared"])
def test_pipes_of_one_user_shrink_for_no_other(attack, users):
    """The kernel bounds the pages of all pipes of a user. With users of their own a sandbox
    beside the attacker has pipes of the usual size; as one shared user, the twin, it has not."""
    attack("--sandbox-users", users)
    r = run(BESIDE, "full", "--sandbox-users", users)
    assert (r["submit"]["sizes"] == [65536]) == (users == "auto")
