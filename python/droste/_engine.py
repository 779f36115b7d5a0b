"""Engines: a `droste` of the C library, with its event loop and its warm zygotes.

A `droste` belongs to one thread at a time, but may move. So idle ones stand on a shelf of the
process: whoever works without asyncio takes one that fits, has it alone under its lock, and gives
it back. Of asyncio, each running loop has one for all: its descriptor is watched by the loop. After
a fork the child has none: what the parent has is let go of, unharmed.
"""
from __future__ import annotations

import asyncio
import atexit
import collections
import contextvars
import ctypes
import itertools
import os
import queue
import threading
import weakref
from typing import Any, Callable, Deque, Dict, List, Optional, Tuple

from . import _library
from ._library import lib, quick
from .errors import Error, check

SHELF_MOST = 16         # idle engines that are kept
SLICE_MS = 50           # the main thread lets Python's signal handlers run this often
THREADS = 64            # for models, and for tools within asyncio

ids = itertools.count(1)


class Engine:
    """One `droste`. Whoever uses it holds `lock`, or is in the loop's thread."""

    def __init__(self, key: Tuple[Any, ...]):
        handle = ctypes.c_void_p()
        self.key = key
        self.error = _library.Error()
        self.err = ctypes.byref(self.error)
        check(lib.droste_new(ctypes.byref(handle), self.err), self.error)
        self.handle: Optional[int] = handle.value
        self.lock = threading.RLock()
        self.loop: Optional[asyncio.AbstractEventLoop] = None
        self.users = 0              # of a loop's engine
        # raised in a callback, for whoever waits
        self.interrupt: Optional[BaseException] = None
        self.inside = False         # within a function of the library's that calls back
        self.single = False         # it is of one run alone: not for the shelf
        self.held_up = False        # somebody waits in the loop's thread without `await`
        self._posts: Deque[Callable[[], None]] = collections.deque()
        self._guard = threading.RLock()     # of `handle`, for other threads
        self._kicked = False
        self.id = next(ids)
        _engines[self.id] = self
        try:
            check(lib.droste_configure(self.handle, None, self.err), self.error)
        except Error:
            self.free()
            raise

    def failed(self, failure: BaseException) -> None:
        """A function of the program raised where the library called it: for whoever waits."""
        if self.loop is not None:
            self.loop.call_exception_handler({"message": "in a callback of Droste's", "exception": failure})
        else:
            self.interrupt = failure
            self.post(lambda: None)     # the wait ends

    def raise_failure(self) -> None:
        """What a callback raised, in the thread that waits."""
        failure, self.interrupt = self.interrupt, None
        if failure is not None:
            raise failure

    def alive(self) -> int:
        """The handle; an error in a process that was forked from the engine's."""
        if self.handle is None:
            raise Error("this belongs to the process that this one was forked from, or is closed; make a new one")
        return self.handle

    def free(self) -> None:
        with self._guard:
            handle, self.handle = self.handle, None
        if handle is not None:
            self.drain()
            lib.droste_free(handle)

    # -- what other threads have to say

    def post(self, work: Callable[[], None]) -> None:
        """Has the engine's thread do this soon; from any thread."""
        self._posts.append(work)
        with self._guard:
            if self.handle is not None:
                # a loop that watches the descriptor sees that, too
                quick.droste_wake(self.handle)

    def post_answer(self, call: int, data: bytes) -> None:
        """Of a tool's call; in the library, so that its thread need not come back to Python for
        it."""
        error = _library.Error()
        with self._guard:
            if self.handle is not None:
                check(quick.droste_tool_post_answer(self.handle, call, data, len(data), ctypes.byref(error)), error)

    def post_failure(self, call: int, name: bytes, message: bytes) -> None:
        error = _library.Error()
        with self._guard:
            if self.handle is not None:
                check(quick.droste_tool_post_failure(self.handle, call, name, message, ctypes.byref(error)), error)

    def drain(self) -> None:
        while self._posts:
            self._posts.popleft()()

    # -- within asyncio

    def watch(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        loop.add_reader(check(quick.droste_fd(self.alive(), self.err), self.error), self.dispatch)

    def unwatch(self) -> None:
        loop, self.loop = self.loop, None
        if loop is not None and not loop.is_closed():
            loop.remove_reader(quick.droste_fd(self.alive(), self.err))

    def kick(self) -> None:
        """Something was started: the descriptor is to be settled before the loop waits for it."""
        if not self._kicked and self.loop is not None and not self.loop.is_closed():
            self._kicked = True
            self.loop.call_soon(self.dispatch)

    def dispatch(self) -> None:
        self._kicked = False
        if self.handle is not None:
            with self.lock:
                self.drain()
                if self.loop is None:       # it was given back: its last session was forgotten
                    return
                try:
                    self.inside = True
                    lib.droste_dispatch(self.handle, self.err)
                finally:
                    self.inside = False
            if self._posts:     # they came meanwhile, and the descriptor may be settled
                self.kick()

    def running_loop(self) -> Optional[asyncio.AbstractEventLoop]:
        """The loop that coroutines can run on; None where there is none, or it is held up, or is
        that of all sessions."""
        loop = self.loop
        if loop is None or self.held_up or not loop.is_running():
            return None
        return None if "sessions" in _threads and loop is _threads["sessions"].loop else loop

    # -- without

    def slice_ms(self) -> int:
        """For how long the C library may wait at once."""
        return SLICE_MS if threading.get_ident() == _main[0] else -1


#: whose `_lock` a thread may have at a fork
holders: "weakref.WeakSet[Any]" = weakref.WeakSet()
_engines: "weakref.WeakValueDictionary[int, Engine]" = weakref.WeakValueDictionary()
_shelf: List[Engine] = []
# Locks may be taken again by their thread: where memory is allocated, an interpreter may be
# collected.
_shelf_lock = threading.RLock()
_of_loops: "weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Dict[Tuple[Any, ...], Engine]]" = (
    weakref.WeakKeyDictionary())
_main = [threading.main_thread().ident]


def by_id(number: int) -> Optional[Engine]:
    """The engine of that number, unless it is gone."""
    return _engines.get(number)


def take(key: Tuple[Any, ...]) -> Engine:
    """An engine for this one alone."""
    with _shelf_lock:
        for at in range(len(_shelf) - 1, -1, -1):       # the last one used is the warmest
            if _shelf[at].key == key:
                return _shelf.pop(at)
    return Engine(key)


def give(engine: Engine) -> None:
    """It is idle."""
    if engine.handle is None:
        return
    engine.drain()
    engine.interrupt = None
    if engine.single:
        engine.free()
        return
    with _shelf_lock:
        _shelf.append(engine)
        surplus = _shelf.pop(0) if len(_shelf) > SHELF_MOST else None
    if surplus:
        surplus.free()


def take_for_loop(loop: asyncio.AbstractEventLoop, key: Tuple[Any, ...]) -> Engine:
    """The engine of all that run in this loop with this key."""
    engines = _of_loops.setdefault(loop, {})
    engine = engines.get(key)
    if engine is None or engine.handle is None:
        engine = engines[key] = take(key)
        engine.watch(loop)
    engine.users += 1
    return engine


def is_there(loop: asyncio.AbstractEventLoop, key: Tuple[Any, ...]) -> bool:
    """A session of this loop finds an engine that has been used, and is warm."""
    engine = _of_loops.get(loop, {}).get(key)
    with _shelf_lock:
        return engine is not None and engine.handle is not None or any(idle.key == key for idle in _shelf)


def give_from_loop(engine: Engine) -> None:
    engine.users -= 1
    if engine.users > 0 or engine.handle is None:
        return
    loop = engine.loop
    engine.unwatch()
    if loop is not None:
        _of_loops.get(loop, {}).pop(engine.key, None)
    give(engine)


def clear_shelf() -> None:
    """Ends all idle engines, and with them their zygotes."""
    with _shelf_lock:
        idle, _shelf[:] = list(_shelf), []
    for engine in idle:
        engine.free()


# -- threads

class Helper:
    """A thread with an event loop."""

    def __init__(self, name: str) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, name=name, daemon=True)
        self.thread.start()

    def run(self, coroutine: Any, context: contextvars.Context) -> "asyncio.Future[Any]":
        return context.run(asyncio.run_coroutine_threadsafe, coroutine, self.loop)  # type: ignore


