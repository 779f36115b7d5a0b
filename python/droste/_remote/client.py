"""HTTP to one server: connections that are kept, JSON, streams of events, and errors.

A connection serves one request at a time, and is kept for the next. One that the server has closed
meanwhile is noticed before it is used, because a request that may have had an effect is never
repeated. Safe in any thread.
"""
from __future__ import annotations

import base64
import errno as _errno
import http.client
import json
import os
import select
import socket
import ssl
import threading
import time
import urllib.parse
import uuid
import weakref
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Tuple

from .. import errors

IDLE_SECONDS = 20.0         # a connection that was idle for longer is not used again
CONNECT_SECONDS = 30.0
PATIENCE_SECONDS = 60.0     # how long creating something is repeated while the server is full
UNDO_SECONDS = 30.0         # how long what was made before Ctrl-C is asked for
PIECE = 1 << 16


Undo = Callable[[Any], Tuple[str, str]]


class _Unix(http.client.HTTPConnection):
    """A connection to a unix socket."""

    def __init__(self, path: str):
        super().__init__("localhost", timeout=CONNECT_SECONDS)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class Address(NamedTuple):
    """Where a server is."""
    scheme: str     # "http", "https" or "unix"
    host: str       # of "unix": the path
    port: Optional[int]
    prefix: str     # of all paths

    def connection(self) -> http.client.HTTPConnection:
        if self.scheme == "unix":
            return _Unix(self.host)
        if self.scheme == "https":
            return http.client.HTTPSConnection(self.host, self.port, timeout=CONNECT_SECONDS,
                                               context=ssl.create_default_context())
        return http.client.HTTPConnection(self.host, self.port, timeout=CONNECT_SECONDS)


def parse_address(text: str) -> Address:
    """Parses "http://HOST:PORT", "https://HOST" or "unix:PATH"; raises ArgumentError."""
    if text.startswith("unix:"):
        return Address("unix", text[len("unix:"):], None, "")
    try:
        found = urllib.parse.urlsplit(text)
        port = found.port
    except ValueError as e:
        raise errors.ArgumentError("the server %r is not a URL: %s" % (text, e)) from None
    if found.scheme not in ("http", "https") or not found.hostname or found.query:
        raise errors.ArgumentError(
            "a server is http://HOST:PORT, https://HOST:PORT or unix:PATH, not %r" % (text,))
    return Address(found.scheme, found.hostname, port, found.path.rstrip("/"))


class Refused(Exception):
    """An answer that is an error: its status, code, message, and the name of its errno."""

    def __init__(self, status: int, code: str, message: str, sys: Optional[str] = None,
                 wait: Optional[float] = None):
        super().__init__(message)
        self.status, self.code, self.message, self.sys, self.wait = status, code, message, sys, wait


#: codes of the server that are not those of the library
CODES = {"schema": "argument", "json": "argument", "limit": "argument", "media_type": "argument",
         "too_large": "argument", "conflict": "argument", "quota": "argument",
         "full": "io", "closed": "lost", "worker_lost": "lost", "value": "cell",
         "draining": "environment", "capacity": "environment", "rate": "environment",
         "sandboxes": "environment", "unauthorized": "permission", "forbidden": "permission"}


def failure_of(refused: Refused) -> errors.Error:
    """Creates the exception of this package for an error of the server."""
    code = CODES.get(refused.code, refused.code)
    if refused.status in (401, 403):
        code = "permission"
    elif refused.status == 413:
        code = "argument"
    failure = errors.named(code, refused.message)
    number = getattr(_errno, refused.sys or "", None)
    if number is not None and isinstance(failure, OSError):
        failure.errno = number
    return failure


def os_error_of(refused: Refused, path: Optional[str] = None) -> Optional[OSError]:
    """Creates the exception that the operating system's call would raise; None: it is no such."""
    number = getattr(_errno, refused.sys or "", None)
    if number is None or CODES.get(refused.code, refused.code) == "lost":
        return None
    if path is None:
        return OSError(number, refused.message)
    return OSError(number, refused.message.partition("in the sandbox: ")[2] or refused.message,
                   path)


