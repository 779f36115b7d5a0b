"""`Interpreter(server=…)`: a Python session in a sandbox of a server.

Each operation is one request, or some, in the thread that waits for it; on a loop, in a thread of
Droste. A cell is a stream of events: its output, its rich results, the calls of its code to tools
and models of this program, which are answered with requests of their own, and its result.
"""
from __future__ import annotations

import functools
import json
import os
import time
import warnings
from asyncio import _get_running_loop  # type: ignore
from typing import Any, Callable, Dict, List, Optional, Tuple

from .. import _engine, _forks, _models, _reentry, _tools
from .._arguments import exact_id, schema_of_fields
from .._operations import Operation, Operations
from .._templates import Template
from .._values import check_name
from .._variables import ECHO, ONLY_VALUES, PRINT, RESULTS, VALUES
from ..errors import ArgumentError, Cancelled, Error, LostError, UnsupportedError
from ..interpreter import Interpreter
from ..result import Result
from . import address_of
from .client import Event, Events, failure_of, Refused, Server, server_at, unb64
from .engine import Call, RemoteEngine, Sandbox
from .result import RemoteResult, rich_result_of

FLAGS = {"echo": ECHO, "results": RESULTS, "print": PRINT, "values": VALUES,
         "only_values": ONLY_VALUES}
MEDIA = {b"json": "application/json", b"text": "text/plain", b"bytes": "application/octet-stream",
         b"values": "application/vnd.droste.values"}
SUFFIXES = {b".json": "json", b".jsonl": "jsonl", b".ndjson": "jsonl"}
SETTLE_SECONDS = 60.0       # how long a cell that was stopped may take to end


def _options_of(pairs: List[Tuple[str, Any]]) -> Dict[str, Any]:
    """Returns settings as the server takes them: by name, with lists for several values."""
    found: Dict[str, List[str]] = {}
    for name, value in pairs:
        found.setdefault(name, []).append(str(value() if callable(value) else value))
    return {name: values if len(values) > 1 else values[0] for name, values in found.items()}


class _Template:
    """What a server has of a template."""

    def __init__(self, server: Server, id: str):
        self.server, self.id, self._closed = server, id, False

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        try:
            self.server.ask("DELETE", "/v1/templates/" + self.id)
        except (Refused, Error):        # it has gone
            pass

    def __del__(self) -> None:
        if not self._closed:
            try:
                _engine.workers("requests").submit(_Template(self.server, self.id).close)
            except RuntimeError:        # the program ends
                pass


