"""RLMs from a configuration object, by the names and with the defaults of agentic-codebase-navigator."""
from __future__ import annotations

import dataclasses
from typing import Any, Dict, List, Optional

from ._rlm_logger import RLMLogger
from .errors import ArgumentError, UnsupportedError
from .rlm import RLM

__all__ = ["LLMConfig", "EnvironmentConfig", "LoggerConfig", "RLMConfig", "create_rlm_from_config"]


@dataclasses.dataclass
class LLMConfig:
    """The model: its backend and name; `backend_kwargs` has keys and servers."""
    backend: str = "openai"
    model_name: Optional[str] = None
    backend_kwargs: Dict[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class EnvironmentConfig:
    """Where code runs. `local` has navigator's rules over imports, built-ins and files, its limits (30 seconds for a cell, at most 300;
    30 for a call), and `setup_code` before each execution; so has `docker` its limits (120 and 60) and its `setup_code`."""
    environment: str = "local"
    environment_kwargs: Dict[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class LoggerConfig:
    """Who is told of the turns: `none`, `jsonl` (lines of JSON in `log_dir`, as RLMLogger writes them), or `console`."""
    logger: str = "none"
    logger_kwargs: Dict[str, Any] = dataclasses.field(default_factory=dict)

    def made(self) -> Any:
        """The logger; None where there is none."""
        if self.logger == "jsonl":
            return RLMLogger(**{"log_dir": ".", **self.logger_kwargs})
        if self.logger not in ("none", "console") or self.logger_kwargs:
            raise ArgumentError("LoggerConfig.logger is none, jsonl (with log_dir and file_name) or console, not %r with %r" % (
                self.logger, self.logger_kwargs))
        return None


@dataclasses.dataclass
class RLMConfig:
    """All of it. `rlm_kwargs` are further arguments of `RLM`, which only Droste has."""
    llm: Optional[LLMConfig] = None
    other_llms: List[LLMConfig] = dataclasses.field(default_factory=list)
    env: EnvironmentConfig = dataclasses.field(default_factory=EnvironmentConfig)
    logger: LoggerConfig = dataclasses.field(default_factory=LoggerConfig)
    max_depth: int = 1
    max_iterations: int = 30
    verbose: bool = False
    agent_mode: str = "code"
    rlm_kwargs: Dict[str, Any] = dataclasses.field(default_factory=dict)


def create_rlm_from_config(config: RLMConfig, *, llm: Any = None, tools: Any = None, **refused: Any) -> RLM:
    """The RLM that the configuration describes. `llm` is an adapter in the place of the configuration's, `tools` are functions."""
    from .compat import navigator
    given: Dict[str, Any] = dict(config.rlm_kwargs, environment=config.env.environment,
                                 environment_kwargs=config.env.environment_kwargs,
                                 verbose=config.verbose or config.logger.logger == "console",
                                 max_depth=config.max_depth, max_iterations=config.max_iterations, _navigator=True, tools=tools)
    logger = config.logger.made()
    if logger is not None:
        given["logger"] = logger
    for name, value in refused.items():
        if name not in navigator.REFUSED and not name.endswith("_registry"):
            raise TypeError("create_rlm_from_config() has no argument %r" % name)
        if value is not None:
            raise UnsupportedError("create_rlm_from_config(%s=…) is not in Droste: %s" % (
                name, navigator.REFUSED.get(name, "adapters, environments and loggers are those of the configuration")))
    if llm is None and config.llm is not None and (config.other_llms or config.llm.backend == "mock" or config.agent_mode != "code"):
        llm = navigator.adapter_of(config.llm)
    if llm is not None:
        return RLM(llm, other_llms=[navigator.adapter_of(one) for one in config.other_llms], agent_mode=config.agent_mode, **given)
    if config.agent_mode != "code" or config.other_llms:
        raise ArgumentError("agent_mode and other_llms need RLMConfig(llm=…)")
    if config.llm is not None:
        given.update(backend=config.llm.backend, backend_kwargs={"model_name": config.llm.model_name, **config.llm.backend_kwargs})
    return RLM(**given)
