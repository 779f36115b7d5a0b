"""The names that other runtimes have for what Droste has, as Droste's settings."""
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
#: of backend_kwargs: parameters of sampling that stand beside the others there
SAMPLING = ("temperature", "top_p", "top_k", "max_tokens", "max_completion_tokens", "seed", "stop", "presence_penalty", "frequency_penalty")
#: names that mean in rlm's code after each cell what they meant before it
RESERVED = ("llm_query", "llm_query_batched", "rlm_query", "rlm_query_batched", "SHOW_VARS", "answer", "context", "history")
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
    #: rlm's own arguments that are about what a program is told
    wishes: Wishes = dataclasses.field(default_factory=Wishes)


def environment_name(wanted: Optional[str]) -> Optional[str]:
    """`DROSTE_ENVIRONMENT` goes before what a program names, so that it runs unchanged
    elsewhere."""
    return os.environ.get("DROSTE_ENVIRONMENT") or wanted


def function_of(lm: Any) -> Callable[..., str]:
    """A model function of a language model of dspy's, or of any callable that takes `messages`."""
    def ask(messages: List[Dict[str, Any]]) -> str:
        alone = len(messages) == 1 and isinstance(messages[0]["content"], str)
        said = lm(messages[0]["content"]) if alone else lm(messages=messages)
        first = said[0] if isinstance(said, (list, tuple)) else said
        return first["text"] if isinstance(first, Mapping) else str(first)

    return ask


def _take_model(backend: str, kwargs: Mapping[str, Any], settings: Dict[str, Any], sampling: Dict[str, Any]) -> Any:
    """The model's name; keys and servers go to the settings, parameters of sampling to those."""
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
        raise UnsupportedError("the backend %r is not known; there are %s" % (backend, ", ".join([*BACKENDS, "vercel"])))
    if not name:
        raise ArgumentError("backend_kwargs needs a model_name, such as {'model_name': 'gpt-5-mini'}")
    word, key, url = BACKENDS[backend]
    for given, setting in (("api_key", key), ("base_url", url), ("azure_endpoint", url), ("timeout", "llm-call-timeout"),
                           ("api_version", "azure-api-version"), ("max_retries", "retries")):
        if rest.get(given) is not None:
            settings[setting] = rest[given]
        rest.pop(given, None)
    if rest:
        raise ArgumentError("backend_kwargs has %s, which Droste does not know; it takes model_name, api_key, base_url, "
                            "timeout, max_retries and sampling_args" % ", ".join(sorted(rest)))
    return "%s/%s" % (word, name)


def shown(model: Any) -> str:
    """A model as the program has named it: without the word of the backend."""
    if not isinstance(model, str):
        return getattr(model, "model_name", None) or getattr(model, "__name__", None) or type(model).__name__
    word, slash, rest = model.partition("/")
    return rest if slash and word in {b[0] for b in BACKENDS.values()} else model


def _take_sampling(sampling: Mapping[str, Any], settings: Dict[str, Any], before: str = "") -> None:
    """What a provider does not have, the library refuses by name."""
    rest = {name: value for name, value in sampling.items() if value is not None}
    most = rest.pop("max_tokens", None)
    most = rest.pop("max_completion_tokens", most)
    if most is not None or before:
        settings[before + "max-tokens"] = most or 0
    if rest or before:
        settings[before + "sampling"] = ["%s=%s" % (name, json.dumps(value)) for name, value in rest.items()] or [""]


def _take_tools(given: Mapping[str, Any], settings: Dict[str, Any], names: Names) -> None:
    names.tools, names.data, names.source, told = custom_tools.take(given)
    if told:
        text = settings.get("instructions")
        settings["instructions"] = "%s\n\n%s" % (text, told) if text else told


def _depth(n: int) -> int:
    """rlm counts the root: 1, its default, is a run whose code asks models."""
    if n < 1:
        raise UnsupportedError("RLM(max_depth=%d) would be a call of the model without code; ask the model itself "
                               "(rlm.clients), or give 1" % n)
    return n - 1


def _system_prompt(text: str) -> str:
    """rlm's prompts are formats, with a place for the tools; those are told by Droste itself."""
    place = "{custom_tools_section}"
    return text.format(custom_tools_section="") if place in text else text


#: RLM's arguments that are settings here: how the value is meant
RLM_SETTINGS: Dict[str, Tuple[str, Callable[[Any], Any]]] = {
    "max_depth": ("max-recursion-depth", _depth),
    "max_budget": ("max-cost", float),
    "max_timeout": ("timeout", float),
    "max_concurrent_subcalls": ("max-children", int),
    "custom_system_prompt": ("instructions", _system_prompt),
    "user_prologue": ("instructions", str),
}
#: those of no meaning here: the one value that they may have, and why another is refused
RLM_FIXED = {"depth": (0, "Droste counts the depth itself; max_depth says how deep"),
             "orchestrator": (True, "Droste's prompt has no such part to leave out; custom_system_prompt adds to it")}
