/* base/json/schema_check.c: checks whether a value fits a parsed schema (schema_parse.c).
 *
 * All keywords for values of its type are applied. Each is a function in one table; parsing has
 * already checked the keyword's value. The work is counted. An error names the path to the value
 * that does not fit.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/pattern.h"
#include "base/json/schema.h"
#include "base/json/schema_internal.h"
#include "base/text.h"

struct mismatch {
    size_t depth; /* in bytes of the path */
    char text[200];
};

struct check {
    const struct schema *schema;
    struct buf path; /* of the value, as a JSON pointer */
    struct mismatch mismatch;
    uint64_t work; /* remaining steps */
    unsigned depth;
    bool gave_up, endless;
    struct error why; /* the check was given up, if set */
};

/* `says` is the keyword's value in `schema`. */
#define KEYWORD_ARGS                                                                               \
    struct check *c, struct json_object *schema, struct json_object *says, struct json_object *value

enum { DEPTH_MAX = 500 };
static const uint64_t work_max = 1000000; /* about 0.2 s */

/* ---- saying what is wrong ---- */

/* Reports an error at the current path; returns false. If several alternatives fail, the error that
 * is deepest in the value is kept, because that alternative came nearest. */
__attribute__((format(printf, 2, 3))) static bool schema_fail(
    struct check *c, const char *format, ...)
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

/* Counts work; false if there was too much. */
static bool schema_step(struct check *c, uint64_t steps)
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

static bool schema_fits(struct check *c, struct json_object *schema, struct json_object *value);

/* Whether the member at the key fits; the path leads to it meanwhile. */
static bool schema_fits_at(
    struct check *c, struct json_object *schema, struct json_object *value, const char *key)
{
    size_t before = go_to(c, key);
    bool fits = schema_fits(c, schema, value);
    schema_go_back(c, before);
    return fits;
}

static bool schema_fits_item(
    struct check *c, struct json_object *schema, struct json_object *array, size_t index)
{
    char key[24];
    snprintf(key, sizeof key, "%zu", index);
    return schema_fits_at(c, schema, json_object_array_get_idx(array, index), key);
}

/* Whether the text matches the pattern at `key`. */
static bool schema_matches(struct check *c, const void *key, const char *text, size_t len)
{
    int found = pattern_search(schema_pattern(c->schema, key), text, len, &c->work, &c->why);
    c->gave_up |= found < 0;
    return found > 0;
}

/* Shortens a value for an error message. */
static const char *schema_keywords_shown(struct json_object *value, char out[64])
{
    size_t len = 0;
    const char *text = json_text(value, &len);
    size_t n = text ? text_utf8_floor(text, len, len > 56 ? 53 : len) : 0;
    snprintf(out, 64, "%.*s%s", (int)n, text ? text : "", n < len ? "…" : "");
    return out;
}

/* ---- numbers and equality ---- */

static bool schema_is_number(struct json_object *o)
{
    return json_object_is_type(o, json_type_int) || json_object_is_type(o, json_type_double);
}

/* Exact for 64-bit integers. */
static long double schema_keywords_number_of(struct json_object *o)
{
    if (!json_object_is_type(o, json_type_int))
        return (long double)json_object_get_double(o);
    int64_t n = json_object_get_int64(o);
    return n < 0 ? (long double)n : (long double)json_object_get_uint64(o);
}

static bool is_whole(struct json_object *o)
{
    return json_object_is_type(o, json_type_int) ||
           (json_object_is_type(o, json_type_double) &&
               floorl(schema_keywords_number_of(o)) == schema_keywords_number_of(o) &&
               isfinite(json_object_get_double(o)));
}

static bool schema_keywords_equal(struct check *c, struct json_object *a, struct json_object *b);

static bool equal_arrays(struct check *c, struct json_object *a, struct json_object *b)
{
    size_t n = json_object_array_length(a);
    bool same = n == json_object_array_length(b);
    for (size_t i = 0; same && i < n; i++)
        same = schema_keywords_equal(
            c, json_object_array_get_idx(a, i), json_object_array_get_idx(b, i));
    return same;
}

static bool equal_objects(struct check *c, struct json_object *a, struct json_object *b)
{
    if (json_object_object_length(a) != json_object_object_length(b))
        return false;
    json_object_object_foreach(a, key, value)
    {
        struct json_object *other = NULL;
        if (!json_object_object_get_ex(b, key, &other) || !schema_keywords_equal(c, value, other))
            return false;
    }
    return true;
}

