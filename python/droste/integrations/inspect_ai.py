"""inspect-ai: the sandbox environment `droste`, one sandbox for each sample.

    Task(dataset, solver=..., scorer=..., sandbox="droste")
    Task(..., sandbox=SandboxEnvironmentSpec("droste", DrosteConfig(memory="2G")))
    inspect eval task.py --sandbox droste:memory=2G,isolation=full

inspect-ai finds it by an entry point of the installed package. Its files are in memory, and there
is not a network.
"""
from __future__ import annotations

from typing import Any, Dict, List, Literal, Optional, overload, Union

from ..commands import PIECE
from ..errors import ArgumentError, LostError
from ..interpreter import Interpreter
from ._imports import refuse_import
from ._machine import open_machine, run_program, settings_of_text, write_file

try:
    import sniffio
    from inspect_ai.util import (  # type: ignore
        ExecResult, OutputLimitExceededError, sandboxenv, SandboxEnvironment,
        SandboxEnvironmentConfigType, SandboxEnvironmentLimits, SandboxUnavailableError,
        SandboxUserUnsupportedError)
    from pydantic import BaseModel, ConfigDict  # type: ignore
except ImportError as missing:
    refuse_import("inspect-ai", "inspect-ai>=0.3.280", missing)

__all__ = ["DrosteConfig", "DrosteSandboxEnvironment"]


class DrosteConfig(BaseModel):
    """Droste's settings (docs/configuration.md), with `_` for `-`."""
    model_config = ConfigDict(frozen=True, extra="allow")

    def settings(self) -> Dict[str, Any]:
        return dict(self.model_extra or {})


def _settings_of(config: Optional[SandboxEnvironmentConfigType]) -> Dict[str, Any]:
    if isinstance(config, DrosteConfig):
        return config.settings()
    if config is None or isinstance(config, str):
        return settings_of_text(config)
    raise ArgumentError("the sandbox 'droste' is configured by a DrosteConfig or by "
                        "NAME=VALUE,NAME=VALUE, not by %s" % type(config).__name__)


class _TooMuch(Exception):
    """A stream's output exceeds the limit; has what is within it."""


class _Kept:
    """Counts a stream's output, and keeps what is within the limit to show it."""

    def __init__(self, limit: int):
        self.limit = limit
        self.pieces: List[str] = []

    def take(self, text: str) -> None:
        self.limit -= len(text.encode("utf-8", "replace"))
        if self.limit < 0:
            raise _TooMuch("".join(self.pieces))
        self.pieces.append(text)


@sandboxenv(name="droste")
class DrosteSandboxEnvironment(SandboxEnvironment):
    """A session's sandbox; commands run beside its interpreter."""

    def __init__(self, machine: Interpreter):
        super().__init__()
        #: the session, whose `execute` runs cells that keep variables
        self.interpreter = machine

    # -- life

    @classmethod
    async def sample_init(cls, task_name: str, config: Optional[SandboxEnvironmentConfigType],
                          metadata: Dict[str, str]) -> Dict[str, SandboxEnvironment]:
        library = sniffio.current_async_library()
        if library != "asyncio":
            raise RuntimeError("the sandbox 'droste' needs asyncio; unset INSPECT_ASYNC_BACKEND=%s"
                               % library)
        return {"default": cls(await open_machine(_settings_of(config)))}

    @classmethod
    async def sample_cleanup(cls, task_name: str, config: Optional[SandboxEnvironmentConfigType],
                             environments: Dict[str, SandboxEnvironment],
                             interrupted: bool) -> None:
        for environment in environments.values():
            await environment.as_type(cls).interpreter.shutdown(cancel=True)

    @classmethod
    def config_deserialize(cls, config: Dict[str, Any]) -> BaseModel:
        return DrosteConfig(**config)

    def default_polling_interval(self) -> float:
        return 0.2

    # -- commands and files

    async def exec(self, cmd: List[str], input: Union[str, bytes, None] = None,
                   cwd: Optional[str] = None, env: Optional[Dict[str, str]] = None,
                   user: Optional[str] = None, timeout: Optional[int] = None,
                   timeout_retry: bool = True, concurrency: bool = True) -> ExecResult[str]:
        """Runs a command; one that exceeds its time is killed and not tried again."""
        if user not in (None, "user"):
            raise SandboxUserUnsupportedError(
                "a sandbox of droste has one user, %r without privileges; it cannot run commands "
                "as %r" % ("user", user))
        limit = SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE
        try:
            done = await run_program(self.interpreter, cmd, input=input, cwd=cwd, env=env,
                                     timeout=timeout, limit=limit + PIECE,
                                     on_stdout=_Kept(limit).take, on_stderr=_Kept(limit).take)
        except LostError as e:
            raise SandboxUnavailableError("the sandbox has ended: %s" % e) from e
        except _TooMuch as e:
            raise OutputLimitExceededError(SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE_STR,
                                           str(e)) from None
        if done.timed_out:
            raise TimeoutError("the command exceeded its time limit of %g s" % (timeout or 0))
        return ExecResult(done.exit_code == 0, done.exit_code, done.stdout, done.stderr)

    async def write_file(self, file: str, contents: Union[str, bytes]) -> None:
        await write_file(self.interpreter, file, contents)

    @overload
    async def read_file(self, file: str, text: Literal[True] = True) -> str: ...

    @overload
    async def read_file(self, file: str, text: Literal[False]) -> bytes: ...

    async def read_file(self, file: str, text: bool = True) -> Union[str, bytes]:
        limit = SandboxEnvironmentLimits.MAX_READ_FILE_SIZE
        try:
            data = await self.interpreter.afiles.read(file, limit=limit)
        except ArgumentError:
            raise OutputLimitExceededError(SandboxEnvironmentLimits.MAX_READ_FILE_SIZE_STR,
                                           None) from None
        return data.decode() if text else data
