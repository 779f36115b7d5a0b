"""Environments that are written in Python.

Register a class that implements `EnvironmentPort` under a name; `RLM(environment=name)` then runs
code in it.

    registry.register("custom", CustomEnvironmentAdapter)
    RLM("openai/gpt-5-mini", environment="custom",
        environment_kwargs={"custom_option": 1}).run(question, context)

Such an environment runs code wherever it wants and is responsible for isolation and process limits.
The C library's loop does everything else, as for other environments: turns, budgets, events,
deadlines, the record, and child runs, each in its own environment of the same kind. All methods of
an environment are called in one thread and may block without blocking the loop.
"""
from __future__ import annotations

import contextvars
import ctypes
import dataclasses
import itertools
import json
import os
import queue
import re
import struct
import threading
import traceback
import types
import uuid
import warnings
from concurrent.futures import Future
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

try:
    from typing import Protocol, runtime_checkable
except ImportError:     # pragma: no cover
    Protocol = object  # type: ignore

from . import _engine, _library
from .compat import wire
from ._library import lib, quick
from ._typed import decode_typed
from ._values import to_json
from .errors import ArgumentError, Cancelled, Error, TimedOut, check, named

__all__ = ["EnvironmentPort", "ReplResult", "registry", "Registry", "Broker"]

ERROR_MOST = 100000         # characters of a failed cell's traceback
NAMES_MOST = 200            # variables in a summary
PREVIEW = 200               # characters of a preview
OWN = ("local", "docker", "modal", "daytona", "prime", "e2b")


@dataclasses.dataclass
class ReplResult:
    """The result of a piece of code; `execution_time` is in seconds."""
    stdout: str = ""
    stderr: str = ""
    locals: Dict[str, Any] = dataclasses.field(default_factory=dict)
    execution_time: float = 0.0
    correlation_id: Optional[str] = None
    rlm_calls: List[Any] = dataclasses.field(default_factory=list)
    final_answer: Optional[str] = None


@runtime_checkable
class EnvironmentPort(Protocol):
    """The interface of an environment.

    A class may also have `instructions`, a Markdown list for the model of the functions that code
    may call, and a method `interrupt`, called in another thread when the deadline of a cell has
    passed.
    """

    def load_context(self, context_payload: Any) -> None:
        """Binds the context as the variable `context`."""

    def execute_code(self, code: str) -> ReplResult:
        """Runs code and returns its result.

        If this raises an exception of the code itself, run here by `exec`, it is the cell's error;
        any other exception is a failure of the environment and ends the run.
        """

    def cleanup(self) -> None:
        """Releases all resources."""


class Registry:
    """Factories of environments by name.

    A factory receives `broker`, `broker_address`, `correlation_id` and the environment_kwargs.
    """

    def __init__(self) -> None:
        self._factories: Dict[str, Callable[..., EnvironmentPort]] = {}

    def register(self, name: str, factory: Callable[..., EnvironmentPort]) -> None:
        if name in OWN:
            raise ArgumentError("Droste already has an environment %r; choose another name" % name)
        self._factories[name] = factory

    def unregister(self, name: str) -> None:
        self._factories.pop(name, None)

    def factory(self, name: str) -> Callable[..., EnvironmentPort]:
        if name not in self._factories:
            raise ArgumentError("the environment %r is no longer registered: register it again"
                                % name)
        return self._factories[name]

    def make(self, name: str, **kwargs: Any) -> EnvironmentPort:
        return _made(name, self.factory(name), kwargs)

    def __contains__(self, name: object) -> bool:
        return name in self._factories

    def __iter__(self) -> Iterator[str]:
        return iter(self._factories)


registry = Registry()


def _made(name: str, factory: Callable[..., EnvironmentPort],
          kwargs: Dict[str, Any]) -> EnvironmentPort:
    environment = factory(**kwargs)
    if not isinstance(environment, EnvironmentPort):
        raise ArgumentError("the environment %r must have the methods load_context, execute_code "
                            "and cleanup" % name)
    return environment


