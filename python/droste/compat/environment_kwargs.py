"""Translates `environment_kwargs` of other runtimes into settings.

The names are those of alexzhang13/rlm (its classes `LocalREPL`, `DockerREPL`, `ModalREPL`,
`PrimeREPL`, `DaytonaREPL`, `E2BREPL`) and of agentic-codebase-navigator (its page on execution
environments). Every setting of Droste's own may stand beside them. A name that is neither is
refused, and so is one of theirs that has nothing to do here: an argument that is accepted has an
effect.
"""
from __future__ import annotations

import math
import os
import sys
import warnings
from typing import AbstractSet, Any, Callable, Dict, Mapping, Optional, Tuple

from .. import _settings
from ..errors import ArgumentError, UnsupportedError
from . import daytona, modal

#: arguments that rlm's RLM passes to its environments, and their replacement here
GIVEN_BY_RLM = {
    "context_payload": "pass the context to completion() or run()",
    "lm_handler_address": "calls of models use the sandbox's own stream and need no address",
    "subcall_fn": "Droste starts child runs itself; max_depth limits the depth",
    "depth": "Droste counts the depth itself; max_depth limits it",
    "persistent": "use Interpreter for a persistent session",
    "custom_tools": "pass it to RLM",
    "custom_sub_tools": "pass it to RLM",
    "compaction": "pass it to RLM",
    "max_concurrent_subcalls": "pass it to RLM",
}
#: arguments about the internals of navigator's environments
NOTHING_HERE = {
    "cleanup_subprocess_timeout_s": "Droste ends a container with its session, without the docker "
                                    "command",
    "thread_join_timeout_s": "there is no proxy",
}


def _number(name: str, environment: str, value: Any) -> float:
    if (isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value)
        or value <= 0):
        raise ArgumentError("%s environment requires %r to be a number > 0, not %r"
                            % (environment, name, value))
    return float(value)


