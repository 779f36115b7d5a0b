"""What a program says of a Modal sandbox, as settings. The sandboxes themselves are the bridge's (modal_bridge.py), which is
started by libdroste; the package `modal` is needed here only for images that are objects of it."""
from __future__ import annotations

import importlib.util
import os
import sys
from typing import Any, Callable, Dict

from .errors import ArgumentError, UnsupportedError

APP = "rlm-sandbox"


def use_this_python() -> None:
    """The bridge runs in this interpreter, where that has the package; else in python3 of PATH."""
    if importlib.util.find_spec("modal") is not None:
        os.environ.setdefault("DROSTE_MODAL_PYTHON", sys.executable)


def image(given: Any, app: str) -> Any:
    """A name, or a function that gives one: a modal.Image is built when the first session needs it."""
    if isinstance(given, str) or given is None:
        return given
    if not (hasattr(given, "build") and hasattr(given, "object_id")):
        raise ArgumentError("image is a name or a modal.Image: %r" % (given,))
    return _built(given, app)


def _built(given: Any, app: str) -> Callable[[], str]:
    def identity() -> str:
        try:
            return given.object_id
        except AttributeError:      # nobody has built it yet
            import modal  # type: ignore
            given.build(modal.App.lookup(app, create_if_missing=True))
            return given.object_id
    return identity


def take(kwargs: Dict[str, Any]) -> None:
    """Names that Modal's own programs have, as settings, in place. Secrets stay where they are: models are asked by the host."""
    use_this_python()
    app = kwargs.pop("app", None)
    if app is not None:
        kwargs["app_name"] = app if isinstance(app, str) else app.name
    if kwargs.pop("secrets", None):
        raise UnsupportedError("secrets are not put into a sandbox: models are asked by the host; what the code needs goes into env_var")
    kwargs.pop("secret_name", None)
    if kwargs.get("image") is not None:
        kwargs["image"] = image(kwargs["image"], kwargs.get("app_name") or APP)
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
