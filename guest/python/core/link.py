"""The channel to the host: frames, calls and interrupts, shared by all threads of a worker."""
from __future__ import annotations

import _signal
import _socket
import _thread
import errno
import fcntl
import itertools
import mmap
import os
import select
import struct
import time
from typing import TYPE_CHECKING, Any, Callable

from .frames import (
    CALL, CANCEL, DISPLAY, FLAG_FD, FORK, HEADER, INTERRUPT, REPLY, RESTORE,
    SAVE, split_parts, table_of, VERSION)
from .output import flush_output
from .state import state
from droste._encoding.json_text import read_json, write_json

if TYPE_CHECKING:
    from .aliases import Blob, Frame, Head, Operation, Parts

# Seconds. If the last reply came within SOON, a thread polls for up to LOOK before it sleeps,
# because a wake-up takes longer than a reply that the host has at once. Replies from models take
# longer anyway.
SOON, LOOK = 150e-6, 60e-6
SMALL = 65536                   # parts up to so many bytes are copied into one buffer
FILE_MIN = 262144               # bytes of a blob that goes in a memory file, if the host takes one
READER_MS = 20                  # interval at which a writer checks whether a thread still reads
TOGETHER = 1000                 # buffers per sendmsg() call (IOV_MAX is 1024)


# fcntl(2): F_ADD_SEALS, and the seals against sealing, shrinking, growing and writing.
ADD_SEALS, SEALS = 1033, 15

# The head of a SET whose arrays are used in place, which cells may change.
VALUES_HEAD = b'"kind":"values"'

# States of the main thread when an interrupt arrives; see Link.
OUTSIDE, INSIDE, BLOCKED = range(3)


class Waiter:
    """A thread that waits for a frame, or the main loop waiting for the next operation."""
    __slots__ = ("frame", "wake")
    arrived: list[Waiter] | None = None     # waiters with a frame, for a thread that waits for many

    def __init__(self) -> None:
        self.frame: Frame | None = None
        self.wake = _thread.allocate_lock()
        self.wake.acquire()


def nudge(waiter: Waiter) -> bool:
    """Wakes a waiter. Returns false if it was awake; two threads may try at the same time."""
    try:
        waiter.wake.release()
        return True
    except RuntimeError:
        return False


class WithFile(bytes):
    """The header and head of a frame whose blob travels as a memory file."""
    fd: int

    def __new__(cls, data: bytes, fd: int) -> WithFile:
        self = super().__new__(cls, data)
        self.fd = fd
        return self

    def inline(self) -> list[Any]:
        """The same frame in the stream, if the kernel refuses to pass the file."""
        version, kind, _, head_len, ident, size = HEADER.unpack_from(self)
        data = mmap.mmap(self.fd, size, mmap.MAP_SHARED, mmap.PROT_READ)
        os.close(self.fd)
        return [HEADER.pack(version, kind, 0, head_len, ident, size) + self[HEADER.size:], data]


def next_message(pieces: list[Any], at: int) -> tuple[list[Any], list[Any]]:
    """Returns the buffers of the next sendmsg() call, and what goes with its first byte."""
    if type(pieces[at]) is WithFile:
        return pieces[at:at + 1], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS,
                                    struct.pack("i", pieces[at].fd))]
    group = pieces[at:at + TOGETHER]
    files = [i for i, piece in enumerate(group) if type(piece) is WithFile]
    return group[:files[0]] if files else group, []


