"""Runs commands for the host, in the process that serves files: cells do not delay them.

Output is read from a command's pipes only when the host has asked for it, so a command that writes
much waits for its reader. What a command leaves running keeps its pipes, and that output is
discarded. src/session/commands.c is the other side.
"""
from __future__ import annotations

import errno
import json
import os
import select
import signal
import time
from typing import TYPE_CHECKING, Any

from .frames import COMMANDED
from .state import state

if TYPE_CHECKING:
    from .aliases import Blob, Head, Operation, Parts

COMMANDS = 256          # that run, or that the host has not released
DISCARD = 65536         # bytes to discard at once


def answer_command(ident: int, head: Head, parts: Parts = (b"", b"")) -> None:
    state.link.send(COMMANDED, ident, json.dumps(head).encode(), parts)


class Command:
    """A process, its pipes, and the requests that wait for it."""

    def __init__(self, process: Any, timeout_ms: int) -> None:
        self.process = process
        self.deadline = time.monotonic() + timeout_ms / 1000 if timeout_ms else None
        self.timed_out = False
        self.streams = [process.stdout, process.stderr]     # None: at its end, or merged
        for stream in (process.stdin, *self.streams):
            if stream is not None:
                os.set_blocking(stream.fileno(), False)
        self.reader: tuple[int, int] | None = None      # id and length of a request for output
        self.input: list[tuple[int, Any, bool]] = []    # ids, what is left of the data, and eof
        self.discards = False           # its end was answered, or it was released
        self.released = False

    def is_over(self) -> bool:
        return (self.released and self.process.returncode is not None
                and self.streams == [None, None])

    def wanted(self) -> list[tuple[int, int]]:
        """Returns the descriptors to wait for, with their events."""
        found = []
        if self.input:
            found.append((self.process.stdin.fileno(), select.POLLOUT))
        if self.reader or self.discards:
            found += [(stream.fileno(), select.POLLIN) for stream in self.streams if stream]
        return found

    def attend(self) -> None:
        """Answers the requests that can be answered."""
        self.process.poll()
        if self.deadline is not None and time.monotonic() >= self.deadline:
            self.deadline = None
            self.timed_out = self.process.returncode is None
            self.kill()
        while self.input and self.write_input():
            pass
        if self.discards:
            self.read_streams(DISCARD)
        if not self.reader:
            return
        ident, length = self.reader
        ended = self.process.returncode is not None
        data = self.read_streams(length)
        if any(data):
            self.reader = None
            answer_command(ident, {}, data)
        elif ended:
            self.reader, self.discards = None, True
            answer_command(ident, {"ended": True, "status": self.process.returncode,
                                   "timed_out": self.timed_out})

    def read_streams(self, length: int) -> list[bytes]:
        return [self.read_stream(which, length) for which in (0, 1)]

    def read_stream(self, which: int, length: int) -> bytes:
        """Returns what is there: nothing if it has none now, or never again."""
        stream = self.streams[which]
        if stream is None:
            return b""
        try:
            data = os.read(stream.fileno(), length)
        except BlockingIOError:
            return b""
        if not data:
            stream.close()
            self.streams[which] = None
        return data

    def write_input(self) -> bool:
        """Writes to its input. Returns whether that answered a request."""
        ident, data, eof = self.input[0]
        try:
            data = data[os.write(self.process.stdin.fileno(), data):] if data else data
        except BlockingIOError:
            return False
        except OSError as e:            # it has closed its input, or ended
            self.input.pop(0)
            answer_command(ident, {"errno": e.errno})
            return True
        self.input[0] = (ident, data, eof)
        if data:
            return False
        self.input.pop(0)
        if eof:
            self.close_input()
        answer_command(ident, {})
        return True

    def close_input(self) -> None:
        if self.process.stdin is not None:
            self.process.stdin.close()
            self.process.stdin = None
        for ident, _, _ in self.input:
            answer_command(ident, {"errno": errno.EBADF})
        self.input.clear()

    def send_signal(self, number: int) -> None:
        """Signals the process group, unless the process has ended: then its id may be another's."""
        self.process.poll()
        if self.process.returncode is not None:
            raise OSError(errno.ESRCH, "the command has ended")
        os.killpg(self.process.pid, number)


    def kill(self) -> None:
        try:
            self.send_signal(signal.SIGKILL)
        except OSError:
            pass                        # it has ended


