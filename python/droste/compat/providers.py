"""Interpreters by the names and with the parameters of fleet-rlm: `ModalInterpreter`,
`DaytonaInterpreter`.

Where an account is needed and not there, the error says which variable is to be set.
`DROSTE_ENVIRONMENT=local` runs the same program in a local sandbox.
"""
from __future__ import annotations

import contextlib
import enum
import functools
import inspect
import os
import sys
import types
from typing import Any, Callable, Dict, Generator, Iterator, List, Mapping, Optional, Sequence

from .._values import literal
from .._variables import ECHO, PRINT, RESULTS
from ..errors import ArgumentError, UnsupportedError
from ..interpreter import Interpreter
from ..result import Result, SubmittedFirst
from . import arguments, daytona, modal

__all__ = ["ModalInterpreter", "DaytonaInterpreter", "ExecutionProfile",
           "configure_planner_from_env"]

#: parameters about the initial contents of the sandbox, and their settings
STAGED = {"volume_name": "volume-name", "repo_url": "repo-url", "repo_ref": "repo-ref",
          "context_paths": "context-path"}

#: the result of configure_planner_from_env, for interpreters without sub_lm
_planner: Dict[str, Any] = {}


def configure_planner_from_env(*, env_file: Optional[str] = None) -> bool:
    """Takes the model of `llm_query` from DSPY_LM_MODEL with DSPY_LLM_API_KEY (or DSPY_LM_API_KEY)
    and DSPY_LM_API_BASE, or from Droste's own configuration; whether there is one. `env_file` has
    more variables, a NAME=VALUE a line. Where dspy is loaded already, its own model is configured
    too."""
    variables = {**_read_env(env_file), **os.environ}
    model = variables.get("DSPY_LM_MODEL")
    key = variables.get("DSPY_LLM_API_KEY") or variables.get("DSPY_LM_API_KEY")
    _planner.clear()
    if not model or not key:
        return bool(variables.get("DROSTE_MODEL"))
    provider = next((b for b in arguments.BACKENDS.values() if model.startswith(b[0] + "/")),
                    arguments.BACKENDS["openai"])
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


class ExecutionProfile(str, enum.Enum):
    """Which of the sandbox's helpers and tools a cell can use. ROOT_INTERLOCUTOR has none but
    SUBMIT, llm_query and llm_query_batched; the others have all of them."""
    ROOT_INTERLOCUTOR = "ROOT_INTERLOCUTOR"
    RLM_ROOT = "RLM_ROOT"
    RLM_DELEGATE = "RLM_DELEGATE"
    MAINTENANCE = "MAINTENANCE"


#: fleet-rlm's helpers, which a profile may remove
HELPERS = (
    "peek", "grep", "chunk_by_size", "chunk_by_headers", "chunk_by_timestamps",
    "chunk_by_json_keys", "add_buffer", "get_buffer",
    "clear_buffer", "save_to_volume", "load_from_volume", "workspace_write", "workspace_read",
    "workspace_append", "workspace_list",
    "log_execution", "get_session_history", "get_last_execution", "run", "read_file", "list_files",
    "find_files", "resolve_path",
    "extract_python_ast", "start_background_process", "read_process_logs", "kill_process")
#: tools that every profile has
KEPT = ("llm_query", "llm_query_batched")

#: names that are restored after each cell
RESTORED = ("llm_query", "llm_query_batched", "SUBMIT")

#: the answers to several prompts, or the exception of the first failed one
BATCHED = ("[r if isinstance(r, str) else (_ for _ in ()).throw(r) for r in llm_query_batched(%s, "
           "errors='return')]")

SWITCH = '''
def _profile(names=%r, profile=%r):
    own = vars(__builtins__)
    kept = own.setdefault("_helpers", {})
    own.update(kept)
    kept.clear()
    for name in names if profile else ():
        def refuse(*args, _name=name, **named):
            raise RuntimeError("Helper %%r is not available in %%s profile. Delegate tool-heavy work via "
                               "llm_query/llm_query_batched." %% (_name, profile))
        if name in own:
            kept[name], own[name] = own[name], refuse
_profile()
del _profile
'''


