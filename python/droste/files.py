"""`Interpreter.files` and `Interpreter.afiles`: the files of an open session's sandbox.

    with droste.Interpreter() as interp:
        interp.files.write("data.csv", "a,b\\n1,2\\n")
        interp.execute("import shutil; shutil.copy('data.csv', 'copy.csv')")
        print([entry.name for entry in interp.files.list()], interp.files.read("copy.csv"))

A process beside the session's serves the files, so no call waits for a running cell: use another
thread, or `await interp.afiles.read(...)`. Paths are resolved in the sandbox with the code's
rights; relative ones begin where cells start. docs/files.md has the details.

Each operation is a generator of requests (`Steps`); `Files` blocks for the answers, and
`AsyncFiles` awaits them.
"""
from __future__ import annotations

import ctypes
import io
import itertools
import os
import stat as _stat
from typing import Any, AsyncIterator, Callable, Iterator, List, NamedTuple, Optional, Union

from . import _library, errors
from ._library import quick
from ._requests import Awaiting, Blocking, end, Request, Steps


__all__ = ["Files", "AsyncFiles", "FileInfo"]

PIECE = 1 << 20             # DROSTE_FILE_PIECE
FOLLOW, PARENTS, RECURSIVE = 1, 2, 4
READ_MOST = 256 << 20       # bytes that read() returns unless `limit` says otherwise
Path = Union[str, bytes, "os.PathLike[str]"]
Data = Union[bytes, bytearray, memoryview, str]


class FileInfo(NamedTuple):
    """A file, directory or link in a sandbox."""
    #: the path below the directory that was listed; invalid UTF-8 as with os.fsdecode()
    name: str
    #: bytes
    size: int
    #: type and permissions, as in os.stat_result.st_mode
    mode: int
    #: nanoseconds since 1970
    mtime_ns: int
    #: ids of its owner, and their names in the sandbox; None: it has none
    uid: int = 0
    gid: int = 0
    user: Optional[str] = None
    group: Optional[str] = None
    #: of a link: the path that it leads to, without links
    target: Optional[str] = None
    #: of a link: type and permissions of what is there; 0: nothing
    target_mode: int = 0

    @property
    def is_dir(self) -> bool:
        """Whether it is a directory."""
        return _stat.S_ISDIR(self.mode)

    @property
    def is_file(self) -> bool:
        """Whether it is a regular file."""
        return _stat.S_ISREG(self.mode)

    @property
    def is_link(self) -> bool:
        """Whether it is a symbolic link."""
        return _stat.S_ISLNK(self.mode)

    @property
    def mtime(self) -> float:
        """Seconds since 1970."""
        return self.mtime_ns / 1e9


class _Answer(NamedTuple):
    handle: int
    data: bytes
    entries: List[FileInfo]
    more: bool


def _bytes_of(path: Path) -> bytes:
    data = os.fsencode(path)
    if not data or b"\0" in data:
        raise ValueError("a path is empty, or has a NUL")
    return data


def _failure(error: Any, path: Optional[bytes]) -> Exception:
    """Creates the exception that pathlib would raise, or the library's own."""
    if error.sys and path is not None:
        text = error.text.decode("utf-8", "replace")
        reason = text.partition("in the sandbox: ")[2] or text
        return OSError(error.sys, reason, os.fsdecode(path))
    return errors.of(error)


def _info_of(e: Any) -> FileInfo:
    user, group, target = (os.fsdecode(text) or None for text in (e.user, e.group, e.target))
    return FileInfo(os.fsdecode(e.name), e.size, e.mode, e.mtime_ns, e.uid, e.gid, user, group,
                    target, e.target_mode)


def _answer_of(reply: Any) -> _Answer:
    entries = [_info_of(e) for e in itertools.islice(reply.entries, reply.count)
               ] if reply.count else []
    return _Answer(reply.handle, _library.bytes_at(reply.data, reply.len) if reply.len else b"",
                   entries, bool(reply.more))


class _Request(Request):
    """A request for a file."""

    def __init__(self, op: str, path: Optional[bytes] = None, **fields: Any):
        super().__init__()
        self.path = path
        self.fields = dict(fields, op=op.encode(), path=path)
        self.opens = op == "open"

    def send(self, session: Any, error: Any) -> int:
        made = _library.FileRequest(**self.fields)
        return quick.droste_file_start(session, ctypes.byref(made), _on_answer, self.id, error)

    def failure_of(self, error: Any) -> Exception:
        return _failure(error, self.path)


@_library.FileFn
def _on_answer(arg: int, reply: Any, error: Any) -> None:
    end(arg, reply, error, _answer_of)


# -- the operations, as generators of requests

