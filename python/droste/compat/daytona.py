"""Translates the parameters of programs for Daytona into settings: fleet-rlm's `sandbox_spec` and
the parameters of alexzhang13/rlm's DaytonaREPL."""
from __future__ import annotations

from typing import Any, Dict, Mapping, Tuple

from ..errors import ArgumentError, UnsupportedError


def _gigabytes(value: Any) -> str:
    return "%gG" % value


def _minutes(value: Any) -> float:
    if value <= 0:
        raise ArgumentError("auto_stop_interval=%r: every sandbox needs an interval above 0"
                            % (value,))
    return value * 60.0


def _pairs(value: Mapping[str, str]) -> list:
    return ["%s=%s" % pair for pair in value.items()]


def _words(value: Any) -> list:
    return ([w.strip() for w in value.split(",") if w.strip()] if isinstance(value, str)
            else list(value))


#: name: (setting, how its value is written)
PARAMETERS: Dict[str, Tuple[str, Any]] = {
    "image": ("image", str), "snapshot": ("snapshot", str), "target": ("region", str),
    "os_user": ("user", str), "user": ("user", str),
    "cpu": ("cpus", float), "memory": ("memory", _gigabytes), "disk": ("disk-size", _gigabytes),
    "gpu": ("gpus", str),
    "auto_stop_interval": ("idle-timeout", _minutes), "labels": ("label", _pairs),
    "env_vars": ("env-var", _pairs),
    "network_allow_list": ("network-allow", _words), "domain_allow_list": ("network-allow", _words),
    "network_block_all": ("network", lambda blocked: "none" if blocked else "open"),
    "ephemeral": ("on-close", lambda ephemeral: "delete" if ephemeral else "stop"),
}


def take(name: str, value: Any, settings: Dict[str, Any]) -> bool:
    """Translates one parameter; returns whether it is known. Lists are extended."""
    if name not in PARAMETERS:
        return False
    setting, write = PARAMETERS[name]
    written = write(value)
    settings[setting] = (settings.get(setting, []) + written if isinstance(written, list)
                         else written)
    return True


def environment(kwargs: Mapping[str, Any], settings: Dict[str, Any]) -> Dict[str, Any]:
    """Takes the members of environment_kwargs that concern the sandbox; returns the others."""
    if kwargs.get("api_key") is not None:
        raise ArgumentError("environment_kwargs has api_key: set the key of Daytona in the "
                            "variable DAYTONA_API_KEY")
    if kwargs.get("name") is not None:
        take("labels", {"name": kwargs["name"]}, settings)
    return {name: value for name, value in kwargs.items()
            if name not in ("api_key", "name")
            and (value is not None and not take(name, value, settings))}


def interpreter(arguments: Mapping[str, Any], settings: Dict[str, Any]) -> None:
    """Takes DaytonaInterpreter's parameters that concern the sandbox."""
    spec = arguments["sandbox_spec"]
    asked = spec if isinstance(spec, Mapping) else {} if spec is None else vars(spec)
    for name, value in asked.items():
        if value is not None and not take(name, value, settings):
            raise UnsupportedError("DaytonaInterpreter(sandbox_spec=…) has %r, which is not "
                                   "supported" % name)
    if arguments["runtime"] is not None:
        raise UnsupportedError("DaytonaInterpreter(runtime=…): there is no runtime to share; "
                               "DAYTONA_API_KEY chooses the account")
    if arguments["sandbox_labels"]:
        take("labels", arguments["sandbox_labels"], settings)
    if arguments["volume_subpath"] is not None:
        settings["volume-subpath"] = arguments["volume_subpath"]
    if not arguments["delete_session_on_shutdown"]:
        settings["on-close"] = "stop"
