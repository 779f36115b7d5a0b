/* session/names.c: lists reserved names. tests/e2e/test_contexts.py proves that no name of the
 * guest is missing.
 */
#include "session/names.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/text.h"

bool guest_name_is_python(const char *name)
{
    /* All versions from 3.8 to 3.14. */
    static const char *const names[] = { "abs", "aiter", "all", "anext", "any", "ArithmeticError",
        "ascii", "AssertionError", "AttributeError", "BaseException", "BaseExceptionGroup", "bin",
        "BlockingIOError", "bool", "breakpoint", "BrokenPipeError", "BufferError", "bytearray",
        "bytes", "BytesWarning", "callable", "case", "ChildProcessError", "chr", "classmethod",
        "compile", "complex", "ConnectionAbortedError", "ConnectionError", "ConnectionRefusedError",
        "ConnectionResetError", "copyright", "credits", "delattr", "DeprecationWarning", "dict",
        "dir", "divmod", "Ellipsis", "EncodingWarning", "enumerate", "EnvironmentError", "EOFError",
        "eval", "Exception", "ExceptionGroup", "exec", "exit", "FileExistsError",
        "FileNotFoundError", "filter", "float", "FloatingPointError", "format", "frozenset",
        "FutureWarning", "GeneratorExit", "getattr", "globals", "hasattr", "hash", "help", "hex",
        "id", "ImportError", "ImportWarning", "IndentationError", "IndexError", "input", "int",
        "InterruptedError", "IOError", "IsADirectoryError", "isinstance", "issubclass", "iter",
        "KeyboardInterrupt", "KeyError", "len", "license", "list", "locals", "LookupError", "map",
        "match", "max", "MemoryError", "memoryview", "min", "ModuleNotFoundError", "NameError",
        "next", "NotADirectoryError", "NotImplemented", "NotImplementedError", "object", "oct",
        "open", "ord", "OSError", "OverflowError", "PendingDeprecationWarning", "PermissionError",
        "pow", "print", "ProcessLookupError", "property", "PythonFinalizationError", "quit",
        "range", "RecursionError", "ReferenceError", "repr", "ResourceWarning", "reversed", "round",
        "RuntimeError", "RuntimeWarning", "set", "setattr", "slice", "sorted", "staticmethod",
        "StopAsyncIteration", "StopIteration", "str", "sum", "super", "SyntaxError",
        "SyntaxWarning", "SystemError", "SystemExit", "TabError", "TimeoutError", "tuple", "type",
        "TypeError", "UnboundLocalError", "UnicodeDecodeError", "UnicodeEncodeError",
        "UnicodeError", "UnicodeTranslateError", "UnicodeWarning", "UserWarning", "ValueError",
        "vars", "Warning", "ZeroDivisionError", "zip" };
    for (size_t i = 0; i < array_length(names); i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return text_is_keyword(name);
}

bool guest_name_is_ours(const char *name)
{
    static const char *const ours[] = { "context", "history", "answer", "SUBMIT", "FINAL",
        "FINAL_VAR", "SHOW_VARS", "add_buffer", "get_buffer", "clear_buffer", "LLMError",
        "BudgetExceeded", "LLMTimeout", "FailedReply", "ToolError", "ForkError", "fork_map",
        "RuleError", "save_to_volume", "load_from_volume", "REPO_PATH", "WORKSPACE_ROOT",
        "CONTEXT_PATHS", "MEMORY_ROOT" };
    /* Prefixes of names that the guest uses or may use in the future. */
    static const char *const beginnings[] = { "llm_", "rlm_", "sub_rlm", "context_", "history_",
        "workspace_", "_" };
    for (size_t i = 0; i < array_length(ours); i++)
        if (strcmp(ours[i], name) == 0)
            return true;
    for (size_t i = 0; i < array_length(beginnings); i++)
        if (strncmp(beginnings[i], name, strlen(beginnings[i])) == 0)
            return true;
    return false;
}

int guest_name_check(const char *name, const char *what, struct error *err)
{
    if (!text_is_identifier(name))
        return error_set(err, ERROR_ARGUMENT,
            "%s '%.64s': use a name that is valid in Python (at most 64 letters, digits and '_', "
            "no keyword, no digit first)",
            what, name);
    if (guest_name_is_ours(name) || guest_name_is_python(name))
        return error_set(err, ERROR_ARGUMENT,
            "%s '%.64s' is one of %s names in the guest; choose another", what, name,
            guest_name_is_ours(name) ? "Droste's" : "Python's");
    return 0;
}
