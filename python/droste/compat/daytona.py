"""What programs for Daytona name, as settings: fleet-rlm's `sandbox_spec` and the parameters of
alexzhang13/rlm's DaytonaREPL."""
from __future__ import annotations

from typing import Any, Dict, Mapping, Tuple

from ..errors import ArgumentError, UnsupportedError


def _gigabytes(value: Any) -> str:
    return "%gG" % value


def _minutes(value: Any) -> float:
    if value <= 0:
        raise ArgumentError("auto_stop_interval=%r: every sandbox has one" % (value,))
    return value * 60.0


def _pairs(value: Mapping[str, str]) -> list:
    return ["%s=%s" % pair for pair in value.items()]


def _words(value: Any) -> list:
    return [w.strip() for w in value.split(",") if w.strip()] if isinstance(value, str) else list(value)


#: name: (setting, how its value is written)
PARAMETERS: Dict[str, Tuple[str, Any]] = {
    "image": ("image", str), "snapshot": ("snapshot", str), "target": ("region", str), "os_user": ("user", str), "user": ("user", str),
    "cpu": ("cpus", float), "memory": ("memory", _gigabytes), "disk": ("disk-size", _gigabytes), "gpu": ("gpus", str),
    "auto_stop_interval": ("idle-timeout", _minutes), "labels": ("label", _pairs), "env_vars": ("env-var", _pairs),
    "network_allow_list": ("network-allow", _words), "domain_allow_list": ("network-allow", _words),
    "network_block_all": ("network", lambda blocked: "none" if blocked else "open"),
    "ephemeral": ("on-close", lambda passing: "delete" if passing else "stop"),
}


def take(name: str, value: Any, settings: Dict[str, Any]) -> bool:
    """One parameter; whether it is one. Lists grow."""
    if name not in PARAMETERS:
        return False
    setting, write = PARAMETERS[name]
    written = write(value)
    settings[setting] = settings.get(setting, []) + written if isinstance(written, list) else written
    return True


def environment(kwargs: Mapping[str, Any], settings: Dict[str, Any]) -> Dict[str, Any]:
    """Those of environment_kwargs that are of the sandbox alone; the others."""
    if kwargs.get("api_key") is not None:
        raise ArgumentError("environment_kwargs has api_key: the key of Daytona is the variable DAYTONA_API_KEY")
    if kwargs.get("name") is not None:
        take("labels", {"name": kwargs["name"]}, settings)
    return {name: value for name, value in kwargs.items()
            if name not in ("api_key", "name") and (value is not None and not take(name, value, settings))}


def interpreter(given: Mapping[str, Any], settings: Dict[str, Any]) -> None:
    """DaytonaInterpreter's parameters that are of the sandbox alone."""
    spec = given["sandbox_spec"]
    asked = spec if isinstance(spec, Mapping) else {} if spec is None else vars(spec)
    for name, value in asked.items():
        if value is not None and not take(name, value, settings):
            raise UnsupportedError("DaytonaInterpreter(sandbox_spec=…) has %r, which reaches nothing here" % name)
    if given["runtime"] is not None:
        raise UnsupportedError("DaytonaInterpreter(runtime=…): there is no runtime to share; the account is that of DAYTONA_API_KEY")
    if given["sandbox_labels"]:
        take("labels", given["sandbox_labels"], settings)
    if given["volume_subpath"] is not None:
        settings["volume-subpath"] = given["volume_subpath"]
    if not given["delete_session_on_shutdown"]:
        settings["on-close"] = "stop"
