"""agentic-codebase-navigator's configuration of an RLM (navigator.py makes RLMs of it)."""
from __future__ import annotations

import dataclasses
from typing import Any, Dict, List, Optional

from ..errors import ArgumentError
from .rlm_logger import RLMLogger

__all__ = ["LLMConfig", "EnvironmentConfig", "LoggerConfig", "RLMConfig"]


@dataclasses.dataclass
class LLMConfig:
    """The model: its backend and name; `backend_kwargs` has keys and servers."""
    backend: str = "openai"
    model_name: Optional[str] = None
    backend_kwargs: Dict[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class EnvironmentConfig:
    """Where code runs. `local` has navigator's rules over imports, built-ins and files, its limits
    (30 seconds for a cell, at most 300; 30 for a call), and `setup_code` before each execution; so
    has `docker` its limits (120 and 60) and its `setup_code`."""
    environment: str = "local"
    environment_kwargs: Dict[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class LoggerConfig:
    """The logger of turns: `none`, `jsonl` (JSON lines in `log_dir`, as from RLMLogger), or
    `console`."""
    logger: str = "none"
    logger_kwargs: Dict[str, Any] = dataclasses.field(default_factory=dict)

    def made(self) -> Any:
        """Returns the logger, or None."""
        if self.logger == "jsonl":
            return RLMLogger(**{"log_dir": ".", **self.logger_kwargs})
        if self.logger not in ("none", "console") or self.logger_kwargs:
            raise ArgumentError("LoggerConfig.logger must be none, jsonl (with log_dir and "
                                "file_name) or console, not %r with %r" % (
                self.logger, self.logger_kwargs))
        return None


@dataclasses.dataclass
class RLMConfig:
    """The whole configuration. `rlm_kwargs` are further arguments of `RLM`, an addition of
    Droste."""
    llm: Optional[LLMConfig] = None
    other_llms: List[LLMConfig] = dataclasses.field(default_factory=list)
    env: EnvironmentConfig = dataclasses.field(default_factory=EnvironmentConfig)
    logger: LoggerConfig = dataclasses.field(default_factory=LoggerConfig)
    max_depth: int = 1
    max_iterations: int = 30
    verbose: bool = False
    agent_mode: str = "code"
    rlm_kwargs: Dict[str, Any] = dataclasses.field(default_factory=dict)
