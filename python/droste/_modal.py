"""Images of Modal's as settings: the package `modal` is needed here only for images that are objects of it. The sandboxes
themselves are the bridge's (modal_bridge.py), which libdroste starts."""
from __future__ import annotations

import concurrent.futures
import importlib.util
import os
import sys
from typing import Any, Callable, Dict

from .errors import ArgumentError

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
