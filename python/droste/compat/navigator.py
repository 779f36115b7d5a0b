"""agentic-codebase-navigator's names (its package is called `rlm`, too): `create_rlm`, adapters of models, configurations.

An adapter of a provider becomes Droste's own model of that name. An object of the program's with `model_name` and `complete(request)`
is asked in this process; several are routed by the model that the code names (`llm_query(prompt, model=…)`).
"""
from __future__ import annotations

import dataclasses
import json
import threading
import time
from typing import Any, Callable, Dict, List, Mapping, Optional, Protocol, Tuple, runtime_checkable

from .. import __version__, _tools, config, environments
from .._rlm_types import ModelUsageSummary, RLMChatCompletion, UsageSummary
from ..errors import ArgumentError, UnsupportedError
from ..rlm import RLM
from ._refused import refused
from .clients import CLIENTS


# -- models of values

@dataclasses.dataclass
class LLMRequest:
    """What an adapter is asked."""
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
    """What an adapter answers; `tool_calls` are {"name", "arguments"} where it wants tools to be called."""
    tool_calls: Optional[List[Dict[str, Any]]] = None
    finish_reason: Optional[str] = None


class RLMError(Exception):
    """The base of navigator's errors."""


class ValidationError(RLMError):
    """An argument makes no sense."""


class ExecutionError(RLMError):
    """Code could not be executed."""


class BrokerError(RLMError):
    """The way to the models failed."""


class LLMError(RLMError):
    """A model failed."""


class ToolNotFoundError(RLMError):
    """The model asked for a tool that is not there."""


class ToolExecutionError(RLMError):
    """A tool failed."""


# -- adapters of models

@runtime_checkable
class LLMPort(Protocol):
    """What an adapter does."""

    @property
    def model_name(self) -> str: ...

    def complete(self, request: LLMRequest) -> ChatCompletion: ...


class BaseLLMAdapter:
    """What adapters have in common: a count of what was used."""

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._used, self._last = ModelUsageSummary(), ModelUsageSummary()

    @property
    def model_name(self) -> str:
        return str(getattr(self, "model"))

    def complete(self, request: LLMRequest) -> ChatCompletion:
        raise NotImplementedError

    async def acomplete(self, request: LLMRequest) -> ChatCompletion:
        return self.complete(request)

    def _answer(self, request: LLMRequest, text: str, used: ModelUsageSummary, began: float, **more: Any) -> ChatCompletion:
        with self._lock:
            self._last = used
            for field in ("total_calls", "total_input_tokens", "total_output_tokens"):
                setattr(self._used, field, getattr(self._used, field) + getattr(used, field))
        return ChatCompletion(request.model or self.model_name, request.prompt, text, UsageSummary({self.model_name: used}),
                              time.perf_counter() - began, **more)

    def get_usage_summary(self) -> UsageSummary:
        """What all calls used."""
        with self._lock:
            return UsageSummary({self.model_name: dataclasses.replace(self._used)} if self._used.total_calls else {})

    def get_last_usage(self) -> UsageSummary:
        """What the last call used."""
        with self._lock:
            return UsageSummary({self.model_name: dataclasses.replace(self._last)} if self._last.total_calls else {})


def _text(prompt: Any) -> str:
    last = prompt[-1] if isinstance(prompt, list) and prompt else prompt
    return str(last["content"] if isinstance(last, Mapping) and "content" in last else last)


@dataclasses.dataclass
class MockLLMAdapter(BaseLLMAdapter):
    """Answers from a script, an item a call: a text, an exception, which is raised, or {"tool_calls": […]}; without one, with the
    beginning of what it is asked. Tokens are words."""
    model: str = "mock-model"
    script: Optional[List[Any]] = None
    max_prompt_preview_chars: int = 50

    def __post_init__(self) -> None:
        self._begin()

    def _next(self, prompt: Any) -> Any:
        with self._lock:
            if self.script is None:
                return "Mock response to: " + _text(prompt).replace("\n", "\\n")[:self.max_prompt_preview_chars]
            if not self.script:
                raise LLMError("MockLLMAdapter: no scripted responses left")
            return self.script.pop(0)

    def complete(self, request: LLMRequest) -> ChatCompletion:
        """The next answer."""
        began, item = time.perf_counter(), self._next(request.prompt)
        if isinstance(item, BaseException):
            raise item
        told = item if isinstance(item, dict) else {"response": item}
        text, calls = str(told.get("response", "")), told.get("tool_calls")
        used = ModelUsageSummary(1, len(_text(request.prompt).split()), len(text.split()))
        return self._answer(request, text, used, began, tool_calls=calls,
                            finish_reason=told.get("finish_reason") or ("tool_calls" if calls else "stop"))


