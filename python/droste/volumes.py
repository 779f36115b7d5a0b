"""Volumes, as `droste volume` has them. docs/volumes.md has the details.

    droste.volumes.create("data")
    droste.volumes.put("data", "table.csv", "in/table.csv")
    print([entry.name for entry in droste.volumes.ls("data", depth=2)])

Keywords are settings: `env` ("daytona": the provider's volumes), `volume_root`, `volume_size`….
Files of the provider's volumes can be listed, read and copied. With `server` (and `api_key`), or
DROSTE_SERVER, the volumes are those of a server: a directory is copied file by file, without empty
directories.
"""
from __future__ import annotations

import contextlib
import ctypes
import os
from typing import Any, Callable, Iterator, List, NamedTuple, Optional, Tuple, Union

from . import _library
from ._handle import Handle
from ._library import lib
from ._remote import accepts_server
from .errors import ArgumentError
from .files import FileInfo, Path

__all__ = ["Usage", "Snapshot", "names", "create", "remove", "usage", "limit", "ls", "read", "get",
           "put", "delete", "snapshots", "snapshot", "restore", "remove_snapshot"]

ALONE = 1       # DROSTE_VOLUME_ALONE


class Usage(NamedTuple):
    """How much a volume holds, and may hold."""
    #: bytes on disk
    size: int
    #: files of all kinds, with directories
    files: int
    size_limit: int
    files_limit: int


class Snapshot(NamedTuple):
    """A complete copy of a volume."""
    name: str
    #: bytes on disk
    size: int
    #: files of all kinds, with directories
    files: int


@contextlib.contextmanager
def _volume(name: str, settings: Any, flags: int = 0) -> Iterator[Tuple[Handle, Any]]:
    with Handle(settings) as handle:
        volume = ctypes.c_void_p()
        handle.check(lib.droste_volume_open(handle.d, name.encode(), flags, ctypes.byref(volume),
                                            handle.err))
        try:
            yield handle, volume
        finally:
            lib.droste_volume_close(volume)


def _collecting(found: List[str]) -> Any:
    def add(arg: Any, name: bytes) -> int:
        found.append(name.decode())
        return 0
    return _library.NameFn(add)


@accepts_server
def names(**settings: Any) -> List[str]:
    """Returns the names of the volumes, in order."""
    found: List[str] = []
    with Handle(settings) as handle:
        handle.check(lib.droste_volume_names(handle.d, _collecting(found), None, handle.err))
    return found


@accepts_server
def create(name: str, **settings: Any) -> None:
    """Creates an empty volume; ArgumentError if it exists."""
    with Handle(settings) as handle:
        handle.check(lib.droste_volume_create(handle.d, name.encode(), handle.err))


@accepts_server
def remove(name: str, **settings: Any) -> None:
    """Removes a volume with its snapshots; ArgumentError while it is in use."""
    with Handle(settings) as handle:
        handle.check(lib.droste_volume_remove(handle.d, name.encode(), handle.err))


@accepts_server
def usage(name: str, **settings: Any) -> Usage:
    """Measures a volume."""
    with _volume(name, settings) as (handle, volume):
        found = _library.VolumeUsage()
        handle.check(lib.droste_volume_measure(volume, ctypes.byref(found), handle.err))
        return Usage(found.size, found.files, found.size_limit, found.files_limit)


def _limit_of(value: Union[None, int, str]) -> Optional[bytes]:
    return None if value is None else str(value).encode()


@accepts_server
def limit(name: str, *, size: Union[None, int, str] = None, files: Optional[int] = None,
          **settings: Any) -> Usage:
    """Sets the limits of a volume, `size` in bytes or as "2G"; returns its usage.

    None leaves a limit as it is.
    """
    with _volume(name, settings) as (handle, volume):
        handle.check(lib.droste_volume_limit(volume, _limit_of(size), _limit_of(files),
                                             handle.err))
    return usage(name, **settings)


@accepts_server
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


@accepts_server
def read(name: str, path: Path, **settings: Any) -> bytes:
    """Returns the contents of a file."""
    with _volume(name, settings) as (handle, volume):
        fd = os.memfd_create("droste-volume")
        with open(fd, "w+b") as file:
            handle.check(lib.droste_volume_read(volume, os.fsencode(path), fd, handle.err))
            file.seek(0)
            return file.read()


@accepts_server
def get(name: str, path: Path, local: Path, **settings: Any) -> int:
    """Copies a file or directory to `local`; returns the number of bytes. Links are left out."""
    with _volume(name, settings) as (handle, volume):
        count = _library.VolumeCount()
        handle.check(lib.droste_volume_get(volume, os.fsencode(path), os.fsencode(local),
                                           ctypes.byref(count), handle.err))
        return int(count.bytes)


@accepts_server
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


@accepts_server
def delete(name: str, path: Path, **settings: Any) -> None:
    """Removes a file, or a directory with its contents."""
    with _volume(name, settings) as (handle, volume):
        handle.check(lib.droste_volume_delete(volume, os.fsencode(path), handle.err))


# -- snapshots, which need the volume for themselves: ArgumentError while a session uses it

@accepts_server
def snapshots(name: str, **settings: Any) -> List[Snapshot]:
    """Returns the snapshots of a volume, in order of their names."""
    found: List[str] = []
    sizes: List[Snapshot] = []
    with _volume(name, settings) as (handle, volume):
        handle.check(lib.droste_volume_snapshots(volume, _collecting(found), None, handle.err))
        for one in found:
            measured = _library.VolumeUsage()
            handle.check(lib.droste_volume_snapshot_measure(volume, one.encode(),
                                                            ctypes.byref(measured), handle.err))
            sizes.append(Snapshot(one, measured.size, measured.files))
    return sizes


def _copy(function: Callable[..., int], name: str, which: str, settings: Any) -> int:
    with _volume(name, settings, ALONE) as (handle, volume):
        count = _library.VolumeCount()
        handle.check(function(volume, which.encode(), ctypes.byref(count), handle.err))
        return int(count.bytes)


@accepts_server
def snapshot(name: str, snapshot: str, **settings: Any) -> int:
    """Copies the volume to a new snapshot; returns the number of bytes.

    ArgumentError if there is a snapshot of this name.
    """
    return _copy(lib.droste_volume_snapshot, name, snapshot, settings)


@accepts_server
def restore(name: str, snapshot: str, **settings: Any) -> int:
    """Replaces the contents of the volume by those of a snapshot; returns the number of bytes."""
    return _copy(lib.droste_volume_restore, name, snapshot, settings)


@accepts_server
def remove_snapshot(name: str, snapshot: str, **settings: Any) -> None:
    """Removes a snapshot; the volume stays as it is."""
    with _volume(name, settings, ALONE) as (handle, volume):
        handle.check(lib.droste_volume_snapshot_remove(volume, snapshot.encode(), handle.err))