def _profile_of(profile: Any) -> ExecutionProfile:
    if profile is None:
        return ExecutionProfile.RLM_DELEGATE
    try:
        return ExecutionProfile(profile)
    except ValueError:
        raise ArgumentError("unknown execution profile %r; use one of %s"
                            % (profile, ", ".join(ExecutionProfile.__members__))) from None


class _Shown(SubmittedFirst):
    """A result that as text is what fleet-rlm's `execute` returns of a cell that submits nothing:
    its output, a long one summarised, and what it raised."""
    __slots__ = ("_summary",)

    def __init__(self, summary: Callable[[str], str], *arguments: Any):
        super().__init__(*arguments)
        self._summary = summary

    def __await__(self) -> Generator[Any, None, Any]:
        yield from super().__await__()
        return _as_dspy_expects(self, sys._getframe())

    def __str__(self) -> str:
        if self._own.fields is not None:
            return repr(self)
        parts = [self._summary(self._own.stdout), self._own.stderr,
                 str(self._own.error or "") or (self._own.echo or "")]
        return "\n".join(part.rstrip("\n") for part in parts if part)


def _as_dspy_expects(result: Any, caller: types.FrameType) -> Any:
    """What dspy's own modules get is what its protocol says, at once, as these interpreters have
    the methods of its CodeInterpreter. Other programs get a result that is a FinalOutput too, where
    dspy is loaded and the cell has submitted."""
    if "dspy" not in sys.modules:
        return result
    from .. import dspy as contract
    if (caller.f_globals.get("__name__") or "").partition(".")[0] == "dspy":
        return contract.value_of_result(result)
    return (contract.submission_of(result) if result._own.done and result._own.fields is not None
            else result)


def _summary(threshold: Optional[int], prefix: int, text: str) -> str:
    """Returns fleet-rlm's summary of a text over the threshold. Programs match its exact words."""
    if threshold is None or len(text) <= threshold:
        return text
    shown = text[:prefix].replace("\n", "\\n")
    return '[Output: {:,} chars, {:,} lines]\nPrefix: "{}..."'.format(len(text), text.count("\n"),
                                                                      shown)


