"""The built-ins that every session starts with."""
from .buffers import add_buffer, clear_buffer, get_buffer
from .files import extract_python_ast, find_files, list_files, read_file, resolve_path, run
from .programs import (
    get_last_execution, get_session_history, kill_process, log_execution, read_process_logs,
    start_background_process)
from .texts import (
    chunk_by_headers, chunk_by_json_keys, chunk_by_size, chunk_by_timestamps, grep, peek)
from .volume import (
    load_from_volume, save_to_volume, workspace_append, workspace_list, workspace_read,
    workspace_write)
from ..core.calls import (
    llm_query, llm_query_batched, rlm_query, rlm_query_batched, sub_rlm, sub_rlm_batched)
from ..core.display import clear_output, display, update_display
from ..core.errors import (
    BudgetExceeded, FailedReply, ForkError, LLMError, LLMTimeout, ToolError)
from ..core.fork_map import fork_map
from ..core.futures import (
    llm_query_async, llm_query_batched_async, llm_submit, rlm_query_async,
    rlm_query_batched_async, rlm_submit)
from ..core.session import FINAL, FINAL_VAR, SHOW_VARS, SUBMIT

# Built-ins of every session.
PUBLIC = (SUBMIT, FINAL, FINAL_VAR, SHOW_VARS, llm_query, llm_query_batched, rlm_query,
          rlm_query_batched, sub_rlm, sub_rlm_batched, llm_submit, rlm_submit, llm_query_async,
          llm_query_batched_async, rlm_query_async, rlm_query_batched_async, add_buffer,
          get_buffer, clear_buffer, save_to_volume, load_from_volume, workspace_write,
          workspace_append, workspace_read, workspace_list, LLMError, BudgetExceeded, LLMTimeout,
          FailedReply, ToolError, fork_map, ForkError)

# Conveniences. A tool or a context may have the same name as one, and replaces it.
HELPERS = (peek, grep, chunk_by_size, chunk_by_headers, chunk_by_timestamps, chunk_by_json_keys,
           display, update_display, clear_output, list_files, find_files, read_file, run,
           resolve_path, extract_python_ast,
           start_background_process, read_process_logs, kill_process,
           log_execution, get_session_history, get_last_execution)
