"""Python's values as the guest gets them: text and bytes as they are, everything else as JSON."""
from __future__ import annotations

import dataclasses
import json
import keyword
import math
import os
from typing import Any, Optional, Tuple, Union

from ._library import ascii_of
from .errors import ArgumentError

LEVELS = 50             # of lists and dicts in one another, written as Python
Data = Union[str, bytes]    # a str of ASCII, or bytes


def plain(value: Any) -> Any:
    """What JSON cannot write but means something plain; anything else becomes its str()."""
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    if isinstance(value, (set, frozenset)):
        return list(value)
    if type(value).__module__.split(".")[0] in ("numpy", "array", "pandas"):
        for method in ("tolist", "to_dict", "item"):
            if hasattr(value, method):
                return getattr(value, method)()
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, (bytes, bytearray)):
        return bytes(value).decode("utf-8", "replace")
    return str(value)


def finite(value: Any) -> Any:
    """The same, where NaN and infinities are text, and keys are str."""
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, dict):
        return {key if isinstance(key, str) else str(key): finite(v) for key, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(v) for v in value]
    if isinstance(value, (str, int, bool, type(None))):
        return value
    return finite(plain(value))


def to_json(value: Any) -> bytes:
    """Strict JSON."""
    try:
        try:
            text = json.dumps(value, allow_nan=False, ensure_ascii=False, default=plain)
        except (ValueError, TypeError):
            text = json.dumps(finite(value), allow_nan=False, ensure_ascii=False)
    except RecursionError:
        raise ArgumentError("a value is nested too deeply for JSON, or contains itself") from None
    except ValueError as e:     # an int of thousands of digits
        raise ArgumentError("a value cannot be written as JSON: %s" % e) from None
    return text.encode("utf-8", "replace")


def c_text(value: Any, what: str) -> bytes:
    """A text or a path that ends with a NUL in the library, in the file system's bytes."""
    try:
        data = os.fsencode(value)
    except UnicodeEncodeError as e:
        raise ArgumentError("%s cannot be written as UTF-8: %s" % (what, e)) from None
    if b"\0" in data:
        raise ArgumentError("%s cannot have a NUL character" % what)
    return data


def encode(value: Any) -> Tuple[bytes, Data]:
    """(kind, data) of droste_session_set."""
    if isinstance(value, str):
        return b"text", value if type(value) is str and value.isascii() else value.encode("utf-8", "replace")
    if isinstance(value, (bytes, bytearray, memoryview)):
        return b"bytes", bytes(value)
    return b"json", to_json(value)


def memory_of(data: Data) -> Tuple[Union[bytes, int], int]:
    """What the library takes as data, and how long it is. A str of ASCII is UTF-8 as it lies."""
    return ascii_of(data) if isinstance(data, str) else data, len(data)


def literal(value: Any, levels: int = LEVELS) -> Optional[str]:
    """A small value as Python, so that floats and keys of dicts are what they were; None where it has more
    levels than Python reads well."""
    if value is None or isinstance(value, bool):
        return repr(value)
    if isinstance(value, str):
        return str.__repr__(value)
    if isinstance(value, bytes):
        return bytes.__repr__(value)
    if isinstance(value, int):
        return int.__repr__(value) if value.bit_length() < 10000 else hex(value)    # any length, that way
    if isinstance(value, float):
        return float.__repr__(value) if math.isfinite(value) else "float('%s')" % float.__repr__(value)
    if levels == 0:
        return None
    if isinstance(value, dict):
        parts = [part for pair in value.items() for part in pair]
    elif isinstance(value, (list, tuple, set, frozenset)):
        parts = list(value)
    else:
        return literal(plain(value), levels - 1)
    texts = [literal(part, levels - 1) for part in parts]
    if None in texts:
        return None
    if isinstance(value, dict):
        return "{%s}" % ", ".join(map("%s: %s".__mod__, zip(texts[::2], texts[1::2])))
    return "[%s]" % ", ".join(texts)  # type: ignore


def check_name(name: str) -> str:
    if not isinstance(name, str) or not name.isidentifier() or keyword.iskeyword(name):
        raise ArgumentError("%r is no name that a variable can have" % (name,))
    return name