def _whole(name: str, environment: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ArgumentError("%s environment requires %r to be an int >= 0, not %r"
                            % (environment, name, value))
    return value


def _text(name: str, environment: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ArgumentError("%s environment requires %r to be a non-empty string, not %r"
                            % (environment, name, value))
    return value


def _minutes(name: str, environment: str, value: Any) -> float:
    return 60 * _number(name, environment, value)


def _labelled(name: str, environment: str, value: Any) -> list:
    return ["name=%s" % _text(name, environment, value)]


def _access(name: str, environment: str, value: Any) -> str:
    if not isinstance(value, bool):
        raise ArgumentError("%s environment requires %r to be True or False, not %r"
                            % (environment, name, value))
    return "open" if value else "none"


Word = Tuple[str, Callable[[str, str, Any], Any]]
#: of navigator's local environment alone: using one of them asks for that environment, with its
#: rules and limits
NAVIGATOR_LOCAL: Dict[str, Word] = {
    "execute_timeout_s": ("execute-timeout", _number),
    "execute_timeout_cap_s": ("execute-timeout-cap", _number),
    "broker_timeout_s": ("broker-timeout", _number),
}
NAVIGATOR_DOCKER: Dict[str, Word] = {
    "subprocess_timeout_s": ("execute-timeout", _number),
    "proxy_http_timeout_s": ("broker-timeout", _number),
    "stop_grace_s": ("grace", _whole),
}
#: by environment: each name, its setting, and how its value is checked and written. None: the
#: environment of a program that names none
WORDS: Dict[Optional[str], Dict[str, Word]] = {
    "local": NAVIGATOR_LOCAL,
    "docker": {"image": ("image", _text), **NAVIGATOR_DOCKER},
    "prime": {"name": ("label", _labelled), "docker_image": ("image", _text),
              "timeout_minutes": ("timeout", _minutes),
              "network_access": ("network", _access)},
    "e2b": {"timeout": ("timeout", _number)},
}
EVERYWHERE: Dict[str, Word] = {"setup_code": ("setup-code", _text)}
#: defaults of navigator's page for settings that a program does not set
LOCAL_DEFAULTS = {"rules": True, "setup-each": True, "execute-timeout": 30.0,
                  "execute-timeout-cap": 300.0, "broker-timeout": 30.0}
DOCKER_DEFAULTS = {"execute-timeout": 120.0, "broker-timeout": 60.0}
#: navigator's upper bound of the cap
CAP_MOST = 21600.0
#: what only a provider's sandbox, or a container, can have: without an effect where
#: DROSTE_ENVIRONMENT has the program run locally instead
OF_SANDBOXES = frozenset((
    "image", "snapshot", "region", "app-name", "network", "network-allow", "label", "cpus", "gpus",
    "memory", "disk-size", "idle-timeout",
    "on-close", "user", "volume-subpath"))


def take(wanted: Optional[str], name: Optional[str], kwargs: Mapping[str, Any],
         navigator: bool = False,
         stated: AbstractSet[str] = frozenset()) -> Dict[str, Any]:
    """The settings that `environment_kwargs` come to. `wanted` is the environment that the program
    names, `name` the one in which it runs: another where DROSTE_ENVIRONMENT says so. With
    `navigator`, the program's configuration is one of navigator's. Settings that are `stated`
    elsewhere have no default here."""
    words, settings = _without_none(kwargs), {}
    for word in words:
        why = GIVEN_BY_RLM.get(word) or NOTHING_HERE.get(word)
        if why:
            raise UnsupportedError("environment_kwargs has %s, which has no effect here: %s"
                                   % (word, why))
    roots = words.pop("allowed_import_roots", None)
    if wanted == "daytona":
        words = daytona.environment(words, settings)
    elif wanted == "modal":
        modal.take(words)
    local = wanted in (None, "local")
    navigator = navigator or (local and (roots is not None
                                         or not NAVIGATOR_LOCAL.keys().isdisjoint(words)))
    if roots is not None and not local:
        raise ArgumentError("environment_kwargs has allowed_import_roots, which only the "
                            "environment 'local' supports")
    known = {**EVERYWHERE, **WORDS.get(wanted or "local", {})}
    for word, value in words.items():
        setting, write = known.get(word, (word.replace("_", "-"), None))
        if write is None and not _settings.exists(setting):
            raise ArgumentError("environment_kwargs has %r, which the environment %r does not "
                                "support; use %s" % (
                word, wanted or "local",
                ", ".join(sorted([*known, *(["allowed_import_roots"] if local else [])]))))
        settings[setting] = write(word, wanted or "local", value) if write else value
    if roots is not None:
        settings.update(_import_roots(roots))
    if navigator or wanted == "docker":
        _add_defaults(wanted or "local", name in (None, "local"), settings, navigator, stated)
    if name == "local" and not local:
        settings = {setting: value for setting, value in settings.items()
                    if setting not in OF_SANDBOXES}
    return settings


def _without_none(kwargs: Mapping[str, Any]) -> Dict[str, Any]:
    """Drops members that are None, the default of every name."""
    return {word: value for word, value in kwargs.items() if value is not None}


def _import_roots(roots: Any) -> Dict[str, Any]:
    """Translates allowed_import_roots. As in navigator, names of modules are the complete list of
    allowed imports, instead of the standard library. As on its page, directories are added to the
    allowed imports."""
    if (isinstance(roots, str) or not isinstance(roots, (set, frozenset, list, tuple))
        or not all(isinstance(r, str) and r for r in roots)):
        raise ArgumentError("local environment requires 'allowed_import_roots' to be a "
                            "set/list/tuple of non-empty strings, not %r" % (roots,))
    directories = [root for root in roots if "/" in root]
    for root in directories:
        if not os.path.isdir(root):
            warnings.warn("allowed_import_roots has %r, but this directory does not exist" % root,
                          stacklevel=6)
    modules = [root for root in roots if "/" not in root]
    allowed = sorted(modules + [root for root in directories if os.path.isdir(root)])
    return {"rules": True, "allow-import": allowed, "standard-imports": not modules}


def _add_defaults(environment: str, here: bool, settings: Dict[str, Any], navigator: bool,
                  stated: AbstractSet[str]) -> None:
    explicit = {setting.replace("_", "-") for setting in settings} | stated
    defaults = {"local": LOCAL_DEFAULTS, "docker":
                {**DOCKER_DEFAULTS, "setup-each": navigator or None}}.get(environment, {})
    settings.update({setting: value for setting, value in defaults.items()
                     if setting not in explicit})
    if (environment == "local" and here and "python" not in explicit
        and not os.environ.get("DROSTE_PYTHON")):
        # with the packages of the program, as navigator's workers have them
        settings["python"] = sys.executable or None
    limit, cap = settings.get("execute-timeout"), settings.get("execute-timeout-cap")
    if not isinstance(cap, float) or not isinstance(limit, float):
        return
    if cap > CAP_MOST:
        raise ArgumentError("local environment requires 'execute_timeout_cap_s' to be a number > "
                            "0 and <= %s, not %r" % (CAP_MOST, cap))
    if limit > cap and "execute-timeout" in explicit:
        raise ArgumentError("local environment requires 'execute_timeout_s' to be <= "
                            "'execute_timeout_cap_s' (%ss), not %r" % (cap, limit))
    settings["execute-timeout"] = min(limit, cap)