class Broker:
    """Calls models and starts child runs on behalf of an environment's code.

    The calls belong to the run: they count against its budget and are part of its record. Usable in
    any thread except the one that runs the loop.
    """

    def __init__(self, sandbox: "_Sandbox"):
        self._sandbox = sandbox
        self.calls = 0

    def complete(self, prompt: Any, model: Optional[str] = None) -> str:
        """Answers a prompt or a list of messages."""
        return _one(self._ask("llm_query", [prompt], model))

    def complete_batched(self, prompts: List[Any], model: Optional[str] = None) -> List[str]:
        """Answers prompts concurrently, in order; a failed answer begins with "[ERROR]"."""
        return [_marked(answer) for answer in self._ask("llm_query", _several(prompts), model)]

    def rlm_query(self, prompt: str, context: Any = None, model: Optional[str] = None) -> Any:
        """Starts a child run in its own session with `context`; returns what it submits."""
        return _one(self._ask("rlm_query", [prompt], model, [context]))

    def rlm_query_batched(self, prompts: List[Any], context: Any = None,
                          model: Optional[str] = None) -> List[Any]:
        """Runs several child runs; each item is a prompt or {"prompt": …, "context": …}."""
        tasks = [task if isinstance(task, dict) else {"prompt": task} for task in _several(prompts)]
        answers = self._ask("rlm_query", [task.get("prompt") for task in tasks], model,
                            [task.get("context", context) for task in tasks])
        return [_marked(answer) for answer in answers]

    def _ask(self, function: str, prompts: List[Any], model: Optional[str],
             contexts: Optional[List[Any]] = None) -> List[Any]:
        """Returns an answer or an exception for each prompt."""
        if not prompts:
            return []
        head: Dict[str, Any] = {"name": function,
                                "prompts": [_prompt(prompt) for prompt in prompts]}
        if model is not None:
            head["model"] = model
        if contexts is not None:
            present = [context for context in contexts if context is not None]
            numbers = iter(range(len(present)))
            head["of"] = [-1 if context is None else next(numbers) for context in contexts]
            head["kinds"] = ["text" if isinstance(context, str) else "json" for context in present]
            head["contexts"] = [context if isinstance(context, str) else to_json(context).decode()
                                for context in present]
        self.calls += len(prompts)
        fields = self._sandbox.call(to_json(head)).result()
        if "error" in fields:
            raise _failure(fields["error"])
        errors = fields.get("errors", {})
        return [_failure(errors[str(at)]) if str(at) in errors
                else json.loads(reply) if contexts is not None else reply
                for at, reply in enumerate(fields["replies"])]


def _several(prompts: Any) -> List[Any]:
    if isinstance(prompts, (str, bytes, dict)):
        raise TypeError("prompts must be a list of prompts, not one %s" % type(prompts).__name__)
    return list(prompts)


def _prompt(prompt: Any) -> Any:
    if isinstance(prompt, dict):
        prompt = [prompt]
    if isinstance(prompt, str) and prompt:
        return prompt
    if isinstance(prompt, (list, tuple)) and prompt and all(
            isinstance(m, dict) and isinstance(m.get("role"), str)
            and isinstance(m.get("content"), str) for m in prompt):
        return [{"role": m["role"], "content": m["content"]} for m in prompt]
    raise ArgumentError("a prompt must be a non-empty str, or a list of {'role': …, 'content': …} "
                        "messages, not %s" % (
        "an empty str" if prompt == "" else type(prompt).__name__))


def _failure(fields: Dict[str, Any]) -> Error:
    return named(fields.get("code", "error"), fields.get("message", ""))


def _one(answers: List[Any]) -> Any:
    if isinstance(answers[0], Exception):
        raise answers[0]
    return answers[0]


def _marked(answer: Any) -> Any:
    return "[ERROR] %s" % answer if isinstance(answer, Exception) else answer


# -- values, as in the guest

def _files(data: bytes) -> Dict[str, str]:
    """Decodes {path: text}: a count, then per file the two lengths, the path and the text."""
    files, at = {}, 4
    for _ in range(struct.unpack_from("<I", data)[0]):
        path, text = struct.unpack_from("<IQ", data, at)
        at += 12
        files[os.fsdecode(data[at:at + path])] = data[at + path:at + path + text].decode("utf-8")
        at += path + text
    return files


def _text_or_bytes(data: bytes) -> Any:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return data


