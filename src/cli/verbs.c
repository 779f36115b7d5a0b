/* cli/verbs.c: see verbs.h. */
#include "cli/verbs.h"

#include <string.h>

const void *verb_find(const void *rows, size_t count, size_t size, const char *word)
{
    const char *row = rows;
    for (size_t i = 0; word && i < count; i++, row += size)
        if (strcmp(((const struct verb *)(const void *)row)->name, word) == 0)
            return row;
    return NULL;
}

int verb_check_flags(const struct command *self, const struct verb *verb,
    const struct verb_flag *flags, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (flags[i].given && !(flags[i].verbs & verb->bit))
            return cli_usage(
                self, "--%s is not for `%s %s`", flags[i].name, self->name, verb->name);
    return -1;
}
