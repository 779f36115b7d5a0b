"""Requests to the process beside a session's: how `files` and `commands` wait for their answers.

An operation is a generator of requests (`Steps`). `Blocking` waits for each answer, and `Awaiting`
awaits it.
"""
from __future__ import annotations

import asyncio
import ctypes
import threading
from typing import Any, Callable, Dict, Generator, Optional

from . import _engine, _library, errors
from ._library import lib

LOOK_SECONDS = 0.02         # until a caller looks whether it has to run the loop itself
GAP_SECONDS = 0.001         # between two turns of a caller, in which another operation can begin


class Request:
    """A request of the C library, and its end."""
    #: whether the answer is something that must be closed, so that a caller that is cancelled may
    #: not leave before it is there
    opens = False

    def __init__(self) -> None:
        self.answer: Any = None
        self.failure: Optional[Exception] = None
        self.on_end: Callable[[], None] = lambda: None
        self.id = next(_engine.ids)

    def send(self, session: Any, error: Any) -> int:
        """Calls the library's function; returns what it returns."""
        raise NotImplementedError

    def failure_of(self, error: Any) -> Exception:
        """Creates the exception for an error of the library."""
        return errors.of(error)

    def start(self, owner: Any) -> None:
        """Starts it in the engine's thread."""
        if owner._engine.is_remote:
            owner._engine.work(lambda: self.ask(owner))
            return
        error = _library.Error()
        if owner._session is None or owner._engine.handle is None:
            self.fail(errors.Cancelled("the interpreter was shut down"))
            return
        _requests[self.id] = self
        if self.send(owner._session, ctypes.byref(error)) < 0:
            _requests.pop(self.id, None)
            self.fail(self.failure_of(error))
        owner._engine.kick()

    def ask(self, owner: Any) -> None:
        """Asks the server of a remote session, and ends with its answer; blocks."""
        try:
            self.answer = owner._engine.ask(owner._session, self)
        except Exception as e:
            self.failure = e
        self.on_end()

    def fail(self, failure: Exception) -> None:
        self.failure = failure
        self.on_end()

    def result(self) -> Any:
        if self.failure is not None:
            raise self.failure
        return self.answer


Steps = Generator[Request, Any, Any]
_requests: Dict[int, Request] = {}


def end(id: int, reply: Any, error: Any, answer_of: Callable[[Any], Any]) -> None:
    """Ends a request with a reply or an error, which are valid during the call."""
    request = _requests.pop(id, None)
    if request is None:
        return
    try:
        if error:
            request.failure = request.failure_of(error.contents)
        else:
            request.answer = answer_of(reply.contents)
    except Exception as e:      # without memory
        request.failure = e
    request.on_end()


class _Base:
    def __init__(self, owner: Any):
        self._owner = owner

    def _begin(self) -> Any:
        owner = self._owner
        if owner._session is None:
            raise errors.Error("the session is not open; use `with`, or call start()")
        owner._engine.alive()
        return owner

    async def _answer(self, request: Request) -> Any:
        raise NotImplementedError

    async def _answer_all(self, steps: Steps) -> Any:
        """Answers the requests of `steps`; returns its value."""
        request = None
        try:
            request = next(steps)
            while True:
                try:
                    answer = await self._answer(request)
                except Exception as e:
                    request = steps.throw(e)
                else:
                    request = steps.send(answer)
        except StopIteration as e:
            return e.value
        except Exception:
            raise
        except BaseException as e:      # the caller's task was cancelled, or Ctrl-C
            if request is not None:
                _Unwinding(self._owner, steps, e).begin(request)
            raise


