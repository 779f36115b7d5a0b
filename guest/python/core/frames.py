"""The guest: one Python session inside a sandbox, driven by frames from the host.

It is one module in several files, which the build joins in this order (src/meson.build): frames, link
(frames over a private stream), session (what the user's code sees), cell (running one piece of code),
variables (values from the host), calls (asking the host), futures (without waiting), tools (the host's
and the user's), buffers, texts, programs and files (the helpers), worker (the main loop), boot (the zygote); and, for
guests behind a stream of bytes, stream (the link), keeper (a worker, and who keeps it) and supervisor. A part
uses names of the others without importing them.

Standard library only, CPython 3.8 and newer, no import of `threading` before a clone (its at-fork
hooks cost more than the clone itself). Nothing here is a wall: the user's code can reach all of it.
The host checks every frame, and budgets, limits and deadlines live there.
"""
import _signal
import _socket
import _thread
import ast
import binascii
import builtins
import errno
import fcntl
import gc
import importlib
import itertools
import json
import keyword
import linecache
import mmap
import os
import re
import select
import signal
import struct
import sys
import time
import traceback
import types

# The wall has no epoll: the kernel counts its watches for each user, so that a guest could use up its host's.
# `selectors`, and asyncio with it, takes poll where there is no epoll; before 3.9 it looks for the name only.
if hasattr(select, "epoll"):
    del select.epoll

# Frames: wire/frame.h says what they are.

VERSION = 1
HEADER = struct.Struct("<BBHIQQ")
FLAG_FD = 1
HELLO, SET, EXEC, REPLY, INTERRUPT, CLOSE, OFFER = 1, 2, 3, 4, 5, 7, 8
READY, CALL, RESULT, CANCEL = 17, 19, 20, 21
CHANNEL_FD = 3

PREVIEW = 80        # characters of a variable's preview
SUMMARY = 200       # variables in a summary
MESSAGE = 20000     # characters of an error's message
TRACEBACK = 60000   # characters of a traceback


ONE_PART = struct.Struct("<IQ")


def table_of(parts):
    """What stands before them in a blob."""
    if len(parts) == 1:
        return ONE_PART.pack(1, len(parts[0]))
    return struct.pack("<I%dQ" % len(parts), len(parts), *map(len, parts))


def split_parts(blob):
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


def shorten(text, limit):
    if len(text) <= limit:
        return text
    half = limit // 2
    return "%s\n... [%d characters left out] ...\n%s" % (text[:half], len(text) - 2 * half,
                                                        text[-half:])


# Names, messages and reprs may be of the user's own subclasses of str, with methods of their own.
type_name = type.__dict__["__name__"].__get__


def plain(text):
    """An exact str that is UTF-8, without calling the user's methods."""
    return "".join((text,)).encode("utf-8", "backslashreplace").decode("utf-8")
