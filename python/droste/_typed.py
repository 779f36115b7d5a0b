"""Typed values on their way to and from a sandbox, in the encoding of docs/values.md.

Values go as containers of `_encoding`, the codec that the guest uses, too. What a guest sends is
checked: it makes only the types of that page, and where a JSON form comes with it, which the
library has checked against a schema, both must say the same.
"""
from __future__ import annotations

import ctypes
import json
from typing import Any, Dict, List, Optional, Tuple

from ._encoding import codec, container, marks
from ._library import Piece
from ._values import Data, encode
from .errors import ArgumentError, MissingLibrary, ProtocolError

PROJECTED = 100000      # elements of an array that have a JSON form; core/session.py in the guest
FORMS = ("give str, bytes, numbers, bool, None, lists, dicts, dataclasses, pydantic models, or "
         "another type of docs/values.md")


def refusal(e: marks.Refused, at: str) -> ArgumentError:
    return ArgumentError("%s is %s, which cannot go into a sandbox: %s"
                         % (marks.write_path(e.path, at), e.problem, FORMS))


def encode_typed(value: Any, at: str) -> Tuple[bytes, List[Any]]:
    """Returns the kind and the data, in pieces, for droste_session_set_pieces_start().

    Raises ArgumentError with the path to what cannot be sent.
    """
    if type(value) is str:
        return b"text", [container.text_bytes(value) if value.isascii()
                         else value.encode("utf-8", "replace")]
    if type(value) is bytes:
        return b"bytes", [value]
    try:
        if codec.json_keeps(value):
            try:
                return b"json", [json.dumps(value, allow_nan=False, ensure_ascii=False).encode()]
            except ValueError:      # a float that is not finite, or a lone surrogate
                pass
        return b"values", codec.encode_value(value)
    except marks.Refused as e:
        raise refusal(e, at) from None
    except RecursionError:
        raise ArgumentError("%s is nested too deeply, or contains itself" % at) from None


def encode_both(value: Any, at: str) -> Tuple[bytes, Optional[bytes]]:
    """Returns a value as JSON and, if JSON does not keep it, as a container."""
    try:
        if codec.is_plain_json(value):
            try:
                return json.dumps(value, allow_nan=False, ensure_ascii=False).encode(), None
            except ValueError:      # a float that is not finite, or a lone surrogate
                pass
        return project_typed(value, at), b"".join(codec.encode_value(value))
    except marks.Refused as e:
        raise refusal(e, at) from None
    except RecursionError:
        raise ArgumentError("%s is nested too deeply, or contains itself" % at) from None


def encode_context(value: Any) -> Tuple[bytes, Data]:
    """Returns the kind and the data of a run's context; an ASCII str is not copied."""
    if type(value) is str and value.isascii():
        return b"text", value
    if isinstance(value, (str, bytes, bytearray, memoryview)) and not hasattr(value, "dtype"):
        return encode(value)
    kind, data = encode_typed(value, "context")
    return kind, b"".join(data)


def project_typed(value: Any, at: str) -> bytes:
    """Returns the JSON form of a value, beside its encoding."""
    try:
        projected = codec.Projection(PROJECTED, True).value(value, None)
        return json.dumps(projected, allow_nan=False, ensure_ascii=False).encode("utf-8", "replace")
    except marks.Refused as e:
        raise refusal(e, at) from None
    except RecursionError:
        raise ArgumentError("%s is nested too deeply for JSON, or contains itself" % at) from None
    except ValueError as e:
        raise ArgumentError("%s cannot be written as JSON: %s" % (at, e)) from None


def pieces_of(data: List[Any]) -> Tuple[Any, List[Any]]:
    """Returns an array of `Piece`, and what must live as long as it."""
    pieces, alive = (Piece * max(len(data), 1))(), []
    for piece, part in zip(pieces, data):
        if not isinstance(part, bytes) and memoryview(part).readonly:
            part = bytes(part)
        if isinstance(part, bytes):
            piece.data = ctypes.cast(ctypes.c_char_p(part), ctypes.c_void_p).value
            alive.append(part)
        else:
            memory = (ctypes.c_char * len(part)).from_buffer(part)
            piece.data = ctypes.addressof(memory)
            alive.append(memory)
        piece.len = len(part)
    return pieces, alive


def view_memory(address: int, length: int, owner: Any) -> memoryview:
    """A view of the library's memory, which lives as long as `owner`, which the view keeps."""
    memory = (ctypes.c_char * length).from_address(address)
    memory.owner = owner    # type: ignore
    return memoryview(memory).cast("B")


def decode_typed(data: Any, what: str) -> Any:
    """Decodes what a guest sent; raises ProtocolError or MissingLibrary."""
    return decode_noted(data, what)[0]


def decode_variable(data: Any, name: str) -> Any:
    """Decodes what a cell has submitted, under this name and no other."""
    fields = decode_typed(data, "the variable")
    if type(fields) is not dict or list(fields) != [name]:
        raise ProtocolError("the sandbox sent another value than the one that was asked for")
    return fields[name]


def decode_noted(data: Any, what: str) -> Tuple[Any, Dict[int, Any]]:
    """The same, with the arrays that became lists because numpy is missing here."""
    try:
        return codec.decode_noted(data)
    except container.MissingLibrary as e:
        raise MissingLibrary("%s: %s; install it in this environment, or use the JSON form (%s)"
                             % (what, e, "get(name, plain=True), Result.json")) from None
    except container.Malformed as e:
        raise ProtocolError("the sandbox sent %s in an encoding that is not valid: %s"
                            % (what, e)) from None


def canonical(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def merge_typed(fields: Dict[str, Any], data: Any, what: str) -> Dict[str, Any]:
    """Replaces the fields that a guest has sent as typed values, too.

    The JSON has been checked against a schema; a value that does not have this JSON form is
    refused.
    """
    return merge(fields, *decode_noted(data, what), what)


def type_answer(answer: Any, data: Any) -> Any:
    """Gives the answer of a run its types: it is the submitted fields, or the only one of them."""
    typed, arrays = decode_noted(data, "the answer")
    if type(typed) is dict and list(typed) in (["answer"], ["output"]):
        value = next(iter(typed.values()))
        if has_form(value, answer, arrays):
            return value
    return merge(dict(answer) if type(answer) is dict else {}, typed, arrays, "the answer")


def merge(fields: Dict[str, Any], typed: Any, arrays: Dict[int, Any], what: str) -> Dict[str, Any]:
    if type(typed) is not dict:
        raise ProtocolError("the sandbox sent %s in an encoding that is not a dict" % what)
    for name, value in typed.items():
        if name not in fields or not has_form(value, fields[name], arrays):
            raise ProtocolError("the sandbox sent two different values for %s in %s"
                                % (ascii(name)[:80], what))
        fields[name] = value
    return fields


def has_form(value: Any, form: Any, arrays: Dict[int, Any]) -> bool:
    """Whether the JSON form of a value is this one."""
    try:
        projected = codec.Projection(PROJECTED, True, arrays).value(value, None)
        return canonical(json.loads(json.dumps(projected))) == canonical(form)
    except (marks.Refused, ValueError, RecursionError, TypeError, OverflowError):
        return False


def read_values(function: Any, handle: int, owner: Any) -> Optional[memoryview]:
    """Returns the container of a result or call, or None."""
    length = ctypes.c_size_t()
    address = function(handle, ctypes.byref(length))
    return view_memory(address, length.value, owner) if address else None
