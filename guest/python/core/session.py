"""The namespace, as the user's code sees it, and how it gives its answer."""
import builtins
import json
import os
import re
import sys
import types

from .errors import Submitted
from .frames import plain, PREVIEW, shorten, SUMMARY, type_name
from .state import state

NUMBER = re.compile(r"_[0-9]+$")    # of context_0, context_1...: where `context` is restored, they are, too


class Session:
    """The state of one session: its namespace, its answer, what the host was told last."""

    def __init__(self):
        self.running = None
        self.was_interrupted = False
        self.submitted = None
        self.output_fields = None
        self.summary = None
        self.buffers = {}
        self.volume = None      # where it is
        self.workspace = self.repo = None
        self.tools = {}
        self.programs, self.executions, self.sources = {}, [], []
        self.event_loop = None
        self.setup = None       # code that runs before each cell
        self.is_set_up = False  # it has just run
        self.restored, self.given = (), {}      # names that are the host's again after each cell, and its values
        main = types.ModuleType("__main__")
        self.namespace = main.__dict__
        self.use(builtins)
        sys.modules["__main__"] = main

    def start(self):
        self.namespace["answer"] = {"content": "", "ready": False}

    def restore_names(self, names):
        """Has these names mean after each cell what the host has given by them."""
        self.restored = names
        self.given = {name: self.namespace[name] for name in names if name in self.namespace}

    def bind(self, name, value):
        """A value of the host's."""
        self.namespace[name] = value
        if name in self.restored or NUMBER.sub("", name) in self.restored:
            self.given[name] = value

    def restore(self):
        """A value is bound again, the very object; a function is a built-in, and seen where no variable hides it. An `answer` that is
        a dict stays: it may be what the code goes on to fill in."""
        for name, value in self.given.items():
            if name != "answer" or type(self.namespace.get(name)) is not dict:
                self.namespace[name] = value
        for name in self.restored:
            if name not in self.given and name in vars(self.builtins):
                self.namespace.pop(name, None)

    def use(self, names):
        """The built-ins of the user's code; rules give it others than this file has."""
        self.builtins = self.namespace["__builtins__"] = names



LONG = 65536        # characters
CONTROLS = [bytes([c]) for c in range(32) if c not in b"\n\t\r"]
ELSEWHERE = b"NaN"  # in an outline: a text that comes beside it. JSON has no such value


def quote_long(text):
    """A long str as JSON, some times faster than json writes it."""
    data = text.encode("utf-8")
    for character, written in ((b"\\", b"\\\\"), (b'"', b'\\"'), (b"\n", b"\\n"), (b"\t", b"\\t"), (b"\r", b"\\r")):
        data = data.replace(character, written)
    if any(control in data for control in CONTROLS):    # each a memchr: faster than to look for all at once
        return dump_json(text)
    return b"".join([b'"', data, b'"'])


def to_json(value, beside=None, at=""):
    """Strict JSON as bytes; raises ValueError or TypeError in words for the cell's author. Long texts that are
    fields go into the list `beside`, if there is one, and what is returned is the outline. `at` is what the value is
    called; else a dict's members are called by their keys."""
    def write(v):
        if type(v) is not str or len(v) <= LONG:
            return dump_json(v)
        if beside is None:
            return quote_long(v)
        beside.append(v.encode("utf-8"))
        return ELSEWHERE
    try:
        if type(value) is not dict or not any(type(v) is str and len(v) > LONG for v in value.values()):
            return dump_json(value)
        return b"{" + b", ".join([dump_json({name: None})[1:-5] + write(v) for name, v in value.items()]) + b"}"
    except UnicodeEncodeError:
        raise ValueError("a lone surrogate is not text; encode the bytes another way, "
                         "for example base64") from None
    except TypeError as e:
        raise TypeError(find_refused(value, at) or str(e)) from None


JSON_KEYS = (str, int, float, type(None))       # bool is an int


def find_refused(value, at=""):
    """What of a value is not JSON, by the path to it and its type; None where nothing is found."""
    if isinstance(value, JSON_KEYS):
        return None
    if isinstance(value, dict):
        odd = next((key for key in value if not isinstance(key, JSON_KEYS)), None)
        if odd is not None:
            return "%s has a key of type %s; keys of JSON are str" % (at or "the value", type(odd).__name__)
        parts = [("%s[%r]" % (at, shorten(k, 60) if isinstance(k, str) else k) if at else str(k), v)
                 for k, v in value.items()]
    elif isinstance(value, (list, tuple)):
        parts = [("%s[%d]" % (at, i), v) for i, v in enumerate(value)]
    else:
        try:
            return find_refused(simplify(value), at)
        except TypeError as e:
            return "%s: %s" % (at, e) if at else str(e)
    return next(filter(None, (find_refused(v, k) for k, v in parts)), None)


