"""A session's lock that detects deadlocks with the session's own tools.

While a tool runs, its session is busy. A tool that uses its own session is detected by its context
(_tools.calling), but a plain thread has no such context: a thread that the tool started and waits
for would wait forever. Unrelated threads have to wait their turn, so detection needs evidence: the
tool waits for a thread, future, event or queue that the current thread is, completes or can signal.
Only a thread that has waited for LOOK_SECONDS inspects the stacks of both.
"""
from __future__ import annotations

import asyncio
import concurrent.futures
import gc
import queue
import sys
import threading
import weakref
from types import FrameType
from typing import Any, Iterable, Iterator, List, Optional, Set

from . import _tools
from .errors import Error

LOOK_SECONDS = 0.2
THINGS_MOST = 10000     # in one container, and in total

FUTURES = (concurrent.futures.Future, asyncio.Future)
SIGNALS = (threading.Event, threading.Condition, threading.Semaphore, threading.Barrier,
           queue.Queue, queue.SimpleQueue)
WAITERS = tuple(module.__file__ for module in (threading, queue, concurrent.futures._base))


class Turn:
    """A reentrant lock whose waiters raise Error in case of a deadlock with a tool."""

    def __init__(self, owner: Any):
        self._owner, self._lock = weakref.ref(owner), threading.RLock()     # weak: no cycle
        self.thread: Optional[int] = None       # the last thread that acquired it

    def __enter__(self) -> None:
        if not self._lock.acquire(False):
            while not self._lock.acquire(timeout=LOOK_SECONDS):
                self._owner()._refuse_what_a_tool_waits_for(self.thread)
        self.thread = threading.get_ident()

    def __exit__(self, *error: Any) -> None:
        self._lock.release()


def refuse(session: int, holder: Optional[int] = None) -> None:
    """Raises Error if a tool of the session waits for this thread.

    `holder` is the thread that holds the session's lock and may be running a tool.
    """
    if holder is None and not _tools.in_threads(session) and not _tools.coroutines(session):
        return
    mine = _held_here()
    for tool, waited_for in _tools_at_work(session, holder):
        if mine & waited_for:
            raise Error("a tool%s waits for this thread, so the thread cannot use the session "
                        "whose code called the tool: each would wait for the other" % tool)


def _tools_at_work(session: int, holder: Optional[int]) -> Iterator[Any]:
    """Yields (description, ids of awaited objects) for each running tool."""
    frames = sys._current_frames()
    if holder in frames:
        yield "", _waited_for(_of_tool(frames[holder]))
    for bound, thread in _tools.in_threads(session):
        if thread in frames:
            yield " ('%s')" % bound.tool.name, _waited_for(_of_tool(frames[thread]))
    for bound, coroutine in _tools.coroutines(session):
        yield " ('%s')" % bound.tool.name, _behind([coroutine])


def _of_tool(frame: Optional[FrameType]) -> List[FrameType]:
    """Returns the frames of a thread within a tool, innermost first; [] outside of tools."""
    found = []
    while frame is not None and frame.f_code is not _tools.Tool.call.__code__:
        found.append(frame)
        frame = frame.f_back
    return found if frame is not None else []


def _flat(values: Iterable[Any]) -> Iterator[Any]:
    """Yields the values and the members of containers among them, one level deep."""
    for value in values:
        yield value
        if isinstance(value, dict):
            value = list(value.values())
        if isinstance(value, (list, tuple, set, frozenset)) and len(value) <= THINGS_MOST:
            yield from list(value)


def _waited_for(frames: List[FrameType]) -> Set[int]:
    found: Set[int] = set()
    things: List[Any] = []
    for frame in frames:
        if frame.f_code.co_filename in WAITERS and isinstance(frame.f_locals.get("self"), SIGNALS):
            found.add(id(frame.f_locals["self"]))
        for value in _flat(list(frame.f_locals.values())):
            if isinstance(value, (threading.Thread,) + FUTURES):
                found.add(id(value))
                things.append(value)
            elif isinstance(value, asyncio.AbstractEventLoop) and value.is_running():
                # asyncio.run() in a tool
                things.extend(asyncio.all_tasks(value))
    return found | _behind(things)


def _behind(things: List[Any]) -> Set[int]:
    """Returns the ids of all futures that these futures, tasks and coroutines wait for."""
    found: Set[int] = set()
    todo, seen = list(things), set()
    while todo and len(seen) < THINGS_MOST:
        thing = todo.pop()
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        if isinstance(thing, FUTURES):
            found.add(id(thing))
        if isinstance(thing, asyncio.Task):
            todo.append(thing.get_coro())
        if isinstance(thing, asyncio.Future):
            todo.extend(getattr(thing, "_children", ()))
            # The callback of asyncio.wrap_future() refers to the wrapped future.
            for callback, _ in getattr(thing, "_callbacks", None) or ():
                todo.extend(cell.cell_contents
                            for cell in getattr(callback, "__closure__", None) or ())
        frame = getattr(thing, "cr_frame", None)
        if frame is not None:
            todo.extend(value for value in _flat(list(frame.f_locals.values()))
                        if isinstance(value, FUTURES))
            todo.append(thing.cr_await)
        elif type(thing).__name__ == "FutureIter":
            todo.extend(gc.get_referents(thing))
    return found


def _held_here() -> Set[int]:
    """Returns the ids of this thread, the futures it completes and what it can signal."""
    found = {id(threading.current_thread())}
    frame: Optional[FrameType] = sys._getframe()
    while frame is not None:
        for value in frame.f_locals.values():
            work = getattr(value, "future", None) if type(value).__name__ == "_WorkItem" else value
            if isinstance(work, FUTURES + SIGNALS):
                found.add(id(work))
        frame = frame.f_back
    return found
