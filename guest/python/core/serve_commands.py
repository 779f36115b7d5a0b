"""Runs commands for the host, in the process that serves files: cells do not delay them.

Each handle of the host is a reader of a command. Output is read from the command's pipes, or from
its pseudo-terminal, only when a reader has asked for it and no other is far behind, so a command
that writes much waits for its readers. They do not wait for one that reads nothing for a while, and
that loses its place when it is very far behind. What a command leaves running keeps its pipes, and
that output is discarded. src/session/commands.c is the other side.
"""
from __future__ import annotations

import errno
import os
import select
import signal
import struct
import time
from typing import TYPE_CHECKING, Any

from .frames import COMMANDED
from .signals import set_in_kernel
from .state import state
from droste._encoding.json_text import write_json

if TYPE_CHECKING:
    from .aliases import Blob, Head, Operation, Parts

COMMANDS = 256          # that run, or that have a reader
READERS = 1024          # of all commands
KEPT = 256              # commands that have ended, for `attach`
KEPT_SECONDS = 30
OUTPUT_READ = 65536     # bytes of a stream to read at once
BEHIND = 65536          # bytes that a reader may be behind another
PATIENCE = 1            # seconds that others wait for a reader that is so far behind
LATE = 1 << 20          # bytes that it may be behind then, before it loses its place
WORDS = 8192            # bytes of a command in a list
END_OF_FILE = b"\x04"   # what a terminal's user types

# pid, status, number of arguments and of variables, flags, bytes of the words that follow
INFO = struct.Struct("<QiIIII")
INFO_ENDED, INFO_TERMINAL, INFO_TIMED_OUT, INFO_CUT = 1, 2, 4, 8


class Misplaced(OSError):
    """A command could not start because of its directory, user or terminal, not its program."""

    def __init__(self, number: int, at: str) -> None:
        super().__init__(number, at)
        self.at = at


def answer_command(ident: int, head: Head, parts: Parts = (b"", b"")) -> None:
    state.link.send(COMMANDED, ident, write_json(head), parts)


class Words:
    """What a request has told about a command: its directory, user, tag, arguments, environment."""

    def __init__(self, head: Head, blob: bytes) -> None:
        words = blob.split(b"\0")[:-1]
        self.cwd, self.user, self.tag = words[:3]
        self.argv, self.env = words[3:3 + head["argc"]], words[3 + head["argc"]:]


class Reader:
    """A handle of the host: what it has not read yet, and its request for output."""

    def __init__(self) -> None:
        self.unread = [bytearray(), bytearray()]
        self.request: tuple[int, int] | None = None     # id and length
        self.is_silent = False          # the others do not wait for it
        self.is_late = False            # it was too far behind, and reads nothing more

    def add(self, data: list[bytes]) -> None:
        for unread, more in zip(self.unread, data):
            unread += more
        if self.is_silent and max(map(len, self.unread)) > LATE:
            self.is_late, self.unread = True, [bytearray(), bytearray()]

    def is_behind(self) -> bool:
        return not (self.is_silent or self.is_late) and max(map(len, self.unread)) >= BEHIND

    def take(self, length: int) -> list[bytes]:
        taken = [bytes(data[:length]) for data in self.unread]
        for data in self.unread:
            del data[:length]
        self.is_silent = self.is_silent and any(self.unread)
        return taken


