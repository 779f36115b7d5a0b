"""`Interpreter`: a Python session in a sandbox.

The same object works with asyncio and without: where an event loop is running in the thread that opens
it, it works on that loop, and many at once do; otherwise a call waits for its end.
"""
from __future__ import annotations

import contextvars
import ctypes
import functools
import math
import warnings
from asyncio import _get_running_loop  # type: ignore
from typing import (Any, Callable, Dict, Generator, List, Mapping, MutableMapping, Optional, Sequence, Tuple, Type,
                    Union)

from . import _closing, _engine, _library, _models, _reentry, _settings, _tools, _warm
from ._library import lib, quick
from ._operations import Done, ELSEWHERE, free_result, Operation, Operations
from ._values import c_text, check_name, Data, encode, exact, literal, memory_of, to_json, UNMARK
from .errors import ArgumentError, Cancelled, Error, check
from .result import Result

LARGE = 16384           # bytes of a value that is not written into a cell
ECHO = 1


class Opening:
    """A session that is being opened: its setup code may still run."""
    __slots__ = ("owner",)

    def __init__(self, owner: "Interpreter"):
        self.owner = owner

    def __await__(self) -> Generator[Any, None, "Interpreter"]:
        opening = self.owner._opening
        if opening is not None:
            yield from opening.wait().__await__()
        return self.owner


