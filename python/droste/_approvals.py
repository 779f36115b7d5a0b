"""Approvals of calls: `approvals=function`, and those that wait in a record.

The function gets each `Approval` that code of its session or run asks for, and returns True or
False, either with a reason (`False, "why"`), or None to leave the decision to others: the command
line, a server, the deadline. Sync functions run in a thread, in a copy of the caller's context;
async functions as tasks of the running asyncio loop, or on a loop in a thread of Droste.
"""
from __future__ import annotations

import contextvars
import ctypes
import datetime
import json
from typing import Any, Callable, Dict, NamedTuple, Optional, Set

from . import _engine, _library, _tools
from ._library import quick
from .errors import ArgumentError

__all__ = ["Approval"]


class Approval(NamedTuple):
    """A call of a tool that asks. Times are seconds since 1970."""
    #: in the record; 0 without one
    id: int
    #: the run whose code calls, and the one at the top of its tree; None in a session
    run: Optional[str]
    root: Optional[str]
    tool: str
    arguments: Dict[str, Any]
    asked: float
    #: when the default decides; None: never
    until: Optional[float]
    #: the call had begun before, in a process that died, and may be done
    repeated: bool
    #: its run has no process, and has to be resumed
    interrupted: bool
    #: "approved" or "denied"; None: it waits
    decision: Optional[str]
    decided: Optional[float]
    #: the name under which it was decided, and the reason
    by: Optional[str]
    reason: Optional[str]
    #: when the approved call began
    begun: Optional[float]


def _seconds(text: Optional[str]) -> Optional[float]:
    if text is None:
        return None
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def of_json(found: Dict[str, Any]) -> Approval:
    times = {name: _seconds(found[name]) for name in ("asked", "until", "decided", "begun")}
    return Approval(**{name: found[name] for name in Approval._fields if name not in times},
                    **times)  # type: ignore


def of_struct(address: int) -> Approval:
    """Reads a struct droste_approval, through its JSON."""
    pieces = []

    def add(arg: Any, data: int, length: int) -> int:
        pieces.append(ctypes.string_at(data, length))
        return 0
    quick.droste_approval_json(address, _library.PieceFn(add), None, None)
    return of_json(json.loads(b"".join(pieces)))


Decide = Callable[[Approval], Any]


class Listener:
    """The function of a run or session."""

    def __init__(self, engine: "_engine.Engine", function: Decide, context: contextvars.Context):
        self.engine, self.function, self.context = engine, function, context

    def settle(self, address: int, function: Callable[[], Any]) -> None:
        """Calls `function`, and posts its decision to the engine's thread."""
        try:
            approve, reason = decision_of(function())
        except BaseException as e:
            approve, reason = False, "%s: %s" % (type(e).__name__, e)
        self.engine.post(lambda: answer(address, approve, reason))

    def ask(self, approval: Approval, address: int) -> None:
        if not _tools.is_async(self.function):
            _engine.workers("models").submit(
                lambda: self.settle(address, lambda: self.context.copy().run(self.function,
                                                                             approval)))
            return
        loop = self.engine.running_loop()
        if loop is not None:
            task = self.context.copy().run(loop.create_task, self.function(approval))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
            task.add_done_callback(lambda t: self.settle(address, t.result))
        else:
            future = _engine.helper().run(self.function(approval), self.context.copy())
            future.add_done_callback(lambda f: self.settle(address, f.result))


def decision_of(answer: Any) -> Any:
    """(True, False or None; the reason or None) of what a function returned."""
    decision, reason = answer if isinstance(answer, tuple) and len(answer) == 2 else (answer, None)
    if decision is not None and not isinstance(decision, bool):
        raise TypeError("a function of approvals must return True, False or None, with a reason or "
                        "without, not %r" % (answer,))
    return decision, reason


def answer(address: int, approve: Optional[bool], reason: Optional[str]) -> None:
    """Decides, in the engine's thread; one that others have decided meanwhile stays as it is."""
    if approve is None:
        quick.droste_approval_leave(address)
    else:
        text = None if reason is None else str(reason).replace("\0", "").encode("utf-8", "replace")
        quick.droste_approval_answer(address, approve, b"the program", text, None)


#: of runs, by the id of the root
listeners: Dict[str, Listener] = {}
tasks: Set[Any] = set()       # the loop keeps weak references only


def check(function: Optional[Decide]) -> Optional[Decide]:
    if function is not None and not callable(function):
        raise ArgumentError("approvals is a function of an Approval, not %r" % (function,))
    return function


def install(engine: "_engine.Engine") -> None:
    """Makes sessions and runs of the engine ask here from now on."""
    quick.droste_on_approval(engine.alive(), on_approval, 0)


def _listener_of(session: Optional[int], root: Optional[str]) -> Optional[Listener]:
    for holder in list(_engine.holders) if session else []:
        if getattr(holder, "_session", None) == session:
            return getattr(holder, "_asked", None)
    return listeners.get(root or "")


@_library.AskFn
def on_approval(arg: int, address: int) -> None:
    approval = None
    try:
        approval = of_struct(address)
        found = _listener_of(_library.ApprovalHead.from_address(address).session, approval.root)
        if found is not None:
            found.ask(approval, address)
        elif approval.id:
            answer(address, None, None)
        else:
            answer(address, False, "the program has no function that answers (approvals=)")
    except BaseException as e:
        answer(address, False, "%s: %s" % (type(e).__name__, e))
