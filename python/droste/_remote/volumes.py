"""The volumes of a server: `droste.volumes` with `server=`."""
from __future__ import annotations

import io
import os
import stat
from typing import Any, BinaryIO, Callable, Dict, Iterator, List, Optional, Tuple

from ..errors import ArgumentError, UnsupportedError
from ..volumes import Snapshot, Usage
from .client import failure_of, PIECE, Refused, Server, server_at

MOST = 100000       # entries of a list
DEPTH = 10          # levels of one


def call(function: str, address: str, api_key: Optional[str], arguments: Tuple[Any, ...],
         settings: Dict[str, Any]) -> Any:
    """Does for the server at this address what the function of droste.volumes does here."""
    there = _FUNCTIONS.get(function)
    if there is None:
        raise UnsupportedError("the volumes of a server do not support %s: use it where the "
                               "server is" % function)
    try:
        return there(server_at(address, api_key), *arguments, **settings)
    except Refused as e:
        raise failure_of(e) from None


def _check(settings: Dict[str, Any]) -> None:
    for name in settings:
        raise UnsupportedError("%s is the server's for its volumes: leave it out" % name)


def _path(name: str, below: str = "") -> str:
    if "/" in name or name in ("", ".", ".."):
        raise ArgumentError("the volume name %r is not a name" % name)
    return "/v1/volumes/" + name + below


def _text(path: Any) -> str:
    text = os.fsdecode(path)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ArgumentError("paths of a server's volumes are UTF-8") from None
    return text or "."


def _names(server: Server, **settings: Any) -> List[str]:
    _check(settings)
    return [one["name"] for one in server.ask("GET", "/v1/volumes")["volumes"]]


def _create(server: Server, name: str, *, volume_size: Any = None, volume_files: Any = None,
            **settings: Any) -> None:
    _check(settings)
    limits = {"size_limit": volume_size, "files_limit": volume_files}
    for value in limits.values():
        if value is not None and not isinstance(value, int):
            raise UnsupportedError("limits of a server's volumes are numbers, not %r" % (value,))
    server.create("/v1/volumes", {"name": name, **{k: v for k, v in limits.items() if v}})


def _remove(server: Server, name: str, **settings: Any) -> None:
    _check(settings)
    server.ask("DELETE", _path(name))


def _usage(server: Server, name: str, **settings: Any) -> Any:
    _check(settings)
    found = server.ask("GET", _path(name))
    return Usage(*(found[field] for field in Usage._fields))


def _list(server: Server, name: str, path: str, depth: int, limit: int) -> Tuple[List[Any], bool]:
    from ..files import FileInfo
    found = server.ask("GET", _path(name, "/directory"),
                       query={"path": path, "depth": depth, "limit": min(limit, MOST)})
    return [FileInfo(e["name"], e["size"], e["st_mode"], e["modified_ms"] * 1000000)
            for e in found["entries"]], found["more"]


def _ls(server: Server, name: str, path: Any = "", *, depth: int = 1, limit: int = 10000,
        **settings: Any) -> List[Any]:
    _check(settings)
    found, more = _list(server, name, _text(path), depth, limit)
    if more:
        raise ArgumentError("the volume has more than %d entries there; raise `limit`" % limit)
    return found


def _fetch(server: Server, name: str, path: str, out: BinaryIO) -> int:
    answer = server.begin("GET", _path(name, "/files"), query={"path": path})
    count = 0
    try:
        while True:
            piece = answer.read(PIECE)
            if not piece:
                return count
            out.write(piece)
            count += len(piece)
    finally:
        answer.close()


def _read(server: Server, name: str, path: Any, **settings: Any) -> bytes:
    _check(settings)
    out = io.BytesIO()
    _fetch(server, name, _text(path), out)
    return out.getvalue()


def _fetch_file(server: Server, name: str, path: str, local: str) -> int:
    """Copies a file; `local` is complete or unchanged."""
    draft = "%s.part-%s" % (local, os.urandom(8).hex())
    try:
        with open(draft, "xb") as out:
            count = _fetch(server, name, path, out)
        os.replace(draft, local)
        return count
    finally:
        if os.path.lexists(draft):
            os.unlink(draft)


def _is_directory(server: Server, name: str, path: str) -> bool:
    if path.strip("/") in ("", ".", "data"):
        return True
    above, _, last = path.rstrip("/").rpartition("/")
    entries, _ = _list(server, name, above or ".", 1, MOST)
    return any(e.name == last and stat.S_ISDIR(e.mode) for e in entries)


