"""Tools that are Python functions, called by the code in the sandbox.

A tool's signature becomes a JSON schema, which the C library checks in each call. Without asyncio,
a sync tool runs in the thread that waits for the cell, so a call takes some tens of microseconds;
an async tool runs in a thread with an event loop. Within asyncio, a sync tool runs in a thread and
an async one as a task of the loop.
"""
from __future__ import annotations

import asyncio
import contextvars
import inspect
import json
import threading
import typing
from typing import Any, Callable, Dict, List, Mapping, Optional, Union

from . import _engine, _library, _typed
from ._library import bytes_at, quick
from ._values import to_json
from .errors import ArgumentError

TYPES = {str: "string", int: "integer", float: "number", bool: "boolean", list: "array",
         tuple: "array", set: "array", dict: "object", type(None): "null"}
#: types of defaults that the schema includes; the function applies other defaults itself
PLAIN = (str, int, bool, type(None))


def _json_type(annotation: Any) -> Optional[str]:
    """Returns the JSON type of an annotation, or None if it is not exactly one type."""
    kind = typing.get_origin(annotation) or annotation
    return TYPES.get(kind) if isinstance(kind, type) else None


def _hints(function: Callable[..., Any]) -> Dict[str, Any]:
    try:
        return typing.get_type_hints(function)
    except Exception:
        return {}


def _add_default(about: Dict[str, Any], kind: Optional[str], default: Any) -> None:
    """Adds a default; its type is allowed even if the annotation differs, as in `x: str = None`."""
    own = _json_type(type(default))
    if kind and own and own != kind and (own, kind) != ("integer", "number"):
        about["type"] = [kind, own]
    if type(default) in PLAIN:
        about["default"] = default


def schema_of(function: Callable[..., Any]) -> Optional[Dict[str, Any]]:
    """Returns a JSON schema of the parameters; None if some are positional only."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return None
    hints = _hints(function)
    properties: Dict[str, Any] = {}
    required: List[str] = []
    schema: Dict[str, Any] = {"type": "object", "properties": properties,
                              "additionalProperties": False}
    for name, parameter in signature.parameters.items():
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL):
            return None
        if parameter.kind == parameter.VAR_KEYWORD:
            schema["additionalProperties"] = True
            continue
        kind = _json_type(hints.get(name, parameter.annotation))
        properties[name] = {"type": kind} if kind else {}
        if parameter.default is parameter.empty:
            required.append(name)
        else:
            _add_default(properties[name], kind, parameter.default)
    if required:
        schema["required"] = required
    return schema


def is_async(function: Callable[..., Any]) -> bool:
    return (inspect.iscoroutinefunction(function)
            or inspect.iscoroutinefunction(getattr(function, "__call__", None)))


class Tool:
    """A function that code in the sandbox may call.

    `parameters` is a JSON schema; by default the signature determines it, and the docstring is the
    `description`. Raises ArgumentError if `function` is not callable.
    """

    def __init__(self, name: str, function: Callable[..., Any], description: Optional[str] = None,
                 parameters: Optional[Mapping[str, Any]] = None):
        if not callable(function):
            raise ArgumentError("the tool %r is not a function" % name)
        self.name, self.function = name, function
        doc = inspect.getdoc(function) if not isinstance(function, type) else None
        self.description = description if description is not None else doc
        self.schema = dict(parameters) if parameters is not None else schema_of(function)
        self.is_async = is_async(function)

    def call(self, arguments: Dict[str, Any]) -> Any:
        if self.schema is None:
            return self.function(*arguments.pop("args", ()), **arguments)
        return self.function(**arguments)


Tools = Union[None, Mapping[str, Any], List[Any], typing.Tuple[Any, ...]]


def collect(tools: Tools) -> Dict[str, Tool]:
    """Converts a list of functions or a dict of tools; raises ArgumentError for duplicates."""
    if not tools:
        return {}
    if isinstance(tools, Mapping):
        named = [(name, tool) for name, tool in tools.items()]
    else:
        named = [(str(getattr(tool, "name", None) or getattr(tool, "__name__", "")), tool)
                 for tool in tools]
    found: Dict[str, Tool] = {}
    for name, tool in named:
        if name in found:
            raise ArgumentError("there are two tools with the name %r" % name)
        found[name] = make(name, tool)
    return found


def make(name: str, tool: Any) -> Tool:
    if isinstance(tool, Tool):
        return tool if tool.name == name else Tool(name, tool.function, tool.description,
                                                   tool.schema)
    if isinstance(tool, Mapping) and "tool" in tool:
        return Tool(name, tool["tool"], tool.get("description"), tool.get("parameters"))
    return Tool(name, tool)


class Bound:
    """A tool of one session or run, with the context and threads for its calls."""

    def __init__(self, tool: Tool, engine: "_engine.Engine", threads: bool = False, owner: int = 0,
                 typed: bool = False):
        self.tool, self.engine = tool, engine
        self.typed = typed      # arguments and results keep types that JSON does not have
        self.threads, self.owner = threads, owner
        self.context: Optional[contextvars.Context] = None      # of the caller of the cell
        self.id = next(_engine.ids)
        _bound[self.id] = self

    def release(self) -> None:
        _bound.pop(self.id, None)

    def texts(self) -> typing.Tuple[bytes, Optional[bytes], Optional[bytes]]:
        tool = self.tool
        return (tool.name.encode(),
                tool.description.encode("utf-8", "replace") if tool.description else None,
                json.dumps(tool.schema).encode() if tool.schema is not None else None)

    def take(self, call: Any, arguments: Dict[str, Any], values: Optional[bytearray]) -> None:
        """Begins a call; `values` are the arguments that JSON does not keep. Never raises."""
        try:
            if values is not None:
                arguments = _typed.merge_typed(arguments, values,
                                               "the arguments of %s()" % self.tool.name)
            self.begin(call, arguments)
        except BaseException as e:
            if not isinstance(e, Exception):
                self.engine.interrupt = e       # Ctrl-C in a tool reaches the waiting caller
            fail(self.engine, call, e)

    def begin(self, call: Any, arguments: Dict[str, Any]) -> None:
        if not self.tool.is_async and not self.threads and self.engine.loop is None:
            finish(self.engine, call, *self.written(self.tool.call(arguments)))
            return
        context = (self.context or contextvars.copy_context()).copy()
        if self.owner:
            context.run(lambda: calling.set(calling.get() + (self.owner,)))
        if not self.tool.is_async:
            # One pool per depth: a tool that waits for another session keeps its thread, and the
            # tools of that session need other threads.
            depth = len(context.get(calling, ()))
            _engine.workers("tools-%d" % depth).submit(lambda: self.run(call, context, arguments))
            return
        loop, coroutine = self.engine.running_loop(), self.tool.call(arguments)
        if loop is not None:
            task = context.run(loop.create_task, coroutine)
        else:
            task = _engine.helper().run(coroutine, context)  # type: ignore
        _running[call] = task, self, coroutine
        self.engine.on_cancel(call, _on_cancel)
        task.add_done_callback(lambda done: self.settle(call, done.result))

    def written(self, result: Any) -> typing.Tuple[bytes, Optional[bytes]]:
        """Returns the answer as JSON and, if JSON does not keep it, as a typed value."""
        at = "what %s() returned" % self.tool.name
        if not self.typed:
            return to_json(result, at), None
        return _typed.encode_both(result, at)

    def run(self, call: Any, context: contextvars.Context, arguments: Dict[str, Any]) -> None:
        """Runs a sync tool; called in a thread of the pool."""
        _in_threads[call] = self, threading.get_ident()
        self.settle(call, lambda: context.run(self.tool.call, arguments))
        del _in_threads[call]

    def settle(self, call: Any, result: Callable[[], Any]) -> None:
        """Posts the result or exception to the engine's thread; safe in any thread."""
        try:
            answer = self.written(result())
            self.engine.post(lambda: finish(self.engine, call, *answer))
        except BaseException as e:
            failure = e
            self.engine.post(lambda: fail(self.engine, call, failure))


