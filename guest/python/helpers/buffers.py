"""Named lists of a session."""
from ..core.state import state


def buffer_name(name):
    return str(name).strip() or "default"


def add_buffer(name, value):
    """Appends a value to the named list of this session; a dict with the name and how many it has now."""
    name = buffer_name(name)
    values = state.session.buffers.setdefault(name, [])
    values.append(value)
    return {"status": "ok", "name": name, "count": len(values)}


def get_buffer(name):
    """A copy of the named list; empty where nothing was added."""
    return list(state.session.buffers.get(buffer_name(name), []))


def clear_buffer(name=None):
    """Empties one named list, or all; a dict that says which."""
    if name is None:
        state.session.buffers.clear()
        return {"status": "ok", "scope": "all"}
    name = buffer_name(name)
    state.session.buffers.pop(name, None)
    return {"status": "ok", "scope": "single", "name": name}