/* 1 and 1.0 are the same number. json_parse has bounded the depth of both values. */
static bool schema_keywords_equal(struct check *c, struct json_object *a, struct json_object *b)
{
    if (!schema_step(c, 1))
        return false;
    if (schema_is_number(a) && schema_is_number(b))
        return schema_keywords_number_of(a) == schema_keywords_number_of(b);
    enum json_type type = json_object_get_type(a);
    if (type != json_object_get_type(b))
        return false;
    switch (type) {
    case json_type_boolean:
        return json_object_get_boolean(a) == json_object_get_boolean(b);
    case json_type_string:
        return json_object_get_string_len(a) == json_object_get_string_len(b) &&
               memcmp(json_object_get_string(a), json_object_get_string(b),
                   (size_t)json_object_get_string_len(a)) == 0;
    case json_type_array:
        return equal_arrays(c, a, b);
    case json_type_object:
        return equal_objects(c, a, b);
    default:
        return true; /* null */
    }
}

/* ---- keywords for any value ---- */

static const struct {
    const char *name, *words;
    enum json_type type;
} types[] = {
    { "string", "a string", json_type_string },
    { "integer", "an integer", json_type_int },
    { "number", "a number", json_type_double },
    { "boolean", "true or false", json_type_boolean },
    { "array", "a list", json_type_array },
    { "object", "an object", json_type_object },
    { "null", "null", json_type_null },
};

bool schema_is_type(const char *name)
{
    for (size_t i = 0; i < array_length(types); i++)
        if (strcmp(types[i].name, name) == 0)
            return true;
    return false;
}

bool schema_has_type(struct json_object *value, const char *name)
{
    if (strcmp(name, "number") == 0)
        return schema_is_number(value);
    if (strcmp(name, "integer") == 0)
        return is_whole(value);
    for (size_t i = 0; i < array_length(types); i++)
        if (strcmp(types[i].name, name) == 0)
            return json_object_get_type(value) == types[i].type;
    return false;
}

static const char *words_of_type(const char *name)
{
    for (size_t i = 0; i < array_length(types); i++)
        if (strcmp(types[i].name, name) == 0)
            return types[i].words;
    return name;
}

static const char *words_of_value(struct json_object *value)
{
    static const char *const words[] = { [json_type_null] = "null",
        [json_type_boolean] = "true or false",
        [json_type_double] = "a number",
        [json_type_int] = "an integer",
        [json_type_object] = "an object",
        [json_type_array] = "a list",
        [json_type_string] = "a string" };
    return words[json_object_get_type(value)];
}

static bool fits_type(KEYWORD_ARGS)
{
    bool one = json_object_is_type(says, json_type_string);
    size_t count = one ? 1 : json_object_array_length(says);
    char expected[120] = "";
    for (size_t i = 0, n = 0; i < count && n < sizeof expected; i++) {
        const char *name = json_object_get_string(one ? says : json_object_array_get_idx(says, i));
        if (schema_has_type(value, name))
            return true;
        n += (size_t)snprintf(
            expected + n, sizeof expected - n, "%s%s", i ? " or " : "", words_of_type(name));
    }
    return schema_fail(c, "expected %s, not %s", expected, words_of_value(value));
}

static bool fits_const(KEYWORD_ARGS)
{
    char expected[64];
    return schema_keywords_equal(c, says, value) ||
           schema_fail(c, "expected %s", schema_keywords_shown(says, expected));
}

static bool fits_enum(KEYWORD_ARGS)
{
    char text[64], actual[64];
    cleanup_buf struct buf list = { 0 };
    for (size_t i = 0; i < json_object_array_length(says); i++) {
        struct json_object *one = json_object_array_get_idx(says, i);
        if (schema_keywords_equal(c, one, value))
            return true;
        if (list.len < 100)
            buf_printf(&list, "%s%s", i ? ", " : "", schema_keywords_shown(one, text));
    }
    return schema_fail(
        c, "expected one of %.100s, not %s", buf_text(&list), schema_keywords_shown(value, actual));
}

static bool fits_all_of(KEYWORD_ARGS)
{
    bool fits = true;
    for (size_t i = 0; fits && i < json_object_array_length(says); i++)
        fits = schema_fits(c, json_object_array_get_idx(says, i), value);
    return fits;
}

