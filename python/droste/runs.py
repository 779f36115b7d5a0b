"""The record of runs, as `droste runs` has it: list, read, follow, export, remove, collect.

    for run in droste.runs.ls(limit=10):
        print(run.id, run.status, run.question, run.answer)
    for step in droste.runs.steps(run.id):
        print(step.kind, step.fields)
    for step in droste.runs.follow(run.id):     # of a run in progress, until it ends
        print(step.kind, step.fields.get("status"))

docs/record.md has the details. `RLM(...).resume(run.id)` goes on with a run. Each function takes
`database`, a path; by default the record that the settings name. `ls`, `get`, `steps`, `follow` and
`remove`, and `approvals`, `approve` and `deny`, also take `server` and `api_key`, for the runs of
`droste serve` (docs/client.md).
"""
from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import os
import time
from typing import Any, AsyncIterator, Dict, Iterator, List, NamedTuple, Optional, Tuple

from . import _approvals, _library
from ._approvals import Approval
from ._handle import Handle
from ._library import lib
from .errors import ArgumentError, NotFoundError, UnsupportedError
from .rich import decode, RichResult

__all__ = ["Run", "Step", "RecordedArtifact", "RecordedRequest", "Collected", "ls", "find", "get",
           "steps", "artifacts", "approvals", "approval", "approve", "deny", "Approval", "follow",
           "afollow", "cancel", "export", "remove", "gc"]


class RecordedRequest(NamedTuple):
    """A request of a run's sandbox to the network (docs/network.md)."""
    turn: int
    #: during which it began; None: between cells
    cell: Optional[int]
    #: "GET"…; "CONNECT" and "SOCKS": a tunnel
    method: str
    #: "": the request was malformed
    host: str
    port: int
    #: with the query; None: a tunnel
    path: Optional[str]
    #: that it was connected to; None: none, or it has not ended
    address: Optional[str]
    refused: bool
    #: why it was refused, or failed; None: neither
    why: Optional[str]
    #: of HTTP; None: none, or it has not ended
    status: Optional[int]
    #: bytes to the server and from it
    sent: int
    received: int
    started: float
    #: None: it has not ended
    seconds: Optional[float]


class Run(NamedTuple):
    """A recorded run. Times are seconds since 1970."""
    id: str
    #: the run that started it, or None
    parent: Optional[str]
    #: the run of the conversation's previous question, or None
    previous: Optional[str]
    batch: Optional[str]
    task: Optional[str]
    #: 0 for a root
    depth: int
    model: str
    environment: str
    isolation: Optional[str]
    #: of Droste
    version: str
    question: str
    started: float
    #: None if it has not ended
    ended: Optional[float]
    #: a result's, "running" or "interrupted"
    status: str
    #: the message of its error, or None
    error: Optional[str]
    #: the name of its error, or None
    code: Optional[str]
    answer: Any
    iterations: int
    #: these three include child runs
    calls: int
    input_tokens: int
    output_tokens: int
    #: US dollars; None if unknown
    cost: Optional[float]
    seconds: float
    #: in the order in which they began; only of `get` and this machine's record
    requests: Tuple[RecordedRequest, ...] = ()


class Step(NamedTuple):
    """A step of a run: a turn, a call of a model or tool, or a cell."""
    #: "turn", "call" or "cell"
    kind: str
    #: the members of droste/record.h: texts, numbers, decoded JSON
    fields: Dict[str, Any]


class RecordedArtifact(NamedTuple):
    """A file that a run has saved."""
    #: in the sandbox
    name: str
    size: int
    sha256: str
    #: None if the record does not have the contents
    data: Optional[bytes]

    def save(self, directory: Any) -> str:
        """Writes the file below a directory, under its name; returns the path."""
        parts = self.name.lstrip("/").split("/")
        if self.data is None or any(part in ("", ".", "..") for part in parts):
            raise ArgumentError("the record does not have the contents of %r" % self.name
                                if self.data is None else "the name %r is damaged" % self.name)
        path = os.path.join(os.fspath(directory), *parts)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(path, "wb", opener=lambda name, _: os.open(name, flags, 0o666)) as file:
            file.write(self.data)
        return path


class Collected(NamedTuple):
    """What `gc` has removed."""
    runs: int
    #: runs whose process was gone, now ended as interrupted
    interrupted: int
    #: prompts, outputs and other data that no run needs
    values: int
    value_bytes: int
    #: by which the file shrank
    file_bytes: int


