"""How `files` and `commands` of a session ask a server: each request of theirs as one of HTTP.

They ask in terms of handles (droste/files.h, droste/commands.h). A handle of a file is an answer
that is being read, or a body that is being written; a handle of a command is its stream of events.
"""
from __future__ import annotations

import base64
import itertools
import os
import stat
from typing import Any, Callable, Dict, List, Optional

from .. import commands, errors, files
from .client import Answer, Events, os_error_of, Refused, Upload

KINDS = {"file": stat.S_IFREG, "directory": stat.S_IFDIR, "link": stat.S_IFLNK}


def _text(path: Optional[bytes]) -> str:
    """A path for the server, whose paths are text."""
    try:
        return (path or b"").decode()
    except UnicodeDecodeError:
        raise errors.UnsupportedError("a server has paths in UTF-8, not %r" % path) from None


def _info_of(e: Dict[str, Any]) -> files.FileInfo:
    return files.FileInfo(e["name"], e["size"], e["st_mode"], e["modified_ns"], e["uid"], e["gid"],
                          e["user"] or None, e["group"] or None, e.get("target") or None,
                          e.get("target_st_mode", 0))


class _Reading:
    """A file that is read: an answer, which goes on where the last read has ended."""

    def __init__(self, sandbox: Any, path: bytes):
        self.sandbox, self.path, self.at = sandbox, path, 0
        self.answer: Optional[Answer] = sandbox.begin("GET", "/files", query={"path": _text(path)})
        self.size = int(self.answer.response.headers.get("Droste-File-Size") or 0)

    def read(self, offset: int, length: int) -> bytes:
        if offset != self.at:
            self.close()
            self.at = offset
        if self.answer is None:
            if self.size and offset >= self.size:
                return b""
            self.answer = self.sandbox.begin(
                "GET", "/files", query={"path": _text(self.path)},
                headers={"Range": "bytes=%d-" % offset} if offset else {})
            if offset and self.answer.response.status != 206:   # a file in /proc has no ranges
                self.answer.read(offset)
        data = self.answer.read(length)
        self.at += len(data)
        return data

    def close(self) -> None:
        if self.answer is not None:
            self.answer.close()
            self.answer = None

    drop = close


class _Writing:
    """A file that is written: a body that is sent."""

    def __init__(self, sandbox: Any, path: bytes, mode: str):
        self.path = path
        self.upload: Upload = sandbox.upload("/files", {"path": _text(path), "mode": mode})

    def close(self) -> None:
        self.upload.finish()

    def drop(self) -> None:
        self.upload.drop()


class _Running:
    """A command that is followed."""

    def __init__(self, answer: Answer):
        self.events = Events(answer)
        start = self.events.next()
        if start is None or start.kind != "start":
            raise errors.ProtocolError("the server did not say how the command started")
        self.pid = int(start.data["pid"])
        self.ended = False

    def read(self) -> commands._Answer:
        out, err = b"", b""
        event = self.events.next()
        if event is None:
            raise errors.LostError("the session was lost, and its commands with it")
        if event.kind == "output":
            data = base64.b64decode(event.data["data"])
            out, err = (b"", data) if event.data["stream"] == "stderr" else (data, b"")
        elif event.kind == "end":
            self.ended = True
            self.events.next()
            return commands._Answer(0, self.pid, b"", b"", True, event.data["exit_code"],
                                    event.data["timed_out"], [])
        return commands._Answer(0, self.pid, out, err, False, 0, False, [])

    def close(self) -> None:
        self.events.close()

    drop = close


