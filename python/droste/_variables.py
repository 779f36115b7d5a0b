"""The variables of a session, and the steps that bind them in its sandbox."""
from __future__ import annotations

import functools
from asyncio import _get_running_loop  # type: ignore
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

from . import _typed
from ._library import lib, quick
from ._operations import Operations
from ._values import check_name, exact, literal

ECHO, RESULTS, PRINT, VALUES, ONLY_VALUES = 1, 2, 4, 8, 16     # droste.h
LARGE = 16384           # from this length on, values are sent separately, not as literals


class Variables(Operations):
    """Operations of a session that bind variables before a cell runs."""
    #: whether values keep types that JSON does not have; else they are lists, dicts and text
    _typed = True
    #: how cells report; with PRINT, display() also prints, for callers that only read the output
    _flags = ECHO | RESULTS

    def __init__(self) -> None:
        super().__init__()
        self._pairs: List[Tuple[str, Any]] = []     # the settings
        self._sent: Dict[str, Any] = {}             # large texts that the guest has, by name

    def _forget_sent(self) -> None:
        self._sent.clear()

    def _start_cell(self, code: bytes, timeout: float, flags: Optional[int] = None) -> int:
        return quick.droste_session_exec_start(
            self._session, code, len(code), self._flags if flags is None else flags, timeout,
            self._err)

    def _set_step(self, name: str, value: Any, at: Optional[str] = None) -> Callable[[], int]:
        """Returns the step that binds a value; raises ArgumentError with a path from `at`."""
        kind, data = _typed.encode_typed(value if self._typed else exact(value, at or name),
                                         at or name)
        if _get_running_loop() is not None:     # the step comes later; the value may change
            data = [b"".join(data)]
        return functools.partial(self._start_set, name.encode(), kind, data)

    def _start_set(self, name: bytes, kind: bytes, data: List[Any]) -> int:
        pieces, alive = _typed.pieces_of(data)
        started = lib.droste_session_set_pieces_start(self._session, name, kind, pieces, len(data),
                                                      self._err)
        del alive
        return started

    def _variable_steps(self, variables: Mapping[str, Any]) -> List[Callable[[], int]]:
        """Returns the steps that bind variables.

        Large texts are sent once, under a separate name, since the code cannot change them. One
        cell binds all small values of JSON's types; others are sent each time.
        """
        steps: List[Callable[[], int]] = []
        lines: List[str] = []
        for name, value in variables.items():
            check_name(name)
            if isinstance(value, memoryview) or isinstance(value, bytearray) and not self._typed:
                value = bytes(value)
            if ("restore-name", name) in self._pairs:       # cells cannot bind this name
                steps.append(self._set_step(name, value))
                continue
            if isinstance(value, (str, bytes)) and len(value) >= LARGE:
                if self._sent.get(name) != (type(value), value):
                    steps.append(self._set_step("_input_" + name, value, name))
                    self._sent[name] = type(value), value
                lines.append("%s = _input_%s" % (name, name))
                continue
            if type(value) in (str, bytes, int, float, bool, type(None)):
                lines.append("%s = %s" % (name, literal(value)))
                continue
            kind, data = _typed.encode_typed(value if self._typed else exact(value, name), name)
            small = kind == b"json" and sum(map(len, data)) < LARGE
            text = literal(value) if small else None
            if text is not None:
                lines.append("%s = %s" % (name, text))
                continue
            if _get_running_loop() is not None:
                data = [b"".join(data)]
            steps.append(functools.partial(self._start_set, name.encode(), kind, data))
        if lines:
            code = "\n".join(lines).encode("utf-8", "replace")
            steps.append(functools.partial(self._start_cell, code, -1.0))
        return steps
