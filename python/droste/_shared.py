"""Sessions for synchronous callers that share one engine.

An engine without asyncio serves one session at a time, because tools run in the thread that waits.
A hundred open sessions would need a hundred engines, each with its zygotes. If tools run in threads
of their own, all sessions can use one event loop in a thread of Droste, as asyncio sessions do.
"""
from __future__ import annotations

import contextvars
import threading
from typing import Any, Callable, Mapping, MutableMapping, Optional

from . import _engine, _reentry
from .errors import Error
from .interpreter import Interpreter
from .result import Result


class Shared:
    """An `Interpreter` on Droste's own event loop, with blocking methods for any thread."""

    def __init__(self, kind: str, **settings: Any):
        self._session = Interpreter(**settings)
        self._session._kind = kind
        self._session._typed = False
        self._lock = _reentry.Turn(self)
        _engine.holders.add(self)

    @property
    def _id(self) -> int:
        return self._session._id

    @property
    def alive(self) -> bool:
        return self._session.alive

    @property
    def tools(self) -> MutableMapping[str, Any]:
        return self._session.tools

    @tools.setter
    def tools(self, tools: MutableMapping[str, Any]) -> None:
        self._session.tools = tools

    @property
    def output_fields(self) -> Any:
        return self._session.output_fields

    @output_fields.setter
    def output_fields(self, fields: Any) -> None:
        self._session.output_fields = fields

    def __repr__(self) -> str:
        return repr(self._session)

    def start(self) -> None:
        self._run(self._session.astart)

    def execute(self, code: str, variables: Optional[Mapping[str, Any]] = None) -> Result:
        return self._run(self._session.aexecute, code, variables)

    def shutdown(self) -> None:
        self._run(self._session.ashutdown)

    def _refuse_what_a_tool_waits_for(self, holder: Optional[int] = None) -> None:
        self._session._refuse_what_a_tool_waits_for(holder)

    def _run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        helper = _engine.sessions()
        if threading.get_ident() == helper.thread.ident:
            raise Error("the session is busy: a callback of its engine (on_output) cannot use it")
        self._session._refuse_own_tools()
        with self._lock:
            future = helper.run(function(*arguments), contextvars.copy_context())
            try:
                return future.result()
            except BaseException:
                future.cancel()     # Ctrl-C: interrupt the cell
                raise