class Command:
    """A process, its pipes or its terminal, and the requests that wait for it."""

    def __init__(self, process: Any, words: Words, head: Head, terminal: int) -> None:
        self.process, self.words = process, words
        self.deadline = time.monotonic() + head["timeout"] / 1000 if head["timeout"] else None
        self.timed_out = self.signalled = False
        self.drains = head["drain"]     # what it leaves running delays its end
        self.terminal = terminal        # -1: none, or at its end
        self.is_terminal = terminal >= 0
        self.input_fd = terminal if terminal >= 0 else descriptor(process.stdin)
        # -1: at its end, or merged
        self.streams = ([terminal, -1] if terminal >= 0
                        else [descriptor(process.stdout), descriptor(process.stderr)])
        for fd in (self.input_fd, *self.streams):
            if fd >= 0:
                os.set_blocking(fd, False)
        self.readers: dict[int, Reader] = {}
        self.input: list[tuple[int, Any, bool]] = []    # ids, what is left of the data, and eof
        self.discards = False           # its end was answered
        self.held_until = 0.0           # readers wait for one that is behind; 0: none do
        self.ended_at = 0.0             # 0: not noticed yet

    def poll(self) -> bool:
        """Returns whether it has ended."""
        if self.process.poll() is None:
            return False
        self.ended_at = self.ended_at or time.monotonic()
        return True

    def wants_output(self) -> bool:
        readers = self.readers.values()
        if self.discards or all(reader.is_late for reader in readers):
            return True
        asked = any(reader.request and not reader.is_late for reader in readers)
        behind = [reader for reader in readers if reader.is_behind()]
        if not (asked and behind):
            self.held_until = 0.0
            return asked
        now = time.monotonic()
        self.held_until = self.held_until or now + PATIENCE
        if now < self.held_until:
            return False
        for reader in behind:
            reader.is_silent = True
        self.held_until = 0.0
        return True

    def wanted(self) -> dict[int, int]:
        """Returns the events to wait for by descriptor."""
        found = {}
        if self.wants_output():
            found = {fd: select.POLLIN for fd in self.streams if fd >= 0}
        if self.input:
            found[self.input_fd] = found.get(self.input_fd, 0) | select.POLLOUT
        return found

    def attend(self) -> None:
        """Answers the requests that can be answered."""
        self.poll()
        if self.deadline is not None and time.monotonic() >= self.deadline:
            self.deadline = None
            self.timed_out = not self.poll()
            self.kill()
        while self.input and self.write_input():
            pass
        while self.pass_output():
            pass

    def pass_output(self) -> bool:
        """Reads for the readers, and answers them. Returns whether one was answered."""
        ended = self.poll()             # before the last read: nothing that it wrote is missed
        answered, read = False, self.wants_output()
        data = [self.read_stream(which) for which in (0, 1)] if read else [b"", b""]
        for reader in self.readers.values():
            if not self.discards and not reader.is_late:
                reader.add(data)
            if not reader.request:
                continue
            ident, length = reader.request
            if reader.is_late:
                reader.request, answered = None, True
                answer_command(ident, {"errno": errno.ENOBUFS})
            elif any(reader.unread):
                reader.request, answered = None, True
                answer_command(ident, {}, reader.take(length))
            elif ended and (self.discards or (read and not any(data) and self.has_said_all())):
                reader.request, answered, self.discards = None, True, True
                answer_command(ident, {"ended": True, "status": self.process.returncode,
                                       "timed_out": self.timed_out})
        return answered

    def has_said_all(self) -> bool:
        """Whether its end can be told: after its processes', or at once if it was killed."""
        killed = self.timed_out or self.signalled or self.process.returncode < 0
        return killed or not self.drains or max(self.streams) < 0

    def read_stream(self, which: int) -> bytes:
        """Returns what is there: nothing if it has none now, or never again."""
        fd = self.streams[which]
        if fd < 0:
            return b""
        try:
            data = os.read(fd, OUTPUT_READ)
        except BlockingIOError:
            return b""
        except OSError as e:            # the terminal, or connection, was closed on the other side
            if e.errno not in (errno.EIO, errno.ECONNRESET):
                raise
            data = b""
        if not data:
            self.streams[which] = -1
            if fd == self.terminal:
                self.end_input()
            else:
                (self.process.stdout, self.process.stderr)[which].close()
        return data

    def write_input(self) -> bool:
        """Writes to its input. Returns whether that answered a request."""
        ident, data, eof = self.input[0]
        try:
            data = data[os.write(self.input_fd, data):] if data else data
        except BlockingIOError:
            return False
        except OSError as e:            # it has closed its input, or ended
            self.input.pop(0)
            answer_command(ident, {"errno": e.errno})
            return True
        if not data and eof and self.terminal >= 0:
            data, eof = memoryview(END_OF_FILE), False
        self.input[0] = (ident, data, eof)
        if data:
            return False
        self.input.pop(0)
        answer_command(ident, {})
        if eof:
            self.end_input()
        return True

    def end_input(self) -> None:
        """Closes its input; of a terminal, at its end, everything."""
        if self.input_fd < 0:
            return
        if self.terminal >= 0:
            os.close(self.terminal)
            self.terminal, self.streams[0] = -1, -1
        else:
            self.process.stdin.close()
        self.input_fd = -1
        for ident, _, _ in self.input:
            answer_command(ident, {"errno": errno.EBADF})
        self.input.clear()

    def send_signal(self, number: int, alone: bool = False) -> None:
        """Signals its process group, or the process `alone`, unless that has ended: then its id may
        be another's."""
        if self.poll():
            raise OSError(errno.ESRCH, "the command has ended")
        (os.kill if alone else os.killpg)(self.process.pid, number)

    def kill(self) -> None:
        try:
            self.send_signal(signal.SIGKILL)
        except OSError:
            pass                        # it has ended

    def resize(self, columns: int, rows: int) -> None:
        if self.terminal < 0:
            raise OSError(errno.ENOTTY, "it has no terminal")
        set_size(self.terminal, columns, rows)

    def describe(self) -> bytes:
        """Returns its entry in a list; if it is too long, without its environment and the end of
        its arguments."""
        flags, argv, env = 0, self.words.argv, self.words.env
        names = [self.words.tag, self.words.user, self.words.cwd]
        size = sum(len(word) + 1 for word in (*names, *argv))
        if size + sum(len(word) + 1 for word in env) > WORDS:
            flags, env = INFO_CUT, []
        while size > WORDS and argv:
            argv, size = argv[:-1], size - len(argv[-1]) - 1
        if self.ended_at:
            flags |= INFO_ENDED | (INFO_TIMED_OUT if self.timed_out else 0)
        if self.is_terminal:
            flags |= INFO_TERMINAL
        text = b"".join(word + b"\0" for word in (*names, *argv, *env))
        return INFO.pack(self.process.pid, self.process.returncode or 0, len(argv), len(env), flags,
                         len(text)) + text


