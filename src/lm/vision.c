/* lm/vision.c: a table of models that read images, by model name. */
#include "lm/vision.h"

#include <string.h>

#include "base/cleanup.h"

/* As of October 2026, from the providers' lists of models; the longest matching prefix counts. */
static const struct {
    const char *model;
    bool sees;
} visions[] = {
    { "gpt-4o", true },
    { "gpt-4o-audio", false },
    { "gpt-4-turbo", true },
    { "gpt-4.1", true },
    { "gpt-5", true },
    { "o1", true },
    { "o1-mini", false },
    { "o1-preview", false },
    { "o3", true },
    { "o3-mini", false },
    { "o4-mini", true },
    { "claude-", true },
    { "claude-2", false },
    { "claude-instant", false },
    { "gemini-", true },
    { "gemini-embedding", false },
};

bool lm_sees_images(const char *model)
{
    const char *slash = strrchr(model, '/');
    const char *name = slash ? slash + 1 : model;
    size_t longest = 0;
    bool sees = false;
    for (size_t i = 0; i < array_length(visions); i++) {
        size_t n = strlen(visions[i].model);
        if (n <= longest || strncmp(visions[i].model, name, n) != 0)
            continue;
        longest = n;
        sees = visions[i].sees;
    }
    return sees;
}