class Handles:
    """What the handles of one session stand for."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._open: Dict[int, Any] = {}
        self._last: Any = None

    def add(self, thing: Any) -> int:
        number = next(self._numbers)
        self._open[number] = thing
        return number

    def get(self, number: int) -> Any:
        return self._open[number]

    def take(self, number: int) -> Any:
        self._last = self._open.pop(number)
        return self._last

    def close(self) -> None:
        """The session has ended: gives up all connections."""
        for thing in list(self._open.values()):
            thing.drop()
        self._open.clear()

    def path_of(self, number: int) -> bytes:
        """Returns the path of a file that is open, or that was just closed."""
        return self._open.get(number, self._last).path


def ask(sandbox: Any, request: Any) -> Any:
    """Answers a request of files.py or commands.py; raises what the library would."""
    operation = request.fields["op"].decode()
    is_file = isinstance(request, files._Request)
    table = FILES if is_file else COMMANDS
    try:
        return table[operation](sandbox, request.fields)
    except Refused as e:
        path = os.fsdecode(_path_of(sandbox, request)) if is_file else None
        failure = os_error_of(e, path)
        raise failure or sandbox.failure(e) from None


# -- files

def _path_of(sandbox: Any, request: Any) -> bytes:
    """Returns the path of a request, or of the file whose handle it has."""
    if request.path is not None:
        return request.path
    return sandbox.handles.path_of(request.fields["handle"])


def _answer(handle: int = 0, data: bytes = b"", entries: Any = (), more: bool = False) -> Any:
    return files._Answer(handle, data, [_info_of(e) for e in entries], more)


def _stat(sandbox: Any, f: Dict[str, Any]) -> Any:
    follow = "yes" if f["flags"] & files.FOLLOW else "no"
    return _answer(entries=[sandbox.ask("GET", "/files/entry", query={
        "path": _text(f["path"]), "follow": follow})])


def _list(sandbox: Any, f: Dict[str, Any]) -> Any:
    found = sandbox.ask("GET", "/directory", query={
        "path": _text(f["path"]), "depth": f["depth"], "limit": f["most"]})
    return _answer(entries=found["entries"], more=found["more"])


def _glob(sandbox: Any, f: Dict[str, Any]) -> Any:
    found = sandbox.ask("GET", "/files/glob", query={
        "path": _text(f["path"]), "limit": f["most"]})
    return _answer(entries=found["entries"], more=found["more"])


MODES = {b"w": "replace", b"a": "append", b"x": "create"}


def _open(sandbox: Any, f: Dict[str, Any]) -> Any:
    if f["mode"] == b"r":
        reading = _Reading(sandbox, f["path"])
        info = files.FileInfo("", reading.size, stat.S_IFREG, 0)
        return files._Answer(sandbox.handles.add(reading), b"", [info], False)
    return _answer(sandbox.handles.add(_Writing(sandbox, f["path"], MODES[f["mode"]])))


def _read(sandbox: Any, f: Dict[str, Any]) -> Any:
    return _answer(data=sandbox.handles.get(f["handle"]).read(f["offset"], f["length"]))


def _write(sandbox: Any, f: Dict[str, Any]) -> Any:
    sandbox.handles.get(f["handle"]).upload.write(f["data"])
    return _answer()


def _close(sandbox: Any, f: Dict[str, Any]) -> Any:
    sandbox.handles.take(f["handle"]).close()
    return _answer()


def _remove(sandbox: Any, f: Dict[str, Any]) -> Any:
    what = "/directory" if f["flags"] & files.RECURSIVE else "/files"
    sandbox.ask("DELETE", what, query={"path": _text(f["path"])})
    return _answer()


def _rename(sandbox: Any, f: Dict[str, Any]) -> Any:
    sandbox.ask("POST", "/files/move", query={"path": _text(f["path"]), "to": _text(f["to"])})
    return _answer()


def _mkdir(sandbox: Any, f: Dict[str, Any]) -> Any:
    parents = "yes" if f["flags"] & files.PARENTS else "no"
    sandbox.ask("PUT", "/directory", query={"path": _text(f["path"]), "parents": parents})
    return _answer()


# -- commands

def _words(words: Any) -> List[str]:
    return [_text(word) for word in words if word is not None]


def _start(sandbox: Any, f: Dict[str, Any]) -> Any:
    flags = f["flags"]
    body: Dict[str, Any] = {
        "command": _words(f["argv"]), "stream": True, "stdin": bool(flags & commands.STDIN),
        "merge": bool(flags & commands.MERGE), "drain": bool(flags & commands.DRAIN),
        "env": dict(word.split("=", 1) for word in _words(f["env"]))}
    body.update({name: _text(f[name]) for name in ("cwd", "user", "tag") if f[name] is not None})
    if f["timeout_ms"]:
        body["timeout_seconds"] = f["timeout_ms"] / 1000
    if flags & commands.TERMINAL:
        body["terminal"] = {"columns": f["columns"], "rows": f["rows"]}
    return _follow(sandbox, sandbox.begin("POST", "/commands", body))


def _follow(sandbox: Any, answer: Answer) -> Any:
    running = _Running(answer)
    return commands._Answer(sandbox.handles.add(running), running.pid, b"", b"", False, 0, False,
                            [])


def _attach(sandbox: Any, f: Dict[str, Any]) -> Any:
    name = _text(f["tag"]) if f.get("tag") is not None else str(f["pid"])
    return _follow(sandbox, sandbox.begin("GET", "/commands/%s/output" % name))


def _output(sandbox: Any, f: Dict[str, Any]) -> Any:
    return sandbox.handles.get(f["handle"]).read()


def _nothing(pid: int = 0) -> Any:
    return commands._Answer(0, pid, b"", b"", False, 0, False, [])


def _command_path(sandbox: Any, f: Dict[str, Any], what: str) -> str:
    return "/commands/%d/%s" % (sandbox.handles.get(f["handle"]).pid, what)


def _input(sandbox: Any, f: Dict[str, Any]) -> Any:
    eof = "yes" if f["flags"] & commands.EOF else "no"
    sandbox.ask("POST", _command_path(sandbox, f, "stdin"), f["data"], query={"eof": eof},
                kind="application/octet-stream")
    return _nothing()


def _signal(sandbox: Any, f: Dict[str, Any]) -> Any:
    sandbox.ask("POST", _command_path(sandbox, f, "signal"), {
        "signal": f["signal"], "group": not f["flags"] & commands.ALONE})
    return _nothing()


def _resize(sandbox: Any, f: Dict[str, Any]) -> Any:
    sandbox.ask("POST", _command_path(sandbox, f, "terminal"), {
        "columns": f["columns"], "rows": f["rows"]})
    return _nothing()


def _detach(sandbox: Any, f: Dict[str, Any]) -> Any:
    sandbox.handles.take(f["handle"]).close()
    return _nothing()


def _release(sandbox: Any, f: Dict[str, Any]) -> Any:
    running = sandbox.handles.take(f["handle"])
    try:
        if not running.ended:
            sandbox.ask("POST", "/commands/%d/signal" % running.pid, {"signal": 9})
    except Refused as e:
        if e.status != 404:         # it has ended
            raise
    finally:
        running.close()
    return _nothing()


def _list_commands(sandbox: Any, f: Dict[str, Any]) -> Any:
    found = [commands.CommandInfo(
        c["pid"], c.get("tag"), c.get("user"), c.get("cwd"), c["argv"],
        dict(word.split("=", 1) for word in c["env"] if "=" in word), c["terminal"],
        c.get("exit_code"), c.get("timed_out", False), c["cut"])
        for c in sandbox.ask("GET", "/commands")["commands"]]
    return _nothing()._replace(commands=found)


Table = Dict[str, Callable[[Any, Dict[str, Any]], Any]]
FILES: Table = {"stat": _stat, "list": _list, "glob": _glob, "open": _open, "read": _read,
                "write": _write, "close": _close, "remove": _remove, "rename": _rename,
                "mkdir": _mkdir}
COMMANDS: Table = {"start": _start, "attach": _attach, "output": _output, "input": _input,
                   "signal": _signal, "resize": _resize, "detach": _detach, "release": _release,
                   "list": _list_commands}