def write_memfd(pieces: Parts) -> int:
    """Returns a sealed memory file with these contents, or -1 if there can be none."""
    try:
        fd = os.memfd_create("droste-value", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    except (OSError, AttributeError):
        return -1
    try:
        for piece in pieces:
            view = memoryview(piece).cast("B")
            while view:
                view = view[os.write(fd, view):]
        fcntl.fcntl(fd, ADD_SEALS, SEALS)
        return fd
    except OSError:
        os.close(fd)
        return -1


def resident() -> int:
    """Bytes of memory that this process uses, with what it shares with the zygote."""
    try:
        with open("/proc/self/statm", "rb") as f:
            return int(f.read().split()[1]) * mmap.PAGESIZE
    except OSError:
        return 0


class Link:
    """Frames over the channel.

    One thread reads at a time. A thread that waits while no other reads becomes the reader, gives
    other threads their frames, and passes the role on when its own frame has arrived.

    An interrupt (SIGINT, which Python handles in the main thread) must not split a frame. Its
    effect depends on the state of the main thread; ON_INTERRUPT is the table:

        OUTSIDE   user code runs           look(): read frames, raise if the cell has to stop
        INSIDE    in a critical section    note(); leave() looks later, or block() before it waits
                  (`depth` > 0)
        BLOCKED   in a system call within  look(): every frame is complete, so it may raise
                  a critical section

    The host sends the frame INTERRUPT before the signal, so look() finds the frame already read or
    readable. Handlers of other signals may raise in the same places (signals.py).
    """

    def __init__(self, fd: int) -> None:
        self.sock = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM, 0, fd)
        self.sock.setblocking(True)
        self.poller = select.poll()
        self.poller.register(fd, select.POLLIN)
        self.both, self.room = select.poll(), select.poll()
        self.both.register(fd, select.POLLIN | select.POLLOUT)
        self.room.register(fd, select.POLLOUT)
        self.space = memoryview(bytearray(65536))
        self.buffer = bytearray()
        self.fds: list[int | None] = []
        self.reading = _thread.allocate_lock()
        self.writing = _thread.allocate_lock()
        self.waiters: dict[int, Waiter] = {}
        self.inbox: list[Operation] = []
        self.idle = Waiter()
        self.ids = itertools.count(1)   # next() is atomic; many threads call at once
        self.interrupted: int | None = None     # id of the operation that the host wants to stop
        self.main = _thread.get_ident()
        self.depth = 0              # nested critical sections of the main thread
        self.blocked = False        # the main thread waits in a system call
        self.noted = False          # an interrupt is pending
        self.held: list[Callable[[], None]] = []    # handlers of other signals that are pending
        self.reader: int | None = None      # the thread that reads while it waits
        # A signal that comes right before a system call does not interrupt it. Where code has set
        # handlers, a wait ends after so many milliseconds, for Python to look for signals.
        self.signal_ms: int | None = None
        self.owner: int | None = None   # pid of the worker; None in the zygote
        self.is_late = False        # send READY at once: the host measures time from it
        self.send_queue: list[Any] = []  # buffers of frames, in order, for the thread that writes
        self.soon = False           # the last wait was shorter than SOON
        # How large a memory file the host takes, and how much memory the sandbox may use (0: any).
        self.files: tuple[int, int] = (0, 0)

    # -- interrupts, and critical sections of the main thread

    def position(self) -> int:
        """Returns the state of the main thread: a key of ON_INTERRUPT."""
        if not self.depth:
            return OUTSIDE
        return BLOCKED if self.blocked else INSIDE

    def interrupt(self) -> None:
        ON_INTERRUPT[self.position()](self)

    def note(self) -> None:
        self.noted = True

    def hold(self, handler: Callable[[], None]) -> None:
        self.held.append(handler)
        self.noted = True

    def enter(self) -> None:
        if _thread.get_ident() == self.main:
            self.depth += 1

    def leave(self) -> None:
        if _thread.get_ident() == self.main:
            self.blocked = False    # an interrupt may have kept block() from doing this
            self.depth -= 1
            if self.noted and not self.depth:
                self.look()

    def look(self) -> None:
        """Reads pending frames and raises KeyboardInterrupt if the running cell has to stop; then
        runs the handlers that were held.

        An interrupt that arrives meanwhile only causes another round.
        """
        blocked, self.blocked = self.blocked, False
        try:
            again = True
            while again:
                self.noted = False
                self.read_waiting()
                stop_if_asked()
                while self.held:
                    self.held.pop(0)()
                again = self.noted
        finally:
            self.blocked = blocked
            if self.held:
                self.noted = True       # what has raised came first

    # -- writing

    def send(self, kind: int, ident: int, head: bytes = b"", parts: Parts | None = None) -> None:
        """Sends a frame. If `parts` is None, the frame has no blob."""
        if os.getpid() != self.owner:
            raise RuntimeError("a forked process has no channel to the host")
        table, parts = (b"", ()) if parts is None else (table_of(parts), parts)
        lengths = [len(part) for part in parts]
        size = len(table) + sum(lengths)
        self.enter()
        try:
            # The host keeps rich results in memory, so it takes no files for them.
            may = kind != DISPLAY and size >= FILE_MIN and self.has_room(size)
            fd = write_memfd([table, *parts]) if may else -1
            if fd >= 0:
                header = HEADER.pack(VERSION, kind, FLAG_FD, len(head), ident, size)
                self.send_queue.append(WithFile(header + head, fd))
            else:
                header = HEADER.pack(VERSION, kind, 0, len(head), ident, size)
                pieces = [header + head + table, *parts]
                if max(lengths, default=0) <= SMALL:    # a batch has thousands of parts
                    pieces = [b"".join(pieces)]
                self.send_queue.extend(pieces)      # atomic: frames must not interleave
            self.flush()
        finally:
            self.leave()

    def has_room(self, size: int) -> bool:
        """Whether the host takes such a memory file, which counts as memory of the sandbox."""
        most, memory = self.files
        return size <= most and (not memory or resident() + size <= memory)

    def flush(self) -> None:
        """Writes the send_queue, unless another thread is doing so; one thread writes for all."""
        while self.send_queue and self.writing.acquire(False):
            try:
                self.write()
            finally:
                self.writing.release()

    def write(self) -> None:
        while self.send_queue:
            pieces = self.send_queue[:]
            del self.send_queue[:len(pieces)]       # other threads may have added some
            at = 0
            while at < len(pieces):
                # One call for many buffers: the host waits for the rest of a partial frame.
                group, ancillary = next_message(pieces, at)
                try:
                    sent = self.sock.sendmsg(group, ancillary, _socket.MSG_DONTWAIT)
                except BlockingIOError:
                    self.make_room()
                    continue
                except OSError as e:
                    if not ancillary or e.errno not in (errno.ETOOMANYREFS, errno.EPERM):
                        raise
                    pieces[at:at + 1] = group[0].inline()
                    continue
                if ancillary:
                    os.close(group[0].fd)
                while at < len(pieces) and sent >= len(pieces[at]):
                    sent -= len(pieces[at])
                    at += 1
                if sent:
                    pieces[at] = memoryview(pieces[at])[sent:]

    def make_room(self) -> None:
        """Waits until the socket is writable, and reads meanwhile.

        The host stops reading while this side has much unread data, so a writer has to read, too.
        """
        if not self.reading.acquire(False):
            self.room.poll(READER_MS)       # another thread is the reader, as long as it waits
            return
        try:
            if any(events & select.POLLIN for _, events in self.both.poll()):
                self.receive()
        finally:
            self.reading.release()
            self.pass_on()

    # -- reading

    def receive(self, how: int = 0) -> None:
        """Reads once and dispatches complete frames."""
        # A fixed buffer: with recvmsg(), each read would map and unmap 64 KiB.
        count, ancillary, flags, _ = self.sock.recvmsg_into([self.space], 64, how)
        if not count:
            os._exit(0)             # the host has closed the channel
        for level, kind, payload in ancillary:
            if level == _socket.SOL_SOCKET and kind == _socket.SCM_RIGHTS:
                self.fds.extend(struct.unpack("%di" % (len(payload) // 4), payload))
        if flags & _socket.MSG_CTRUNC:
            self.fds.append(None)   # no descriptor was free
        self.buffer += self.space[:count]
        at = 0
        while len(self.buffer) - at >= HEADER.size:
            _, kind, flags, head_len, ident, blob_len = HEADER.unpack_from(self.buffer, at)
            inline = 0 if flags & FLAG_FD else blob_len
            end = at + HEADER.size + head_len + inline
            if len(self.buffer) < end:
                break
            split = at + HEADER.size + head_len
            head = bytes(self.buffer[at + HEADER.size:split])
            if kind in (FORK, SAVE, RESTORE):
                blob: Blob = self.fds.pop(0)
            elif flags & FLAG_FD:
                blob = self.take_memfd(blob_len, VALUES_HEAD in head)
            else:
                with memoryview(self.buffer) as view:       # avoids a second copy
                    blob = bytes(view[split:end])
            self.dispatch(kind, ident, head, blob)
            at = end
        del self.buffer[:at]

    def take_memfd(self, length: int, private: bool) -> mmap.mmap | None:
        """Maps a memfd, or returns None if the user's code has used up its descriptors.

        A private mapping is writable; the pages that are written to are copied.
        """
        fd = self.fds.pop(0)
        if fd is None:
            return None
        try:
            if private:
                return mmap.mmap(fd, length, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE)
            return mmap.mmap(fd, length, mmap.MAP_SHARED, mmap.PROT_READ)
        except OSError:
            return None
        finally:
            os.close(fd)

    def dispatch(self, kind: int, ident: int, head: bytes, blob: Blob) -> None:
        if kind == REPLY:
            waiter = self.waiters.pop(ident, None)
            if waiter:
                waiter.frame = (head, blob)
                if waiter.arrived is not None:
                    waiter.arrived.append(waiter)
                nudge(waiter)
        elif kind == INTERRUPT:
            self.interrupted = ident
            if _thread.get_ident() == self.main:
                self.noted = True
            else:
                _signal.pthread_kill(self.main, _signal.SIGINT)
        else:
            self.inbox.append((kind, ident, head, blob))
            nudge(self.idle)

    def read_waiting(self) -> None:
        """Reads pending frames without blocking, unless another thread is the reader."""
        self.depth += 1
        try:
            if not self.reading.acquire(False):
                return
            try:
                while self.poller.poll(0):
                    self.receive()
            finally:
                self.reading.release()
                self.pass_on()
        finally:
            self.depth -= 1

    def block(self, blocking: Callable[..., Any], *arguments: Any) -> Any:
        """Waits in one system call, the only place within the link where an interrupt may raise."""
        if _thread.get_ident() != self.main:
            return blocking(*arguments)
        try:
            self.blocked = True
            if self.noted:
                self.look()
            return blocking(*arguments)
        finally:
            self.blocked = False

    def wait_for_bytes(self) -> None:
        """Waits until the channel is readable."""
        begun = time.monotonic()
        if self.soon and len(self.waiters) < 2:     # other waiting threads need the GIL
            while time.monotonic() - begun < LOOK:
                if self.poller.poll(0):
                    return
        while not self.block(self.poller.poll, self.signal_ms):
            pass                # time to look for signals
        self.soon = time.monotonic() - begun < SOON

    def wait(self, waiter: Waiter, done: Callable[[], Any]) -> None:
        """Waits until done() is true; reads the channel if no other thread does."""
        self.enter()
        try:
            while not done():
                if not self.reading.acquire(False):
                    if self.reader == _thread.get_ident():
                        raise RuntimeError("a signal handler cannot call the host while the code "
                                           "that it interrupts waits for a call")
                    # For a frame or the role of the reader.
                    self.block(waiter.wake.acquire, True, (self.signal_ms or -1000) / 1000)
                    continue
                try:
                    self.reader = _thread.get_ident()
                    while not done():
                        self.wait_for_bytes()
                        self.receive()
                finally:
                    self.reader = None
                    self.reading.release()
                    self.pass_on()
        finally:
            self.leave()

    def pass_on(self) -> None:
        """Offers the role of the reader to a waiting thread."""
        for waiter in list(self.waiters.values()) + [self.idle]:
            if nudge(waiter):
                return

    def begin(self, ident: int, waiter: Waiter, head: Head, parts: Parts) -> None:
        """Sends a call to the host; the reply becomes the waiter's frame."""
        self.waiters[ident] = waiter
        self.enter()        # flush_output() would take an interrupt for an error of the stream's
        try:
            flush_output()
            self.send(CALL, ident, head_bytes(head), parts)
        finally:
            self.leave()

    def cancel(self, ident: int) -> bool:
        """Cancels a call. Returns false if its reply has already arrived."""
        if self.waiters.pop(ident, None) is None:
            return False
        self.send(CANCEL, ident)
        return True

    def call(self, head: Head, parts: Parts) -> tuple[Head, list[memoryview]]:
        """Calls the host and waits; returns the head of the reply and its parts."""
        waiter = Waiter()
        ident = next(self.ids)
        try:
            self.begin(ident, waiter, head, parts)
            self.wait(waiter, lambda: waiter.frame is not None)
        except BaseException:
            self.cancel(ident)
            raise
        finally:
            self.waiters.pop(ident, None)
            if waiter.frame is None:
                self.pass_on()      # this thread may have been offered the role of the reader
        return open_reply(waiter.frame)

    def next_operation(self) -> Operation:
        if not self.inbox:
            self.wait(self.idle, self.inbox.__len__)
            self.idle.wake.acquire(False)
        return self.inbox.pop(0)

    def restart(self) -> None:
        """In a copy of the process that had it: the channel is its own, and nothing was sent."""
        self.owner = os.getpid()
        for pending in (self.fds, self.buffer, self.inbox, self.send_queue, self.waiters,
                        self.held):
            pending.clear()     # type: ignore[attr-defined]
        self.interrupted = None
        self.noted = False

    def cut(self) -> None:
        """Closes the channel in a process that the user's code forked; the parent keeps it."""
        if self.owner is not None:
            self.sock.close()


ON_INTERRUPT = {OUTSIDE: Link.look, INSIDE: Link.note, BLOCKED: Link.look}


# The head of a call with plain prompts only, serialised once: a batch sends it ten thousand times,
# and comparing dicts takes a tenth of the time of json.dumps().
PLAIN_HEAD = {"name": "llm_query", "messages": []}
PLAIN_BYTES = write_json(PLAIN_HEAD)


def head_bytes(head: Head) -> bytes:
    return PLAIN_BYTES if head == PLAIN_HEAD else write_json(head)


def open_reply(frame: Frame) -> tuple[Head, list[memoryview]]:
    """Decodes a reply into its head and parts."""
    head, blob = frame
    check_arrived(blob)
    return read_json(head) if head else {}, split_parts(blob) if len(blob) else []


def check_arrived(blob: Blob) -> None:
    if blob is None:
        raise OSError(errno.EMFILE, "too many open files to receive a large value")


def on_interrupt(signum: int, frame: Any) -> None:
    """Handles SIGINT, which only announces a frame; the frame names the operation to stop."""
    if state.link is None or state.link.owner is None:
        return                  # no cell runs yet; run_cell() looks for the frame
    if os.getpid() != state.link.owner:
        raise KeyboardInterrupt
    state.link.interrupt()


def stop_if_asked() -> None:
    if state.session.running is not None and state.link.interrupted == state.session.running:
        state.link.interrupted = None
        state.session.was_interrupted = True
        raise KeyboardInterrupt
