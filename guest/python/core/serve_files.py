"""Serves files to the host, in a process beside the session's: cells do not delay it.

The process has the session's files, user and limits, so a path means what it means to the code, and
needs no check here. What could make a request wait does not: a file is opened without waiting, and
used only if it is a regular one. src/session/files.c is the other side.
"""
from __future__ import annotations

import errno
import os
import stat
import struct
from typing import TYPE_CHECKING, Iterator

from .frames import FILED
from .state import state
from droste._encoding.json_text import write_json

if TYPE_CHECKING:
    from .aliases import Blob, Head

# mode, length of the name, size, nanoseconds since 1970, ids of user and group, mode of a link's
# target, lengths of target, user, group and attributes; the name and these follow
ENTRY = struct.Struct("<IIQqIIIIIII")
NOT_A_FILE = 4090       # instead of an errno: a FIFO, socket or device
HANDLES = 64            # open at once
ANSWER = 4 << 20        # bytes of a listing
READ_MOST = 4 << 20     # bytes of a read
PATH_MOST = 4096        # bytes of a link's target
ATTRIBUTES_MOST = 8192  # bytes of a file's attributes
PATIENT = os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
OPEN_FLAGS = {"r": os.O_RDONLY, "w": os.O_WRONLY | os.O_CREAT,
              "x": os.O_WRONLY | os.O_CREAT | os.O_EXCL,
              "a": os.O_WRONLY | os.O_CREAT | os.O_APPEND}


known_names: dict[tuple[str, int], bytes] = {}


def name_of_id(kind: str, number: int) -> bytes:
    """Returns the name of a user ("pw") or group ("gr"); b"" if it has none."""
    if (kind, number) not in known_names:
        if len(known_names) > 1000:
            known_names.clear()
        try:
            import grp
            import pwd
            name = (pwd.getpwuid(number).pw_name if kind == "pw"
                    else grp.getgrgid(number).gr_name)
            known_names[kind, number] = os.fsencode(name)[:256]
        except (KeyError, ImportError, OSError):
            known_names[kind, number] = b""
    return known_names[kind, number]


def target_of(path: bytes) -> tuple[bytes, int]:
    """Returns where a link leads, and the mode of what is there: 0 if nothing is."""
    target = os.path.realpath(path)
    try:
        mode = os.stat(path).st_mode
    except OSError:
        mode = 0
    return (target, mode) if len(target) <= PATH_MOST else (b"", mode)


def attributes_of(at: bytes | int) -> bytes:
    """Returns the user's extended attributes that are printable, as lines of name=value."""
    found = b""
    try:
        if isinstance(at, bytes) and os.path.islink(at):
            return b""                  # links have none
        for name in os.listxattr(at):
            value = os.getxattr(at, name) if name.startswith("user.") and "=" not in name else b""
            line = os.fsencode(name) + b"=" + value
            fits = len(found) + len(line) < ATTRIBUTES_MOST
            if value and fits and all(32 <= byte < 127 for byte in line):
                found += line + b"\n"
    except OSError:
        pass                            # the file system has none, or the file has gone
    return found


def entry_of(name: bytes, about: os.stat_result, path: bytes = b"", marks: bytes = b"") -> bytes:
    target, mode = target_of(path) if stat.S_ISLNK(about.st_mode) else (b"", 0)
    user, group = name_of_id("pw", about.st_uid), name_of_id("gr", about.st_gid)
    return ENTRY.pack(about.st_mode, len(name), about.st_size, about.st_mtime_ns, about.st_uid,
                      about.st_gid, mode, len(target), len(user), len(group),
                      len(marks)) + name + target + user + group + marks


def entry_name(entry: bytes) -> bytes:
    return entry[ENTRY.size:ENTRY.size + ENTRY.unpack_from(entry)[1]]


def walk_entries(path: bytes, depth: int, marked: bool, below: bytes = b"") -> Iterator[bytes]:
    """Yields the entries of a directory, and of those in it; links are not followed."""
    deeper = []
    with os.scandir(path) as entries:
        for entry in entries:
            name = below + entry.name
            try:
                yield entry_of(name, entry.stat(follow_symlinks=False), entry.path,
                               attributes_of(entry.path) if marked else b"")
                if depth > 1 and entry.is_dir(follow_symlinks=False):
                    deeper.append((entry.path, name + b"/"))
            except OSError:
                pass                    # it was removed meanwhile
    for child, name in deeper:
        try:
            yield from walk_entries(child, depth - 1, marked, name)
        except OSError:
            pass                        # it was removed meanwhile, or may not be read


def match_entries(patterns: list[bytes]) -> Iterator[bytes]:
    """Yields the regular files that match, each once; `**` stands for any directories."""
    import glob
    seen = set()
    for pattern in patterns:
        for path in glob.iglob(pattern, recursive=True):
            name = os.path.normpath(path)
            try:
                about = os.stat(path)
            except OSError:
                continue                # a broken link, or removed meanwhile
            if stat.S_ISREG(about.st_mode) and name not in seen:
                seen.add(name)
                yield entry_of(name, about)


