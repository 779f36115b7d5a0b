"""Droste: a runtime for Recursive Language Models.

    from droste import Interpreter, RLM

    with Interpreter() as interp:
        print(interp.execute("SUBMIT(answer=6 * 7)").answer)

docs/python.md in the repository has everything.
"""
from . import errors
from ._engine import clear_shelf
from ._library import version as __version__
from ._tools import Tool
from .config import EnvironmentConfig, LLMConfig, RLMConfig, create_rlm_from_config
from .environments import EnvironmentPort, ReplResult, registry
from .errors import *  # noqa: F401,F403
from .interpreter import Interpreter
from .providers import DaytonaInterpreter, ExecutionProfile, ModalInterpreter, configure_planner_from_env
from .result import CellError, Result
from .rlm import RLM, Completion, Event

__all__ = ["__version__", "Interpreter", "Result", "CellError", "RLM", "Completion", "Event", "Tool", "ModalInterpreter", "ExecutionProfile",
           "DaytonaInterpreter", "configure_planner_from_env", "create_rlm_from_config", "RLMConfig", "LLMConfig",
           "EnvironmentConfig", "EnvironmentPort", "ReplResult", "registry", "clear_shelf", *errors.__all__]
