"""Encodes values for the guest: text and bytes unchanged, everything else as JSON."""
from __future__ import annotations

import ast
import collections
import collections.abc
import dataclasses
import datetime
import decimal
import enum
import fractions
import ipaddress
import json
import keyword
import math
import os
import types
import uuid
from typing import Any, Callable, Dict, List, Optional, Tuple, Union

from ._encoding.plain import iso_duration
from ._library import ascii_of
from .errors import ArgumentError

LONG = 10000            # bits of an int; Python may refuse longer ones in decimal
LEVELS = 50             # nesting of lists and dicts in a Python literal
Data = Union[str, bytes]    # a str of ASCII, or bytes


class NotPlain(TypeError):
    """A value that has no JSON form."""


class NotText(ArgumentError):
    """Bytes that are not UTF-8, where only text is possible."""


def plain(value: Any) -> Any:
    """Converts one level of a value that json rejects but that has a JSON form.

    Raises NotPlain for other types; no value becomes its repr. Durations are ISO 8601, as in
    pydantic.
    """
    if hasattr(value, "model_dump") and not isinstance(value, type):
        return value.model_dump(mode="json")
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, (datetime.datetime, datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, datetime.timedelta):
        return iso_duration(value)
    if isinstance(value, TEXTS):
        return str(value)
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if type(value).__module__.split(".")[0] in ("numpy", "array", "pandas"):
        return plain_array(value)
    if isinstance(value, collections.abc.Mapping):
        return dict(value)
    if isinstance(value, collections.abc.Set):
        return ordered(value)
    if isinstance(value, LISTS):
        return list(value)
    raise NotPlain(type(value).__name__)


TEXTS = (uuid.UUID, decimal.Decimal, fractions.Fraction, ipaddress.IPv4Address,
         ipaddress.IPv6Address, ipaddress.IPv4Network, ipaddress.IPv6Network)
LISTS = (tuple, range, collections.deque, collections.UserList, collections.abc.ValuesView)


def plain_array(value: Any) -> Any:
    for method in ("tolist", "to_dict", "item"):
        if hasattr(value, method):
            return getattr(value, method)()
    if type(value).__name__ == "NAType":
        return None
    raise NotPlain(type(value).__name__)


def ordered(values: Any) -> List[Any]:
    """Returns the members of a set, sorted if they can be compared."""
    try:
        return sorted(values)
    except TypeError:
        return list(values)


def text_if_not_finite(value: float) -> Any:
    return value if math.isfinite(value) else str(value)


class Walk:
    """Converts nested values to JSON types; raises ArgumentError with the path and type of others.

    `convert` converts one level of a value that is not JSON; `number` converts floats.
    """

    def __init__(self, convert: Callable[[Any], Any] = plain,
                 number: Callable[[float], Any] = text_if_not_finite):
        self.convert, self.number = convert, number

    def value(self, value: Any, at: str) -> Any:
        if value is None or isinstance(value, (str, bool, int)):
            return value
        if isinstance(value, float):
            return self.number(value)
        if isinstance(value, (bytes, bytearray, memoryview)):
            return self.text(bytes(value), at)
        if isinstance(value, dict):
            return self.members(value, at, "[%s]")
        if type(value) in (list, tuple) or isinstance(value, list):
            return [self.value(v, "%s[%d]" % (at, i)) for i, v in enumerate(value)]
        made = self.one_level(value, at)
        if isinstance(made, dict) and not isinstance(value, collections.abc.Mapping):
            # dataclasses and models: path with attributes
            return self.members(made, at, ".%s")
        return self.value(made, at)

    def members(self, value: Dict[Any, Any], at: str, form: str) -> Dict[Any, Any]:
        attribute = form[0] == "."
        return {self.key(k, at): self.value(v, at + form % (k if attribute else short_repr(k)))
                for k, v in value.items()}

    def one_level(self, value: Any, at: str) -> Any:
        try:
            return self.convert(value)
        except NotPlain:
            raise ArgumentError(
                "%s is %s, which cannot be sent to a sandbox: use str, bytes, numbers, bool, "
                "None, lists, dicts, dataclasses or pydantic models"
                % (at, kind_of(value))) from None
        except (RecursionError, ArgumentError):
            raise
        except Exception as e:
            raise ArgumentError("%s: Unable to serialize %s as JSON: %s"
                                % (at, type(value).__name__, e)) from e

    def key(self, key: Any, at: str) -> Any:
        if isinstance(key, float):
            return self.number(key)
        if isinstance(key, enum.Enum) and isinstance(key.value, (str, int)):
            return key.value
        if key is None or isinstance(key, (str, bool, int)):
            return key
        made = self.text(key, at) if isinstance(key, bytes) else None if isinstance(
            key, tuple) else self.one_level(
            key, "a key of " + at)
        if not isinstance(made, (str, int, float, bytes)):
            raise ArgumentError("%s has a key that is %s; keys must be str or numbers"
                                % (at, kind_of(key)))
        return made

    @staticmethod
    def text(data: bytes, at: str) -> str:
        try:
            return data.decode()
        except UnicodeDecodeError:
            raise NotText("%s is bytes that are not UTF-8, within a value that is sent as JSON: "
                          "send them as a separate variable, or as base64" % at) from None


