"""What a program says of a Modal sandbox, as settings. The sandboxes themselves are the bridge's (modal_bridge.py), which is
started by libdroste; the package `modal` is needed here only for images that are objects of it."""
from __future__ import annotations

import concurrent.futures
import importlib.util
import os
import sys
from typing import Any, Callable, Dict

from .errors import ArgumentError, UnsupportedError

APP = "rlm-sandbox"


def prepare(settings: Dict[str, Any]) -> Dict[str, Any]:
    """The settings of sandboxes of Modal. The bridge runs in this interpreter, where that has the package; else in python3 of
    PATH. A modal.Image is built when the first session needs it."""
    if importlib.util.find_spec("modal") is not None:
        os.environ.setdefault("DROSTE_MODAL_PYTHON", sys.executable)
    image = settings.get("image")
    if image is None or isinstance(image, str) or callable(image):
        return settings
    if not hasattr(image, "build"):
        raise ArgumentError("image is a name or a modal.Image: %r" % (image,))
    return {**settings, "image": _built(image, settings.get("app_name") or settings.get("app-name") or APP)}


def _build(given: Any, app: str) -> None:
    import modal  # type: ignore
    given.build(modal.App.lookup(app, create_if_missing=True))


def _built(given: Any, app: str) -> Callable[[], str]:
    def identity() -> str:
        try:
            return given.object_id
        except AttributeError:      # nobody has built it yet
            with concurrent.futures.ThreadPoolExecutor(1) as thread:    # the SDK warns of a wait where a loop runs
                thread.submit(_build, given, app).result()
            return given.object_id
    return identity


def take(kwargs: Dict[str, Any]) -> None:
    """Names that Modal's own programs have, as settings, in place. Secrets stay where they are: models are asked by the host."""
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
