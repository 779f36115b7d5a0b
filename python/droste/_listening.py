"""Calls a program's functions with the output and the rich results of its cells, as they come."""
from __future__ import annotations

from typing import Any, Callable, Dict, NamedTuple, Optional

from . import _library
from ._library import quick
from .rich import read_bundle

# By the id of the session; not the Interpreter, which may be collected while it has listeners.
_listeners: Dict[int, "Listeners"] = {}


class Listeners(NamedTuple):
    output: Optional[Callable[[int, str], None]]
    result: Optional[Callable[[Any], None]]
    engine: Any


def listen(owner: Any) -> None:
    """Begins to call the functions of an Interpreter."""
    listeners = Listeners(owner._on_output, owner._on_result, owner._engine)
    if listeners.output is not None or listeners.result is not None:
        _listeners[owner._id] = listeners
    if listeners.output is not None:
        quick.droste_session_on_output(owner._session, _on_output, owner._id)
    if listeners.result is not None:
        quick.droste_session_on_display(owner._session, _on_display, owner._id)


def forget(ident: int) -> None:
    _listeners.pop(ident, None)


@_library.OutputFn
def _on_output(arg: int, stream: int, address: int, length: int) -> None:
    found = _listeners.get(arg)
    if found is None or found.output is None:
        return
    try:
        found.output(stream, _library.text_at(address, length))
    except BaseException as e:
        found.engine.failed(e)


@_library.DisplayFn
def _on_display(arg: int, bundles: int, index: int) -> None:
    found = _listeners.get(arg)
    if found is None or found.result is None:
        return
    try:
        there = quick.droste_bundles_count(bundles)
        found.result(read_bundle(bundles, index) if there else None)
    except BaseException as e:
        found.engine.failed(e)
