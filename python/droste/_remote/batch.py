"""`droste.batch(server=…)`: a batch of a server, over `/v1/batches`.

The server does the work, and the file of results here is a copy of its file, whose length says what
is missing. RESULTS.batch has the id of the batch, as `droste batch --server` leaves it, so that the
same call goes on with it, and the ids of what is stored for it, to be removed in the end.
"""
from __future__ import annotations

import io
import json
import os
import time
from typing import Any, BinaryIO, Callable, Dict, Iterator, List, Optional

from .. import _batch, _settings
from .._batch import Batch, TaskResult
from ..errors import ArgumentError, EnvironmentFailed, Error, LostError, UnsupportedError
from .client import failure_of, Refused, Server, server_at
from .interpreter import _options_of
from .rlm import _forget, _stored, CONNECT_SECONDS, PAUSES

try:
    import fcntl
except ImportError:         # Windows: two calls with one file of results are not noticed
    fcntl = None            # type: ignore[assignment]

STATUSES = ("answered", "exhausted", "budget", "timeout", "cancelled", "error")
LIMITS = {"concurrency": "concurrency", "max_calls": "max_calls", "max_tokens": "max_tokens",
          "max_cost": "max_cost", "timeout": "timeout_seconds", "again": "again"}


def _state_of(found: Dict[str, Any], results: List[TaskResult]) -> Batch:
    """Converts what the server says of a batch."""
    stopped, why = found.get("stopped"), found.get("why")
    if stopped is None and found["status"] not in ("ended", "running"):
        stopped, why = "interrupt", "the server stopped"
    counts = {name: found.get("statuses", {}).get(name, 0) for name in STATUSES}
    numbers = {name: found.get(name) or 0 for name in (
        "tasks", "earlier", "running", "resumed", "interrupted", "graded", "passed", "ungraded",
        "calls", "input_tokens", "output_tokens")}
    return Batch(**numbers, **counts, score=found.get("score"), cost=found.get("cost"),
                 seconds=found.get("seconds") or 0.0, stopped=stopped, why=why, results=results)


class _Tasks:
    """The tasks as the server takes them: their contexts are stored there, each once."""

    def __init__(self, server: Server, tasks: Any):
        self._server = server
        self.stored: Dict[str, str] = {}        # paths, and the server's ids
        self._tasks = tasks

    def _lines(self, path: str) -> Iterator[str]:
        directory = os.path.dirname(os.path.realpath(path))
        with open(path, encoding="utf-8") as file:
            for line in file:
                line = line.rstrip("\n")
                try:
                    task = json.loads(line)
                except ValueError:
                    task = None     # the server refuses it by its number
                yield json.dumps(self._convert(task, directory)) if isinstance(task, dict) else line

    def _convert(self, task: Dict[str, Any], directory: str) -> Dict[str, Any]:
        if isinstance(task.get("context"), str):
            task["context"] = self._context(os.path.join(directory, task["context"]))
        if isinstance(task.get("contexts"), dict):
            task["contexts"] = {
                name: self._context(os.path.join(directory, path)) if isinstance(path, str)
                else path for name, path in task["contexts"].items()}
        return task

    def _context(self, path: str) -> str:
        if path not in self.stored:
            if os.path.isdir(path):
                raise UnsupportedError("a directory cannot be the context of a server's task: %s"
                                       % path)
            with open(path, "rb") as file:
                self.store(path, file, os.fstat(file.fileno()).st_size)
        return self.stored[path]

    def store(self, path: str, file: BinaryIO, size: int) -> str:
        found: str = _stored(self._server, os.path.basename(path), file, size)["context_file"]
        self.stored[path] = found
        return found

    def send(self) -> str:
        """Stores them; returns the id of their file."""
        with _batch.file_of(self._tasks) as path:
            text = "".join(line + "\n" for line in self._lines(path)).encode()
        return self.store("/tasks", io.BytesIO(text), len(text))

    def forget(self) -> None:
        for one in self.stored.values():
            _forget(self._server, one)


