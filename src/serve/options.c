/* serve/options.c: settings that a client's request asks for, as an object by their names.
 *
 * What kind of request it is decides which settings there are and how much a client may ask for;
 * the rest is the same: one value or a list, texts, numbers and switches, as texts for the library.
 */
#include "serve/options.h"

#include <string.h>

const char **sandbox_list_settings(const struct buf *words)
{
    size_t count = 0, i = 0;
    const char *end = buf_text(words) + words->len;
    for (const char *at = buf_text(words); at < end; at += strlen(at) + 1)
        count++;
    const char **settings = buf_failed(words) ? NULL : calloc(count + 1, sizeof *settings);
    for (const char *at = buf_text(words); settings && at < end; at += strlen(at) + 1)
        settings[i++] = at;
    return settings;
}

void sandbox_setting(struct buf *words, const char *name, const char *value)
{
    buf_append(words, name, strlen(name) + 1);
    buf_append(words, value, strlen(value) + 1);
}

const droste_option *option_named(const char *name)
{
    for (size_t i = 0; droste_option_at(i); i++)
        if (strcmp(droste_option_at(i)->name, name) == 0)
            return droste_option_at(i);
    return NULL;
}

/* One value as the text of a setting. False: it is no such value, and was refused. */
static bool option_put_value(struct request *r, const struct option_rules *rules,
    const droste_option *o, struct json_object *value, struct buf *words)
{
    enum json_type type = json_object_get_type(value);
    bool is_schema = type == json_type_object && strcmp(o->name, "answer-schema") == 0;
    bool is_plain = type == json_type_string || type == json_type_int || type == json_type_double;
    const char *text = type == json_type_boolean ? json_object_get_boolean(value) ? "yes" : "no"
                       : is_schema               ? json_text(value, NULL)
                       : is_plain                ? json_object_get_string(value)
                                                 : NULL;
    if (!text ||
        (type == json_type_string && strlen(text) != (size_t)json_object_get_string_len(value))) {
        request_refuse(r, 400, "argument", "the option %s has no value of this kind", o->name);
        return false;
    }
    return rules->put(r, o, text, words);
}

/* Options that take several values have a list of them. */
static bool option_put(struct request *r, const struct option_rules *rules, const char *name,
    struct json_object *value, struct buf *words)
{
    const droste_option *o = rules->find(name);
    if (!o) {
        bool exists = option_named(name) != NULL;
        request_refuse(r, exists ? rules->kept_status : 400, exists ? rules->kept_code : "argument",
            "'%.64s' is not an option that a client may set", name);
        return false;
    }
    if (!json_object_is_type(value, json_type_array))
        return option_put_value(r, rules, o, value, words);
    for (size_t i = 0; i < json_length(value); i++)
        if (!option_put_value(r, rules, o, json_object_array_get_idx(value, i), words))
            return false;
    return true;
}

bool options_put(struct request *r, const struct option_rules *rules, struct json_object *options,
    struct buf *words)
{
    if (!options)
        return true;
    json_object_object_foreach(options, name, value)
    {
        if (!option_put(r, rules, name, value, words))
            return false;
    }
    return true;
}