_DECODERS: Dict[str, Callable[[bytes], Any]] = {
    "text": lambda data: data.decode("utf-8"), "bytes": bytes, "auto": _text_or_bytes,
    "json": json.loads, "files": _files,
    "jsonl": lambda data: [json.loads(line) for line in data.decode("utf-8").split("\n")
                           if line.strip()],
    "values": lambda data: decode_typed(bytearray(data), "a context"),
}


def _described(name: str, value: Any) -> Dict[str, Any]:
    """Describes a variable for the model; inspects only exact built-in types."""
    fields: Dict[str, Any] = {"name": name[:PREVIEW], "type": type(value).__name__[:PREVIEW]}
    if type(value) in (str, bytes, list, tuple, dict, set, frozenset):
        fields["length"] = len(value)
    if type(value) in (str, bytes):
        fields["preview"] = repr(value[:PREVIEW])
    if type(value) is dict:
        fields["keys"] = [str(key)[:PREVIEW] for key in itertools.islice(value, 5)]
    if type(value) is list and value:
        fields["item"] = type(value[0]).__name__
    return fields


# The last line of a traceback.
RAISED = re.compile(r"^([A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit|Expired))(?:: (.*))?$")
# The cell that the loop sends if the model writes FINAL_VAR(name) in its reply.
FINAL_VAR = re.compile(r"^FINAL_VAR\((\".*\")\)\s*$", re.DOTALL)


def _raised(stderr: str) -> Optional[Dict[str, str]]:
    lines = stderr.strip().splitlines()
    found = RAISED.match(lines[-1]) if lines else None
    if not found:
        return None
    return {"type": found.group(1), "message": found.group(2) or "",
            "traceback": stderr[-ERROR_MOST:]}


def _own_error(failure: BaseException) -> Optional[Dict[str, str]]:
    """Returns the error of code that ran in this process, or None for other exceptions.

    Frames of the code have no file. The traceback for the model has only these frames.
    """
    frames = [frame for frame in traceback.extract_tb(failure.__traceback__)
              if re.match("<(?!frozen )", frame.filename)]
    if not frames and not (isinstance(failure, SyntaxError)
                           and str(failure.filename).startswith("<")):
        return None
    shown = traceback.format_list(frames)
    text = "".join(["Traceback (most recent call last):\n"] * bool(shown) + shown
                   + traceback.format_exception_only(type(failure), failure))
    return {"type": type(failure).__name__, "message": str(failure)[:ERROR_MOST],
            "traceback": text[-ERROR_MOST:]}


# -- sandboxes

