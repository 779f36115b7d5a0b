"""Interpreters by the names and with the parameters of fleet-rlm: `ModalInterpreter`, `DaytonaInterpreter`.

Where an account is needed and not there, the error says which variable is to be set.
`DROSTE_ENVIRONMENT=local` runs the same program in a local sandbox.
"""
from __future__ import annotations

import os
from typing import Any, Dict, Mapping, Optional, Sequence

from . import _daytona, _modal, _names
from ._values import literal
from .errors import ArgumentError, UnsupportedError
from .interpreter import Interpreter
from .result import Result, SubmittedFirst

__all__ = ["ModalInterpreter", "DaytonaInterpreter", "configure_planner_from_env"]

#: what is in the sandbox from the start, and the settings of that
STAGED = {"volume_name": "volume-name", "repo_url": "repo-url", "repo_ref": "repo-ref", "context_paths": "context-path"}

#: what configure_planner_from_env has found, for interpreters that have no sub_lm
_planner: Dict[str, Any] = {}


def configure_planner_from_env(*, env_file: Optional[str] = None) -> bool:
    """Takes the model of `llm_query` from DSPY_LM_MODEL with DSPY_LLM_API_KEY (or DSPY_LM_API_KEY) and
    DSPY_LM_API_BASE, or from Droste's own configuration; whether there is one. `env_file` has more
    variables, a NAME=VALUE a line. Where dspy is loaded already, its own model is configured too."""
    variables = {**_read_env(env_file), **os.environ}
    model = variables.get("DSPY_LM_MODEL")
    key = variables.get("DSPY_LLM_API_KEY") or variables.get("DSPY_LM_API_KEY")
    _planner.clear()
    if not model or not key:
        return bool(variables.get("DROSTE_MODEL"))
    provider = next((b for b in _names.BACKENDS.values() if model.startswith(b[0] + "/")), _names.BACKENDS["openai"])
    _planner.update({"model": model, provider[1].replace("-", "_"): key})
    if variables.get("DSPY_LM_API_BASE"):
        _planner[provider[2].replace("-", "_")] = variables["DSPY_LM_API_BASE"]
    if variables.get("DSPY_LM_MAX_TOKENS"):
        _planner["max_tokens"] = int(variables["DSPY_LM_MAX_TOKENS"])
    return True


def _read_env(path: Optional[str]) -> Dict[str, str]:
    if path is None:
        return {}
    found = {}
    with open(path) as lines:
        for line in lines:
            name, equals, value = line.strip().partition("=")
            if equals and not name.startswith("#"):
                found[name.removeprefix("export ")] = value.strip("'\"")
    return found


class _Elsewhere(Interpreter):
    """What the two have in common. Parameters are kept as attributes."""
    _result_type = SubmittedFirst
    _environment = ""

    def __init__(self, given: Dict[str, Any], settings: Dict[str, Any], sub_lm: Any):
        self.parameters = given
        environment = _names.environment_name(self._environment)
        settings["env"] = environment
        settings["execute_timeout"] = given["execute_timeout"] or given["timeout"]
        settings.update(timeout=given["timeout"], max_llm_calls=given["max_llm_calls"],
                        llm_call_timeout=given["llm_call_timeout"])
        if self._kind == "ModalInterpreter" and environment == "modal":
            _modal.interpreter(given, settings)
        for name, setting in STAGED.items():
            if given.get(name) is not None:
                settings[setting] = given[name]
        there = self._environment == "daytona" == environment
        if there:
            _daytona.interpreter(given, settings)
        for name, usual in (("volume_mount_path", "/data"), ("volume_subpath", None)):
            if not there and given.get(name, usual) != usual:
                raise UnsupportedError("%s(%s=…) is not in this version: a volume is at /data, as a whole" % (self._kind, name))
        if sub_lm is not None:
            settings["model"] = _names.function_of(sub_lm)
        elif settings.get("model") is None:
            settings = {**_planner, **settings}
        super().__init__(**settings)
        self._may_be_async = bool(given["async_execute"])  # type: ignore

    def execute(self, code: str, variables: Optional[Mapping[str, Any]] = None, *,
                timeout: Optional[float] = None, execution_profile: Any = None,
                envs: Optional[Mapping[str, str]] = None) -> Result:
        """As `Interpreter.execute`; `envs` are variables of the environment, for this session from now on."""
        if envs:
            if not all(isinstance(text, str) for pair in envs.items() for text in pair):
                raise ArgumentError("envs is a dict of str: %r" % (envs,))
            super().execute("__import__('os').environ.update(%s)" % literal(dict(envs)))
        return super().execute(code, variables, timeout=timeout)


class ModalInterpreter(_Elsewhere):
    """A session in a Modal sandbox, with fleet-rlm's parameters."""
    _kind, _environment = "ModalInterpreter", "modal"

    def __init__(self, *, image: Any = None, app: Any = None, secrets: Any = None, timeout: float = 600,
                 idle_timeout: Optional[float] = None, execute_timeout: Optional[float] = None,
                 app_name: str = "dspy-rlm-interpreter", secret_name: str = "LITELLM",
                 image_python_version: str = "3.13", image_pip_packages: Sequence[str] = ("numpy", "pandas"),
                 volume_name: Optional[str] = None, volume_mount_path: str = "/data", summarize_stdout: bool = True,
                 stdout_summary_threshold: int = 10000, stdout_summary_prefix_len: int = 200, sub_lm: Any = None,
                 max_llm_calls: int = 50, llm_call_timeout: float = 60, default_execution_profile: Any = None,
                 async_execute: bool = True, **settings: Any):
        given = {name: value for name, value in locals().items() if name not in ("self", "settings", "__class__")}
        super().__init__(given, settings, sub_lm)


class DaytonaInterpreter(_Elsewhere):
    """A session in a Daytona sandbox, with fleet-rlm's parameters."""
    _kind, _environment = "DaytonaInterpreter", "daytona"

    def __init__(self, *, runtime: Any = None, owns_runtime: bool = False, timeout: float = 900,
                 execute_timeout: Optional[float] = None, volume_name: Optional[str] = None,
                 volume_subpath: Optional[str] = None, repo_url: Optional[str] = None, repo_ref: Optional[str] = None,
                 context_paths: Optional[Sequence[str]] = None, sandbox_spec: Any = None, sandbox_labels: Any = None,
                 delete_session_on_shutdown: bool = True, delete_context_on_shutdown: bool = False, sub_lm: Any = None,
                 max_llm_calls: int = 50, llm_call_timeout: float = 60, default_execution_profile: Any = None,
                 async_execute: bool = True, max_recursion_depth: int = 2, rlm_max_iterations: int = 30,
                 delegate_max_iterations: int = 8, delegate_execution_timeout: float = 300,
                 delegate_max_calls_per_turn: int = 8, delegate_result_truncation_chars: int = 8000,
                 delegate_adapter: str = "json", child_isolation_mode: str = "auto", child_fork_fallback: str = "clean",
                 broker_health_timeout: float = 20.0, broker_tool_call_timeout: float = 180.0,
                 broker_start_retries: int = 1, **settings: Any):
        given = {name: value for name, value in locals().items() if name not in ("self", "settings", "__class__")}
        settings.update(max_recursion_depth=max_recursion_depth, max_iterations=rlm_max_iterations,
                        delegate_max_iterations=delegate_max_iterations, tool_timeout=broker_tool_call_timeout)
        super().__init__(given, settings, sub_lm)
