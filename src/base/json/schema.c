/* base/json/schema.c: checks whether a value fits a parsed schema (schema_parse.c), by applying all
 * keywords for values of its type (schema_keywords.c). The work is counted. An error names the path
 * to the value that does not fit.
 */
#include "base/json/schema.h"

#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/json/schema_internal.h"
#include "base/text.h"

enum { DEPTH_MAX = 500 };
static const uint64_t work_max = 1000000; /* about 0.2 s */

/* ---- saying what is wrong ---- */

/* If several alternatives fail, the error that is deepest in the value is kept, because that
 * alternative came nearest. */
bool schema_fail(struct check *c, const char *format, ...)
{
    va_list args;
    struct mismatch *m = &c->mismatch;
    if (m->text[0] && c->path.len <= m->depth)
        return false;
    m->depth = c->path.len;
    size_t n = 0;
    if (c->path.len > 0) {
        size_t shown = text_utf8_floor(buf_text(&c->path), c->path.len, 80);
        int len = snprintf(m->text, sizeof m->text, "at %.*s%s: ", (int)shown, buf_text(&c->path),
            shown < c->path.len ? "…" : "");
        n = len > 0 ? (size_t)len : 0;
    }
    va_start(args, format);
    vsnprintf(m->text + n, sizeof m->text - n, format, args);
    va_end(args);
    return false;
}

bool schema_step(struct check *c, uint64_t steps)
{
    c->gave_up |= c->work < steps;
    c->work -= c->gave_up ? 0 : steps;
    return !c->gave_up;
}

/* Appends /KEY to the path; returns the length to truncate it to afterwards. */
static size_t go_to(struct check *c, const char *key)
{
    size_t before = c->path.len;
    buf_putc(&c->path, '/');
    for (; *key; key++)
        if (*key == '~' || *key == '/')
            buf_puts(&c->path, *key == '~' ? "~0" : "~1");
        else
            buf_putc(&c->path, *key);
    return before;
}

static void schema_go_back(struct check *c, size_t len)
{
    c->path.len = len < c->path.len ? len : c->path.len;
}

bool schema_fits_at(
    struct check *c, struct json_object *schema, struct json_object *value, const char *key)
{
    size_t before = go_to(c, key);
    bool fits = schema_fits(c, schema, value);
    schema_go_back(c, before);
    return fits;
}

bool schema_fits_item(
    struct check *c, struct json_object *schema, struct json_object *array, size_t index)
{
    char key[24];
    snprintf(key, sizeof key, "%zu", index);
    return schema_fits_at(c, schema, json_object_array_get_idx(array, index), key);
}

static bool is_meant(enum of of, struct json_object *value)
{
    switch (of) {
    case OF_ANY:
        return true;
    case OF_OBJECT:
        return json_object_is_type(value, json_type_object);
    case OF_ARRAY:
        return json_object_is_type(value, json_type_array);
    case OF_STRING:
        return json_object_is_type(value, json_type_string);
    case OF_NUMBER:
        return schema_is_number(value);
    case OF_NONE:
        return false;
    }
    return false;
}

/* Checks in the order of the table, so that a wrong type is reported before its consequences. */
static bool fits_keywords(struct check *c, struct json_object *schema, struct json_object *value)
{
    for (const struct keyword *k = schema_keywords; k->name; k++) {
        struct json_object *says = NULL;
        if (!is_meant(k->of, value) || !json_object_object_get_ex(schema, k->name, &says))
            continue;
        if (!k->fits(c, schema, says, value))
            return false;
    }
    return true;
}

bool schema_fits(struct check *c, struct json_object *schema, struct json_object *value)
{
    if (!schema_step(c, 1))
        return false;
    if (json_object_is_type(schema, json_type_boolean))
        return json_object_get_boolean(schema) || schema_fail(c, "no value is allowed here");
    c->endless |= c->depth >= DEPTH_MAX;
    c->gave_up |= c->endless;
    if (c->gave_up)
        return false;
    c->depth++;
    bool fits = fits_keywords(c, schema, value);
    c->depth--;
    return fits;
}

bool schema_matches(struct check *c, const void *key, const char *text, size_t len)
{
    int found = pattern_search(schema_pattern(c->schema, key), text, len, &c->work, &c->why);
    c->gave_up |= found < 0;
    return found > 0;
}

int schema_check(const struct schema *schema, struct json_object *value, struct error *err)
{
    struct check c = { .schema = schema, .work = work_max };
    bool fits = schema_fits(&c, schema_root(schema), value) && !c.gave_up;
    bool failed = buf_failed(&c.path);
    buf_free(&c.path);
    if (failed)
        return error_memory(err);
    if (c.endless)
        return error_set(err, ERROR_ARGUMENT, "the schema refers to itself endlessly");
    if (c.why.code != ERROR_NONE) {
        if (err)
            *err = c.why;
        return -(int)c.why.code;
    }
    if (c.gave_up)
        return error_set(
            err, ERROR_ARGUMENT, "checking the value against the schema takes too long");
    return fits ? 0 : error_set(err, ERROR_ARGUMENT, "%s", c.mismatch.text);
}
