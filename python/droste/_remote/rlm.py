"""`RLM(server=…)`: runs of a server, started, followed and cancelled over `/v1/runs`.

The server runs the model and the sandbox, and goes on when its client leaves. This side follows the
run's events, each of which is a line of its export (docs/record.md), and connects again after the
last one it has seen when the connection breaks.
"""
from __future__ import annotations

import asyncio
import io
import json
import os
import threading
import time
from typing import Any, AsyncIterator, BinaryIO, Callable, Dict, Iterator, List, Optional

from .. import _engine, _typed
from ..errors import ArgumentError, EnvironmentFailed, Error, LostError, UnsupportedError
from ..rich import RichResult
from ..rlm import Completion, Event, RLM
from . import address_of
from .client import Events, failure_of, Refused, Server, server_at
from .interpreter import _options_of

CONNECT_SECONDS = 60.0      # how long a server that cannot be reached is tried again
PAUSES = (0.1, 0.5, 1.0, 2.0, 5.0)


#: bytes of a context that is sent with the question; a larger one is stored before
SENT_MOST = 1 << 20


def _stored(server: Server, name: str, file: BinaryIO, size: int) -> Dict[str, Any]:
    """Stores a context; returns it as a request names it."""
    answer = server.begin("POST", "/v1/contexts", file, query={"name": name},
                          kind="application/octet-stream", headers={"Content-Length": str(size)})
    try:
        return {"context_file": json.loads(answer.read())["id"]}
    finally:
        answer.close()