class _Unwinding:
    """Lets steps whose caller has left close what they have opened, without anything that waits.

    The exception is raised where they are; they answer with requests that close, and end.
    """

    def __init__(self, owner: Any, steps: Steps, failure: BaseException):
        self.owner, self.steps, self.failure = owner, steps, failure

    def begin(self, request: Request) -> None:
        if not request.opens:
            self.advance(lambda: self.steps.throw(self.failure))
        elif request.answer is not None or request.failure is not None:
            self.enter(request)
        else:
            request.on_end = lambda: self.enter(request)

    def enter(self, request: Request) -> None:
        """Gives the steps what was opened; one that they would return is closed."""
        try:
            if request.failure is not None:
                self.steps.throw(request.failure)
            self.steps.send(request.answer)
        except StopIteration as e:
            close = getattr(e.value, "_close", None)
            if close is not None:
                self.steps = close()
                self.advance(lambda: next(self.steps))
        except BaseException:
            return
        else:
            self.advance(lambda: self.steps.throw(self.failure))

    def advance(self, step: Callable[[], Request]) -> None:
        try:
            request = step()
        except BaseException:       # the steps have ended
            return
        request.on_end = lambda: self.advance(
            lambda: self.steps.send(request.answer) if request.failure is None
            else self.steps.throw(request.failure))
        self.owner._engine.post(lambda: request.start(self.owner))


class Blocking(_Base):
    """Operations that block."""

    def _ask(self, request: Request) -> Any:
        owner = self._begin()
        if owner._engine.is_remote:
            request.ask(owner)
            return request.result()
        engine, done = owner._engine, threading.Event()
        request.on_end = done.set
        loop = engine.loop
        if loop is not None and asyncio._get_running_loop() is not loop and loop.is_running():
            loop.call_soon_threadsafe(request.start, owner)
            done.wait()
        else:
            runs = self._run(request, done, True)
            if not runs:
                engine.post(lambda: request.start(owner))
            while not done.wait(GAP_SECONDS if runs else LOOK_SECONDS):
                runs = self._run(request, done, False)
        return request.result()

    def _run(self, request: Request, done: threading.Event, starts: bool) -> bool:
        """Runs the loop for a while, or until the end of the request. Returns false if another
        thread runs it."""
        owner, engine = self._owner, self._owner._engine
        lock = owner._lock._lock if engine.loop is None else engine.lock    # as operations do
        if not lock.acquire(False):
            return False
        try:
            if engine.inside:           # the lock is reentrant
                raise errors.Error("a callback of the engine (a tool, on_output) cannot wait for a "
                                   "file or command; use another thread")
            if starts:
                request.start(owner)
            self._turn(engine, done)
        finally:
            lock.release()
        if engine.handle is None and not done.is_set():
            request.fail(errors.Cancelled("the interpreter was shut down"))
        return True

    def _turn(self, engine: _engine.Engine, done: threading.Event) -> None:
        error = _library.Error()
        try:
            engine.inside, engine.held_up = True, engine.loop is not None
            if not done.is_set() and engine.handle is not None:
                errors.check(lib.droste_turn(engine.handle, _engine.SLICE_MS, ctypes.byref(error)),
                             error)
                engine.drain()
        finally:
            engine.inside = engine.held_up = False
            engine.kick()

    async def _answer(self, request: Request) -> Any:
        return self._ask(request)

    def _do(self, steps: Steps) -> Any:
        try:
            self._answer_all(steps).send(None)      # never waits: `_answer` blocks
        except StopIteration as e:
            return e.value
        raise AssertionError("a blocking operation waits")


class Awaiting(_Base):
    """Operations that are coroutines, for a session on the running event loop."""

    async def _answer(self, request: Request) -> Any:
        owner = self._begin()
        loop = asyncio.get_running_loop()
        if owner._engine.is_remote:
            await loop.run_in_executor(None, request.ask, owner)
            return request.result()
        if owner._engine.loop is not loop:
            raise errors.Error("afiles and acommands belong to sessions of this event loop; use "
                               "files and commands")
        future: "asyncio.Future[None]" = loop.create_future()
        request.on_end = lambda: None if future.done() else future.set_result(None)
        request.start(owner)
        await future
        return request.result()

    async def _do(self, steps: Steps) -> Any:
        return await self._answer_all(steps)
