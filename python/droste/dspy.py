"""An interpreter for dspy (3.3 and later): sandboxed CPython instead of Deno and Pyodide.

    import dspy
    from droste.dspy import DrosteInterpreter

    rlm = dspy.RLM("context, question -> answer", interpreter_factory=DrosteInterpreter)
    dspy.configure(interpreter_factory=DrosteInterpreter.factory(memory="2G", preload=["numpy"]))

Works with `dspy.RLM`, `ProgramOfThought`, `CodeAct` and `Flex`, and follows the semantics of dspy's
PythonInterpreter. Only this module imports dspy.
"""
from __future__ import annotations

import contextvars
import datetime
import inspect
import keyword
import sys
from typing import Any, Callable, Dict, Generator, List, Mapping, Optional, Tuple

from dspy.primitives.code_interpreter import CodeInterpreterError, FinalOutput  # type: ignore

try:
    from dspy.primitives.code_interpreter import CodeExecutionError  # type: ignore
except ImportError:     # before 3.3.1
    CodeExecutionError = CodeInterpreterError
from dspy.utils.callback import with_callbacks  # type: ignore
from pydantic_core import PydanticSerializationError, to_jsonable_python  # type: ignore

from . import _engine, _settings, _tools
from ._shared import Shared
from ._values import NotPlain, ordered, plain, value_of_repr, Walk
from ._variables import ECHO, PRINT, RESULTS
from .errors import Error
from .interpreter import Interpreter
from .result import Result, SubmittedFirst

__all__ = ["DrosteInterpreter"]
SYNTAX = ("SyntaxError", "IndentationError", "TabError")
ENDED = "the session has ended, and its variables are gone; create a new interpreter"


# -- values, converted as in dspy's own interpreter

def _convert(value: Any) -> Any:
    """Converts one level of a value that is not JSON; falls back to pydantic's rules."""
    if isinstance(value, (datetime.datetime, datetime.time)):
        return to_jsonable_python(value)
    try:
        return plain(value)
    except NotPlain:
        try:
            return to_jsonable_python(value)
        except PydanticSerializationError:
            raise NotPlain(type(value).__name__) from None


def _convert_result(value: Any) -> Any:
    """Like `_convert`, but a namedtuple that a tool returns keeps its field names."""
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return value._asdict()
    return _convert(value)


def _walk(walk: Walk, value: Any, at: str) -> Any:
    try:
        return walk.value(value, at)
    except RecursionError:
        raise CodeInterpreterError("%s is nested too deeply, or contains itself" % at) from None
    except Error as e:
        raise CodeInterpreterError(str(e)) from e


_results = Walk(_convert_result)
_variables = Walk(_convert, number=lambda value: value)


def _prepare(variables: Mapping[str, Any]) -> Dict[str, Any]:
    """Converts the variables of a cell; raises CodeInterpreterError before anything starts."""
    for name in variables:
        if not isinstance(name, str) or not name.isidentifier() or keyword.iskeyword(name):
            raise CodeInterpreterError("Invalid variable name: %r" % (name,))
    return {name: value if isinstance(value, (str, bytes, bytearray, memoryview))
            else _walk(_variables, value, name) for name, value in variables.items()}


def _as_json(value: Any) -> Any:
    """Converts the value of a last expression: tuples and sets become lists, as in JSON."""
    if isinstance(value, dict):
        return {key: _as_json(v) for key, v in value.items()}
    if isinstance(value, (set, frozenset)):
        value = ordered(value)
    return [_as_json(v) for v in value] if isinstance(value, (list, tuple)) else value


async def _await(awaitable: Any) -> Any:
    return await awaitable


# -- where the code runs

def _host_python(settings: Dict[str, Any]) -> Dict[str, Any]:
    """Adds this program's interpreter and packages for local sandboxes without `python`."""
    if (settings.get("python") or _settings.environment_of(settings) != "local"
            or _settings.configured("python")):
        return settings
    return {**settings, "python": sys.executable}


def _instructions(settings: Mapping[str, Any]) -> str:
    """Describes the sandbox for the model, according to these settings."""
    environment = _settings.environment_of(settings)
    python = _host_python(dict(settings)).get("python")
    if environment != "local":
        where = ("The code runs in full CPython, in a %s sandbox; its packages are those of that "
                 "sandbox's image." % environment)
    elif python == sys.executable:
        where = ("The code runs in full CPython %d.%d, in a sandbox of its own without network. "
                 "The "
                 "standard library and the packages of the host's Python environment are there."
                 % sys.version_info[:2])
    else:
        where = ("The code runs in full CPython, in a sandbox of its own without network. The "
                 "standard library and that interpreter's packages are there.")
    return where + (" Subprocesses and threads work, and files may be written in the temporary "
                    "directory. Variables, functions, classes and imports stay from step to step, "
                    "also when code raises.")


