"""The first process of a remote environment: starts workers and relays between them and the host.

It has one thread and one poll loop. Data from the host goes to workers as they accept it, within
the host's credit (src/wire/mux.h). Data from workers goes to the host; while much of it waits, the
supervisor reads from no worker. It sends HELLO immediately and prepares for fast starts when idle.

No user code runs here. The supervisor moves its standard streams to other descriptors before it
starts any worker, and where possible it has the kernel hide it from other processes of its user
(PR_SET_DUMPABLE).
"""
from __future__ import annotations

import _socket
import fcntl
import gc
import json
import os
import select
import signal
import struct
import sys
import time
from typing import TYPE_CHECKING, Any, Callable, Iterable, Iterator

from .keeper import (
    ALL_SIGNALS, control, descendants, find_prctl, Keeper, kill_quietly, make_home,
    PR_SET_CHILD_SUBREAPER, PR_SET_DUMPABLE, remove_tree)
from .stream import Stream
from ..core.boot import lay_session, PRELOAD, REHEARSALS
from ..core.lazy import load_lazy_modules
from ..core.link import on_interrupt
from ..core.state import state
from ..core.worker import find_seeds, rehearse

if TYPE_CHECKING:
    from ..core.aliases import Head

MUX = struct.Struct("<BBHII")
MUX_START, MUX_BYTES, MUX_INTERRUPT, MUX_KILL, MUX_CLOSE, MUX_HOLD = 1, 2, 3, 4, 5, 6
MUX_HELLO, MUX_OUTPUT, MUX_EXIT, MUX_CREDIT_MORE = 17, 18, 19, 20
CREDIT = 1 << 20
READ = 1 << 18          # bytes per read or write
KILL_SECONDS = 3        # grace period of a keeper; then the supervisor kills it and its tree
MEMORY_SECONDS = 1      # interval of checks for OOM kills while nothing else happens
SWEEP_SECONDS, QUIET = 0.02, 3      # interval of sweeps for strays; sweeps in a row without any
LINGER_SECONDS = 1      # wait for pipes that a dead worker has passed to other processes
END_SECONDS = 2
FIONREAD = 0x541B


def read_first(*paths: str) -> str | None:
    """Returns the first line of the first of these files that exists, or None."""
    for path in paths:
        try:
            with open(path) as file:
                return file.readline().strip()
        except OSError:
            pass
    return None


def cgroup_limits() -> dict[str, float]:
    """Returns the limits of this container: `memory` in bytes, `processes`, `cpus`, if limited."""
    root = "/sys/fs/cgroup"
    found: dict[str, float] = {}
    for name, paths in (("memory", (root + "/memory.max", root + "/memory/memory.limit_in_bytes")),
                        ("processes", (root + "/pids.max", root + "/pids/pids.max"))):
        text = read_first(*paths)
        if text and text.isdigit() and int(text) < 1 << 60:
            found[name] = int(text)
    quota = (read_first(root + "/cpu.max") or "").split()
    if len(quota) == 2 and quota[0].isdigit() and quota[1].isdigit():
        found["cpus"] = int(quota[0]) / max(int(quota[1]), 1)
    return found


class OutOfMemory:
    """Counts processes that the kernel has killed because the container ran out of memory."""

    def __init__(self) -> None:
        self.fd = None
        for path in ("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control"):
            try:
                self.fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                break
            except OSError:
                pass
        self.seen = self.count()
        self.looked = time.monotonic()

    def count(self) -> int:
        try:
            words = os.pread(self.fd, 4096, 0).split() if self.fd is not None else []
            return int(words[words.index(b"oom_kill") + 1])
        except (OSError, ValueError, IndexError):
            return 0

    def struck(self) -> bool:
        """Whether the count has increased since the last call."""
        count = self.count()
        self.looked = time.monotonic()
        struck, self.seen = count > self.seen, count
        return struck


def kill_all(pids: Iterable[int], alone: bool) -> None:
    """Kills processes; with `alone`, all but this one.

    As pid 1 of a container it kills all other processes in one call, which no fork can outrun.
    """
    if alone and os.getpid() == 1:
        kill_quietly(-1, signal.SIGKILL)
    for pid in pids:
        kill_quietly(pid, signal.SIGKILL)


