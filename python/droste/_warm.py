"""Boots within asyncio: the first sandbox of its kind begins with an interpreter, which takes 0.2 s, and longer where a version
manager's script stands in its place. Whoever awaits the start has that done in a thread, once, and the loop goes on."""
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
    """Has an idle engine with a warm zygote for a session with these settings, unless there is one. What fails will fail
    again, and be told, when the session begins."""
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
    pairs = list(key[0])        # those that say what a zygote is
    if (dict(pairs).get("env") or _settings.configured("env") or "local") != "local":
        return      # a sandbox elsewhere costs money, and starts without holding anything up
    engine, session = _engine.take(key), ctypes.c_void_p()
    try:
        with engine.lock:
            check(lib.droste_session_start(engine.alive(), _settings.words(pairs + BARE), ctypes.byref(session), engine.err), engine.error)
            lib.droste_session_close(session)
    finally:
        _engine.give(engine)


#: nothing of what the configuration may have in a session is wanted in this one
BARE: List[Tuple[str, Any]] = [("volume-name", ""), ("repo-url", ""), ("setup-code", "")]
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_booting.clear)
