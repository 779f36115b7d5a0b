"""Frames, the messages between host and guest. src/wire/frame.h specifies the format."""
from __future__ import annotations

import select
import struct
from typing import TYPE_CHECKING, Any, Callable

if TYPE_CHECKING:
    from .aliases import Parts

# The sandbox denies epoll: the kernel counts epoll watches per user, so a guest could use up those
# of its host. `selectors`, and thereby asyncio, falls back to poll; before Python 3.9 it checks
# only whether the name exists.
if hasattr(select, "epoll"):
    del select.epoll

VERSION = 1
HEADER = struct.Struct("<BBHIQQ")
FLAG_FD = 1
HELLO, SET, EXEC, REPLY, INTERRUPT = 1, 2, 3, 4, 5
CLOSE, OFFER, FILE, FORK, COMMAND = 7, 8, 9, 10, 11
SAVE, RESTORE = 12, 13
READY, CALL, RESULT, CANCEL, DISPLAY, FILED, COMMANDED = 17, 19, 20, 21, 22, 23, 24
CHANNEL_FD = 3

PREVIEW = 80        # characters of a variable's preview
SUMMARY = 200       # variables in a summary
MESSAGE = 20000     # characters of an error's message
TRACEBACK = 60000   # characters of a traceback


ONE_PART = struct.Struct("<IQ")


def table_of(parts: Parts) -> bytes:
    """Returns the table of lengths that precedes the parts in a blob."""
    if len(parts) == 1:
        return ONE_PART.pack(1, len(parts[0]))
    return struct.pack("<I%dQ" % len(parts), len(parts), *map(len, parts))


def split_parts(blob: Any) -> list[memoryview]:
    """Returns views of the parts of a blob."""
    view = memoryview(blob)
    (count,) = struct.unpack_from("<I", view)
    if count == 1:
        return [view[ONE_PART.size:]]
    lengths = struct.unpack_from("<%dQ" % count, view, 4)
    at, parts = 4 + 8 * count, []
    for length in lengths:
        parts.append(view[at:at + length])
        at += length
    return parts


def shorten(text: str, limit: int) -> str:
    """Cuts the middle out of a text longer than `limit` characters."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return "%s\n... [%d characters left out] ...\n%s" % (text[:half], len(text) - 2 * half,
                                                        text[-half:])


# Names, messages and reprs may be instances of subclasses of str with methods of their own.
type_name: Callable[[type], str] = vars(type)["__name__"].__get__


def plain(text: str) -> str:
    """Returns an exact str that can be encoded as UTF-8, without calling the user's methods."""
    return "".join((text,)).encode("utf-8", "backslashreplace").decode("utf-8")
