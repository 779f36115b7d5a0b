"""Selectors of candidates that are Python functions: `function(candidates) -> number`.

`RLM(candidates=4, select=function)`: the function gets the candidates of a turn that have a reply,
and returns one of them, or its number. Sync functions run in a thread, in a copy of the caller's
context; async functions as tasks of the running asyncio loop, or on a loop in a thread of Droste.
"""
from __future__ import annotations

import contextvars
import itertools
import json
import os
import threading
from typing import Any, Callable, Dict, List, NamedTuple, Set

from . import _engine, _library, _tools
from ._library import quick, text_at
from .errors import Error


class Candidate(NamedTuple):
    """A candidate of a turn: a reply, and what became of its code."""
    #: from 1
    number: int
    reply: str
    #: what its code printed, as the model would see it
    output: str
    #: what it submits; None: nothing
    answer: Any
    #: whether its last cell ended with an error
    failed: bool


class Selector:
    """The selector of a run."""

    def __init__(self, engine: "_engine.Engine", function: Callable[[List[Candidate]], Any],
                 context: contextvars.Context):
        self.engine, self.function, self.context = engine, function, context

    def choose(self, choice: int, function: Callable[[], Any]) -> None:
        """Calls `function`, and posts what it chooses to the engine's thread."""
        try:
            chosen = function()
            number = chosen.number if isinstance(chosen, Candidate) else chosen
            if isinstance(number, bool) or not isinstance(number, int) or not 0 < number < 1 << 32:
                raise TypeError("a selector must return a candidate or its number, not %r"
                                % (chosen,))
            self.engine.post(lambda: quick.droste_choose(choice, number))
        except BaseException as e:
            why = ("%s: %s" % (type(e).__name__, e)).encode("utf-8", "replace")
            self.engine.post(lambda: quick.droste_choose_none(choice, why))

    def ask(self, found: List[Candidate], choice: int) -> None:
        if not _tools.is_async(self.function):
            _engine.workers("models").submit(
                lambda: self.choose(choice, lambda: self.context.run(self.function, found)))
            return
        loop = self.engine.running_loop()
        if loop is not None:
            task = self.context.run(loop.create_task, self.function(found))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
            task.add_done_callback(lambda t: self.choose(choice, t.result))
        else:
            future = _engine.helper().run(self.function(found), self.context)
            future.add_done_callback(lambda f: self.choose(choice, f.result))


#: by number; numbers are reused, so that a program that is started again has the same ones
selectors: Dict[int, Selector] = {}
lock = threading.RLock()
tasks: Set[Any] = set()       # the loop keeps weak references only


def _after_fork() -> None:
    global lock
    lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def install(engine: "_engine.Engine", function: Callable[[List[Candidate]], Any],
            context: contextvars.Context) -> int:
    """Registers a selector of a run on the engine under a number; the setting is "callback:3"."""
    quick.droste_set_select(engine.alive(), on_select, 0)
    with lock:
        number = next(n for n in itertools.count(1) if n not in selectors)
        selectors[number] = Selector(engine, function, context)
    return number


def remove(number: int) -> None:
    with lock:
        selectors.pop(number, None)


def _candidates(all_: Any, count: int) -> List[Candidate]:
    return [Candidate(c.number, text_at(c.reply, c.reply_len), text_at(c.output, c.output_len),
                      json.loads(c.answer) if c.answer is not None else None, bool(c.failed))
            for c in all_[:count]]


@_library.SelectFn
def on_select(arg: int, all_: Any, count: int, choice: int) -> None:
    try:
        number = int(quick.droste_choice_opened(choice).decode().partition(":")[2] or 0)
        selector = selectors.get(number)
        if selector is None:
            raise Error("the selector no longer exists")
        selector.ask(_candidates(all_, count), choice)
    except BaseException as e:
        quick.droste_choose_none(choice, str(e).encode("utf-8", "replace"))