def descriptor(stream: Any) -> int:
    return -1 if stream is None else stream.fileno()


def set_size(terminal: int, columns: int, rows: int) -> None:
    import fcntl
    import termios
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def take_terminal() -> None:
    """In the new process: its input becomes the terminal of its session."""
    import fcntl
    import termios
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def start_directory(cwd: bytes, home: bytes | None) -> bytes | None:
    """Returns where to start, with `home` for `~` and relative paths if a user was named."""
    if home is not None and (cwd or os.path.isdir(home)):       # nobody has none
        cwd = home + cwd[1:] if cwd[:1] == b"~" and cwd[1:2] in (b"", b"/") else cwd
        cwd = os.path.join(home, cwd)
    if cwd and not os.path.isdir(cwd):
        raise Misplaced(errno.ENOTDIR if os.path.lexists(cwd) else errno.ENOENT, "cwd")
    return cwd or None


def find_user(name: bytes) -> Any:
    """Returns an entry of the sandbox's /etc/passwd. Only root can become another user."""
    import pwd
    try:
        entry = pwd.getpwnam(os.fsdecode(name))
    except KeyError:
        raise Misplaced(errno.ENOENT, "user") from None
    if os.geteuid() not in (0, entry.pw_uid):
        raise Misplaced(errno.EPERM, "user")
    return entry


def user_options(entry: Any) -> dict[str, Any]:
    """Returns what Popen needs to change to a user; nothing if the process has its id already."""
    if entry is None or entry.pw_uid == os.geteuid():
        return {}
    return {"user": entry.pw_uid, "group": entry.pw_gid,
            "extra_groups": os.getgrouplist(entry.pw_name, entry.pw_gid)}