class _ProviderAdapter(BaseLLMAdapter):
    """A model of a provider's; as the model of an RLM, Droste's own client asks it."""
    _backend = ""

    def __init__(self, model: str, api_key: Optional[str] = None, base_url: Optional[str] = None,
                 default_request_kwargs: Optional[Mapping[str, Any]] = None, retry_config: Any = None, **more: Any):
        if retry_config is not None:
            raise UnsupportedError("%s(retry_config=…): the setting `retries` says how often" % type(self).__name__)
        self._begin()
        self.model, self.api_key, self.base_url = model, api_key, base_url
        self.default_request_kwargs = dict(default_request_kwargs or {})
        self._more = {name: value for name, value in more.items() if value is not None}
        self._client: Any = None

    def backend_kwargs(self) -> Dict[str, Any]:
        given = {"model_name": self.model, "api_key": self.api_key, "base_url": self.base_url, **self._more}
        sampling = {"sampling_args": self.default_request_kwargs} if self.default_request_kwargs else {}
        return {name: value for name, value in {**given, **sampling}.items() if value is not None}

    def complete(self, request: LLMRequest) -> ChatCompletion:
        """Asks the provider."""
        began = time.perf_counter()
        with self._lock:
            self._client = self._client or CLIENTS[self._backend](**self.backend_kwargs())
        try:
            text = self._client.completion(request.prompt, request.model)
        except Exception as e:
            raise LLMError(str(e)) from e
        return self._answer(request, text, self._client.get_last_usage(), began, finish_reason="stop")


class OpenAIAdapter(_ProviderAdapter):
    """OpenAI's models, and those of servers with its protocol."""
    _backend = "openai"


class AnthropicAdapter(_ProviderAdapter):
    """Anthropic's models."""
    _backend = "anthropic"


class GeminiAdapter(_ProviderAdapter):
    """Gemini's models."""
    _backend = "gemini"


class PortkeyAdapter(_ProviderAdapter):
    """Portkey's models."""
    _backend = "portkey"


class AzureOpenAIAdapter(_ProviderAdapter):
    """Models at Azure OpenAI."""
    _backend = "azure_openai"

    def __init__(self, deployment: str, api_key: Optional[str] = None, endpoint: Optional[str] = None,
                 api_version: Optional[str] = None, **more: Any):
        super().__init__(deployment, api_key, endpoint, api_version=api_version, **more)
        self.deployment, self.endpoint, self.api_version = deployment, endpoint, api_version


LiteLLMAdapter = refused("LiteLLMAdapter", "name the provider's own model, or give RLM a function that calls litellm")


def _builder(kind: Callable[..., Any], name: str) -> Callable[..., Any]:
    def build(**kwargs: Any) -> Any:
        return kind(**kwargs)

    build.__name__, build.__doc__ = name, "Makes a %s." % kind.__name__
    return build


_BUILDERS = {name: _builder(kind, name) for name, kind in (
    ("build_openai_adapter", OpenAIAdapter), ("build_anthropic_adapter", AnthropicAdapter), ("build_gemini_adapter", GeminiAdapter),
    ("build_portkey_adapter", PortkeyAdapter), ("build_azure_openai_adapter", AzureOpenAIAdapter))}


# -- tools

def tool(function: Callable[..., Any]) -> Callable[..., Any]:
    """Marks a function as a tool, which any function can be."""
    return function


class NativeToolAdapter:
    """A function as a tool."""

    def __init__(self, function: Callable[..., Any], *, name: Optional[str] = None, description: Optional[str] = None):
        self.function, self.name = function, name or function.__name__
        self.description = description

    def tool(self) -> _tools.Tool:
        return _tools.Tool(self.name, self.function, self.description)


class InMemoryToolRegistry:
    """Tools by name."""

    def __init__(self) -> None:
        self._tools: Dict[str, Any] = {}

    def register(self, tool: Any) -> None:
        """One more."""
        name = getattr(tool, "name", None) or getattr(tool, "__name__", None)
        if not name or name in self._tools:
            raise ValidationError("the tool %r has no name, or that of another one" % (tool,))
        self._tools[name] = tool

    def __iter__(self) -> Any:
        return iter(self._tools.values())