def kind_of(value: Any) -> str:
    """Describes the type of a value; never uses its repr."""
    if isinstance(value, type):
        return "the class %s" % value.__qualname__
    if isinstance(value, types.ModuleType):
        return "the module %s" % value.__name__
    kind = type(value)
    return "of type %s" % (kind.__qualname__ if kind.__module__ in ("builtins", "__main__") else
                           "%s.%s" % (kind.__module__, kind.__qualname__))


def short_repr(key: Any) -> str:
    text = (repr(key) if isinstance(key, (str, int, float, bytes, type(None)))
            else type(key).__name__)
    return text if len(text) <= 60 else text[:59] + "…"


def for_json(value: Any) -> Any:
    """The `default` function for json.dumps()."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return Walk.text(bytes(value), "")
    return plain(value)


def to_json(value: Any, at: str = "the value") -> bytes:
    """Encodes a value as strict JSON; raises ArgumentError with a path that begins with `at`."""
    try:
        try:
            text = json.dumps(value, allow_nan=False, ensure_ascii=False, default=for_json)
        except RecursionError:
            raise
        except Exception:      # convert, or raise with the path
            text = json.dumps(Walk().value(value, at), allow_nan=False, ensure_ascii=False)
    except RecursionError:
        raise ArgumentError("%s is nested too deeply for JSON, or contains itself" % at) from None
    except ArgumentError:
        raise
    except ValueError as e:     # an int of thousands of digits
        raise ArgumentError("%s cannot be written as JSON: %s" % (at, e)) from None
    return text.encode("utf-8", "replace")


class _Exact(Walk):
    """Keeps bytes, non-finite numbers and dict keys."""

    def __init__(self) -> None:
        super().__init__(number=lambda value: value)

    @staticmethod
    def text(data: bytes, at: str) -> Any:
        return data


def exact(value: Any, at: str) -> Any:
    """Converts a value to built-in types, for sessions without typed values.

    Keeps bytes, floats that are not finite, and keys that are not str. Raises ArgumentError with
    the path to a member that cannot be converted.
    """
    try:
        return _Exact().value(value, at)
    except RecursionError:
        raise ArgumentError("%s is nested too deeply for JSON, or contains itself" % at) from None


def c_text(value: Any, what: str) -> bytes:
    """Encodes a text or path for a C string; raises ArgumentError for NUL characters."""
    try:
        data = os.fsencode(value)
    except UnicodeEncodeError as e:
        raise ArgumentError("%s cannot be written as UTF-8: %s" % (what, e)) from None
    if b"\0" in data:
        raise ArgumentError("%s cannot contain a NUL character" % what)
    return data


def encode(value: Any, at: str = "the value") -> Tuple[bytes, Data]:
    """Returns the kind and data for droste_session_set()."""
    if isinstance(value, str):
        if type(value) is str and value.isascii():
            return b"text", value
        return b"text", value.encode("utf-8", "replace")
    if isinstance(value, (bytes, bytearray, memoryview)):
        return b"bytes", bytes(value)
    return b"json", to_json(value, at)


def memory_of(data: Data) -> Tuple[Union[bytes, int], int]:
    """Returns bytes or an address for the library, and the length; does not copy an ASCII str."""
    return ascii_of(data) if isinstance(data, str) else data, len(data)


def literal(value: Any, levels: int = LEVELS) -> Optional[str]:
    """Writes a small value as a Python literal, which preserves floats and keys of dicts.

    Returns None if the value has more than `levels` levels of nesting.
    """
    if value is None or isinstance(value, bool):
        return repr(value)
    if isinstance(value, str):
        return str.__repr__(value)
    if isinstance(value, bytes):
        return bytes.__repr__(value)
    if isinstance(value, int):
        # hex has no length limit
        return int.__repr__(value) if value.bit_length() < LONG else hex(value)
    if isinstance(value, float):
        return (float.__repr__(value) if math.isfinite(value)
                else "float('%s')" % float.__repr__(value))
    if levels == 0:
        return None
    if isinstance(value, (bytearray, memoryview)):
        return bytes.__repr__(bytes(value))
    if isinstance(value, dict):
        parts = [part for pair in value.items() for part in pair]
    elif isinstance(value, (list, tuple)):
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
        raise ArgumentError("%r is not a valid name for a variable" % (name,))
    return name


def value_of_repr(text: str) -> Any:
    """Returns the value of a repr if it is a literal, otherwise the text."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        return text