def environment_of(words: Words, entry: Any, terminal: bool) -> dict[bytes, bytes]:
    env = dict(os.environb)
    if terminal and env.get(b"TERM", b"dumb") == b"dumb":
        env[b"TERM"] = b"xterm-256color"
    if entry is not None:
        name = os.fsencode(entry.pw_name)
        env.update({b"HOME": os.fsencode(entry.pw_dir), b"USER": name, b"LOGNAME": name,
                    b"SHELL": os.fsencode(entry.pw_shell)})
    for word in words.env:
        key, _, value = word.partition(b"=")
        env[key] = value
    return env


def open_terminal(head: Head) -> tuple[int, int]:
    """Opens a pseudo-terminal; returns the descriptors of both sides."""
    try:
        ours, theirs = os.openpty()
    except OSError as e:
        raise Misplaced(e.errno or errno.EIO, "terminal") from None
    set_size(ours, head["columns"], head["rows"])
    return ours, theirs


def start_process(words: Words, head: Head) -> Command:
    import subprocess
    entry = find_user(words.user) if words.user else None
    cwd = start_directory(words.cwd, os.fsencode(entry.pw_dir) if entry else None)
    env = environment_of(words, entry, head["terminal"])
    ours, theirs = open_terminal(head) if head["terminal"] else (-1, -1)
    pipe = subprocess.PIPE
    streams = ((theirs, theirs, theirs) if ours >= 0 else
               (pipe if head["stdin"] else subprocess.DEVNULL, pipe,
                subprocess.STDOUT if head["merge"] else pipe))
    try:
        process = subprocess.Popen(
            words.argv, cwd=cwd, env=env, bufsize=0, start_new_session=True, stdin=streams[0],
            stdout=streams[1], stderr=streams[2], preexec_fn=take_terminal if ours >= 0 else None,
            **user_options(entry))
    except BaseException:
        if ours >= 0:
            os.close(ours)
        raise
    finally:
        if theirs >= 0:
            os.close(theirs)
    return Command(process, words, head, ours)


