"""The user's namespace, submissions, and the summary of variables."""
from __future__ import annotations

import builtins
import re
import sys
import types
from typing import TYPE_CHECKING, Any, Callable, Iterable, NoReturn

from .errors import Submitted
from .frames import plain, PREVIEW, shorten, SUMMARY, type_name
from .state import state
from droste._encoding.codec import encode_value, is_plain_json, project_value
from droste._encoding.container import text_bytes
from droste._encoding.json_text import write_strict_json
from droste._encoding.marks import Refused, write_path

if TYPE_CHECKING:
    from .aliases import Head

# The suffix of context_0, context_1...: the host restores them together with `context`.
NUMBER = r"_[0-9]+$"


RESULTS_BYTES = 64 << 20    # of all bundles of a cell; src/session/bundles.h
RESULTS_MAX = 1000          # bundles of a cell


class Showing:
    """What the current cell has shown, and how much it may still show."""

    def __init__(self, head: Head) -> None:
        self.collects = bool(head.get("results"))
        self.prints = not self.collects or bool(head.get("print"))
        self.ordered = bool(head.get("ordered"))    # among what is printed
        # An integer is the cell's limit in bytes; earlier hosts send true.
        limit = head.get("results")
        self.limit = min(limit, RESULTS_BYTES) if type(limit) is int else RESULTS_BYTES
        one = head.get("result")
        self.one = min(one, self.limit) if type(one) is int else self.limit
        self.whole = head.get("whole", 0)   # bytes of an exception's text; 0: it is cut
        self.forget()

    def forget(self) -> None:
        """Counts from zero again, after clear_output()."""
        self.room, self.count = self.limit, 0
        self.sizes: dict[str, int] = {}     # bytes of the results that can be updated, by id


class Session:
    """The state of one session: its namespace, its answer, and the last summary sent."""

    def __init__(self) -> None:
        self.running: int | None = None
        self.was_interrupted = False
        self.submitted: list[bytes] | None = None
        self.values: list[Any] | None = None    # the fields that JSON does not keep
        self.typed = 0              # version of typed values that the host reads; 0: none
        self.only_values = False    # the host needs no JSON of what is submitted
        self.output_fields: list[str] | None = None
        self.summary: list[Head] | None = None
        self.buffers: dict[str, list[Any]] = {}
        self.volume: str | None = None      # path of the mounted volume
        self.workspace: str | None = None
        self.repo: str | None = None
        self.tools: dict[str, Callable[..., Any]] = {}
        self.programs: dict[str, Any] = {}
        self.executions: list[Head] = []
        self.showing = Showing({})
        self.sources: list[str] = []
        self.event_loop: Any = None
        self.setup: types.CodeType | None = None       # code that runs before each cell
        self.item: Callable[[], None] | None = None     # in a fork of fork_map: handles its item
        self.is_set_up = False  # the setup code has run since the last cell
        # Names that restore() binds again after each cell, and their values.
        self.restored: Iterable[str] = ()
        self.given: dict[str, Any] = {}
        main = types.ModuleType("__main__")
        self.namespace = main.__dict__
        self.use(builtins)
        sys.modules["__main__"] = main

    def start(self) -> None:
        self.namespace["answer"] = {"content": "", "ready": False}

    def restore_names(self, names: Iterable[str]) -> None:
        """Sets the names that restore() resets to the host's values after each cell."""
        self.restored = names
        self.given = {name: self.namespace[name] for name in names if name in self.namespace}

    def bind(self, name: str, value: Any) -> None:
        """Binds a value that the host has sent."""
        self.namespace[name] = value
        if name in self.restored or re.sub(NUMBER, "", name) in self.restored:
            self.given[name] = value

    def restore(self) -> None:
        """Resets the host's names: binds the same values again and unhides built-ins.

        Keeps an `answer` that is a dict, because later cells may go on filling it in.
        """
        for name, value in self.given.items():
            if name != "answer" or type(self.namespace.get(name)) is not dict:
                self.namespace[name] = value
        for name in self.restored:
            if name not in self.given and name in vars(self.builtins):
                self.namespace.pop(name, None)

    def use(self, names: types.ModuleType) -> None:
        """Sets the built-ins of the user's code, which differ from the guest's under rules."""
        self.builtins = self.namespace["__builtins__"] = names