def to_parts(fields):
    """A submission as a RESULT has it: the outline, and the texts beside it, which need not be quoted."""
    texts = []
    return [to_json(fields, texts), *texts]


def dump_json(value):
    try:
        text = json.dumps(value, allow_nan=False, ensure_ascii=False, default=simplify)
    except ValueError as e:
        if "Out of range float" in str(e):
            raise ValueError("NaN and Infinity are not JSON; submit None or a string") from None
        raise
    return text.encode("utf-8")


def simplify(value):
    """What json cannot write but means something plain: sets, numpy's numbers, paths."""
    if isinstance(value, (set, frozenset)):
        return list(value)
    for method in ("tolist", "item"):
        if hasattr(value, method) and type(value).__module__.split(".")[0] in ("numpy", "array"):
            return getattr(value, method)()
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    raise TypeError("a value of type %s is not JSON; submit str, int, float, bool, None, list or "
                    "dict" % type(value).__name__)


def SUBMIT(*values, **fields):
    """Ends the cell with a result: SUBMIT(name=value, ...).

    One positional value is the field `output`, several are a list under that name; where the host
    said which fields it wants, see name_values. Values are strict JSON, of the type that the host
    wants: it looks, and what does not fit is the cell's error.
    """
    if state.session.output_fields:
        fields = name_values(state.session.output_fields, values, fields)
    elif values and fields:
        raise TypeError("SUBMIT takes values or name=value, not both")
    elif values:
        fields = {"output": values[0] if len(values) == 1 else list(values)}
    elif not fields:
        fields = {"output": []}
    state.session.submitted = to_parts(fields)
    raise Submitted


def name_values(names, values, fields):
    """The fields that the host wants: values without a name have theirs in order; a dict that alone is
    given, and has such names, is all of them."""
    if len(values) == 1 and not fields and type(values[0]) is dict and (
            any(name in names for name in values[0])):
        return values[0]
    if len(values) > len(names):
        raise TypeError("SUBMIT takes the fields %s, got %d values" % (", ".join(names), len(values)))
    for name, value in zip(names, values):
        if name in fields:
            raise TypeError("SUBMIT got two values for %r" % name)
        fields[name] = value
    return fields


def FINAL(value=""):
    """Ends the cell with `value` as the answer."""
    if state.session.output_fields:
        SUBMIT(value)
    SUBMIT(answer=value)


def FINAL_VAR(name):
    """Ends the cell with the variable of this name as the answer."""
    name = str(name).strip().strip("\"'")
    if name not in state.session.namespace:
        raise NameError("FINAL_VAR: there is no variable %r; assign it in a code block first. %s"
                        % (name, SHOW_VARS()))
    FINAL(state.session.namespace[name])


def SHOW_VARS():
    """The names and types of the variables so far, as text."""
    found = {name: type(value).__name__ for name, value in user_variables() if name != "answer"}
    if not found:
        return "No variables created yet. Use ```repl``` blocks to create variables."
    return "Available variables: %s" % found


def user_variables():
    return [(name, value) for name, value in list(state.session.namespace.items())
            if type(name) is str and not name.startswith("_")
            and type(value) is not types.ModuleType]


PLAIN = (int, float, bool, complex, type(None))


def describe(name, value):
    """One variable for the summary. Only exact built-in types are looked into: a stranger's __len__
    or __repr__ could take for ever, raise or lie."""
    kind = type(value)
    entry = {"name": plain(name[:200]), "type": plain(type_name(kind)[:200])}
    if kind in (str, bytes, bytearray):
        entry["length"] = len(value)
        entry["preview"] = repr(value[:PREVIEW])
    elif kind in (list, tuple, dict, set, frozenset):
        entry["length"] = len(value)
    elif kind in PLAIN and not (kind is int and value.bit_length() > 1000):
        entry["preview"] = repr(value)
    return entry


def variables_if_changed():
    """The summary, or None where nothing was bound, deleted or changed in length since the last."""
    found = [describe(name, value) for name, value in user_variables()[:SUMMARY]]
    if found == state.session.summary:
        return None
    state.session.summary = found
    return found