def _tool(given: Any) -> Any:
    return given.tool() if isinstance(given, NativeToolAdapter) else given


# -- RLMs

#: arguments of navigator's that have nothing to do here
REFUSED = {
    "broker_factory": "calls of models go over the sandbox's own stream, without a broker",
    "environment_factory": "register a class with droste.registry, and name it as the environment",
    "nested_call_policy": "max_depth says where llm_query ends and child runs begin (rlm_query)",
    "nested_call_handler": "give llm an object of your own, which is asked for every call",
    "stopping_policy": "max_iterations, max_total_tokens, max_cost and timeout end a run",
    "context_compressor": "compaction shortens a conversation",
    "output_type": "answer_schema is the type of the answer",
}


class _Asker:
    """The model function of navigator's adapters: the one that the code names, else the first."""

    def __init__(self, llms: List[Any], root: bool, tools: Optional[Mapping[str, Any]]):
        self._llms = {llm.model_name: llm for llm in llms}
        self._first, self._root, self._tools = llms[0], root, tools
        self.model_name = self._first.model_name

    def __call__(self, messages: List[Dict[str, Any]], model: Optional[str] = None) -> str:
        if model is not None and model not in self._llms:
            raise ValidationError("there is no model %r; there are %s" % (model, ", ".join(self._llms)))
        llm = self._first if model is None else self._llms[model]
        if not self._root:
            alone = len(messages) == 1 and isinstance(messages[0]["content"], str)
            return llm.complete(LLMRequest(messages[0]["content"] if alone else messages)).response
        if self._tools is None:
            return llm.complete(LLMRequest(messages)).response
        definitions = [{"name": one.name, "description": one.description or "", "parameters": one.schema or {}}
                       for one in self._tools.values()]
        return _as_code(llm.complete(LLMRequest(messages, tools=definitions, tool_choice="auto")))


def _as_code(said: ChatCompletion) -> str:
    """A reply of function calling as code: each call prints what it gives; a text without code is the answer."""
    lines = ["print(%s(**%r))" % (call["name"], json.loads(call["arguments"]) if isinstance(call["arguments"], str) else
                                  dict(call["arguments"])) for call in said.tool_calls or ()]
    if not lines and "```" in said.response:
        return said.response
    return "%s\n```repl\n%s\n```" % (said.response if lines else "", "\n".join(lines) or "SUBMIT(answer=%r)" % said.response)


def arguments(llm: Any, given: Dict[str, Any]) -> Tuple[Any, Any, Any]:
    """The model, the sub-model and the tools of an RLM whose model is an adapter; the other arguments change in place."""
    for name, why in REFUSED.items():
        if given.pop(name, None) is not None:
            raise UnsupportedError("RLM(%s=…) is not in Droste: %s" % (name, why))
    others, mode = list(given.pop("other_llms", None) or ()), given.pop("agent_mode", "code")
    if mode not in ("code", "tools"):
        raise ArgumentError("agent_mode is 'code' or 'tools', not %r" % (mode,))
    tools = given.pop("tools", None)
    tools = [_tool(one) for one in tools] if tools is not None and not isinstance(tools, Mapping) else tools
    if mode == "tools" and not tools:
        raise ValidationError("agent_mode='tools' needs tools")
    given.setdefault("max_depth", 1)
    given.setdefault("_navigator", True)
    prompt = given.pop("system_prompt", None)
    if prompt is not None:
        given["custom_system_prompt"] = prompt
    for other in others:
        if not hasattr(other, "complete") or [o.model_name for o in [llm, *others]].count(other.model_name) > 1:
            raise ValidationError("other_llms is a list of adapters with different names: %r" % (other,))
    if isinstance(llm, _ProviderAdapter) and not others:     # Droste asks it by itself
        given.update(backend=llm._backend, backend_kwargs=llm.backend_kwargs())
        return None, None, tools
    calling = _tools.collect(tools) if mode == "tools" else None
    return _Asker([llm], True, calling), _Asker([llm, *others], False, None), tools


def create_rlm(llm: Any, **kwargs: Any) -> RLM:
    """An RLM whose model is an adapter, with navigator's defaults."""
    return RLM(llm, **kwargs)