def _get(server: Server, name: str, path: Any, local: Any, **settings: Any) -> int:
    _check(settings)
    path, local = _text(path), os.fsdecode(local)
    if not _is_directory(server, name, path):
        return _fetch_file(server, name, path, local)
    os.mkdir(local)
    count, below = 0, [("", path)]
    for inner, there in below:      # which grows
        entries, more = _list(server, name, there, 1, MOST)
        if more:
            raise ArgumentError("the directory %s has more than %d entries" % (there, MOST))
        for e in entries:
            inside = os.path.join(inner, e.name)
            if stat.S_ISDIR(e.mode):
                os.mkdir(os.path.join(local, inside))
                below.append((inside, there + "/" + e.name))
            elif stat.S_ISREG(e.mode):
                count += _fetch_file(server, name, there + "/" + e.name,
                                     os.path.join(local, inside))
    return count


def _files_of(local: str) -> Iterator[Tuple[str, str]]:
    """Yields the regular files below a directory, and their paths in it."""
    for directory, _, files in os.walk(local):
        for file in sorted(files):
            whole = os.path.join(directory, file)
            if stat.S_ISREG(os.lstat(whole).st_mode):
                yield whole, os.path.relpath(whole, local).replace(os.sep, "/")


def _send_file(server: Server, name: str, local: str, path: str) -> int:
    with open(local, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        answer = server.begin("PUT", _path(name, "/files"), file, query={"path": path},
                              kind="application/octet-stream",
                              headers={"Content-Length": str(size)})
        answer.read()
        answer.close()
        return size


def _put(server: Server, name: str, local: Any, path: Any, **settings: Any) -> int:
    _check(settings)
    local, path = os.fsdecode(local), _text(path)
    if not os.path.isdir(local):
        return _send_file(server, name, local, path)
    return sum(_send_file(server, name, whole, _text(path + "/" + inside))
               for whole, inside in _files_of(local))


def _delete(server: Server, name: str, path: Any, **settings: Any) -> None:
    _check(settings)
    server.ask("DELETE", _path(name, "/files"), query={"path": _text(path)})


def _bytes_of(value: Any) -> int:
    """A size as the settings write it: 2147483648, "2G"."""
    text = str(value).strip()
    scale = "KMGT".find(text[-1:].upper()) + 1 if text[-1:] else 0
    try:
        return int(text[:-1] if scale else text) << 10 * scale
    except ValueError:
        raise ArgumentError("%r is not a size, such as 2147483648 or \"2G\"" % (value,)) from None


def _limit(server: Server, name: str, *, size: Any = None, files: Optional[int] = None,
           **settings: Any) -> Usage:
    _check(settings)
    limits = {"size_limit": None if size is None else _bytes_of(size), "files_limit": files}
    found = server.ask("PATCH", _path(name), {k: v for k, v in limits.items() if v is not None})
    return Usage(*(found[field] for field in Usage._fields))


def _snapshots(server: Server, name: str, **settings: Any) -> List[Snapshot]:
    _check(settings)
    found = server.ask("GET", _path(name, "/snapshots"))["snapshots"]
    return [Snapshot(one["name"], one["size"], one["files"]) for one in found]


def _snapshot(server: Server, name: str, snapshot: str, **settings: Any) -> int:
    _check(settings)
    return int(server.ask("POST", _path(name, "/snapshots"), {"snapshot": snapshot})["bytes"])


def _restore(server: Server, name: str, snapshot: str, **settings: Any) -> int:
    _check(settings)
    return int(server.ask("POST", _path(name, "/restore"), {"snapshot": snapshot})["bytes"])


def _remove_snapshot(server: Server, name: str, snapshot: str, **settings: Any) -> None:
    _check(settings)
    server.ask("DELETE", _path(name, "/snapshots"), query={"snapshot": snapshot})


_FUNCTIONS: Dict[str, Callable[..., Any]] = {
    "names": _names, "create": _create, "remove": _remove, "usage": _usage, "ls": _ls,
    "read": _read, "get": _get, "put": _put, "delete": _delete, "limit": _limit,
    "snapshots": _snapshots, "snapshot": _snapshot, "restore": _restore,
    "remove_snapshot": _remove_snapshot}
