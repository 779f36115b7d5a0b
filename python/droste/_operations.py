"""Operations of a session: sequences of asynchronous steps of the C library.

Without asyncio, the caller that starts a step waits for its end. On a loop, operations are queued;
the library reports the end of a step (`_on_done`), which starts the next one.
"""
from __future__ import annotations

import asyncio
import collections
import contextvars
import ctypes
import warnings
import weakref
from asyncio import _get_running_loop  # type: ignore
from typing import Any, Callable, Deque, Generator, Generic, List, Optional, TypeVar

from . import _engine, _library, _reentry, _tools
from ._library import lib, quick
from .errors import Cancelled, CellFailed, Error, check, of
from .result import Result

T = TypeVar("T")
OPENING_CANCELLED = "opening the session was cancelled; create a new interpreter"
ELSEWHERE = ("this interpreter belongs to another running event loop; use it there, or create one "
             "here")


class Done(Generic[T]):
    """An awaitable that is already done."""
    __slots__ = ("value",)

    def __init__(self, value: T):
        self.value = value

    def __await__(self) -> Generator[Any, None, T]:
        return self.value
        yield


def free_result(handle: Any) -> None:
    if handle and type(handle) is int:      # a server's is a dict
        quick.droste_result_free(handle)


def settle(future: "asyncio.Future[Any]", failure: Optional[BaseException] = None) -> None:
    """Completes a future; ignores that callbacks cannot run if its loop is closed."""
    try:
        if failure is None:
            future.set_result(None)
        else:
            future.set_exception(failure)
    except RuntimeError:
        if not future.get_loop().is_closed():
            raise


class Operation:
    """A sequence of steps on an asyncio loop; each step starts something in the C library.

    The operation of a cell has the cell's `code`, and warns if the cell fails and its result is
    never read.
    """

    def __init__(self, owner: "Operations", steps: List[Callable[[], int]],
                 code: Optional[str] = None):
        self.owner, self.steps, self.code = owner, collections.deque(steps), code
        self.future = owner._engine.loop.create_future()  # type: ignore
        self.future.add_done_callback(self._settled)
        self.context = contextvars.copy_context()
        self.handle: Any = None

    def _settled(self, future: "asyncio.Future[Any]") -> None:
        if future.cancelled():
            self.owner._give_up(self)

    @property
    def done(self) -> bool:
        return self.future.done()

    @property
    def failure(self) -> Optional[BaseException]:
        """The reason of the failure, or None; only valid when `done`."""
        return Cancelled(OPENING_CANCELLED) if self.future.cancelled() else self.future.exception()

    async def wait(self) -> None:
        self.code = None        # the result is read: no warning
        if not self.future.done():
            self.owner._refuse_own_tools()
        await self.future

    def finish(self) -> int:
        """Returns the handle of the result; blocks if the operation is not done."""
        self.code = None
        if not self.future.done():
            self.owner._refuse_own_tools()
            self.owner._wait_here(self)
        self.future.result()
        handle, self.handle = self.handle, None
        return handle  # type: ignore

    def __del__(self) -> None:
        handle, self.handle = self.handle, None
        if self.code is not None and self.future.done() and not self.future.cancelled():
            failure = self.future.exception()
            result = self.owner._result_of(handle) if handle else None
            if failure is None and result is not None and not result.ok:
                failure = CellFailed(str(result.error or result.status))
            if failure is not None and not isinstance(failure, Cancelled):
                warnings.warn("a cell failed, and its result was never read: %s (the cell: %s)"
                              % (failure, _beginning(self.code)), RuntimeWarning, stacklevel=2)
            return      # the result frees the handle
        free_result(handle)


def _beginning(code: str) -> str:
    """Returns the repr of the first non-blank line, cut to 60 characters."""
    line = next((line for line in code.splitlines() if line.strip()), "").strip()
    return repr(line if len(line) <= 60 else line[:60] + "...")


