"""Exceptions that cells see, and the marker for an argument that was not passed."""
from __future__ import annotations

from typing import Any



class Submitted(BaseException):
    """Ends the cell; a BaseException, so that `except Exception` does not catch it."""


class LLMError(RuntimeError):
    """A model call failed.

    `code` is the host's name for the reason, such as "model_rate". `answer` is the last output of a
    child run that did not submit an answer.
    """
    answer: Any = None

    def __init__(self, message: str = "", code: str = "model") -> None:
        super().__init__(message)
        self.code = code


class BudgetExceeded(LLMError):
    """A run has reached a limit; the message has the amount spent and the limit.

    `limit` is "calls", "tool_calls", "tokens", "cost", "time", "turns", "errors" or "record", or
    None if the limit has no name.
    """

    def __init__(self, message: str = "", code: str = "budget") -> None:
        super().__init__(message, code)
        self.limit = code.partition("_")[2] or None


class LLMTimeout(LLMError, TimeoutError):
    """The answer did not arrive within the deadline that the message names."""

    def __init__(self, message: str = "", code: str = "timeout") -> None:
        super().__init__(message, code)


class FailedReply(str):
    """A failed call in a batch: the text "[ERROR] …", with the exception as `.error`.

    Successful replies are plain strings.
    """
    error: Exception | None = None


class ToolError(RuntimeError):
    """A tool failed with an exception that is not a built-in; `type` is its name."""

    def __init__(self, message: str = "", type: str = "ToolError") -> None:
        super().__init__(message)
        self.type = type


class ForkError(RuntimeError):
    """A fork of fork_map could not start, died, or raised what cannot be passed on."""


class NotGiven:
    """The type of NOT_GIVEN, the default of optional parameters without one."""

    def __repr__(self) -> str:
        return "..."


NOT_GIVEN = NotGiven()
