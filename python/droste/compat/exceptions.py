"""rlm's exceptions (rlm.utils.exceptions). Each is also the one of Droste's that means the same."""
from __future__ import annotations

from typing import Optional

from ..errors import BudgetError, Cancelled, Error, TimeoutError

__all__ = ["BudgetExceededError", "TimeoutExceededError", "TokenLimitExceededError", "ErrorThresholdExceededError",
           "CancellationError"]
