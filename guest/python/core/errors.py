"""Exceptions that cells see, and the mark of an argument that was not given."""


class Submitted(BaseException):
    """Ends the cell; `except Exception` does not catch it."""


class LLMError(RuntimeError):
    """A model call failed. `code` is the host's name for the reason, such as "model_rate"; `answer`
    is what a child run said last that came to no answer."""
    answer = None

    def __init__(self, message="", code="model"):
        super().__init__(message)
        self.code = code


class BudgetExceeded(LLMError):
    """A limit of the run was reached; the message says what was spent of what. `limit` is its name:
    "calls", "tool_calls", "tokens", "cost", "time", "turns", "errors", "record"; None where it has
    none."""

    def __init__(self, message="", code="budget"):
        super().__init__(message, code)
        self.limit = code.partition("_")[2] or None


class LLMTimeout(LLMError, TimeoutError):
    """The answer did not come in time; the message says which time."""

    def __init__(self, message="", code="timeout"):
        super().__init__(message, code)


class FailedReply(str):
    """The place of a failed call in a batch: the text "[ERROR] …", with the exception as `.error`.
    Replies that succeeded are plain strings."""
    error = None


class ToolError(RuntimeError):
    """A tool failed, with an exception that Python does not have; `type` is its name."""

    def __init__(self, message="", type="ToolError"):
        super().__init__(message)
        self.type = type


class NotGiven:
    def __repr__(self):
        return "..."


NOT_GIVEN = NotGiven()