class _Elsewhere(Interpreter):
    """The base of both interpreters. Parameters are kept as attributes."""
    _result_type = SubmittedFirst
    _flags = ECHO | RESULTS | PRINT     # its callers read the output only
    _typed = False      # JSON values, as in fleet-rlm
    _environment = ""
    #: parameters of fleet-rlm's that have nothing to do here, and why; another value than the usual
    #: one is refused
    _nothing_here: Dict[str, str] = {}
    #: parameters of which only some values are accepted, because Droste always behaves that way
    _fixed: Dict[str, Any] = {}

    def __init__(self, options: Dict[str, Any], settings: Dict[str, Any], sub_lm: Any):
        self.parameters = options
        self._refuse(options)
        self._profile, self._profile_there = _profile_of(
            options["default_execution_profile"]), ExecutionProfile.RLM_DELEGATE
        environment = arguments.environment_name(self._environment)
        settings["env"] = environment
        settings["execute_timeout"] = options["execute_timeout"] or options["timeout"]
        settings.update(timeout=options["timeout"], max_llm_calls=options["max_llm_calls"],
                        llm_call_timeout=options["llm_call_timeout"])
        if self._kind == "ModalInterpreter" and environment == "modal":
            modal.interpreter(options, settings)
        for name, setting in STAGED.items():
            if options.get(name) is not None:
                settings[setting] = options[name]
        there = self._environment == "daytona" == environment
        # the paths and directories that fleet-rlm's pages name
        if environment in ("local", "docker", "modal"):
            settings.setdefault("layout", "daytona")
        if there:
            daytona.interpreter(options, settings)
        for name, usual in (("volume_mount_path", "/data"), ("volume_subpath", None)):
            if not there and options.get(name, usual) != usual:
                raise UnsupportedError("%s(%s=…) is not supported in this version: a volume is "
                                       "always mounted as a whole, at /data" % (self._kind, name))
        if "restore-name" not in settings:
            settings.setdefault("restore_name", RESTORED)
        if sub_lm is not None:
            settings["model"] = arguments.function_of(sub_lm)
        elif settings.get("model") is None:
            settings = {**_planner, **settings}
        super().__init__(**settings)
        self._may_be_async = bool(options["async_execute"])  # type: ignore
        threshold = options["stdout_summary_threshold"] if options.get("summarize_stdout") else None
        summary = functools.partial(_summary, threshold,
                                    options.get("stdout_summary_prefix_len", 0))
        self._result_type = functools.partial(_Shown, summary)  # type: ignore

    def _refuse(self, options: Mapping[str, Any]) -> None:
        usual = inspect.signature(type(self)).parameters
        for name, why in self._nothing_here.items():
            if options[name] != usual[name].default:
                raise UnsupportedError("%s(%s=%r) has no effect here: %s"
                                       % (self._kind, name, options[name], why))
        for name, (values, why) in self._fixed.items():
            if options[name] not in values:
                raise UnsupportedError("%s(%s=%r): %s" % (self._kind, name, options[name], why))

    @contextlib.contextmanager
    def execution_profile(self, profile: Any) -> Iterator["_Elsewhere"]:
        """Sets the profile of cells within a `with` block, unless `execute` names another."""
        before, self._profile = self._profile, _profile_of(profile)
        try:
            yield self
        finally:
            self._profile = before

    def _open_session(self) -> None:
        self._profile_there = ExecutionProfile.RLM_DELEGATE      # a new session has all helpers
        super()._open_session()

    def execute(self, code: str, variables: Optional[Mapping[str, Any]] = None, *,
                timeout: Optional[float] = None, execution_profile: Any = None,
                envs: Optional[Mapping[str, str]] = None) -> Result:
        """As `Interpreter.execute`; `envs` are variables of the environment, for this session from
        now on, and `execution_profile` what this cell has of helpers and tools."""
        profile = self._profile if execution_profile is None else _profile_of(execution_profile)
        if envs and not all(isinstance(text, str) for pair in envs.items() for text in pair):
            raise ArgumentError("envs must be a dict of str, not %r" % (envs,))
        if envs:
            super().execute("__import__('os').environ.update(%s)" % literal(dict(envs)))
        with self._lock:
            self._switch_profile(profile)
            tools = self.tools
            if profile is ExecutionProfile.ROOT_INTERLOCUTOR:
                self.tools = {name: tool for name, tool in tools.items() if name in KEPT}
            try:
                return _as_dspy_expects(super().execute(code, variables, timeout=timeout),
                                        sys._getframe(1))
            finally:
                self.tools = tools

    def llm_query(self, prompt: str) -> str:
        """Calls the model from the host, as llm_query does in code: with the same limits and
        counters."""
        return self._ask("llm_query(%s)", prompt, [prompt])

    def llm_query_batched(self, prompts: Sequence[str]) -> List[str]:
        """The same for several at once; RuntimeError if any failed."""
        return self._ask(BATCHED, list(prompts), prompts) if prompts else []

    def _ask(self, code: str, value: Any, prompts: Sequence[str]) -> Any:
        if not all(isinstance(prompt, str) and prompt for prompt in prompts):
            raise ValueError("prompt cannot be empty: it must be a str")
        fields, self.output_fields = self.output_fields, None
        try:
            result = super().execute("SUBMIT(reply=%s)" % code % literal(value))
            return result.raise_for_status()["reply"]
        finally:
            self.output_fields = fields

    def _switch_profile(self, profile: ExecutionProfile) -> None:
        bare = profile is ExecutionProfile.ROOT_INTERLOCUTOR
        if bare != (self._profile_there is ExecutionProfile.ROOT_INTERLOCUTOR):
            super().execute(SWITCH % (HELPERS, profile.value if bare else None))
            self._profile_there = profile


