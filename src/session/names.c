/* session/names.c: see names.h. That no name of the guest is missing here, tests/e2e/test_contexts.py
 * proves. */
#include "session/names.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/text.h"

bool guest_name_is_ours(const char *name)
{
    static const char *const ours[] = { "context", "history", "answer", "SUBMIT", "FINAL",
        "FINAL_VAR", "SHOW_VARS", "add_buffer", "get_buffer", "clear_buffer", "LLMError",
        "BudgetExceeded", "LLMTimeout", "FailedReply", "ToolError", "RuleError" };
    /* Of names that the guest has, or may have one day. */
    static const char *const beginnings[] = { "llm_", "rlm_", "sub_rlm", "context_", "history_",
        "_" };
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
            "%s '%.64s': a name that Python can have is needed (letters, digits and '_', at most "
            "64, no "
            "keyword, no digit first)",
            what, name);
    if (guest_name_is_ours(name))
        return error_set(err, ERROR_ARGUMENT,
            "%s '%.64s': this name is Droste's own in the guest; take another", what, name);
    return 0;
}
