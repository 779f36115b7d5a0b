"""What programs for Modal name, as settings: the parameters of fleet-rlm's ModalInterpreter and
alexzhang13/rlm's ModalREPL."""
from __future__ import annotations

from typing import Any, Dict

from ..errors import UnsupportedError


def take(kwargs: Dict[str, Any]) -> None:
    """Names that Modal's own programs have, as settings, in place. Secrets stay where they are:
    models are asked by the host."""
    app = kwargs.pop("app", None)
    if app is not None:
        kwargs["app_name"] = app if isinstance(app, str) else app.name
    if kwargs.pop("secrets", None):
        raise UnsupportedError("secrets are not put into a sandbox: models are asked by the host; what the code needs goes into env_var")
    kwargs.pop("secret_name", None)
    for word, setting in (("cpu", "cpus"), ("gpu", "gpus")):
        if word in kwargs:
            kwargs[setting] = kwargs.pop(word)


def interpreter(given: Dict[str, Any], settings: Dict[str, Any]) -> None:
    """The parameters of a ModalInterpreter: into the settings."""
    wanted = {name: given[name] for name in ("app", "app_name", "secrets", "idle_timeout") if given[name] is not None}
    wanted["image"] = given["image"]
    if wanted["image"] is None:
        wanted["image"] = "slim:%s:%s" % (given["image_python_version"], ",".join(given["image_pip_packages"]))
    take(wanted)
    settings.update(wanted)
