"""Named lists that outlive a cell."""
from __future__ import annotations

from typing import Any
from ..core.state import state


def buffer_name(name: Any) -> str:
    return str(name).strip() or "default"


def add_buffer(name: Any, value: Any) -> dict[str, Any]:
    """Appends a value to a named list; returns a dict with `status`, `name` and `count`."""
    name = buffer_name(name)
    values = state.session.buffers.setdefault(name, [])
    values.append(value)
    return {"status": "ok", "name": name, "count": len(values)}


def get_buffer(name: Any) -> list[Any]:
    """Returns a copy of the named list; an empty list if nothing was added."""
    return list(state.session.buffers.get(buffer_name(name), []))


def clear_buffer(name: Any = None) -> dict[str, Any]:
    """Clears one named list, or all; returns a dict with `status`, `scope` and `name`."""
    if name is None:
        state.session.buffers.clear()
        return {"status": "ok", "scope": "all"}
    name = buffer_name(name)
    state.session.buffers.pop(name, None)
    return {"status": "ok", "scope": "single", "name": name}