LONG = 65536        # characters of a text that is encoded separately
CONTROLS = [bytes([c]) for c in range(32) if c not in b"\n\t\r"]
ELSEWHERE = b"NaN"  # placeholder in an outline for a text in another part; not valid JSON


def quote_long(text: str) -> bytes:
    """Encodes a long str as JSON, several times faster than json.dumps()."""
    data = text.encode("utf-8")
    for character, written in ((b"\\", b"\\\\"), (b'"', b'\\"'), (b"\n", b"\\n"), (b"\t", b"\\t"),
                               (b"\r", b"\\r")):
        data = data.replace(character, written)
    if any(control in data for control in CONTROLS):    # memchr() each: faster than one pattern
        return dump_json(text)
    return b"".join([b'"', data, b'"'])


def to_json(value: Any, beside: list[bytes] | None = None, at: str = "") -> bytes:
    """Encodes a value as strict JSON; raises ValueError or TypeError with a path to the culprit.

    If `beside` is a list, long texts among the fields are appended to it, and the result is an
    outline with placeholders. `at` names the value in errors; without it, fields go by their keys.
    """
    def write(v: Any) -> bytes:
        if type(v) is not str or len(v) <= LONG:
            return dump_json(v)
        if beside is None:
            return quote_long(v)
        beside.append(text_bytes(v) if v.isascii() else v.encode("utf-8"))
        return ELSEWHERE
    try:
        if type(value) is not dict or not any(type(v) is str and len(v) > LONG
                                              for v in value.values()):
            return dump_json(value)
        members = [dump_json({name: None})[1:-5] + write(v) for name, v in value.items()]
        return b"{" + b", ".join(members) + b"}"
    except UnicodeEncodeError:
        raise ValueError("a lone surrogate is not text; encode the bytes in another way, for "
                         "example as base64") from None
    except Refused as e:
        raise TypeError(find_refused(value, at) or not_json(e)) from None
    except TypeError as e:
        raise TypeError(find_refused(value, at) or str(e)) from None


JSON_KEYS = (str, int, float, type(None))       # bool is an int


def find_refused(value: Any, at: str = "") -> str | None:
    """Returns the path and type of the first member that is not JSON, or None."""
    if isinstance(value, JSON_KEYS):
        return None
    if isinstance(value, dict):
        odd = next((key for key in value if not isinstance(key, JSON_KEYS)), None)
        if odd is not None:
            return "%s has a key of type %s; keys in JSON must be str" % (
                at or "the value", type(odd).__name__)
        parts = [("%s[%r]" % (at, shorten(k, 60) if isinstance(k, str) else k) if at else str(k), v)
                 for k, v in value.items()]
    elif isinstance(value, (list, tuple)):
        parts = [("%s[%d]" % (at, i), v) for i, v in enumerate(value)]
    else:
        try:
            simplify(value)
            return None
        except Refused as e:
            at = write_path(e.path, at)
            return "%s: %s" % (at, not_json(e)) if at else not_json(e)
    return next(filter(None, (find_refused(v, k) for k, v in parts)), None)


def to_parts(fields: dict[str, Any]) -> list[bytes]:
    """Encodes a submission for RESULT: the outline, then the long texts without quoting."""
    texts: list[bytes] = []
    return [to_json(fields, texts), *texts]


def dump_json(value: Any) -> bytes:
    try:
        text = write_strict_json(value, simplify)
    except ValueError as e:
        if "Out of range float" in str(e):
            raise ValueError("NaN and Infinity are not JSON; use None or a string") from None
        raise
    return text.encode("utf-8")


PROJECTED = 100000      # elements of an array that go as JSON beside the typed value


def simplify(value: Any) -> Any:
    """Projects a value that json rejects; raises Refused if it has no JSON form."""
    return project_value(value, PROJECTED if state.session.typed else None)


def not_json(refused: Refused) -> str:
    return ("a value %s is not JSON; submit str, int, float, bool, None, list or dict, or a type "
            "of docs/values.md" % refused.problem)


def encode_values(fields: dict[str, Any]) -> list[Any]:
    try:
        return encode_value(fields)
    except Refused as e:
        where = write_path(e.path, "")      # begins with the name of the field, as a key
        raise TypeError("%s is %s, which cannot leave the sandbox" % (
            where[2:].replace("']", "", 1), e.problem)) from None