def _context_of(server: Server, context: Any) -> Dict[str, Any]:
    """Returns the context as a request has it: a text, any other JSON value, or a stored one."""
    if context is None:
        return {}
    if isinstance(context, os.PathLike):
        if os.path.isdir(context):
            raise UnsupportedError("a directory cannot be the context of a server's run: give a "
                                   "dict of texts by their paths")
        with open(context, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size > SENT_MOST:
                return _stored(server, os.path.basename(os.fspath(context)), file, size)
            data = file.read()
            try:
                return {"context": data.decode()}
            except UnicodeDecodeError:
                file.seek(0)
                return _stored(server, os.path.basename(os.fspath(context)), file, size)
    if isinstance(context, str):
        if len(context) <= SENT_MOST:
            return {"context": context}
        text = context.encode()
        return _stored(server, "context", io.BytesIO(text), len(text))
    if isinstance(context, (bytes, bytearray, memoryview)):
        raise UnsupportedError("the context of a server's run is text or JSON, not bytes: give a "
                               "pathlib.Path of a file")
    return {"context": json.loads(_typed.project_typed(context, "context"))}


def _forget(server: Server, stored: str) -> None:
    try:
        server.ask("DELETE", "/v1/contexts/" + stored)
    except (Refused, Error):        # it has gone
        pass


def completion_of(found: Dict[str, Any], run: Optional[str], prompt: Any, model: str,
                  models: Dict[str, Dict[str, Any]], steps: List[Event]) -> Completion:
    """Creates the completion of a run that a server describes."""
    used = found["usage"]
    usage = {"calls": used["calls"] or 0, "input_tokens": used["input_tokens"] or 0,
             "output_tokens": used["output_tokens"] or 0, "cost": used["cost"],
             "seconds": used["seconds"] or 0.0, "models": models}
    why, status = found["error"], found["status"]
    kind = status if status in ("budget", "timeout", "cancelled") else "error"
    error = None if why is None else {"type": kind, "message": why}
    result = {"status": status, "answer": found.get("answer"), "run": run,
              "iterations": found.get("iterations") or 0, "usage": usage, "error": error}
    return Completion(result, prompt, model, steps)


class _Followed:
    """A run that is followed: its events, and what they add up to."""

    def __init__(self, server: Server, run: str, prompt: Any, model: str):
        self.server, self.run, self.prompt, self.model = server, run, prompt, model
        self.last: Optional[str] = None         # id of the last event
        self.steps: List[Event] = []
        self.models: Dict[str, Dict[str, Any]] = {}
        self.calls = self.input_tokens = self.output_tokens = 0
        self.events: Optional[Events] = None
        self.begun = self.left = False
        self.stored: Optional[str] = None       # a context that goes with the run's end

    @property
    def path(self) -> str:
        return "/v1/runs/" + self.run

    # -- the stream, over all its connections

    def lines(self) -> Iterator[Dict[str, Any]]:
        """Yields the lines of the run and its children, until it ends."""
        since, attempt = time.monotonic(), 0
        while not self.left:
            try:
                for event in self._connected():
                    since, attempt = time.monotonic(), 0
                    if event.kind == "interrupted":
                        return
                    self.last = event.id
                    yield event.data
                    if event.kind == "end" and event.data["run"] == self.run:
                        return
            except Refused as e:
                raise failure_of(e) from None
            except (LostError, EnvironmentFailed):
                if self.left or time.monotonic() - since > CONNECT_SECONDS:
                    raise
            time.sleep(PAUSES[min(attempt, len(PAUSES) - 1)])
            attempt += 1

    def _connected(self) -> Iterator[Any]:
        headers = {"Last-Event-ID": self.last} if self.last is not None else {}
        self.events = Events(self.server.begin("GET", self.path + "/events", headers=headers))
        return iter(self.events)

    def cancel(self) -> None:
        try:
            self.server.ask("POST", self.path + "/cancel")
            if self.stored is not None:
                _forget(self.server, self.stored)
        except (Refused, Error):        # it has ended, or the server has
            pass

    # -- events of the package

    def follow(self) -> Iterator[Event]:
        """Yields the run's events; the last one has its completion."""
        for line in self.lines():
            handler = _LINES.get(line["type"])
            for event in handler(self, line) if handler is not None else ():
                if event.kind in ("reply", "cell", "result", "output"):
                    self.steps.append(event)
                yield event
        completion = self.completion()
        used = completion.usage
        yield Event("end", calls=used["calls"], input_tokens=used["input_tokens"],
                    output_tokens=used["output_tokens"], completion=completion)

    def take_run(self, line: Dict[str, Any]) -> Iterator[Event]:
        if line["run"] == self.run and not self.begun:     # its line comes again when it changes
            self.begun = True
            self.model = self.model or line["model"]
            yield Event("started", text=self.run)

    def take_turn(self, line: Dict[str, Any]) -> Iterator[Event]:
        if line["run"] == self.run and "kept" not in line:
            yield Event("turn", turn=line["turn"])

    def take_call(self, line: Dict[str, Any]) -> Iterator[Event]:
        if line["status"] == "running" or line["kind"] == "tool":
            return
        self._count(line)
        if line["kind"] == "root" and line["run"] == self.run:
            yield Event("reply", text=line["reply"] or "", turn=line["turn"])
        yield Event("calls", turn=line["turn"], calls=self.calls, input_tokens=self.input_tokens,
                    output_tokens=self.output_tokens)

    def _count(self, line: Dict[str, Any]) -> None:
        used = self.models.setdefault(line["model"], {
            "calls": 0, "input_tokens": 0, "output_tokens": 0, "cost": 0.0})
        used["calls"] += 1
        used["input_tokens"] += line["input_tokens"] or 0
        used["output_tokens"] += line["output_tokens"] or 0
        known = line["cost"] is not None and used["cost"] is not None
        used["cost"] = used["cost"] + line["cost"] if known else None
        self.calls += 1
        self.input_tokens += line["input_tokens"] or 0
        self.output_tokens += line["output_tokens"] or 0

    def take_cell(self, line: Dict[str, Any]) -> Iterator[Event]:
        if line["run"] != self.run:
            return
        turn = line["turn"]
        if line["status"] == "running":
            yield Event("cell", text=line["code"] or "", turn=turn)
            return
        for number, name in ((1, "stdout"), (2, "stderr")):
            if line[name]:
                yield Event("output", text=line[name], turn=turn, stream=number)
        error = line["error"] or {}
        yield Event("result", text=error.get("traceback") or "", turn=turn, status=line["status"],
                    seconds=line["seconds"] or 0.0,
                    results=[RichResult(bundle) for bundle in line["results"] or ()])

    def completion(self) -> Completion:
        """Returns the outcome, which the server describes."""
        try:
            found = self.server.ask("GET", self.path)
        except Refused as e:
            raise failure_of(e) from None
        if self.stored is not None and found["status"] != "interrupted":
            _forget(self.server, self.stored)
        return completion_of(found, self.run, self.prompt, self.model, self.models, self.steps)


_LINES: Dict[str, Callable[[_Followed, Dict[str, Any]], Iterator[Event]]] = {
    "run": _Followed.take_run, "turn": _Followed.take_turn, "call": _Followed.take_call,
    "cell": _Followed.take_cell}


class RemoteRLM(RLM):
    __doc__ = RLM.__doc__

    def __init__(self, *arguments: Any, server: Optional[str] = None,
                 api_key: Optional[str] = None, **keywords: Any):
        super().__init__(*arguments, **keywords)
        address = address_of(server)
        assert address is not None      # rlm_class_of has looked
        self._server = server_at(address, api_key)
        self._check_there()

    def _check_there(self) -> None:
        """Refuses what only a run of this program can have."""
        for what, there in (("models that are functions", self._functions),
                            ("tools", self._tools), ("tool_data", self._tool_data),
                            ("tool_source", self._tool_source),
                            ("a selector that is a function", self._select),
                            ("on_network", self._on_network),
                            ("an environment of this program", self.environment),
                            ("persistent=True", self._wishes.persistent)):
            if there:
                raise UnsupportedError("a run of a server cannot have %s" % what)

    def _begin(self, question: Optional[str], context: Any, resume: Optional[str]) -> _Followed:
        if question is not None and not isinstance(question, str):
            raise ArgumentError("a question must be a str, not %s" % type(question).__name__)
        sent: Dict[str, Any] = {}
        try:
            if resume is not None:
                started = self._server.ask("POST", "/v1/runs/%s/resume" % resume)
            else:
                sent = _context_of(self._server, context)
                started = self._server.create("/v1/runs", {
                    "question": question, "options": _options_of(self._pairs), **sent},
                    lambda made: ("POST", "/v1/runs/%s/cancel" % made["run"]))
        except BaseException as e:      # also Ctrl-C
            if "context_file" in sent and not isinstance(e, Error):
                _forget(self._server, sent["context_file"])
            if isinstance(e, Refused):
                raise failure_of(e) from None
            raise
        followed = _Followed(self._server, started["run"], context, self.model_name)
        followed.stored = sent.get("context_file")
        return followed

    def _follow(self, followed: _Followed, listen: Optional[Callable[[Event], None]] = None
                ) -> Iterator[Event]:
        """Yields the events, which listeners get first; a run that is left is cancelled."""
        tell = self._new("", None, listen=listen).listen
        ended = False
        try:
            for event in followed.follow():
                ended = event.kind == "end"
                if tell is not None:
                    tell(event)
                yield event
        finally:
            followed.left = True
            if not ended:
                followed.cancel()

    def _complete(self, followed: _Followed) -> Completion:
        completion = None
        for event in self._follow(followed):
            completion = event.completion
        assert completion is not None
        return completion

    def run(self, question: str, context: Any = None) -> Completion:
        return self._complete(self._begin(question, context, None))

    def resume(self, run: str) -> Completion:
        return self._complete(self._begin(None, None, run))

    def stream(self, question: str, context: Any = None) -> Iterator[Event]:
        yield from self._follow(self._begin(question, context, None))

    async def arun(self, question: str, context: Any = None) -> Completion:
        completion = None
        async for event in self.astream(question, context):
            completion = event.completion
        assert completion is not None
        return completion

    async def astream(self, question: str, context: Any = None) -> AsyncIterator[Event]:
        loop = asyncio.get_running_loop()
        queue: "asyncio.Queue[Any]" = asyncio.Queue()
        followed = await loop.run_in_executor(None, self._begin, question, context, None)

        def post(item: Any) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(queue.put_nowait, item)

        def work() -> None:
            try:
                for event in self._follow(followed):
                    if followed.left:
                        return
                    post(event)
            except BaseException as e:
                post(e)

        threading.Thread(target=work, name="droste-run", daemon=True).start()
        kind = ""
        try:
            while kind != "end":
                item = await queue.get()
                if isinstance(item, BaseException):
                    raise item
                kind = item.kind
                yield item
        finally:
            if kind != "end":
                followed.left = True
                _engine.workers("requests").submit(followed.cancel)
