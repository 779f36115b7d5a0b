"""agentic-codebase-navigator's names (its package is called `rlm`, too): `create_rlm`, adapters of
models, configurations."""
from __future__ import annotations

import dataclasses
import threading
import time
from typing import Any, Callable, Dict, List, Mapping, Optional, Protocol, runtime_checkable

from .. import _library, environments
from ..errors import ArgumentError, UnsupportedError
from ..rlm import RLM
from . import config
from .clients import CLIENTS
from .refused import refused
from .rlm_types import ModelUsageSummary, UsageSummary
from .routing import (REFUSED, BatchedLLMRequest, BrokerError, ChatCompletion, ExecutionError,
                      InMemoryToolRegistry, LLMError, LLMRequest,
                      NativeToolAdapter, RLMError, ToolExecutionError, ToolNotFoundError,
                      ValidationError, tool)


# -- adapters of models

@runtime_checkable
class LLMPort(Protocol):
    """The interface of an adapter."""

    @property
    def model_name(self) -> str: ...

    def complete(self, request: LLMRequest) -> ChatCompletion: ...


class BaseLLMAdapter:
    """The base of adapters: counts usage."""

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

    def _answer(self, request: LLMRequest, text: str, used: ModelUsageSummary, began: float,
                **more: Any) -> ChatCompletion:
        with self._lock:
            self._last = used
            for field in ("total_calls", "total_input_tokens", "total_output_tokens"):
                setattr(self._used, field, getattr(self._used, field) + getattr(used, field))
        return ChatCompletion(request.model or self.model_name, request.prompt, text,
                              UsageSummary({self.model_name: used}),
                              time.perf_counter() - began, **more)

    def get_usage_summary(self) -> UsageSummary:
        """What all calls used."""
        with self._lock:
            return UsageSummary({self.model_name: dataclasses.replace(self._used)}
                                if self._used.total_calls else {})

    def get_last_usage(self) -> UsageSummary:
        """What the last call used."""
        with self._lock:
            return UsageSummary({self.model_name: dataclasses.replace(self._last)}
                                if self._last.total_calls else {})


def _text(prompt: Any) -> str:
    last = prompt[-1] if isinstance(prompt, list) and prompt else prompt
    return str(last["content"] if isinstance(last, Mapping) and "content" in last else last)


@dataclasses.dataclass
class MockLLMAdapter(BaseLLMAdapter):
    """Answers each call with the next item of a script: a text, an exception, which is raised, or
    {"tool_calls": […]}. Without a script, answers with the beginning of the prompt. Tokens are
    words."""
    model: str = "mock-model"
    script: Optional[List[Any]] = None
    max_prompt_preview_chars: int = 50

    def __post_init__(self) -> None:
        self._begin()

    def _next(self, prompt: Any) -> Any:
        with self._lock:
            if self.script is None:
                return "Mock response to: " + _text(prompt).replace("\n", "\\n")[
                    :self.max_prompt_preview_chars]
            if not self.script:
                raise LLMError("MockLLMAdapter: no scripted responses left")
            return self.script.pop(0)

    def complete(self, request: LLMRequest) -> ChatCompletion:
        """Returns the next answer."""
        began, item = time.perf_counter(), self._next(request.prompt)
        if isinstance(item, BaseException):
            raise item
        reply = item if isinstance(item, dict) else {"response": item}
        text, calls = str(reply.get("response", "")), reply.get("tool_calls")
        used = ModelUsageSummary(1, len(_text(request.prompt).split()), len(text.split()))
        return self._answer(request, text, used, began, tool_calls=calls,
                            finish_reason=reply.get("finish_reason")
                            or ("tool_calls" if calls else "stop"))


