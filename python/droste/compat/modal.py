"""Translates the parameters of programs for Modal into settings: those of fleet-rlm's
ModalInterpreter and alexzhang13/rlm's ModalREPL."""
from __future__ import annotations

from typing import Any, Dict

from ..errors import UnsupportedError


def take(kwargs: Dict[str, Any]) -> None:
    """Replaces the parameters of Modal's programs by settings. Secrets are not passed on, because
    the host calls the models."""
    app = kwargs.pop("app", None)
    if app is not None:
        kwargs["app_name"] = app if isinstance(app, str) else app.name
    if kwargs.pop("secrets", None):
        raise UnsupportedError("secrets are not sent to a sandbox, because the host calls the "
                               "models; pass variables for the code as env_var")
    kwargs.pop("secret_name", None)
    for word, setting in (("cpu", "cpus"), ("gpu", "gpus")):
        if word in kwargs:
            kwargs[setting] = kwargs.pop(word)


def interpreter(arguments: Dict[str, Any], settings: Dict[str, Any]) -> None:
    """Adds the parameters of a ModalInterpreter to the settings."""
    wanted = {name: arguments[name] for name in ("app", "app_name", "secrets", "idle_timeout")
              if arguments[name] is not None}
    wanted["image"] = arguments["image"]
    if wanted["image"] is None:
        wanted["image"] = "slim:%s:%s" % (arguments["image_python_version"],
                                          ",".join(arguments["image_pip_packages"]))
    take(wanted)
    settings.update(wanted)
