"""A `droste` of the library's for functions that need no session: the record, volumes."""
from __future__ import annotations

import ctypes
from typing import Any, Dict, List

from . import _library, _settings
from ._library import lib, quick
from .errors import check


class Handle:
    """Settings and errors; a context manager. `pending` is an exception that a callback raised."""

    def __init__(self, settings: Dict[str, Any]):
        self._pairs = _settings.pairs(settings)
        self.error = _library.Error()
        self.err = ctypes.byref(self.error)
        self.pending: List[BaseException] = []

    def __enter__(self) -> "Handle":
        handle = ctypes.c_void_p()
        check(lib.droste_new(ctypes.byref(handle), self.err), self.error)
        self.d = handle
        try:
            self.check(lib.droste_configure(self.d, None, self.err))
            for name, value in self._pairs:
                self.check(quick.droste_set(self.d, name.encode(), str(value).encode(), self.err))
        except BaseException:
            lib.droste_free(self.d)
            raise
        return self

    def __exit__(self, *error: Any) -> None:
        lib.droste_free(self.d)

    def check(self, rc: int) -> int:
        """Returns `rc`; raises what a callback raised, or the library's error."""
        if self.pending:
            raise self.pending.pop()
        return check(rc, self.error)
