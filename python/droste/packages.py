"""Sets of Python packages, as `droste packages` has them. docs/packages.md has the details.

    print(droste.packages.build(packages=["numpy", "pandas>=2"]))
    for one in droste.packages.ls():
        print(one.id, one.size, one.packages)
    droste.packages.gc(7 * 24 * 3600)

They are of this machine, for local sandboxes: `Interpreter(packages=["numpy"])`. Keywords of
`build` are settings: `packages`, `requirements`, `find_links`, `python`…
"""
from __future__ import annotations

import ctypes
import json
import os
from typing import Any, List, NamedTuple

from . import _library
from ._handle import Handle
from ._library import lib

__all__ = ["PackageSet", "Removed", "ls", "build", "remove", "gc"]


class PackageSet(NamedTuple):
    """A set of packages on disk. Times are seconds since 1970."""
    id: str
    #: the directory of its packages
    path: str
    #: what is known about its interpreter
    python: str
    #: "NAME==VERSION"
    packages: List[str]
    #: bytes on disk
    size: int
    #: files of all kinds, with directories
    files: int
    made: int
    used: int
    in_use: bool
    damaged: bool


class Removed(NamedTuple):
    """What `gc` has removed."""
    sets: int
    bytes: int


def ls() -> List[PackageSet]:
    """Lists the sets, the latest used first."""
    found: List[PackageSet] = []
    with Handle({}) as handle:
        def add(arg: Any, address: Any) -> int:
            try:
                s = address.contents
                found.append(PackageSet(s.id.decode(), os.fsdecode(s.path), s.python.decode(),
                                        json.loads(s.packages), s.bytes, s.files, s.made, s.used,
                                        bool(s.in_use), bool(s.damaged)))
                return 0
            except BaseException as e:
                handle.pending.append(e)
                return -1
        handle.check(lib.droste_packages_list(handle.d, _library.PackagesFn(add), None, handle.err))
    return found


def build(*, again: bool = False, **settings: Any) -> str:
    """Builds the set of the settings unless it exists; returns the directory of its packages.

    `again` resolves the packages once more, so that newer versions are found.
    """
    with Handle(settings) as handle:
        path = ctypes.c_char_p()
        handle.check(lib.droste_packages_build(handle.d, again, ctypes.byref(path), handle.err))
        return os.fsdecode(path.value or b"")


def remove(id: str) -> None:
    """Removes a set, by its id or the beginning of it; ArgumentError while it is in use."""
    with Handle({}) as handle:
        handle.check(lib.droste_packages_remove(handle.d, id.encode(), handle.err))


def gc(older: float = 30 * 24 * 3600) -> Removed:
    """Removes sets that nothing has used for `older` seconds, and damaged ones."""
    with Handle({}) as handle:
        count, size = ctypes.c_uint(), ctypes.c_ulonglong()
        handle.check(lib.droste_packages_gc(handle.d, older, ctypes.byref(count),
                                            ctypes.byref(size), handle.err))
        return Removed(count.value, size.value)