class RemoteInterpreter(Interpreter):
    __doc__ = Interpreter.__doc__

    def __init__(self, *, server: Optional[str] = None, api_key: Optional[str] = None,
                 template: Any = None, **settings: Any):
        if isinstance(template, str):
            raise UnsupportedError("a session of a server cannot start from a stored template of "
                                   "this machine: start the server with --template NAME")
        super().__init__(template=template, **settings)
        if self._on_network is not None:
            raise UnsupportedError("a session of a server cannot have on_network: the server's "
                                   "process has its network")
        address = address_of(server)
        assert address is not None      # class_of has looked
        self._server = server_at(address, api_key)
        self._session: Optional[Sandbox] = None  # type: ignore[assignment]
        self._events: Optional[Events] = None       # of the cell that runs, without asyncio
        self._calls: Dict[int, Call] = {}           # that the code waits for
        self._model_numbers: Dict[str, int] = {}    # of functions, by their settings

    @staticmethod
    def _result_of(handle: Any) -> Result:
        return RemoteResult(handle)

    @property
    def _result_kind(self) -> Any:
        """The class of results: also one of a subclass that changes what a result shows."""
        kind = self._result_type
        return RemoteResult if kind is Result else _result_class(kind)

    # -- opening

    def _take_engine(self, loop: Any) -> None:
        self._engine = RemoteEngine(self._server, loop)

    async def _warm_up(self) -> None:
        """The server has warm sandboxes."""

    def _open_session(self) -> None:
        engine = self._engine
        self._events, self._under_way = None, False
        self._calls.clear()
        self._session = sandbox = Sandbox(self._server)
        self._id = next(_engine.ids)
        pairs = [pair for pair in self._pairs if pair[0] != "env" or pair[1] != "local"]
        for name, function in self._functions.items():
            engine.numbers.append(_models.models.add(engine, function))
            pairs.append((name.replace("_", "-"), "callback"))
        self._model_numbers = dict(zip(self._functions, engine.numbers))
        body = {"options": _options_of(pairs)} if pairs else {}
        if engine.loop is None:
            self._create(sandbox, body)
            return
        self._opening = self._current = Operation(self, [])
        self._opening.future.add_done_callback(lambda f: f.cancelled() or f.exception())
        self._work(lambda: self._create(sandbox, body))

    def _create(self, sandbox: Sandbox, body: Dict[str, Any]) -> None:
        path = "/v1/sandboxes"
        if self._template is not None:
            path = "/v1/templates/%s/sandboxes" % self._template._at(self._server).id
        try:
            made = self._server.create(path, body, _end_of)
        except Refused as e:
            raise failure_of(e) from None
        sandbox.id, sandbox.isolation = made["id"], made["isolation"]

    def _numbers_list(self) -> List[int]:
        return list(self._engine.numbers) if self._engine is not None else []

    def _runs_on_loop(self) -> List[str]:
        return _tools.on_loop(self._id) + _models.models.on_loop(self._numbers_list())

    # -- closing

    def _delete(self) -> None:
        sandbox = self._session
        if sandbox is None or sandbox.id is None:
            return
        try:
            sandbox.ask("DELETE", "")
        except (Refused, LostError):        # it has ended
            pass

    def _begin_finish(self) -> bool:
        """On a loop: ends the session; returns whether that is under way."""
        if self._engine.handle is None or self._session is None:
            return False
        if self._finishing is None:
            self._drop_operations(Cancelled("the interpreter was shut down"))
            self._finishing = self._current = Operation(self, [])
            self._work(self._delete)
        return not self._finishing.done

    def _finish_session_here(self) -> None:
        if self._engine.handle is None:
            return
        if self._finishing is not None:
            self._finishing.finish()
        else:
            self._delete()

    def _leave(self) -> None:
        if self._session is not None:
            self._session.handles.close()
        self._session = self._finishing = None
        self._drop_operations(Cancelled("the interpreter was shut down"))
        for _, bound in self._offered.values():
            bound.release()
        self._offered.clear()
        self._engine.leave()
        closing, self._closing = self._closing, None
        if closing is not None:
            closing.ended()

    def __del__(self) -> None:
        session = getattr(self, "_session", None)
        if session is None or self._engine.handle is None:
            return
        warnings.warn("%s was not shut down; use `with`" % self._kind, ResourceWarning, source=self)
        self._session = None
        if session.id is not None:
            self._engine.work(lambda: _end_quietly(session))
        for _, bound in self._offered.values():
            bound.release()
        self._engine.leave()

    # -- properties

    @property
    def alive(self) -> bool:
        sandbox = self._session
        if sandbox is None or self._closed or self._engine.handle is None or sandbox.lost:
            return False
        if sandbox.id is None or self._current is not None or self._engine.inside:
            return True
        try:
            return bool(sandbox.ask("GET", "")["alive"])
        except Refused as e:
            sandbox.failure(e)
        except Error:
            pass
        return False

    @property
    def isolation(self) -> Optional[str]:
        return self._session.isolation or None if self._session is not None else None

    @property
    def sandbox_id(self) -> Optional[str]:
        return self._session.id if self._session is not None else None

    # -- operations without asyncio

    def _run(self, step: Callable[[], Any]) -> Any:  # type: ignore[override]
        """Runs a step in this thread; if that is interrupted, stops the cell first."""
        engine = self._engine
        try:
            engine.inside = self._under_way = True
            outcome = step()
        except Refused as e:
            self._under_way = False
            raise self._session.failure(e) from None  # type: ignore[union-attr]
        except (Error, OSError):
            self._under_way = self._events is not None
            if self._under_way:
                self._stop_here()
            raise
        except BaseException:       # Ctrl-C, or what a callback raised
            engine.inside = False
            self._stop_here()
            raise
        finally:
            engine.inside = False
        self._under_way = False
        return outcome

    def _stop_here(self) -> None:
        """Stops the current step and discards its result; the next operation may complete this."""
        sandbox, events = self._session, self._events
        if sandbox is None or sandbox.id is None or self._engine.handle is None:
            return
        try:
            if events is not None:
                sandbox.ask("POST", "/interrupt")
                while events.next() is not None:
                    pass
            else:               # its connection was closed, which interrupts it, too
                deadline = time.monotonic() + SETTLE_SECONDS
                while (sandbox.ask("GET", "")["state"] != "idle"
                       and time.monotonic() < deadline):
                    time.sleep(0.01)
        except (Refused, Error) as e:
            if isinstance(e, Refused):
                sandbox.failure(e)
        finally:
            self._engine.interrupt = None       # raised by callbacks of the stopped cell
        self._events, self._under_way = None, False

    def _run_cell(self, code: str, data: bytes, limit: float, steps: List[Callable[[], Any]],
                  flags: int) -> Result:
        if self._engine.loop is not None:
            steps.append(functools.partial(self._start_cell, data, limit, flags))
            return self._result_kind(None, self._enqueue(steps, code))
        for step in steps:
            self._finish_step(step)
        return self._result_kind(self._run(functools.partial(self._start_cell, data, limit,
                                                             flags)))

    # -- operations on a loop: a step is work in a thread, whose end is posted

    def _step(self, operation: Operation) -> bool:
        self._work(operation.steps.popleft())
        return True

    def _work(self, step: Callable[[], Any]) -> None:
        engine, sandbox = self._engine, self._session

        def run() -> None:
            outcome: Any = None
            failure: Optional[BaseException] = None
            try:
                outcome = step()
            except Refused as e:
                failure = sandbox.failure(e)  # type: ignore[union-attr]
            except BaseException as e:
                failure = e
            engine.post(lambda: self._step_done(outcome, failure))

        _engine.workers("sessions-%d" % len(_tools.calling.get())).submit(run)

    def _wait_here(self, operation: Operation) -> None:
        engine = self._engine
        if engine.loop.is_running() and _get_running_loop() is not engine.loop:
            raise Error("the cell is running on an event loop of another thread; await it there")
        self._refuse_to_hold_up()
        with engine.lock:
            try:
                engine.inside = engine.held_up = True
                engine.wait_for(operation.future.done)
            except BaseException:       # Ctrl-C
                operation.future.cancel()
                raise
            finally:
                engine.inside = engine.held_up = False

    def _give_up(self, operation: Operation) -> None:
        sandbox = self._session
        if operation is self._current and sandbox is not None and sandbox.id is not None:
            self._engine.work(lambda: _interrupt_quietly(sandbox))

    def interrupt(self) -> None:
        sandbox = self._session
        if sandbox is not None and sandbox.id is not None and (
                self._under_way or self._current is not None):
            _interrupt_quietly(sandbox)

    # -- cells

    def _start_cell(self, code: bytes, timeout: float, flags: Optional[int] = None) -> Any:
        """Runs a cell to its end; returns the decoded result."""
        flags = self._flags if flags is None else flags
        body: Dict[str, Any] = {name: bool(flags & flag) for name, flag in FLAGS.items()}
        body.update(code=code.decode(), stream=True, displays=True)
        if timeout >= 0:
            body["timeout_seconds"] = timeout
        sandbox = self._session
        assert sandbox is not None
        events = Events(sandbox.begin("POST", "/execute", body))
        if self._engine.loop is None:
            self._events = events
        result = None
        while True:
            event = events.next()
            if event is None:
                break
            if event.kind == "result":
                result = event.data
            elif event.kind == "error":
                events.next()
                self._events = None
                raise sandbox.failure(Refused(500, event.data["code"], event.data["message"]))
            else:
                self._take_event(sandbox, event)
                if self._engine.loop is None:
                    self._engine.raise_failure()
        self._events = None
        if result is None:
            sandbox.lost = True
            raise LostError("the session was lost: the server ended the stream of its cell")
        if not result["alive"]:
            sandbox.lost = not self._kept(sandbox)
        return result

    @staticmethod
    def _kept(sandbox: Sandbox) -> bool:
        """Whether a session that has ended can go back to a checkpoint."""
        try:
            return bool(sandbox.ask("GET", "/checkpoints")["checkpoints"])
        except (Refused, Error):
            return False

    def _take_event(self, sandbox: Sandbox, event: Event) -> None:
        handler = _HANDLERS.get(event.kind)
        if handler is None:
            return                  # of a newer server
        if self._engine.loop is None:
            handler(self, sandbox, event.data)
        else:
            self._engine.post(lambda: handler(self, sandbox, event.data))

    def _take_output(self, sandbox: Sandbox, data: Dict[str, Any]) -> None:
        if self._on_output is not None:
            self._tell(self._on_output, 2 if data["stream"] == "stderr" else 1, data["text"])

    def _take_lost(self, sandbox: Sandbox, data: Dict[str, Any]) -> None:
        if self._on_output is not None:
            self._tell(self._on_output, 2, "[%d bytes of output were left out: they were not read "
                                           "in time]\n" % data["bytes"])

    def _take_display(self, sandbox: Sandbox, data: Dict[str, Any]) -> None:
        if self._on_result is not None:
            self._tell(self._on_result, rich_result_of(data["values"], data))

    def _take_clear(self, sandbox: Sandbox, data: Dict[str, Any]) -> None:
        if self._on_result is not None:
            self._tell(self._on_result, None)

    def _tell(self, function: Callable[..., Any], *arguments: Any) -> None:
        try:
            function(*arguments)
        except BaseException as e:
            self._engine.failed(e)

    def _take_call(self, sandbox: Sandbox, data: Dict[str, Any]) -> None:
        call = Call(sandbox, data["call"])
        self._calls[data["call"]] = call
        if data["kind"] == "model":
            self._engine.take_model_call(call, data, self._model_numbers)
            return
        offered = self._offered.get(data["name"])
        if offered is None:
            self._engine.fail(call, b"RuntimeError", b"the tool no longer exists")
            return
        values = unb64(data["values"], "arguments") if "values" in data else None
        offered[1].take(call, data["arguments"], values)

    def _take_cancel(self, sandbox: Sandbox, data: Dict[str, Any]) -> None:
        call = self._calls.pop(data["call"], None)
        if call is not None:
            _tools.cancel(call)

    # -- values

    def _start_set(self, name: bytes, kind: bytes, data: List[Any]) -> None:  # type: ignore
        sandbox = self._session
        assert sandbox is not None
        sandbox.ask("PUT", "/variables/" + name.decode(), b"".join(data), kind=MEDIA[kind])

    def load(self, name: str, path: Any, kind: Optional[str] = None) -> None:
        check_name(name)
        if kind not in (None, "auto", "text", "bytes", "json", "jsonl"):
            raise ArgumentError("a kind is auto, text, bytes, json or jsonl, not %r" % (kind,))
        if os.path.isdir(path):
            raise UnsupportedError("load() of a directory needs a session of this machine; "
                                   "files.upload() copies one to a server's")
        with open(path, "rb") as file:
            data = file.read()
        suffix = os.path.splitext(os.fsencode(path))[1]
        kind = SUFFIXES.get(suffix, "auto") if kind in (None, "auto") else kind
        step = functools.partial(self._load, name, kind, data)
        self._refuse_own_tools()
        with self._lock:
            self._begin()
            if self._engine.loop is not None:
                self._wait_here(self._enqueue([step]))
            else:
                self._finish_step(step)

    def _load(self, name: str, kind: str, data: bytes) -> None:
        assert self._session is not None
        self._session.ask("PUT", "/variables/" + name, data, kind=MEDIA[b"bytes"],
                          query={"kind": kind})

    # -- tools and answers: told to the server before the next cell

    def _offer_tools(self) -> None:
        changed = {name for name, (given, _) in self._offered.items()
                   if self.tools.get(name) is not given}
        new = [name for name in self.tools if name not in self._offered or name in changed]
        if not changed and not new:
            return
        made = {name: _tools.Bound(_tools.make(name, self.tools[name]), self._engine,
                                   self._tool_threads, self._id, self._typed) for name in new}
        bounds = {name: made[name] if name in made else self._offered[name][1]
                  for name in self.tools}
        self._tell_server("/tools", {"tools": [_tool_of(bound) for bound in bounds.values()]})
        for name in changed:
            self._offered.pop(name)[1].release()
        for name, bound in made.items():
            self._offered[name] = self.tools[name], bound

    def _expect_fields(self) -> None:
        schema = schema_of_fields(self.output_fields)
        if schema != self._expected:
            self._tell_server("/answer-schema", {
                "schema": None if schema is None else json.loads(schema)})
            self._expected = schema

    def _tell_server(self, below: str, body: Dict[str, Any]) -> None:
        """Sends something that the next cell needs: on a loop, before that, in its order."""
        sandbox = self._session
        assert sandbox is not None
        step = functools.partial(self._put, sandbox, below, body)
        if self._engine.loop is None:
            self._run(step)
        else:
            operation = self._enqueue([step])
            operation.future.add_done_callback(lambda f: f.cancelled() or f.exception())

    @staticmethod
    def _put(sandbox: Sandbox, below: str, body: Dict[str, Any]) -> None:
        sandbox.ask("PUT", below, body)

    # -- forks and checkpoints

    def _make_forks(self, count: Optional[int], start: Any, *which: int) -> Any:
        self._refuse_own_tools()
        below = "/checkpoints/%d/fork" % which[0] if which else "/fork"
        forks: List[RemoteInterpreter] = []
        steps = [functools.partial(self._make_fork, forks, below) for _ in range(count or 1)]
        with self._lock:
            self._begin()
            if self._engine.loop is not None:
                return _forks.finish(self._enqueue(list(steps)), forks, count, [])
            try:
                for step in steps:
                    self._run(step)
            except BaseException:
                for fork in forks:
                    fork._delete()
                    fork._leave()
                raise
        return forks if count is not None else forks[0]

    def _make_fork(self, forks: "List[RemoteInterpreter]", below: str) -> None:
        assert self._session is not None
        made = self._server.create(self._session.path(below), undo=_end_of)
        forks.append(self._adopt(made))

    def _adopt(self, made: Dict[str, Any]) -> "RemoteInterpreter":
        """Returns the Interpreter of a fork that the server has made."""
        fork = object.__new__(type(self))
        fork.__dict__.update(self.__dict__)
        Operations.__init__(fork)
        fork._closing = fork._finishing = fork._events = None
        fork._lock = _reentry.Turn(fork)
        fork.tools = dict(self.tools)
        fork._offered, fork._calls = {}, {}
        fork._sent = dict(self._sent)
        fork._engine = self._engine
        fork._engine.users += 1
        fork._session = Sandbox(self._server)
        fork._session.id, fork._session.isolation = made["id"], made["isolation"]
        fork._id = next(_engine.ids)
        _engine.holders.add(fork)
        return fork

    def template(self) -> Any:
        made: List[Any] = []
        operation = self._run_step(functools.partial(self._make_template, made))
        return made[0] if operation is None else _first_of(operation, made)

    def _make_template(self, made: List[Any]) -> None:
        assert self._session is not None
        found = self._session.ask("POST", "/template")
        made.append(Template._of_server(self, _Template(self._server, found["id"])))

    def checkpoint(self) -> Any:
        made: List[int] = []
        operation = self._run_step(functools.partial(self._make_checkpoint, made))
        return made[0] if operation is None else _first_of(operation, made)

    def _make_checkpoint(self, made: List[int]) -> None:
        assert self._session is not None
        made.append(self._session.ask("POST", "/checkpoints")["id"])

    def _start_rollback(self, checkpoint: int) -> Any:
        assert self._session is not None
        self._sent.clear()
        self._session.ask("POST", "/checkpoints/%d/rollback" % checkpoint)
        self._session.lost = False

    def at(self, checkpoint: int) -> Any:
        return self._make_forks(None, None, exact_id(checkpoint))

    def checkpoints(self) -> "List[_forks.Checkpoint]":
        if self._session is None:
            return []
        return [_forks.Checkpoint(**found) for found in
                self._ask_sandbox(
                    lambda sandbox: sandbox.ask("GET", "/checkpoints"))["checkpoints"]]

    def forget(self, checkpoint: int) -> None:
        below = "/checkpoints/%d" % exact_id(checkpoint)
        with self._lock:
            self._begin()
            self._ask_sandbox(lambda sandbox: sandbox.ask("DELETE", below))

    def _ask_sandbox(self, function: Callable[[Sandbox], Any]) -> Any:
        assert self._session is not None
        try:
            return function(self._session)
        except Refused as e:
            raise self._session.failure(e) from None


