"""Translates the arguments of other runtimes into Droste's settings."""
from __future__ import annotations

import dataclasses
import json
import os
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

from .. import environments
from ..errors import ArgumentError, UnsupportedError
from . import custom_tools, environment_kwargs
from .rlm_types import RLMMetadata
from .trajectory import Wishes

#: backend: the provider's word in a model's name, the settings of its key and its server
BACKENDS: Dict[str, Tuple[str, str, str]] = {
    "openai": ("openai", "api-key", "base-url"),
    "anthropic": ("anthropic", "anthropic-api-key", "anthropic-base-url"),
    "gemini": ("gemini", "gemini-api-key", "gemini-base-url"),
    "azure_openai": ("azure", "azure-api-key", "azure-endpoint"),
    "openrouter": ("openrouter", "openrouter-api-key", "openrouter-base-url"),
    "portkey": ("portkey", "portkey-api-key", "portkey-base-url"),
    "vllm": ("vllm", "vllm-api-key", "vllm-base-url"),
}
#: sampling parameters among the members of backend_kwargs
SAMPLING = ("temperature", "top_p", "top_k", "max_tokens", "max_completion_tokens", "seed", "stop",
            "presence_penalty", "frequency_penalty")
#: names that rlm restores after each cell
RESERVED = ("llm_query", "llm_query_batched", "rlm_query", "rlm_query_batched", "SHOW_VARS",
            "answer", "context", "history")
VERCEL = "https://ai-gateway.vercel.sh/v1"


@dataclasses.dataclass
class Names:
    """The translated arguments of another runtime."""
    model: Any = None
    sub_model: Any = None
    environment: Optional[str] = None
    environment_kwargs: Dict[str, Any] = dataclasses.field(default_factory=dict)
    tools: Dict[str, Any] = dataclasses.field(default_factory=dict)
    data: Dict[str, Any] = dataclasses.field(default_factory=dict)
    source: Dict[str, str] = dataclasses.field(default_factory=dict)
    verbose: bool = False
    #: rlm's arguments about callbacks and loggers
    wishes: Wishes = dataclasses.field(default_factory=Wishes)


def environment_name(wanted: Optional[str]) -> Optional[str]:
    """Returns `DROSTE_ENVIRONMENT`, else the program's choice, so that a program runs unchanged
    elsewhere."""
    return os.environ.get("DROSTE_ENVIRONMENT") or wanted


def function_of(lm: Any) -> Callable[..., str]:
    """Returns a model function for a language model of dspy, or for a callable that takes
    `messages`."""
    def ask(messages: List[Dict[str, Any]]) -> str:
        alone = len(messages) == 1 and isinstance(messages[0]["content"], str)
        said = lm(messages[0]["content"]) if alone else lm(messages=messages)
        first = said[0] if isinstance(said, (list, tuple)) else said
        return first["text"] if isinstance(first, Mapping) else str(first)

    return ask


def _take_model(backend: str, kwargs: Mapping[str, Any], settings: Dict[str, Any],
                sampling: Dict[str, Any]) -> Any:
    """Returns the model's name; puts keys and servers into `settings`, and sampling parameters into
    `sampling`."""
    rest = dict(kwargs)
    sampling.update({name: rest.pop(name) for name in SAMPLING if name in rest})
    sampling.update(rest.pop("sampling_args", None) or {})
    name = rest.pop("model_name", None) or rest.pop("model", None)
    if callable(name):
        return name
    if backend == "vercel":
        backend = "openai"
        rest.setdefault("base_url", VERCEL)
    if backend not in BACKENDS:
        raise UnsupportedError("unknown backend %r; use one of %s"
                               % (backend, ", ".join([*BACKENDS, "vercel"])))
    if not name:
        raise ArgumentError("backend_kwargs needs a model_name, such as {'model_name': "
                            "'gpt-5-mini'}")
    word, key, url = BACKENDS[backend]
    for alias, setting in (("api_key", key), ("base_url", url), ("azure_endpoint", url),
                           ("timeout", "llm-call-timeout"),
                           ("api_version", "azure-api-version"), ("max_retries", "retries")):
        if rest.get(alias) is not None:
            settings[setting] = rest[alias]
        rest.pop(alias, None)
    if rest:
        raise ArgumentError("backend_kwargs has %s, which Droste does not support; use "
                            "model_name, api_key, base_url, timeout, max_retries and sampling_args"
                            % ", ".join(sorted(rest)))
    return "%s/%s" % (word, name)


