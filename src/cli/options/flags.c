/* cli/options/flags.c: see flags.h. */
#include "cli/options/flags.h"

#include <string.h>

const struct flag *flag_find(const struct flag *flags, const char *name, size_t len)
{
    for (; flags->name; flags++)
        if (strlen(flags->name) == len && strncmp(flags->name, name, len) == 0)
            return flags;
    return NULL;
}

const droste_option *flag_find_option(const char *name, size_t len)
{
    const droste_option *o;
    for (size_t i = 0; (o = droste_option_at(i)); i++)
        if (strlen(o->name) == len && strncmp(o->name, name, len) == 0)
            return o;
    return NULL;
}

const droste_option *flag_next_option(const struct flag *flags, size_t *index)
{
    const droste_option *o;
    while ((o = droste_option_at((*index)++)))
        if (!o->secret && !flag_find(flags, o->name, strlen(o->name)))
            return o;
    return NULL;
}

/* By the kind of command; a screen has room for a dozen. */
static const char *const run_settings[] = { "model", "sub-model", "env", "volume-name", "repo-url",
    "max-iterations", "max-llm-calls", "max-cost", "timeout", "instructions", "answer-schema",
    "record", NULL };
static const char *const sandbox_settings[] = { "env", "isolation", "python", "image", "preload",
    "read", "network", "volume-name", "repo-url", "execute-timeout", "memory", "processes", NULL };
static const char *const *const common_settings[] = {
    [SETTINGS_RUN] = run_settings, [SETTINGS_SANDBOX] = sandbox_settings
};

const droste_option *flag_common_option(
    const struct command *self, const struct flag *flags, size_t *index)
{
    const char *const *names = common_settings[self->settings];
    while (names && names[*index]) {
        const char *name = names[(*index)++];
        if (!flag_find(flags, name, strlen(name)))
            return flag_find_option(name, strlen(name));
    }
    return NULL;
}
