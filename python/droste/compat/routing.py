"""What an RLM does with a model that is an adapter of agentic-codebase-navigator's: an object with
`model_name` and `complete(request)`.

It is asked in this process; several are routed by the model that the code names (`llm_query(prompt,
model=…)`). An adapter of a provider (one with `backend_kwargs`) becomes Droste's own model of that
name.
"""
from __future__ import annotations

import dataclasses
import json
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

from .. import _tools
from ..errors import ArgumentError, UnsupportedError
from .rlm_types import RLMChatCompletion


# -- models of values

@dataclasses.dataclass
class LLMRequest:
    """A request to an adapter."""
    prompt: Any
    model: Optional[str] = None
    tools: Optional[List[Any]] = None
    tool_choice: Optional[str] = None


@dataclasses.dataclass
class BatchedLLMRequest:
    """Several prompts at once."""
    prompts: List[Any]
    model: Optional[str] = None


@dataclasses.dataclass
class ChatCompletion(RLMChatCompletion):
    """An adapter's answer; `tool_calls` are {"name", "arguments"} of tools to call."""
    tool_calls: Optional[List[Dict[str, Any]]] = None
    finish_reason: Optional[str] = None


class RLMError(Exception):
    """The base of navigator's errors."""


class ValidationError(RLMError):
    """An argument is invalid."""


class ExecutionError(RLMError):
    """Code could not be executed."""


class BrokerError(RLMError):
    """A request could not be passed to a model."""


class LLMError(RLMError):
    """A model failed."""


class ToolNotFoundError(RLMError):
    """The model asked for a tool that does not exist."""


class ToolExecutionError(RLMError):
    """A tool failed."""


# -- tools

def tool(function: Callable[..., Any]) -> Callable[..., Any]:
    """Marks a function as a tool; any function can be one."""
    return function


class NativeToolAdapter:
    """A function as a tool."""

    def __init__(self, function: Callable[..., Any], *, name: Optional[str] = None,
                 description: Optional[str] = None):
        self.function, self.name = function, name or function.__name__
        self.description = description

    def tool(self) -> _tools.Tool:
        return _tools.Tool(self.name, self.function, self.description)


class InMemoryToolRegistry:
    """Tools by name."""

    def __init__(self) -> None:
        self._tools: Dict[str, Any] = {}

    def register(self, tool: Any) -> None:
        """Adds a tool."""
        name = getattr(tool, "name", None) or getattr(tool, "__name__", None)
        if not name or name in self._tools:
            raise ValidationError("the tool %r has no name, or the same name as another one"
                                  % (tool,))
        self._tools[name] = tool

    def __iter__(self) -> Any:
        return iter(self._tools.values())


def _tool(tool: Any) -> Any:
    return tool.tool() if isinstance(tool, NativeToolAdapter) else tool


# -- RLMs

#: arguments of navigator without an effect here
REFUSED = {
    "broker_factory": "calls of models use the sandbox's own stream, without a broker",
    "environment_factory": "register a class with droste.registry, and pass its name as the "
                           "environment",
    "nested_call_policy": "max_depth decides whether rlm_query starts a child run",
    "nested_call_handler": "pass your own object as llm; Droste asks it for every call",
    "stopping_policy": "use max_iterations, max_total_tokens, max_cost and timeout",
    "context_compressor": "use compaction to shorten a conversation",
    "output_type": "use answer_schema to set the type of the answer",
}


class _Asker:
    """The model function of navigator's adapters: calls the adapter that the code names, else the
    first."""

    def __init__(self, llms: List[Any], root: bool, tools: Optional[Mapping[str, Any]]):
        self._llms = {llm.model_name: llm for llm in llms}
        self._first, self._root, self._tools = llms[0], root, tools
        self.model_name = self._first.model_name

    def __call__(self, messages: List[Dict[str, Any]], model: Optional[str] = None) -> str:
        if model is not None and model not in self._llms:
            raise ValidationError("unknown model %r; use one of %s"
                                  % (model, ", ".join(self._llms)))
        llm = self._first if model is None else self._llms[model]
        if not self._root:
            alone = len(messages) == 1 and isinstance(messages[0]["content"], str)
            return llm.complete(LLMRequest(messages[0]["content"] if alone else messages)).response
        if self._tools is None:
            return llm.complete(LLMRequest(messages)).response
        definitions = [{"name": one.name, "description": one.description or "",
                        "parameters": one.schema or {}}
                       for one in self._tools.values()]
        return _as_code(llm.complete(LLMRequest(messages, tools=definitions, tool_choice="auto")))


def _as_code(reply: ChatCompletion) -> str:
    """Converts a function-calling reply into code that prints each result; a text without code is
    the answer."""
    lines = ["print(%s(**%r))" % (call["name"], json.loads(call["arguments"])
                                  if isinstance(call["arguments"], str) else
                                  dict(call["arguments"])) for call in reply.tool_calls or ()]
    if not lines and "```" in reply.response:
        return reply.response
    return "%s\n```repl\n%s\n```" % (reply.response if lines else "",
                                     "\n".join(lines) or "SUBMIT(answer=%r)" % reply.response)


def arguments(llm: Any, options: Dict[str, Any]) -> Tuple[Any, Any, Any]:
    """The model, the sub-model and the tools of an RLM whose model is an adapter; the other
    arguments change in place."""
    for name, why in REFUSED.items():
        if options.pop(name, None) is not None:
            raise UnsupportedError("RLM(%s=…) is not in Droste: %s" % (name, why))
    others, mode = list(options.pop("other_llms", None) or ()), options.pop("agent_mode", "code")
    if mode not in ("code", "tools"):
        raise ArgumentError("agent_mode must be 'code' or 'tools', not %r" % (mode,))
    tools = options.pop("tools", None)
    tools = ([_tool(one) for one in tools] if tools is not None and not isinstance(tools, Mapping)
             else tools)
    if mode == "tools" and not tools:
        raise ValidationError("agent_mode='tools' needs tools")
    options.setdefault("max_depth", 1)
    options.setdefault("_navigator", True)
    prompt = options.pop("system_prompt", None)
    if prompt is not None:
        options["custom_system_prompt"] = prompt
    for other in others:
        if (not hasattr(other, "complete")
            or [o.model_name for o in [llm, *others]].count(other.model_name) > 1):
            raise ValidationError("other_llms must be a list of adapters with different names, "
                                  "not %r" % (other,))
    if hasattr(llm, "backend_kwargs") and not others:     # Droste asks it by itself
        options.update(backend=llm.backend, backend_kwargs=llm.backend_kwargs())
        return None, None, tools
    calling = _tools.collect(tools) if mode == "tools" else None
    return _Asker([llm], True, calling), _Asker([llm, *others], False, None), tools