class RemoteWork:
    """One call of batch() with a server."""

    def __init__(self, server: str, api_key: Optional[str], tasks: Any, results: Any,
                 options: Dict[str, Any], on_result: Optional[Callable[[TaskResult], Any]],
                 on_state: Optional[Callable[[Batch], Any]], context: Any,
                 settings: Dict[str, Any]):
        for what, there in (("a context of all tasks", context is not None),
                            ("grader_timeout", "grader_timeout" in options),
                            ("tools", settings.get("tools")),
                            ("tool_data", settings.get("tool_data")),
                            ("a selector that is a function", callable(settings.get("select")))):
            if there:
                raise UnsupportedError("a batch of a server cannot have %s" % what)
        self._server = server_at(server, api_key)
        self._tasks = _Tasks(self._server, tasks)
        self._results = os.fspath(results)
        self._grader = options["grader"]
        self._limits = {LIMITS[name]: value for name, value in options.items() if name in LIMITS}
        self._settings = _options_of(_settings.pairs(settings))
        self._on_result, self._on_state = on_result, on_state
        self._path = ""         # of the batch
        self._stopped = False

    def run(self) -> Batch:
        with open(self._results, "ab") as file:
            self._lock(file)
            size = self._whole(file)
            try:
                self._begin(size)
                self._copy(file)
                end = self._ask("GET", self._path)
            except Refused as e:
                raise failure_of(e) from None
        if end["status"] == "ended":
            self._tasks.forget()
        return _state_of(end, _batch.read_results(self._results))

    def stop(self) -> None:
        """Suspends the runs, from any thread."""
        self._stopped = True
        if self._path:
            self._cancel()

    def _cancel(self) -> None:
        try:
            self._server.ask("POST", self._path + "/cancel")
        except (Refused, Error):        # it has ended, or the server has
            pass

    # -- the file of results

    def _lock(self, file: Any) -> None:
        if fcntl is not None:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ArgumentError("another batch is writing to %s" % self._results) from None

    def _whole(self, file: Any) -> int:
        """Cuts off what a killed call has left of a line, which is asked for again."""
        with open(self._results, "rb") as written:
            size = sum(len(line) for line in written if line.endswith(b"\n"))
        file.truncate(size)
        file.seek(size)
        return size

    # -- the batch

    def _begin(self, size: int) -> None:
        note = self._results + ".batch"
        if os.path.exists(note):
            with open(note, encoding="ascii", errors="replace") as file:
                batch, *stored = file.read().split() or [""]
            self._path = "/v1/batches/" + batch
            self._tasks.stored = {one: one for one in stored}
            self._resume()
        elif size:
            raise ArgumentError("%s has results of another batch; give another file"
                                % self._results)
        else:
            made = self._create()
            with open(note + ".new", "w", encoding="ascii") as file:
                file.write("".join(one + "\n" for one in [made, *self._tasks.stored.values()]))
            os.replace(note + ".new", note)
            self._path = "/v1/batches/" + made
        if self._stopped:
            self._cancel()

    def _create(self) -> str:
        try:
            body = {"tasks_file": self._tasks.send(), "options": self._settings, **self._limits}
            if self._grader:
                body["grader"] = self._grader.decode()
            made: str = self._server.create(
                "/v1/batches", body,
                lambda made: ("POST", "/v1/batches/%s/cancel" % made["batch"]))["batch"]
            return made
        except BaseException:
            self._tasks.forget()
            raise

    def _resume(self) -> None:
        """Goes on with the batch of an earlier call, unless it is active or has ended."""
        status = self._ask("GET", self._path)["status"]
        if status != "running" and (status != "ended" or self._limits["again"]):
            self._ask("POST", self._path + "/resume", self._limits)

    def _copy(self, file: Any) -> None:
        """Copies results until the batch ends; an exception of a function suspends the runs."""
        try:
            for line in self._lines(file):
                if self._on_result:
                    self._on_result(_batch.result_of(line.decode()))
                if self._on_state:
                    self._on_state(_state_of(self._ask("GET", self._path), []))
        except (Error, Refused):        # of the server
            raise
        except BaseException:           # also Ctrl-C
            self._cancel()
            for _ in self._lines(file):
                pass
            raise

    def _lines(self, file: Any) -> Iterator[bytes]:
        """Yields the lines of results that are not here, when they are; connects again."""
        rest = b""
        for piece in self._pieces(file):
            *lines, rest = (rest + piece if piece else b"").split(b"\n")
            for line in lines:
                file.write(line + b"\n")
                file.flush()
                yield line

    def _pieces(self, file: Any) -> Iterator[bytes]:
        """Yields pieces of the results; an empty one where the lines begin again."""
        since, attempt = time.monotonic(), 0
        while True:
            try:
                yield b""
                answer = self._server.begin("GET", self._path + "/results", query={
                    "offset": file.tell(), "follow": "yes"})
                try:
                    while True:
                        piece = answer.read_some()
                        if not piece:
                            return
                        since, attempt = time.monotonic(), 0
                        yield piece
                finally:
                    answer.close()
            except (LostError, EnvironmentFailed):
                if time.monotonic() - since > CONNECT_SECONDS:
                    raise
            time.sleep(PAUSES[min(attempt, len(PAUSES) - 1)])
            attempt += 1

    def _ask(self, method: str, path: str, body: Any = None) -> Dict[str, Any]:
        found: Dict[str, Any] = self._server.ask(method, path, body)
        return found