_threads: Dict[str, Any] = {}
_threads_lock = threading.RLock()


def _thread(name: str, make: Callable[[str], Any]) -> Any:
    with _threads_lock:
        if name not in _threads:
            _threads[name] = make("droste-" + name)
        return _threads[name]


def helper() -> Helper:
    """For coroutines of those who have no loop running."""
    return _thread("asyncio", Helper)


def sessions() -> Helper:
    """For sessions that many callers wait for (_shared.py); coroutines of the program do not hold
    it up."""
    return _thread("sessions", Helper)


class Workers:
    """Threads for functions that may take their time: as many as are at work at once, up to a
    limit. A ThreadPoolExecutor spends 20 µs on a future for each, for which nothing here waits; and
    at the end of the process it waits for them all."""

    def __init__(self, name: str):
        self._name = name
        self._works: "queue.SimpleQueue[Callable[[], Any]]" = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._count = 0
        self._free = 0      # threads that wait for work, less what waits for a thread

    def submit(self, work: Callable[[], Any]) -> None:
        """`work` tells of its own failures."""
        with self._lock:
            self._free -= 1
            starts = self._free < 0 and self._count < THREADS
            if starts:
                self._count, self._free = self._count + 1, self._free + 1
                name = "%s_%d" % (self._name, self._count)
        self._works.put(work)
        if starts:
            threading.Thread(target=self._work, name=name, daemon=True).start()

    def _work(self) -> None:
        while True:
            work = self._works.get()
            work()
            del work
            with self._lock:
                self._free += 1


def workers(name: str) -> Workers:
    return _thread(name, Workers)


# -- forks

def _before_fork() -> None:
    _shelf_lock.acquire()
    _threads_lock.acquire()


def _after_in_parent() -> None:
    _threads_lock.release()
    _shelf_lock.release()


def _after_in_child() -> None:
    global _shelf_lock, _threads_lock
    _shelf_lock, _threads_lock = threading.RLock(), threading.RLock()
    for engine in list(_engines.values()):
        if engine.handle is not None:
            quick.droste_forked(engine.handle)
        engine.handle = engine.loop = None
        engine.lock, engine._guard = threading.RLock(), threading.RLock()
        engine._posts.clear()
        engine.inside = engine.held_up = False
    for holder in list(holders):
        holder._lock = type(holder._lock)(holder)
    _shelf.clear()
    _of_loops.clear()
    _threads.clear()
    _main[0] = threading.get_ident()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_in_parent,
                        after_in_child=_after_in_child)
atexit.register(clear_shelf)