def _text(data: Optional[bytes]) -> Optional[str]:
    return None if data is None else data.decode("utf-8", "replace")


def _of_value(value: Any) -> Optional[str]:
    return _library.text_at(value.data, value.len) if value.data else None


def _json_of(value: Any) -> Any:
    text = _of_value(value)
    try:
        return None if text is None else json.loads(text)
    except ValueError:
        return text


def _run_of(r: Any) -> Run:
    return Run(_text(r.id) or "", _text(r.parent), _text(r.previous), _text(r.batch), _text(r.task),
               r.depth, _text(r.model) or "", _text(r.environment) or "", _text(r.isolation),
               _text(r.version) or "", _of_value(r.question) or "", r.started_ms / 1000,
               r.ended_ms / 1000 if r.ended_ms else None, _text(r.status) or "", _text(r.error),
               _text(r.code), _json_of(r.answer), r.iterations, r.calls, r.input_tokens,
               r.output_tokens, None if r.cost < 0 else r.cost, r.seconds)


def _request_of(r: Any) -> RecordedRequest:
    return RecordedRequest(r.turn, r.cell or None, _text(r.method) or "", _text(r.host) or "",
                           r.port, _text(r.path), _text(r.address), bool(r.refused), _text(r.why),
                           r.status or None, r.sent, r.received, r.started_ms / 1000,
                           None if r.seconds < 0 else r.seconds)


#: members that are JSON
_JSON = ("submit", "error", "variables", "request")


def _fields_of(struct: Any, kind: str) -> Dict[str, Any]:
    found: Dict[str, Any] = {}
    for name, *_ in struct._fields_:
        value = getattr(struct, name)
        if isinstance(value, _library.Value):
            value = _json_of(value) if name in _JSON else _of_value(value)
        elif isinstance(value, bytes):
            value = _text(value)
        elif name in ("media", "media_count"):
            continue        # steps() reads them if asked to
        elif name.endswith("_ms"):
            name, value = name[:-3], value / 1000 if value else None
        found[name] = value
    return found


@contextlib.contextmanager
def _record(database: Any) -> Iterator[Tuple[Handle, Any]]:
    """Yields the handle and the open record; None if there is none yet."""
    with Handle({"database": database} if database is not None else {}) as handle:
        record = ctypes.c_void_p()
        handle.check(lib.droste_record_open(handle.d, ctypes.byref(record), handle.err))
        try:
            yield handle, record if record.value else None
        finally:
            lib.droste_record_close(record)


def _calling(handle: Handle, work: Any) -> Any:
    """A callback of the library that keeps exceptions for Handle.check."""
    def call(arg: Any, pointer: Any, err: Any) -> int:
        try:
            work(pointer.contents)
            return 0
        except BaseException as e:
            handle.pending.append(e)
            return -1
    return call


def ls(*, limit: int = 0, parent: Optional[str] = None, children: bool = False,
       status: Optional[str] = None, model: Optional[str] = None, batch: Optional[str] = None,
       task: Optional[str] = None, database: Any = None, server: Optional[str] = None,
       api_key: Optional[str] = None) -> List[Run]:
    """Lists runs, the newest first: roots, or the children of `parent`, or all with `children`.

    `status` and `task` are exact; `model` and `batch` are parts of names. `limit` 0: all. A server
    lists roots, by `status` and `model`.
    """
    from ._remote import runs as _remote     # what speaks HTTP is loaded when it is asked for
    remote = _remote.of(server, api_key, database)
    if remote is not None:
        if parent or children or batch or task:
            raise UnsupportedError("a server lists root runs: parent, children, batch and task are "
                                   "for the record of this machine")
        return [Run(**found) for found in _remote.list_runs(remote, limit, status, model)]
    found: List[Run] = []
    with _record(database) as (handle, record):
        texts = [None if text is None else text.encode()
                 for text in (parent, status, model, batch, task)]
        made = _library.RecordFilter(texts[0], children, *texts[1:], limit)
        add = _library.RecordRunFn(_calling(handle, lambda run: found.append(_run_of(run))))
        if record is not None:
            handle.check(lib.droste_record_list(record, ctypes.byref(made), add, None, handle.err))
    return found