class _Sandbox:
    """An environment and the thread in which its methods are called."""

    def __init__(self, place: "Place", handle: int):
        self.place, self.handle, self.engine = place, handle, place.engine
        self.id = next(_engine.ids)
        self.open = True            # until the library closes it
        self.at_work = self.abandoned = False
        self.finished = threading.Event()
        self._jobs: "queue.SimpleQueue[Optional[Callable[[], None]]]" = queue.SimpleQueue()
        self._calls: Dict[int, "Future[Dict[str, Any]]"] = {}
        self._locals: Dict[str, Any] = {}
        self._has_context = False
        self._environment: Optional[EnvironmentPort] = None
        self.server: Optional[wire.Server] = None      # listens at `broker_address`
        context = place.context.copy()
        threading.Thread(target=context.run, args=(self._work,), name="droste-environment",
                         daemon=True).start()

    # -- called in the library's thread

    def do(self, operation: int,
           job: Callable[[], Tuple[Dict[str, Any], Optional[bytes], str, str]]) -> None:
        self._jobs.put(lambda: self._perform(operation, job))

    def close(self) -> None:
        """Fails pending calls; cleans up the environment when its current method returns."""
        self.open = False
        self.abandoned = self.at_work
        self._give_up(Cancelled("the run that made this call has ended"))
        self._jobs.put(None)

    def interrupt(self) -> None:
        for call in list(self._calls):
            lib.droste_custom_cancel(self.handle, call)
        self._give_up(TimedOut("the cell was interrupted"))
        stop = getattr(self._environment, "interrupt", None)
        if stop is not None:
            threading.Thread(target=stop, name="droste-interrupt", daemon=True).start()

    def answered(self, call: int, fields: Dict[str, Any]) -> None:
        future = self._calls.pop(call, None)
        if future is not None:
            future.set_result(fields)

    def _give_up(self, why: Error) -> None:
        while self._calls:
            self._calls.popitem()[1].set_exception(why)

    def _begin_call(self, call: int, data: bytes, future: "Future[Dict[str, Any]]") -> None:
        if not self.open:
            future.set_exception(Cancelled("the run of this environment has ended"))
            return
        self._calls[call] = future
        error = _library.Error()
        try:
            check(lib.droste_custom_call(self.handle, call, data, len(data),
                                         ctypes.byref(error)), error)
        except Error as e:
            self._calls.pop(call, None)
            future.set_exception(e)

    def _end(self, operation: int, head: Dict[str, Any], submit: Optional[bytes], out: str,
             err: str) -> None:
        if not self.open:
            return
        for stream, text in ((1, out), (2, err)):
            data = text.encode("utf-8", "replace")
            lib.droste_custom_output(self.handle, stream, data, len(data))
        data, error = to_json(head), _library.Error()
        if lib.droste_custom_result(self.handle, operation, data, len(data), submit,
                                    len(submit or b""), ctypes.byref(error)) < 0:
            self._fail(ArgumentError(error.text.decode("utf-8", "replace")))

    def _fail(self, failure: BaseException) -> None:
        if self.open:
            name = type(failure).__name__
            message = "%s: %s" % (name, failure) if str(failure) else name
            lib.droste_custom_end(self.handle, message.replace("\0", "").encode("utf-8", "replace"))

    # -- called in any thread

    def call(self, data: bytes) -> "Future[Dict[str, Any]]":
        future: "Future[Dict[str, Any]]" = Future()
        if threading.get_ident() == self.place.thread:
            raise Error("the thread of the run's loop cannot ask the broker: it would wait for "
                        "itself")
        self.engine.post(lambda: self._begin_call(next(_engine.ids), data, future))
        return future

    # -- called in the thread of the sandbox

    def _work(self) -> None:
        try:
            while True:
                job = self._jobs.get()
                if job is None or not self.open:
                    break
                job()
        finally:
            try:
                if self._environment is not None:
                    self._environment.cleanup()
            except BaseException as e:
                warnings.warn("the environment %r failed to clean up: %s: %s"
                              % (self.place.name, type(e).__name__, e), RuntimeWarning)
            if self.server is not None:
                self.server.close()
            self.finished.set()

    def _perform(self, operation: int,
                 job: Callable[[], Tuple[Dict[str, Any], Optional[bytes], str, str]]) -> None:
        self.at_work = True
        try:
            if self._environment is None:
                self._environment = self.place.make(self)
            result = job()
            tell: Callable[[], None] = lambda: self._end(operation, *result)
        except BaseException as e:
            failure = e
            tell = lambda: self._fail(failure)      # noqa: E731
        self.at_work = False        # first: the library may close this sandbox in response
        self.engine.post(tell)

    def set(self, name: str, kind: str,
            data: bytes) -> Tuple[Dict[str, Any], Optional[bytes], str, str]:
        assert self._environment is not None
        if name != "context":
            message = "the environment %r supports a single context, not the value %r" % (
                self.place.name,
                name)
            return ({"status": "error", "error": {"type": "ValueError", "message": message}},
                    None, "", "")
        value = _DECODERS[kind](data)
        self._environment.load_context(value)
        self._has_context = True
        return {"status": "ok", "variable": _described(name, value)}, None, "", ""

    def execute(self, code: str) -> Tuple[Dict[str, Any], Optional[bytes], str, str]:
        assert self._environment is not None
        wanted = FINAL_VAR.match(code)
        if not code:        # the library only checks whether the sandbox responds
            return {"status": "ok"}, None, "", ""
        if wanted:
            return self._variable(json.loads(wanted.group(1)))
        if not self._has_context:       # as in other environments: an empty str
            self._environment.load_context("")
            self._has_context = True
        try:
            result = self._environment.execute_code(code)
        except BaseException as e:
            error = _own_error(e)
            if error is None:
                raise
            return {"status": "error", "error": error}, None, "", ""
        return self._told(result)

    def _variable(self, name: str) -> Tuple[Dict[str, Any], Optional[bytes], str, str]:
        if name not in self._locals:
            error = {"type": "NameError", "message": "there is no variable %r" % name}
            return {"status": "error", "error": error}, None, "", ""
        return {"status": "ok"}, to_json({"answer": self._locals[name]}), "", ""

    def _told(self, result: Any) -> Tuple[Dict[str, Any], Optional[bytes], str, str]:
        self._locals = dict(result.locals or {})
        shown = [(name, value) for name, value in self._locals.items()
                 if isinstance(name, str) and not name.startswith("_")
                 and not isinstance(value, types.ModuleType)]
        head: Dict[str, Any] = {"status": "ok", "variables": [
            _described(name, value) for name, value in shown[:NAMES_MOST]]}
        error, err = _raised(result.stderr), result.stderr
        if error is not None:
            head.update(status="error", error=error)
            err = ""
        final = getattr(result, "final_answer", None)
        submit = to_json({"answer": final}) if final is not None else None
        return head, submit, result.stdout, err


