"""The exceptions of this package.

`Error` is the base class. There is one subclass for each error code of the C library
(`ArgumentError`, `LostError`, `BudgetError`, …); failures of models derive from `ModelError`. Each
has `.code`, the library's name for the error (enum droste_code in droste.h), and derives from the
corresponding built-in exception, if there is one.
"""
from __future__ import annotations

from typing import Any, Dict, Optional, Type

from . import _library

__all__ = ["Error", "ArgumentError", "ConfigError", "NotFoundError", "PermissionDenied",
           "UnsupportedError", "MissingLibrary", "EnvironmentFailed", "LostError", "ProtocolError",
           "TimedOut",
           "BudgetError", "Cancelled", "IOFailed", "OutOfMemory", "StoreError", "ModelError",
           "ModelAuthError", "ModelUnknownError", "ModelRateError", "ModelServerError",
           "ModelConnectError", "ModelStallError", "ModelCutError", "ModelReplyError",
           "ModelReplayError", "CellFailed", "RunFailed"]


class Error(Exception):
    """Base class of all exceptions of this package."""
    code = "error"


class ArgumentError(Error, ValueError):
    """A wrong value; the message names valid ones."""
    code = "argument"


class ConfigError(Error, ValueError):
    """The configuration is wrong or incomplete."""
    code = "config"


class NotFoundError(Error, LookupError):
    """Nothing with this name exists."""
    code = "not_found"


class PermissionDenied(Error, PermissionError):
    """The operating system denied access."""
    code = "permission"


class UnsupportedError(Error, NotImplementedError):
    """This machine or version lacks a feature; the message names the requirement."""
    code = "unsupported"


_library.missing_error = UnsupportedError


class MissingLibrary(UnsupportedError, ImportError):
    """A value belongs to a library that this interpreter does not have; the message names it."""
    code = "unsupported_library"


class EnvironmentFailed(Error, RuntimeError):
    """The sandbox could not be started."""
    code = "environment"


class LostError(Error, ConnectionError):
    """The sandbox is gone with all variables; open a new interpreter."""
    code = "lost"


class ProtocolError(Error, RuntimeError):
    """A guest or server violated the protocol; its connection was closed."""
    code = "protocol"


class TimedOut(Error, TimeoutError):
    """A deadline has passed; the message names it."""
    code = "timeout"


class BudgetError(Error, RuntimeError):
    """A run has reached a limit; `code` names it, such as "budget_cost"."""
    code = "budget"

    @property
    def limit(self) -> Optional[str]:
        """One of "calls", "tool_calls", "tokens", "cost", "time", "turns", "errors", "record".

        None if it has no name.
        """
        return self.code.partition("_")[2] or None


class Cancelled(Error):
    """The operation was interrupted."""
    code = "cancelled"


class IOFailed(Error, OSError):
    """A system call failed."""
    code = "io"


class OutOfMemory(Error, MemoryError):
    """Memory allocation failed."""
    code = "memory"


class StoreError(Error, RuntimeError):
    """The record of runs could not be read or written."""
    code = "store"


class ModelError(Error, RuntimeError):
    """A call of a language model failed."""
    code = "model"


class ModelAuthError(ModelError):
    """The API key is wrong or lacks a permission."""
    code = "model_auth"


class ModelUnknownError(ModelError):
    """The provider has no model with this name."""
    code = "model_unknown"


class ModelRateError(ModelError):
    """Too many requests."""
    code = "model_rate"


class ModelServerError(ModelError):
    """The provider's server failed."""
    code = "model_server"


class ModelConnectError(ModelError, ConnectionError):
    """No connection to the provider."""
    code = "model_connect"


class ModelStallError(ModelError):
    """The provider stopped sending data."""
    code = "model_stall"


class ModelCutError(ModelError, ConnectionError):
    """The connection broke during an answer."""
    code = "model_cut"


class ModelReplyError(ModelError):
    """The answer was malformed or missing."""
    code = "model_reply"


class ModelReplayError(ModelError):
    """A recorded model has no answer to this call."""
    code = "model_replay"


class CellFailed(Error, RuntimeError):
    """A cell failed. `.result` is its Result, or None after unpickling in another process."""
    code = "cell"

    def __init__(self, message: str, result: Any = None):
        super().__init__(message)
        self.result = result

    def __reduce__(self) -> Any:
        return type(self), self.args


class RunFailed(Error, RuntimeError):
    """A run ended without an answer; `.completion` has its details."""
    code = "run"

    def __init__(self, message: str, completion: Any = None):
        super().__init__(message)
        self.completion = completion


def _below(kind: Type[Error]) -> Dict[str, Type[Error]]:
    found = {kind.code: kind}
    for child in kind.__subclasses__():
        found.update(_below(child))
    return found


#: exception classes by the library's names of codes
BY_CODE = _below(Error)


def named(name: str, text: str) -> Error:
    """Creates the exception for a code's name; unknown ones use the part before `_`."""
    kind = BY_CODE.get(name) or BY_CODE.get(name.partition("_")[0], Error)
    exception = kind(text)
    exception.code = name
    return exception


def of(error: "_library.Error") -> Error:
    """Creates the exception for a library error, with errno if it has one."""
    exception = named(_library.quick.droste_error_name(error.code).decode(),
                      error.text.decode("utf-8", "replace"))
    if error.sys and isinstance(exception, OSError):
        exception.errno = error.sys
    return exception


def check(rc: int, error: "_library.Error") -> int:
    """Returns `rc`, or raises if it is negative."""
    if rc < 0:
        raise of(error)
    return rc