def _find(handle: Handle, record: Any, prefix: str) -> bytes:
    if record is None:
        raise NotFoundError("there is no record of runs yet")
    found = ctypes.create_string_buffer(65)
    handle.check(lib.droste_record_find(record, prefix.encode(), found, handle.err))
    return found.value


def find(prefix: str, *, database: Any = None) -> str:
    """Returns the id of the one run whose id begins with `prefix`, or of the newest for "last";
    NotFoundError, ArgumentError."""
    with _record(database) as (handle, record):
        return _find(handle, record, prefix).decode()


def _read(handle: Handle, record: Any, value: Any) -> bytes:
    """Returns the data of a value that a visit left in the file."""
    pieces: List[bytes] = []

    def add(arg: Any, data: int, length: int) -> int:
        pieces.append(ctypes.string_at(data, length))
        return 0
    handle.check(lib.droste_record_read(record, ctypes.byref(value), ctypes.c_size_t(-1).value,
                                        _library.PieceFn(add), None, handle.err))
    return b"".join(pieces)


def _results_of(handle: Handle, record: Any, cell: Any) -> List[RichResult]:
    bundles: Dict[int, Dict[str, Any]] = {}
    for media in cell.media[:cell.media_count]:
        data = decode(media.form, _read(handle, record, media.value))
        bundles.setdefault(media.result, {})[_text(media.type) or ""] = data
    return [RichResult(bundle) for bundle in bundles.values()]


def _visit(prefix: str, children: bool, database: Any,
           results: bool = False) -> Tuple[List[Run], List[Step]]:
    runs: List[Run] = []
    found: List[Step] = []
    with _record(database) as (handle, record):
        def adding(kind: str) -> Any:
            return _calling(handle,
                            lambda struct: found.append(Step(kind, _fields_of(struct, kind))))

        def add_cell(struct: Any) -> None:
            fields = _fields_of(struct, "cell")
            if results:
                fields["results"] = _results_of(handle, record, struct)
            found.append(Step("cell", fields))
        visitor = _library.RecordVisitor(
            _library.RecordRunFn(_calling(handle, lambda run: runs.append(_run_of(run)))),
            _library.RecordTurnFn(adding("turn")), _library.RecordCallFn(adding("call")),
            _library.RecordCellFn(_calling(handle, add_cell)), _library.RecordRunFn(), children, 0)
        run = _find(handle, record, prefix)
        handle.check(lib.droste_record_visit(record, run, ctypes.byref(visitor), None, handle.err))
    return runs, found


def get(run: str, *, database: Any = None, server: Optional[str] = None,
        api_key: Optional[str] = None) -> Run:
    """Returns a run by its id or the beginning of it; of a server by its id."""
    from ._remote import runs as _remote
    remote = _remote.of(server, api_key, database)
    if remote is not None:
        return Run(**_remote.get_run(remote, run))
    found: List[Run] = []
    with _record(database) as (handle, record):
        def add(struct: Any) -> None:
            requests = tuple(_request_of(r) for r in struct.requests[:struct.request_count])
            found.append(_run_of(struct)._replace(requests=requests))
        visitor = _library.RecordVisitor(end=_library.RecordRunFn(_calling(handle, add)))
        name = _find(handle, record, run)
        handle.check(lib.droste_record_visit(record, name, ctypes.byref(visitor), None, handle.err))
    return found[0]


def steps(run: str, *, children: bool = False, results: bool = False,
          database: Any = None, server: Optional[str] = None,
          api_key: Optional[str] = None) -> List[Step]:
    """Returns the steps of a run in order; with `children`, those of its child runs, too.

    With `results`, the fields of each cell have its rich results, a list of `RichResult`. A
    server's run that has not ended is waited for.
    """
    from ._remote import runs as _remote
    remote = _remote.of(server, api_key, database)
    if remote is not None:
        if results:
            raise UnsupportedError("results are those of the record of this machine; "
                                   "RLM(server=...).stream has them in its events")
        return [Step(line["type"], _remote.fields_of_line(line))
                for line in _remote.steps_of(remote, run, children)]
    return _visit(run, children, database, results)[1]