def shown(model: Any) -> str:
    """Returns a model's name as the program wrote it, without the provider's prefix."""
    if not isinstance(model, str):
        return (getattr(model, "model_name", None) or getattr(model, "__name__", None)
                or type(model).__name__)
    word, slash, rest = model.partition("/")
    return rest if slash and word in {b[0] for b in BACKENDS.values()} else model


def _take_sampling(sampling: Mapping[str, Any], settings: Dict[str, Any], before: str = "") -> None:
    """Translates sampling parameters; the library refuses those that a provider does not
    support."""
    rest = {name: value for name, value in sampling.items() if value is not None}
    most = rest.pop("max_tokens", None)
    most = rest.pop("max_completion_tokens", most)
    if most is not None or before:
        settings[before + "max-tokens"] = most or 0
    if rest or before:
        settings[before + "sampling"] = ["%s=%s" % (name, json.dumps(value))
                                         for name, value in rest.items()] or [""]


def _take_tools(options: Mapping[str, Any], settings: Dict[str, Any], names: Names) -> None:
    names.tools, names.data, names.source, description = custom_tools.take(options)
    if description:
        text = settings.get("instructions")
        settings["instructions"] = "%s\n\n%s" % (text, description) if text else description


def _depth(n: int) -> int:
    """Translates max_depth. rlm counts the root: 1, its default, is a run whose code calls
    models."""
    if n < 1:
        raise UnsupportedError("RLM(max_depth=%d) would call the model without code; call the "
                               "model directly (rlm.clients), or pass 1" % n)
    return n - 1


def _system_prompt(text: str) -> str:
    """Removes rlm's `{custom_tools_section}` from a prompt: Droste describes the tools itself."""
    place = "{custom_tools_section}"
    return text.format(custom_tools_section="") if place in text else text


#: RLM's arguments that are settings here, and how the value is converted
RLM_SETTINGS: Dict[str, Tuple[str, Callable[[Any], Any]]] = {
    "max_depth": ("max-recursion-depth", _depth),
    "max_budget": ("max-cost", float),
    "max_timeout": ("timeout", float),
    "max_concurrent_subcalls": ("max-children", int),
    "custom_system_prompt": ("instructions", _system_prompt),
    "user_prologue": ("instructions", str),
}
#: arguments without an effect here: the only accepted value, and why others are refused
RLM_FIXED = {"depth": (0, "Droste counts the depth itself; max_depth limits it"),
             "orchestrator": (True, "Droste's prompt has no such part; custom_system_prompt adds "
                                    "to the prompt")}
#: arguments that are handled by a run's observer
RLM_WISHES = ("logger", "persistent", "on_subcall_start", "on_subcall_complete",
              "on_iteration_start", "on_iteration_complete")


def take_rlm(settings: Dict[str, Any]) -> Names:
    """Removes the arguments of rlm's RLM from `settings`, and adds Droste's settings for them."""
    names = Names()
    described = _describe(settings)
    backend = settings.pop("backend", None)
    kwargs = settings.pop("backend_kwargs", None)
    sampling: Dict[str, Any] = {}
    if backend is not None or kwargs is not None:
        names.model = _take_model(backend or "openai", kwargs or {}, settings, sampling)
        if settings.get("max_tokens") is not None:      # of the whole run, in rlm
            settings["max_total_tokens"] = settings.pop("max_tokens")
        if settings.get("max_depth") is None and "max_recursion_depth" not in settings:
            settings["max_depth"] = 1                   # rlm's default
    is_rlms = (backend is not None or kwargs is not None) and not settings.get("_navigator")
    sampling.update(settings.pop("sampling_args", None) or {})
    _take_others(settings, names, sampling)
    _take_sampling(sampling, settings)
    _take_wishes(settings, names, described)
    for word, (name, convert) in RLM_SETTINGS.items():
        value = settings.pop(word, None)
        if value is not None:
            text, value = name == "instructions" and settings.get(name), convert(value)
            settings[name] = "%s\n\n%s" % (text, value) if text else value
    for word, (allowed, why) in RLM_FIXED.items():
        value = settings.pop(word, allowed)
        if value != allowed:
            raise UnsupportedError("RLM(%s=%r) has no effect here: %s" % (word, value, why))
    _take_compaction(settings)
    tools = dict(settings.pop("custom_tools", None) or {})
    _take_tools(tools, settings, names)
    sub_tools = settings.pop("custom_sub_tools", None)
    if sub_tools is not None and dict(sub_tools) not in ({}, tools):
        raise UnsupportedError("custom_sub_tools must be {} (none), or the same as custom_tools")
    if sub_tools is not None and not sub_tools:
        settings["sub-tools"] = False
    names.verbose = bool(settings.pop("verbose", False))
    _take_environment(settings, names)
    # as in rlm, functions are tools too
    if is_rlms and names.environment is None and "restore-name" not in settings:
        settings.setdefault("restore_name", [*RESERVED, *names.tools])
    return names


