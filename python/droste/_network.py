"""Decisions about requests to the network: `on_network=function`.

The function gets each `NetworkRequest` that `allow_net` allows, before it goes on, and returns None
or True to allow it, False or a reason to refuse it. It runs as one of approvals does
(_approvals.py): sync in a thread, async as a task. What it raises, or takes longer than a minute
for, is refused.
"""
from __future__ import annotations

import contextvars
import itertools
import weakref
from typing import Any, Callable, MutableMapping, NamedTuple, Optional, Tuple

from . import _engine, _library, _tools
from ._library import quick
from .errors import ArgumentError

__all__ = ["NetworkRequest"]


class NetworkRequest(NamedTuple):
    """A request of a sandbox to the network, or a tunnel."""
    #: "GET"…; "CONNECT" and "SOCKS": a tunnel
    method: str
    #: a name in lower case, or an address
    host: str
    port: int
    #: with the query, in which secrets are placeholders; None: a tunnel
    path: Optional[str]
    #: the names of the secrets that the proxy would put in
    secrets: Tuple[str, ...]


Decide = Callable[[NetworkRequest], Any]


class Listener:
    """The function of a run or session; requests find it as long as one of these has it."""

    def __init__(self, engine: "_engine.Engine", function: Decide, context: contextvars.Context):
        self.engine, self.function, self.context = engine, function, context
        self.number = next(_numbers)
        _listeners[self.number] = self

    def __enter__(self) -> "Listener":
        """Makes sessions and runs that are started within ask here."""
        quick.droste_on_network(self.engine.alive(), _on_request, self.number)
        return self

    def __exit__(self, *_: Any) -> None:
        quick.droste_on_network(self.engine.handle, _library.NetworkFn(), 0)

    def settle(self, address: int, function: Callable[[], Any]) -> None:
        """Calls `function`, and posts its decision to the engine's thread."""
        try:
            allow, reason = decision_of(function())
        except BaseException as e:
            allow, reason = False, "on_network failed: %s: %s" % (type(e).__name__, e)
        self.engine.post(lambda: answer(address, allow, reason))

    def ask(self, request: NetworkRequest, address: int) -> None:
        if not _tools.is_async(self.function):
            _engine.workers("models").submit(lambda: self.settle(
                address, lambda: self.context.copy().run(self.function, request)))
            return
        loop = self.engine.running_loop()
        if loop is not None:
            task = self.context.copy().run(loop.create_task, self.function(request))
            _tasks.add(task)
            task.add_done_callback(_tasks.discard)
            task.add_done_callback(lambda t: self.settle(address, t.result))
        else:
            future = _engine.helper().run(self.function(request), self.context.copy())
            future.add_done_callback(lambda f: self.settle(address, f.result))


_numbers = itertools.count(1)
_listeners: MutableMapping[int, Listener] = weakref.WeakValueDictionary()
_tasks = set()       # type: ignore   # the loop keeps weak references only


def decision_of(answer: Any) -> Tuple[bool, Optional[str]]:
    """(whether it is allowed, the reason or None) of what a function returned."""
    if answer is None or isinstance(answer, bool):
        return answer is not False, None
    if isinstance(answer, str):
        return False, answer
    raise TypeError("it must return None, True, False or a reason, not %r" % (answer,))


def answer(address: int, allow: bool, reason: Optional[str] = None) -> None:
    """Decides, in the engine's thread."""
    text = None if reason is None else reason.replace("\0", "").encode("utf-8", "replace")
    quick.droste_network_answer(address, allow, text)


def check(function: Optional[Decide]) -> Optional[Decide]:
    if function is not None and not callable(function):
        raise ArgumentError("on_network is a function of a NetworkRequest, not %r" % (function,))
    return function


def _read(address: int) -> NetworkRequest:
    r = _library.NetworkRequest.from_address(address)
    names = itertools.takewhile(lambda name: name is not None,
                                (r.secrets[i] for i in itertools.count()))
    return NetworkRequest(r.method.decode(), r.host.decode(), r.port,
                          None if r.path is None else r.path.decode("utf-8", "replace"),
                          tuple(name.decode() for name in names))


@_library.NetworkFn
def _on_request(number: int, address: int) -> None:
    try:
        found = _listeners.get(number)
        if found is None:
            answer(address, False, "the session of its function has ended")
        else:
            found.ask(_read(address), address)
    except BaseException as e:
        answer(address, False, "on_network failed: %s: %s" % (type(e).__name__, e))
