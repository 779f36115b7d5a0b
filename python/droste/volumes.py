"""Volumes, as `droste volume` has them. docs/volumes.md has the details.

    droste.volumes.create("data")
    droste.volumes.put("data", "table.csv", "in/table.csv")
    print([entry.name for entry in droste.volumes.ls("data", depth=2)])

Keywords are settings: `env` ("daytona": the provider's volumes), `volume_root`, `volume_size`….
Files of the provider's volumes can be listed, read and copied.
"""
from __future__ import annotations

import contextlib
import ctypes
import os
from typing import Any, Iterator, List, NamedTuple, Tuple

from . import _library
from ._handle import Handle
from ._library import lib
from .errors import ArgumentError
from .files import FileInfo, Path

__all__ = ["Usage", "names", "create", "remove", "usage", "ls", "read", "get", "put", "delete"]


class Usage(NamedTuple):
    """How much a volume holds, and may hold."""
    #: bytes on disk
    size: int
    #: files of all kinds, with directories
    files: int
    size_limit: int
    files_limit: int


@contextlib.contextmanager
def _volume(name: str, settings: Any) -> Iterator[Tuple[Handle, Any]]:
    with Handle(settings) as handle:
        volume = ctypes.c_void_p()
        handle.check(lib.droste_volume_open(handle.d, name.encode(), 0, ctypes.byref(volume),
                                            handle.err))
        try:
            yield handle, volume
        finally:
            lib.droste_volume_close(volume)


def names(**settings: Any) -> List[str]:
    """Returns the names of the volumes, in order."""
    found: List[str] = []

    def add(arg: Any, name: bytes) -> int:
        found.append(name.decode())
        return 0
    with Handle(settings) as handle:
        handle.check(lib.droste_volume_names(handle.d, _library.NameFn(add), None, handle.err))
    return found


def create(name: str, **settings: Any) -> None:
    """Creates an empty volume; ArgumentError if it exists."""
    with Handle(settings) as handle:
        handle.check(lib.droste_volume_create(handle.d, name.encode(), handle.err))


def remove(name: str, **settings: Any) -> None:
    """Removes a volume with its snapshots; ArgumentError while it is in use."""
    with Handle(settings) as handle:
        handle.check(lib.droste_volume_remove(handle.d, name.encode(), handle.err))


def usage(name: str, **settings: Any) -> Usage:
    """Measures a volume."""
    with _volume(name, settings) as (handle, volume):
        found = _library.VolumeUsage()
        handle.check(lib.droste_volume_measure(volume, ctypes.byref(found), handle.err))
        return Usage(found.size, found.files, found.size_limit, found.files_limit)


def ls(name: str, path: Path = "", *, depth: int = 1, limit: int = 10000,
       **settings: Any) -> List[FileInfo]:
    """Lists a directory of a volume; ArgumentError if there are more than `limit` entries."""
    found: List[FileInfo] = []

    def add(arg: Any, entry: Any) -> int:
        e = entry.contents
        found.append(FileInfo(os.fsdecode(e.path), e.size, e.mode, e.mtime * 1000000000))
        return 0
    with _volume(name, settings) as (handle, volume):
        more = handle.check(lib.droste_volume_list(volume, os.fsencode(path), depth, limit,
                                                   _library.VolumeEntryFn(add), None, handle.err))
    if more:
        raise ArgumentError("the volume has more than %d entries there; raise `limit`" % limit)
    return found


def read(name: str, path: Path, **settings: Any) -> bytes:
    """Returns the contents of a file."""
    with _volume(name, settings) as (handle, volume):
        fd = os.memfd_create("droste-volume")
        with open(fd, "w+b") as file:
            handle.check(lib.droste_volume_read(volume, os.fsencode(path), fd, handle.err))
            file.seek(0)
            return file.read()


def get(name: str, path: Path, local: Path, **settings: Any) -> int:
    """Copies a file or directory to `local`; returns the number of bytes. Links are left out."""
    with _volume(name, settings) as (handle, volume):
        count = _library.VolumeCount()
        handle.check(lib.droste_volume_get(volume, os.fsencode(path), os.fsencode(local),
                                           ctypes.byref(count), handle.err))
        return int(count.bytes)


def put(name: str, local: Path, path: Path, **settings: Any) -> int:
    """Copies a file or directory into a volume; returns the number of bytes."""
    with _volume(name, settings) as (handle, volume):
        fd = os.open(local, os.O_RDONLY | os.O_CLOEXEC)
        try:
            count = _library.VolumeCount()
            handle.check(lib.droste_volume_put(volume, fd, os.fsencode(path), ctypes.byref(count),
                                               handle.err))
            return int(count.bytes)
        finally:
            os.close(fd)


def delete(name: str, path: Path, **settings: Any) -> None:
    """Removes a file, or a directory with its contents."""
    with _volume(name, settings) as (handle, volume):
        handle.check(lib.droste_volume_delete(volume, os.fsencode(path), handle.err))
