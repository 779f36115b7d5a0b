"""Droste: a runtime for Recursive Language Models.

    from droste import Interpreter, RLM

    with Interpreter() as interp:
        print(interp.execute("SUBMIT(answer=6 * 7)").answer)

docs/python.md in the repository documents the package. `droste.compat` offers the names of other
runtimes.
"""
import importlib
import warnings
from typing import Any, TYPE_CHECKING

from . import _remote, host, images, packages, runs, volumes
from ._batch import abatch, Batch, batch, Grade, TaskResult
from ._engine import close_idle_engines
from ._library import version as __version__
from ._tools import Tool
from .commands import CommandFailed, CommandResult
from .environments import EnvironmentPort, ReplResult, registry
from .errors import (ArgumentError, BudgetError, Cancelled, CellFailed, ConfigError,
                     EnvironmentFailed, Error, IOFailed, LostError, MissingLibrary, ModelAuthError,
                     ModelConnectError, ModelCutError, ModelError, ModelRateError, ModelReplayError,
                     ModelReplyError, ModelServerError, ModelStallError, ModelUnknownError,
                     NotFoundError, OutOfMemory, PermissionDenied, ProtocolError, RunFailed,
                     StoreError, TimedOut, UnsupportedError)
from ._network import NetworkRequest
from ._select import Candidate
from ._templates import Template
from .interpreter import Interpreter
from .result import CellError, Result
from .rich import RichResult, show
from .rlm import RLM, Artifact, Completion, Event

if TYPE_CHECKING:       # loaded when they are used: they need what speaks HTTP
    from ._remote.queue import Queue, QueueResult

__all__ = ["__version__", "Interpreter", "Result", "RichResult", "show", "CellError", "RLM",
           "Completion", "Event", "Artifact", "Candidate", "NetworkRequest", "Template",
           "Tool", "EnvironmentPort", "ReplResult", "registry", "close_idle_engines", "Error",
           "ArgumentError", "ConfigError", "NotFoundError", "PermissionDenied", "UnsupportedError",
           "MissingLibrary",
           "EnvironmentFailed", "LostError", "ProtocolError", "TimedOut", "BudgetError",
           "Cancelled", "IOFailed", "OutOfMemory", "StoreError", "ModelError", "ModelAuthError",
           "ModelUnknownError", "ModelRateError", "ModelServerError", "ModelConnectError",
           "ModelStallError", "ModelCutError", "ModelReplyError", "ModelReplayError", "CellFailed",
           "CommandFailed", "CommandResult", "RunFailed", "host", "images", "packages", "runs",
           "volumes", "batch", "abatch", "Batch", "Grade", "TaskResult", "Queue", "QueueResult"]

#: names that have moved to `droste.compat`
_MOVED = ("ModalInterpreter", "DaytonaInterpreter", "ExecutionProfile",
          "configure_planner_from_env", "RLMConfig", "LLMConfig", "EnvironmentConfig",
          "create_rlm_from_config")


# Loaded when a server is named: they need what speaks HTTP.
def _interpreter_of_servers() -> Any:
    from ._remote.interpreter import RemoteInterpreter
    return RemoteInterpreter


def _rlm_of_servers() -> Any:
    from ._remote.rlm import RemoteRLM
    return RemoteRLM


def _rlm_of_clusters() -> Any:
    from ._remote.queue import ClusterRLM
    return ClusterRLM


def _volumes_of_servers() -> Any:
    from ._remote import volumes as of_servers
    return of_servers


def _batch_of_servers() -> Any:
    from ._remote.batch import RemoteWork
    return RemoteWork


_remote.interpreter_of_servers = _interpreter_of_servers
_remote.rlm_of_servers = _rlm_of_servers
_remote.rlm_of_clusters = _rlm_of_clusters
_remote.volumes_of_servers = _volumes_of_servers
_remote.batch_of_servers = _batch_of_servers


def __getattr__(name: str) -> Any:
    if name in ("Queue", "QueueResult"):
        return getattr(importlib.import_module("droste._remote.queue"), name)
    if name not in _MOVED:
        raise AttributeError("module 'droste' has no attribute %r" % name)
    warnings.warn("droste.%s is droste.compat.%s" % (name, name), DeprecationWarning, stacklevel=2)
    return getattr(importlib.import_module("droste.compat"), name)