def _take_others(settings: Dict[str, Any], names: Names, root: Mapping[str, Any]) -> None:
    """Takes the model and parameters for calls by code. As in rlm, the root's apply if neither is
    set."""
    others, other_kwargs = settings.pop("other_backends",
                                        None), settings.pop("other_backend_kwargs", None)
    own = settings.pop("sub_sampling_args", None)
    sampling: Dict[str, Any] = dict(root)
    if others:
        if len(others) != 1 or len(other_kwargs or ()) != 1:
            raise ArgumentError("other_backends must be a list of one backend, with one dict in "
                                "other_backend_kwargs")
        sampling = {}
        names.sub_model = _take_model(others[0], other_kwargs[0], settings, sampling)
    if others or own is not None:
        _take_sampling({**sampling, **(own or {})}, settings, "sub-")


def public(options: Mapping[str, Any]) -> Dict[str, Any]:
    """Returns the arguments without keys, which are recognised by their names."""
    return {name: value for name, value in options.items()
            if not ("api" in name.lower() and "key" in name.lower())}


def _describe(settings: Mapping[str, Any]) -> RLMMetadata:
    """Describes how the program configures its runs, without keys."""
    kwargs, place = settings.get("backend_kwargs") or {}, settings.get("environment_kwargs") or {}

    return RLMMetadata(str(kwargs.get("model_name", "unknown")), settings.get("max_depth") or 1,
                       settings.get("max_iterations") or 30,
                       settings.get("backend") or "openai", public(kwargs),
                       settings.get("environment") or "local", public(place),
                       settings.get("other_backends"))


def _take_wishes(settings: Dict[str, Any], names: Names, described: RLMMetadata) -> None:
    options = {name: settings.pop(name) for name in RLM_WISHES if name in settings}
    names.wishes = Wishes(**options, metadata=described)
    if names.wishes.logger is not None and not callable(getattr(names.wishes.logger, "log", None)):
        raise ArgumentError("logger must have the methods log_metadata(metadata) and "
                            "log(iteration), like RLMLogger, but is %r" % (
            names.wishes.logger,))
    if names.wishes.persistent and (settings.get("environment")
                                    or "local") not in ("local", "docker"):
        raise ArgumentError("persistent=True is not supported for the environment %r; use local "
                            "or docker" % (
            settings.get("environment"),))


def _take_compaction(settings: Dict[str, Any]) -> None:
    share = settings.pop("compaction_threshold_pct", 0.85)
    if isinstance(settings.get("compaction"), bool):
        settings["compaction"] = share if settings["compaction"] else None


def _take_environment(settings: Dict[str, Any], names: Names) -> None:
    wanted, kwargs = settings.pop("environment",
                                  None), dict(settings.pop("environment_kwargs", None) or {})
    navigator = settings.pop("_navigator", False)
    if wanted is not None and wanted in environments.registry:
        names.environment, names.environment_kwargs = wanted, kwargs
        return
    name = environment_name(wanted)
    if name is not None:
        settings["env"] = name
    # the program expects Daytona's paths
    if wanted == "daytona" and name in ("local", "docker", "modal"):
        settings.setdefault("layout", "daytona")
    said = {word.replace("_", "-"): word for word in settings}
    for setting, value in environment_kwargs.take(wanted, name, kwargs, navigator,
                                                  frozenset(said)).items():
        word = said.get(setting.replace("_", "-"))
        if word is None:
            settings[setting] = value
        elif word == "timeout":     # of the run, and of its sandbox
            settings[word] = min(filter(None, (settings[word], value)), default=0)
        elif settings[word] != value:
            raise ArgumentError("RLM(%s=%r) contradicts environment_kwargs, where it is %r"
                                % (word, settings[word], value))
