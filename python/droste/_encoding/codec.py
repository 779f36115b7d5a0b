"""Encodes and decodes typed values, and projects them to JSON.

`encode_value` writes what JSON keeps as JSON, and everything else with marks and raw buffers.
`decode_value` makes only the types that MARKS lists: it evaluates nothing, imports only the
libraries that those types belong to, and uses each buffer once, so it needs memory in proportion to
its input.
"""
from __future__ import annotations

import array
import math
from typing import Any, Dict, List, Tuple

from .arrays import describe_array, NUMPY_KINDS
from .arrow import ARROW_KINDS
from .container import (Malformed, MissingLibrary, pack_container, text_bytes,
                        unpack_container)
from .frames import PANDAS_KINDS
from .json_text import read_json, write_strict_json
from .marks import (mark, MARKED, MARKS, PROJECTIONS, qualified, Refused, type_words, wanted,
                    WRITERS)
from .plain import add_texts, native, number_of

for kinds in (NUMPY_KINDS, PANDAS_KINDS, ARROW_KINDS):
    MARKS.update(kinds["marks"])
    WRITERS.update(kinds["writers"])
    PROJECTIONS.update(kinds["projections"])

JSON_KINDS = {str, int, bool, float, type(None), list, dict}
LONG_TEXT = 65536       # characters of a text that goes as a buffer
LONG_LIST = 1024        # members of a list of one type that goes as a buffer
LONG_INT = 10000        # bits; Python may refuse longer ones in decimal
LEVELS_MAX = 120        # nested containers


def is_long(value: Any) -> bool:
    """Whether JSON has no form for an int, or takes much longer than a buffer for a text."""
    kind = type(value)
    return (kind is int and value.bit_length() >= LONG_INT
            or kind is str and len(value) >= LONG_TEXT)


def json_keeps(value: Any) -> bool:
    """Whether JSON suits a value, apart from floats that are not finite and surrogates."""
    kind = type(value)
    if kind not in (list, dict):
        return kind in JSON_KINDS and not is_long(value)
    if kind is dict and (MARKED in value or not set(map(type, value)) <= {str}):
        return False
    members = value.values() if kind is dict else value
    kinds = set(map(type, members))
    if not kinds <= JSON_KINDS or kind is list and len(value) >= LONG_LIST and len(kinds) == 1 and (
            kinds <= {int, float, str}):
        return False
    if int in kinds and any(type(one) is int and one.bit_length() >= LONG_INT for one in members):
        return False
    if str in kinds and any(type(one) is str and len(one) >= LONG_TEXT for one in members):
        return False
    return not kinds & {list, dict} or all(
        json_keeps(one) for one in members if type(one) in (list, dict))


def is_plain_json(value: Any) -> bool:
    """Whether a value has only the types of JSON, so that its projection is the value."""
    kind = type(value)
    if kind is list:
        kinds = set(map(type, value))
        return kinds <= JSON_KINDS and (not kinds & {list, dict} or all(map(is_plain_json, value)))
    if kind is dict:
        return set(map(type, value)) <= {str} and all(map(is_plain_json, value.values()))
    return kind in JSON_KINDS


def fields_of(value: Any) -> Any:
    """The attributes of a dataclass instance or pydantic model as a dict; None for others."""
    if isinstance(value, type):
        return None
    if hasattr(type(value), "__dataclass_fields__"):
        return {name: getattr(value, name) for name in type(value).__dataclass_fields__
                if hasattr(value, name)}
    if hasattr(type(value), "model_dump"):
        return value.model_dump(mode="python")
    return None


def find_handler(table: Dict[str, Any], value: Any) -> Any:
    """Returns the handler of the value's type, or of a base whose meaning it keeps."""
    for kind in type(value).__mro__:
        handler = table.get(qualified(kind))
        if handler is not None:
            return handler
    return None


def one_level(value: Any, path: Any) -> Any:
    """Converts a value of a type without a handler to one that has one; raises Refused."""
    import collections.abc
    import enum
    import os
    if isinstance(value, enum.Enum):
        return value.value
    fields = fields_of(value)
    if fields is not None:
        return fields
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, collections.abc.Mapping):
        return dict(value)
    if isinstance(value, collections.abc.Set):
        return list(value)
    if isinstance(value, (collections.deque, collections.UserList, collections.abc.ValuesView)):
        return list(value)
    raise Refused(path, type_words(value))