class _ProviderAdapter(BaseLLMAdapter):
    """A model of a provider. As the model of an RLM, Droste's own client calls it."""
    backend = ""

    def __init__(self, model: str, api_key: Optional[str] = None, base_url: Optional[str] = None,
                 default_request_kwargs: Optional[Mapping[str, Any]] = None,
                 retry_config: Any = None, **more: Any):
        if retry_config is not None:
            raise UnsupportedError("%s(retry_config=…): use the setting `retries`"
                                   % type(self).__name__)
        self._begin()
        self.model, self.api_key, self.base_url = model, api_key, base_url
        self.default_request_kwargs = dict(default_request_kwargs or {})
        self._more = {name: value for name, value in more.items() if value is not None}
        self._client: Any = None

    def backend_kwargs(self) -> Dict[str, Any]:
        options = {"model_name": self.model, "api_key": self.api_key, "base_url": self.base_url,
                   **self._more}
        sampling = ({"sampling_args": self.default_request_kwargs} if self.default_request_kwargs
                    else {})
        return {name: value for name, value in {**options, **sampling}.items() if value is not None}

    def complete(self, request: LLMRequest) -> ChatCompletion:
        """Calls the provider."""
        began = time.perf_counter()
        with self._lock:
            self._client = self._client or CLIENTS[self.backend](**self.backend_kwargs())
        try:
            text = self._client.completion(request.prompt, request.model)
        except Exception as e:
            raise LLMError(str(e)) from e
        return self._answer(request, text, self._client.get_last_usage(), began,
                            finish_reason="stop")


class OpenAIAdapter(_ProviderAdapter):
    """OpenAI's models, and those of servers with its protocol."""
    backend = "openai"


class AnthropicAdapter(_ProviderAdapter):
    """Anthropic's models."""
    backend = "anthropic"


class GeminiAdapter(_ProviderAdapter):
    """Gemini's models."""
    backend = "gemini"


class PortkeyAdapter(_ProviderAdapter):
    """Portkey's models."""
    backend = "portkey"


class AzureOpenAIAdapter(_ProviderAdapter):
    """Models at Azure OpenAI."""
    backend = "azure_openai"

    def __init__(self, deployment: str, api_key: Optional[str] = None,
                 endpoint: Optional[str] = None,
                 api_version: Optional[str] = None, **more: Any):
        super().__init__(deployment, api_key, endpoint, api_version=api_version, **more)
        self.deployment, self.endpoint, self.api_version = deployment, endpoint, api_version


LiteLLMAdapter = refused("LiteLLMAdapter", "name the provider's own model, or pass RLM a function "
                                           "that calls litellm")


def _builder(kind: Callable[..., Any], name: str) -> Callable[..., Any]:
    def build(**kwargs: Any) -> Any:
        return kind(**kwargs)

    build.__name__, build.__doc__ = name, "Makes a %s." % kind.__name__
    return build


_BUILDERS = {name: _builder(kind, name) for name, kind in (
    ("build_openai_adapter", OpenAIAdapter), ("build_anthropic_adapter", AnthropicAdapter),
    ("build_gemini_adapter", GeminiAdapter),
    ("build_portkey_adapter", PortkeyAdapter), ("build_azure_openai_adapter", AzureOpenAIAdapter))}


# -- RLMs

def create_rlm(llm: Any, **kwargs: Any) -> RLM:
    """An RLM whose model is an adapter, with navigator's defaults."""
    return RLM(llm, **kwargs)


def adapter_of(llm: "config.LLMConfig") -> Any:
    """The adapter that a configuration names."""
    kwargs, name = dict(llm.backend_kwargs), llm.model_name
    if llm.backend == "mock":
        return MockLLMAdapter(model=name or "mock-model", **kwargs)
    kinds = {kind.backend: kind for kind in (OpenAIAdapter, AnthropicAdapter, GeminiAdapter,
                                             PortkeyAdapter)}
    if llm.backend == "azure_openai":
        return AzureOpenAIAdapter(name or kwargs.pop("deployment", ""), **kwargs)
    if llm.backend not in kinds:
        raise UnsupportedError("Droste has no backend %r; use one of mock, %s, azure_openai"
                               % (llm.backend, ", ".join(kinds)))
    if not name and llm.backend != "openai":
        raise ValueError("LLM backend %r requires LLMConfig.model_name" % llm.backend)
    return kinds[llm.backend](name or "gpt-5-nano", **kwargs)