class Worker:
    """The supervisor's view of a worker: its keeper, channel and pipes."""

    def __init__(self, number: int, home: str, beside: bool = False) -> None:
        self.number = number
        self.home = home            # the keeper removes it if it can
        self.beside = beside        # it is another worker's directory, and serves files there
        self.keeper: int | None = None
        self.channel: _socket.socket | None = None     # the supervisor's end
        self.pipes: dict[int, int] = {}             # {1 or 2: descriptor}
        self.status: int | None = None          # descriptor of the status pipe; None after its end
        self.report = b""
        self.pending = bytearray()  # bytes to write to the channel
        self.taken = 0              # bytes written but not yet credited to the host
        self.kill_at: float | None = None
        self.linger_until: float | None = None
        self.starved = False        # being killed because the container ran out of memory
        self.rings_late = False     # signal the interrupt when `pending` is empty
        self.held = False           # MUX_HOLD: the host does not read this worker at present
        self.stray = False          # the keeper is gone and may have left processes behind


class Supervisor:
    """The poll loop, the link to the host and all workers."""

    def __init__(self, source: int, sink: int, text: bool, lease: float, eof_ends: bool) -> None:
        self.source, self.sink = source, sink
        self.lease, self.eof_ends = lease, eof_ends
        self.stream = Stream(text, self.take)
        self.message = bytearray()
        self.bytes_left = 0             # unread payload of a BYTES message, for `bytes_to`
        self.bytes_to: Worker | None = None
        self.workers: dict[int, Worker] = {}
        self.keepers: set[int] = set()            # pids not yet reaped
        self.poller = select.poll()
        self.handlers: dict[int, tuple[Callable[..., Any], Any]] = {}
        self.watched: dict[int, int] = {}
        self.heard = time.monotonic()
        self.memory = OutOfMemory()
        self.over = False
        self.hidden = False             # the kernel hides this process: PR_SET_DUMPABLE is 0
        self.sweeping, self.quiet = False, 0
        self.turn = 0
        self.preparing = self.prepare()
        self.wake, wake = os.pipe()
        for fd in (self.wake, wake, source, sink):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGTERM, signal.SIGHUP):      # SIGHUP: the terminal was closed
            signal.signal(number, lambda *_: setattr(self, "over", True))
        signal.signal(signal.SIGINT, on_interrupt)
        self.handle(self.wake, self.woken)
        self.handle(source, self.hear)
        self.handle(sink, self.write)

    # -- descriptors and timers

    def handle(self, fd: int, function: Callable[..., Any], *args: Any) -> None:
        self.handlers[fd] = (function, args)

    def watch(self, fd: int, events: int) -> None:
        if self.watched.get(fd, 0) == events:
            return
        if events:
            self.poller.register(fd, events)
            self.watched[fd] = events
        else:
            self.poller.unregister(fd)
            del self.watched[fd]

    def forget(self, fd: int) -> None:
        self.watch(fd, 0)
        self.handlers.pop(fd, None)

    def watch_all(self) -> None:
        reads = 0 if self.stream.is_full() else select.POLLIN
        self.watch(self.wake, select.POLLIN)
        if self.source is not None:
            self.watch(self.source, select.POLLIN)
        self.watch(self.sink, select.POLLOUT if self.stream.out else 0)
        for worker in self.workers.values():
            if worker.channel is not None:
                self.watch(worker.channel.fileno(), (0 if worker.held else reads)
                           | (select.POLLOUT if worker.pending else 0))
            for fd in worker.pipes.values():
                self.watch(fd, reads)
            if worker.status is not None:
                self.watch(worker.status, select.POLLIN)

    def patience(self) -> float | None:
        """Returns the milliseconds until the next timer, or None without one."""
        times = [at for worker in self.workers.values()
                 for at in (worker.kill_at, worker.linger_until) if at is not None]
        if self.lease:
            times.append(self.heard + self.lease)
        if self.sweeping:
            times.append(time.monotonic() + SWEEP_SECONDS)
        if self.memory.fd is not None and self.only_guest() is not None:
            times.append(self.memory.looked + MEMORY_SECONDS)
        if self.preparing is not None:
            return 0
        return max(0, (min(times) - time.monotonic()) * 1000 + 1) if times else None

    def run(self) -> None:
        self.say(MUX_HELLO, 0, json.dumps(self.facts()).encode())
        while not self.over:
            self.watch_all()
            ready = self.poller.poll(self.patience())
            self.turn += 1              # rotates the order, to share little space fairly
            at = self.turn % len(ready) if ready else 0
            for fd, events in ready[at:] + ready[:at]:
                if fd in self.handlers:
                    function, args = self.handlers[fd]
                    function(*args)
            if not ready and self.preparing is not None:
                self.prepare_more()
            self.look_at_clock()
        self.end()

    def look_at_clock(self) -> None:
        now = time.monotonic()
        if self.lease and now - self.heard > self.lease:
            self.over = True
        for worker in list(self.workers.values()):
            if worker.kill_at is not None and now >= worker.kill_at:
                worker.kill_at = None
                if worker.keeper in self.keepers:
                    kill_quietly(worker.keeper, signal.SIGKILL)
            if worker.linger_until is not None and now >= worker.linger_until:
                worker.linger_until = now + LINGER_SECONDS
                if not self.stream.is_full():
                    self.close_all(worker)
        if self.sweeping:
            self.sweep()
        guest = self.only_guest()
        if guest is not None and now - self.memory.looked >= MEMORY_SECONDS:
            self.look_at_memory(guest)

    def only_guest(self) -> Worker | None:
        """Returns the worker that runs code, unless there are several."""
        guests = [worker for worker in self.workers.values() if not worker.beside]
        return guests[0] if len(guests) == 1 else None

    def facts(self) -> Head:
        return {
            "python": sys.version.split()[0],
            "implementation": sys.implementation.name,
            "executable": sys.executable,
            "pid": os.getpid(),
            "uid": os.getuid(),
            "ctypes": state.prctl is not None,
            "hidden": self.hidden,
            "limits": cgroup_limits(),
        }

    # -- preparing for fast starts

    def prepare(self) -> Iterator[None]:
        """Prepares for fast starts, one step per iteration."""
        load_lazy_modules()
        yield
        for name in PRELOAD + ("resource", "shutil"):
            __import__(name)
            yield
        state.seeds = find_seeds()
        yield
        rehearse(REHEARSALS)
        yield
        gc.collect()
        gc.freeze()

    def prepare_more(self) -> None:
        try:
            next(self.preparing)
        except StopIteration:
            self.preparing = None

    # -- the host

    def say(self, kind: int, number: int, payload: bytes = b"", stream: int = 0) -> None:
        self.stream.send(MUX.pack(kind, stream, 0, number, len(payload)), payload)

    def write(self) -> None:
        out = self.stream.out
        try:
            with memoryview(out) as view:
                count = os.write(self.sink, view[:READ])
            del out[:count]
        except BlockingIOError:
            pass
        except OSError:                 # the host is disconnected until it sends RESUME
            self.stream.live = False
            out.clear()

    def hear(self) -> None:
        try:
            data = os.read(self.source, READ)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self.heard = time.monotonic()
            self.stream.feed(data)
            for worker in self.workers.values():
                self.write_channel(worker)
            return
        self.forget(self.source)
        self.source = None
        self.over = self.over or self.eof_ends

    def take(self, data: bytes) -> None:
        """Parses bytes of the link into messages."""
        while data:
            if self.bytes_left:
                part, data = data[:self.bytes_left], data[self.bytes_left:]
                self.bytes_left -= len(part)
                if self.bytes_to is not None:
                    self.bytes_to.pending += part
                continue
            self.message += data
            if len(self.message) < MUX.size:
                return
            kind, _, _, number, length = MUX.unpack_from(self.message)
            if kind == MUX_BYTES:
                data = bytes(self.message[MUX.size:])
                self.bytes_left, self.bytes_to = length, self.workers.get(number)
                del self.message[:]
                continue
            end = MUX.size + length
            if len(self.message) < end:
                return
            payload, data = bytes(self.message[MUX.size:end]), bytes(self.message[end:])
            del self.message[:]
            self.obey(kind, number, payload)

    def obey(self, kind: int, number: int, payload: bytes) -> None:
        worker = self.workers.get(number)
        if kind == MUX_START:
            self.start(number, json.loads(payload))
        elif kind == MUX_CLOSE:
            self.over = True
        elif worker is None or worker.keeper not in self.keepers:
            pass
        elif kind == MUX_INTERRUPT:
            # The frame that names the operation precedes the signal; the worker has to find it.
            self.write_channel(worker)
            kill_quietly(worker.keeper, signal.SIGUSR1)
            worker.rings_late = bool(worker.pending)
        elif kind == MUX_HOLD:
            worker.held = payload == b"\1"
        elif kind == MUX_KILL:
            kill_quietly(worker.keeper, signal.SIGTERM)
            kill_quietly(worker.keeper, signal.SIGCONT)     # the guest may have stopped it
            worker.kill_at = time.monotonic() + KILL_SECONDS

    # -- workers

    def start(self, number: int, options: Head) -> None:
        try:
            self.workers[number] = self.fork_keeper(number, options)
        except OSError as e:
            self.say(MUX_EXIT, number, json.dumps({"error": str(e)}).encode())

    def fork_keeper(self, number: int, options: Head) -> Worker:
        other = self.workers.get(options.get("beside", 0))
        if "beside" in options and other is None:
            raise OSError("the session has ended")
        worker = Worker(number, other.home, True) if other else Worker(number, make_home())
        worker.channel, channel = _socket.socketpair()
        pipes = [os.pipe() for _ in range(3)]
        signal.pthread_sigmask(signal.SIG_BLOCK, ALL_SIGNALS)
        try:
            pid = os.fork()
            if pid == 0:
                try:
                    Keeper(options, worker.home, channel.fileno(), *[far for _, far in pipes]).run()
                finally:
                    os._exit(1)
        except OSError:
            for near, _ in pipes:
                os.close(near)
            if not worker.beside:
                os.rmdir(worker.home)
            raise
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            channel.close()
            for _, far in pipes:
                os.close(far)
        worker.keeper = pid
        self.keepers.add(pid)
        worker.pipes = {1: pipes[0][0], 2: pipes[1][0]}
        worker.status = pipes[2][0]
        worker.channel.setblocking(False)
        for stream, fd in worker.pipes.items():
            os.set_blocking(fd, False)
            self.handle(fd, self.relay_output, worker, stream)
        os.set_blocking(worker.status, False)
        self.handle(worker.channel.fileno(), self.relay_channel, worker)
        self.handle(worker.status, self.read_status, worker)
        return worker

    def relay_output(self, worker: Worker, stream: int, count: int = READ) -> bool:
        """Forwards output of a worker. Returns false if there is none now."""
        try:
            data = os.read(worker.pipes[stream], count)
        except BlockingIOError:
            return False
        if data:
            self.say(MUX_OUTPUT, worker.number, data, stream)
            return True
        self.close_pipe(worker, stream)
        return False

    def close_pipe(self, worker: Worker, stream: int) -> None:
        fd = worker.pipes.pop(stream)
        self.forget(fd)
        os.close(fd)
        self.finish_if_done(worker)

    def relay_channel(self, worker: Worker) -> None:
        self.write_channel(worker)
        if worker.channel is not None and not worker.held:
            self.read_channel(worker)

    def read_channel(self, worker: Worker) -> bool:
        """Forwards data of a channel, after output that was printed earlier.

        Reads the channel first, then forwards what the pipes hold at that moment, then the data.
        Returns false if there is no data now.
        """
        try:
            data = worker.channel.recv(READ)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        for stream, fd in list(worker.pipes.items()):
            left = struct.unpack("i", fcntl.ioctl(fd, FIONREAD, b"\0\0\0\0"))[0]
            while (left > 0 and stream in worker.pipes
                    and self.relay_output(worker, stream, min(left, READ))):
                left -= READ
        if data:
            self.look_at_memory(worker)
            if not worker.starved:      # otherwise the result would hide the reason
                self.say(MUX_BYTES, worker.number, data)
            return True
        self.close_channel(worker)
        return False

    def close_all(self, worker: Worker) -> None:
        """Closes the descriptors of a dead worker, whose far ends other processes still hold."""
        if worker.channel is not None:
            self.read_channel(worker)
            self.close_channel(worker)
        for stream in list(worker.pipes):
            self.relay_output(worker, stream)
            if stream in worker.pipes:
                self.close_pipe(worker, stream)

    def look_at_memory(self, worker: Worker) -> None:
        """Kills the only worker if the kernel has killed one of its processes for lack of memory.

        A local sandbox does the same with memory.oom.group.
        """
        if worker is self.only_guest() and self.memory.struck():
            worker.starved = True
            self.obey(MUX_KILL, worker.number, b"")

    def close_channel(self, worker: Worker) -> None:
        if worker.channel is None:
            return
        self.forget(worker.channel.fileno())
        worker.channel.close()
        worker.channel = None
        worker.pending.clear()
        self.finish_if_done(worker)

    def write_channel(self, worker: Worker) -> None:
        if not worker.pending or worker.channel is None:
            return
        try:
            with memoryview(worker.pending) as view:
                count = worker.channel.send(view[:READ])
        except BlockingIOError:
            return
        except OSError:
            self.close_channel(worker)
            return
        del worker.pending[:count]
        worker.taken += count
        if worker.rings_late and not worker.pending:
            worker.rings_late = False
            kill_quietly(worker.keeper, signal.SIGUSR1)
        if worker.taken >= CREDIT // 4:
            self.say(MUX_CREDIT_MORE, worker.number, struct.pack("<I", worker.taken))
            worker.taken = 0

    # -- the end of a worker

    def read_status(self, worker: Worker) -> None:
        try:
            data = os.read(worker.status, 65536)
        except BlockingIOError:
            return
        if data:
            worker.report += data
            return
        self.forget(worker.status)
        os.close(worker.status)
        worker.status = None
        worker.kill_at = None
        worker.linger_until = time.monotonic() + LINGER_SECONDS
        if b'"left": false' not in worker.report or state.prctl is None:
            worker.stray = True         # the keeper was killed, or could not end all
            self.sweeping, self.quiet = True, 0
        self.finish_if_done(worker)

    def finish_if_done(self, worker: Worker) -> None:
        """Reports a worker's exit once no process is left and all its output was forwarded."""
        if worker.status is not None or worker.stray or worker.number not in self.workers:
            return
        if worker.channel is not None or worker.pipes:
            return
        if not worker.beside and os.path.isdir(worker.home):
            remove_tree(worker.home)
        del self.workers[worker.number]
        self.say(MUX_EXIT, worker.number, json.dumps(self.judge(worker)).encode())

    def judge(self, worker: Worker) -> Head:
        facts = {"status": -1}
        for line in worker.report.splitlines():
            facts.update(json.loads(line))
        facts.pop("left", None)
        struck = self.memory.struck()
        if worker.starved or (struck and facts["status"] in (-1, signal.SIGKILL)):
            facts["oom"] = True
        return facts

    def woken(self) -> None:
        try:
            os.read(self.wake, 4096)
        except BlockingIOError:
            pass
        self.reap()

    def reap(self) -> bool:
        """Reaps children. Returns false if there are none left."""
        try:
            while True:
                pid, _ = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return True
                self.keepers.discard(pid)
        except ChildProcessError:
            return False

    def sweep(self) -> None:
        """Kills descendants that belong to no keeper.

        Strays appear one by one as their parents end, and one that forks and exits may be missed,
        so several sweeps in a row have to find none.
        """
        self.reap()
        found = descendants(self.keepers)
        kill_all(found, not self.keepers)
        left = self.reap()
        self.quiet = 0 if found else self.quiet + 1
        if found or left and self.quiet < QUIET:
            return
        self.sweeping = False
        for worker in [worker for worker in self.workers.values() if worker.stray]:
            worker.stray = False
            self.finish_if_done(worker)

    def end(self) -> None:
        """Ends all workers and exits."""
        for pid in self.keepers:
            kill_quietly(pid, signal.SIGTERM)
            kill_quietly(pid, signal.SIGCONT)
        until = time.monotonic() + END_SECONDS
        while self.keepers and time.monotonic() < until:
            time.sleep(0.01)
            self.reap()
        while time.monotonic() < until + END_SECONDS:
            kill_all(descendants(), True)
            if not self.reap():
                break
        for worker in self.workers.values():
            remove_tree(worker.home)
        os._exit(0)


def supervise(arguments: list[str]) -> None:
    """Runs the supervisor; the loader (src/env/remote/boot.c) calls this last.

    `arguments`: "text" or another form of the link, the lease in seconds, and "1" if end of input
    ends the supervisor.
    """
    source = fcntl.fcntl(0, fcntl.F_DUPFD_CLOEXEC, 16)
    sink = fcntl.fcntl(1, fcntl.F_DUPFD_CLOEXEC, 16)
    null = os.open("/dev/null", os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    state.prctl = find_prctl()
    form, lease, eof_ends = arguments
    lay_session()
    supervisor = Supervisor(source, sink, form == "text", float(lease), eof_ends == "1")
    supervisor.hidden = control(PR_SET_DUMPABLE, 0)
    control(PR_SET_CHILD_SUBREAPER, 1)
    supervisor.run()
