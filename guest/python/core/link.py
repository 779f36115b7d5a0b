"""One reader at a time, whoever waits."""
import _socket
import _thread
import errno
import itertools
import json
import mmap
import os
import select
import signal
import struct
import time

from .frames import CALL, CANCEL, FLAG_FD, HEADER, INTERRUPT, REPLY, split_parts, table_of, VERSION
from .output import flush_output
from .state import state

# Seconds. Where the last answer came within SOON, a thread looks for the next one for as long as LOOK before
# it sleeps: to be woken costs more than an answer that is known at once. Models take longer than that.
SOON, LOOK = 150e-6, 60e-6
SMALL = 65536                   # bytes of a part that is copied rather than sent as it is
READER_MS = 20                  # then a writer looks whether anybody reads
TOGETHER = 1000                 # pieces in a system call (IOV_MAX is 1024)


# Where an interrupt may find the main thread; see Link.
OUTSIDE, INSIDE, BLOCKED = range(3)


class Waiter:
    """One thread that waits for one frame (or, the main loop, for the next operation)."""
    __slots__ = ("frame", "wake")
    arrived = None              # a list of those whose frame is there, for a thread that waits for many

    def __init__(self):
        self.frame = None
        self.wake = _thread.allocate_lock()
        self.wake.acquire()


def nudge(waiter):
    """Wakes a waiter; false where it was awake already (two threads may try at once)."""
    try:
        waiter.wake.release()
        return True
    except RuntimeError:
        return False


