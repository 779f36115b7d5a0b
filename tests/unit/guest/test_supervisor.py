"""The far end of a link without a process at it: records, and what the supervisor looks at."""
import base64
import binascii
import os
import struct
import subprocess
import sys

import pytest

DATA, ACK, RESUME, PING = 1, 2, 3, 4
ANSWER, RESEND = 1, 2


def record(kind, seq=0, ack=0, payload=b"", flags=0):
    """As wire/link.h has it."""
    header = b"\x1eDL\x01" + struct.pack("<BBHQQ", kind, flags, len(payload), seq, ack)
    return header + struct.pack("<I", binascii.crc32(header + payload)) + payload


def line(data):
    return b"\x1e" + base64.b64encode(data) + b"\n"


class Far:
    """A stream, what came out of it, and its records."""

    def __init__(self, guest, text=False):
        self.got = bytearray()
        self.text = text
        self.stream = guest.Stream(text, self.got.extend)

    def hear(self, data, pieces=None):
        for at in range(0, len(data), pieces or len(data) or 1):
            self.stream.feed(data[at:at + (pieces or len(data))])

    def sent(self):
        """[(kind, flags, seq, ack, payload)] since the last time."""
        out = bytes(self.stream.out)
        self.stream.out.clear()
        if self.text:
            out = b"".join(base64.b64decode(part[1:]) for part in out.split(b"\n") if part)
        out, found = out.lstrip(b"\0"), []
        while out:
            kind, flags, length, seq, ack, total = struct.unpack_from("<BBHQQI", out, 4)
            payload, whole = out[28:28 + length], out[:24] + out[28:28 + length]
            assert out[:4] == b"\x1eDL\x01" and binascii.crc32(whole) == total
            found.append((kind, flags, seq, ack, payload))
            out = out[28 + length:]
        return found


@pytest.fixture(params=["bare", "text"])
def far(guest, request):
    return Far(guest, request.param == "text")


def as_sent(far, data):
    return line(data) if far.text else data


def test_a_record_has_the_documented_bytes(guest):
    """The same as tests/unit/wire/test_link.c has."""
    far = Far(guest)
    far.stream.send(b"h", b"i")
    assert far.stream.out.hex() == "1e444c0101000200" + "00" * 16 + "da5cd16d" + b"hi".hex()
    assert far.sent() == [(DATA, 0, 0, 0, b"hi")]


@pytest.mark.parametrize("pieces", [1, 3, 1000])
def test_bytes_come_out_once_and_in_order(far, pieces):
    """Also what was sent twice, and in parts."""
    for seq, payload in ((0, b"abc"), (0, b"abc"), (2, b"cde"), (5, b"f"), (1, b"b")):
        far.hear(as_sent(far, record(DATA, seq, payload=payload)), pieces)
    assert far.got == b"abcdef"


def test_what_is_missing_is_asked_for_once(far):
    far.hear(as_sent(far, record(DATA, 3, payload=b"d")) * 3)
    assert far.sent() == [(ACK, RESEND, 0, 0, b"")]
    far.hear(as_sent(far, record(DATA, 0, payload=b"abc"))
             + as_sent(far, record(DATA, 3, payload=b"d")))
    assert far.got == b"abcd" and far.sent() == []


def test_a_ping_is_answered_and_tells_what_is_missing(far):
    far.hear(as_sent(far, record(PING)))
    assert far.sent() == [(ACK, ANSWER, 0, 0, b"")]
    far.hear(as_sent(far, record(PING, seq=7)))
    assert far.sent() == [(ACK, RESEND, 0, 0, b""), (ACK, ANSWER, 0, 0, b"")]


@pytest.mark.parametrize("damage", [0, 4, 10, 25, 29])
def test_a_damaged_record_is_passed_over(far, damage):
    bad = bytearray(record(DATA, 0, payload=b"abc"))
    bad[damage] ^= 1
    far.hear(as_sent(far, bytes(bad)) + as_sent(far, record(DATA, 0, payload=b"xyz")), 10)
    assert far.got == b"xyz"