def _refusal(status: int, wait: Optional[str], body: bytes) -> Refused:
    try:
        error = json.loads(body)["error"]
        code, message = str(error["code"]), str(error["message"])
        sys = error.get("errno")
    except (ValueError, KeyError, TypeError):       # of the HTTP library, or of a proxy
        code, sys = "environment", None
        message = "the server answered with status %d" % status
    try:
        seconds = float(wait) if wait else None
    except ValueError:
        seconds = None
    return Refused(status, code, message, sys, seconds)


class Answer:
    """An answer whose body is read in pieces."""

    def __init__(self, server: "Server", connection: http.client.HTTPConnection,
                 response: http.client.HTTPResponse):
        self._server, self._connection, self.response = server, connection, response

    def read(self, length: Optional[int] = None) -> bytes:
        """Returns the whole body, or at most `length` bytes of it; b"" at its end."""
        try:
            return self.response.read() if length is None else self.response.read(length)
        except (OSError, http.client.HTTPException) as e:
            self.close()
            raise self._server.lost(e) from None

    def read_some(self) -> bytes:
        """Returns what there is; waits for something. b"" at the end."""
        try:
            return self.response.read1(PIECE)
        except (OSError, http.client.HTTPException) as e:
            self.close()
            raise self._server.lost(e) from None

    def close(self) -> None:
        """Keeps the connection if the body was read, else closes it."""
        connection, self._connection = self._connection, None  # type: ignore
        if connection is None:
            return
        if self.response.isclosed() and not self.response.will_close:
            self._server._keep(connection)
        else:
            self.response.close()
            connection.close()


class Event(NamedTuple):
    """An event of a stream."""
    kind: str
    data: Any
    id: Optional[str]


class Events:
    """The server-sent events of an answer. Reading can be interrupted and go on."""

    def __init__(self, answer: Answer):
        self._answer, self._rest = answer, bytearray()
        self._looked = 0        # up to here there is no end of an event
        self.ended = False

    def next(self) -> Optional[Event]:
        """Waits for the next event; None: the stream has ended."""
        while True:
            at = self._rest.find(b"\n\n", self._looked)
            if at >= 0:
                block = bytes(self._rest[:at])
                del self._rest[:at + 2]
                self._looked = 0
                return self._parse(block)
            self._looked = max(0, len(self._rest) - 1)
            piece = self._answer.read_some()
            if not piece:
                self.close()
                return None
            self._rest += piece

    def __iter__(self) -> Iterator[Event]:
        """Yields the events, and closes the stream when they are not wanted any more."""
        try:
            yield from iter(self.next, None)
        finally:
            self.close()

    @staticmethod
    def _parse(block: bytes) -> Event:
        fields: Dict[str, str] = {}
        for line in block.decode("utf-8", "replace").split("\n"):
            name, _, value = line.partition(":")
            fields[name] = value[1:] if value.startswith(" ") else value
        try:
            data = json.loads(fields.get("data", "null"))
        except ValueError as e:
            raise errors.ProtocolError("the server sent an event that is not JSON: %s" % e
                                       ) from None
        return Event(fields.get("event", "message"), data, fields.get("id"))

    def close(self) -> None:
        self.ended = True
        self._answer.close()