def artifacts(run: str, *, database: Any = None) -> List[RecordedArtifact]:
    """Returns the files that a run has saved, with their contents as far as they are recorded."""
    found: List[RecordedArtifact] = []
    with _record(database) as (handle, record):
        def add(struct: Any) -> None:
            for one in struct.artifacts[:struct.artifact_count]:
                data = _read(handle, record, one.value) if one.value.hash else None
                found.append(RecordedArtifact(_text(one.name) or "", one.size,
                                              _text(one.sha256) or "", data))
        visitor = _library.RecordVisitor(end=_library.RecordRunFn(_calling(handle, add)), lazy=1)
        name = _find(handle, record, run)
        handle.check(lib.droste_record_visit(record, name, ctypes.byref(visitor), None, handle.err))
    return found


# -- approvals

def approvals(run: Optional[str] = None, *, database: Any = None, server: Optional[str] = None,
              api_key: Optional[str] = None) -> List[Approval]:
    """Lists the calls that wait for an approval, the oldest first: of a run and its child runs, or
    of all (docs/approvals.md)."""
    from ._remote import runs as _remote
    remote = _remote.of(server, api_key, database)
    if remote is not None:
        return [_approvals.of_json(found) for found in _remote.list_approvals(remote, run)]
    found: List[Approval] = []
    with _record(database) as (handle, record):
        if record is not None:
            name = None if run is None else _find(handle, record, run)
            handle.check(lib.droste_record_approvals(record, name, None, _adding(handle, found),
                                                     None, handle.err))
    return found


def _adding(handle: Handle, found: List[Approval]) -> Any:
    def add(arg: Any, address: int, err: Any) -> int:
        try:
            if not _library.ApprovalHead.from_address(address).wants_result:
                found.append(_approvals.of_struct(address))
            return 0
        except BaseException as e:
            handle.pending.append(e)
            return -1
    return _library.ApprovalFn(add)


def approval(id: int, *, run: Optional[str] = None, database: Any = None,
             server: Optional[str] = None, api_key: Optional[str] = None) -> Approval:
    """Returns a call that asked for an approval, decided or not; NotFoundError.

    Nodes of a cluster have the same ids: name the run, too, or one above it (`Approval.root`).
    """
    from ._remote import runs as _remote
    remote = _remote.of(server, api_key, database)
    if remote is not None:
        return _approvals.of_json(_remote.get_approval(remote, id, run))
    found: List[Approval] = []
    with _record(database) as (handle, record):
        if record is None:
            raise NotFoundError("there is no record of runs yet")
        handle.check(lib.droste_record_approval(record, id, _adding(handle, found), None,
                                                handle.err))
    # without one, the call waits for its client's result, not for an approval
    if not found or run not in (None, found[0].run, found[0].root):
        raise NotFoundError("there is no approval %d" % id)
    return found[0]


def _decide(id: int, approve: bool, reason: Optional[str], run: Optional[str], database: Any,
            server: Optional[str], api_key: Optional[str]) -> Approval:
    from ._remote import runs as _remote
    remote = _remote.of(server, api_key, database)
    if remote is not None:
        return _approvals.of_json(_remote.decide(remote, id, approve, reason, run))
    if run is not None:
        approval(id, run=run, database=database)
    with _record(database) as (handle, record):
        if record is None:
            raise NotFoundError("there is no record of runs yet")
        text = None if reason is None else reason.encode("utf-8", "replace")
        handle.check(lib.droste_record_decide(record, id, approve, b"a Python program", text,
                                              handle.err))
    return approval(id, database=database)


def approve(id: int, reason: Optional[str] = None, *, run: Optional[str] = None,
            database: Any = None, server: Optional[str] = None,
            api_key: Optional[str] = None) -> Approval:
    """Approves a call that waits. NotFoundError; ArgumentError if it was decided or has ended.
    `run` as of `approval`."""
    return _decide(id, True, reason, run, database, server, api_key)


def deny(id: int, reason: Optional[str] = None, *, run: Optional[str] = None,
         database: Any = None, server: Optional[str] = None,
         api_key: Optional[str] = None) -> Approval:
    """Denies a call that waits, as `approve`; its code gets a PermissionError with the reason."""
    return _decide(id, False, reason, run, database, server, api_key)


# -- exporting

_FORMATS = ("jsonl", "html", "otlp")        # enum droste_export_format


def _of_batch(batch: Any) -> str:
    """The absolute path of an existing results file, as in the record; else a part of a path."""
    path = os.fspath(batch)
    return os.path.realpath(path) if os.path.exists(path) else path


