"""The names that other runtimes have for what Droste has, as Droste's settings."""
from __future__ import annotations

import dataclasses
import os
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

from .errors import ArgumentError, UnsupportedError
from . import _kwargs

#: backend: the provider's word in a model's name, the settings of its key and its server
BACKENDS: Dict[str, Tuple[str, str, str]] = {
    "openai": ("openai", "api-key", "base-url"),
    "anthropic": ("anthropic", "anthropic-api-key", "anthropic-base-url"),
    "gemini": ("gemini", "gemini-api-key", "gemini-base-url"),
    "azure_openai": ("azure", "azure-api-key", "azure-endpoint"),
    "openrouter": ("openrouter", "openrouter-api-key", "openrouter-base-url"),
    "vllm": ("vllm", "vllm-api-key", "vllm-base-url"),
}
VERCEL = "https://ai-gateway.vercel.sh/v1"


@dataclasses.dataclass
class Names:
    """What was said in others' words."""
    model: Any = None
    sub_model: Any = None
    environment: Optional[str] = None
    environment_kwargs: Dict[str, Any] = dataclasses.field(default_factory=dict)
    tools: Dict[str, Any] = dataclasses.field(default_factory=dict)
    data: Dict[str, Any] = dataclasses.field(default_factory=dict)
    source: Dict[str, str] = dataclasses.field(default_factory=dict)
    verbose: bool = False


def environment_name(wanted: Optional[str]) -> Optional[str]:
    """`DROSTE_ENVIRONMENT` goes before what a program names, so that it runs unchanged elsewhere."""
    return os.environ.get("DROSTE_ENVIRONMENT") or wanted


def function_of(lm: Any) -> Callable[..., str]:
    """A model function of a language model of dspy's, or of any callable that takes `messages`."""
    def ask(messages: List[Dict[str, Any]]) -> str:
        alone = len(messages) == 1 and isinstance(messages[0]["content"], str)
        said = lm(messages[0]["content"]) if alone else lm(messages=messages)
        first = said[0] if isinstance(said, (list, tuple)) else said
        return first["text"] if isinstance(first, Mapping) else str(first)

    return ask


def _take_model(backend: str, kwargs: Mapping[str, Any], settings: Dict[str, Any]) -> Any:
    """The model's name; keys and servers go to the settings."""
    rest = dict(kwargs)
    name = rest.pop("model_name", None) or rest.pop("model", None)
    if callable(name):
        return name
    if backend == "vercel":
        backend = "openai"
        rest.setdefault("base_url", VERCEL)
    if backend not in BACKENDS:
        raise UnsupportedError("the backend %r is not known; there are %s" % (backend, ", ".join([*BACKENDS, "vercel"])))
    if not name:
        raise ArgumentError("backend_kwargs needs a model_name, such as {'model_name': 'gpt-5-mini'}")
    word, key, url = BACKENDS[backend]
    for given, setting in (("api_key", key), ("base_url", url), ("azure_endpoint", url), ("timeout", "llm-call-timeout"),
                           ("api_version", "azure-api-version"), ("max_retries", "retries")):
        if rest.get(given) is not None:
            settings[setting] = rest[given]
        rest.pop(given, None)
    _take_sampling(rest.pop("sampling_args", None), settings)
    if rest:
        raise ArgumentError("backend_kwargs has %s, which Droste does not know; it takes model_name, api_key, base_url, "
                            "timeout, max_retries and sampling_args" % ", ".join(sorted(rest)))
    return "%s/%s" % (word, name)


def _take_sampling(sampling: Optional[Mapping[str, Any]], settings: Dict[str, Any]) -> None:
    for name, value in (sampling or {}).items():
        if name not in ("max_tokens", "max_completion_tokens"):
            raise UnsupportedError("the sampling argument %r is not in this version; only max_tokens is" % name)
        settings["max-tokens"] = value


def _take_tools(given: Mapping[str, Any], names: Names) -> None:
    for name, value in given.items():
        wrapped = isinstance(value, Mapping) and "tool" in value
        thing = value["tool"] if wrapped else value
        if callable(thing):
            names.tools[name] = value
        else:
            names.data[name] = thing