class Server:
    """A server, with the key for it."""

    def __init__(self, text: str, key: Optional[str]):
        self.text, self.address = text, parse_address(text)
        self._headers = {"X-API-Key": key} if key else {}
        self._idle: List[Tuple[float, http.client.HTTPConnection]] = []
        self._lock = threading.Lock()
        _servers.add(self)

    def lost(self, e: BaseException) -> errors.Error:
        return errors.LostError("the connection to the server %s was lost: %s"
                                % (self.text, str(e) or type(e).__name__))

    # -- connections

    def _keep(self, connection: http.client.HTTPConnection) -> None:
        with self._lock:
            self._idle.append((time.monotonic(), connection))

    def _take_idle(self) -> Optional[http.client.HTTPConnection]:
        """Returns a kept connection that the server has not closed."""
        while True:
            with self._lock:
                if not self._idle:
                    return None
                since, connection = self._idle.pop()
            if time.monotonic() - since < IDLE_SECONDS and not _is_readable(connection.sock):
                return connection
            connection.close()

    def _connect(self) -> http.client.HTTPConnection:
        connection = self.address.connection()
        try:
            connection.connect()
            connection.sock.settimeout(None)
            connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        except (OSError, http.client.HTTPException) as e:
            connection.close()
            raise errors.EnvironmentFailed("the server %s cannot be reached: %s"
                                           % (self.text, e)) from None
        return connection

    def forget(self) -> None:
        """In the child of a fork: its connections are the parent's."""
        self._lock = threading.Lock()
        for _, connection in self._idle:
            connection.close()
        self._idle.clear()

    # -- requests

    def _url(self, path: str, query: Optional[Mapping[str, Any]]) -> str:
        url = self.address.prefix + urllib.parse.quote(path, safe="/")
        given = {name: value for name, value in (query or {}).items() if value is not None}
        return url + "?" + urllib.parse.urlencode(given, quote_via=urllib.parse.quote
                                                  ) if given else url

    def begin(self, method: str, path: str, body: Any = None, *,
              query: Optional[Mapping[str, Any]] = None, kind: str = "application/json",
              headers: Optional[Mapping[str, str]] = None,
              timeout: Optional[float] = None) -> Answer:
        """Sends a request; returns its answer when it begins. Raises Refused.

        A connection on which nothing comes for `timeout` seconds is lost.
        """
        sent = {**self._headers, **(headers or {})}
        if body is not None:
            sent["Content-Type"] = kind
        connection = self._take_idle() or self._connect()
        connection.sock.settimeout(timeout)     # by default, cells take the time that they take
        try:
            try:
                connection.request(method, self._url(path, query), body, sent)
            except (BrokenPipeError, ConnectionResetError):
                if body is None:
                    raise
                # a body that the server does not want; its answer says why
            response = connection.getresponse()
        except (OSError, http.client.HTTPException) as e:
            connection.close()
            raise self.lost(e) from None
        except BaseException:       # Ctrl-C: the server sees that its client has gone
            connection.close()
            raise
        return self._check(Answer(self, connection, response))

    def _check(self, answer: Answer) -> Answer:
        response = answer.response
        if response.status < 400:
            return answer
        body = answer.read()
        answer.close()
        raise _refusal(response.status, response.headers.get("Retry-After"), body)

    def ask(self, method: str, path: str, body: Any = None, **more: Any) -> Any:
        """Sends JSON (or bytes, with their kind); returns the decoded answer, or None."""
        if body is not None and not isinstance(body, (bytes, bytearray, memoryview)):
            body = json.dumps(body).encode()
        answer = self.begin(method, path, body, **more)
        try:
            data = answer.read()
        finally:
            answer.close()
        try:
            return json.loads(data) if data else None
        except ValueError as e:
            raise errors.ProtocolError("the server sent an answer that is not JSON: %s" % e
                                       ) from None

    def create(self, path: str, body: Any = None, undo: Optional[Undo] = None) -> Any:
        """Asks for something new; waits while the server is full, and never gets two.

        After Ctrl-C, what was made is ended by the request (a method and a path) that `undo`
        returns for its answer.
        """
        headers = {"Idempotency-Key": uuid.uuid4().hex}
        try:
            return self._create(path, body, headers)
        except Exception:
            raise
        except BaseException:
            if undo is not None:
                self._undo(path, body, headers, undo)
            raise

    def _undo(self, path: str, body: Any, headers: Mapping[str, str], undo: Undo) -> None:
        """The server goes on when its client has gone: only its answer names what is to end."""
        deadline = time.monotonic() + UNDO_SECONDS
        while time.monotonic() < deadline:
            try:
                made = self.ask("POST", path, body, headers=headers, timeout=UNDO_SECONDS)
                self.ask(*undo(made), timeout=UNDO_SECONDS)
                return
            except Refused as e:
                if e.code != "idempotency_in_progress":
                    return
            except errors.Error:
                return
            time.sleep(0.1)

    def _create(self, path: str, body: Any, headers: Mapping[str, str]) -> Any:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                return self.ask("POST", path, body, headers=headers)
            except Refused as e:
                wait = e.wait if e.wait is not None else 1.0
                if e.status != 429 or time.monotonic() + wait > deadline:
                    raise
                time.sleep(wait)

    def upload(self, path: str, query: Mapping[str, Any]) -> "Upload":
        """Begins a PUT whose body comes in pieces."""
        connection = self._take_idle() or self._connect()
        upload = Upload(self, connection)
        try:
            connection.putrequest("PUT", self._url(path, query))
            for name, value in self._headers.items():
                connection.putheader(name, value)
            connection.putheader("Content-Type", "application/octet-stream")
            connection.putheader("Transfer-Encoding", "chunked")
            connection.endheaders()
        except (OSError, http.client.HTTPException) as e:
            connection.close()
            raise self.lost(e) from None
        return upload


