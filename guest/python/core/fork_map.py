"""fork_map(): calls a function in copies of this interpreter, several at a time.

The host drives it (src/broker/fork_map.c): it asks for each fork, has it handle one item as a cell
of its own, and returns all values with the reply to the call.
"""
from __future__ import annotations

import _thread
import os
import sys
from typing import TYPE_CHECKING, Any, Callable, Iterable

from .calls import failure
from .errors import ForkError, Submitted
from .failures import error_of
from .forking import (
    check_forked, fork_process, ForkRefused, IS_COPY, refuse_what_would_vanish)
from .frames import FORK
from .link import open_reply, Waiter
from .session import submit_fields
from .state import state
from droste._encoding.codec import decode_value
from droste._encoding.json_text import read_json

if TYPE_CHECKING:
    from .aliases import Blob, Frame, Head

ITEMS_MAX = 4096        # src/broker/fork_map.c


class ForkTraceback(Exception):
    """The cause of an exception of a fork: its traceback there, as text."""

    def __str__(self) -> str:
        return "\n" + str(self.args[0])


# -- in a fork

def encode_exception(e: BaseException) -> Head:
    import pickle
    about = error_of(e)
    try:
        data = pickle.dumps(e)
        pickle.loads(data)      # some can be written but not read
    except BaseException:
        data = b""
    return dict(about, pickle=data)


def submit_item(function: Callable[[Any], Any], item: Any) -> None:
    """Calls the function, and submits its value or exception."""
    try:
        submit_fields({"value": function(item)})
    except KeyboardInterrupt:
        raise
    except Submitted:
        submit_fields({"raised": encode_exception(RuntimeError(
            "SUBMIT ends a cell, and cannot be used within fork_map; return the value"))})
    except BaseException as e:
        submit_fields({"raised": encode_exception(e)})


def serve_item(function: Callable[[Any], Any], item: Any) -> None:
    """Handles the one operation of a fork, which never returns to the code that called fork_map."""
    try:
        state.link.depth = 0
        state.session.running = None
        state.session.item = lambda: submit_item(function, item)
        while True:
            state.serve(*state.link.next_operation())
    finally:
        os._exit(0)


# -- in the parent

def close_status(status: Blob) -> None:
    if status is not None:
        os.close(status)


class Forking:
    """One call of fork_map."""

    def __init__(self, function: Callable[[Any], Any], items: list[Any]) -> None:
        self.function, self.items = function, items
        self.ident = next(state.link.ids)
        self.waiter = Waiter()
        self.refused: dict[int, str] = {}       # why there is no fork for an item

    def asked(self) -> list[Any]:
        """Returns the requests for forks that have arrived."""
        return [each for each in state.link.inbox if each[0] == FORK and each[1] == self.ident]

    def fork(self, index: int, status: Blob) -> None:
        state.link.enter()      # an interrupt must not be raised in the fork
        try:
            if status is None:
                raise ForkRefused("too many open files to fork the session")
            rc = fork_process(status)
            if rc & IS_COPY:
                serve_item(self.function, self.items[index])
            check_forked(rc)
        except ForkRefused as e:
            self.refused[index] = str(e)
        finally:
            state.link.leave()

    def fork_next(self) -> None:
        request = self.asked()[0]
        state.link.inbox.remove(request)
        self.fork(read_json(request[2])["item"], request[3])

    def drop(self) -> None:
        for request in self.asked():
            state.link.inbox.remove(request)
            close_status(request[3])

    def wait(self, head: Head) -> Frame:
        link, waiter = state.link, self.waiter
        try:
            link.begin(self.ident, waiter, head, [b""] * len(self.items))
            while waiter.frame is None:
                link.wait(waiter, lambda: waiter.frame is not None or self.asked())
                while waiter.frame is None and self.asked():
                    self.fork_next()
        except BaseException:
            link.cancel(self.ident)
            raise
        finally:
            link.waiters.pop(self.ident, None)
            self.drop()
            if waiter.frame is None:
                link.pass_on()
        return waiter.frame

    def why(self, index: int, error: Head) -> Exception:
        if index in self.refused:
            return ForkError("item %d: %s" % (index, self.refused[index]))
        kind = TimeoutError if error.get("code") == "timeout" else ForkError
        return kind("item %d: %s" % (index, error.get("message", "")))

    def outcome(self, index: int, error: Head | None, part: Any) -> tuple[bool, Any]:
        """Returns whether the item failed, and its value or exception."""
        if error:
            return True, self.why(index, error)
        fields = decode_value(bytearray(part))
        if "raised" not in fields:
            return False, fields["value"]
        return True, decode_exception(fields["raised"])


def decode_exception(about: Head) -> BaseException:
    import pickle
    e: BaseException = ForkError("%s: %s" % (about["type"], about["message"]))
    try:
        found = pickle.loads(about["pickle"])
        if isinstance(found, BaseException):
            e = found
    except Exception:
        pass            # it has no pickle
    e.__cause__ = ForkTraceback(about["traceback"])
    return e


def print_output(index: int, texts: list[str]) -> None:
    for stream, text in zip((sys.stdout, sys.stderr), texts):
        for line in text.splitlines():
            stream.write("[item %d] %s\n" % (index, line))


def check_call(function: Any, workers: Any, timeout: Any, count: int) -> None:
    if not callable(function):
        raise TypeError("fork_map calls a function for each item, not %r" % type(function).__name__)
    if workers is not None and (type(workers) is not int or workers < 1):
        raise ValueError("max_workers must be an int above 0, not %r" % (workers,))
    if timeout is not None and not (isinstance(timeout, (int, float)) and timeout > 0):
        raise ValueError("timeout must be a number of seconds above 0, not %r" % (timeout,))
    if count > ITEMS_MAX:
        raise ValueError("%d items in one fork_map, but at most %d are allowed; pass lists of "
                         "several items" % (count, ITEMS_MAX))
    if _thread.get_ident() != state.link.main:
        raise RuntimeError("fork_map can only be called in the main thread")
    refuse_what_would_vanish()


def fork_map(function: Callable[[Any], Any], items: Iterable[Any], *,
             max_workers: int | None = None, timeout: float | None = None,
             return_exceptions: bool = False) -> list[Any]:
    """Calls the function with each item, in copies of this interpreter that run at the same time.

    Returns the values in order. What a call changes stays in its copy; its model calls count in
    the same budget. Raises the first exception, or returns exceptions among the values with
    return_exceptions=True. A copy that dies is a ForkError; `timeout` limits each call, in seconds.
    """
    items = list(items)
    check_call(function, max_workers, timeout, len(items))
    if not items:
        return []
    head: Head = {"name": "fork_map"}
    if max_workers is not None:
        head["workers"] = max_workers
    if timeout is not None:
        head["timeout"] = timeout
    forking = Forking(function, items)
    reply, parts = open_reply(forking.wait(head))
    if "error" in reply:
        raise failure(reply["error"])
    for index in range(len(items)):
        print_output(index, reply.get("outputs", {}).get(str(index), ()))
    errors = reply.get("errors", {})
    outcomes = [forking.outcome(i, errors.get(str(i)), part) for i, part in enumerate(parts)]
    for failed, value in outcomes:
        if failed and not return_exceptions:
            raise value
    return [value for _, value in outcomes]