class Link:
    """Frames over the channel.

    One thread at a time reads. A thread that waits while no other reads becomes the reader, hands
    the others their frames, and passes the role on when its own frame has arrived.

    An interrupt (SIGINT, which Python handles in the main thread) must not tear a frame apart. What
    it does depends on where it finds the main thread; ON_INTERRUPT is the table:

        OUTSIDE   user code runs           look: read what is there, raise if the cell is to stop
        INSIDE    within a critical        note it; leave() looks, or block() before it waits
                  section (`depth` > 0)
        BLOCKED   waits in a system call   look: nothing is half done, so it may raise
                  within such a section

    The host sends the frame INTERRUPT before the signal, so a look that follows the signal finds
    the frame read or readable.
    """

    def __init__(self, fd):
        self.sock = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM, 0, fd)
        self.sock.setblocking(True)
        self.poller = select.poll()
        self.poller.register(fd, select.POLLIN)
        self.both, self.room = select.poll(), select.poll()
        self.both.register(fd, select.POLLIN | select.POLLOUT)
        self.room.register(fd, select.POLLOUT)
        self.space = memoryview(bytearray(65536))
        self.buffer = bytearray()
        self.fds = []
        self.reading = _thread.allocate_lock()
        self.writing = _thread.allocate_lock()
        self.waiters = {}
        self.inbox = []
        self.idle = Waiter()
        self.ids = itertools.count(1)   # next() is atomic; many threads call at once
        self.interrupted = None     # id of the operation that the host wants stopped
        self.main = _thread.get_ident()
        self.depth = 0              # critical sections of the main thread, one within another
        self.blocked = False        # it waits in a system call within one
        self.noted = False          # an interrupt came that nothing was done about yet
        self.owner = None           # the worker's pid, once there is one
        self.is_late = False        # the host counts a cell's time from READY, and hears it at once
        self.outbox = []            # pieces of frames, in their order, that whoever writes takes along
        self.soon = False           # the last wait was a short one

    # -- interrupts, and critical sections of the main thread

    def position(self):
        """Where the main thread is."""
        if not self.depth:
            return OUTSIDE
        return BLOCKED if self.blocked else INSIDE

    def interrupt(self):
        ON_INTERRUPT[self.position()](self)

    def note(self):
        self.noted = True

    def enter(self):
        if _thread.get_ident() == self.main:
            self.depth += 1

    def leave(self):
        if _thread.get_ident() == self.main:
            self.blocked = False    # an interrupt may have struck where block() does this
            self.depth -= 1
            if self.noted and not self.depth:
                self.look()

    def look(self):
        """Reads what is there, and raises if the running cell is to be stopped. An interrupt that
        comes meanwhile only makes it look again."""
        blocked, self.blocked = self.blocked, False
        try:
            again = True
            while again:
                self.noted = False
                self.read_waiting()
                stop_if_asked()
                again = self.noted
        finally:
            self.blocked = blocked

    # -- writing

    def send(self, kind, ident, head=b"", parts=None):
        """A frame; None: it has no blob."""
        if os.getpid() != self.owner:
            raise RuntimeError("a forked process has no channel to the host")
        table, parts = (b"", ()) if parts is None else (table_of(parts), parts)
        lengths = [len(part) for part in parts]
        pieces = [HEADER.pack(VERSION, kind, 0, len(head), ident, len(table) + sum(lengths)) + head + table, *parts]
        self.enter()
        try:
            if max(lengths, default=0) <= SMALL:
                self.outbox.append(b"".join(pieces))    # there may be very many
            else:
                self.outbox.extend(pieces)      # at once: no frame may come between
            self.flush()
        finally:
            self.leave()

    def flush(self):
        """Several threads at once: one writes for all, so that they need not take turns."""
        while self.outbox and self.writing.acquire(False):
            try:
                self.write()
            finally:
                self.writing.release()

    def write(self):
        while self.outbox:
            pieces = self.outbox[:]
            del self.outbox[:len(pieces)]       # others may have added some meanwhile
            at = 0
            while at < len(pieces):
                # Together: a beginning that comes alone has the host wait for the rest.
                try:
                    sent = self.sock.sendmsg(pieces[at:at + TOGETHER], (), _socket.MSG_DONTWAIT)
                except BlockingIOError:
                    self.make_room()
                    continue
                while at < len(pieces) and sent >= len(pieces[at]):
                    sent -= len(pieces[at])
                    at += 1
                if sent:
                    pieces[at] = memoryview(pieces[at])[sent:]

    def make_room(self):
        """The host takes nothing more while too much waits to be read here: whoever writes reads, too."""
        if not self.reading.acquire(False):
            self.room.poll(READER_MS)       # another thread reads, for as long as it waits for something
            return
        try:
            if any(events & select.POLLIN for _, events in self.both.poll()):
                self.receive()
        finally:
            self.reading.release()
            self.pass_on()

    # -- reading

    def receive(self, how=0):
        """Takes what is there (the poller said that something is) and hands out whole frames."""
        # Into memory of our own: a fresh 64 KiB for each read would be mapped and unmapped again.
        count, ancillary, flags, _ = self.sock.recvmsg_into([self.space], 64, how)
        if not count:
            os._exit(0)             # the host is gone
        for level, kind, payload in ancillary:
            if level == _socket.SOL_SOCKET and kind == _socket.SCM_RIGHTS:
                self.fds.extend(struct.unpack("%di" % (len(payload) // 4), payload))
        if flags & _socket.MSG_CTRUNC:
            self.fds.append(None)   # there was no number free for it
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
            if flags & FLAG_FD:
                blob = self.take_memfd(blob_len)
            else:
                with memoryview(self.buffer) as view:       # else a large one would be copied twice
                    blob = bytes(view[split:end])
            self.dispatch(kind, ident, head, blob)
            at = end
        del self.buffer[:at]

    def take_memfd(self, length):
        """The bytes, or None where the user's code has used up its descriptors."""
        fd = self.fds.pop(0)
        if fd is None:
            return None
        try:
            return mmap.mmap(fd, length, mmap.MAP_SHARED, mmap.PROT_READ)
        except OSError:
            return None
        finally:
            os.close(fd)

    def dispatch(self, kind, ident, head, blob):
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
                signal.pthread_kill(self.main, signal.SIGINT)
        else:
            self.inbox.append((kind, ident, head, blob))
            nudge(self.idle)

    def read_waiting(self):
        """Reads what is there without waiting, unless another thread is reading."""
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

    def block(self, blocking):
        """Waits in one system call. Only here may an interrupt raise within the link: nothing is
        half done."""
        if _thread.get_ident() != self.main:
            blocking()
            return
        try:
            self.blocked = True
            if self.noted:
                self.look()
            blocking()
        finally:
            self.blocked = False

    def wait_for_bytes(self):
        """Returns when there is something to read."""
        begun = time.monotonic()
        if self.soon and len(self.waiters) < 2:     # others who wait need Python's lock to go on
            while time.monotonic() - begun < LOOK:
                if self.poller.poll(0):
                    return
        self.block(self.poller.poll)
        self.soon = time.monotonic() - begun < SOON

    def wait(self, waiter, done):
        """Returns when done() is true; reads the channel itself if nobody else does."""
        self.enter()
        try:
            while not done():
                if not self.reading.acquire(False):
                    self.block(waiter.wake.acquire)     # for a frame, or for the reader's role
                    continue
                try:
                    while not done():
                        self.wait_for_bytes()
                        self.receive()
                finally:
                    self.reading.release()
                    self.pass_on()
        finally:
            self.leave()

    def pass_on(self):
        """Offers the role of the reader to somebody who waits."""
        for waiter in list(self.waiters.values()) + [self.idle]:
            if nudge(waiter):
                return

    def begin(self, ident, waiter, head, parts):
        """Asks the host; the reply will be the waiter's frame."""
        self.waiters[ident] = waiter
        flush_output()
        self.send(CALL, ident, head_bytes(head), parts)

    def cancel(self, ident):
        """Nobody waits for this answer any more; false where it is there already."""
        if self.waiters.pop(ident, None) is None:
            return False
        self.send(CANCEL, ident)
        return True

    def call(self, head, parts):
        """Asks the host and waits; the reply's head (a dict) and its parts."""
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
                self.pass_on()      # the reader's role may have been offered to this thread
        return open_reply(waiter.frame)

    def next_operation(self):
        if not self.inbox:
            self.wait(self.idle, self.inbox.__len__)
            self.idle.wake.acquire(False)
        return self.inbox.pop(0)

    def cut(self):
        """In a child that the user's code forked: the channel stays the parent's alone."""
        if self.owner is not None:
            self.sock.close()


ON_INTERRUPT = {OUTSIDE: Link.look, INSIDE: Link.note, BLOCKED: Link.look}


# A prompt without anything else travels as a blob under this head, ten thousand times in a batch: it is
# written once. To compare takes a tenth of what writing it takes.
PLAIN_HEAD = {"name": "llm_query", "messages": []}
PLAIN_BYTES = json.dumps(PLAIN_HEAD).encode()


def head_bytes(head):
    return PLAIN_BYTES if head == PLAIN_HEAD else json.dumps(head).encode()


def open_reply(frame):
    """(head, parts) of an answer."""
    head, blob = frame
    check_arrived(blob)
    return json.loads(head) if head else {}, split_parts(blob) if len(blob) else []


def check_arrived(blob):
    if blob is None:
        raise OSError(errno.EMFILE, "too many open files to receive a large value")


def on_interrupt(signum, frame):
    """SIGINT is only a doorbell; what is to be stopped is said by a frame."""
    if state.link is None or state.link.owner is None:
        return                  # nothing runs yet; the frame will be found when something does
    if os.getpid() != state.link.owner:
        raise KeyboardInterrupt
    state.link.interrupt()


def stop_if_asked():
    if state.session.running is not None and state.link.interrupted == state.session.running:
        state.link.interrupted = None
        state.session.was_interrupted = True
        raise KeyboardInterrupt
