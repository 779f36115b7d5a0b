/* api/settings_internal.h: what the files of the settings share: the table of them. */
#ifndef DROSTE_API_SETTINGS_INTERNAL_H
#define DROSTE_API_SETTINGS_INTERNAL_H

#include "api/settings.h"

enum type {
    TYPE_TEXT,
    TYPE_LIST,
    TYPE_NAMES, /* a list that takes several at once, with commas between them */
    TYPE_SWITCH,
    TYPE_NUMBER,
    TYPE_DECIMAL,
    TYPE_SECONDS,
    TYPE_SIZE
};

struct setting {
    droste_option option;
    enum type type;
    size_t offset;                 /* of its field in struct settings */
    double min, max;               /* of numbers, seconds and sizes */
    const char *other_environment; /* another variable, weaker than the option's own; NULL: none */
};

extern const struct setting settings_table[];
extern const size_t settings_count;

static inline bool is_list(const struct setting *what)
{
    return what->type == TYPE_LIST || what->type == TYPE_NAMES;
}

/* As settings_set, of one in the table. */
int setting_set(struct settings *s, const struct setting *what, const char *value,
    const char *source, struct error *err);

#endif
