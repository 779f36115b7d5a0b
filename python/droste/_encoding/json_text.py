"""JSON by the functions in C that the package `json` uses, mostly without the package.

The package compiles patterns when it is imported, which takes more than half as long as an
interpreter's start: a sandbox for one cell does without it. It cannot be imported when it is needed
either, because code that has used up its descriptors has to be able to submit its result. Only an
interpreter without these functions, and a text that is not JSON, need it.
"""
from __future__ import annotations

import json
from typing import Any


def find_functions() -> Any:
    try:
        import _json
        return _json
    except ImportError:
        return None


SPACE = " \t\n\r"
CONSTANTS = {"-Infinity": float("-inf"), "Infinity": float("inf"), "NaN": float("nan")}


class ScanOptions:
    """The options of json.loads(), as make_scanner() reads them."""
    strict, object_pairs_hook = True, None
    parse_float, parse_int = float, int

    def __init__(self, object_hook: Any, parse_constant: Any) -> None:
        self.object_hook, self.parse_constant = object_hook, parse_constant or CONSTANTS.__getitem__


json_in_c = find_functions()
scan_plain = json_in_c and json_in_c.make_scanner(ScanOptions(None, None))


def read_json(text: Any, object_hook: Any = None, parse_constant: Any = None) -> Any:
    """json.loads() of a str, or of a buffer of UTF-8."""
    if not isinstance(text, str):
        text = str(text, "utf-8")
    if not json_in_c:
        return json.loads(text, object_hook=object_hook, parse_constant=parse_constant)
    scan = scan_plain
    if object_hook or parse_constant:
        scan = json_in_c.make_scanner(ScanOptions(object_hook, parse_constant))
    stripped = text.strip(SPACE)
    try:
        value, end = scan(stripped, 0)
        if end == len(stripped):
            return value
    except StopIteration:
        pass
    except ValueError as e:     # also what a hook raises
        if type(e).__name__ != "JSONDecodeError":
            raise
    # json says what is wrong, and where; without the hooks, which may have run already.
    json.loads(text)
    raise ValueError("this is not JSON")


def refuse_json(value: Any) -> Any:
    raise TypeError("Object of type %s is not JSON serializable" % type(value).__name__)


def write_json(value: Any) -> bytes:
    """json.dumps(), as bytes."""
    if not json_in_c:
        return json.dumps(value).encode()
    encode = json_in_c.make_encoder({}, refuse_json, json_in_c.encode_basestring_ascii,
                                    None, ": ", ", ", False, False, True)
    return "".join(encode(value, 0)).encode()


def write_strict_json(value: Any, default: Any = None) -> str:
    """json.dumps() of what other languages read: no NaN, and characters as they are."""
    if not json_in_c:
        return json.dumps(value, allow_nan=False, ensure_ascii=False, default=default)
    encode = json_in_c.make_encoder({}, default or refuse_json,
                                    json_in_c.encode_basestring,
                                    None, ": ", ", ", False, False, False)
    return "".join(encode(value, 0))
