"""Variables that the host sets."""
from __future__ import annotations

import os
import struct
from typing import TYPE_CHECKING, Any, Callable

from .failures import error_of
from .frames import plain, PREVIEW, RESULT
from .link import check_arrived
from .session import describe
from .state import state
from droste._encoding.codec import decode_value
from droste._encoding.json_text import read_json, write_json

if TYPE_CHECKING:
    from .aliases import Blob, Head


def decode_files(blob: Any) -> dict[str, str]:
    """Decodes {path: text}: a count, then per file the two lengths, the path and the text."""
    files, at = {}, 4
    (count,) = struct.unpack_from("<I", blob)
    for _ in range(count):
        path_len, text_len = struct.unpack_from("<IQ", blob, at)
        at += 12
        path = os.fsdecode(bytes(blob[at:at + path_len]))
        at += path_len
        files[path] = str(memoryview(blob)[at:at + text_len], "utf-8")
        at += text_len
    return files


def decode_auto(blob: Any) -> str | bytes:
    try:
        return str(blob, "utf-8")
    except UnicodeDecodeError:
        return bytes(blob)


DECODERS: dict[str, Callable[[Any], Any]] = {
    "text": lambda blob: str(blob, "utf-8"),
    "bytes": bytes,
    "auto": decode_auto,
    "json": read_json,
    "jsonl": lambda blob: [read_json(line) for line in str(blob, "utf-8").split("\n")
                           if line.strip()],
    "files": decode_files,
    "values": lambda blob: decode_value(bytearray(blob) if type(blob) is bytes else blob),
}


def samples(value: Any) -> Head:
    """Summarises the contents of a dict or list, for a model that does not see the value."""
    if type(value) is dict:
        found: Head = {"keys": [plain(str(key))[:PREVIEW] for key, _ in zip(value, range(5))]}
        texts = [len(v) for v in value.values() if type(v) is str]
        if texts:
            found["characters"] = sum(texts)
        return found
    if type(value) is list and value:
        return {"item": type(value[0]).__name__}
    return {}


def set_variable(ident: int, head: Head, blob: Blob) -> None:
    """Decodes and binds a variable, and reports its type and size."""
    before = [state.session.namespace.get(name) for name in head["names"]]   # freed afterwards
    try:
        check_arrived(blob)
        value = DECODERS[head["kind"]](blob)
        for name in head["names"]:
            state.session.bind(name, value)
        result: Head = {"status": "ok", "variable": describe(head["names"][0], value)}
        result["variable"].update(samples(value))
    except BaseException as e:
        result = {"status": "error", "error": error_of(e)}
    state.link.send(RESULT, ident, write_json(result))
    del before      # to free a large value takes as long as to copy it
