"""Copies directories from and to the host, in the format of src/volume/pack.h.

Fills a directory when a session starts, and sends changed files back after cells. This runs in a
separate worker without user code.
"""
from __future__ import annotations

import os
import struct
import time
from typing import Any

PACK = struct.Struct("<BxHIQq")
PACK_DIRECTORY, PACK_FILE, PACK_LINK, PACK_END, PACK_KEEP = 1, 2, 3, 4, 5
TICK = 0.02     # seconds; the kernel's clock for file times is coarse, so changes may look older


def unpack_files(fd: int, top: Any, stays: bool = False) -> None:
    """Unpacks entries into `top`, replacing existing ones of the same names.

    With `stays`, waits until the host closes the channel; the keeper then removes the directory.
    """
    def read(count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            piece = os.read(fd, min(count - len(data), 1 << 20))
            if not piece:
                raise OSError("the files ended in the middle")
            data += piece
        return bytes(data)

    top = os.fsencode(top)
    os.makedirs(top, exist_ok=True)
    times = []          # directory times, set last because adding entries changes them
    while True:
        kind, mode, length, size, changed = PACK.unpack(read(PACK.size))
        if kind == PACK_END:
            break
        path = os.path.join(top, read(length))
        if kind == PACK_DIRECTORY:
            os.makedirs(path, exist_ok=True)
            times.append((path, mode, changed))
            continue
        if os.path.lexists(path):
            os.unlink(path)
        if kind == PACK_LINK:
            os.symlink(read(size), path)
            continue
        with open(path, "xb") as file:
            while size > 0:
                piece = read(min(size, 1 << 20))
                file.write(piece)
                size -= len(piece)
        os.chmod(path, mode)
        os.utime(path, (changed, changed))
    for path, mode, changed in reversed(times):
        os.chmod(path, mode | 0o700)
        os.utime(path, (changed, changed))
    time.sleep(1.5 * TICK)
    send_all(fd, struct.pack("<q", time.time_ns() - int(TICK * 1e9)))
    while stays and os.read(fd, 1):
        pass


def send_all(fd: int, data: bytes) -> None:
    with memoryview(data) as view:
        while len(view):
            view = view[os.write(fd, view):]


def pack_files(fd: int, top: Any, since: int, known: str) -> None:
    """Sends entries changed since `since` (ns) and the names of all others.

    Sends only the end record if nothing has changed and the hash of names equals `known`.
    """
    import hashlib
    import stat
    begun = time.time_ns() - int(TICK * 1e9)
    top = os.fsencode(top)
    entries, names, changed = [], hashlib.sha256(), False
    def refuse(error: OSError) -> None:          # an unreadable directory must not look deleted
        raise error

    for place, directories, files in os.walk(top, onerror=refuse):
        directories.sort()
        links = [name for name in directories if os.path.islink(os.path.join(place, name))]
        for name in directories + sorted(files):
            path = os.path.join(place, name)
            try:
                found = os.lstat(path)
            except OSError:
                continue
            kind = (PACK_LINK if stat.S_ISLNK(found.st_mode)
                    else PACK_DIRECTORY if stat.S_ISDIR(found.st_mode)
                    else PACK_FILE if stat.S_ISREG(found.st_mode) else None)
            if kind is None:
                continue
            fresh = found.st_ctime_ns >= since
            changed = changed or (fresh and kind != PACK_DIRECTORY)
            inner = os.path.relpath(path, top)
            names.update(b"%d %o %s\0" % (kind, found.st_mode, inner))
            entries.append((kind if fresh or kind == PACK_DIRECTORY else PACK_KEEP, inner, found))
        directories[:] = [name for name in directories if name not in links]
    total = names.hexdigest().encode()
    same = not changed and total == known.encode()
    for kind, inner, found in () if same else entries:
        pack_entry(fd, kind, inner, os.path.join(top, inner), found)
    send_all(fd, PACK.pack(PACK_END, 1 if same else 0, len(total), 0, begun) + total)


def pack_entry(fd: int, kind: int, inner: bytes, path: bytes, found: os.stat_result) -> None:
    mode, changed = found.st_mode & 0o777, int(found.st_mtime)
    if kind in (PACK_DIRECTORY, PACK_KEEP):
        send_all(fd, PACK.pack(kind, mode, len(inner), 0, changed) + inner)
        return
    try:
        if kind == PACK_LINK:
            target = os.readlink(path)
            head = PACK.pack(kind, mode, len(inner), len(target), changed)
            send_all(fd, head + inner + target)
            return
        file = open(path, "rb")
    except OSError:         # deleted meanwhile, or not readable
        send_all(fd, PACK.pack(PACK_KEEP, mode, len(inner), 0, changed) + inner)
        return
    with file:
        left = os.fstat(file.fileno()).st_size
        send_all(fd, PACK.pack(kind, mode, len(inner), left, changed) + inner)
        while left > 0:
            piece = file.read(min(left, 1 << 18)) or bytes(min(left, 1 << 18))
            send_all(fd, piece)
            left -= len(piece)
