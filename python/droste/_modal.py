"""Modal images as settings.

Needs the package `modal` only for images that are objects of it. The bridge (modal_bridge.py),
which libdroste starts, manages the sandboxes.
"""
from __future__ import annotations

import concurrent.futures
import importlib.util
import os
import sys
from typing import Any, Callable, Dict

from .errors import ArgumentError

APP = "rlm-sandbox"


def prepare(settings: Dict[str, Any]) -> Dict[str, Any]:
    """Returns settings for Modal sandboxes.

    The bridge runs in this interpreter if it has the package, otherwise in python3 from PATH. A
    modal.Image is built when the first session needs it. Raises ArgumentError for a wrong image.
    """
    if importlib.util.find_spec("modal") is not None:
        os.environ.setdefault("DROSTE_MODAL_PYTHON", sys.executable)
    image = settings.get("image")
    if image is None or isinstance(image, str) or callable(image):
        return settings
    if not hasattr(image, "build"):
        raise ArgumentError("image must be a name or a modal.Image, not %r" % (image,))
    app = settings.get("app_name") or settings.get("app-name") or APP
    return {**settings, "image": _built(image, app)}


def _build(recipe: Any, app: str) -> None:
    import modal  # type: ignore
    recipe.build(modal.App.lookup(app, create_if_missing=True))


def _built(recipe: Any, app: str) -> Callable[[], str]:
    def identity() -> str:
        try:
            return recipe.object_id
        except AttributeError:      # not built yet
            # In a thread, because the SDK warns of blocking calls where a loop runs.
            with concurrent.futures.ThreadPoolExecutor(1) as thread:
                thread.submit(_build, recipe, app).result()
            return recipe.object_id
    return identity
