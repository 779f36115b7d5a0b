"""Values that the host sets."""
import json
import os
import struct

from .cell import error_of
from .frames import plain, PREVIEW, RESULT
from .link import check_arrived
from .session import describe
from .state import state


def decode_files(blob):
    """{path: text}: a count, then for each the lengths of path and text, and both."""
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


def decode_auto(blob):
    try:
        return str(blob, "utf-8")
    except UnicodeDecodeError:
        return bytes(blob)


DECODERS = {
    "text": lambda blob: str(blob, "utf-8"),
    "bytes": bytes,
    "auto": decode_auto,
    "json": lambda blob: json.loads(str(blob, "utf-8")),
    "jsonl": lambda blob: [json.loads(line) for line in str(blob, "utf-8").split("\n")
                           if line.strip()],
    "files": decode_files,
}


def samples(value):
    """What a large value is like, for somebody who will not see it."""
    if type(value) is dict:
        found = {"keys": [plain(str(key))[:PREVIEW] for key, _ in zip(value, range(5))]}
        texts = [len(v) for v in value.values() if type(v) is str]
        if texts:
            found["characters"] = sum(texts)
        return found
    if type(value) is list and value:
        return {"item": type(value[0]).__name__}
    return {}


def set_variable(ident, head, blob):
    """Binds a variable and says what it became."""
    try:
        check_arrived(blob)
        value = DECODERS[head["kind"]](blob)
        for name in head["names"]:
            state.session.bind(name, value)
        result = {"status": "ok", "variable": describe(head["names"][0], value)}
        result["variable"].update(samples(value))
    except BaseException as e:
        result = {"status": "error", "error": error_of(e)}
    state.link.send(RESULT, ident, json.dumps(result).encode())
