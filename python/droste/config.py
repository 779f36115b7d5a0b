"""RLMs from a configuration object, by the names and with the defaults of agentic-codebase-navigator."""
from __future__ import annotations

import dataclasses
from typing import Any, Dict, Mapping, Optional

from .rlm import RLM

__all__ = ["LLMConfig", "EnvironmentConfig", "RLMConfig", "create_rlm_from_config"]


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
class RLMConfig:
    """All of it. `rlm_kwargs` are further arguments of `RLM`, which only Droste has."""
    llm: Optional[LLMConfig] = None
    env: EnvironmentConfig = dataclasses.field(default_factory=EnvironmentConfig)
    max_depth: int = 1
    max_iterations: int = 30
    verbose: bool = False
    rlm_kwargs: Dict[str, Any] = dataclasses.field(default_factory=dict)


def create_rlm_from_config(config: RLMConfig) -> RLM:
    """The RLM that the configuration describes."""
    given: Dict[str, Any] = dict(config.rlm_kwargs, environment=config.env.environment,
                                 environment_kwargs=config.env.environment_kwargs, verbose=config.verbose,
                                 max_depth=config.max_depth, max_iterations=config.max_iterations, _navigator=True)
    if config.llm is not None:
        kwargs: Mapping[str, Any] = config.llm.backend_kwargs
        given.update(backend=config.llm.backend, backend_kwargs={"model_name": config.llm.model_name, **kwargs})
    return RLM(**given)