class Upload:
    """A body that is sent in pieces."""

    def __init__(self, server: Server, connection: http.client.HTTPConnection):
        self._server, self._connection = server, connection
        self._failure: Optional[BaseException] = None

    def write(self, piece: bytes) -> None:
        if piece:
            self._send(b"%x\r\n%s\r\n" % (len(piece), piece))

    def _send(self, data: bytes) -> None:
        try:
            self._connection.send(data)
        except OSError as e:        # the server has answered already: with an error
            self._failure = e
            self.finish()
            raise self._server.lost(e) from None

    def finish(self) -> None:
        """Ends the body; raises Refused if the server did not accept it."""
        connection = self._connection
        try:
            if self._failure is None:
                connection.send(b"0\r\n\r\n")
            response = connection.getresponse()
        except (OSError, http.client.HTTPException) as e:
            connection.close()
            raise self._server.lost(self._failure or e) from None
        answer = self._server._check(Answer(self._server, connection, response))
        answer.read()
        answer.close()

    def drop(self) -> None:
        self._connection.close()


def _is_readable(sock: Any) -> bool:
    """Whether the server has closed a connection that is idle, or has sent what nothing asked."""
    if sock is None:
        return True
    if isinstance(sock, ssl.SSLSocket) and sock.pending():
        return True
    try:
        if hasattr(select, "poll"):
            poll = select.poll()
            poll.register(sock, select.POLLIN)
            return bool(poll.poll(0))
        return bool(select.select([sock], [], [], 0)[0])
    except (OSError, ValueError):
        return True


_servers: "weakref.WeakSet[Server]" = weakref.WeakSet()
_by_address: "weakref.WeakValueDictionary[Tuple[str, Optional[str]], Server]" = (
    weakref.WeakValueDictionary())


def server_at(text: str, key: Optional[str]) -> Server:
    """Returns the server with this address and key, whose connections all its users share."""
    key = key if key is not None else os.environ.get("DROSTE_API_KEY") or None
    found = _by_address.get((text, key))
    if found is None:
        found = _by_address[text, key] = Server(text, key)
    return found


def _after_fork() -> None:
    for server in list(_servers):
        server.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def unb64(text: Any, what: str) -> bytearray:
    """Decodes base64 of the server's; writable, as arrays on it are."""
    try:
        return bytearray(base64.b64decode(text, validate=True))
    except (ValueError, TypeError):
        raise errors.ProtocolError("the server sent %s that is not base64" % what) from None