class CommandServer:
    """The commands of this process, and a method for each operation of the host."""

    def __init__(self) -> None:
        self.commands: dict[int, Command] = {}
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
        for command in self.commands.values():
            for fd, events in command.wanted():
                poller.register(fd, events)
        deadlines = [command.deadline for command in self.commands.values() if command.deadline]
        left = min(deadlines) - time.monotonic() if deadlines else None
        ready = dict(poller.poll(None if left is None else max(0, left * 1000)))
        if self.wake in ready:
            os.read(self.wake, 4096)
        for command in list(self.commands.values()):
            command.attend()
        self.commands = {handle: command for handle, command in self.commands.items()
                         if not command.is_over()}
        return channel in ready

    def serve(self, ident: int, head: Head, blob: Blob) -> None:
        try:
            getattr(self, "command_" + head["op"])(ident, head, bytes(blob))
        except OSError as e:
            answer_command(ident, {"errno": e.errno or errno.EIO})
        except ValueError:
            answer_command(ident, {"errno": errno.EINVAL})
        except (MemoryError, RecursionError):
            answer_command(ident, {"errno": errno.ENOMEM})

    def command_of(self, head: Head) -> Command:
        command = self.commands.get(head["handle"])
        if command is None or command.released:
            raise OSError(errno.EBADF, "there is no such command")
        return command

    def watch_children(self) -> None:
        """Has a byte written to a pipe whenever a child ends."""
        self.wake, end = os.pipe()
        for fd in (self.wake, end):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(end, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)

    def command_start(self, ident: int, head: Head, blob: bytes) -> None:
        import subprocess
        if len(self.commands) >= COMMANDS:
            raise OSError(errno.EAGAIN, "too many commands")
        words = blob.split(b"\0")[:-1]
        cwd, argv, more = words[0], words[1:1 + head["argc"]], words[1 + head["argc"]:]
        env = dict(os.environb)
        for word in more:
            name, _, value = word.partition(b"=")
            env[name] = value
        if cwd and not os.path.isdir(cwd):
            answer_command(ident, {"errno": errno.ENOTDIR if os.path.lexists(cwd) else errno.ENOENT,
                                   "cwd": True})
            return
        if self.wake < 0:
            self.watch_children()
        pipe = subprocess.PIPE
        process = subprocess.Popen(
            argv, cwd=cwd or None, env=env, bufsize=0, start_new_session=True,
            stdin=pipe if head["stdin"] else subprocess.DEVNULL, stdout=pipe,
            stderr=subprocess.STDOUT if head["merge"] else pipe)
        self.last += 1
        self.commands[self.last] = Command(process, head["timeout"])
        answer_command(ident, {"handle": self.last, "pid": process.pid})

    def command_output(self, ident: int, head: Head, _: bytes) -> None:
        command = self.command_of(head)
        if command.reader:
            raise OSError(errno.EBUSY, "its output is being read")
        command.reader = (ident, head["length"])
        command.attend()

    def command_input(self, ident: int, head: Head, data: bytes) -> None:
        command = self.command_of(head)
        if command.process.stdin is None:
            raise OSError(errno.EBADF, "it takes no input")
        command.input.append((ident, memoryview(data), head["eof"]))
        command.attend()

    def command_signal(self, ident: int, head: Head, _: bytes) -> None:
        self.command_of(head).send_signal(head["signal"])
        answer_command(ident, {})

    def command_release(self, ident: int, head: Head, _: bytes) -> None:
        command = self.command_of(head)
        command.kill()
        command.close_input()
        if command.reader:
            answer_command(command.reader[0], {"errno": errno.EBADF})
            command.reader = None
        command.released = command.discards = True
        answer_command(ident, {})


commands_of_host = CommandServer()
