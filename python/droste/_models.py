"""Models that are Python functions: `function(messages) -> str`, sync or async.

`messages` is a list of {"role": …, "content": …}, as in OpenAI's API; a content that is not one
text is a list of parts. A function with a parameter `model` also receives the model that the code
named, or None. Sync functions run concurrently in threads, in a copy of the caller's context
(contextvars). Async functions run as tasks on the running asyncio loop, or on a loop in a thread of
Droste.
"""
from __future__ import annotations

import base64
import contextvars
import inspect
import itertools
import os
import threading
from typing import Any, Callable, Dict, List, Optional

from . import _engine, _library, _tools
from ._library import quick, text_at
from .errors import Error


# -- functions are registered under numbers; the setting is "callback:3"

class Models:
    """Registered model functions by number. Numbers are reused."""

    def __init__(self) -> None:
        self.functions: Dict[int, Callable[..., Any]] = {}
        # within asyncio: the context of the caller that runs the code
        self.contexts: Dict[int, contextvars.Context] = {}
        # tasks of running loops, with the numbers of their functions
        self.tasks: Dict[Any, int] = {}
        self.lock = threading.RLock()

    def on_loop(self, numbers: List[int]) -> List[str]:
        """Returns the names of models with these numbers that run as tasks of a loop."""
        return ["the model '%s'" % getattr(self.functions.get(n), "__name__", n)
                for n in list(self.tasks.values()) if n in numbers]

    def add(self, engine: Any, function: Callable[..., Any]) -> int:
        """Registers a function for a session or run of this engine; returns its number."""
        engine.use_models(on_model)
        with self.lock:
            number = next(n for n in itertools.count(1) if n not in self.functions)
            self.functions[number] = function
            return number

    def remove(self, number: int) -> None:
        with self.lock:
            self.functions.pop(number, None)
            self.contexts.pop(number, None)


models = Models()


def _after_fork() -> None:
    models.lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


# -- calls

def _part(part: "_library.Part") -> Dict[str, Any]:
    if part.kind == 0:
        return {"type": "text", "text": text_at(part.data, part.len)}
    data = _library.bytes_at(part.data, part.len)
    media = (part.media_type or b"").decode()
    if part.kind == 1:
        url = "data:%s;base64,%s" % (media, base64.b64encode(data).decode())
        return {"type": "image_url", "image_url": {"url": url}}
    return {"type": "document", "media_type": media, "data": data}


def _messages(messages: Any, count: int) -> List[Dict[str, Any]]:
    found = []
    for i in range(count):
        m = messages[i]
        content: Any = ([_part(m.parts[k]) for k in range(m.part_count)] if m.part_count
                        else text_at(m.text, m.len))
        found.append({"role": m.role.decode(), "content": content})
    return found


def wants_model(function: Callable[..., Any]) -> bool:
    try:
        return "model" in inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False


def _settle(engine: Any, call: Any, answer: Callable[[], Any]) -> None:
    """Runs `answer` in the current thread and posts the result to the engine's thread."""
    try:
        reply = answer()
        if not isinstance(reply, (str, bytes)):
            raise TypeError("a model function must return a str, not %s" % type(reply).__name__)
        text = reply.encode("utf-8", "replace") if isinstance(reply, str) else reply
        engine.post(lambda: engine.answer_model(call, text))
    except BaseException as e:
        failure = e
        engine.post(lambda: refuse(engine, call, failure))


def refuse(engine: Any, call: Any, failure: BaseException) -> None:
    engine.refuse_model(call, _why(failure))


def _why(failure: BaseException) -> bytes:
    return ("%s: %s" % (type(failure).__name__, failure)).encode("utf-8", "replace")


def ask(engine: Any, call: Any, number: int, messages: List[Dict[str, Any]],
        named: Optional[str]) -> None:
    """Calls the function of this number with messages; `named` is the model that code named."""
    function = models.functions.get(number)
    if function is None:
        raise LookupError("the model function no longer exists")
    extra = {"model": named} if wants_model(function) else {}
    context = (models.contexts.get(number) or contextvars.copy_context()).copy()
    if not _tools.is_async(function):
        _engine.workers("models").submit(
            lambda: _settle(engine, call, lambda: context.run(function, messages, **extra)))
        return
    loop = engine.running_loop()
    if loop is not None:
        task = context.run(loop.create_task, function(messages, **extra))
        models.tasks[task] = number
        task.add_done_callback(models.tasks.pop)
        task.add_done_callback(lambda t: _settle(engine, call, t.result))
    else:
        future = _engine.helper().run(function(messages, **extra), context)
        future.add_done_callback(lambda f: _settle(engine, call, f.result))


@_library.ModelFn
def on_model(arg: int, messages: Any, count: int, call: int) -> None:
    engine = _engine.by_id(arg)
    try:
        if engine is None:
            raise Error("the engine was closed")
        number = quick.droste_call_opened(call).decode().partition(":")[2] or "0"
        named: str = quick.droste_call_model(call).decode()
        ask(engine, call, int(number), _messages(messages, count),
            None if named == number else named)
    except BaseException as e:
        quick.droste_refuse(call, _why(e))
