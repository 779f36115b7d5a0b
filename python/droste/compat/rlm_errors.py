"""rlm's exceptions (rlm.utils.exceptions)."""
from __future__ import annotations

from typing import Any, Mapping, Optional

from ..errors import BudgetError

__all__ = ["BudgetExceededError", "TimeoutExceededError", "TokenLimitExceededError",
           "ErrorThresholdExceededError",
           "CancellationError"]


class BudgetExceededError(Exception):
    """The money of the run is spent."""

    def __init__(self, spent: float, budget: float, message: Optional[str] = None):
        super().__init__(message or "Budget exceeded: spent $%.6f of $%.6f" % (spent, budget))
        self.spent, self.budget = spent, budget


class TimeoutExceededError(Exception):
    """The time of the run is up."""

    def __init__(self, elapsed: float, timeout: float, partial_answer: Optional[str] = None,
                 message: Optional[str] = None):
        super().__init__(message or "Timeout exceeded: %.1f s of %.1f s" % (elapsed, timeout))
        self.elapsed, self.timeout, self.partial_answer = elapsed, timeout, partial_answer


class TokenLimitExceededError(Exception):
    """The tokens of the run are used up."""

    def __init__(self, tokens_used: int, token_limit: int, partial_answer: Optional[str] = None,
                 message: Optional[str] = None):
        super().__init__(message or "Token limit exceeded: %d of %d tokens"
                         % (tokens_used, token_limit))
        self.tokens_used, self.token_limit, self.partial_answer = (tokens_used, token_limit,
                                                                   partial_answer)


class ErrorThresholdExceededError(Exception):
    """The code failed in too many turns in a row."""

    def __init__(self, error_count: int, threshold: int, last_error: Optional[str] = None,
                 partial_answer: Optional[str] = None,
                 message: Optional[str] = None):
        super().__init__(message or "Error threshold exceeded: %d turns in a row failed (limit: "
                                    "%d)" % (error_count, threshold))
        self.error_count, self.threshold = error_count, threshold
        self.last_error, self.partial_answer = last_error, partial_answer


class CancellationError(Exception):
    """The run was cancelled."""

    def __init__(self, partial_answer: Optional[str] = None, message: Optional[str] = None):
        super().__init__(message or "the run was cancelled")
        self.partial_answer = partial_answer


def of(done: Any, error: Exception, settings: Mapping[str, Any]) -> Exception:
    """Returns rlm's exception for a run without an answer, or the error itself if rlm has none for
    it."""
    why, partial = str(error), done.response or next(
        (step.text for step in reversed(done.steps) if step.kind == "reply"), None)
    used = done.usage["input_tokens"] + done.usage["output_tokens"]
    if done.status == "timeout":
        return TimeoutExceededError(done.execution_time, float(settings.get("timeout") or 0),
                                    partial, why)
    if done.status == "cancelled":
        return CancellationError(partial, why)
    limit = error.limit if isinstance(error, BudgetError) else None
    if limit == "cost":
        return BudgetExceededError(done.cost or 0.0, float(settings.get("max-cost") or 0), why)
    if limit == "tokens":
        return TokenLimitExceededError(used, int(float(settings.get("max-total-tokens") or 0)),
                                       partial, why)
    if limit == "errors":
        most = int(settings.get("max-errors") or 0)
        last = next((step.text for step in reversed(done.steps)
                     if step.kind == "output" and step.stream == 2), None)
        return ErrorThresholdExceededError(most, most, last, partial, why)
    return error