def _stat_of(path: Path, follow: bool = True) -> Steps:
    answer = yield _Request("stat", _bytes_of(path), flags=FOLLOW if follow else 0)
    return answer.entries[0]._replace(name=os.path.basename(os.fsdecode(path)))


def _exists(path: Path) -> Steps:
    try:
        yield from _stat_of(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def _list(path: Path, depth: int, limit: int, op: str = "list") -> Steps:
    answer = yield _Request(op, _bytes_of(path), depth=depth, most=limit)
    if answer.more:
        raise errors.ArgumentError(
            "%s has more than %d entries; raise `limit` (100,000 at most), or "
            "list parts of it" % (os.fsdecode(path), len(answer.entries)))
    return answer.entries


def _closing(handle: int, steps: Steps) -> Steps:
    """Closes the file after `steps`, whose exception counts more than that of closing."""
    try:
        found = yield from steps
    except GeneratorExit:
        raise
    except BaseException:
        try:
            yield from _close(handle)
        except (OSError, errors.Error):
            pass
        raise
    yield from _close(handle)
    return found


def _piece(handle: int, offset: int, end: Optional[int]) -> Steps:
    """Reads what follows `offset`; returns b"" at the end."""
    if end is not None and offset >= end:
        return b""
    length = PIECE if end is None else min(PIECE, end - offset)
    answer = yield _Request("read", handle=handle, offset=offset, length=length)
    return answer.data


def _pieces(handle: int, offset: int, end: Optional[int], take: Callable[[bytes], Any]) -> Steps:
    piece = yield from _piece(handle, offset, end)
    while piece:
        take(piece)
        offset += len(piece)
        piece = yield from _piece(handle, offset, end)


def _end_of(info: FileInfo, offset: int, length: Optional[int]) -> Optional[int]:
    """Returns where reading ends: a file that grows is read up to the size that it had.

    None for a file in /proc, which has the size 0 and contents.
    """
    end = info.size or None
    if length is None:
        return end
    return offset + length if end is None else min(end, offset + length)


def _open_range(path: Path, offset: int, length: Optional[int]) -> Steps:
    """Opens a file to read. Returns its handle, and where reading ends."""
    answer = yield _Request("open", _bytes_of(path), mode=b"r")
    return answer.handle, _end_of(answer.entries[0], offset, length)


def _close(handle: int) -> Steps:
    yield _Request("close", handle=handle)


def _read_into(path: Path, offset: int, length: Optional[int], limit: int,
               take: Callable[[bytes], Any]) -> Steps:
    if offset < 0 or (length is not None and length < 0):
        raise errors.ArgumentError("offset and length must not be negative")
    handle, end = yield from _open_range(path, offset, length)
    count = 0

    def counted(piece: bytes) -> None:
        nonlocal count
        count += len(piece)
        if max(count, (end or 0) - offset) > limit:
            raise errors.ArgumentError("%s has more than %d bytes; raise `limit`, read a range, or "
                                       "use download()" % (os.fsdecode(path), limit))
        take(piece)

    yield from _closing(handle, _pieces(handle, offset, end, counted))
    return count


def _read(path: Path, offset: int, length: Optional[int], limit: int) -> Steps:
    found = bytearray()
    yield from _read_into(path, offset, length, limit, found.extend)
    return bytes(found)


def _open_to_write(path: Path, mode: str) -> Steps:
    answer = yield _Request("open", _bytes_of(path), mode=mode.encode())
    return answer.handle


def _put(handle: int, done: int, piece: Any, mode: str) -> Steps:
    """Writes a piece after `done` bytes; returns their number with it."""
    view = memoryview(piece)
    for at in range(0, len(view), PIECE):
        part = bytes(view[at:at + PIECE])
        yield _Request("write", handle=handle, offset=-1 if mode == "a" else done, data=part,
                       len=len(part))
        done += len(part)
    return done


def _write(path: Path, pieces: Iterator[Any], mode: str) -> Steps:
    handle = yield from _open_to_write(path, mode)

    def steps() -> Steps:
        done = 0
        for piece in pieces:
            done = yield from _put(handle, done, piece, mode)
        return done
    return (yield from _closing(handle, steps()))


def _mode(append: bool, exclusive: bool) -> str:
    if append and exclusive:
        raise errors.ArgumentError("append and exclusive exclude each other")
    return "a" if append else "x" if exclusive else "w"


def _write_data(path: Path, data: Data, append: bool, exclusive: bool) -> Steps:
    content = data.encode() if isinstance(data, str) else data
    return (yield from _write(path, iter([content]), _mode(append, exclusive)))


def _remove(path: Path, recursive: bool, missing_ok: bool) -> Steps:
    try:
        yield _Request("remove", _bytes_of(path), flags=RECURSIVE if recursive else 0)
    except FileNotFoundError:
        if not missing_ok:
            raise


def _move(source: Path, target: Path) -> Steps:
    yield _Request("rename", _bytes_of(source), to=_bytes_of(target))


def _make_dir(path: Path, parents: bool) -> Steps:
    yield _Request("mkdir", _bytes_of(path), flags=PARENTS if parents else 0)


def _file_pieces(file: Any) -> Iterator[bytes]:
    return iter(lambda: file.read(PIECE), b"")


def _source_of(pieces: Any) -> Iterator[Any]:
    return _file_pieces(pieces) if isinstance(pieces, io.IOBase) else iter(pieces)


def _upload(local: Path, path: Path) -> Steps:
    if not os.path.isdir(local):
        with open(local, "rb") as file:
            return (yield from _write(path, _file_pieces(file), "w"))
    total = 0
    yield from _make_dir(path, True)
    for directory, names, files in os.walk(os.fsencode(local)):
        below = os.path.relpath(directory, os.fsencode(local))
        far = os.path.normpath(os.path.join(_bytes_of(path), below))
        for name in sorted(names):
            yield from _make_dir(os.path.join(far, name), True)
        for name in sorted(files):
            near = os.path.join(directory, name)
            if os.path.isfile(near):
                with open(near, "rb") as file:
                    total += yield from _write(os.path.join(far, name), _file_pieces(file), "w")
    return total


def _download_file(path: Path, local: Any, limit: int) -> Steps:
    """Writes beside the target and renames, so that the target is complete or unchanged."""
    target = os.fsencode(local)
    beside = b"%s.%s.part" % (target, os.urandom(4).hex().encode())
    try:
        with open(beside, "xb") as file:
            count = yield from _read_into(path, 0, None, limit, file.write)
        os.replace(beside, target)
        return count
    except BaseException:
        try:
            os.unlink(beside)
        except OSError:
            pass
        raise


def _download(path: Path, local: Path, limit: int) -> Steps:
    info = yield from _stat_of(path)
    if not info.is_dir:
        return (yield from _download_file(path, local, limit))
    total = 0
    os.makedirs(local, exist_ok=True)
    for entry in (yield from _list(path, 64, 100000)):
        near = os.path.join(os.fsencode(local), os.fsencode(entry.name))
        if entry.is_dir:
            os.makedirs(near, exist_ok=True)
        elif entry.is_file:
            far = os.path.join(_bytes_of(path), os.fsencode(entry.name))
            total += yield from _download_file(far, near, limit - total)
    return total


class Files(Blocking):
    """The files of a session, with calls that block. Wrong paths raise as in pathlib."""

    def read(self, path: Path, *, offset: int = 0, length: Optional[int] = None,
             limit: int = READ_MOST) -> bytes:
        """Returns a file's contents, or `length` bytes from `offset`.

        Raises ArgumentError if that is more than `limit` bytes. A file that grows meanwhile is read
        up to the size that it had.
        """
        return self._do(_read(path, offset, length, limit))

    def read_text(self, path: Path, encoding: str = "utf-8", errors: str = "strict", *,
                  limit: int = READ_MOST) -> str:
        """Returns a file's contents as text."""
        return self.read(path, limit=limit).decode(encoding, errors)

    def write(self, path: Path, data: Data, *, append: bool = False,
              exclusive: bool = False) -> int:
        """Creates a file or replaces its contents; text becomes UTF-8. Returns the bytes' number.

        With `append`, adds to it. With `exclusive`, raises FileExistsError if it exists.
        """
        return self._do(_write_data(path, data, append, exclusive))

    def stream(self, path: Path, *, offset: int = 0,
               length: Optional[int] = None) -> Iterator[bytes]:
        """Yields the contents in pieces, for files that do not fit in memory."""
        handle, end = self._do(_open_range(path, offset, length))
        try:
            while True:
                piece = self._do(_piece(handle, offset, end))
                if not piece:
                    return
                offset += len(piece)
                yield piece
        finally:
            if self._owner._session is not None:
                self._do(_close(handle))

    def write_stream(self, path: Path, pieces: Any, *, append: bool = False) -> int:
        """Writes what an iterable of bytes, or an open binary file, yields."""
        return self._do(_write(path, _source_of(pieces), _mode(append, False)))

    def stat(self, path: Path, *, follow: bool = True) -> FileInfo:
        """Describes a file or directory; without `follow`, a link itself."""
        return self._do(_stat_of(path, follow))

    def exists(self, path: Path) -> bool:
        """Whether there is a file or directory; False for a broken link."""
        return self._do(_exists(path))

    def list(self, path: Path = ".", *, depth: int = 1, limit: int = 10000) -> List[FileInfo]:
        """Lists a directory, in order, and `depth` - 1 levels of directories in it.

        Links are not followed. Raises ArgumentError if there are more than `limit` entries.
        """
        return self._do(_list(path, depth, limit))

    def glob(self, pattern: Path, *, limit: int = 10000) -> "List[FileInfo]":
        """Lists the regular files that match a pattern; `**` stands for any directories."""
        return self._do(_list(pattern, 1, limit, "glob"))

    def remove(self, path: Path, *, recursive: bool = False, missing_ok: bool = False) -> None:
        """Removes a file, a link or an empty directory; with `recursive`, its contents, too."""
        self._do(_remove(path, recursive, missing_ok))

    def move(self, source: Path, target: Path) -> None:
        """Renames a file or directory; replaces a file that has the new name."""
        self._do(_move(source, target))

    def make_dir(self, path: Path, *, parents: bool = True) -> None:
        """Creates a directory; with `parents`, those above, and it may exist."""
        self._do(_make_dir(path, parents))

    def upload(self, local: Path, path: Path) -> int:
        """Copies a file or directory of this machine to `path`. Returns the number of bytes.

        In a directory, links to directories are left out.
        """
        return self._do(_upload(local, path))

    def download(self, path: Path, local: Path, *, limit: int = 1 << 40) -> int:
        """Copies a file or directory to `local` on this machine. Returns the number of bytes.

        A file there is complete or unchanged. In a directory, only regular files and directories
        are copied, with this program's usual permissions.
        """
        return self._do(_download(path, local, limit))


class AsyncFiles(Awaiting):
    """The same as coroutines, for a session on this event loop."""

    async def read(self, path: Path, *, offset: int = 0, length: Optional[int] = None,
                   limit: int = READ_MOST) -> bytes:
        """As `Files.read`."""
        return await self._do(_read(path, offset, length, limit))

    async def read_text(self, path: Path, encoding: str = "utf-8", errors: str = "strict", *,
                        limit: int = READ_MOST) -> str:
        """As `Files.read_text`."""
        return (await self.read(path, limit=limit)).decode(encoding, errors)

    async def write(self, path: Path, data: Data, *, append: bool = False,
                    exclusive: bool = False) -> int:
        """As `Files.write`."""
        return await self._do(_write_data(path, data, append, exclusive))

    async def stream(self, path: Path, *, offset: int = 0,
                     length: Optional[int] = None) -> AsyncIterator[bytes]:
        """As `Files.stream`."""
        handle, end = await self._do(_open_range(path, offset, length))
        try:
            while True:
                piece = await self._do(_piece(handle, offset, end))
                if not piece:
                    return
                offset += len(piece)
                yield piece
        finally:
            if self._owner._session is not None:
                await self._do(_close(handle))

    async def write_stream(self, path: Path, pieces: Any, *, append: bool = False) -> int:
        """As `Files.write_stream`; the iterable may be asynchronous."""
        mode = _mode(append, False)
        if not hasattr(pieces, "__aiter__"):
            return await self._do(_write(path, _source_of(pieces), mode))
        handle, done = await self._do(_open_to_write(path, mode)), 0
        try:
            async for piece in pieces:
                done = await self._do(_put(handle, done, piece, mode))
        finally:
            if self._owner._session is not None:
                await self._do(_close(handle))
        return done

    async def stat(self, path: Path, *, follow: bool = True) -> FileInfo:
        """As `Files.stat`."""
        return await self._do(_stat_of(path, follow))

    async def exists(self, path: Path) -> bool:
        """As `Files.exists`."""
        return await self._do(_exists(path))

    async def list(self, path: Path = ".", *, depth: int = 1, limit: int = 10000) -> List[FileInfo]:
        """As `Files.list`."""
        return await self._do(_list(path, depth, limit))

    async def glob(self, pattern: Path, *, limit: int = 10000) -> "List[FileInfo]":
        """As `Files.glob`."""
        return await self._do(_list(pattern, 1, limit, "glob"))

    async def remove(self, path: Path, *, recursive: bool = False,
                     missing_ok: bool = False) -> None:
        """As `Files.remove`."""
        await self._do(_remove(path, recursive, missing_ok))

    async def move(self, source: Path, target: Path) -> None:
        """As `Files.move`."""
        await self._do(_move(source, target))

    async def make_dir(self, path: Path, *, parents: bool = True) -> None:
        """As `Files.make_dir`."""
        await self._do(_make_dir(path, parents))

    async def upload(self, local: Path, path: Path) -> int:
        """As `Files.upload`."""
        return await self._do(_upload(local, path))

    async def download(self, path: Path, local: Path, *, limit: int = 1 << 40) -> int:
        """As `Files.download`."""
        return await self._do(_download(path, local, limit))
