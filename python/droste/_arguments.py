"""Checks of arguments, and their form for the library: seconds, checkpoints, fields of answers."""
from __future__ import annotations

import math
from typing import Any, Dict, Mapping, Optional, Sequence

from ._values import check_name, to_json
from .errors import ArgumentError

JSON_TYPES = {"str": "string", "int": "integer", "float": "number", "bool": "boolean",
              "list": "array", "dict": "object", "NoneType": "null"}


def seconds(timeout: Optional[float]) -> float:
    """Converts a cell's timeout for the library: negative is the default, 0 is none."""
    if timeout is None:
        return -1.0
    try:
        given = float(timeout)
    except (TypeError, ValueError, OverflowError):
        given = math.nan
    if not given >= 0:
        raise ArgumentError("a timeout must be a number of seconds, or 0 for none, not %r"
                            % (timeout,))
    return given if given < math.inf else 0.0


def exact_id(checkpoint: Any) -> int:
    if type(checkpoint) is not int or not 0 <= checkpoint < 2**32:
        raise ArgumentError("a checkpoint is the int that checkpoint() returned, not %r"
                            % (checkpoint,))
    return checkpoint


def schema_of_fields(fields: Optional[Sequence[Any]]) -> Optional[bytes]:
    """Returns a JSON schema for names, or for dspy's {"name": …, "type": a Python type}."""
    if not fields:
        return None
    properties: Dict[str, Any] = {}
    for field in fields:
        name = field["name"] if isinstance(field, Mapping) else str(field)
        kind = field.get("type") if isinstance(field, Mapping) else None
        properties[check_name(name)] = {"type": JSON_TYPES[kind]} if kind in JSON_TYPES else {}
    return to_json({"type": "object", "properties": properties, "required": list(properties)})
