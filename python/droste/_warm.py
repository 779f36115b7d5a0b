"""Boots zygotes in a thread for asyncio callers.

The first sandbox of a kind starts an interpreter, which takes 0.2 s, and longer with a version
manager's wrapper script. `await` on the start boots it once, in a thread, without blocking the
loop.
"""
from __future__ import annotations

import asyncio
import concurrent.futures
import ctypes
import os
from typing import Any, Dict, List, Tuple

from . import _engine, _settings
from ._library import lib
from .errors import check

_booting: Dict[Tuple[Any, ...], "concurrent.futures.Future[None]"] = {}


async def boot(pairs: List[Tuple[str, Any]]) -> None:
    """Prepares an idle engine with a warm zygote for these settings, unless there is one.

    Ignores failures: the same failure occurs again, and is reported, when the session starts.
    """
    loop, key = asyncio.get_running_loop(), _settings.key(pairs)
    if _engine.is_there(loop, key):
        return
    booting = _booting.get(key)
    if booting is None:
        booting = _booting[key] = concurrent.futures.Future()
        _engine.workers("boots").submit(lambda: _boot(key, booting))    # type: ignore
    await asyncio.wait([asyncio.wrap_future(booting)])


def _boot(key: Tuple[Any, ...], booting: "concurrent.futures.Future[None]") -> None:
    try:
        _open_and_close(key)
    except Exception:
        pass
    finally:
        _booting.pop(key, None)
        booting.set_result(None)


def _open_and_close(key: Tuple[Any, ...]) -> None:
    pairs = list(key[0])        # the fundamental settings
    if (dict(pairs).get("env") or _settings.configured("env") or "local") != "local":
        return      # other sandboxes cost money and start without blocking
    engine, session = _engine.take(key), ctypes.c_void_p()
    try:
        with engine.lock:
            check(lib.droste_session_start(engine.alive(),
                                           _settings.words(engine.settings(pairs) + BARE),
                                           ctypes.byref(session), engine.err), engine.error)
            lib.droste_session_close(session)
    finally:
        _engine.give(engine)


#: overrides configured settings that a trial session must not use
BARE: List[Tuple[str, Any]] = [("volume-name", ""), ("repo-url", ""), ("setup-code", "")]
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_booting.clear)
