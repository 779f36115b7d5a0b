/* lm/context_window.c: a table of context windows by model name. */
#include "lm/context_window.h"

#include <string.h>

#include "base/cleanup.h"

/* As of October 2026, without models that have the default; the longest matching prefix counts. */
static const struct {
    const char *model;
    int64_t tokens;
} context_windows[] = {
    { "gpt-5", 400000 },
    { "gpt-4.1", 1047576 },
    { "o3", 200000 },
    { "o4-mini", 200000 },
    { "gpt-3.5", 16385 },
    { "claude-", 200000 },
    { "gemini-", 1048576 },
};

int64_t lm_window(const char *model)
{
    const char *slash = strrchr(model, '/');
    const char *name = slash ? slash + 1 : model;
    int64_t tokens = LM_WINDOW_DEFAULT;
    size_t longest = 0;
    for (size_t i = 0; i < array_length(context_windows); i++) {
        size_t n = strlen(context_windows[i].model);
        if (n <= longest || strncmp(context_windows[i].model, name, n) != 0)
            continue;
        longest = n;
        tokens = context_windows[i].tokens;
    }
    return tokens;
}