def test_the_largest_record_that_was_cut_ends_in_zeros(guest):
    """A new attachment begins with them; RESUME is found behind, and answered in the same way."""
    far = Far(guest)
    cut = record(DATA, 0, payload=b"x" * 32768)
    for at in (1, 27, 28, 1000, len(cut) - 1):
        far.hear(cut[:at] + bytes(len(cut)) + record(RESUME, payload=b"8 bytes.", ack=0), 4096)
        assert far.stream.out.startswith(bytes(len(cut)))
        assert far.sent() == [(RESUME, ANSWER, 0, 0, b"8 bytes.")]
    assert far.got == b""


def test_resume_sends_again_from_where_the_host_is(far):
    far.stream.send(b"heard")
    far.stream.send(b"lost")
    far.sent()
    far.stream.live = False         # nobody took it
    far.stream.send(b"and more")
    assert far.sent() == []
    far.hear(as_sent(far, record(RESUME, ack=5, payload=b"8 bytes.")))
    assert far.sent() == [(RESUME, ANSWER, 5, 0, b"8 bytes."), (DATA, 0, 5, 0, b"lostand more")]


def test_no_more_is_under_way_than_the_window(far, guest):
    window = guest.TO_HOST_TEXT if far.stream.text else guest.TO_HOST
    far.stream.send(bytes(window + 100000))
    assert sum(len(each[4]) for each in far.sent()) == window
    far.hear(as_sent(far, record(ACK, ack=65536)))
    assert sum(len(each[4]) for each in far.sent()) == 65536


def test_noise_between_lines_is_passed_over(guest):
    far = Far(guest, text=True)
    sent = line(record(DATA, 0, payload=b"ab")).replace(b"\n", b"\r\n")
    far.hear(b"$ prompt\r\n\x1e\x1e" + b"A" * 200000 + b"\n\x1enot base64!\n" + sent, 7)
    assert far.got == b"ab"


def test_endless_lines_are_not_kept(guest):
    far = Far(guest, text=True)
    far.hear(b"\x1e" + b"A" * (1 << 20), 4096)
    assert len(far.stream.inbox) <= guest.LINE_MAX


# ---- processes ----

def test_descendants_are_found_and_spared(guest):
    """A child with a child of its own, which is below this process unless the child is spared."""
    child = subprocess.Popen([sys.executable, "-c", "import subprocess, sys\n"
                              "p = subprocess.Popen(['sleep', '1000'])\nprint(p.pid, "
                              "flush=True)\np.wait()"],
                             stdout=subprocess.PIPE)
    try:
        grandchild = int(child.stdout.readline())
        assert {child.pid, grandchild} <= set(guest.descendants())
        assert not {child.pid, grandchild} & set(guest.descendants({child.pid}))
    finally:
        for pid in guest.descendants():
            guest.kill_quietly(pid, 9)
        child.wait()
        child.stdout.close()


def test_limits_of_a_cgroup_are_numbers_or_absent(guest, monkeypatch):
    files = {"/sys/fs/cgroup/memory.max": "1048576", "/sys/fs/cgroup/pids.max": "max",
             "/sys/fs/cgroup/cpu.max": "150000 100000"}
    monkeypatch.setattr(guest, "read_first",
                        lambda *paths: next((files[p] for p in paths if p in files), None))
    assert guest.cgroup_limits() == {"memory": 1048576, "cpus": 1.5}
    files.clear()
    assert guest.cgroup_limits() == {}


def test_it_takes_no_descriptor_that_is_not_there(guest):
    """In a process of its own: afterwards only those that were named are open."""
    pid = os.fork()
    if pid == 0:
        try:
            guest.close_all_but({0, 1, 2})
            os._exit(len([n for n in range(3, 64) if os.path.exists("/proc/self/fd/%d" % n)]) and 1)
        finally:
            os._exit(2)
    assert os.waitpid(pid, 0)[1] == 0


def test_the_report_of_a_worker(guest):
    """Its keeper's report; that it ran out of memory only if it was killed while the count rose."""
    supervisor = guest.Supervisor.__new__(guest.Supervisor)
    worker = guest.Worker(1, "/none")
    for status, before, after, oom in ((9, 0, 1, True), (9, 1, 1, False), (256, 1, 2, False),
                                       (-1, 2, 3, True)):
        worker.report = b'{"left": false, "status": %d}\n' % status
        supervisor.memory = guest.OutOfMemory()
        supervisor.memory.seen, supervisor.memory.count = before, lambda: after
        assert supervisor.judge(worker).get("oom", False) is oom
        assert supervisor.memory.seen == after