# -- the environment of a run and of its child runs

class Place:
    """Creates the sandboxes of a run in an environment written in Python."""

    def __init__(self, name: str, kwargs: Dict[str, Any]):
        self.name, self.kwargs = name, kwargs
        self.factory = registry.factory(name)
        self.id = next(_engine.ids)
        self.context = contextvars.copy_context()
        self.engine: Any = None
        self.thread = threading.get_ident()     # of the loop
        self._sandboxes: List[_Sandbox] = []

    def add_to(self, engine: "_engine.Engine") -> None:
        """Registers the environment with the engine, which belongs to this run alone."""
        self.engine, engine.single = engine, True
        about = getattr(self.factory, "instructions", None)
        table = _library.CustomEnvironment(
            ctypes.sizeof(_library.CustomEnvironment),
            about.encode() if isinstance(about, str) else None, _on_open, _on_set, _on_execute,
            _on_interrupt, _on_reply, _on_close)
        check(quick.droste_custom_add(engine.alive(), self.name.encode(), ctypes.byref(table),
                                      self.id, engine.err), engine.error)
        _places[self.id] = self

    def make(self, sandbox: _Sandbox) -> EnvironmentPort:
        broker, secret = Broker(sandbox), uuid.uuid4().hex
        sandbox.server = wire.Server(broker, secret)
        return _made(self.name, self.factory, dict(
            self.kwargs, broker=broker, broker_address=sandbox.server.address,
            correlation_id=secret))

    def release(self) -> None:
        _places.pop(self.id, None)

    def wait(self) -> None:
        """Waits for all cleanups, except of sandboxes closed during a method."""
        for sandbox in self._sandboxes:
            if not sandbox.open and not sandbox.abandoned:
                sandbox.finished.wait()

    def open(self, handle: int) -> _Sandbox:
        sandbox = _Sandbox(self, handle)
        self._sandboxes.append(sandbox)
        return sandbox


_places: Dict[int, Place] = {}
_open: Dict[int, _Sandbox] = {}


@_library.CustomOpenFn
def _on_open(arg: int, handle: int, own: Any) -> int:
    place = _places.get(arg)
    if place is None:
        return -1
    try:
        sandbox = place.open(handle)
    except BaseException:
        return -1
    _open[sandbox.id] = sandbox
    own[0] = sandbox.id
    return 0


@_library.CustomSetFn
def _on_set(own: int, operation: int, name: bytes, kind: bytes, address: int, length: int) -> None:
    sandbox, data = _open[own], _library.bytes_at(address, length) if length else b""
    sandbox.do(operation, lambda: sandbox.set(name.decode(), kind.decode(), data))


@_library.CustomExecuteFn
def _on_execute(own: int, operation: int, address: int, length: int) -> None:
    sandbox, code = _open[own], _library.text_at(address, length)
    sandbox.do(operation, lambda: sandbox.execute(code))


@_library.CustomInterruptFn
def _on_interrupt(own: int, operation: int) -> None:
    _open[own].interrupt()


@_library.CustomReplyFn
def _on_reply(own: int, call: int, address: int, length: int) -> None:
    data = _library.bytes_at(address, length)
    _open[own].answered(call, json.loads(data.decode("utf-8", "replace")))


@_library.CustomCloseFn
def _on_close(own: int) -> None:
    _open.pop(own).close()