/* Counts the alternatives that fit. If one does, the errors of the others are dropped. */
static size_t count_fits(struct check *c, struct json_object *list, struct json_object *value)
{
    struct mismatch before = c->mismatch;
    size_t count = 0;
    for (size_t i = 0; i < json_object_array_length(list); i++)
        count += schema_fits(c, json_object_array_get_idx(list, i), value);
    if (count > 0)
        c->mismatch = before;
    return count;
}

static bool fits_any_of(KEYWORD_ARGS)
{
    return count_fits(c, says, value) > 0 || schema_fail(c, "matches no alternative of anyOf");
}

static bool fits_one_of(KEYWORD_ARGS)
{
    size_t count = count_fits(c, says, value);
    if (count > 1)
        return schema_fail(c, "matches %zu alternatives of oneOf instead of exactly one", count);
    return count == 1 || schema_fail(c, "matches no alternative of oneOf");
}

static bool fits_not(KEYWORD_ARGS)
{
    struct mismatch before = c->mismatch;
    bool fits = schema_fits(c, says, value);
    char text[64];
    c->mismatch = before;
    return !fits || schema_fail(c, "matches the schema that `not` forbids: %s",
                        schema_keywords_shown(says, text));
}

static bool fits_ref(KEYWORD_ARGS)
{
    struct json_object *target = schema_resolve(c->schema, json_object_get_string(says));
    return schema_fits(c, target, value);
}

/* ---- objects ---- */

static bool fits_properties(KEYWORD_ARGS)
{
    json_object_object_foreach(says, key, sub)
    {
        struct json_object *member = NULL;
        if (json_object_object_get_ex(value, key, &member) && !schema_fits_at(c, sub, member, key))
            return false;
    }
    return true;
}

static bool fits_pattern_properties(KEYWORD_ARGS)
{
    json_object_object_foreach(says, key, sub)
    {
        json_object_object_foreach(value, name, member)
        {
            bool meant = schema_matches(c, key, name, strlen(name));
            if (meant && !schema_fits_at(c, sub, member, name))
                return false;
        }
    }
    return true;
}

/* Whether `properties` or `patternProperties` covers a property. */
static bool is_named(struct check *c, struct json_object *schema, const char *name)
{
    struct json_object *properties = json_get_typed(schema, "properties", json_type_object);
    struct json_object *patterns = json_get_typed(schema, "patternProperties", json_type_object);
    if (properties && json_object_object_get_ex(properties, name, NULL))
        return true;
    if (!patterns)
        return false;
    struct json_object_iter at;
    json_object_object_foreachC(patterns, at)
    {
        if (schema_matches(c, at.key, name, strlen(name)))
            return true;
    }
    return false;
}

static bool fits_additional(KEYWORD_ARGS)
{
    bool none = json_object_is_type(says, json_type_boolean) && !json_object_get_boolean(says);
    json_object_object_foreach(value, name, member)
    {
        if (is_named(c, schema, name))
            continue;
        if (none)
            return schema_fail(c, "has the unknown member '%.60s'", name);
        if (!schema_fits_at(c, says, member, name))
            return false;
    }
    return true;
}

static bool fits_property_names(KEYWORD_ARGS)
{
    struct json_object_iter at;
    json_object_object_foreachC(value, at)
    {
        cleanup_json struct json_object *name = json_object_new_string(at.key);
        if (!name || !schema_fits_at(c, says, name, at.key))
            return false;
    }
    return true;
}

static bool fits_required(KEYWORD_ARGS)
{
    cleanup_buf struct buf missing = { 0 };
    for (size_t i = 0; i < json_object_array_length(says); i++) {
        const char *name = json_object_get_string(json_object_array_get_idx(says, i));
        if (!json_object_object_get_ex(value, name, NULL))
            buf_printf(&missing, "%s'%.60s'", missing.len ? ", " : "", name);
    }
    return missing.len == 0 || schema_fail(c, "lacks %.150s", buf_text(&missing));
}

/* ---- lists ---- */

static bool fits_prefix_items(KEYWORD_ARGS)
{
    size_t count = json_object_array_length(value), meant = json_object_array_length(says);
    bool fits = true;
    for (size_t i = 0; fits && i < count && i < meant; i++)
        fits = schema_fits_item(c, json_object_array_get_idx(says, i), value, i);
    return fits;
}

