"""The values that alexzhang13/rlm's programs get and make (rlm.core.types), in their shapes."""
from __future__ import annotations

import dataclasses
import json
import types
from typing import Any, Dict, List, Literal, Mapping, Optional

ClientBackend = Literal["openai", "portkey", "openrouter", "vercel", "vllm", "anthropic",
                        "azure_openai", "gemini"]
EnvironmentType = Literal["local", "ipython", "docker", "modal", "prime", "daytona", "e2b"]


def _serialize_value(value: Any) -> Any:
    """Returns a value that JSON can represent; others are replaced by a description."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Mapping):
        return {str(key): _serialize_value(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_serialize_value(one) for one in value]
    if isinstance(value, types.ModuleType):
        return "<module %r>" % value.__name__
    if callable(value):
        return "<%s %r>" % (type(value).__name__, getattr(value, "__name__", None) or repr(value))
    try:
        return repr(value)
    except Exception:       # the object's own
        return "<%s>" % type(value).__name__


def _without_none(members: Dict[str, Any], *names: str) -> Dict[str, Any]:
    return {name: value for name, value in members.items()
            if value is not None or name not in names}


@dataclasses.dataclass
class ModelUsageSummary:
    """The usage of one model; the cost is in dollars, or None if it is unknown."""
    total_calls: int = 0
    total_input_tokens: int = 0
    total_output_tokens: int = 0
    total_cost: Optional[float] = None

    def to_dict(self) -> Dict[str, Any]:
        return _without_none(dict(vars(self)), "total_cost")

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "ModelUsageSummary":
        return cls(*(data.get(field.name, field.default) for field in dataclasses.fields(cls)))


@dataclasses.dataclass
class UsageSummary:
    """The usage of all calls, by model."""
    model_usage_summaries: Dict[str, ModelUsageSummary] = dataclasses.field(default_factory=dict)

    def add(self, model: str, used: ModelUsageSummary) -> None:
        """Adds usage of a model."""
        known = self.model_usage_summaries.setdefault(model, ModelUsageSummary())
        known.total_calls += used.total_calls
        known.total_input_tokens += used.total_input_tokens
        known.total_output_tokens += used.total_output_tokens
        if used.total_cost is not None:
            known.total_cost = (known.total_cost or 0) + used.total_cost

    def _sum(self, name: str) -> Any:
        return sum(getattr(one, name) or 0 for one in self.model_usage_summaries.values())

    @property
    def total_cost(self) -> Optional[float]:
        """The cost of the models with a known price, in dollars; None if there are none."""
        known = any(one.total_cost is not None for one in self.model_usage_summaries.values())
        return self._sum("total_cost") if known else None

    @property
    def total_calls(self) -> int:
        return self._sum("total_calls")

    @property
    def total_input_tokens(self) -> int:
        return self._sum("total_input_tokens")

    @property
    def total_output_tokens(self) -> int:
        return self._sum("total_output_tokens")

    def to_dict(self) -> Dict[str, Any]:
        summaries = {name: one.to_dict() for name, one in self.model_usage_summaries.items()}
        return _without_none({"model_usage_summaries": summaries, "total_cost": self.total_cost},
                             "total_cost")

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "UsageSummary":
        return cls({name: ModelUsageSummary.from_dict(one)
                    for name, one in (data.get("model_usage_summaries") or {}).items()})


@dataclasses.dataclass
class RLMChatCompletion:
    """The answer to a call or a run. `metadata` is the trajectory of a run with a logger."""
    root_model: str
    prompt: Any
    response: str
    usage_summary: UsageSummary
    execution_time: float
    metadata: Optional[Dict[str, Any]] = None
    error: Optional[str] = None

    def to_dict(self) -> Dict[str, Any]:
        return _without_none({**vars(self), "usage_summary": self.usage_summary.to_dict()},
                             "metadata", "error")

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "RLMChatCompletion":
        usage = UsageSummary.from_dict(data.get("usage_summary") or {})
        return cls(**{field.name: data.get(field.name) for field in dataclasses.fields(cls)
                      if field.name != "usage_summary"}, usage_summary=usage)     # type: ignore


class REPLResult:
    """The result of executing code."""

    def __init__(self, stdout: str, stderr: str, locals: Dict[str, Any],
                 execution_time: Optional[float] = None,
                 rlm_calls: Optional[List[RLMChatCompletion]] = None,
                 final_answer: Optional[str] = None):
        self.stdout, self.stderr, self.locals = stdout, stderr, locals
        self.execution_time, self.rlm_calls, self.final_answer = (execution_time, rlm_calls or [],
                                                                  final_answer)

    def to_dict(self) -> Dict[str, Any]:
        return {**vars(self), "locals": _serialize_value(self.locals),
                "rlm_calls": [call.to_dict() for call in self.rlm_calls]}

    def __repr__(self) -> str:
        return "REPLResult(stdout=%s, stderr=%s, locals=%s, execution_time=%s, rlm_calls=%d)" % (
            self.stdout, self.stderr, self.locals, self.execution_time, len(self.rlm_calls))


@dataclasses.dataclass
class CodeBlock:
    """A block of code and its result."""
    code: str
    result: REPLResult

    def to_dict(self) -> Dict[str, Any]:
        return {"code": self.code, "result": self.result.to_dict()}


@dataclasses.dataclass
class RLMIteration:
    """A turn: the prompt, the reply, and the results of its code."""
    prompt: Any
    response: str
    code_blocks: List[CodeBlock]
    final_answer: Optional[str] = None
    iteration_time: Optional[float] = None

    def to_dict(self) -> Dict[str, Any]:
        return {**vars(self), "code_blocks": [block.to_dict() for block in self.code_blocks]}


@dataclasses.dataclass
class RLMMetadata:
    """The configuration of a run."""
    root_model: str
    max_depth: int
    max_iterations: int
    backend: str
    backend_kwargs: Dict[str, Any]
    environment_type: str
    environment_kwargs: Dict[str, Any]
    other_backends: Optional[List[str]] = None

    def to_dict(self) -> Dict[str, Any]:
        return _serialize_value(vars(self))


def _length(value: Any) -> int:
    return len(value) if isinstance(value, str) else len(json.dumps(value, default=str))


class QueryMetadata:
    """The size of a context, and its type: str, dict or list."""

    def __init__(self, prompt: Any):
        if not isinstance(prompt, (str, dict, list)):
            raise ValueError("Invalid prompt type: %s" % type(prompt))
        self.context_type = next(kind.__name__ for kind in (str, dict, list)
                                 if isinstance(prompt, kind))
        pieces = ([prompt] if isinstance(prompt, str) else list(prompt.values())
                  if isinstance(prompt, dict) else prompt or [""])
        self.context_lengths = [_length(one["content"] if isinstance(prompt, list)
                                        and isinstance(one, dict) and "content" in one
                                        else one) for one in pieces]
        self.context_total_length = sum(self.context_lengths)
