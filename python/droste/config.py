"""RLMs from a configuration object, by the names of agentic-codebase-navigator."""
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
    """Where code runs."""
    environment: str = "local"
    environment_kwargs: Dict[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class RLMConfig:
    """All of it. What is not said is Droste's own default."""
    llm: Optional[LLMConfig] = None
    env: EnvironmentConfig = dataclasses.field(default_factory=EnvironmentConfig)
    max_depth: Optional[int] = None
    max_iterations: Optional[int] = None
    verbose: bool = False
    rlm_kwargs: Dict[str, Any] = dataclasses.field(default_factory=dict)


def create_rlm_from_config(config: RLMConfig) -> RLM:
    """The RLM that the configuration describes."""
    given: Dict[str, Any] = dict(config.rlm_kwargs, environment=config.env.environment,
                                 environment_kwargs=config.env.environment_kwargs, verbose=config.verbose)
    if config.llm is not None:
        kwargs: Mapping[str, Any] = config.llm.backend_kwargs
        given.update(backend=config.llm.backend, backend_kwargs={"model_name": config.llm.model_name, **kwargs})
    for name in ("max_depth", "max_iterations"):
        if getattr(config, name) is not None:
            given[name] = getattr(config, name)
    return RLM(**given)
