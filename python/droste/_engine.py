"""Engines: instances of the C library's `droste`, each with an event loop and warm zygotes.

One thread at a time may use a `droste`. Synchronous callers borrow an idle engine with the same
key, use it alone under its lock, and return it. Each asyncio loop has one engine per key, shared by
all its sessions; the loop watches the engine's descriptor. After a fork, the child drops all
engines without touching the parent's sandboxes.
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
import sys
import threading
import weakref
from typing import Any, Callable, Deque, Dict, List, Optional, Tuple

from . import _library
from ._library import lib, quick
from .errors import Error, check

IDLE_MAX = 16           # idle engines that are kept
SLICE_MS = 50           # longest wait of the main thread without running signal handlers
THREADS = 64            # per pool: models, and tools within asyncio

ids = itertools.count(1)


Pairs = List[Tuple[str, Any]]


def own_python() -> Optional[str]:
    """Returns this program's interpreter, if a sandbox can run it: CPython as a program of its own.

    In a host that embeds Python, `sys.executable` may be the host.
    """
    path = sys.executable or ""
    usable = sys.implementation.name == "cpython" and os.path.basename(path).startswith("python")
    return path if usable else None


class Engine:
    """One `droste`. Callers hold `lock` or run in the loop's thread."""
    is_remote = False

    def __init__(self, key: Tuple[Any, ...]):
        handle = ctypes.c_void_p()
        self.key = key
        self.error = _library.Error()
        self.err = ctypes.byref(self.error)
        check(lib.droste_new(ctypes.byref(handle), self.err), self.error)
        self.handle: Optional[int] = handle.value
        self.lock = threading.RLock()
        self.loop: Optional[asyncio.AbstractEventLoop] = None
        self.users = 0              # sessions and runs, for a loop's engine
        # exception raised in a callback, for the waiting caller
        self.interrupt: Optional[BaseException] = None
        self.inside = False         # within a library function that may call back
        self.single = False         # belongs to one run; free it instead of keeping it
        self.held_up = False        # a caller blocks the loop's thread
        self._posts: Deque[Callable[[], None]] = collections.deque()
        self._guard = threading.RLock()     # protects `handle` from other threads
        self._kicked = False
        self.id = next(ids)
        _engines[self.id] = self        # until free()
        try:
            check(lib.droste_configure(self.handle, None, self.err), self.error)
        except Error:
            self.free()
            raise
        self._python = None if quick.droste_get(self.handle, b"python") else own_python()
        self._environment = (quick.droste_get(self.handle, b"env") or b"local").decode()

    def settings(self, pairs: Pairs) -> Pairs:
        """Adds this program's interpreter for a local sandbox, where no setting names another."""
        explicit = dict(pairs)
        if (self._python is None or "python" in explicit
            or explicit.get("env", self._environment) != "local"):
            return pairs
        return [*pairs, ("python", self._python)]

    def failed(self, failure: BaseException) -> None:
        """Reports an exception that a callback raised: to the loop, or to the waiting caller."""
        if self.loop is not None:
            self.loop.call_exception_handler({"message": "in a callback of Droste's",
                                              "exception": failure})
        else:
            self.interrupt = failure
            self.post(lambda: None)     # ends the wait

    def raise_failure(self) -> None:
        """Raises a callback's exception in the thread that waits."""
        failure, self.interrupt = self.interrupt, None
        if failure is not None:
            raise failure

    def alive(self) -> int:
        """Returns the handle; raises Error in a forked process or after free()."""
        if self.handle is None:
            raise Error("this object is closed, or belongs to the parent process of a fork; "
                        "create a new one")
        return self.handle

    def free(self) -> None:
        with self._guard:
            handle, self.handle = self.handle, None
        if handle is not None:
            self.drain()
            lib.droste_free(handle)
        _engines.pop(self.id, None)

    # -- calls from other threads

    def post(self, work: Callable[[], None]) -> None:
        """Schedules work in the engine's thread; safe in any thread."""
        self._posts.append(work)
        with self._guard:
            if self.handle is not None:
                # also makes the descriptor readable for a loop
                quick.droste_wake(self.handle)

    def post_answer(self, call: int, data: bytes) -> None:
        """Answers a tool call from any thread; the library's thread need not run Python code."""
        error = _library.Error()
        with self._guard:
            if self.handle is not None:
                check(quick.droste_tool_post_answer(self.handle, call, data, len(data),
                                                    ctypes.byref(error)), error)

    def post_failure(self, call: int, name: bytes, message: bytes) -> None:
        error = _library.Error()
        with self._guard:
            if self.handle is not None:
                check(quick.droste_tool_post_failure(self.handle, call, name, message,
                                                     ctypes.byref(error)), error)

    # -- calls of the code in a sandbox, in the engine's thread

    def answer(self, call: int, data: bytes, values: Optional[bytes]) -> None:
        """Answers a tool call with JSON and, if JSON does not keep it, a typed value."""
        if values is None:
            quick.droste_tool_answer(call, data, len(data))
        else:
            quick.droste_tool_answer_values(call, data, len(data), values, len(values))

    def fail(self, call: int, name: bytes, message: bytes) -> None:
        quick.droste_tool_fail(call, name, message)

    def on_cancel(self, call: int, function: Any) -> None:
        quick.droste_tool_on_cancel(call, function, None)

    def answer_model(self, call: int, text: bytes) -> None:
        quick.droste_answer(call, text, len(text))

    def refuse_model(self, call: int, why: bytes) -> None:
        quick.droste_refuse(call, why)

    def use_models(self, function: Any) -> None:
        """Has `function` called for calls of models that are functions of this program."""
        quick.droste_set_model(self.alive(), function, self.id)

    def drain(self) -> None:
        while self._posts:
            self._posts.popleft()()

    def do_if_free(self, work: Callable[[], Any]) -> bool:
        """Does the work of a finalizer unless the engine is in use; returns whether it did.

        A finalizer runs in any thread, also in one for which the engine's thread waits. What is
        left is posted.
        """
        if (self.loop is not None and not self.loop.is_closed() or self.inside
            or not self.lock.acquire(blocking=False)):
            return False
        try:
            work()
        finally:
            self.lock.release()
        return True

    # -- within asyncio

    def watch(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        loop.add_reader(check(quick.droste_fd(self.alive(), self.err), self.error), self.dispatch)

    def unwatch(self) -> None:
        loop, self.loop = self.loop, None
        if loop is not None and not loop.is_closed():
            loop.remove_reader(quick.droste_fd(self.alive(), self.err))

    def kick(self) -> None:
        """Schedules dispatch() after an operation was started, before the loop waits again."""
        if not self._kicked and self.loop is not None and not self.loop.is_closed():
            self._kicked = True
            self.loop.call_soon(self.dispatch)

    def dispatch(self) -> None:
        self._kicked = False
        if self.handle is not None:
            with self.lock:
                self.drain()
                if self.loop is None:       # given back by the last session
                    return
                try:
                    self.inside = True
                    lib.droste_dispatch(self.handle, self.err)
                finally:
                    self.inside = False
            if self._posts:     # posted meanwhile; the descriptor may be quiet already
                self.kick()

    def running_loop(self) -> Optional[asyncio.AbstractEventLoop]:
        """Returns the loop for coroutines of the program.

        Returns None without a running loop, while a caller blocks it, and for the loop that shared
        sessions use.
        """
        loop = self.loop
        if loop is None or self.held_up or not loop.is_running():
            return None
        return None if "sessions" in _threads and loop is _threads["sessions"].loop else loop

    # -- without asyncio

    def slice_ms(self) -> int:
        """Returns how long the C library may wait per call, in milliseconds; -1 means no limit."""
        return SLICE_MS if threading.get_ident() == _main[0] else -1


#: objects whose `_lock` a thread may hold during a fork
holders: "weakref.WeakSet[Any]" = weakref.WeakSet()
# Not weak: when the collector finds a session and its engine in a cycle, it clears weak references
# before the session's finalizer gives the engine back.
_engines: Dict[int, Engine] = {}
_idle: List[Engine] = []
# Reentrant locks: any allocation may collect an interpreter, whose finalizer takes them again.
_idle_lock = threading.RLock()
_of_loops: "weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Dict[Tuple[Any, ...], Engine]]" = (
    weakref.WeakKeyDictionary())
_main = [threading.main_thread().ident]


def by_id(number: int) -> Optional[Engine]:
    """Returns the engine with this number, or None."""
    return _engines.get(number)


def take(key: Tuple[Any, ...]) -> Engine:
    """Takes an idle engine with this key, or creates one."""
    with _idle_lock:
        for at in range(len(_idle) - 1, -1, -1):       # the most recently used is the warmest
            if _idle[at].key == key:
                return _idle.pop(at)
    return Engine(key)


def give(engine: Engine) -> None:
    """Returns an idle engine."""
    if engine.handle is None:
        return
    engine.drain()
    engine.interrupt = None
    if engine.single:
        engine.free()
        return
    with _idle_lock:
        _idle.append(engine)
        surplus = _idle.pop(0) if len(_idle) > IDLE_MAX else None
    if surplus:
        surplus.free()


def take_for_loop(loop: asyncio.AbstractEventLoop, key: Tuple[Any, ...]) -> Engine:
    """Returns the engine that all sessions of this loop with this key share."""
    engines = _of_loops.setdefault(loop, {})
    engine = engines.get(key)
    if engine is None or engine.handle is None:
        engine = engines[key] = take(key)
        engine.watch(loop)
    engine.users += 1
    return engine


def is_there(loop: asyncio.AbstractEventLoop, key: Tuple[Any, ...]) -> bool:
    """Whether a session of this loop would find a warm engine."""
    engine = _of_loops.get(loop, {}).get(key)
    with _idle_lock:
        warm = engine is not None and engine.handle is not None
        return warm or any(idle.key == key for idle in _idle)


def give_from_loop(engine: Engine) -> None:
    engine.users -= 1
    if engine.users > 0 or engine.handle is None:
        return
    loop = engine.loop
    engine.unwatch()
    if loop is not None:
        _of_loops.get(loop, {}).pop(engine.key, None)
    give(engine)


def close_idle_engines() -> None:
    """Ends all idle engines, and with them their zygotes."""
    with _idle_lock:
        idle, _idle[:] = list(_idle), []
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
    """Returns the loop thread for coroutines of callers without a running loop."""
    return _thread("asyncio", Helper)


def sessions() -> Helper:
    """Returns the loop thread of shared sessions (_shared.py).

    Separate from helper(), so that coroutines of the program cannot block it.
    """
    return _thread("sessions", Helper)


class Workers:
    """A thread pool of at most THREADS daemon threads, started on demand.

    concurrent.futures.ThreadPoolExecutor takes 20 µs per call for a future that nothing here needs,
    and waits for all its threads at exit.
    """

    def __init__(self, name: str):
        self._name = name
        self._works: "queue.SimpleQueue[Callable[[], Any]]" = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._count = 0
        self._free = 0      # idle threads minus queued work

    def submit(self, work: Callable[[], Any]) -> None:
        """Queues `work`, which must handle its own exceptions."""
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
    _idle_lock.acquire()
    _threads_lock.acquire()


def _after_in_parent() -> None:
    _threads_lock.release()
    _idle_lock.release()


def _after_in_child() -> None:
    global _idle_lock, _threads_lock
    _idle_lock, _threads_lock = threading.RLock(), threading.RLock()
    for engine in list(_engines.values()):
        if engine.handle is not None:
            quick.droste_forked(engine.handle)
        engine.handle = engine.loop = None
        engine.lock, engine._guard = threading.RLock(), threading.RLock()
        engine._posts.clear()
        engine.inside = engine.held_up = False
    _engines.clear()
    for holder in list(holders):
        holder._lock = type(holder._lock)(holder)
    _idle.clear()
    _of_loops.clear()
    _threads.clear()
    _main[0] = threading.get_ident()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_in_parent,
                        after_in_child=_after_in_child)
atexit.register(close_idle_engines)