class FileServer:
    """The open files of this process, and a method for each operation of the host."""

    def __init__(self) -> None:
        self.handles: dict[int, int] = {}
        self.last = 0

    def serve(self, ident: int, head: Head, blob: Blob) -> None:
        answer, data = self.answer(head, bytes(blob))
        state.link.send(FILED, ident, write_json(answer), [data])

    def answer(self, head: Head, blob: bytes) -> tuple[Head, bytes]:
        try:
            return getattr(self, "file_" + head["op"])(head, blob)
        except OSError as e:
            return {"errno": e.errno or errno.EIO}, b""
        except ValueError:              # a path with a NUL
            return {"errno": errno.EINVAL}, b""
        except (MemoryError, RecursionError):
            return {"errno": errno.ENOMEM}, b""

    def file_open(self, head: Head, path: bytes) -> tuple[Head, bytes]:
        if len(self.handles) >= HANDLES:
            raise OSError(errno.EMFILE, "too many open files")
        try:
            fd = os.open(path, OPEN_FLAGS[head["mode"]] | PATIENT, 0o666)
        except OSError as e:            # a FIFO without a reader, a socket, a device without driver
            return {"errno": NOT_A_FILE if e.errno == errno.ENXIO else e.errno}, b""
        try:
            about = os.fstat(fd)
            if not stat.S_ISREG(about.st_mode):
                os.close(fd)
                return {"errno": errno.EISDIR if stat.S_ISDIR(about.st_mode) else NOT_A_FILE}, b""
            if head["mode"] == "w":     # only now: a device must not notice
                os.ftruncate(fd, 0)
        except OSError:
            os.close(fd)
            raise
        self.last += 1
        self.handles[self.last] = fd
        marks = attributes_of(fd) if head["attributes"] else b""
        return {"handle": self.last}, entry_of(b"", about, marks=marks)

    def fd_of(self, head: Head) -> int:
        fd = self.handles.get(head["handle"])
        if fd is None:
            raise OSError(errno.EBADF, "no such file is open")
        return fd

    def file_read(self, head: Head, _: bytes) -> tuple[Head, bytes]:
        return {}, os.pread(self.fd_of(head), min(head["length"], READ_MOST), head["offset"])

    def file_write(self, head: Head, data: bytes) -> tuple[Head, bytes]:
        fd, at, view = self.fd_of(head), head["offset"], memoryview(data)
        while view:
            count = os.write(fd, view) if at < 0 else os.pwrite(fd, view, at)
            view, at = view[count:], at + count if at >= 0 else at
        return {}, b""

    def file_close(self, head: Head, _: bytes) -> tuple[Head, bytes]:
        os.close(self.fd_of(head))      # a network file system may report a failed write only now
        del self.handles[head["handle"]]
        return {}, b""

    def file_stat(self, head: Head, path: bytes) -> tuple[Head, bytes]:
        return {}, entry_of(b"", os.stat(path, follow_symlinks=head["follow"]), path,
                            attributes_of(path) if head["attributes"] else b"")

    def file_list(self, head: Head, path: bytes) -> tuple[Head, bytes]:
        entries = walk_entries(path or b".", head["depth"], head["attributes"])
        return self.listing(entries, head["limit"])

    def file_glob(self, head: Head, patterns: bytes) -> tuple[Head, bytes]:
        return self.listing(match_entries(patterns.split(b"\0")), head["limit"])

    def listing(self, entries: Iterator[bytes], limit: int) -> tuple[Head, bytes]:
        found: list[bytes] = []
        size = 0
        for entry in entries:
            size += len(entry)
            if len(found) == limit or size > ANSWER:
                return {"more": True}, b"".join(found)
            found.append(entry)
        found.sort(key=entry_name)
        return {}, b"".join(found)

    def file_mkdir(self, head: Head, path: bytes) -> tuple[Head, bytes]:
        if head["parents"]:
            os.makedirs(path, exist_ok=True)
        else:
            os.mkdir(path)
        return {}, b""

    def file_remove(self, head: Head, path: bytes) -> tuple[Head, bytes]:
        if not stat.S_ISDIR(os.lstat(path).st_mode):
            os.unlink(path)
        elif head["recursive"]:
            import shutil
            shutil.rmtree(path)
        else:
            os.rmdir(path)
        return {}, b""

    def file_mark(self, head: Head, blob: bytes) -> tuple[Head, bytes]:
        """Replaces attributes: of the names with a prefix, by the lines that follow it."""
        path, _, text = blob.partition(b"\0")
        prefix, *lines = text.split(b"\n")
        wanted: dict[bytes, bytes] = {}
        for key, _, value in (line.partition(b"=") for line in lines if line):
            wanted[key] = value
        for name in os.listxattr(path):
            if os.fsencode(name).startswith(prefix) and os.fsencode(name) not in wanted:
                os.removexattr(path, name)
        for key, value in wanted.items():
            os.setxattr(path, key, value)
        return {}, b""

    def file_rename(self, head: Head, paths: bytes) -> tuple[Head, bytes]:
        source, target = paths.split(b"\0")
        os.rename(source, target)
        return {}, b""


files_of_host = FileServer()