class ModalInterpreter(_Elsewhere):
    """A session in a Modal sandbox, with fleet-rlm's parameters."""
    _kind, _environment = "ModalInterpreter", "modal"
    _nothing_here = {"secret_name": "secrets are not sent to a sandbox, because the host calls "
                                    "the models; pass variables for the code as env_var"}

    def __init__(self, *, image: Any = None, app: Any = None, secrets: Any = None,
                 timeout: float = 600,
                 idle_timeout: Optional[float] = None, execute_timeout: Optional[float] = None,
                 app_name: str = "dspy-rlm-interpreter", secret_name: str = "LITELLM",
                 image_python_version: str = "3.13",
                 image_pip_packages: Sequence[str] = ("numpy", "pandas"),
                 volume_name: Optional[str] = None, volume_mount_path: str = "/data",
                 summarize_stdout: bool = True,
                 stdout_summary_threshold: int = 10000, stdout_summary_prefix_len: int = 200,
                 sub_lm: Any = None,
                 max_llm_calls: int = 50, llm_call_timeout: float = 60,
                 default_execution_profile: Any = None,
                 async_execute: bool = True, **settings: Any):
        options = {name: value for name, value in locals().items()
                   if name not in ("self", "settings", "__class__")}
        if "literal-grep" not in settings:
            # in fleet-rlm's Daytona sandboxes, grep behaves like Droste's
            settings.setdefault("literal_grep", True)
        super().__init__(options, settings, sub_lm)


class DaytonaInterpreter(_Elsewhere):
    """A session in a Daytona sandbox, with fleet-rlm's parameters."""
    _kind, _environment = "DaytonaInterpreter", "daytona"
    _nothing_here = {
        "owns_runtime": "Droste has no separate runtime",
        "rlm_max_iterations": "an interpreter has no loop of its own; pass max_iterations to RLM, "
                              "or max_iters to dspy.RLM",
        "delegate_max_calls_per_turn": "max_llm_calls and max_children limit child runs",
        "delegate_result_truncation_chars": "answers of child runs are not truncated",
        "delegate_adapter": "child runs use Droste's own protocol with the model, not an adapter "
                            "of dspy",
        "child_fork_fallback": "a child run always gets a fresh sandbox, never a fork of its "
                               "parent's",
        "broker_health_timeout": "calls use the sandbox's own stream; there is no broker to start",
        "broker_start_retries": "calls use the sandbox's own stream; there is no broker to start",
    }
    _fixed = {
        "child_isolation_mode": (("auto", "clean"), "a child run always has its own sandbox "
                                                    "('clean')"),
    }

    def __init__(self, *, runtime: Any = None, owns_runtime: bool = False, timeout: float = 900,
                 execute_timeout: Optional[float] = None, volume_name: Optional[str] = None,
                 volume_subpath: Optional[str] = None, repo_url: Optional[str] = None,
                 repo_ref: Optional[str] = None,
                 context_paths: Optional[Sequence[str]] = None, sandbox_spec: Any = None,
                 sandbox_labels: Any = None,
                 delete_session_on_shutdown: bool = True, delete_context_on_shutdown: bool = False,
                 sub_lm: Any = None,
                 max_llm_calls: int = 50, llm_call_timeout: float = 60,
                 default_execution_profile: Any = None,
                 async_execute: bool = True, max_recursion_depth: int = 2,
                 rlm_max_iterations: int = 30,
                 delegate_max_iterations: int = 8, delegate_execution_timeout: float = 300,
                 delegate_max_calls_per_turn: int = 8, delegate_result_truncation_chars: int = 8000,
                 delegate_adapter: str = "json", child_isolation_mode: str = "auto",
                 child_fork_fallback: str = "clean",
                 broker_health_timeout: float = 20.0, broker_tool_call_timeout: float = 180.0,
                 broker_start_retries: int = 1, **settings: Any):
        options = {name: value for name, value in locals().items()
                   if name not in ("self", "settings", "__class__")}
        settings.update(max_recursion_depth=max_recursion_depth,
                        delegate_max_iterations=delegate_max_iterations,
                        tool_timeout=broker_tool_call_timeout)
        # of a call by code, including calls of child runs
        settings.setdefault("broker_timeout", delegate_execution_timeout)
        super().__init__(options, settings, sub_lm)