#: RLM's arguments that are settings here: how the value is meant
RLM_SETTINGS: Dict[str, Tuple[str, Callable[[Any], Any]]] = {
    "max_depth": ("max-recursion-depth", lambda n: max(0, n - 1)),
    "max_budget": ("max-cost", float),
    "max_timeout": ("timeout", float),
    "max_concurrent_subcalls": ("max-children", int),
    "custom_system_prompt": ("instructions", str),
    "user_prologue": ("instructions", str),
}
#: those of no meaning here, and the one value that they may have
RLM_FIXED = {"depth": (0,), "orchestrator": (True, False), "persistent": (False,), "logger": (None,),
             "on_subcall_start": (None,), "on_subcall_complete": (None,), "on_iteration_start": (None,),
             "on_iteration_complete": (None,)}


def take_rlm(settings: Dict[str, Any]) -> Names:
    """Takes the names of rlm's RLM from the arguments, and leaves Droste's settings there."""
    names = Names()
    backend = settings.pop("backend", None)
    kwargs = settings.pop("backend_kwargs", None)
    if backend is not None or kwargs is not None:
        names.model = _take_model(backend or "openai", kwargs or {}, settings)
        if settings.get("max_tokens") is not None:      # of the whole run, in rlm
            settings["max_total_tokens"] = settings.pop("max_tokens")
    others, other_kwargs = settings.pop("other_backends", None), settings.pop("other_backend_kwargs", None)
    if others:
        if len(others) != 1 or len(other_kwargs or ()) != 1:
            raise ArgumentError("other_backends is a list of one backend, with one dict in other_backend_kwargs")
        names.sub_model = _take_model(others[0], other_kwargs[0], settings)
    _take_sampling(settings.pop("sampling_args", None), settings)
    for word, (name, convert) in RLM_SETTINGS.items():
        value = settings.pop(word, None)
        if value is not None:
            text = name == "instructions" and settings.get(name)
            settings[name] = "%s\n\n%s" % (text, value) if text else convert(value)
    for word, allowed in RLM_FIXED.items():
        if word in settings and settings.pop(word) not in allowed:
            raise UnsupportedError("RLM(%s=…) is not in this version" % word)
    _take_compaction(settings)
    _take_tools(settings.pop("custom_tools", None) or {}, names)
    sub_tools = settings.pop("custom_sub_tools", None)
    if sub_tools is not None and dict(sub_tools) not in ({}, dict(names.tools)):
        raise UnsupportedError("custom_sub_tools is {} (none), or the same as custom_tools")
    if sub_tools is not None and not sub_tools:
        settings["sub-tools"] = False
    names.verbose = bool(settings.pop("verbose", False))
    _take_environment(settings, names)
    return names


def _take_compaction(settings: Dict[str, Any]) -> None:
    share = settings.pop("compaction_threshold_pct", 0.85)
    if isinstance(settings.get("compaction"), bool):
        settings["compaction"] = share if settings["compaction"] else None


def _take_environment(settings: Dict[str, Any], names: Names) -> None:
    wanted, kwargs = settings.pop("environment", None), dict(settings.pop("environment_kwargs", None) or {})
    navigator = settings.pop("_navigator", False)
    from . import environments
    if wanted is not None and wanted in environments.registry:
        names.environment, names.environment_kwargs = wanted, kwargs
        return
    name = environment_name(wanted)
    if name is not None:
        settings["env"] = name
    said = {word.replace("_", "-"): word for word in settings}
    for setting, value in _kwargs.take(wanted, name, kwargs, navigator, frozenset(said)).items():
        word = said.get(setting.replace("_", "-"))
        if word is None:
            settings[setting] = value
        elif word == "timeout":     # of the run, and of its sandbox
            settings[word] = min(filter(None, (settings[word], value)), default=0)
        elif settings[word] != value:
            raise ArgumentError("RLM(%s=%r) and environment_kwargs, by which it is %r, say different things" % (word, settings[word], value))
