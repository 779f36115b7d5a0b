"""Handlers of signals that the user's code sets with signal.signal().

Python runs them between any two instructions of the main thread. Within the link, one that raises,
as the usual timeout with signal.alarm() does, would leave a frame half written or a lock held. So
one that comes in a critical section runs at its end, or before the link waits; interrupts raise in
the same places.
"""
from __future__ import annotations

import _signal
import os
import sys
from typing import Any

from .link import INSIDE, Link, on_interrupt
from .state import state

SIGNAL_MS = 100     # the longest that a handler is late

set_in_kernel, get_from_kernel = _signal.signal, _signal.getsignal
handlers: dict[int, Any] = {}       # by the signal's number


def set_handler(number: int, handler: Any) -> Any:
    """What signal.signal() calls."""
    before = handlers.get(number)
    if callable(handler) and handler is not on_interrupt:
        state.link.signal_ms = SIGNAL_MS
        handlers[number] = handler
        handler = deliver
    try:
        previous = set_in_kernel(number, handler)
    except BaseException:
        handlers[number] = before
        raise
    return before if previous is deliver else previous


def get_handler(number: int) -> Any:
    """What signal.getsignal() calls."""
    found = get_from_kernel(number)
    return handlers[number] if found is deliver else found


def deliver(number: int, frame: Any) -> None:
    link = state.link
    if os.getpid() != link.owner:
        handlers[number](number, frame)
    elif link.position() == INSIDE:
        link.hold(lambda: run_handler(link, number, frame))
    else:
        run_handler(link, number, frame)


def run_handler(link: Link, number: int, frame: Any) -> None:
    """Runs a handler as user code. Between cells nobody can catch what it raises."""
    position = link.depth, link.blocked
    link.depth, link.blocked = 0, False
    try:
        handlers[number](number, frame)
    except BaseException:
        if state.session.running is not None:
            raise
        sys.excepthook(*sys.exc_info())
    finally:
        link.depth, link.blocked = position


def hold_handlers_back() -> None:
    """From now on, signal.signal() sets handlers that wait for the link."""
    _signal.signal, _signal.getsignal = set_handler, get_handler