def export(*runs: str, format: str = "jsonl", out: Any = None, all: bool = False,
           batch: Any = None, database: Any = None, server: Optional[str] = None,
           api_key: Optional[str] = None) -> Optional[str]:
    """Exports runs with their child runs: as lines of JSON, as one HTML page, or as traces of
    OpenTelemetry (`format="otlp"`, a line of OTLP/JSON for each run).

    The runs are those named by id (or the beginning of it), those of a `batch` (its results
    file, or a part of that path), or `all`. `out` is a path; the file is complete at the end, or
    unchanged. Without `out`, returns the text. Runs of a server are named by their whole ids.
    """
    if format not in _FORMATS:
        raise ArgumentError("format is 'jsonl', 'html' or 'otlp', not %r" % (format,))
    if bool(runs) + bool(all) + (batch is not None) != 1:
        raise ArgumentError("name the runs to export, or use all=True or batch=FILE")
    from ._remote import runs as _remote
    remote = _remote.of(server, api_key, database)
    if remote is not None:
        if not runs:
            raise UnsupportedError("name the runs of a server to export")
        return _remote.export_runs(remote, runs, format, out)
    name = None if batch is None else _of_batch(batch)
    with _record(database) as (handle, record):
        if record is None:
            raise NotFoundError("there is no record of runs yet")
        named = [_find(handle, record, run) for run in runs]
        ids = list(dict.fromkeys(named)) if runs else [
            run.id.encode() for run in reversed(ls(batch=name, database=database))]
        if not ids and (batch is not None or format == "html"):
            raise NotFoundError("the record has no run" + (" of batch %s" % name if name else ""))
        made = _library.RecordExport((ctypes.c_char_p * len(ids))(*ids), len(ids),
                                     None if name is None else os.fsencode(name),
                                     _FORMATS.index(format))
        if out is not None:
            handle.check(lib.droste_record_export(record, ctypes.byref(made), os.fsencode(out),
                                                  handle.err))
            return None
        with open(os.memfd_create("droste-export"), "w+b") as file:
            handle.check(lib.droste_record_export_fd(record, ctypes.byref(made), file.fileno(),
                                                     handle.err))
            file.seek(0)
            return file.read().decode()


def remove(run: str, *, database: Any = None, server: Optional[str] = None,
           api_key: Optional[str] = None) -> int:
    """Removes a run with its child runs; returns how many. ArgumentError for an active run.

    A server tells of the run alone.
    """
    from ._remote import runs as _remote
    remote = _remote.of(server, api_key, database)
    if remote is not None:
        _remote.remove_run(remote, run)
        return 1
    with _record(database) as (handle, record):
        freed = _library.RecordFreed()
        handle.check(lib.droste_record_remove(record, _find(handle, record, run),
                                              ctypes.byref(freed), handle.err))
        return int(freed.runs)


# -- runs in progress

class _Follower:
    """Returns the steps of a run that have begun or ended since the last look."""

    def __init__(self, handle: Handle, record: Any, run: bytes, children: bool):
        self._handle, self._record, self._run = handle, record, run
        self._seen: Dict[Any, Any] = {}
        self._found: List[Step] = []
        self.ended = False
        self._visitor = _library.RecordVisitor(
            _library.RecordRunFn(), *(fn(_calling(handle, self._taking(kind))) for kind, fn in (
                ("turn", _library.RecordTurnFn), ("call", _library.RecordCallFn),
                ("cell", _library.RecordCellFn))),
            _library.RecordRunFn(_calling(handle, self._take_end)), children, 1)

    def _read(self, value: Any) -> None:
        """Fetches a value that the lazy visitor left in the file."""
        if value.data or not value.hash:
            return
        pieces: List[bytes] = []

        def add(arg: Any, data: int, length: int) -> int:
            pieces.append(_library.bytes_at(data, length) if length else b"")
            return 0
        self._handle.check(lib.droste_record_read(self._record, ctypes.byref(value),
                                                  ctypes.c_size_t(-1).value, _library.PieceFn(add),
                                                  None, self._handle.err))
        buffer = ctypes.create_string_buffer(b"".join(pieces))
        self._buffers.append(buffer)
        value.data, value.len = ctypes.addressof(buffer), len(buffer) - 1

    def _fetch(self, struct: Any) -> None:
        self._buffers: List[Any] = []
        for name, *_ in struct._fields_:
            value = getattr(struct, name)
            if isinstance(value, _library.Value):
                self._read(value)

    def _taking(self, kind: str) -> Any:
        def take(struct: Any) -> None:
            key = (kind, struct.run, getattr(struct, "id", struct.turn))
            status = getattr(struct, "status", b"")
            if self._seen.get(key) != status:
                self._seen[key] = status
                self._fetch(struct)
                self._found.append(Step(kind, _fields_of(struct, kind)))
        return take

    def _take_end(self, struct: Any) -> None:
        if struct.id == self._run and struct.status != b"running":
            self._fetch(struct)
            self.ended = True
            self._found.append(Step("end", _run_of(struct)._asdict()))

    def look(self) -> List[Step]:
        self._found = []
        self._handle.check(lib.droste_record_visit(self._record, self._run,
                                                   ctypes.byref(self._visitor), None,
                                                   self._handle.err))
        return self._found