#: ids of the sessions whose code waits for the current context
calling: "contextvars.ContextVar[typing.Tuple[int, ...]]" = contextvars.ContextVar(
    "calling", default=())
_bound: Dict[int, Bound] = {}
_running: Dict[Any, typing.Tuple[Any, Bound, Any]] = {}     # tasks and coroutines by call
_in_threads: Dict[Any, typing.Tuple[Bound, int]] = {}


def in_threads(owner: int) -> List[typing.Tuple[Bound, int]]:
    """Returns (tool, thread id) for tools of a session that run in threads."""
    return [(bound, thread) for bound, thread in list(_in_threads.values())
            if bound.owner == owner]


def coroutines(owner: int) -> List[typing.Tuple[Bound, Any]]:
    return [(bound, coroutine) for _, bound, coroutine in list(_running.values())
            if bound.owner == owner]


def on_loop(owner: int) -> List[str]:
    """Returns the names of a session's tools that run as tasks of a loop."""
    return ["the tool '%s'" % bound.tool.name for task, bound, _ in list(_running.values())
            if bound.owner == owner and isinstance(task, asyncio.Task) and not task.done()]


def finish(engine: Any, call: Any, data: bytes, values: Optional[bytes]) -> None:
    _running.pop(call, None)
    engine.answer(call, data, values)


def _error_texts(failure: BaseException) -> typing.Tuple[bytes, bytes]:
    """Returns the name and message of an exception for the code in the sandbox."""
    name, message = type(failure).__name__, str(failure)
    if (isinstance(failure, KeyError) and len(failure.args) == 1
        and isinstance(failure.args[0], str)):
        message = failure.args[0]
    return name.encode("utf-8", "replace"), message.encode("utf-8", "replace")


def fail(engine: Any, call: Any, failure: BaseException) -> None:
    _running.pop(call, None)
    engine.fail(call, *_error_texts(failure))


def cancel(call: Any) -> None:
    """Cancels the task of a call; the end of the task answers the call."""
    found = _running.get(call)
    if found is not None:
        found[0].cancel()


@_library.CancelFn
def _on_cancel(arg: int, call: int) -> None:
    cancel(call)


@_library.ToolFn
def on_tool(arg: int, call: int, address: int, length: int) -> None:
    bound = _bound.get(arg)
    try:
        if bound is None:
            raise RuntimeError("the tool no longer exists")
        arguments = json.loads(bytes_at(address, length).decode("utf-8", "replace"))
        values = _typed.read_values(quick.droste_tool_values, call, None)
        # a copy: the call's memory ends with this function
        bound.take(call, arguments, None if values is None else bytearray(values))
    except BaseException as e:
        _running.pop(call, None)
        quick.droste_tool_fail(call, *_error_texts(e))