#: those that a run's observer is asked for
RLM_WISHES = ("logger", "persistent", "on_subcall_start", "on_subcall_complete", "on_iteration_start", "on_iteration_complete")


def take_rlm(settings: Dict[str, Any]) -> Names:
    """Takes the names of rlm's RLM from the arguments, and leaves Droste's settings there."""
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
        given = settings.pop(word, allowed)
        if given != allowed:
            raise UnsupportedError("RLM(%s=%r) has no effect here: %s" % (word, given, why))
    _take_compaction(settings)
    tools = dict(settings.pop("custom_tools", None) or {})
    _take_tools(tools, settings, names)
    sub_tools = settings.pop("custom_sub_tools", None)
    if sub_tools is not None and dict(sub_tools) not in ({}, tools):
        raise UnsupportedError("custom_sub_tools is {} (none), or the same as custom_tools")
    if sub_tools is not None and not sub_tools:
        settings["sub-tools"] = False
    names.verbose = bool(settings.pop("verbose", False))
    _take_environment(settings, names)
    # as rlm: functions that are tools, too
    if is_rlms and names.environment is None and "restore-name" not in settings:
        settings.setdefault("restore_name", [*RESERVED, *names.tools])
    return names


def _take_others(settings: Dict[str, Any], names: Names, root: Mapping[str, Any]) -> None:
    """Of what the code asks: a model of its own, parameters of its own. As in rlm, those of the
    root hold unless there is either."""
    others, other_kwargs = settings.pop("other_backends", None), settings.pop("other_backend_kwargs", None)
    own = settings.pop("sub_sampling_args", None)
    sampling: Dict[str, Any] = dict(root)
    if others:
        if len(others) != 1 or len(other_kwargs or ()) != 1:
            raise ArgumentError("other_backends is a list of one backend, with one dict in other_backend_kwargs")
        sampling = {}
        names.sub_model = _take_model(others[0], other_kwargs[0], settings, sampling)
    if others or own is not None:
        _take_sampling({**sampling, **(own or {})}, settings, "sub-")


def public(given: Mapping[str, Any]) -> Dict[str, Any]:
    """Without keys, which are told by their names."""
    return {name: value for name, value in given.items() if not ("api" in name.lower() and "key" in name.lower())}


def _describe(settings: Mapping[str, Any]) -> RLMMetadata:
    """How the program asks for its runs, without keys."""
    kwargs, place = settings.get("backend_kwargs") or {}, settings.get("environment_kwargs") or {}

    return RLMMetadata(str(kwargs.get("model_name", "unknown")), settings.get("max_depth") or 1, settings.get("max_iterations") or 30,
                       settings.get("backend") or "openai", public(kwargs), settings.get("environment") or "local", public(place),
                       settings.get("other_backends"))


def _take_wishes(settings: Dict[str, Any], names: Names, described: RLMMetadata) -> None:
    given = {name: settings.pop(name) for name in RLM_WISHES if name in settings}
    names.wishes = Wishes(**given, metadata=described)
    if names.wishes.logger is not None and not callable(getattr(names.wishes.logger, "log", None)):
        raise ArgumentError("logger is an object with log_metadata(metadata) and log(iteration), as RLMLogger is: %r" % (
            names.wishes.logger,))
    if names.wishes.persistent and (settings.get("environment") or "local") not in ("local", "docker"):
        raise ArgumentError("persistent=True is not supported for the environment %r; there are local and docker" % (
            settings.get("environment"),))


def _take_compaction(settings: Dict[str, Any]) -> None:
    share = settings.pop("compaction_threshold_pct", 0.85)
    if isinstance(settings.get("compaction"), bool):
        settings["compaction"] = share if settings["compaction"] else None


def _take_environment(settings: Dict[str, Any], names: Names) -> None:
    wanted, kwargs = settings.pop("environment", None), dict(settings.pop("environment_kwargs", None) or {})
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
    for setting, value in environment_kwargs.take(wanted, name, kwargs, navigator, frozenset(said)).items():
        word = said.get(setting.replace("_", "-"))
        if word is None:
            settings[setting] = value
        elif word == "timeout":     # of the run, and of its sandbox
            settings[word] = min(filter(None, (settings[word], value)), default=0)
        elif settings[word] != value:
            raise ArgumentError("RLM(%s=%r) and environment_kwargs, by which it is %r, say different things" % (word, settings[word], value))