class _Instructions:
    """`execution_instructions` as an attribute of the class and of instances."""

    def __get__(self, instance: Optional["DrosteInterpreter"], owner: Any = None) -> str:
        return _instructions(instance._settings if instance is not None else {})


class _Blocking(Interpreter):
    """An interpreter with its own engine, whose tools run in the thread that waits.

    dspy also calls it within an event loop and expects an immediate result.
    """
    _may_be_async = False
    _kind = "DrosteInterpreter"
    _flags = ECHO | RESULTS | PRINT     # its callers read the output only
    _typed = False      # as dspy's own interpreter: lists, dicts and text


def _for_the_code(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Wraps a tool: converts results and turns exceptions into RuntimeError, as dspy does."""
    at = "what %s() returned" % name
    if _tools.is_async(function):
        async def asynchronous(**kwargs: Any) -> Any:
            try:
                return _walk(_results, await function(**kwargs), at)
            except Exception as e:
                raise RuntimeError("%s: %s" % (type(e).__name__, e)) from e
        return asynchronous

    def synchronous(**kwargs: Any) -> Any:
        try:
            return _walk(_results, function(**kwargs), at)
        except Exception as e:
            raise RuntimeError("%s: %s" % (type(e).__name__, e)) from e
    return synchronous


class DrosteInterpreter:
    """Implements dspy's `CodeInterpreter`; `settings` are Droste's (`isolation`, `memory`, …).

    The dict `tools` is live. Tools run in threads, so calls from several threads of the code run
    concurrently; with `tool_threads=False` they run in the thread that called `execute`.
    """
    #: description of the sandbox for the model
    execution_instructions = _Instructions()

    def __init__(self, tools: Optional[Mapping[str, Callable[..., Any]]] = None,
                 output_fields: Optional[List[Dict[str, Any]]] = None,
                 callbacks: Optional[List[Any]] = None,
                 tool_threads: bool = True, **settings: Any):
        self.tools: Dict[str, Callable[..., Any]] = dict(tools or {})
        self.output_fields = output_fields
        self.callbacks = list(callbacks or [])
        self._made: Dict[str, Tuple[Any, _tools.Tool]] = {}
        self._bound: Dict[str, _tools.Tool] = {}
        self._settings = settings
        self._started = self._ended = False
        try:
            settings = _host_python(settings)
            self._inner: Any = (Shared("DrosteInterpreter", **settings) if tool_threads
                                else _Blocking(**settings))
        except Error as e:
            raise CodeInterpreterError(str(e)) from e

    @classmethod
    def factory(cls, **settings: Any) -> Callable[[], "DrosteInterpreter"]:
        """Returns an `interpreter_factory` for interpreters with these settings."""
        def make() -> "DrosteInterpreter":
            return cls(**settings)

        make.execution_instructions = _instructions(settings)  # type: ignore
        return make

    # -- opening and closing

    @with_callbacks
    def start(self) -> None:
        """Opens the session unless it is open; raises CodeInterpreterError if it has ended."""
        self._refuse_ended()
        try:
            self._inner.start()
        except Error as e:
            raise CodeInterpreterError(str(e)) from e
        self._started = True

    def _refuse_ended(self) -> None:
        if self._ended:
            raise CodeInterpreterError(ENDED)
        if self._started and not self._inner.alive:
            self._ended = True
            raise CodeInterpreterError("the sandbox has ended: " + ENDED)

    @with_callbacks
    def shutdown(self) -> None:
        """Ends the session; it cannot be started again."""
        self._ended = True
        self._inner.shutdown()

    def __enter__(self) -> "DrosteInterpreter":
        """The session opens with the first cell, or with `start`."""
        return self

    def __exit__(self, *error: Any) -> None:
        self.shutdown()

    def __call__(self, code: str, variables: Optional[Dict[str, Any]] = None) -> Any:
        return self.execute(code, variables)

    # -- code

    @with_callbacks
    def execute(self, code: str, variables: Optional[Dict[str, Any]] = None) -> Any:
        """Runs code. Returns FinalOutput after SUBMIT, else the last value, the output, or None.

        Raises `CodeExecutionError` or `SyntaxError` for errors of the code; the session continues.
        Any other `CodeInterpreterError` ends the session.
        """
        if not isinstance(code, str):
            raise CodeInterpreterError("code must be a str, not %s" % type(code).__name__)
        self._refuse_recursion()
        self._refuse_ended()
        prepared = _prepare(variables or {})
        if not self._started:
            self.start()
        try:
            self._take_tools()
            result = self._inner.execute(code, prepared)
        except Error as e:
            raise CodeInterpreterError(str(e)) from e
        return value_of_result(result)

    def _refuse_recursion(self) -> None:
        if self._inner._id in _tools.calling.get():
            raise CodeInterpreterError("DrosteInterpreter cannot execute recursively from one of "
                                       "its "
                                       "tools: each would wait for the other")

    def _find_tool(self, name: str) -> Callable[..., Any]:
        if name not in self.tools:
            raise CodeInterpreterError("Unknown tool: %s" % name)
        return self.tools[name]

    async def invoke_tool(self, tool_name: str, kwargs: Dict[str, Any]) -> Any:
        """invoke_tool() for an async tool, which runs as a task and ends with its cell."""
        return await self._find_tool(tool_name)(**kwargs)

    _invoke_async_tool = with_callbacks(invoke_tool)

    @with_callbacks
    def invoke_tool(self, tool_name: str, kwargs: Dict[str, Any]) -> Any:  # type: ignore
        """Calls a tool by name, as code in the sandbox does."""
        result = self._find_tool(tool_name)(**kwargs)
        if not inspect.isawaitable(result):
            return result
        return _engine.helper().run(_await(result), contextvars.copy_context()).result()

    def _take_tools(self) -> None:
        """Updates tools and fields; binds tools as globals, as dspy's sandbox code expects."""
        for name, function in self.tools.items():
            made = self._made.get(name)
            if made is None or made[0] is not function:
                self._made[name] = function, self._make(name, function)
        for name in [n for n in self._made if n not in self.tools]:
            del self._made[name]
        self._inner.tools = {name: tool for name, (_, tool) in self._made.items()}
        self._inner.output_fields = [field["name"] for field in self.output_fields or ()] or None
        wanted = dict(self._inner.tools)
        if wanted != self._bound:
            gone = ["globals().pop(%r, None)" % name for name in self._bound if name not in wanted]
            bind = ["globals().pop(%r, None); %s = %s" % (name, name, name) for name in wanted]
            self._inner.execute("\n".join(gone + bind)).raise_for_status()
            self._bound = wanted  # type: ignore

    def _make(self, name: str, function: Callable[..., Any]) -> _tools.Tool:
        tool = _tools.Tool(name, function)
        if tool.is_async:
            async def call(**kwargs: Any) -> Any:
                return await self._invoke_async_tool(name, kwargs)
        else:
            def call(**kwargs: Any) -> Any:
                return self.invoke_tool(name, kwargs)
        return _tools.Tool(name, _for_the_code(call, name), tool.description, tool.schema)


def value_of_result(result: Result) -> Any:
    """Converts a result into dspy's: FinalOutput, a value, text, None, or an exception."""
    own = result._own
    if own.status == "submitted":
        return FinalOutput(own.fields)
    if not own.ok:
        error = own.error
        text = str(error) if error else own.status
        if not own.alive:
            raise CodeInterpreterError(text)
        if error is not None and error.type in SYNTAX:
            raise SyntaxError("Invalid Python syntax. message: %s" % error.message)
        raise CodeExecutionError(text)
    printed = own.stdout + own.stderr
    if own.echo is None:
        return printed or None
    value = _as_json(value_of_repr(own.echo))
    if not printed:
        return value
    return "%s%s" % (printed if printed.endswith("\n") else printed + "\n", value)


class _Submission(SubmittedFirst, FinalOutput):
    """A result for fleet-rlm that is also a FinalOutput; another result owns the handle."""

    def __init__(self, result: Result):
        SubmittedFirst.__init__(self, object.__getattribute__(result, "_handle"))
        self._of = result

    def __del__(self) -> None:
        """Does not free the handle, which the other result owns."""

    def __await__(self) -> Generator[Any, None, "_Submission"]:
        return self
        yield

    def __eq__(self, other: object) -> Any:
        if not isinstance(other, FinalOutput):
            return NotImplemented
        return self._own.fields == (other._own.fields if isinstance(other, _Submission)
                                    else other.output)

    __hash__ = object.__hash__
    __repr__ = Result.__repr__


def submission_of(result: Result) -> Any:
    """Returns the result of a cell that has submitted as a FinalOutput."""
    return result if isinstance(result, FinalOutput) else _Submission(result)
