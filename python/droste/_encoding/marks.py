"""The parts of the encoding that every kind of value uses: paths, marks and their checks.

A value that JSON has no form for is {"$droste": [kind, ...]} in the tree. MARKS says how each kind
is decoded; WRITERS says by type how values are encoded.
"""
from __future__ import annotations

from typing import Any, Callable, Dict, List

from .container import Malformed

MARKED = "$droste"
#: Kinds and their decoders, which get the Decoder and the rest of the list.
MARKS: Dict[str, Callable[..., Any]] = {}
#: "module.Type" and the encoder of its values, which gets the Encoder, the value and its path.
WRITERS: Dict[str, Callable[..., Any]] = {}
#: The same for the JSON projection, which gets the Projection, the value and its path.
PROJECTIONS: Dict[str, Callable[..., Any]] = {}

SAME_HASHES = 64        # members of a set or dict with one hash: more would take quadratic time


class Refused(TypeError):
    """A value that has no encoding. `problem` says what it is.

    `path` leads to it: None for the value itself, or (path of the parent, form, key).
    """

    def __init__(self, path: Any, problem: str) -> None:
        super().__init__(problem)
        self.path, self.problem = path, problem


def write_path(path: Any, name: str) -> str:
    """Writes a path as Python would: name['rows'][1].inner."""
    words: List[str] = []
    while path is not None:
        path, form, key = path
        words.append(form % (key if isinstance(key, int) and not isinstance(key, bool)
                             or form[0] == "." else short_key(key)))
    return name + "".join(reversed(words))


def short_key(key: Any) -> str:
    text = repr(key) if type(key) in (str, float, bytes, type(None), bool) else type(key).__name__
    return text if len(text) <= 60 else text[:59] + "\u2026"


def mark(kind: str, *rest: Any) -> Dict[str, Any]:
    return {MARKED: [kind] + list(rest)}


def qualified(kind: type) -> str:
    return "%s.%s" % (kind.__module__, kind.__qualname__)


def type_words(value: Any) -> str:
    """Describes the type of a value; never uses its repr."""
    if isinstance(value, type):
        return "the class %s" % value.__qualname__
    kind = type(value)
    if kind.__name__ == "module":
        return "the module %s" % value.__name__
    return "of type %s" % (kind.__qualname__ if kind.__module__ in ("builtins", "__main__")
                           else qualified(kind))


# -- checks of what a decoder gets, which may come from a hostile guest

def wanted(good: Any, what: str) -> None:
    if not good:
        raise Malformed(what)


def is_list(value: Any, what: str) -> List[Any]:
    wanted(type(value) is list, "%s is not a list" % what)
    return value


def is_text(value: Any, what: str, most: int = 1000) -> str:
    wanted(type(value) is str and len(value) <= most, "%s is not a short text" % what)
    return value


def is_number(value: Any, what: str, least: int = -(1 << 63), most: int = (1 << 63) - 1) -> int:
    wanted(type(value) is int and least <= value <= most, "%s is not a number in range" % what)
    return value


def check_hashes(members: Any) -> Any:
    """Checks that members are hashable, and bounds the time that a set or dict of them takes."""
    counts: Dict[int, int] = {}
    for member in members:
        try:
            number = hash(member)
        except TypeError:
            raise Malformed("a member of a set, or a key, is not hashable") from None
        counts[number] = counts.get(number, 0) + 1
        wanted(counts[number] <= SAME_HASHES, "too many members with the same hash")
    return members