static bool fits_items(KEYWORD_ARGS)
{
    struct json_object *prefix = json_get_typed(schema, "prefixItems", json_type_array);
    size_t first = prefix ? json_object_array_length(prefix) : 0;
    size_t count = json_object_array_length(value);
    if (json_object_is_type(says, json_type_boolean) && !json_object_get_boolean(says))
        return count <= first ||
               schema_fail(c, "has %zu items, more than the %zu allowed", count, first);
    bool fits = true;
    for (size_t i = first; fits && i < count; i++)
        fits = schema_fits_item(c, says, value, i);
    return fits;
}

static bool fits_unique_items(KEYWORD_ARGS)
{
    size_t count = json_object_get_boolean(says) ? json_object_array_length(value) : 0;
    for (size_t i = 1; i < count; i++)
        for (size_t k = 0; k < i && !c->gave_up; k++)
            if (schema_keywords_equal(
                    c, json_object_array_get_idx(value, i), json_object_array_get_idx(value, k)))
                return schema_fail(c, "items %zu and %zu are equal", k, i);
    return true;
}

/* ---- sizes and bounds ---- */

static size_t size_of(struct json_object *value)
{
    if (json_object_is_type(value, json_type_array))
        return json_object_array_length(value);
    if (json_object_is_type(value, json_type_object))
        return (size_t)json_object_object_length(value);
    return text_utf8_length(
        json_object_get_string(value), (size_t)json_object_get_string_len(value));
}

static const char *unit_of(struct json_object *value)
{
    return json_object_is_type(value, json_type_array)    ? "items"
           : json_object_is_type(value, json_type_object) ? "properties"
                                                          : "characters";
}

static bool fits_least_size(KEYWORD_ARGS)
{
    size_t size = size_of(value);
    return (long double)size >= schema_keywords_number_of(says) ||
           schema_fail(c, "expected at least %Lg %s, not %zu", schema_keywords_number_of(says),
               unit_of(value), size);
}

static bool fits_largest_size(KEYWORD_ARGS)
{
    size_t size = size_of(value);
    return (long double)size <= schema_keywords_number_of(says) ||
           schema_fail(c, "expected at most %Lg %s, not %zu", schema_keywords_number_of(says),
               unit_of(value), size);
}

static bool fits_pattern(KEYWORD_ARGS)
{
    const char *pattern = json_object_get_string(says);
    return schema_matches(
               c, says, json_object_get_string(value), (size_t)json_object_get_string_len(value)) ||
           schema_fail(c, "expected text that matches the pattern %.100s", pattern);
}

static bool out_of_bounds(
    struct check *c, const char *words, struct json_object *says, struct json_object *value)
{
    char expected[64], actual[64];
    return schema_fail(c, "expected a number %s %s, not %s", words,
        schema_keywords_shown(says, expected), schema_keywords_shown(value, actual));
}

static bool fits_minimum(KEYWORD_ARGS)
{
    return schema_keywords_number_of(value) >= schema_keywords_number_of(says) ||
           out_of_bounds(c, "of at least", says, value);
}

static bool fits_maximum(KEYWORD_ARGS)
{
    return schema_keywords_number_of(value) <= schema_keywords_number_of(says) ||
           out_of_bounds(c, "of at most", says, value);
}

static bool fits_above(KEYWORD_ARGS)
{
    return schema_keywords_number_of(value) > schema_keywords_number_of(says) ||
           out_of_bounds(c, "above", says, value);
}

static bool fits_below(KEYWORD_ARGS)
{
    return schema_keywords_number_of(value) < schema_keywords_number_of(says) ||
           out_of_bounds(c, "below", says, value);
}

/* Compares decimals as written: 0.3 is a multiple of 0.1, though not in binary. */
static bool fits_multiple(KEYWORD_ARGS)
{
    bool whole =
        json_object_is_type(value, json_type_int) && json_object_is_type(says, json_type_int);
    long double times = schema_keywords_number_of(value) / schema_keywords_number_of(says);
    long double off = whole
                          ? fmodl(schema_keywords_number_of(value), schema_keywords_number_of(says))
                          : times - roundl(times);
    bool fits = isfinite((double)times) && fabsl(off) <= fmaxl(1e-9L, fabsl(times) * 1e-15L);
    if (whole)
        fits = off == 0;
    return fits || out_of_bounds(c, "that is a multiple of", says, value);
}

/* ---- the table ---- */

