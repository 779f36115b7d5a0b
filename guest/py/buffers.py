"""buffers.py: named lists of a session."""


def add_buffer(name, value):
    """Appends a value to the named list of this session."""
    session.buffers.setdefault(str(name).strip() or "default", []).append(value)


def get_buffer(name):
    """A copy of the named list; empty where nothing was added."""
    return list(session.buffers.get(str(name).strip() or "default", []))


def clear_buffer(name=None):
    """Empties one named list, or all."""
    if name is None:
        session.buffers.clear()
    else:
        session.buffers.pop(str(name).strip() or "default", None)


PUBLIC = (SUBMIT, FINAL, FINAL_VAR, SHOW_VARS, llm_query, llm_query_batched, rlm_query,
          rlm_query_batched, sub_rlm, sub_rlm_batched, llm_submit, rlm_submit, llm_query_async,
          llm_query_batched_async, rlm_query_async, rlm_query_batched_async, add_buffer, get_buffer, clear_buffer,
          LLMError, BudgetExceeded, LLMTimeout, FailedReply, ToolError)
