"""smolagents: an executor for `CodeAgent` whose code runs in a sandbox.

    from smolagents import CodeAgent
    from droste.integrations.smolagents import DrosteExecutor

    with CodeAgent(tools=[...], model=model, executor=DrosteExecutor(memory="2G")) as agent:
        agent.run("...")

Variables and imports stay from step to step. The tools and the agent's managed agents run in this
program, where their keys are; the code gets functions that call them.
"""
from __future__ import annotations

import asyncio
import contextvars
import io
import keyword
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, Dict, List, Mapping, Optional

from ..errors import Error
from ..interpreter import Interpreter
from ..result import Result
from ..rich import RichResult
from .._tools import Tool
from .._values import value_of_repr
from ._imports import refuse_import

try:
    import PIL.Image  # type: ignore
    from smolagents.local_python_executor import (  # type: ignore
        CodeOutput, DEFAULT_MAX_LEN_OUTPUT, InterpreterError, MAX_EXECUTION_TIME_SECONDS,
        PythonExecutor)
    from smolagents.utils import truncate_content  # type: ignore
except ImportError as missing:
    refuse_import("smolagents", "smolagents>=1.24", missing)

__all__ = ["DrosteExecutor"]

FINAL = "final_answer"
# Before each cell, because code may have bound the name to something else.
DEFINE_FINAL = """
def final_answer(*args, **kwargs):
    SUBMIT(args=list(args), kwargs=kwargs)
"""
#: smolagents' types with a JSON type of the same name
JSON_TYPES = frozenset(["string", "boolean", "integer", "number", "array", "object", "null"])


def _schema_of(inputs: Mapping[str, Mapping[str, Any]]) -> Dict[str, Any]:
    """Converts a tool's `inputs` into a JSON schema."""
    properties: Dict[str, Any] = {}
    for name, about in inputs.items():
        kinds = about["type"] if isinstance(about["type"], list) else [about["type"]]
        if about.get("nullable"):
            kinds = [*kinds, "null"]
        known = JSON_TYPES.issuperset(kinds)    # "any", "image" and "audio" are Python's
        properties[name] = {"type": kinds if len(kinds) > 1 else kinds[0]} if known else {}
        if about.get("description"):
            properties[name]["description"] = str(about["description"])
    return {"type": "object", "properties": properties, "additionalProperties": False,
            "required": [name for name, about in inputs.items() if not about.get("nullable")]}


def _tool_of(name: str, tool: Any) -> Tool:
    def call(**arguments: Any) -> Any:
        return tool(**arguments)
    return Tool(name, call, str(tool.description), _schema_of(tool.inputs))


def _image_of(results: List[RichResult]) -> Any:
    """Returns the last expression's value as an image, if it is one."""
    for result in results:
        data = (result.png or result.jpeg) if result.is_main_result else None
        if data:
            return PIL.Image.open(io.BytesIO(data))
    return None


def _last_value(result: Result) -> Any:
    return None if result.echo is None else value_of_repr(result.echo)


class DrosteExecutor(PythonExecutor):
    """A `PythonExecutor`; `settings` are Droste's (`isolation`, `memory`, `python`, `env`, …).

    A step may take as long as smolagents' own executor gives it, unless `execute_timeout` says
    otherwise; it is then interrupted, and the variables stay.
    """

    def __init__(self, max_print_outputs_length: Optional[int] = None, **settings: Any):
        settings.setdefault("execute_timeout", MAX_EXECUTION_TIME_SECONDS)
        self.max_print_outputs_length = max_print_outputs_length or DEFAULT_MAX_LEN_OUTPUT
        #: `CodeAgent` reads here what a step printed before it failed
        self.state: Dict[str, Any] = {"_print_outputs": ""}
        self._final: Any = None
        self._interpreter = Interpreter(**settings)

    # -- what an agent calls

    def send_tools(self, tools: Dict[str, Any]) -> None:
        """Offers tools and managed agents to the code, in place of earlier ones."""
        self._final = tools.get(FINAL)
        made = {name: _tool_of(name, tool) for name, tool in tools.items() if name != FINAL}
        self._interpreter.tools.clear()
        self._interpreter.tools.update(made)

    def send_variables(self, variables: Dict[str, Any]) -> None:
        """Binds variables, which keep their types (docs/values.md)."""
        for name, value in variables.items():
            if not name.isidentifier() or keyword.iskeyword(name):
                raise InterpreterError("%r is not a name of a variable" % name)
            self._outside_loop(lambda: self._interpreter.set(name, value))

    def __call__(self, code_action: str) -> CodeOutput:
        """Runs code; raises InterpreterError with the traceback if it fails."""
        self.state["_print_outputs"] = ""
        result = self._outside_loop(lambda: self._run(code_action))
        logs = truncate_content(result.stdout + result.stderr, self.max_print_outputs_length)
        self.state["_print_outputs"] = logs
        if result.status == "submitted":
            return self._answered(result, logs)
        if not result.ok:
            raise InterpreterError(self._failure_of(result))
        image = _image_of(result.results)
        return CodeOutput(output=image if image is not None else _last_value(result), logs=logs,
                          is_final_answer=False)

    def cleanup(self) -> None:
        """Ends the sandbox; `CodeAgent.cleanup` and the end of its `with` call this."""
        self._outside_loop(lambda: self._interpreter.shutdown(cancel=True))

    # -- how

    def _run(self, code: str) -> Result:
        if self._final is not None:
            self._interpreter.execute(DEFINE_FINAL).raise_for_status()
        return self._interpreter.execute(code)

    def _answered(self, result: Result, logs: str) -> CodeOutput:
        """Calls the agent's own final_answer tool with what the code gave to the function."""
        fields = result._own.fields or {}
        if self._final is None or set(fields) != {"args", "kwargs"}:
            return CodeOutput(output=result._own.output, logs=logs, is_final_answer=True)
        try:
            output = self._final(*fields["args"], **fields["kwargs"])
        except TypeError as e:      # a wrong number of arguments, which the model can mend
            raise InterpreterError("final_answer: %s" % e) from e
        return CodeOutput(output=output, logs=logs, is_final_answer=True)

    @staticmethod
    def _failure_of(result: Result) -> str:
        error = result.error
        text = (error.traceback or str(error)) if error else result.status
        if not result.alive:
            text += "\nThe sandbox has ended; its variables are gone."
        return "Code execution failed: %s" % text.strip()

    def _outside_loop(self, function: Callable[[], Any]) -> Any:
        """Calls a function that blocks; in a thread of its own where an event loop runs, as in
        notebooks."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return self._renewed(function)
        context = contextvars.copy_context()
        with ThreadPoolExecutor(1, "droste-smolagents") as pool:
            try:
                return pool.submit(context.run, self._renewed, function).result()
            except KeyboardInterrupt:
                self._interpreter.interrupt()
                raise

    def _renewed(self, function: Callable[[], Any]) -> Any:
        """Opens a new sandbox in place of one that has ended, which a failed step has told."""
        interpreter = self._interpreter
        if not interpreter.alive:
            try:
                interpreter.shutdown(cancel=True)
            except Error:
                pass
            interpreter.start()
        return function()