class CommandServer:
    """The commands of this process, and a method for each operation of the host."""

    def __init__(self) -> None:
        self.commands: list[Command] = []       # that run, or that have a reader
        self.kept: list[Command] = []           # that have ended, for `attach`
        self.handles: dict[int, Command] = {}
        self.last = 0
        self.wake = -1          # readable when a process has ended

    def next_operation(self) -> Operation:
        """Returns the next frame of the host; serves commands while there is none."""
        while self.commands and not state.link.inbox and not self.wait():
            pass
        return state.link.next_operation()

    def wait(self) -> bool:
        """Waits for the host or for commands. Returns whether the host has sent something."""
        channel, poller = state.link.sock.fileno(), select.poll()
        poller.register(channel, select.POLLIN)
        poller.register(self.wake, select.POLLIN)
        for command in self.commands:
            for fd, events in command.wanted().items():
                poller.register(fd, events)
        deadlines = [at for command in self.commands
                     for at in (command.deadline, command.held_until) if at]
        left = min(deadlines) - time.monotonic() if deadlines else None
        ready = dict(poller.poll(None if left is None else max(0, left * 1000)))
        if self.wake in ready:
            os.read(self.wake, 4096)
        for command in list(self.commands):
            command.attend()
        self.put_away()
        return channel in ready

    def put_away(self) -> None:
        """Keeps commands that have ended and have no readers for a while, without descriptors."""
        over = [command for command in self.commands
                if not command.readers and command.ended_at and max(command.streams) < 0]
        for command in over:
            command.end_input()
            self.commands.remove(command)
        self.kept = (self.kept + [command for command in over if command.process.pid])[-KEPT:]

    def recent(self) -> list[Command]:
        """Returns commands that can be attached to, those that run last."""
        oldest = time.monotonic() - KEPT_SECONDS
        self.kept = [command for command in self.kept if command.ended_at > oldest]
        return self.kept + [command for command in self.commands if command.process.pid]

    def serve(self, ident: int, head: Head, blob: Blob) -> None:
        try:
            getattr(self, "command_" + head["op"])(ident, head, bytes(blob))
        except Misplaced as e:
            answer_command(ident, {"errno": e.errno, "at": e.at})
        except OSError as e:
            answer_command(ident, {"errno": e.errno or errno.EIO})
        except ValueError:
            answer_command(ident, {"errno": errno.EINVAL})
        except (MemoryError, RecursionError):
            answer_command(ident, {"errno": errno.ENOMEM})

    def command_of(self, head: Head) -> Command:
        command = self.handles.get(head["handle"])
        if command is None:
            raise OSError(errno.EBADF, "there is no such command")
        return command

    def watch_children(self) -> None:
        """Has a byte written to a pipe whenever a child ends."""
        self.wake, end = os.pipe()
        for fd in (self.wake, end):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(end, warn_on_full_buffer=False)
        set_in_kernel(signal.SIGCHLD, lambda number, frame: None)

    def add_handle(self, ident: int, command: Command, reads: bool) -> None:
        self.last += 1
        self.handles[self.last] = command
        if reads:
            command.readers[self.last] = Reader()
        answer_command(ident, {"handle": self.last, "pid": command.process.pid})

    def command_start(self, ident: int, head: Head, blob: bytes) -> None:
        if len(self.commands) >= COMMANDS or len(self.handles) >= READERS:
            raise OSError(errno.EAGAIN, "too many commands")
        if self.wake < 0:
            self.watch_children()
        for command in self.commands:   # no process id of one that has ended is found any more
            command.poll()
        command = start_process(Words(head, blob), head)
        self.commands.append(command)
        self.add_handle(ident, command, True)

    def command_attach(self, ident: int, head: Head, tag: bytes) -> None:
        """Makes another reader of a command with a process id, or with a tag."""
        found = [command for command in self.recent()
                 if (command.words.tag == tag[:-1] if len(tag) > 1
                     else command.process.pid == head["pid"])]
        if not found:
            raise OSError(errno.ESRCH, "there is no such command")
        if len(self.handles) >= READERS:
            raise OSError(errno.EAGAIN, "too many readers")
        if found[-1] not in self.commands and not head["quiet"]:
            self.kept.remove(found[-1])
            self.commands.append(found[-1])
        self.add_handle(ident, found[-1], not head["quiet"])

    def command_list(self, ident: int, head: Head, _: bytes) -> None:
        found = self.recent()
        for command in found:
            command.poll()
        answer_command(ident, {}, (b"".join(command.describe() for command in found), b""))

    def command_output(self, ident: int, head: Head, _: bytes) -> None:
        command = self.command_of(head)
        reader = command.readers.get(head["handle"])
        if reader is None or reader.request:
            raise OSError(errno.EBUSY, "its output is being read, or not for this handle")
        reader.request = (ident, head["length"])
        command.attend()

    def command_input(self, ident: int, head: Head, data: bytes) -> None:
        command = self.command_of(head)
        if command.input_fd < 0:
            raise OSError(errno.EBADF, "it takes no input")
        command.input.append((ident, memoryview(data), head["eof"]))
        command.attend()

    def command_signal(self, ident: int, head: Head, _: bytes) -> None:
        command = self.command_of(head)
        command.send_signal(head["signal"], head["alone"])
        command.signalled = True
        answer_command(ident, {})

    def command_resize(self, ident: int, head: Head, _: bytes) -> None:
        self.command_of(head).resize(head["columns"], head["rows"])
        answer_command(ident, {})

    def command_release(self, ident: int, head: Head, _: bytes) -> None:
        command = self.command_of(head)
        command.kill()
        if len(command.readers) < 2:
            command.end_input()
        self.command_detach(ident, head, b"")

    def command_detach(self, ident: int, head: Head, _: bytes) -> None:
        command = self.command_of(head)
        reader = command.readers.pop(head["handle"], None)
        del self.handles[head["handle"]]
        if reader and reader.request:
            answer_command(reader.request[0], {"errno": errno.EBADF})
        if not command.process.pid:     # a connection ends with its handle
            command.kill()
        answer_command(ident, {})
        command.attend()
        self.put_away()
