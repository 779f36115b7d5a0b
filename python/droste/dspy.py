"""An interpreter for dspy (3.3 and later): a sandboxed CPython in the place of Deno and Pyodide.

    import dspy
    from droste.dspy import DrosteInterpreter

    rlm = dspy.RLM("context, question -> answer", interpreter_factory=DrosteInterpreter)
    dspy.configure(interpreter_factory=DrosteInterpreter.factory(memory="2G", preload=["numpy"]))

It serves `dspy.RLM`, `ProgramOfThought`, `CodeAct` and `Flex`. Only this module imports dspy.
"""
from __future__ import annotations

import ast
import functools
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

from dspy.primitives.code_interpreter import CodeInterpreterError, FinalOutput  # type: ignore

try:
    from dspy.primitives.code_interpreter import CodeExecutionError  # type: ignore
except ImportError:     # before 3.3.1
    CodeExecutionError = CodeInterpreterError
from dspy.utils.callback import with_callbacks  # type: ignore

from . import _tools
from .errors import Error
from .interpreter import Interpreter
from .result import Result

__all__ = ["DrosteInterpreter"]
SYNTAX = ("SyntaxError", "IndentationError", "TabError")


class _Blocking(Interpreter):
    """dspy calls it within its event loop too, and expects the result at once."""
    _may_be_async = False
    _kind = "DrosteInterpreter"

    def start(self) -> Any:
        """As `Interpreter.start`; but for dspy a session that has ended is never silently another one."""
        if self._closed:
            raise Error("the interpreter was shut down; make a new one")
        return super().start()


def _raise_as_runtime_error(function: Callable[..., Any]) -> Callable[..., Any]:
    """A tool whose exceptions are RuntimeErrors in the sandbox, as in dspy's own interpreters."""
    if _tools.is_async(function):
        @functools.wraps(function)
        async def asynchronous(**kwargs: Any) -> Any:
            try:
                return await function(**kwargs)
            except Exception as e:
                raise RuntimeError("%s: %s" % (type(e).__name__, e)) from e
        return asynchronous

    @functools.wraps(function)
    def synchronous(**kwargs: Any) -> Any:
        try:
            return function(**kwargs)
        except Exception as e:
            raise RuntimeError("%s: %s" % (type(e).__name__, e)) from e
    return synchronous


class DrosteInterpreter:
    """dspy's `CodeInterpreter`. `settings` are Droste's (`isolation`, `memory`, `execute_timeout`…).

    `tools` is a dict that stays live. Calls of tools run in threads, so that code which asks in threads is
    answered at once; `tool_threads=False` has them run in the thread that called `execute`.
    """
    #: what the model is told of where its code runs
    execution_instructions = (
        "The code runs in full CPython, in a sandbox of its own without network. The standard library and the "
        "packages of the host's interpreter are there, subprocesses and threads work, and files may be written "
        "below /tmp. Variables, functions, classes and imports stay from step to step, also when code raises.")

    def __init__(self, tools: Optional[Mapping[str, Callable[..., Any]]] = None,
                 output_fields: Optional[List[Dict[str, Any]]] = None, callbacks: Optional[List[Any]] = None,
                 tool_threads: bool = True, **settings: Any):
        self.tools: Dict[str, Callable[..., Any]] = dict(tools or {})
        self.output_fields = output_fields
        self.callbacks = list(callbacks or [])
        self._made: Dict[str, Tuple[Any, _tools.Tool]] = {}
        self._bound: Dict[str, _tools.Tool] = {}
        try:
            self._inner = _Blocking(tool_threads=tool_threads, **settings)
        except Error as e:
            raise CodeInterpreterError(str(e)) from e

    @classmethod
    def factory(cls, **settings: Any) -> Callable[[], "DrosteInterpreter"]:
        """A function that makes interpreters with these settings, for `interpreter_factory`."""
        def make() -> "DrosteInterpreter":
            return cls(**settings)

        make.execution_instructions = cls.execution_instructions  # type: ignore
        return make

    # -- life

    @with_callbacks
    def start(self) -> None:
        """Opens the session; nothing happens where it is open. One that was lost is not made anew."""
        try:
            self._inner.start()
        except Error as e:
            raise CodeInterpreterError(str(e)) from e
        if not self._inner.alive:
            raise CodeInterpreterError("the sandbox is gone, and with it the session; make a new interpreter")

    @with_callbacks
    def shutdown(self) -> None:
        """Ends the session for good."""
        self._inner.shutdown()

    def __enter__(self) -> "DrosteInterpreter":
        self.start()
        return self

    def __exit__(self, *error: Any) -> None:
        self.shutdown()

    def __call__(self, code: str, variables: Optional[Dict[str, Any]] = None) -> Any:
        return self.execute(code, variables)

    # -- code

    @with_callbacks
    def execute(self, code: str, variables: Optional[Dict[str, Any]] = None) -> Any:
        """FinalOutput after SUBMIT, else the last expression's value, or what was printed, or None.

        `CodeExecutionError` and `SyntaxError` are the code's, and the session goes on; any other
        `CodeInterpreterError` is the end of it."""
        if not isinstance(code, str):
            raise CodeInterpreterError("code is a str, not %s" % type(code).__name__)
        self.start()
        try:
            self._take_tools()
            result = self._inner.execute(code, variables)
        except Error as e:
            raise CodeInterpreterError(str(e)) from e
        return self._value(result)

    @with_callbacks
    def invoke_tool(self, tool_name: str, args: List[Any], kwargs: Dict[str, Any]) -> Any:
        """Calls a tool, as the code in the sandbox does."""
        return self.tools[tool_name](*args, **kwargs)

    def _take_tools(self) -> None:
        """The tools as they are now. dspy's own code in the sandbox looks for them among its globals."""
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

        @functools.wraps(function)
        def call(**kwargs: Any) -> Any:
            return self.invoke_tool(name, [], kwargs)

        return _tools.Tool(name, _raise_as_runtime_error(function if tool.is_async else call),
                           tool.description, tool.schema)

    @staticmethod
    def _value(result: Result) -> Any:
        if result.status == "submitted":
            return FinalOutput(result.fields)
        if not result.ok:
            error = result.error
            text = str(error) if error else result.status
            if not result.alive:
                raise CodeInterpreterError(text)
            if error is not None and error.type in SYNTAX:
                raise SyntaxError(error.message)
            raise CodeExecutionError(text)
        printed = result.stdout + result.stderr
        if result.echo is None:
            return printed or None
        value = _value_of(result.echo)
        if not printed:
            return value
        return "%s%s" % (printed if printed.endswith("\n") else printed + "\n", value)


def _value_of(echo: str) -> Any:
    """The value whose repr this is, where it is one that Python can write; else the text."""
    try:
        return ast.literal_eval(echo)
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        return echo
