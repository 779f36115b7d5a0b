"""NeMo Gym: a provider of sandboxes, named `droste`.

    from nemo_gym.sandbox import AsyncSandbox, SandboxSpec, register_provider
    register_provider("droste", DrosteProvider)
    async with AsyncSandbox({"droste": {"memory": "2G"}}, SandboxSpec()) as box: ...

Where the package droste is installed, its entry point registers the provider by itself. Settings of
all sandboxes are the provider's keywords; `provider_options` of a specification are those of one.
A specification's `image` has been pulled (`droste image pull`); without one, the sandbox has this
machine's programs.
"""
from __future__ import annotations

import asyncio
import uuid
from pathlib import Path
from typing import Any, Dict, Mapping, Optional, Union

from ..errors import Error, LostError
from ..interpreter import Interpreter
from ._imports import refuse_import
from ._machine import open_machine, run_program, write_file

try:
    from nemo_gym.sandbox.providers.base import (  # type: ignore
        SandboxCreateError, SandboxExecResult, SandboxHandle, SandboxSpec, SandboxStatus)
except ImportError as missing:
    refuse_import("NeMo Gym", "nemo-gym>=0.7", missing)

__all__ = ["DrosteProvider"]

#: as NeMo Gym's own providers have it: the command has no exit status of its own
NO_STATUS = 125


def _settings_of(spec: SandboxSpec) -> Dict[str, Any]:
    """What a specification asks for, as settings; what no sandbox has is refused."""
    resources, settings = spec.resources, {}
    for name, wanted in (("ports", spec.ports), ("entrypoint", spec.entrypoint),
                         ("resources.gpu", resources.gpu)):
        if wanted:
            raise SandboxCreateError("the provider 'droste' has no %s" % name)
    if spec.image:
        settings["image"] = spec.image
    if resources.cpu:
        settings["cpus"] = resources.cpu
    if resources.memory_mib:
        settings["memory"] = "%dM" % resources.memory_mib
    if resources.disk_gib:
        settings["tmp_size"] = "%dG" % resources.disk_gib
    return {**settings, **spec.provider_options}


class _Machine:
    """The raw state of a handle: a session, the specification's variables, and its end."""

    def __init__(self, session: Interpreter, env: Mapping[str, str]):
        self.session, self.env = session, dict(env)
        self.end: Optional[asyncio.TimerHandle] = None
        self.ending: Optional["asyncio.Task[None]"] = None

    async def close(self) -> None:
        if self.end is not None:
            self.end.cancel()
        await self.session.shutdown(cancel=True)


class DrosteProvider:
    """Starts a session's sandbox, with a writable root, for each specification."""

    name = "droste"

    def __init__(self, **settings: Any):
        self._settings = settings
        self._machines: Dict[str, _Machine] = {}

    # -- life

    async def create(self, spec: SandboxSpec) -> SandboxHandle:
        try:
            session = await asyncio.wait_for(
                open_machine({**self._settings, **_settings_of(spec)}), spec.ready_timeout_s)
        except asyncio.TimeoutError:
            raise SandboxCreateError("the sandbox was not ready within %g s"
                                     % (spec.ready_timeout_s or 0)) from None
        except Error as e:
            raise SandboxCreateError(str(e)) from e
        machine = _Machine(session, spec.env)
        handle = SandboxHandle("droste-" + uuid.uuid4().hex[:12], self.name, machine)
        self._machines[handle.sandbox_id] = machine
        if spec.ttl_s:
            machine.end = asyncio.get_running_loop().call_later(spec.ttl_s, self._expire, handle)
        try:
            if spec.workdir:
                await run_program(session, ["mkdir", "-p", "--", spec.workdir])
        except BaseException:
            await self.close(handle)
            raise
        return handle

    def _expire(self, handle: SandboxHandle) -> None:
        handle.raw.ending = asyncio.ensure_future(self.close(handle))

    async def status(self, handle: SandboxHandle) -> SandboxStatus:
        alive = handle.sandbox_id in self._machines and handle.raw.session.alive
        return SandboxStatus.RUNNING if alive else SandboxStatus.STOPPED

    async def close(self, handle: SandboxHandle) -> None:
        machine = self._machines.pop(handle.sandbox_id, None)
        if machine is not None:
            await machine.close()

    async def aclose(self) -> None:
        while self._machines:
            await self._machines.popitem()[1].close()

    # -- commands and files

    async def exec(self, handle: SandboxHandle, command: str, *, cwd: Optional[str] = None,
                   env: Optional[Dict[str, str]] = None,
                   timeout_s: Union[int, float, None] = None,
                   user: Union[str, int, None] = None) -> SandboxExecResult:
        """Runs a shell command as the sandbox's one user, to whom its root belongs."""
        if user not in (None, "user", "root", 0):
            raise ValueError("a sandbox of droste has one user; it cannot run commands as %r"
                             % user)
        machine = handle.raw
        try:
            done = await run_program(machine.session, ["bash", "-c", command], cwd=cwd,
                                     env={**machine.env, **(env or {})}, timeout=timeout_s)
        except LostError as e:
            return SandboxExecResult(None, "the sandbox has ended: %s" % e, NO_STATUS, "sandbox")
        if done.timed_out:
            return SandboxExecResult(done.stdout, done.stderr, NO_STATUS, "timeout")
        return SandboxExecResult(done.stdout, done.stderr, done.exit_code)

    async def upload_file(self, handle: SandboxHandle, source_path: Path,
                          target_path: str) -> None:
        data = await asyncio.to_thread(Path(source_path).read_bytes)
        await write_file(handle.raw.session, target_path, data)

    async def download_file(self, handle: SandboxHandle, source_path: str,
                            target_path: Path) -> None:
        data = await handle.raw.session.afiles.read(source_path)

        def write() -> None:
            Path(target_path).parent.mkdir(parents=True, exist_ok=True)
            Path(target_path).write_bytes(data)
        await asyncio.to_thread(write)
