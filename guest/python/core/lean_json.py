"""JSON by the functions in C that the package `json` uses, without the package.

Importing `json` takes a quarter of an interpreter's start, because it compiles patterns. What these
functions cannot do, or another interpreter lacks, is left to the package.
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


class ScanOptions:
    """What make_scanner() reads: those of json.loads()."""
    strict, object_hook, object_pairs_hook = True, None, None
    parse_float, parse_int = float, int

    @staticmethod
    def parse_constant(name: str) -> Any:
        raise ValueError(name)


json_in_c = find_functions()
scan_json: Any = json_in_c and json_in_c.make_scanner(ScanOptions)


def refuse_json(value: Any) -> Any:
    raise TypeError(type(value).__name__)


def read_json(text: bytes) -> Any:
    """json.loads() of a frame's head."""
    try:
        string = text.decode("utf-8")
        value, end = scan_json(string, 0)
        if end == len(string):
            return value
    except (StopIteration, TypeError, ValueError):
        pass
    return json.loads(text)


def write_json(value: Any) -> bytes:
    """json.dumps(), as bytes."""
    try:
        encode = json_in_c.make_encoder({}, refuse_json, json_in_c.encode_basestring_ascii, None,
                                        ": ", ", ", False, False, True)
        return "".join(encode(value, 0)).encode()
    except (AttributeError, TypeError, ValueError):
        return json.dumps(value).encode()
