"""What can go wrong, as one tree of exceptions.

`Error` is the base of all. Below it is one class for each code of the C library (`ArgumentError`,
`LostError`, `BudgetError`, …); those of models are also `ModelError`. Each has `.code`, the library's
name for it, and is also the built-in exception that means the same, where there is one.
"""
from __future__ import annotations

from typing import Any, Dict, Optional, Type

from . import _library

__all__ = ["Error", "ArgumentError", "ConfigError", "NotFoundError", "PermissionDenied",
           "UnsupportedError", "EnvironmentFailed", "LostError", "ProtocolError", "TimedOut",
           "BudgetError", "Cancelled", "IOFailed", "OutOfMemory", "StoreError", "ModelError",
           "ModelAuthError", "ModelUnknownError", "ModelRateError", "ModelServerError",
           "ModelConnectError", "ModelStallError", "ModelCutError", "ModelReplyError",
           "ModelReplayError", "CellFailed", "RunFailed"]


class Error(Exception):
    """The base of everything that this package raises."""
    code = "error"


class ArgumentError(Error, ValueError):
    """A value that cannot be meant; the message says what can."""
    code = "argument"


class ConfigError(Error, ValueError):
    """The configuration is wrong, or something that is needed is not configured."""
    code = "config"


class NotFoundError(Error, LookupError):
    """There is nothing of that name."""
    code = "not_found"


class PermissionDenied(Error, PermissionError):
    """The system refused."""
    code = "permission"


class UnsupportedError(Error, NotImplementedError):
    """This machine, or this version, cannot do that; the message says what it needs."""
    code = "unsupported"


class EnvironmentFailed(Error, RuntimeError):
    """The sandbox could not be started."""
    code = "environment"


class LostError(Error, ConnectionError):
    """The sandbox is gone, and with it the variables; open a new interpreter."""
    code = "lost"


class ProtocolError(Error, RuntimeError):
    """The guest, or a server, said something that makes no sense, and was ended."""
    code = "protocol"


class TimedOut(Error, TimeoutError):
    """The time was up; the message says which."""
    code = "timeout"


class BudgetError(Error, RuntimeError):
    """A limit of the run was reached. Its `code` says which: "budget_cost"…"""
    code = "budget"

    @property
    def limit(self) -> Optional[str]:
        """"calls", "tool_calls", "tokens", "cost", "time", "turns", "errors", "record"; None where the limit has no name."""
        return self.code.partition("_")[2] or None


class Cancelled(Error):
    """It was interrupted."""
    code = "cancelled"


class IOFailed(Error, OSError):
    """A system call failed."""
    code = "io"


class OutOfMemory(Error, MemoryError):
    """There was no memory."""
    code = "memory"


class StoreError(Error, RuntimeError):
    """The record of runs could not be read or written."""
    code = "store"


class ModelError(Error, RuntimeError):
    """A call of a language model failed."""
    code = "model"


class ModelAuthError(ModelError):
    """The key is wrong, or is not allowed to."""
    code = "model_auth"


class ModelUnknownError(ModelError):
    """The provider has no model of that name."""
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
    """Nothing came any more."""
    code = "model_stall"


class ModelCutError(ModelError, ConnectionError):
    """The connection broke in the middle of an answer."""
    code = "model_cut"


class ModelReplyError(ModelError):
    """The answer made no sense, or there was none."""
    code = "model_reply"


class ModelReplayError(ModelError):
    """A recorded model has no answer to this."""
    code = "model_replay"


class CellFailed(Error, RuntimeError):
    """A cell did not end well. `.result` is the result; in another process, to which the exception is sent, None."""
    code = "cell"

    def __init__(self, message: str, result: Any = None):
        super().__init__(message)
        self.result = result

    def __reduce__(self) -> Any:
        return type(self), self.args


class RunFailed(Error, RuntimeError):
    """A run came to no answer; `.completion` is what there is."""
    code = "run"

    def __init__(self, message: str, completion: Any = None):
        super().__init__(message)
        self.completion = completion


def _below(kind: Type[Error]) -> Dict[str, Type[Error]]:
    found = {kind.code: kind}
    for child in kind.__subclasses__():
        found.update(_below(child))
    return found


#: the classes by the library's names of codes
BY_CODE = _below(Error)


def named(name: str, text: str) -> Error:
    """The exception of a code's name."""
    kind = BY_CODE.get(name) or BY_CODE.get(name.partition("_")[0], Error)
    exception = kind(text)
    exception.code = name
    return exception


def of(error: "_library.Error") -> Error:
    """The exception for an error of the library's."""
    exception = named(_library.quick.droste_error_name(error.code).decode(), error.text.decode("utf-8", "replace"))
    if error.sys and isinstance(exception, OSError):
        exception.errno = error.sys
    return exception


def check(rc: int, error: "_library.Error") -> int:
    """The return value, unless it is an error."""
    if rc < 0:
        raise of(error)
    return rc