@contextlib.contextmanager
def _following(prefix: str, children: bool, interval: float, database: Any) -> Iterator[_Follower]:
    if not interval > 0:
        raise ArgumentError("interval is the time between two looks in seconds, such as 0.2")
    with _record(database) as (handle, record):
        yield _Follower(handle, record, _find(handle, record, prefix), children)


def follow(run: str, *, children: bool = False, interval: float = 0.2,
           database: Any = None, server: Optional[str] = None,
           api_key: Optional[str] = None) -> Iterator[Step]:
    """Yields the steps of a run as they begin and as they end, and last a step of the kind "end".

    A call or cell in progress has the status "running", and comes again with its result. The end
    has the members of `Run`; its status is "interrupted" if the run's process is gone. Another
    process may run it; the record is read every `interval` seconds. A server tells at once.
    """
    from ._remote import runs as _remote
    remote = _remote.of(server, api_key, database)
    if remote is not None:
        for line in _remote.follow_lines(remote, run, children):
            yield Step(line["type"], _remote.fields_of_line(line))
        yield Step("end", _remote.get_run(remote, run))
        return
    with _following(run, children, interval, database) as follower:
        while True:
            yield from follower.look()
            if follower.ended:
                return
            time.sleep(interval)


async def afollow(run: str, *, children: bool = False, interval: float = 0.2,
                  database: Any = None) -> AsyncIterator[Step]:
    """Yields the same as `follow`, without blocking the event loop between two looks."""
    with _following(run, children, interval, database) as follower:
        while True:
            for step in follower.look():
                yield step
            if follower.ended:
                return
            await asyncio.sleep(interval)


def cancel(run: str, *, server: Optional[str] = None, api_key: Optional[str] = None) -> None:
    """Ends a run of a server, by its id; NotFoundError.

    A run of this machine ends where it was started: with Ctrl-C, or when its task is cancelled.
    """
    from ._remote import runs as _remote
    remote = _remote.of(server, api_key, None)
    if remote is None:
        raise UnsupportedError("a run of this machine ends where it was started, with Ctrl-C or by "
                               "cancelling its task; for a run of a server, give server=")
    _remote.cancel_run(remote, run)


# -- collecting

def gc(*, older: Optional[float] = None, keep: Optional[int] = None,
       database: Any = None) -> Collected:
    """Removes old runs with their child runs and unneeded data, and shrinks the file.

    `older`: runs that began more than so many seconds ago. `keep`: all but the newest runs. With
    both, those that neither keeps; with neither, no run is removed. Runs whose process is gone end
    as interrupted; an active run is never removed.
    """
    if (older is not None and not older >= 0) or (keep is not None and keep < 0):
        raise ArgumentError("older is a number of seconds, and keep a number of runs, 0 or more")
    # Without `older`, age keeps no run, not even one that began in this millisecond.
    kept = _library.RecordKeep(keep or 0, -1000 if older is None else int(older * 1000))
    freed = _library.RecordFreed()
    with _record(database) as (handle, record):
        if record is not None:
            chosen = None if older is None and keep is None else ctypes.byref(kept)
            handle.check(lib.droste_record_collect(record, chosen, ctypes.byref(freed),
                                                   handle.err))
    return Collected(freed.runs, freed.interrupted, freed.values, freed.value_bytes,
                     freed.file_bytes)