@pytest.fixture
def one_worker(guest, tmp_path, monkeypatch):
    """(a supervisor of one worker, what it was told to do, what is to rise): it looks at a file of
    the kernel's form."""
    events = tmp_path / "memory.events"
    events.write_bytes(b"low 0\noom 0\noom_kill 0\n")
    supervisor = guest.Supervisor.__new__(guest.Supervisor)
    supervisor.lease, supervisor.sweeping, supervisor.preparing, supervisor.over = (0, False, None,
                                                                                    False)
    supervisor.memory = guest.OutOfMemory()
    supervisor.memory.fd = os.open(events, os.O_RDONLY)
    supervisor.memory.seen = 0
    supervisor.workers = {1: guest.Worker(1, "/none")}
    ended = []
    monkeypatch.setattr(supervisor, "obey", lambda *words: ended.append(words[:2]), raising=False)
    yield supervisor, ended, events
    os.close(supervisor.memory.fd)


def a_second_later(supervisor, guest):
    supervisor.memory.looked -= guest.MEMORY_SECONDS
    supervisor.look_at_clock()


def test_memory_is_measured_while_the_guest_is_silent(guest, one_worker):
    """It wakes by itself, and who has lost a process to the kernel since the last look is ended,
    once."""
    supervisor, ended, events = one_worker
    assert 0 <= supervisor.patience() <= guest.MEMORY_SECONDS * 1000 + 1
    a_second_later(supervisor, guest)
    assert ended == [] and not supervisor.workers[1].starved
    events.write_bytes(b"low 0\noom 0\noom_kill 2\n")
    supervisor.look_at_clock()
    assert ended == [], "it was looked at a moment ago"
    for _ in range(2):
        a_second_later(supervisor, guest)
    assert ended == [(guest.MUX_KILL, 1)] and supervisor.workers[1].starved


def test_whose_memory_it_was_is_not_guessed(guest, one_worker):
    """Of two workers nobody is ended, and without the kernel's count nothing is waited for."""
    supervisor, ended, events = one_worker
    supervisor.workers[2] = guest.Worker(2, "/none")
    assert supervisor.patience() is None
    events.write_bytes(b"low 0\noom 0\noom_kill 2\n")
    a_second_later(supervisor, guest)
    assert ended == []
    del supervisor.workers[2]
    memory_fd, supervisor.memory.fd = supervisor.memory.fd, None
    assert supervisor.patience() is None
    a_second_later(supervisor, guest)
    assert ended == []
    supervisor.memory.fd = memory_fd


# -- the search for processes

TREE = """
import os, subprocess, sys, threading
below = []
def start():                # a child of another thread, with a child of its own
    code = "import subprocess; p = subprocess.Popen(['sleep', '600']); print(p.pid); input()"
    p = subprocess.Popen([sys.executable, "-c", code], stdin=0, stdout=subprocess.PIPE, text=True)
    below.extend([p.pid, int(p.stdout.readline())])
    stay.wait()
stay, first = threading.Event(), subprocess.Popen(["sleep", "600"])
thread = threading.Thread(target=start, daemon=True)
thread.start()
while len(below) < 2:
    pass
print(os.getpid(), first.pid, *below, flush=True)
input()
"""


@pytest.fixture
def tree():
    """A process of this one with three below it: (its pid, theirs)."""
    top = subprocess.Popen([sys.executable, "-c", TREE], stdin=subprocess.PIPE,
                           stdout=subprocess.PIPE, text=True, start_new_session=True)
    pid, *below = map(int, top.stdout.readline().split())
    yield pid, below
    os.killpg(pid, 9)
    top.communicate()


@pytest.mark.parametrize("is_listed", [True, False])
def test_descendants_are_found_and_the_spared_are_not(guest, monkeypatch, tree, is_listed):
    """Those of other threads and of children, too; also where the kernel lists no children."""
    top, below = tree
    if not is_listed:
        def refuse(pid):
            raise OSError(2, "no such file")
        monkeypatch.setattr(guest, "read_children", refuse)
    assert {top, *below} <= set(guest.descendants())
    assert not {top, *below} & set(guest.descendants([top]))