class Encoder:
    """Builds the tree of one value, and collects its buffers."""

    def __init__(self, careful: bool) -> None:
        self.careful = careful      # JSON has rejected a part that it seemed to keep
        self.buffers: List[Any] = []
        self.levels = 0

    def add(self, data: Any) -> int:
        self.buffers.append(data)
        return len(self.buffers) - 1

    def value(self, value: Any, path: Any) -> Any:
        kind = type(value)
        if kind is str:
            return self.text(value)
        if value is None or kind is bool:
            return value
        if kind is int:
            return value if value.bit_length() < LONG_INT else mark("int", hex(value))
        if kind is float:
            return number_of(value)
        if self.levels > LEVELS_MAX:
            raise Refused(path, "nested too deeply, or contains itself")
        self.levels += 1
        try:
            if not self.careful and kind in (list, dict) and json_keeps(value):
                return value
            return self.nested(value, kind, path)
        finally:
            self.levels -= 1

    def text(self, value: str) -> Any:
        if len(value) >= LONG_TEXT:
            return mark("str", self.add(text_bytes(value)))
        try:
            value.encode()
        except UnicodeEncodeError:
            return mark("text", value.encode("utf-8", "surrogatepass").hex())
        return value

    def nested(self, value: Any, kind: type, path: Any) -> Any:
        import enum
        if kind is list:
            return self.members(value, path)
        if kind is dict:
            return self.items(value, path, "[%s]")
        writer = WRITERS.get(qualified(kind))
        if writer is None and isinstance(value, enum.Enum):
            return self.value(value.value, path)
        if writer is None:
            writer = self.base_writer(value, path)
        return writer(self, value, path)

    def base_writer(self, value: Any, path: Any) -> Any:
        """The writer of a subclass, which arrives as an instance of its base."""
        fields = fields_of(value)
        if fields is not None:
            return lambda encoder, value, path: encoder.items(fields, path, ".%s")
        for base, form in ((str, lambda v: str.__str__(v)), (bool, bool), (int, int),
                           (float, float), (list, list), (dict, dict), (tuple, tuple),
                           (bytes, bytes)):
            if isinstance(value, base):
                exact = base.__str__(value) if base is str else base(value)     # type: ignore
                return lambda encoder, value, path: encoder.value(exact, path)
        known = find_handler(WRITERS, value)
        if known is not None and not type(value).__module__.startswith(("numpy", "pandas")):
            return known
        made = one_level(value, path)
        return lambda encoder, value, path: encoder.value(made, path)

    def members(self, value: List[Any], path: Any) -> Any:
        if len(value) >= LONG_LIST:
            kinds = set(map(type, value))
            if kinds == {float}:
                return mark("floats", self.add(native(array.array("d", value))))
            if kinds == {int}:
                try:
                    return mark("ints", self.add(native(array.array("q", value))))
                except OverflowError:
                    pass
            if kinds == {str}:
                return mark("texts", *add_texts(self, value))
        return [self.value(v, (path, "[%s]", i)) for i, v in enumerate(value)]

    def items(self, value: Dict[Any, Any], path: Any, form: str) -> Any:
        if MARKED not in value and all(type(key) is str and key.isascii() for key in value):
            return {key: self.value(v, (path, form, key)) for key, v in value.items()}
        return mark("dict", [[self.key(key, path), self.value(v, (path, form, key))]
                             for key, v in value.items()])

    def key(self, key: Any, path: Any) -> Any:
        try:
            return self.value(key, path)
        except Refused as e:
            raise Refused(path, "a dict with a key that is %s" % e.problem) from None


def encode_value(value: Any) -> List[Any]:
    """Returns the container of a value as a list of pieces; raises Refused."""
    for careful in (False, True):
        encoder = Encoder(careful)
        try:
            tree = write_strict_json(encoder.value(value, None))
            return pack_container(tree.encode("utf-8"), encoder.buffers)
        except RecursionError:
            raise Refused(None, "nested too deeply, or contains itself") from None
        except ValueError:      # a float that is not finite, or a lone surrogate, within JSON
            if careful:
                raise
    raise AssertionError


