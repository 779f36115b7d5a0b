"""verifiers (v1): a runtime, and a harness whose model writes Python for a sandbox.

    import verifiers.v1 as vf
    from droste.integrations.verifiers import open_runtime

    async with open_runtime(memory="2G") as box:
        trace = await agent.run(task, runtime=box)

The task's `setup`, `finalize` and rewards get the box as their `runtime`. It has no network, so a
harness that runs a program inside cannot reach its model; `PythonHarness` calls the model from this
program and runs only what the model writes in the sandbox.
"""
from __future__ import annotations

import contextlib
import json
from typing import Any, AsyncIterator, ClassVar, Dict, List, Literal, Optional

from ..errors import ArgumentError, LostError
from ..interpreter import Interpreter
from ..result import Result
from ._imports import refuse_import
from ._machine import open_machine, run_program, write_file

try:
    from openai import APIError, AsyncOpenAI  # type: ignore
    from verifiers.v1.configs.harness import HarnessConfig  # type: ignore
    from verifiers.v1.configs.runtime import NetworkPolicyConfig  # type: ignore
    from verifiers.v1.dialects.chat import message_to_wire  # type: ignore
    from verifiers.v1.errors import SandboxError  # type: ignore
    from verifiers.v1.harness import Harness  # type: ignore
    from verifiers.v1.runtimes import (  # type: ignore
        ProgramResult, Runtime, SubprocessRuntimeInfo)
except ImportError as missing:
    refuse_import("verifiers", "verifiers>=0.4", missing)

__all__ = ["DrosteRuntime", "open_runtime", "PythonHarness", "PythonHarnessConfig"]


class DrosteConfig(NetworkPolicyConfig):
    """What verifiers asks of a box's config. Its own configs are a closed set; of those it takes
    the local one for this, by the name."""
    type: Literal["subprocess"] = "subprocess"
    allow: List[str] = []       # no network


class DrosteRuntime(Runtime):
    """A session's sandbox; `settings` are Droste's (`memory`, `isolation`, …)."""

    def __init__(self, name: Optional[str] = None, **settings: Any):
        super().__init__(name)
        self.config = DrosteConfig()
        # The trace reads it back as one of verifiers' own.
        self.info = SubprocessRuntimeInfo(id="droste:%s" % self.name)
        self._settings = settings
        self._machine: Optional[Interpreter] = None

    @property
    def interpreter(self) -> Interpreter:
        """The session, whose `execute` runs cells that keep variables."""
        if self._machine is None:
            raise SandboxError("the sandbox %s is not running" % self.name)
        return self._machine

    async def start(self) -> None:
        self._machine = await open_machine(self._settings)

    async def teardown(self) -> None:
        if self._machine is not None:
            await self._machine.shutdown(cancel=True)
            self._machine = None

    async def run(self, argv: List[str], env: Dict[str, str]) -> ProgramResult:
        try:
            done = await run_program(self.interpreter, argv, env=self.process_env(env))
        except LostError as e:
            raise SandboxError("the sandbox has ended: %s" % e) from e
        return ProgramResult(done.exit_code, done.stdout, done.stderr)

    async def _read(self, path: str, max_bytes: Optional[int] = None) -> bytes:
        try:
            if max_bytes is not None:   # the shell's: afiles.read refuses what is longer
                return await super()._read(path, max_bytes)
            return await self.interpreter.afiles.read(path)
        except (ArgumentError, LostError, OSError) as e:
            raise SandboxError("read %r: %s" % (path, e)) from e

    async def write(self, path: str, data: bytes) -> None:
        try:
            await write_file(self.interpreter, path, data)
        except (LostError, OSError) as e:
            raise SandboxError("write %r: %s" % (path, e)) from e


@contextlib.asynccontextmanager
async def open_runtime(name: Optional[str] = None, **settings: Any) -> AsyncIterator[DrosteRuntime]:
    """A running box for `Agent.run(runtime=)`; several runs may share it, one after the other."""
    box = DrosteRuntime(name, **settings)
    try:
        await box.start()
        yield box
    finally:
        await box.stop()


PYTHON = {"type": "function", "function": {
    "name": "python",
    "description": "Runs Python in a sandbox. Variables and imports stay for the next call. Returns"
                   " what the code printed, and the value of its last expression.",
    "parameters": {"type": "object", "properties": {"code": {"type": "string"}},
                   "required": ["code"], "additionalProperties": False}}}


def _code_of(arguments: str) -> Optional[str]:
    """The argument `code` of a call, if the model has written one."""
    try:
        code = json.loads(arguments)["code"]
    except (ValueError, TypeError, KeyError):
        return None
    return code if isinstance(code, str) else None


def _shown(result: Result, limit: int) -> str:
    text = result.stdout + result.stderr
    if result.error is not None:
        text += result.error.traceback or str(result.error)
    elif result.echo is not None:
        text += result.echo
    if not result.alive:
        text += "\nThe sandbox has ended; its variables are gone."
    if len(text) <= limit:
        return text or "(no output)"
    half = limit // 2
    return "%s\n[… %d characters …]\n%s" % (text[:half], len(text) - 2 * half, text[-half:])


class PythonHarnessConfig(HarnessConfig):
    max_output: int = 20000
    """How many characters of a call's output the model sees."""


class PythonHarness(Harness[PythonHarnessConfig]):
    """A conversation with the tool `python`, until the model answers without a call."""
    APPENDS_SYSTEM_PROMPT: ClassVar[bool] = True
    SUPPORTS_RESUME: ClassVar[bool] = True

    async def launch(self, ctx: Any, trace: Any, runtime: Runtime, endpoint: str, secret: str,
                     mcp_urls: Dict[str, str], data: Any) -> ProgramResult:
        if not isinstance(runtime, DrosteRuntime):
            raise TypeError("the harness needs a box of droste.integrations.verifiers.open_runtime,"
                            " not %s" % type(runtime).__name__)
        system, prompt = self.resolve_prompt(data)
        messages: List[Any] = [{"role": "system", "content": system}] if system else []
        messages += ([{"role": "user", "content": prompt}] if isinstance(prompt, str)
                     else [message_to_wire(message) for message in prompt or []])
        async with AsyncOpenAI(base_url=endpoint, api_key=secret, max_retries=0) as client:
            try:
                return await self._converse(client, ctx.model, runtime.interpreter, messages)
            except APIError as e:   # a limit of the run, too; the trace says which
                return ProgramResult(1, "", str(e))

    async def _converse(self, client: Any, model: str, machine: Interpreter,
                        messages: List[Any]) -> ProgramResult:
        while True:
            reply = await client.chat.completions.create(model=model, messages=messages,
                                                         tools=[PYTHON])
            message = reply.choices[0].message
            messages.append(message.model_dump(exclude_none=True))
            if not message.tool_calls:
                return ProgramResult(0, message.content or "", "")
            for call in message.tool_calls:
                messages.append({"role": "tool", "tool_call_id": call.id,
                                 "content": await self._answer(machine, call.function)})

    async def _answer(self, machine: Interpreter, function: Any) -> str:
        code = _code_of(function.arguments)
        if function.name != "python" or code is None:
            return "There is one tool, python, and its argument is code, a string."
        return _shown(await machine.execute(code), self.config.max_output)