class Interpreter(Operations):
    """A Python session in a sandbox: cells go in, results come out, variables stay.

        with Interpreter() as interp:
            interp.execute("x = 41")
            print(interp.execute("SUBMIT(answer=x + 1)").answer)

        async with Interpreter() as interp:                    # the same within asyncio
            print((await interp.execute("SUBMIT(answer=42)")).answer)

    `tools` are functions of this program that code may call: a list of functions, or a dict of names;
    the dict stays live: what is added to `interp.tools` is there for the next cell. `model` (and
    `sub_model`) answer `llm_query`: a name ("openai/gpt-5-mini"), or a function of messages. Every
    setting of docs/configuration.md is a keyword, with `_` for `-`: `isolation`, `memory`, `timeout`,
    `execute_timeout`, `preload`, `read`, `setup_code`… `on_output` is called with (stream, text) while a
    cell runs. With `tool_threads`, sync tools run in threads also without asyncio.

    Leaving `with` finishes what was submitted, in order; where the block raises, it is cancelled. After that `start()`,
    or another `with`, opens a fresh session with the same settings.

    One operation at a time; other threads wait their turn.
    """
    _result_type: Type[Result] = Result
    #: the session's own name in warnings
    _kind = "Interpreter"

    def __init__(self, *, tools: _tools.Tools = None, model: Union[None, str, Callable[..., Any]] = None,
                 sub_model: Union[None, str, Callable[..., Any]] = None,
                 output_fields: Optional[Sequence[Any]] = None,
                 on_output: Optional[Callable[[int, str], None]] = None, tool_threads: bool = False,
                 **settings: Any):
        super().__init__()
        self._closed = False
        self._closing: Optional[_closing.Closing] = None
        self._finishing: Optional[Operation] = None     # on a loop: the volume is being written back
        self._lock = _reentry.Turn(self)
        self.tools: MutableMapping[str, Any] = dict(tools) if isinstance(tools, Mapping) else dict(
            _tools.collect(tools))
        self._offered: Dict[str, Tuple[Any, _tools.Bound]] = {}
        self.output_fields = output_fields
        self._expected: Optional[bytes] = None
        self._functions = {name: function for name, function in (("model", model), ("sub_model", sub_model))
                           if callable(function)}
        self._numbers: List[int] = []
        names = {name: text for name, text in (("model", model), ("sub_model", sub_model))
                 if not callable(text)}
        self._pairs = _settings.pairs({**settings, **names})
        self._on_output = on_output
        self._tool_threads = tool_threads
        self._output_id = 0
        self._sent: Dict[str, Any] = {}
        _engine.holders.add(self)

    # -- opening and closing

    def start(self) -> Opening:
        """Opens the session, unless it is open; after `shutdown`, a fresh one with the same settings. May be awaited."""
        self._refuse_own_tools()
        with self._lock:
            self._refuse_inside()
            if self._closing is not None:       # what was submitted before comes first
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
        key = _settings.key(self._pairs)
        self._engine = _engine.take_for_loop(loop, key) if loop and self._may_be_async else _engine.take(key)
        self._opening = self._expected = None
        self._sent.clear()
        try:
            self._open_session()
        except BaseException:
            self._leave()
            raise

    #: whether it works on a running loop of asyncio; those who promise results at once do not
    _may_be_async = True

    def _open_session(self) -> None:
        engine, pairs = self._engine, list(self._pairs)
        for name, function in self._functions.items():
            number = _models.models.add(engine, function)
            self._numbers.append(number)
            pairs.append((name.replace("_", "-"), "callback:%d" % number))
        session = ctypes.c_void_p()
        with engine.lock:
            check(lib.droste_session_start(engine.alive(), _settings.words(pairs), ctypes.byref(session),
                                           self._err), self._error)
            self._session = session.value
            self._id = next(_engine.ids)
            if self._on_output is not None:
                _listeners[self._id] = self._on_output, engine
                quick.droste_session_on_output(self._session, _on_output, self._id)
            if engine.loop is None:
                free_result(self._finish_here())      # the setup code, if there is some
                return
            self._tell_ends()
            if check(lib.droste_session_wait(self._session, 0, self._out_ref, self._err), self._error) == 1:
                self._opening = self._current = Operation(self, [])     # it ends when the setup code does
                self._current.future.add_done_callback(lambda f: f.cancelled() or f.exception())
            else:
                free_result(self._out.value)      # it has ended already
            engine.kick()

    def shutdown(self, *, cancel: bool = False) -> Union[Done[None], "_closing.Closing"]:
        """Ends the session, with all that is in it; nothing happens where that was done. May be awaited.

        Within asyncio what was submitted is finished first, in order, and the session ends then: at the latest when the
        loop does. Until then it has its volume, for which the next session waits. With `cancel` it ends now, and so do its
        cells.

        A volume of the provider's (Modal's) is written back first, for which this waits; within asyncio who awaits it
        does. Raises where that fails: what the session wrote may be lost then."""
        if self._engine is not None and self._engine.loop is None:
            self._refuse_own_tools()
        with self._lock:
            if self._session is not None:
                loop = self._engine.loop
                if loop is not None and loop.is_running() and _get_running_loop() is not loop:
                    raise Error(ELSEWHERE)
                if self._engine.inside:
                    raise Error("a session cannot be shut down by what its engine calls (a tool, on_output); interrupt() "
                                "ends the cell")
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
        """Waits for all that comes before the end of the session, and ends it."""
        try:
            if not cancel and self._engine.loop is not None:
                self._finish_pending_here()
            self._finish_session_here()
        finally:
            self._leave()

    def _begin_finish(self) -> bool:
        """On a loop: whether a volume is being written back, which begins with this; from then on nothing else can be done."""
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
        """The same, waited for."""
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
                while check(lib.droste_session_wait(self._session, _engine.SLICE_MS, self._out_ref, self._err), self._error) == 1:
                    engine.drain()
            finally:
                engine.inside = engine.held_up = False
                engine.kick()

    def close(self) -> None:
        """As `shutdown`."""
        self.shutdown()

    def _leave(self) -> None:
        engine, session, self._session = self._engine, self._session, None
        self._finishing = None
        self._tell_no_more()
        _listeners.pop(self._id, None)
        self._drop_operations(Cancelled("the interpreter was shut down"))
        _close(engine, session, self._offered, self._numbers)
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
        """Leaving `with` failed. What the block raised is not hidden by that."""
        if raised is None:
            raise failure
        warnings.warn("leaving the %s: %s" % (self._kind, failure), RuntimeWarning, stacklevel=3)

    async def astart(self) -> "Interpreter":
        """`start`, for `await` alone: what it has to wait for does not hold up the loop."""
        self._refuse_own_tools()
        if self._closing is not None:
            await self._closing.wait_quietly()
        await _closing.wait_before(self._pairs)
        if self._session is None and self._may_be_async:
            await _warm.boot(self._pairs)
        return await self.start()

    async def ashutdown(self) -> None:
        """`shutdown`, for `await` alone."""
        await self.shutdown()

    def __del__(self) -> None:
        if getattr(self, "_session", None) is None or self._engine.handle is None:
            return
        warnings.warn("%s was not shut down; use `with`" % self._kind, ResourceWarning, source=self)
        loop = self._engine.loop
        if loop is None or loop.is_closed():
            self.shutdown()
            return
        # Whatever the loop's thread is doing in the library is done first. The object is gone by then.
        engine, session, offered, numbers = self._engine, self._session, self._offered, self._numbers
        self._tell_no_more()
        _listeners.pop(self._id, None)

        engine.post(lambda: _close(engine, session, offered, numbers))

    # -- what is true of it

    @property
    def alive(self) -> bool:
        """It is open, and its sandbox is there."""
        return (self._session is not None and not self._closed and self._engine.handle is not None
                and bool(quick.droste_session_is_alive(self._session)))

    @property
    def isolation(self) -> Optional[str]:
        """How strong the wall is: "full", "light", "landlock" or "process"; None until it is open."""
        return quick.droste_session_isolation(self._session).decode() if self._session is not None else None

    @property
    def sandbox_id(self) -> Optional[str]:
        """What the provider calls the sandbox, or a container's id: `sandbox=ID` goes on in one that was stopped. None
        where it has no name, as locally, and until it is open."""
        name = quick.droste_session_sandbox(self._session) if self._session is not None else None
        return name.decode("utf-8", "replace") if name else None

    def __repr__(self) -> str:
        state = self.isolation if self.alive else "closed" if self._closed else (
            "not started" if self._session is None else "lost")
        return "<%s: %s>" % (self._kind, state)

    # -- cells

    def _refuse_inside(self) -> None:
        if self._engine is not None and self._engine.loop is None and self._engine.inside:
            raise Error("the session is busy: what its engine calls (a tool, on_output) cannot use it")

    def _runs_on_loop(self) -> List[str]:
        return _tools.on_loop(self._id) + _models.models.on_loop(self._numbers)

    def _begin(self) -> None:
        """Before an operation: the session is open, and nothing of an earlier one is left."""
        if self._closed:
            raise Error("the interpreter was shut down; start() opens a fresh session, without the variables of the old one")
        if self._session is None or self._opening is not None or self._engine.handle is None:
            self._open()
        if self._engine.loop is None:
            self._refuse_inside()
            if self._under_way:
                self._stop_here()
            self._turns += 1

    def execute(self, code: str, variables: Optional[Mapping[str, Any]] = None, *,
                timeout: Optional[float] = None) -> Result:
        """Runs a cell. `variables` are bound before it; large texts that have not changed since the last
        time are not sent again. `timeout` (seconds; 0: none) is instead of the setting execute_timeout.

        What the code raises is in the result. Exceptions are about the session: `LostError` where its
        sandbox is gone, `ArgumentError`…"""
        if not isinstance(code, str):
            raise ArgumentError("code is a str, not %s" % type(code).__name__)
        data, limit = code.encode("utf-8", "replace"), seconds(timeout)
        self._refuse_own_tools()
        with self._lock:
            self._begin()
            if self.tools or self._offered:
                self._offer_tools()
            if self.output_fields is not None or self._expected is not None:
                self._expect_fields()
            steps = self._variable_steps(variables) if variables else []
            if self._engine.loop is not None:
                steps.append(functools.partial(self._start_cell, data, limit))
                return self._result_type(None, self._enqueue(steps, code))
            for step in steps:
                self._finish_step(step)
            if self._start_cell(data, limit) < 0:       # the engine is this interpreter's alone
                check(-1, self._error)
            return self._result_type(self._finish_here())

    async def aexecute(self, code: str, variables: Optional[Mapping[str, Any]] = None, *,
                       timeout: Optional[float] = None) -> Result:
        """`execute`, for `await` alone."""
        return await self.execute(code, variables, timeout=timeout)

    def set(self, name: str, value: Any) -> Done[None]:
        """Binds a variable: str and bytes as they are, everything else as JSON. May be awaited."""
        kind, data = encode(value, check_name(name))
        step = functools.partial(self._start_set, check_name(name).encode(), kind, data)
        self._refuse_own_tools()
        with self._lock:
            self._begin()
            if self._engine.loop is not None:
                return self._enqueue([step]).future  # type: ignore
            self._finish_step(step)
        return Done(None)

    def load(self, name: str, path: Any, kind: Optional[str] = None) -> None:
        """Binds a file, or a directory as a dict of {path: text}; waits also within asyncio, for what was started
        before, too."""
        names = check_name(name).encode(), c_text(kind, "a kind") if kind else None, c_text(path, "a path")
        self._refuse_own_tools()
        with self._lock:
            self._begin()
            while self._current is not None:
                self._wait_here(self._current)
            with self._engine.lock:
                check(lib.droste_session_load(self._session, *names, self._err), self._error)

    def get(self, name: str) -> Any:
        """The value of a variable, as JSON has it; waits also within asyncio."""
        self._refuse_own_tools()
        with self._lock:
            fields, self.output_fields = self.output_fields, None
            try:
                result = self.execute("SUBMIT(value=%s)" % check_name(name))
            finally:
                self.output_fields = fields
        return result.raise_for_status()["value"]

    def interrupt(self) -> None:
        """Interrupts the cell under way, as Ctrl-C does; its variables stay. From any thread."""
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

    def _forget_sent(self) -> None:
        self._sent.clear()

    def _start_cell(self, code: bytes, timeout: float) -> int:
        return quick.droste_session_exec_start(self._session, code, len(code), ECHO, timeout, self._err)

    def _start_set(self, name: bytes, kind: bytes, data: Data) -> int:
        return lib.droste_session_set_start(self._session, name, kind, *memory_of(data), self._err)

    def _variable_steps(self, variables: Mapping[str, Any]) -> List[Callable[[], int]]:
        """Large texts are sent under a name of their own, once, as the code cannot change them; other large values as JSON,
        each time, with marks where JSON would change them. One cell binds the rest."""
        steps: List[Callable[[], int]] = []
        lines: List[str] = []
        unmarked: List[str] = []
        for name, value in variables.items():
            check_name(name)
            if isinstance(value, (bytearray, memoryview)):
                value = bytes(value)
            if ("restore-name", name) in self._pairs:       # what a cell binds would not stay
                steps.append(functools.partial(self._start_set, name.encode(), *encode(value, name)))
                continue
            if isinstance(value, (str, bytes)) and len(value) >= LARGE:
                if self._sent.get(name) != (type(value), value):
                    steps.append(functools.partial(self._start_set, ("_input_" + name).encode(), *encode(value)))
                    self._sent[name] = type(value), value
                lines.append("%s = _input_%s" % (name, name))
                continue
            if isinstance(value, (str, bytes, int, float, type(None))):
                lines.append("%s = %s" % (name, literal(value)))
                continue
            value, data, marked = exact(value, name)
            text = literal(value) if len(data) < LARGE else None
            if text is not None:
                lines.append("%s = %s" % (name, text))
                continue
            steps.append(functools.partial(self._start_set, (("_marked_" if marked else "") + name).encode(), b"json", data))
            if marked:
                unmarked.append("%s = _unmarked(globals().pop(%r))" % (name, "_marked_" + name))
        if unmarked:
            lines += [UNMARK, *unmarked, "del _unmarked"]
        if lines:
            steps.append(functools.partial(self._start_cell, "\n".join(lines).encode("utf-8", "replace"), -1.0))
        return steps

    def _offer_tools(self) -> None:
        """Tells the session of tools that came, changed or went since the last cell."""
        for name in [n for n, (given, _) in self._offered.items() if self.tools.get(n) is not given]:
            check(quick.droste_session_tool_remove(self._session, name.encode(), self._err), self._error)
            self._offered.pop(name)[1].release()
        for name, given in self.tools.items():
            if name in self._offered:
                continue
            bound = _tools.Bound(_tools.make(name, given), self._engine, self._tool_threads, self._id)
            try:
                check(quick.droste_session_tool_add(self._session, *bound.texts(), _tools.on_tool, bound.id,
                                                    self._err), self._error)
            except Error:
                bound.release()
                raise
            self._offered[name] = given, bound

    def _expect_fields(self) -> None:
        """Tells the session which fields are to be submitted, if that has changed."""
        schema = schema_of_fields(self.output_fields)
        if schema != self._expected:
            check(quick.droste_session_expect(self._session, schema, self._err), self._error)
            self._expected = schema