class Decoder:
    """Builds the value of one tree."""

    def __init__(self, buffers: List[memoryview]) -> None:
        self.buffers = buffers
        self.used: set[int] = set()
        # Arrays that became lists for want of numpy: the list and what it was, by its id.
        self.arrays: Dict[int, Any] = {}

    def buffer(self, index: Any) -> memoryview:
        """Returns a buffer; each is used once, so that its contents do not multiply."""
        wanted(type(index) is int and 0 <= index < len(self.buffers), "no such buffer")
        wanted(index not in self.used, "a buffer is used twice")
        self.used.add(index)
        return self.buffers[index]

    def note_array(self, form: str, sizes: List[int], numbers: Any) -> Any:
        self.arrays[id(numbers)] = numbers, form, sizes
        return numbers

    def object(self, members: Dict[str, Any]) -> Any:
        """Called by json for each object, the innermost first."""
        if MARKED not in members:
            return members
        marked = members[MARKED]
        wanted(len(members) == 1 and type(marked) is list and marked and type(marked[0]) is str,
               "a mark without a kind")
        reader = MARKS.get(marked[0])
        wanted(reader, "an unknown kind of value, %s" % ascii(marked[0])[:60])
        try:
            return reader(self, *marked[1:])
        except (Malformed, MissingLibrary):
            raise
        except RecursionError:
            raise
        except Exception as e:
            # A library's own check; its message may quote what the guest sent.
            raise Malformed("%s: %s: %s" % (marked[0], type(e).__name__,
                                            ascii(str(e))[:200])) from None


def no_constant(text: str) -> Any:
    raise Malformed("its tree is not strict JSON")


def decode_value(data: Any) -> Any:
    """Returns the value of a container; raises Malformed or MissingLibrary.

    Arrays and columns are views of `data`, which must not change afterwards.
    """
    return decode_noted(data)[0]


def decode_noted(data: Any) -> Tuple[Any, Dict[int, Any]]:
    """Returns the value of a container and the arrays that became lists, for Projection."""
    tree, buffers = unpack_container(data)
    decoder = Decoder(buffers)
    try:
        text = str(tree, "utf-8")
        hook = decoder.object if MARKED in text else None
        return read_json(text, hook, no_constant), decoder.arrays
    except (Malformed, MissingLibrary):
        raise
    except RecursionError:
        raise Malformed("it is nested too deeply") from None
    except (ValueError, OverflowError, MemoryError) as e:
        raise Malformed("its tree is not valid: %s" % ascii(str(e))[:200]) from None


class Projection:
    """Projects values to JSON, for schemas, records and other languages (docs/values.md).

    Arrays and frames of more than `most` elements become an object that describes them; None: all
    elements go. A float that is not finite is null within an array or frame.
    """

    def __init__(self, most: Any, nulls: bool = False, arrays: Any = None) -> None:
        self.most = most
        self.arrays = arrays or {}      # lists that stand for arrays; see Decoder
        self.nulls = nulls      # floats that are not finite become null everywhere

    def number(self, value: float) -> Any:
        """A number within an array or a frame; what JSON has no form for becomes null."""
        return value if math.isfinite(value) else None

    def value(self, value: Any, path: Any) -> Any:
        kind = type(value)
        if kind is float:
            return self.number(value) if self.nulls else value
        if value is None or kind in (str, bool, int):
            return value
        if kind is list:
            return self.members(value, path)
        if kind is dict:
            return self.items(value, path, "[%s]")
        handler = PROJECTIONS.get(qualified(kind))
        if handler is not None:
            return handler(self, value, path)
        for base in (str, bool, int, float, list, dict):
            if isinstance(value, base) and not hasattr(value, "dtype"):
                return self.value(str.__str__(value) if base is str else base(value), path)
        handler = find_handler(PROJECTIONS, value)
        if handler is not None:
            return handler(self, value, path)
        fields = fields_of(value)
        if fields is not None:
            return self.items(fields, path, ".%s")
        return self.value(one_level(value, path), path)

    def members(self, value: List[Any], path: Any) -> Any:
        if id(value) in self.arrays:
            _, form, sizes = self.arrays[id(value)]
            if self.most is not None and math.prod(sizes) > self.most:
                return describe_array(form, sizes)
        return [self.value(v, (path, "[%s]", i)) for i, v in enumerate(value)]

    def items(self, value: Dict[Any, Any], path: Any, form: str) -> Any:
        return {self.key(key, path): self.value(v, (path, form, key)) for key, v in value.items()}

    def key(self, key: Any, path: Any) -> Any:
        try:
            made = self.value(key, path)
        except Refused as e:
            raise Refused(path, "a dict with a key that is %s" % e.problem) from None
        if not isinstance(made, (str, int, float, type(None))):
            raise Refused(path, "a dict with a key %s, and keys of JSON are str"
                          % type_words(key))
        return made


def project_value(value: Any, most: Any = None) -> Any:
    """Returns the JSON projection of a value; raises Refused for what has none."""
    return Projection(most).value(value, None)