class Operations:
    """The operations of a session; the subclass that opens it sets `_engine` and `_session`."""

    def __init__(self) -> None:
        self._session: Optional[int] = None
        self._engine: Any = None
        self._queue: Deque[Operation] = collections.deque()
        self._current: Optional[Operation] = None
        self._opening: Optional[Operation] = None       # the opening, which precedes all cells
        self._under_way = False     # without asyncio; a second Ctrl-C may leave it true
        self._turns = 0             # operations started
        self._error = _library.Error()
        self._err = ctypes.byref(self._error)
        self._out = ctypes.c_void_p()
        self._out_ref = ctypes.byref(self._out)
        self._id = 0

    @staticmethod
    def _result_of(handle: Any) -> Result:
        return Result(handle)

    def _refuse_own_tools(self) -> None:
        if self._id in _tools.calling.get():
            raise Error("a tool cannot use the session whose code called it: each would wait for "
                        "the other")

    def _refuse_what_a_tool_waits_for(self, holder: Optional[int] = None) -> None:
        """Raises Error if a tool of this session waits for the current thread."""
        _reentry.refuse(self._id, holder)

    def _runs_on_loop(self) -> List[str]:
        """Returns the names of tools and models that run as tasks for the session's code."""
        return []

    def _use_context(self, context: contextvars.Context) -> None:
        """Called before an operation starts; its callbacks run in `context`."""

    def _forget_sent(self) -> None:
        """Called after a failed step: the guest's variables are no longer known."""

    def _tell_ends(self) -> None:
        """On a loop: has the library report the ends of steps until `_tell_no_more`."""
        _listeners[self._id] = self
        quick.droste_session_on_done(self._session, _on_done, self._id)

    def _tell_no_more(self) -> None:
        _listeners.pop(self._id, None)

    # -- without asyncio: start, and wait

    def _run(self, start: Callable[[], int]) -> Optional[int]:
        with self._engine.lock:
            rc = start()
            if rc < 0:
                check(rc, self._error)
            return self._finish_here()

    def _finish_here(self) -> Optional[int]:
        """Waits for the started step; returns the handle of its result."""
        engine, ms = self._engine, self._engine.slice_ms()
        try:
            engine.inside = self._under_way = True
            rc = lib.droste_session_wait(self._session, ms, self._out_ref, self._err)
            while rc == 1:
                engine.drain()
                engine.raise_failure()
                rc = lib.droste_session_wait(self._session, ms, self._out_ref, self._err)
        except BaseException:       # Ctrl-C: stop the cell first
            self._stop_here()
            raise
        finally:
            engine.inside = False
        self._under_way = False
        if engine.interrupt is not None:
            free_result(self._out.value)
            engine.raise_failure()
        if rc < 0:
            check(rc, self._error)
        return self._out.value

    def _stop_here(self) -> None:
        """Stops the current step and discards its result.

        If this is interrupted, too, the next operation completes it.
        """
        if self._session is None or self._engine.handle is None:
            return
        try:
            self._engine.inside = True
            quick.droste_session_interrupt(self._session)
            rc = 1
            while rc == 1:
                rc = lib.droste_session_wait(self._session, _engine.SLICE_MS, self._out_ref,
                                             self._err)
                self._engine.drain()
                if rc == 1 and not isinstance(self._engine.interrupt, (Exception, type(None))):
                    self._engine.raise_failure()
            self._under_way = False
        finally:
            self._engine.inside = False
            self._engine.interrupt = None       # raised by callbacks of the stopped cell
        if rc == 0:
            free_result(self._out.value)

    def _finish_step(self, step: Callable[[], int]) -> None:
        """Runs a step before the last one; raises if it fails."""
        try:
            handle = self._run(step)
        except BaseException:
            self._forget_sent()
            raise
        self._check_step(handle)

    def _check_step(self, handle: Any) -> None:
        if handle:
            result = self._result_of(handle)
            if not result.ok:
                self._forget_sent()
                raise CellFailed("the variables could not be bound: %s"
                                 % (result.error or result.status), result)

    # -- within asyncio: operations, one after the other

    def _enqueue(self, steps: List[Callable[[], int]], code: Optional[str] = None) -> Operation:
        running = _get_running_loop()
        loop = self._engine.loop
        if running is not loop and loop.is_running():
            raise Error(ELSEWHERE)
        if loop.is_closed():
            raise Error("the event loop of this interpreter is closed; create a new interpreter")
        operation = Operation(self, steps, code)
        self._queue.append(operation)
        self._advance()
        return operation

    def _advance(self) -> None:
        """Starts queued operations while none is running."""
        while self._current is None and self._queue:
            operation = self._queue.popleft()
            if operation.future.done():
                continue
            self._current = operation
            self._turns += 1
            self._use_context(operation.context)
            if not self._step(operation):
                self._current = None

    def _step(self, operation: Operation) -> bool:
        """Starts the next step. If that fails, fails the operation and returns false."""
        rc = operation.steps.popleft()()
        self._engine.kick()
        if rc >= 0:
            return True
        self._forget_sent()
        if not operation.future.done():
            settle(operation.future, of(self._error))
        return False

    def _step_done(self, handle: Any, failure: Optional[BaseException]) -> None:
        operation, self._current = self._current, None
        if operation is None or operation.future.done():        # cancelled
            free_result(handle)
            self._forget_sent()
        elif failure is not None:
            self._forget_sent()
            settle(operation.future, failure)
        elif operation.steps:
            try:
                self._check_step(handle)
                self._current = operation
                if not self._step(operation):
                    self._current = None
            except Error as e:
                settle(operation.future, e)
        else:
            operation.handle = handle
            settle(operation.future)
        if operation is not None and operation is self._opening and operation.failure is not None:
            self._drop_operations(operation.failure)    # no cell may run without the setup code
        self._advance()

    def _give_up(self, operation: Operation) -> None:
        """Interrupts the cell of a cancelled operation and ignores its result."""
        if (operation is self._current and self._session is not None
            and self._engine.handle is not None):
            quick.droste_session_interrupt(self._session)
            self._engine.kick()

    def _pending(self) -> List[Operation]:
        """Returns unfinished operations in order, without the opening."""
        submitted = ([self._current] if self._current else []) + list(self._queue)
        return [o for o in submitted if o is not self._opening and not o.future.done()]

    def _finish_pending_here(self) -> None:
        pending = self._pending()
        while pending:
            self._wait_here(pending[-1])
            pending = self._pending()

    def _refuse_to_hold_up(self) -> None:
        """Raises Error where blocking the loop's thread could never end."""
        if self._engine.inside:
            raise Error("a callback of the engine (a tool, on_output) cannot wait for a result: "
                        "await it elsewhere")
        waiting_for = self._runs_on_loop()
        if waiting_for:
            raise Error("the session's code waits for %s, which runs on this event loop, and "
                        "reading the "
                        "result without `await` stops the loop: each would wait for the other; "
                        "await "
                        "the result" % ", ".join(waiting_for))

    def _wait_here(self, operation: Operation) -> None:
        """Blocks until the operation is done, for a result that is read without `await`."""
        if self._engine.loop.is_running() and _get_running_loop() is not self._engine.loop:
            raise Error("the cell is running on an event loop of another thread; await it there")
        engine = self._engine
        self._refuse_to_hold_up()
        with engine.lock:
            try:
                engine.inside = engine.held_up = True
                while not operation.future.done():
                    rc = lib.droste_session_wait(self._session, _engine.SLICE_MS, self._out_ref,
                                                 self._err)
                    engine.drain()
                    if rc == 1:
                        continue
                    self._step_done(self._out.value if rc == 0 else None,
                                    of(self._error) if rc < 0 else None)
            except BaseException:       # Ctrl-C
                operation.future.cancel()
                raise
            finally:
                engine.inside = engine.held_up = False
                engine.kick()

    def _drop_operations(self, why: BaseException) -> None:
        waiting = list(self._queue) + ([self._current] if self._current else [])
        self._queue.clear()
        self._current = None
        for operation in waiting:
            if not operation.future.done():
                settle(operation.future, why)
                if operation.code is not None and isinstance(why, Cancelled):
                    operation.future.exception()    # retrieved: asyncio does not log it


_listeners: "weakref.WeakValueDictionary[int, Operations]" = weakref.WeakValueDictionary()


@_library.SessionDoneFn
def _on_done(arg: int, session: int, handle: Optional[int], error: Any) -> None:
    owner = _listeners.get(arg)
    if owner is None:
        free_result(handle)
        return
    owner._step_done(handle, of(error.contents) if error else None)
