"""Connects the host to servers in the sandbox, for serve_commands.py.

Only ports of the sandbox's own loopback are connected to, with the rights and the limits of its
code.
"""
from __future__ import annotations

import _socket
import errno
import select
from typing import TYPE_CHECKING, Callable

from .serve_commands import answer_command, Command, COMMANDS, CommandServer, READERS, Words

if TYPE_CHECKING:
    from .aliases import Head


class Half:
    """One direction of a connection, as a process has a pipe."""

    def __init__(self, peer: Peer, ends: bool) -> None:
        self.peer, self.ends = peer, ends
        self.fileno = peer.socket.fileno

    def close(self) -> None:
        if self.ends:
            self.peer.returncode = 0
            self.peer.socket.close()
            return
        try:
            self.peer.socket.shutdown(_socket.SHUT_WR)
        except OSError:
            pass                        # the other side has closed it


class Peer:
    """What a connection has in place of a process: it has ended when the other side has closed."""

    pid, stderr = 0, None

    def __init__(self, opened: _socket.socket) -> None:
        self.socket = opened
        self.returncode: int | None = None
        self.stdin, self.stdout = Half(self, False), Half(self, True)

    def poll(self) -> int | None:
        return self.returncode


class Connection(Command):
    """A connection to a server in the sandbox: what that sends is the output."""

    def __init__(self, port: int, ident: int,
                 opened: Callable[[Connection, int, int], None]) -> None:
        self.port, self.ident, self.opened = port, ident, opened
        self.families = [_socket.AF_INET, _socket.AF_INET6]
        self.opening = True
        self.open_next()

    def open_next(self) -> None:
        """Begins to connect over the next family."""
        family = self.families.pop(0)
        opened = _socket.socket(family, _socket.SOCK_STREAM)
        super().__init__(Peer(opened), Words({"argc": 0}, b"\0\0\0"),
                         {"timeout": 0, "drain": False}, -1)
        address = "127.0.0.1" if family == _socket.AF_INET else "::1"
        self.failure = opened.connect_ex((address, self.port))

    def is_opening(self) -> bool:
        """Returns whether it is undecided; `failure` is 0 or an errno afterwards."""
        if self.failure == errno.EINPROGRESS:
            peer = self.process.socket
            if not select.select([], [peer], [], 0)[1]:
                return True
            self.failure = peer.getsockopt(_socket.SOL_SOCKET, _socket.SO_ERROR)
        if not self.failure:
            return False
        self.process.socket.close()
        if not self.families:
            return False
        self.open_next()
        return self.is_opening()

    def wanted(self) -> dict[int, int]:
        return {self.input_fd: select.POLLOUT} if self.opening else super().wanted()

    def attend(self) -> None:
        if self.opening:
            self.opening = self.is_opening()
            if not self.opening:
                self.opened(self, self.ident, self.failure)
            return
        super().attend()
        if self.process.returncode is not None:     # noticed while it was read
            super().attend()

    def send_signal(self, number: int, alone: bool = False) -> None:
        raise OSError(errno.ESRCH, "it is not a process")

    def kill(self) -> None:
        self.streams[0] = self.input_fd = -1
        self.process.stdout.close()
        self.poll()


class PortServer(CommandServer):
    """The same with connections, which have handles and are read and written as commands are."""

    def command_connect(self, ident: int, head: Head, _: bytes) -> None:
        if len(self.commands) >= COMMANDS or len(self.handles) >= READERS:
            raise OSError(errno.EAGAIN, "too many commands")
        if self.wake < 0:
            self.watch_children()
        connection = Connection(head["port"], ident, self.finish_opening)
        self.commands.append(connection)
        connection.attend()

    def finish_opening(self, connection: Connection, ident: int, why: int) -> None:
        """Answers the request for a connection that is open, or that failed with an errno."""
        if why:
            self.commands.remove(connection)
            answer_command(ident, {"errno": why})
        else:
            self.add_handle(ident, connection, True)


commands_of_host = PortServer()
