"""buffers.py: named lists of a session."""


def buffer_name(name):
    return str(name).strip() or "default"


def add_buffer(name, value):
    """Appends a value to the named list of this session; a dict with the name and how many it has now."""
    name = buffer_name(name)
    values = session.buffers.setdefault(name, [])
    values.append(value)
    return {"status": "ok", "name": name, "count": len(values)}


def get_buffer(name):
    """A copy of the named list; empty where nothing was added."""
    return list(session.buffers.get(buffer_name(name), []))


def clear_buffer(name=None):
    """Empties one named list, or all; a dict that says which."""
    if name is None:
        session.buffers.clear()
        return {"status": "ok", "scope": "all"}
    name = buffer_name(name)
    session.buffers.pop(name, None)
    return {"status": "ok", "scope": "single", "name": name}


PUBLIC = (SUBMIT, FINAL, FINAL_VAR, SHOW_VARS, llm_query, llm_query_batched, rlm_query,
          rlm_query_batched, sub_rlm, sub_rlm_batched, llm_submit, rlm_submit, llm_query_async,
          llm_query_batched_async, rlm_query_async, rlm_query_batched_async, add_buffer, get_buffer, clear_buffer,
          save_to_volume, load_from_volume, workspace_write, workspace_append, workspace_read, workspace_list,
          LLMError, BudgetExceeded, LLMTimeout, FailedReply, ToolError)