def adapter_of(given: "config.LLMConfig") -> Any:
    """The adapter that a configuration names."""
    kwargs, name = dict(given.backend_kwargs), given.model_name
    if given.backend == "mock":
        return MockLLMAdapter(model=name or "mock-model", **kwargs)
    kinds = {kind._backend: kind for kind in (OpenAIAdapter, AnthropicAdapter, GeminiAdapter, PortkeyAdapter)}
    if given.backend == "azure_openai":
        return AzureOpenAIAdapter(name or kwargs.pop("deployment", ""), **kwargs)
    if given.backend not in kinds:
        raise UnsupportedError("the backend %r is not in Droste; there are mock, %s, azure_openai" % (given.backend, ", ".join(kinds)))
    if not name and given.backend != "openai":
        raise ValueError("LLM backend %r requires LLMConfig.model_name" % given.backend)
    return kinds[given.backend](name or "gpt-5-nano", **kwargs)


# -- modules

_CONFIG = {name: getattr(config, name) for name in ("RLMConfig", "LLMConfig", "EnvironmentConfig", "LoggerConfig")}
_CREATE = {"RLM": RLM, "ChatCompletion": ChatCompletion, "create_rlm": create_rlm,
           "create_rlm_from_config": config.create_rlm_from_config, **_CONFIG}
_POLICIES = {name: refused(name, REFUSED[argument]) for name, argument in (
    ("StoppingPolicy", "stopping_policy"), ("DefaultStoppingPolicy", "stopping_policy"),
    ("ContextCompressor", "context_compressor"), ("NoOpContextCompressor", "context_compressor"),
    ("NestedCallPolicy", "nested_call_policy"), ("SimpleNestedCallPolicy", "nested_call_policy"),
    ("NestedConfig", "nested_call_policy"))}
_ADAPTERS = {kind.__name__: kind for kind in (
    MockLLMAdapter, OpenAIAdapter, AnthropicAdapter, GeminiAdapter, PortkeyAdapter, AzureOpenAIAdapter, LiteLLMAdapter)}
_MODELS = {"ReplResult": environments.ReplResult, **{kind.__name__: kind for kind in (
    LLMRequest, BatchedLLMRequest, ChatCompletion, ModelUsageSummary, UsageSummary)}}
_ERRORS = {kind.__name__: kind for kind in (
    RLMError, ValidationError, ExecutionError, BrokerError, LLMError, ToolNotFoundError, ToolExecutionError)}

MODULES: Dict[str, Dict[str, Any]] = {
    "rlm.api": _CREATE,
    "rlm.api.factory": {name: _CREATE[name] for name in ("create_rlm", "create_rlm_from_config")},
    "rlm.api.rlm": {"RLM": RLM},
    "rlm.api.registries": {"registry": environments.registry},
    "rlm.application": {},
    "rlm.application.config": _CONFIG,
    "rlm.adapters": {},
    "rlm.adapters.base": {"BaseLLMAdapter": BaseLLMAdapter},
    "rlm.adapters.llm": _ADAPTERS,
    "rlm.adapters.llm.mock": {"MockLLMAdapter": MockLLMAdapter},
    **{"rlm.adapters.llm." + module: {**{kind: _ADAPTERS[kind]}, **{name: build for name, build in _BUILDERS.items()
                                                                     if name == "build_%s_adapter" % module}}
       for module, kind in (("openai", "OpenAIAdapter"), ("anthropic", "AnthropicAdapter"), ("gemini", "GeminiAdapter"),
                            ("portkey", "PortkeyAdapter"), ("azure_openai", "AzureOpenAIAdapter"), ("litellm", "LiteLLMAdapter"))},
    "rlm.adapters.tools": {"tool": tool, "ToolRegistry": InMemoryToolRegistry, "InMemoryToolRegistry": InMemoryToolRegistry,
                           "NativeToolAdapter": NativeToolAdapter},
    "rlm.adapters.policies": {name: _POLICIES[name] for name in (
        "DefaultStoppingPolicy", "NoOpContextCompressor", "SimpleNestedCallPolicy")},
    "rlm.domain": {name: _POLICIES[name] for name in ("StoppingPolicy", "ContextCompressor", "NestedCallPolicy")},
    "rlm.domain.agent_ports": {**{name: _POLICIES[name] for name in (
        "StoppingPolicy", "ContextCompressor", "NestedCallPolicy", "NestedConfig")}, "AgentModeName": str},
    "rlm.domain.errors": _ERRORS,
    "rlm.domain.models": _MODELS,
    "rlm.domain.ports": {"EnvironmentPort": environments.EnvironmentPort, "LLMPort": LLMPort},
}
#: what the package itself has, beside rlm's
TOP: Dict[str, Any] = {**_CREATE, **_POLICIES, "AgentModeName": str, "__version__": __version__}