_HANDLERS: Dict[str, Callable[[RemoteInterpreter, Sandbox, Any], None]] = {
    "output": RemoteInterpreter._take_output, "lost": RemoteInterpreter._take_lost,
    "display": RemoteInterpreter._take_display, "clear": RemoteInterpreter._take_clear,
    "call": RemoteInterpreter._take_call, "cancel": RemoteInterpreter._take_cancel}

_result_classes: Dict[Any, Any] = {}


def _result_class(kind: Any) -> Any:
    if kind not in _result_classes:
        _result_classes[kind] = type(kind.__name__, (kind, RemoteResult), {"__slots__": ()})
    return _result_classes[kind]


def _tool_of(bound: "_tools.Bound") -> Dict[str, Any]:
    tool = bound.tool
    found: Dict[str, Any] = {"name": tool.name}
    if tool.description:
        found["description"] = tool.description
    if tool.schema is not None:
        found["parameters"] = tool.schema
    return found


async def _first_of(operation: Operation, made: List[int]) -> int:
    await operation.wait()
    return made[0]


def _interrupt_quietly(sandbox: Sandbox) -> None:
    try:
        sandbox.ask("POST", "/interrupt")
    except (Refused, Error):
        pass


def _end_of(made: Dict[str, Any]) -> Tuple[str, str]:
    """The request that ends a sandbox which the server has made."""
    return "DELETE", "/v1/sandboxes/" + made["id"]


def _end_quietly(sandbox: Sandbox) -> None:
    try:
        sandbox.ask("DELETE", "")
    except (Refused, Error):
        pass
