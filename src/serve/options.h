/* serve/options.h: settings that a client's request asks for, as an object by their names. */
#pragma once

#include "serve/sandbox/sandbox.h"

struct option_rules {
    /* NULL: a client may not set it. */
    const droste_option *(*find)(const char *name);
    /* How one is refused that exists, but not for clients. */
    unsigned kept_status;
    const char *kept_code;
    /* Checks a value and appends it with sandbox_setting. False: it was refused. */
    bool (*put)(struct request *r, const droste_option *o, const char *value, struct buf *words);
};

/* Appends a setting, a name and a value. */
void sandbox_setting(struct buf *words, const char *name, const char *value);
/* Settings as the library takes them, from those that sandbox_setting has appended. Free the list.
 * NULL without memory. */
const char **sandbox_list_settings(const struct buf *words);
/* NULL: there is none of this name. */
const droste_option *option_named(const char *name);
/* Appends all of them. `options` may be NULL. False: one was refused. */
bool options_put(struct request *r, const struct option_rules *rules, struct json_object *options,
    struct buf *words);