static const struct keyword schema_keywords[] = {
    { "$ref", SHAPE_REF, OF_ANY, fits_ref },
    { "type", SHAPE_TYPE, OF_ANY, fits_type },
    { "const", SHAPE_VALUE, OF_ANY, fits_const },
    { "enum", SHAPE_VALUES, OF_ANY, fits_enum },
    { "required", SHAPE_NAMES, OF_OBJECT, fits_required },
    { "properties", SHAPE_SCHEMA_MAP, OF_OBJECT, fits_properties },
    { "patternProperties", SHAPE_PATTERN_MAP, OF_OBJECT, fits_pattern_properties },
    { "additionalProperties", SHAPE_SCHEMA, OF_OBJECT, fits_additional },
    { "propertyNames", SHAPE_SCHEMA, OF_OBJECT, fits_property_names },
    { "minProperties", SHAPE_COUNT, OF_OBJECT, fits_least_size },
    { "maxProperties", SHAPE_COUNT, OF_OBJECT, fits_largest_size },
    { "prefixItems", SHAPE_SCHEMAS, OF_ARRAY, fits_prefix_items },
    { "items", SHAPE_SCHEMA, OF_ARRAY, fits_items },
    { "minItems", SHAPE_COUNT, OF_ARRAY, fits_least_size },
    { "maxItems", SHAPE_COUNT, OF_ARRAY, fits_largest_size },
    { "uniqueItems", SHAPE_FLAG, OF_ARRAY, fits_unique_items },
    { "minLength", SHAPE_COUNT, OF_STRING, fits_least_size },
    { "maxLength", SHAPE_COUNT, OF_STRING, fits_largest_size },
    { "pattern", SHAPE_PATTERN, OF_STRING, fits_pattern },
    { "minimum", SHAPE_NUMBER, OF_NUMBER, fits_minimum },
    { "maximum", SHAPE_NUMBER, OF_NUMBER, fits_maximum },
    { "exclusiveMinimum", SHAPE_NUMBER, OF_NUMBER, fits_above },
    { "exclusiveMaximum", SHAPE_NUMBER, OF_NUMBER, fits_below },
    { "multipleOf", SHAPE_POSITIVE, OF_NUMBER, fits_multiple },
    { "allOf", SHAPE_SCHEMAS, OF_ANY, fits_all_of },
    { "anyOf", SHAPE_SCHEMAS, OF_ANY, fits_any_of },
    { "oneOf", SHAPE_SCHEMAS, OF_ANY, fits_one_of },
    { "not", SHAPE_SCHEMA, OF_ANY, fits_not },
    { "$defs", SHAPE_SCHEMA_MAP, OF_NONE, NULL },
    { "definitions", SHAPE_SCHEMA_MAP, OF_NONE, NULL },
    { "$schema", SHAPE_DIALECT, OF_NONE, NULL },
    { "$id", SHAPE_ID, OF_NONE, NULL },
    { "$comment", SHAPE_NOTE, OF_NONE, NULL },
    { "title", SHAPE_NOTE, OF_NONE, NULL },
    { "description", SHAPE_NOTE, OF_NONE, NULL },
    { "default", SHAPE_NOTE, OF_NONE, NULL },
    { "examples", SHAPE_NOTE, OF_NONE, NULL },
    { "deprecated", SHAPE_NOTE, OF_NONE, NULL },
    { "readOnly", SHAPE_NOTE, OF_NONE, NULL },
    { "writeOnly", SHAPE_NOTE, OF_NONE, NULL },
    { "format", SHAPE_NOTE, OF_NONE, NULL },
    { "contentEncoding", SHAPE_NOTE, OF_NONE, NULL },
    { "contentMediaType", SHAPE_NOTE, OF_NONE, NULL },
    { "contentSchema", SHAPE_NOTE, OF_NONE, NULL },
    { NULL, SHAPE_NOTE, OF_NONE, NULL },
};

const struct keyword *schema_keyword(const char *name)
{
    const struct keyword *k = schema_keywords;
    while (k->name && strcmp(k->name, name) != 0)
        k++;
    return k->name ? k : NULL;
}

/* ---- the check ---- */

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

static bool schema_fits(struct check *c, struct json_object *schema, struct json_object *value)
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

int schema_check(const struct schema *schema, struct json_object *value, struct error *err)
{
    struct check c = { .schema = schema, .work = work_max };
    bool fits = schema_fits(&c, schema->root, value) && !c.gave_up;
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