def encode_odd(fields: dict[str, Any]) -> list[Any] | None:
    """Encodes the fields that JSON does not keep; None if it keeps all, or the host wants none."""
    if not state.session.typed:
        return None
    odd = {name: value for name, value in fields.items() if not is_plain_json(value)}
    return encode_values(odd) if odd else None


def submit_fields(fields: dict[str, Any]) -> None:
    """Sets what the cell submits."""
    state.session.submitted = state.session.values = None
    if state.session.only_values:
        values = encode_values(fields)
        state.session.submitted = [b"{}"]
    else:
        submitted = to_parts(fields)
        values = encode_odd(fields)
        state.session.submitted = submitted
    state.session.values = values


def SUBMIT(*values: Any, **fields: Any) -> NoReturn:
    """Ends the cell with a result: SUBMIT(name=value, ...).

    A single positional value becomes the field `output`, several become a list in that field. If
    the session has named output fields, positional values fill these in order. Values must be
    strict JSON that fits the session's schema; otherwise the cell fails with an error.
    """
    if state.session.output_fields:
        fields = name_values(state.session.output_fields, values, fields)
    elif values and fields:
        raise TypeError("SUBMIT takes values or name=value, not both")
    elif values:
        fields = {"output": values[0] if len(values) == 1 else list(values)}
    elif not fields:
        fields = {"output": []}
    submit_fields(fields)
    raise Submitted


def name_values(names: list[str], values: Any, fields: dict[str, Any]) -> dict[str, Any]:
    """Assigns positional values to the output fields in order.

    A single dict with at least one of these names as a key counts as all fields.
    """
    if len(values) == 1 and not fields and type(values[0]) is dict and (
            any(name in names for name in values[0])):
        return values[0]
    if len(values) > len(names):
        raise TypeError("SUBMIT takes the fields %s, got %d values"
                        % (", ".join(names), len(values)))
    for name, value in zip(names, values):
        if name in fields:
            raise TypeError("SUBMIT got two values for %r" % name)
        fields[name] = value
    return fields


def FINAL(value: Any = "") -> NoReturn:
    """Ends the cell with `value` as the answer."""
    if state.session.output_fields:
        SUBMIT(value)
    SUBMIT(answer=value)


def FINAL_VAR(name: Any) -> NoReturn:
    """Ends the cell with the variable `name` as the answer."""
    name = str(name).strip().strip("\"'")
    if name not in state.session.namespace:
        raise NameError("FINAL_VAR: there is no variable %r; assign it in a code block first. %s"
                        % (name, SHOW_VARS()))
    FINAL(state.session.namespace[name])


def SHOW_VARS() -> str:
    """Returns the names and types of the current variables as text."""
    found = {name: type(value).__name__ for name, value in user_variables() if name != "answer"}
    if not found:
        return "No variables created yet. Use ```repl``` blocks to create variables."
    return "Available variables: %s" % found


def user_variables() -> list[tuple[str, Any]]:
    return [(name, value) for name, value in list(state.session.namespace.items())
            if type(name) is str and not name.startswith("_")
            and type(value) is not types.ModuleType]


PLAIN = (int, float, bool, complex, type(None))


def describe(name: str, value: Any) -> Head:
    """Describes a variable for the summary.

    Only exact built-in types are inspected: the __len__ or __repr__ of other types may hang, raise
    or be wrong.
    """
    kind = type(value)
    entry: Head = {"name": plain(name[:200]), "type": plain(type_name(kind)[:200])}
    if kind in (str, bytes, bytearray):
        entry["length"] = len(value)
        entry["preview"] = repr(value[:PREVIEW])
    elif kind in (list, tuple, dict, set, frozenset):
        entry["length"] = len(value)
    elif kind in PLAIN and not (kind is int and value.bit_length() > 1000):
        entry["preview"] = repr(value)
    return entry


def variables_if_changed() -> list[Head] | None:
    """Returns the summary, or None if it equals the previous one."""
    found = [describe(name, value) for name, value in user_variables()[:SUMMARY]]
    if found == state.session.summary:
        return None
    state.session.summary = found
    return found
