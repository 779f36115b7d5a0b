"""Functions of MCP servers: modules of functions with types, and Python values of their results.

A server is a stranger. Its names were made identifiers by the host, and its texts bounded; here,
schemas become annotations only to a limited depth, and nothing of a server is executed.
"""
from __future__ import annotations

import sys
import types
from typing import Any, Callable

from .frames import shorten
from .state import state

NAMES = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None",
         "array": "list", "object": "dict"}
DEPTH, CHOICES, LONGEST = 4, 12, 200
BRIEF = 160         # characters of a description in the list for the model
SHORT_LIST = 60     # functions of a module that are described there; of more, names are enough


class Shape:
    """An annotation that is shown as it is written."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


class Media(bytes):
    """The bytes of an image, an audio or a file that a function has returned.

    `type` is its MIME type, and `uri` that of a resource; display() shows images.
    """
    type = ""
    uri = ""

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        text = "<%s, %d bytes>" % (self.type or "data", len(self))
        shown: dict[str, Any] = {"text/plain": text}
        if self.type in ("image/png", "image/jpeg", "image/gif"):
            import base64
            shown[self.type] = base64.b64encode(self).decode()
        return shown


def find_shape(schema: Any, root: Any, depth: int = 0) -> str:
    """Writes a JSON schema as a type of Python; Any beyond what can be said briefly."""
    if not isinstance(schema, dict) or depth > DEPTH:
        return "Any"
    reference = schema.get("$ref")
    if isinstance(reference, str):
        for key in ("$defs", "definitions"):
            known, start = root.get(key), "#/%s/" % key
            if isinstance(known, dict) and reference.startswith(start):
                return find_shape(known.get(reference[len(start):]), root, depth + 1)
        return "Any"
    choices = schema.get("enum", [schema["const"]] if "const" in schema else None)
    if isinstance(choices, list) and 0 < len(choices) <= CHOICES:
        if all(isinstance(choice, (str, int, type(None))) for choice in choices):
            return "Literal[%s]" % ", ".join(map(repr, choices))
    kinds = schema.get("anyOf") or schema.get("oneOf")
    if not isinstance(kinds, list):
        kind = schema.get("type")
        kinds = [dict(schema, type=one) for one in kind] if isinstance(kind, list) else None
    if kinds:
        shapes = list(dict.fromkeys(find_shape(kind, root, depth + 1) for kind in kinds[:CHOICES]))
        return "Any" if "Any" in shapes else " | ".join(shapes)
    return find_plain_shape(schema, root, depth)


def find_plain_shape(schema: Any, root: Any, depth: int) -> str:
    kind = schema.get("type")
    if kind == "array" and isinstance(schema.get("items"), dict):
        return "list[%s]" % find_shape(schema["items"], root, depth + 1)
    if kind == "object":
        fields, more = schema.get("properties"), schema.get("additionalProperties")
        if isinstance(fields, dict) and fields:
            known = ("%r: %s" % (name, find_shape(field, root, depth + 1))
                     for name, field in list(fields.items())[:CHOICES])
            return "{%s%s}" % (", ".join(known), ", …" if len(fields) > CHOICES else "")
        if isinstance(more, dict) and more:
            return "dict[str, %s]" % find_shape(more, root, depth + 1)
    return NAMES.get(kind, "Any") if isinstance(kind, str) else "Any"


def make_shape(schema: Any, root: Any) -> Shape:
    text = find_shape(schema, root)
    return Shape(text if len(text) <= LONGEST else
                 "list" if text.startswith("list") else "dict" if text[0] == "{" else "Any")


# -- results

def is_wrapped(returns: Any) -> bool:
    """Whether an object with the one field `result` stands for a value that is not an object."""
    fields = returns.get("properties") if isinstance(returns, dict) else None
    return isinstance(fields, dict) and list(fields) == ["result"]


def make_returns(returns: Any) -> Shape:
    if not returns:
        return Shape("str | bytes | list")
    return make_shape(returns["properties"]["result"] if is_wrapped(returns) else returns, returns)


def read_block(block: Any) -> Any:
    """A part of a result: a text, bytes, or the object as it is."""
    if not isinstance(block, dict):
        return block
    if block.get("type") == "text":
        return block.get("text", "")
    inner = block.get("resource") if block.get("type") == "resource" else block
    if not isinstance(inner, dict):
        return block
    if isinstance(inner.get("text"), str):
        return inner["text"]
    data = inner.get("data", inner.get("blob"))
    if not isinstance(data, str):
        return block
    try:
        import base64
        media = Media(base64.b64decode(data))
    except ValueError:
        return block
    media.type, media.uri = str(inner.get("mimeType", "")), str(inner.get("uri", ""))
    return media


def read_result(result: Any, returns: Any) -> Any:
    """The value of a result: what is structured, else its one part, else the list of them."""
    if not isinstance(result, dict):
        return result
    value = result.get("structuredContent")
    if value is not None:
        return value["result"] if is_wrapped(returns) and list(value) == ["result"] else value
    content = result.get("content")
    parts = [read_block(block) for block in content] if isinstance(content, list) else []
    return parts[0] if len(parts) == 1 else parts or None


# -- modules

def offer_function(name: str, function: Callable[..., Any]) -> None:
    """Puts the function NAME.FUNCTION into its module, which is made with the first one."""
    module_name, _, short = name.partition(".")
    module = getattr(state.session.builtins, module_name, None)
    if not isinstance(module, types.ModuleType) or not hasattr(module, "__functions__"):
        module = types.ModuleType(module_name, "Functions of the MCP server '%s'." % module_name)
        vars(module)["__functions__"] = {}
        vars(module)["__all__"] = []
        setattr(state.session.builtins, module_name, module)
        if module_name not in sys.modules and is_unknown(module_name):
            sys.modules[module_name] = module      # for code that imports it anyway
    vars(module)["__functions__"][short] = function
    vars(module)["__all__"].append(short)
    function.__module__ = module_name
    setattr(module, short, function)


def is_unknown(name: str) -> bool:
    import importlib.util
    try:
        return importlib.util.find_spec(name) is None
    except (ImportError, ValueError):
        return True


def withdraw_function(name: str) -> None:
    """Removes a function, and its module with the last one."""
    module_name, _, short = name.partition(".")
    module = getattr(state.session.builtins, module_name, None)
    functions = vars(module).get("__functions__", {}) if module is not None else {}
    if functions.pop(short, None) is None:
        return
    delattr(module, short)
    vars(module)["__all__"].remove(short)
    if not functions:
        vars(state.session.builtins).pop(module_name, None)
        if sys.modules.get(module_name) is module:
            del sys.modules[module_name]


def is_long_list(name: str) -> bool:
    module = getattr(state.session.builtins, name.partition(".")[0], None)
    return len(getattr(module, "__functions__", ())) > SHORT_LIST


def shorten_signature(name: str, signature: str) -> str:
    most = BRIEF if is_long_list(name) else 3 * BRIEF
    return signature if len(signature) <= most else signature[:most] + "…)"


def shorten_description(name: str, text: str) -> str:
    """The first line for the list of functions; help() has the rest."""
    lines = [] if is_long_list(name) else text.strip().splitlines()
    return shorten(lines[0], BRIEF) if lines else ""
