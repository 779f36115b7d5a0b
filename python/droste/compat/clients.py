"""rlm's clients (rlm.clients), which call a model without a run. The library's own client asks,
with its retries, limits and keys."""
from __future__ import annotations

import abc
import threading
from typing import Any, Dict, Optional

from ..errors import ArgumentError, named
from ..rlm import RLM
from .rlm_types import ModelUsageSummary, UsageSummary

__all__ = ["BaseLM", "get_client", "OpenAIClient", "PortkeyClient", "AnthropicClient",
           "GeminiClient", "AzureOpenAIClient"]

#: what the root of such a run says: the question goes to the model, its reply is the answer, or why
#: there is none
ASK = """```repl
try:
    result = [llm_query(context), None]
except Exception as failure:
    result = [str(failure), getattr(failure, "code", "model")]
SUBMIT(answer=result)
```"""


class BaseLM(abc.ABC):
    """The interface of a client; programs may implement their own."""

    def __init__(self, model_name: Optional[str] = None, timeout: float = 300.0, **kwargs: Any):
        self.model_name, self.timeout, self.kwargs = model_name, timeout, kwargs

    @abc.abstractmethod
    def completion(self, prompt: Any) -> str:
        """The answer to a text, or to a list of messages."""

    @abc.abstractmethod
    async def acompletion(self, prompt: Any) -> str:
        """The same, for `await`."""

    @abc.abstractmethod
    def get_usage_summary(self) -> UsageSummary:
        """What all calls used."""

    @abc.abstractmethod
    def get_last_usage(self) -> Any:
        """What the last call used."""


class _Client(BaseLM):
    _backend = ""

    def __init__(self, api_key: Optional[str] = None, model_name: Optional[str] = None,
                 base_url: Optional[str] = None,
                 timeout: float = 300.0, **kwargs: Any):
        super().__init__(model_name, timeout, **kwargs)
        self._lock = threading.Lock()
        self._used = UsageSummary()
        self._last = ModelUsageSummary()
        self._given = {"api_key": api_key, "base_url": base_url, "timeout": timeout, **kwargs}
        if model_name is not None:
            self._rlm(model_name)       # what is wrong is said now

    def _rlm(self, model: Optional[str]) -> RLM:
        named = model or self.model_name
        if not named:
            raise ValueError("Model name is required for %s." % type(self).__name__)
        other = {"model_name": named, **self._given}
        return RLM(lambda messages: ASK, other_backends=[self._backend],
                   other_backend_kwargs=[other], max_iterations=1)

    def _take(self, model: Optional[str], done: Any) -> str:
        used = next((one for name, one in done.usage_summary.model_usage_summaries.items()
                     if name == (model or self.model_name)),
                    ModelUsageSummary())
        with self._lock:
            self._last = used
            self._used.add(str(model or self.model_name), used)
        if not done.ok:
            raise done.error or ArgumentError("the model gave no answer (%s)" % done.status)
        text, code = done.answer
        if code is not None:
            raise named(code, text)
        return text

    @staticmethod
    def _checked(prompt: Any) -> Any:
        if not isinstance(prompt, str) and not (isinstance(prompt, list)
                                                and all(isinstance(one, dict) for one in prompt)):
            raise ValueError("Invalid prompt type: %s" % type(prompt))
        return prompt

    def completion(self, prompt: Any, model: Optional[str] = None) -> str:
        """The answer to a text, or to a list of messages."""
        return self._take(model, self._rlm(model).run("ask", self._checked(prompt)))

    async def acompletion(self, prompt: Any, model: Optional[str] = None) -> str:
        """The same, for `await`."""
        return self._take(model, await self._rlm(model).arun("ask", self._checked(prompt)))

    def get_usage_summary(self) -> UsageSummary:
        with self._lock:
            return UsageSummary.from_dict(self._used.to_dict())

    def get_last_usage(self) -> ModelUsageSummary:
        with self._lock:
            return self._last


class OpenAIClient(_Client):
    """OpenAI's models, and those of servers with its protocol."""
    _backend = "openai"


class PortkeyClient(_Client):
    """Portkey's models."""
    _backend = "portkey"


class AnthropicClient(_Client):
    """Anthropic's models."""
    _backend = "anthropic"


class GeminiClient(_Client):
    """Gemini's models."""
    _backend = "gemini"


class AzureOpenAIClient(_Client):
    """Models at Azure OpenAI."""
    _backend = "azure_openai"


class _OpenRouterClient(_Client):
    _backend = "openrouter"


class _VllmClient(_Client):
    _backend = "vllm"


class _VercelClient(_Client):
    _backend = "vercel"


CLIENTS = {kind._backend: kind for kind in (OpenAIClient, PortkeyClient, AnthropicClient,
                                            GeminiClient, AzureOpenAIClient,
                                            _OpenRouterClient, _VllmClient, _VercelClient)}


def get_client(backend: str, backend_kwargs: Optional[Dict[str, Any]] = None) -> BaseLM:
    """The client of a backend."""
    if backend not in CLIENTS:
        raise ValueError("Unknown backend: %s. Supported backends: %s" % (backend, sorted(CLIENTS)))
    return CLIENTS[backend](**(backend_kwargs or {}))
