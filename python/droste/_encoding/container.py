"""The container of a value: a JSON tree with raw buffers beside it.

    u32 version, u32 number of buffers, u64 length of the tree,
    per buffer: u64 offset, u64 length,
    the tree in UTF-8, then the buffers

Numbers are little-endian, and offsets count from the start of the container. Buffers are in order,
do not overlap, and begin at multiples of 64 bytes, so that arrays can use them in place.
"""
from __future__ import annotations

import struct
from typing import Any, List, Tuple

VALUES_VERSION = 1
CONTAINER_HEAD = struct.Struct("<IIQ")
CONTAINER_SLOT = struct.Struct("<QQ")
ALIGNMENT = 64
JOINED = 262144         # shorter pieces are copied into one


class Malformed(ValueError):
    """Bytes that are not a well-formed encoding."""


class MissingLibrary(ImportError):
    """A value whose type belongs to a library that is not installed on this side."""


def text_bytes(text: str) -> Any:
    """Returns a text in UTF-8, as a view of its own memory if it is ASCII."""
    if type(text) is not str or not text.isascii() or len(text) < JOINED:
        return text.encode("utf-8", "surrogatepass")
    try:
        import ctypes
    except ImportError:         # an interpreter may lack it
        return text.encode("utf-8", "surrogatepass")
    find = ctypes.pythonapi.PyUnicode_AsUTF8AndSize
    find.restype = ctypes.c_void_p
    find.argtypes = [ctypes.py_object, ctypes.POINTER(ctypes.c_ssize_t)]
    memory = (ctypes.c_char * len(text)).from_address(find(text, None))
    memory.text = text      # type: ignore  # the view keeps its memory
    return memoryview(memory).cast("B")


def pack_container(tree: bytes, buffers: List[Any]) -> List[Any]:
    """Returns the container as a list of bytes-like pieces; long buffers are not copied."""
    at = CONTAINER_HEAD.size + CONTAINER_SLOT.size * len(buffers) + len(tree)
    head = [CONTAINER_HEAD.pack(VALUES_VERSION, len(buffers), len(tree))]
    rest: List[Any] = [tree]
    for buffer in buffers:
        gap = -at % ALIGNMENT
        head.append(CONTAINER_SLOT.pack(at + gap, len(buffer)))
        rest += [bytes(gap), buffer]
        at += gap + len(buffer)
    return join_short(head + rest)


def join_short(pieces: List[Any]) -> List[Any]:
    """Joins neighbouring pieces until each is long, except for some between long ones."""
    out: List[Any] = []
    short: List[Any] = []
    size = 0
    for piece in pieces:
        if len(piece) < JOINED:
            short.append(piece)
            size += len(piece)
        if short and (size >= JOINED or len(piece) >= JOINED):
            out.append(b"".join(short))
            short, size = [], 0
        if len(piece) >= JOINED:
            out.append(piece)
    return out + ([b"".join(short)] if short else [])


def unpack_container(data: Any) -> Tuple[memoryview, List[memoryview]]:
    """Returns the tree and the buffers as views; raises Malformed."""
    view = memoryview(data).cast("B")
    if len(view) < CONTAINER_HEAD.size:
        raise Malformed("it ends within its header")
    version, count, tree_length = CONTAINER_HEAD.unpack_from(view)
    if version != VALUES_VERSION:
        raise Malformed("it has version %d of the encoding; this side reads %d"
                        % (version, VALUES_VERSION))
    start = CONTAINER_HEAD.size + CONTAINER_SLOT.size * count
    end = start + tree_length
    if end > len(view):
        raise Malformed("it ends within its tree")
    buffers: List[memoryview] = []
    for offset, length in CONTAINER_SLOT.iter_unpack(view[CONTAINER_HEAD.size:start]):
        if offset < end or offset + length > len(view):
            raise Malformed("buffer %d is not where it can be" % len(buffers))
        end = offset + length
        buffers.append(view[offset:end])
    return view[start:start + tree_length], buffers
