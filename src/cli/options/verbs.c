/* cli/options/verbs.c: see verbs.h. */
#include "cli/options/verbs.h"

#include <string.h>

#include "base/buf.h"
#include "base/suggest.h"

const void *verb_find(const void *rows, size_t count, size_t size, const char *word)
{
    const char *row = rows;
    for (size_t i = 0; word && i < count; i++, row += size)
        if (strcmp(((const struct verb *)(const void *)row)->name, word) == 0)
            return row;
    return NULL;
}

int verb_refuse(const struct command *self, const char *word)
{
    cleanup_buf struct buf names = { 0 };
    struct suggestion s = { .typed = word, .len = word ? strlen(word) : 0 };
    const char *row = self->verbs.rows;
    for (size_t i = 0; i < self->verbs.count; i++, row += self->verbs.size) {
        const char *name = ((const struct verb *)(const void *)row)->name;
        buf_printf(&names, "%s%s", i > 0 ? ", " : "", name);
        if (word)
            suggestion_consider(&s, name);
    }
    const char *best = word ? suggestion_best(&s) : NULL;
    if (best)
        return cli_usage(self, "there is no '%s %s'; did you mean %s?", self->name, word, best);
    return cli_usage(self, "expected one of: %s", buf_text(&names));
}

int verb_check_flags(const struct command *self, const struct verb *verb,
    const struct verb_flag *flags, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (flags[i].used && !(flags[i].verbs & verb->bit))
            return cli_usage(self, "--%s does not apply to `%s %s`; leave it out", flags[i].name,
                self->name, verb->name);
    return -1;
}

const void *verb_pick(const struct command *self, const char *const *words, size_t count,
    const struct verb_flag *flags, size_t flag_count, int *status)
{
    const char *word = count > 0 ? words[0] : NULL;
    const struct verb *verb =
        verb_find(self->verbs.rows, self->verbs.count, self->verbs.size, word);
    if (!verb)
        *status = verb_refuse(self, word);
    else if (count - 1 < verb->least || count - 1 > verb->most)
        *status = cli_usage(self, "%s %s takes %s", self->name, verb->name,
            verb->takes ? verb->takes : "no argument");
    else
        *status = verb_check_flags(self, verb, flags, flag_count);
    return *status < 0 ? verb : NULL;
}
