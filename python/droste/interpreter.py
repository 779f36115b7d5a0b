"""`Interpreter`: a Python session in a sandbox.

The same object works with asyncio and without. If an event loop is running in the thread that opens
the session, the session uses that loop together with others; otherwise calls block.
"""
from __future__ import annotations

import contextlib
import contextvars
import ctypes
import functools
import warnings
from asyncio import _get_running_loop  # type: ignore
from typing import (Any, Callable, ContextManager, Dict, Generator, List, Mapping, MutableMapping,
                    Optional, Sequence, Tuple, Type, TYPE_CHECKING, Union)

from . import (_approvals, _closing, _engine, _forks, _library, _listening, _models, _network,
               _reentry, _remote, _settings, _templates, _tools, _warm)
from ._arguments import exact_id, schema_of_fields, seconds
from ._library import lib, quick
from ._operations import Done, ELSEWHERE, free_result, Operation
from ._values import c_text, check_name
from ._variables import ONLY_VALUES, VALUES, Variables
from .commands import AsyncCommands, Commands
from .errors import ArgumentError, Cancelled, Error, check, of
from .files import AsyncFiles, Files
from .result import Result
from .rich import RichResult

if TYPE_CHECKING:
    from typing_extensions import Unpack    # of the type checker: no dependency
    from ._keywords import InterpreterSettings

TOGETHER = 8            # forks of one operation: more would lower its priority (cpu_priority.c)


class Opening:
    """A session that is opening; awaiting it waits for the setup code."""
    __slots__ = ("owner",)

    def __init__(self, owner: "Interpreter"):
        self.owner = owner

    def __await__(self) -> Generator[Any, None, "Interpreter"]:
        opening = self.owner._opening
        if opening is not None:
            yield from opening.wait().__await__()
        return self.owner


