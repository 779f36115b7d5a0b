"""Harbor: an environment, one sandbox of this machine for each trial.

    harbor run -p task --agent oracle \\
        --environment-import-path droste.integrations.harbor:DrosteEnvironment --ek memory=2G

Settings of the sandbox are keywords (`--ek`). A task's `docker_image` is the sandbox's image, which
has been pulled (`droste image pull`); without one, the sandbox has this machine's programs.
Dockerfiles are not built.
"""
from __future__ import annotations

import asyncio
import io
import tarfile
from pathlib import Path
from typing import Any, Dict, Optional, Union

from ..interpreter import Interpreter
from ._imports import refuse_import
from ._machine import open_machine, run_program, write_file

try:
    from harbor.environments.base import (  # type: ignore
        BaseEnvironment, ExecResult, transfer_tar_filter)
    from harbor.environments.capabilities import (  # type: ignore
        EnvironmentCapabilities, EnvironmentResourceCapabilities)
    from harbor.models.task.config import NetworkMode  # type: ignore
except ImportError as missing:
    refuse_import("Harbor", "harbor>=0.26", missing)

__all__ = ["DrosteEnvironment"]

ARCHIVE = "/tmp/.droste-transfer.tar"


class DrosteEnvironment(BaseEnvironment):
    """A session's sandbox with a writable root; keywords are Droste's settings."""

    def __init__(self, *args: Any, image: Optional[str] = None,
                 ignore_dockerfile: Union[bool, str] = False, stream: bool = False,
                 auto_mounting: bool = False, **settings: Any):
        own = {name: settings.pop(name) for name in (
            "environment_dir", "environment_name", "session_id", "trial_paths", "task_env_config",
            "logger", "override_cpus", "override_memory_mb", "override_storage_mb",
            "override_gpus", "override_tpu", "cpu_enforcement_policy", "memory_enforcement_policy",
            "persistent_env", "mounts", "network_policy", "phase_network_policies",
            "extra_docker_compose", "enable_environment_dir_upload", "auto_mounts")
            if name in settings}
        self.context_id = settings.pop("context_id", None)
        self._image = image
        self._ignore_dockerfile = str(ignore_dockerfile).lower() in ("true", "yes", "1")
        self._settings = settings
        self._machine: Optional[Interpreter] = None
        super().__init__(*args, stream=stream, auto_mounting=auto_mounting, **own)

    @staticmethod
    def type() -> str:
        return "droste"

    @property
    def capabilities(self) -> EnvironmentCapabilities:
        return EnvironmentCapabilities(disable_internet=True)

    @classmethod
    def resource_capabilities(cls) -> EnvironmentResourceCapabilities:
        return EnvironmentResourceCapabilities(memory_limit=True)

    def _validate_definition(self) -> None:
        image = self._image or self.task_env_config.docker_image
        for name in ("Dockerfile", "docker-compose.yaml"):
            if not image and not self._ignore_dockerfile and (self.environment_dir / name).exists():
                raise FileNotFoundError(
                    "droste does not build %s: give the task a docker_image, pulled by `droste "
                    "image pull`, or --ek image=…, or --ek ignore_dockerfile=yes to run it with "
                    "this machine's programs" % name)

    @property
    def interpreter(self) -> Interpreter:
        """The session itself, whose `execute` runs cells that keep variables."""
        if self._machine is None:
            raise RuntimeError("the sandbox is not running")
        return self._machine

    # -- life

    def _sandbox_settings(self) -> Dict[str, Any]:
        settings = dict(self._settings)
        image = self._image or self.task_env_config.docker_image
        if image:
            settings["image"] = image
        if self._effective_memory_mb:
            settings.setdefault("memory", "%dM" % self._effective_memory_mb)
        if self._effective_storage_mb:
            settings.setdefault("tmp_size", "%dM" % self._effective_storage_mb)
        if self._network_policy.network_mode == NetworkMode.NO_NETWORK:
            settings.pop("allow_net", None)
        elif "allow_net" not in settings:
            settings["allow_net"] = ["all"]
        return settings

    async def start(self, force_build: bool) -> None:
        self._machine = await open_machine(self._sandbox_settings())
        try:
            await self.ensure_dirs(self._mount_targets(writable_only=True))
            await self._upload_environment_dir_after_start()
        except BaseException:
            await self.stop(True)
            raise

    async def stop(self, delete: bool) -> None:
        machine, self._machine = self._machine, None
        if machine is not None:
            await machine.shutdown(cancel=True)

    # -- commands

    async def exec(self, command: str, cwd: Optional[str] = None,
                   env: Optional[Dict[str, str]] = None, timeout_sec: Optional[int] = None,
                   user: Union[str, int, None] = None) -> ExecResult:
        """Runs a shell command as the sandbox's one user, to whom its root belongs."""
        user = self._resolve_user(user)
        if user not in (None, "user", "root", 0):
            raise RuntimeError("a sandbox of droste has one user; it cannot run commands as %r"
                               % user)
        done = await run_program(
            self.interpreter, ["bash", "-c", command], timeout=timeout_sec,
            cwd=cwd or self.task_env_config.workdir,
            env={**self.task_env_config.env, **(self._merge_env(env) or {})})
        if done.timed_out:
            raise RuntimeError("Command timed out after %s seconds" % timeout_sec)
        return ExecResult(stdout=done.stdout, stderr=done.stderr, return_code=done.exit_code)

    # -- files

    async def upload_file(self, source_path: Union[Path, str], target_path: str) -> None:
        data = await asyncio.to_thread(Path(source_path).read_bytes)
        await write_file(self.interpreter, str(target_path), data)

    async def download_file(self, source_path: str, target_path: Union[Path, str]) -> None:
        data = await self.interpreter.afiles.read(str(source_path))
        await asyncio.to_thread(Path(target_path).write_bytes, data)

    async def _shell(self, *command: str) -> None:
        done = await run_program(self.interpreter, command)
        if done.exit_code:
            raise RuntimeError("%s: %s" % (command[0], done.stderr.strip()))

    async def upload_dir(self, source_dir: Union[Path, str], target_dir: str) -> None:
        packed = io.BytesIO()

        def pack() -> None:
            with tarfile.open(fileobj=packed, mode="w") as archive:
                archive.add(source_dir, arcname=".")
        await asyncio.to_thread(pack)
        await self._shell("mkdir", "-p", str(target_dir))
        await write_file(self.interpreter, ARCHIVE, packed.getvalue())
        try:
            await self._shell("tar", "-xf", ARCHIVE, "--no-same-owner", "-C", str(target_dir))
        finally:
            await self._shell("rm", "-f", ARCHIVE)

    async def download_dir(self, source_dir: str, target_dir: Union[Path, str]) -> None:
        try:
            await self._shell("tar", "-cf", ARCHIVE, "-C", str(source_dir), ".")
            packed = await self.interpreter.afiles.read(ARCHIVE)
        finally:
            await self._shell("rm", "-f", ARCHIVE)

        def unpack() -> None:
            Path(target_dir).mkdir(parents=True, exist_ok=True)
            with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
                archive.extractall(target_dir, filter=transfer_tar_filter)
        await asyncio.to_thread(unpack)