def _close(engine: "_engine.Engine", session: Optional[int], offered: Dict[str, Tuple[Any, _tools.Bound]],
           numbers: List[int]) -> None:
    """Ends a session with all that is its own, and gives its engine back."""
    if engine.handle is not None and session is not None:
        with engine.lock:
            lib.droste_session_close(session)
    for _, bound in offered.values():
        bound.release()
    offered.clear()
    while numbers:
        _models.models.remove(numbers.pop())
    if engine.loop is not None:
        engine.kick()
        _engine.give_from_loop(engine)
    else:
        _engine.give(engine)


def seconds(timeout: Optional[float]) -> float:
    """A cell's own deadline, as the library has it; negative: none of its own."""
    if timeout is None:
        return -1.0
    try:
        given = float(timeout)
    except (TypeError, ValueError, OverflowError):
        given = math.nan
    if not given >= 0:
        raise ArgumentError("a timeout is a number of seconds, or 0 for none, not %r" % (timeout,))
    return given if given < math.inf else 0.0


def schema_of_fields(fields: Optional[Sequence[Any]]) -> Optional[bytes]:
    """A JSON schema from names, or from {"name": …, "type": one of Python's} as dspy has them."""
    if not fields:
        return None
    properties: Dict[str, Any] = {}
    for field in fields:
        name = field["name"] if isinstance(field, Mapping) else str(field)
        kind = field.get("type") if isinstance(field, Mapping) else None
        properties[check_name(name)] = {"type": JSON_TYPES[kind]} if kind in JSON_TYPES else {}
    return to_json({"type": "object", "properties": properties, "required": list(properties)})


JSON_TYPES = {"str": "string", "int": "integer", "float": "number", "bool": "boolean", "list": "array",
              "dict": "object", "NoneType": "null"}

_listeners: Dict[int, Tuple[Callable[[int, str], None], Any]] = {}


@_library.OutputFn
def _on_output(arg: int, stream: int, address: int, length: int) -> None:
    found = _listeners.get(arg)
    if found is None:
        return
    listener, engine = found
    try:
        listener(stream, _library.text_at(address, length))
    except BaseException as e:
        engine.failed(e)