class Interpreter(Variables):
    """A Python session in a sandbox: cells go in, results come out, variables stay.

        with Interpreter() as interp:
            interp.execute("x = 41")
            print(interp.execute("SUBMIT(answer=x + 1)").answer)

        async with Interpreter() as interp:                    # the same within asyncio
            print((await interp.execute("SUBMIT(answer=42)")).answer)

    `tools` are functions of this program that code may call: a list of functions, or a dict by
    name. `ask` names those whose calls wait for an approval, which `approvals` gives, a function of
    an `Approval` that returns True or False, sync or async (docs/approvals.md). `interp.tools` is
    live: the next cell can use tools that are added to it. `model` and `sub_model` answer
    `llm_query`: a name ("openai/gpt-5-mini") or a function of messages. Every setting of
    docs/configuration.md is a keyword, with `_` for `-`: `isolation`, `memory`, `timeout`,
    `execute_timeout`, `preload`, `read`, `setup_code`… `on_output` is called with (stream, text)
    while a cell runs; stream is 1 or 2. `on_result` is called with each rich result as the cell
    shows it (see RichResult), and with None after clear_output(). With `tool_threads`, sync tools
    run in threads even without asyncio. `on_network` is a function, sync or async, of each
    `NetworkRequest` that `allow_net` allows: None or True lets it go on, False or a reason does not
    (docs/network.md).

    Leaving `with` completes submitted cells in order; if the block raises, it cancels them. After
    that, `start()` or another `with` opens a new session with the same settings.

    With `template`, the session starts with all that the `Template` has, or the stored one of this
    name.

    With `server` ("http://HOST:PORT", "https://…", "unix:PATH") or DROSTE_SERVER, the session is
    one of `droste serve`, with `api_key` or DROSTE_API_KEY; `server=""` is this machine. Settings
    are then those that the server allows; what it cannot do raises UnsupportedError
    (docs/client.md).

    A session runs one operation at a time; other threads wait for it.
    """
    def __new__(cls, *arguments: Any, **keywords: Any) -> "Interpreter":
        return object.__new__(_remote.class_of(cls, keywords.get("server")))

    _result_type: Type[Result] = Result
    #: the class name in warnings
    _kind = "Interpreter"

    def __init__(self, *, tools: _tools.Tools = None,
                 model: Union[None, str, Callable[..., Any]] = None,
                 sub_model: Union[None, str, Callable[..., Any]] = None,
                 output_fields: Optional[Sequence[Any]] = None,
                 on_output: Optional[Callable[[int, str], None]] = None,
                 on_result: Optional[Callable[[Optional[RichResult]], None]] = None,
                 tool_threads: bool = False,
                 template: Union[None, str, _templates.Template] = None,
                 approvals: Optional[_approvals.Decide] = None,
                 on_network: Optional[_network.Decide] = None,
                 server: Optional[str] = None,
                 **settings: "Unpack[InterpreterSettings]"):
        _remote.check_local(self, server)
        super().__init__()
        self._closed = False
        self._closing: Optional[_closing.Closing] = None
        self._finishing: Optional[Operation] = None     # on a loop: writing the volume back
        self._lock = _reentry.Turn(self)
        self.tools: MutableMapping[str, Any] = dict(tools) if isinstance(tools, Mapping) else dict(
            _tools.collect(tools))
        self._offered: Dict[str, Tuple[Any, _tools.Bound]] = {}
        self.output_fields = output_fields
        self._expected: Optional[bytes] = None
        self._functions = {name: function
                           for name, function in (("model", model), ("sub_model", sub_model))
                           if callable(function)}
        self._numbers: List[int] = []
        names = {name: text for name, text in (("model", model), ("sub_model", sub_model))
                 if not callable(text)}
        if isinstance(template, str):       # a stored one is a setting
            names["template"], template = template, None
        self._template = template
        self._pairs = _templates.inherit(template, _settings.pairs({**settings, **names}))
        self._approvals = _approvals.check(approvals)
        self._asked: Optional[_approvals.Listener] = None
        self._on_network = _network.check(on_network)
        self._network: Optional[_network.Listener] = None
        self._on_output = on_output
        self._on_result = on_result
        self._tool_threads = tool_threads
        self._output_id = 0
        self._family: Optional[_forks.Family] = None    # of a session with forks
        _engine.holders.add(self)

    # -- opening and closing

    def start(self) -> Opening:
        """Opens the session unless it is open; after `shutdown`, a new one. May be awaited."""
        self._refuse_own_tools()
        with self._lock:
            self._refuse_inside()
            if self._closing is not None:       # complete the previous session first
                self._closing.finish_quietly()
            self._closed = False
            self._open()
        return Opening(self)

    def _open(self) -> None:
        if self._session is not None:
            self._engine.alive()
            if self._opening is not None and self._opening.done:
                if self._opening.failure is not None:
                    raise self._opening.failure
                self._opening = None
            return
        _closing.finish_before(self._pairs)
        loop = _get_running_loop()
        self._take_engine(loop if self._may_be_async else None)
        self._opening = self._expected = None
        self._sent.clear()
        try:
            self._open_session()
        except BaseException:
            self._leave()
            raise

    def _take_engine(self, loop: Any) -> None:
        """Sets the engine of a new session: the loop's, if there is one."""
        key = _settings.key(self._pairs)
        if self._template is not None:
            self._engine, self._family = self._template._enter()
        else:
            self._engine = _engine.take_for_loop(loop, key) if loop else _engine.take(key)

    #: whether the session uses a running asyncio loop; false where results must be immediate
    _may_be_async = True

    def _open_session(self) -> None:
        engine, pairs = self._engine, list(self._pairs)
        for name, function in self._functions.items():
            number = _models.models.add(engine, function)
            self._numbers.append(number)
            pairs.append((name.replace("_", "-"), "callback:%d" % number))
        start = lib.droste_session_start if self._template is None else self._template._open
        session = ctypes.c_void_p()
        with engine.lock:
            if self._approvals is not None:
                self._asked = _approvals.Listener(engine, self._approvals,
                                                  contextvars.copy_context())
                _approvals.install(engine)
            words = _settings.words(engine.settings(pairs))
            with self._listen_to_network():
                check(start(engine.alive(), words, ctypes.byref(session), self._err), self._error)
            self._session = session.value
            self._id = next(_engine.ids)
            self._listen()
            if engine.loop is None:
                free_result(self._finish_here())      # the setup code, if any
                return
            self._tell_ends()
            if check(lib.droste_session_wait(self._session, 0, self._out_ref, self._err),
                     self._error) == 1:
                self._opening = self._current = Operation(self, [])     # ends with the setup code
                self._current.future.add_done_callback(lambda f: f.cancelled() or f.exception())
            else:
                free_result(self._out.value)      # the setup code has already ended
            engine.kick()

    def _listen_to_network(self) -> ContextManager[Any]:
        if self._on_network is None:
            return contextlib.nullcontext()
        self._network = _network.Listener(self._engine, self._on_network,
                                          contextvars.copy_context())
        return self._network

    def _listen(self) -> None:
        _listening.listen(self)

    def shutdown(self, *, cancel: bool = False) -> Union[Done[None], "_closing.Closing"]:
        """Ends the session; does nothing if it has ended. May be awaited.

        Within asyncio, submitted cells complete first, in order; the session ends at the latest
        with the loop. Until then it holds its volume, and the next session on that volume waits.
        With `cancel`, the session and its cells end immediately.

        Writes a provider's volume (Modal) back first; blocks for that, or within asyncio when
        awaited. Raises if that fails, in which case files that the session wrote may be lost.
        """
        if self._engine is not None and self._engine.loop is None:
            self._refuse_own_tools()
        with self._lock:
            if self._session is not None:
                loop = self._engine.loop
                if loop is not None and loop.is_running() and _get_running_loop() is not loop:
                    raise Error(ELSEWHERE)
                if self._engine.inside:
                    raise Error("a callback of the engine (a tool, on_output) cannot shut down "
                                "the session; interrupt() ends the cell")
                self._closed = True
                if loop is None or not loop.is_running() or self._engine.handle is None:
                    self._close_here(cancel or self._engine.handle is None)
                    return Done(None)
                if not cancel and self._pending() or self._begin_finish():
                    self._closing = self._closing or _closing.Closing(self)
                    return self._closing
                self._leave()
            self._closed = True
        return Done(None)

    def _close_here(self, cancel: bool = False) -> None:
        """Blocks for pending cells (unless `cancel`) and the volume, then ends the session."""
        try:
            if not cancel and self._engine.loop is not None:
                self._finish_pending_here()
            self._finish_session_here()
        finally:
            self._leave()

    def _begin_finish(self) -> bool:
        """On a loop: starts writing a volume back; returns whether that is under way.

        After this call the session accepts no other operation.
        """
        if self._engine.handle is None or self._session is None:
            return False
        if self._finishing is None:
            with self._engine.lock:
                if quick.droste_session_finish_start(self._session) == 0:
                    return False
            self._drop_operations(Cancelled("the interpreter was shut down"))
            self._finishing = self._current = Operation(self, [])
            self._engine.kick()
        return not self._finishing.done

    def _finish_session_here(self) -> None:
        """Writes a volume back and blocks until that is done."""
        engine = self._engine
        if engine.handle is None:
            return
        if self._finishing is not None:
            self._finishing.finish()
            return
        with engine.lock:
            if quick.droste_session_finish_start(self._session) == 0:
                return
            quick.droste_session_on_done(self._session, _library.SessionDoneFn(), 0)
            try:
                engine.inside, engine.held_up = True, engine.loop is not None
                while check(lib.droste_session_wait(self._session, _engine.SLICE_MS, self._out_ref,
                                                    self._err), self._error) == 1:
                    engine.drain()
            finally:
                engine.inside = engine.held_up = False
                engine.kick()

    def close(self) -> None:
        """Alias of `shutdown`."""
        self.shutdown()

    def _leave(self) -> None:
        engine, session, self._session = self._engine, self._session, None
        self._finishing = None
        self._tell_no_more()
        _listening.forget(self._id)
        self._drop_operations(Cancelled("the interpreter was shut down"))
        _close(engine, session, self._offered, self._numbers, self._family)
        self._family = None
        closing, self._closing = self._closing, None
        if closing is not None:
            closing.ended()

    def __enter__(self) -> "Interpreter":
        self.start()
        return self

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        try:
            self.shutdown(cancel=kind is not None)
        except Error as e:
            self._tell_beside(error, e)

    async def __aenter__(self) -> "Interpreter":
        try:
            return await self.astart()
        except BaseException:
            self.shutdown(cancel=True)
            raise

    async def __aexit__(self, kind: Any, error: Any, traceback: Any) -> None:
        try:
            await self.shutdown(cancel=kind is not None)
        except Error as e:
            self._tell_beside(error, e)

    def _tell_beside(self, raised: Optional[BaseException], failure: Error) -> None:
        """Reports a failure while leaving `with`, as a warning if the block itself raised."""
        if raised is None:
            raise failure
        warnings.warn("error while leaving the %s: %s" % (self._kind, failure), RuntimeWarning,
                      stacklevel=3)

    async def astart(self) -> "Interpreter":
        """Coroutine version of `start`; never blocks the loop."""
        self._refuse_own_tools()
        if self._closing is not None:
            await self._closing.wait_quietly()
        await _closing.wait_before(self._pairs)
        if self._session is None and self._may_be_async and self._template is None:
            await self._warm_up()
        return await self.start()

    async def _warm_up(self) -> None:
        await _warm.boot(self._pairs)

    async def ashutdown(self) -> None:
        """Coroutine version of `shutdown`."""
        await self.shutdown()

    def __del__(self) -> None:
        if getattr(self, "_session", None) is None or self._engine.handle is None:
            return
        warnings.warn("%s was not shut down; use `with`" % self._kind, ResourceWarning, source=self)
        if self._engine.do_if_free(self.shutdown):
            return
        # A thread may be within the library; close later, without a reference to self.
        engine, session, offered, numbers = (self._engine, self._session, self._offered,
                                             self._numbers)
        family = self._family
        self._tell_no_more()
        _listening.forget(self._id)

        engine.post(lambda: _close(engine, session, offered, numbers, family))
        engine.do_if_free(engine.drain)

    # -- properties

    @property
    def alive(self) -> bool:
        """Whether the session is open and its sandbox exists."""
        return (self._session is not None and not self._closed and self._engine.handle is not None
                and bool(quick.droste_session_is_alive(self._session)))

    @property
    def files(self) -> Files:
        """The files of the open session, which do not wait for its cells (docs/files.md)."""
        return Files(self)

    @property
    def afiles(self) -> AsyncFiles:
        """The same as coroutines, for a session on this event loop."""
        return AsyncFiles(self)

    @property
    def commands(self) -> Commands:
        """Programs in the sandbox, started beside the session, whatever it executes."""
        return Commands(self)

    @property
    def acommands(self) -> AsyncCommands:
        """The same as coroutines, for a session on this event loop."""
        return AsyncCommands(self)

    @property
    def isolation(self) -> Optional[str]:
        """The isolation level: "full", "light", "landlock" or "process"; None until opened."""
        if self._session is None:
            return None
        return quick.droste_session_isolation(self._session).decode()

    @property
    def sandbox_id(self) -> Optional[str]:
        """The provider's name of the sandbox, or the id of a container; `sandbox=ID` resumes it.

        None for local sandboxes and until the session is open.
        """
        name = quick.droste_session_sandbox(self._session) if self._session is not None else None
        return name.decode("utf-8", "replace") if name else None

    def __repr__(self) -> str:
        state = self.isolation if self.alive else "closed" if self._closed else (
            "not started" if self._session is None else "lost")
        return "<%s: %s>" % (self._kind, state)

    # -- cells

    def _refuse_inside(self) -> None:
        if self._engine is not None and self._engine.loop is None and self._engine.inside:
            raise Error("the session is busy: a callback of its engine (a tool, on_output) cannot "
                        "use it")

    def _runs_on_loop(self) -> List[str]:
        return _tools.on_loop(self._id) + _models.models.on_loop(self._numbers)

    def _begin(self) -> None:
        """Prepares an operation: opens the session and stops an interrupted operation."""
        if self._closed:
            raise Error("the interpreter was shut down; start() opens a fresh session, without the "
                        "variables of the old one")
        if self._session is None or self._opening is not None or self._engine.handle is None:
            self._open()
        if self._engine.loop is None:
            self._refuse_inside()
            if self._under_way:
                self._stop_here()
            self._turns += 1

    def execute(self, code: str, variables: Optional[Mapping[str, Any]] = None, *,
                timeout: Optional[float] = None) -> Result:
        """Runs a cell, after binding `variables`; unchanged large texts are not sent again.

        `timeout` in seconds (0: none) overrides the setting execute_timeout. Exceptions of the code
        are in the result; this method raises for failures of the session, such as `LostError`, and
        `ArgumentError` for values that cannot be sent.
        """
        if not isinstance(code, str):
            raise ArgumentError("code must be a str, not %s" % type(code).__name__)
        data, limit = code.encode("utf-8", "replace"), seconds(timeout)
        self._refuse_own_tools()
        with self._lock:
            self._begin()
            if self.tools or self._offered:
                self._offer_tools()
            if self.output_fields is not None or self._expected is not None:
                self._expect_fields()
            steps = self._variable_steps(variables) if variables else []
            return self._run_cell(code, data, limit, steps,
                                  self._flags | (VALUES if self._typed else 0))

    def _run_cell(self, code: str, data: bytes, limit: float, steps: List[Callable[[], int]],
                  flags: int) -> Result:
        """Runs the steps, then the cell; the caller holds the lock and has called _begin()."""
        if self._engine.loop is not None:
            steps.append(functools.partial(self._start_cell, data, limit, flags))
            return self._result_type(None, self._enqueue(steps, code))
        for step in steps:
            self._finish_step(step)
        with self._engine.lock:     # forks of the session use the engine, too
            if self._start_cell(data, limit, flags) < 0:
                check(-1, self._error)
            return self._result_type(self._finish_here())

    async def aexecute(self, code: str, variables: Optional[Mapping[str, Any]] = None, *,
                       timeout: Optional[float] = None) -> Result:
        """Coroutine version of `execute`."""
        return await self.execute(code, variables, timeout=timeout)

    def set(self, name: str, value: Any) -> Done[None]:
        """Binds a variable, which has the value's type in the sandbox. May be awaited.

        docs/values.md lists the types: numbers, text, bytes, containers, dates and times, numpy
        arrays, frames of pandas and polars, Arrow tables and more. Raises `ArgumentError` with the
        path of what cannot be sent, and `CellFailed` if the sandbox lacks a library that the value
        needs.
        """
        step = self._set_step(check_name(name), value)
        self._refuse_own_tools()
        with self._lock:
            self._begin()
            if self._engine.loop is not None:
                return self._enqueue([step]).future  # type: ignore
            self._finish_step(step)
        return Done(None)

    def load(self, name: str, path: Any, kind: Optional[str] = None) -> None:
        """Binds a file, or a directory as a dict of {path: text}.

        Blocks even within asyncio, also for operations that were started before.
        """
        names = (check_name(name).encode(), c_text(kind, "a kind") if kind else None,
                 c_text(path, "a path"))
        self._refuse_own_tools()
        with self._lock:
            self._begin()
            while self._current is not None:
                self._wait_here(self._current)
            with self._engine.lock:
                check(lib.droste_session_load(self._session, *names, self._err), self._error)

    def get(self, name: str, *, plain: bool = False) -> Any:
        """Returns the value of a variable with its type; blocks even within asyncio.

        Large arrays and columns are not copied. With `plain`, returns the JSON form of
        docs/values.md. Raises `CellFailed` with the path of what cannot leave the sandbox, and
        `MissingLibrary` for a value of a library that is not installed here.
        """
        self._refuse_own_tools()
        if self._typed and not plain:
            return self._get_typed(check_name(name))
        with self._lock:
            fields, self.output_fields = self.output_fields, None
            try:
                result = self.execute("SUBMIT(value=%s)" % check_name(name))
            finally:
                self.output_fields = fields
        return (result.raise_for_status()._own._read_json_fields() or {})["value"]

    def _get_typed(self, name: str) -> Any:
        code = "SUBMIT(**{%r: %s})" % (name, name)
        with self._lock:
            self._begin()
            fields, self.output_fields = self.output_fields, None
            try:
                if self._expected is not None:
                    self._expect_fields()
                result = self._run_cell(code, code.encode(), -1.0, [], VALUES | ONLY_VALUES)
            finally:
                self.output_fields = fields
        return result.raise_for_status()._own._read_typed(name)

    # -- forks

    def fork(self, count: Optional[int] = None) -> Any:
        """Returns an independent copy of the session, or a list of `count` of them.

            with Interpreter() as interp:
                interp.execute("data = load()")
                for fork, text in zip(interp.fork(3), attempts):
                    with fork:
                        fork.execute(text)          # sees `data`; changes only its own copy

        A fork has all variables, and shares memory until it writes to it. It has its own output,
        deadlines and random seeds, counts against the same budget, and shares the sandbox: files,
        processes, user. Either may be closed first. Raises `ArgumentError` while threads or asyncio
        tasks run in the sandbox, and `UnsupportedError` where the environment cannot fork. Within
        asyncio, the result must be awaited.
        """
        if count is not None and (type(count) is not int or count < 1):
            raise ArgumentError("count must be a positive int, not %r" % (count,))
        return self._make_forks(count, quick.droste_session_fork_start)

    def _make_forks(self, count: Optional[int], start: Callable[..., int], *which: int) -> Any:
        self._refuse_own_tools()
        forks: List[Interpreter] = []
        failed: List[BaseException] = []
        steps = [functools.partial(self._start_forks, forks, start, which,
                                   min(TOGETHER, (count or 1) - done), failed)
                 for done in range(0, count or 1, TOGETHER)]
        with self._lock:
            self._begin()
            if self._engine.loop is not None:
                return _forks.finish(self._enqueue(steps), forks, count, failed)  # type: ignore
            try:
                for step in steps:
                    self._run(step)
                    _forks.raise_first(failed)
            except BaseException:
                for fork in forks:
                    fork._leave()
                raise
        return forks if count is not None else forks[0]

    def _start_forks(self, forks: "List[Interpreter]", start: Callable[..., int],
                     which: Tuple[int, ...], count: int, failed: List[BaseException]) -> int:
        """Starts forks that are made in one operation."""
        rc = 0
        for number in range(count):
            session = ctypes.c_void_p()
            started = start(self._session, *which, ctypes.byref(session), self._err)
            if started < 0 and number > 0:      # those before it are under way
                failed.append(of(self._error))
                break
            if started < 0:
                return started
            rc = started
            forks.append(_forks.adopt(self, session.value))
        return rc

    def template(self) -> Any:
        """Returns a `Template` of the session's present state, from which others can start.

        Raises `ArgumentError` while threads, asyncio tasks, subprocesses, open files or shared
        memory exist in the sandbox. Within asyncio, the result must be awaited.
        """
        return _templates.make(self)

    def checkpoint(self) -> Any:
        """Keeps the session's state and returns its id, an int, for `rollback` and `at`.

        A checkpoint costs one fork, and memory only for what changes afterwards. Up to 1024 are
        kept, within `checkpoint_memory`; `forget` drops one. They end with the session. Raises as
        `fork` does. Within asyncio, the result must be awaited.
        """
        made = ctypes.c_uint()
        operation = self._run_step(functools.partial(
            self._call, quick.droste_session_checkpoint_start, ctypes.byref(made)))
        return made.value if operation is None else _forks.checkpoint_of(operation, made)

    def rollback(self, checkpoint: int) -> Done[None]:
        """Continues from a checkpoint: variables are as they were then. Files are not changed.

        Works also when the session has been lost, for example to a limit. Within asyncio, the
        result must be awaited.
        """
        operation = self._run_step(functools.partial(self._start_rollback, exact_id(checkpoint)))
        return Done(None) if operation is None else operation.future  # type: ignore

    def at(self, checkpoint: int) -> Any:
        """Returns a new session that continues from a checkpoint, beside this one.

        Within asyncio, the result must be awaited.
        """
        return self._make_forks(None, quick.droste_session_at_start, exact_id(checkpoint))

    def checkpoints(self) -> "List[_forks.Checkpoint]":
        """Returns the session's checkpoints in the order in which they were made."""
        if self._session is None:
            return []
        with self._engine.lock:
            return _forks.read_checkpoints(self._session)

    def forget(self, checkpoint: int) -> None:
        """Drops a checkpoint; those made after it become children of its parent."""
        with self._lock:
            self._begin()
            with self._engine.lock:
                check(self._call(lib.droste_session_forget, exact_id(checkpoint)), self._error)

    def _call(self, function: Callable[..., int], *arguments: Any) -> int:
        return function(self._session, *arguments, self._err)

    def _start_rollback(self, checkpoint: int) -> int:
        self._sent.clear()
        return self._call(quick.droste_session_rollback_start, checkpoint)

    def _run_step(self, step: Callable[[], int]) -> Optional[Operation]:
        """Runs a step; on a loop, returns its operation."""
        self._refuse_own_tools()
        with self._lock:
            self._begin()
            if self._engine.loop is not None:
                return self._enqueue([step])
            self._run(step)
        return None

    def interrupt(self) -> None:
        """Interrupts the running cell like Ctrl-C; keeps the variables. Safe in any thread."""
        engine, session, turn = self._engine, self._session, self._turns
        if session is not None and (self._under_way or self._current is not None):
            engine.post(lambda: (self._session, self._turns) == (session, turn)
                        and quick.droste_session_interrupt(session))

    # -- steps

    def _use_context(self, context: contextvars.Context) -> None:
        for _, bound in self._offered.values():
            bound.context = context
        for number in self._numbers:
            _models.models.contexts[number] = context

    def _offer_tools(self) -> None:
        """Registers tools that were added, changed or removed since the last cell."""
        for name in [n for n, (given, _) in self._offered.items()
                     if self.tools.get(n) is not given]:
            check(quick.droste_session_tool_remove(self._session, name.encode(), self._err),
                  self._error)
            self._offered.pop(name)[1].release()
        for name, given in self.tools.items():
            if name in self._offered:
                continue
            bound = _tools.Bound(_tools.make(name, given), self._engine, self._tool_threads,
                                 self._id, self._typed)
            try:
                check(quick.droste_session_tool_add(self._session, *bound.texts(), _tools.on_tool,
                                                    bound.id, self._err), self._error)
            except Error:
                bound.release()
                raise
            self._offered[name] = given, bound

    def _expect_fields(self) -> None:
        """Sets the schema of submissions if `output_fields` has changed."""
        schema = schema_of_fields(self.output_fields)
        if schema != self._expected:
            check(quick.droste_session_expect(self._session, schema, self._err), self._error)
            self._expected = schema


def _close(engine: "_engine.Engine", session: Optional[int],
           offered: Dict[str, Tuple[Any, _tools.Bound]],
           numbers: List[int], family: "Optional[_forks.Family]") -> None:
    """Ends a session, which leaves its family."""
    if engine.handle is not None and session is not None:
        with engine.lock:
            lib.droste_session_close(session)
    for _, bound in offered.values():
        bound.release()
    offered.clear()
    _forks.leave(engine, family, numbers)


_templates.Template._interpreter = Interpreter