def create_rlm_from_config(config: config.RLMConfig, *, llm: Any = None, tools: Any = None,
                           **refused: Any) -> RLM:
    """The RLM that the configuration describes. `llm` is an adapter in the place of the
    configuration's, `tools` are functions."""
    options: Dict[str, Any] = dict(config.rlm_kwargs, environment=config.env.environment,
                                 environment_kwargs=config.env.environment_kwargs,
                                 verbose=config.verbose or config.logger.logger == "console",
                                 max_depth=config.max_depth, max_iterations=config.max_iterations,
                                   _navigator=True, tools=tools)
    logger = config.logger.made()
    if logger is not None:
        options["logger"] = logger
    for name, value in refused.items():
        if name not in REFUSED and not name.endswith("_registry"):
            raise TypeError("create_rlm_from_config() has no argument %r" % name)
        if value is not None:
            raise UnsupportedError("create_rlm_from_config(%s=…) is not in Droste: %s" % (
                name, REFUSED.get(name, "set adapters, environments and loggers in the "
                                        "configuration")))
    if (llm is None and config.llm is not None
        and (config.other_llms or config.llm.backend == "mock" or config.agent_mode != "code")):
        llm = adapter_of(config.llm)
    if llm is not None:
        return RLM(llm, other_llms=[adapter_of(one) for one in config.other_llms],
                   agent_mode=config.agent_mode, **options)
    if config.agent_mode != "code" or config.other_llms:
        raise ArgumentError("agent_mode and other_llms need RLMConfig(llm=…)")
    if config.llm is not None:
        options.update(backend=config.llm.backend,
                       backend_kwargs={"model_name": config.llm.model_name,
                                       **config.llm.backend_kwargs})
    return RLM(**options)


# -- modules

_CONFIG = {name: getattr(config, name) for name in ("RLMConfig", "LLMConfig", "EnvironmentConfig",
                                                    "LoggerConfig")}
_CREATE = {"RLM": RLM, "ChatCompletion": ChatCompletion, "create_rlm": create_rlm,
           "create_rlm_from_config": create_rlm_from_config, **_CONFIG}
_POLICIES = {name: refused(name, REFUSED[argument]) for name, argument in (
    ("StoppingPolicy", "stopping_policy"), ("DefaultStoppingPolicy", "stopping_policy"),
    ("ContextCompressor", "context_compressor"), ("NoOpContextCompressor", "context_compressor"),
    ("NestedCallPolicy", "nested_call_policy"), ("SimpleNestedCallPolicy", "nested_call_policy"),
    ("NestedConfig", "nested_call_policy"))}
_ADAPTERS = {kind.__name__: kind for kind in (
    MockLLMAdapter, OpenAIAdapter, AnthropicAdapter, GeminiAdapter, PortkeyAdapter,
    AzureOpenAIAdapter, LiteLLMAdapter)}
_MODELS = {"ReplResult": environments.ReplResult, **{kind.__name__: kind for kind in (
    LLMRequest, BatchedLLMRequest, ChatCompletion, ModelUsageSummary, UsageSummary)}}
_ERRORS = {kind.__name__: kind for kind in (
    RLMError, ValidationError, ExecutionError, BrokerError, LLMError, ToolNotFoundError,
    ToolExecutionError)}

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
    **{"rlm.adapters.llm." + module: {**{kind: _ADAPTERS[kind]},
                                      **{name: build for name, build in _BUILDERS.items()
                                          if name == "build_%s_adapter" % module}}
       for module, kind in (("openai", "OpenAIAdapter"), ("anthropic", "AnthropicAdapter"),
                            ("gemini", "GeminiAdapter"),
                            ("portkey", "PortkeyAdapter"), ("azure_openai", "AzureOpenAIAdapter"),
                            ("litellm", "LiteLLMAdapter"))},
    "rlm.adapters.tools": {"tool": tool, "ToolRegistry": InMemoryToolRegistry,
                           "InMemoryToolRegistry": InMemoryToolRegistry,
                           "NativeToolAdapter": NativeToolAdapter},
    "rlm.adapters.policies": {name: _POLICIES[name] for name in (
        "DefaultStoppingPolicy", "NoOpContextCompressor", "SimpleNestedCallPolicy")},
    "rlm.domain":
    {name: _POLICIES[name] for name in ("StoppingPolicy", "ContextCompressor", "NestedCallPolicy")},
    "rlm.domain.agent_ports": {**{name: _POLICIES[name] for name in (
        "StoppingPolicy", "ContextCompressor", "NestedCallPolicy", "NestedConfig")},
                               "AgentModeName": str},
    "rlm.domain.errors": _ERRORS,
    "rlm.domain.models": _MODELS,
    "rlm.domain.ports": {"EnvironmentPort": environments.EnvironmentPort, "LLMPort": LLMPort},
}
#: names of the package itself, besides rlm's
TOP: Dict[str, Any] = {**_CREATE, **_POLICIES, "AgentModeName": str,
                       "__version__": _library.version}
