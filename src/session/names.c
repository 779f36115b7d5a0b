/* session/names.c: see names.h. That no name of the guest is missing here, tests/e2e/test_contexts.py
 * proves. */
#include "session/names.h"

#include <stdbool.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/text.h"

static bool is_reserved(const char *name)
{
    static const char *const ours[] = { "context", "history", "answer", "SUBMIT", "FINAL",
        "FINAL_VAR", "SHOW_VARS", "llm_query", "llm_query_batched", "rlm_query",
        "rlm_query_batched", "sub_rlm", "sub_rlm_batched", "llm_submit", "rlm_submit",
        "llm_query_async", "llm_query_batched_async", "rlm_query_async", "rlm_query_batched_async",
        "add_buffer", "get_buffer", "clear_buffer", "LLMError", "BudgetExceeded", "LLMTimeout",
        "FailedReply" };
    static const char numbered[] = "context_";
    for (size_t i = 0; i < array_length(ours); i++)
        if (strcmp(ours[i], name) == 0)
            return true;
    size_t n = strlen(numbered);
    return strncmp(name, numbered, n) == 0 && name[n] &&
           name[n + strspn(name + n, "0123456789")] == '\0';
}

int guest_name_check(const char *name, const char *what, struct error *err)
{
    if (!text_is_identifier(name) || name[0] == '_')
        return error_set(err, ERROR_ARGUMENT,
            "%s '%.64s': a name that Python can have is needed (letters, digits and '_', at most "
            "64, no "
            "keyword, neither a digit nor '_' first)",
            what, name);
    if (is_reserved(name))
        return error_set(err, ERROR_ARGUMENT,
            "%s '%.64s': this name is Droste's own in the guest; take another", what, name);
    return 0;
}
