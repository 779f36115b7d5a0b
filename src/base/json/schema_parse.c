/* base/json/schema_parse.c: parses a schema and checks the value of each keyword; see schema.h. */
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/pattern.h"
#include "base/json/schema.h"
#include "base/json/schema_internal.h"

static const struct json_limits limits = { SCHEMA_BYTES_MAX, 64, 50000 };
static const char dialect[] = "https://json-schema.org/draft/2020-12/schema";

/* ---- what stands behind keywords ---- */

struct reader {
    struct schema *s;
    const char *keyword;
    struct error *err;
};

static int schema_parse_read_schema(struct reader *r, struct json_object *schema);

static int schema_parse_wrong(struct reader *r, const char *what)
{
    return error_set(r->err, ERROR_ARGUMENT, "the schema's '%.60s' must be %s", r->keyword, what);
}

static int schema_parse_read_list(struct reader *r, struct json_object *list)
{
    int rc = 0;
    if (!json_object_is_type(list, json_type_array) || json_object_array_length(list) == 0)
        return schema_parse_wrong(r, "a list of schemas");
    for (size_t i = 0; rc == 0 && i < json_object_array_length(list); i++)
        rc = schema_parse_read_schema(r, json_object_array_get_idx(list, i));
    return rc;
}

static int read_pattern(struct reader *r, const void *key, const char *text, size_t len)
{
    struct schema *s = r->s;
    if (!array_room(s->patterns, s->pattern_count, &s->pattern_room))
        return error_memory(r->err);
    struct compiled_pattern *compiled = &s->patterns[s->pattern_count];
    *compiled = (struct compiled_pattern){ .key = key };
    int rc = pattern_compile(text, len, &compiled->pattern, r->err);
    if (rc < 0)
        return error_wrap(r->err, "the schema's pattern %.60s", text);
    s->pattern_count++;
    return 0;
}

static int read_map(struct reader *r, struct json_object *map, bool patterns)
{
    struct json_object_iter at;
    int rc = 0;
    if (!json_object_is_type(map, json_type_object))
        return schema_parse_wrong(r, "an object of schemas");
    json_object_object_foreachC(map, at)
    {
        if (rc == 0 && patterns)
            rc = read_pattern(r, at.key, at.key, strlen(at.key));
        if (rc == 0)
            rc = schema_parse_read_schema(r, at.val);
    }
    return rc;
}

static bool are_strings(struct json_object *list, bool (*is_fine)(const char *))
{
    if (!json_object_is_type(list, json_type_array))
        return false;
    for (size_t i = 0; i < json_object_array_length(list); i++) {
        struct json_object *one = json_object_array_get_idx(list, i);
        if (!json_object_is_type(one, json_type_string) ||
            (is_fine && !is_fine(json_object_get_string(one))))
            return false;
    }
    return true;
}

static int read_type(struct reader *r, struct json_object *says)
{
    bool one = json_object_is_type(says, json_type_string);
    bool fine = one ? schema_is_type(json_object_get_string(says))
                    : are_strings(says, schema_is_type) && json_object_array_length(says) > 0;
    return fine ? 0
                : schema_parse_wrong(r,
                      "the name of a JSON type, or a list of names (string, integer, number, "
                      "boolean, array, object, null)");
}

/* Whether the target is a schema can be checked only when all are known. */
static int read_ref(struct reader *r, struct json_object *says)
{
    const char *ref =
        json_object_is_type(says, json_type_string) ? json_object_get_string(says) : "";
    bool local = ref[0] == '#' && (ref[1] == '/' || ref[1] == '\0');
    return local ? 0
                 : schema_parse_wrong(r, "a reference into the schema itself (\"#/$defs/NAME\")");
}

static bool schema_parse_is_number(struct json_object *o)
{
    return json_object_is_type(o, json_type_int) || json_object_is_type(o, json_type_double);
}

static int schema_parse_read_number(struct reader *r, enum shape shape, struct json_object *says)
{
    double n = schema_parse_is_number(says) ? json_object_get_double(says) : -1;
    if (shape == SHAPE_NUMBER)
        return schema_parse_is_number(says) ? 0 : schema_parse_wrong(r, "a number");
    if (shape == SHAPE_POSITIVE)
        return n > 0 ? 0 : schema_parse_wrong(r, "a number above 0");
    bool whole = n >= 0 && n < 1e15 && n == (double)(int64_t)n;
    return whole ? 0 : schema_parse_wrong(r, "a whole number of at least 0");
}

static int read_dialect(struct reader *r, struct json_object *says)
{
    const char *name =
        json_object_is_type(says, json_type_string) ? json_object_get_string(says) : "";
    size_t n = strlen(dialect);
    bool is_supported = strncmp(name, dialect, n) == 0 && (!name[n] || strcmp(name + n, "#") == 0);
    return is_supported ? 0 : schema_parse_wrong(r, "draft 2020-12, the only supported one");
}

static int read_pattern_of(struct reader *r, struct json_object *says)
{
    return json_object_is_type(says, json_type_string)
               ? read_pattern(r, says, json_object_get_string(says),
                     (size_t)json_object_get_string_len(says))
               : schema_parse_wrong(r, "a regular expression");
}

static int read_keyword(
    struct reader *r, const struct keyword *k, struct json_object *schema, struct json_object *says)
{
    switch (k->shape) {
    case SHAPE_NOTE:
    case SHAPE_VALUE:
        return 0;
    case SHAPE_SCHEMA:
        return schema_parse_read_schema(r, says);
    case SHAPE_SCHEMAS:
        return schema_parse_read_list(r, says);
    case SHAPE_SCHEMA_MAP:
    case SHAPE_PATTERN_MAP:
        return read_map(r, says, k->shape == SHAPE_PATTERN_MAP);
    case SHAPE_REF:
        return read_ref(r, says);
    case SHAPE_TYPE:
        return read_type(r, says);
    case SHAPE_VALUES:
        return json_object_is_type(says, json_type_array)
                   ? 0
                   : schema_parse_wrong(r, "a list of values");
    case SHAPE_NAMES:
        return are_strings(says, NULL) ? 0 : schema_parse_wrong(r, "a list of names");
    case SHAPE_COUNT:
    case SHAPE_NUMBER:
    case SHAPE_POSITIVE:
        return schema_parse_read_number(r, k->shape, says);
    case SHAPE_FLAG:
        return json_object_is_type(says, json_type_boolean)
                   ? 0
                   : schema_parse_wrong(r, "true or false");
    case SHAPE_PATTERN:
        return read_pattern_of(r, says);
    case SHAPE_DIALECT:
        return read_dialect(r, says);
    case SHAPE_ID: /* below the root, it would change the meaning of $ref */
        return schema == r->s->root ? 0 : schema_parse_wrong(r, "at the root, and the only one");
    }
    return 0;
}

static int note_seen(struct reader *r, struct json_object *schema)
{
    struct schema *s = r->s;
    if (!array_room(s->seen, s->seen_count, &s->seen_room))
        return error_memory(r->err);
    s->seen[s->seen_count++] = schema;
    return 0;
}

static int refuse_keyword(struct reader *r, const char *name)
{
    return error_set(r->err, ERROR_ARGUMENT,
        "the schema's keyword '%.60s' is not supported; docs/answers.md lists the supported ones",
        name);
}

static int schema_parse_read_schema(struct reader *r, struct json_object *schema)
{
    struct json_object_iter at;
    if (json_object_is_type(schema, json_type_boolean))
        return note_seen(r, schema);
    if (!json_object_is_type(schema, json_type_object))
        return schema_parse_wrong(r, "a schema (an object, true or false)");
    int rc = note_seen(r, schema);
    json_object_object_foreachC(schema, at)
    {
        const struct keyword *k = schema_keyword(at.key);
        r->keyword = at.key;
        if (rc == 0 && !k && strncmp(at.key, "x-", 2) != 0)
            rc = refuse_keyword(r, at.key);
        if (rc == 0 && k)
            rc = read_keyword(r, k, schema, at.val);
    }
    return rc;
}

/* ---- the whole ---- */

static bool is_seen(const struct schema *s, struct json_object *target)
{
    for (size_t i = 0; target && i < s->seen_count; i++)
        if (s->seen[i] == target)
            return true;
    return false;
}

static int check_refs(const struct schema *s, struct error *err)
{
    for (size_t i = 0; i < s->seen_count; i++) {
        const char *ref = json_get_string(s->seen[i], "$ref", NULL);
        if (ref && !is_seen(s, schema_resolve(s, ref)))
            return error_set(
                err, ERROR_ARGUMENT, "the schema's $ref '%.100s' does not lead to a schema", ref);
    }
    return 0;
}

/* The object that describes the root, possibly through its $ref. */
static struct json_object *schema_parse_described(const struct schema *s)
{
    struct json_object *at = s->root;
    const char *ref;
    for (int i = 0; i < 8 && (ref = json_get_string(at, "$ref", NULL)); i++)
        at = schema_resolve(s, ref);
    return at;
}

static int find_names(struct schema *s, struct error *err)
{
    struct json_object *o = schema_parse_described(s), *type = NULL;
    struct json_object *properties = json_get_typed(o, "properties", json_type_object);
    struct json_object_iter at;
    if (!properties || (json_object_object_get_ex(o, "type", &type) &&
                           strcmp(json_get_string(o, "type", ""), "object") != 0))
        return 0;
    s->names = calloc((size_t)json_object_object_length(properties) + 1, sizeof *s->names);
    if (!s->names)
        return error_memory(err);
    json_object_object_foreachC(properties, at)
    {
        s->names[s->name_count++] = at.key;
    }
    return 0;
}

int schema_parse(const char *text, size_t len, struct schema **out, struct error *err)
{
    struct schema *s = calloc(1, sizeof *s);
    if (!s)
        return error_memory(err);
    s->holders = 1;
    int rc = json_parse(text, len, &limits, &s->root, err);
    if (rc < 0) {
        rc = error_wrap(err, "the schema");
        if (err && err->code == ERROR_PROTOCOL)
            err->code = ERROR_ARGUMENT;
        rc = rc == -(int)ERROR_PROTOCOL ? -(int)ERROR_ARGUMENT : rc;
    }
    struct reader reader = { s, "schema", err };
    if (rc == 0)
        rc = schema_parse_read_schema(&reader, s->root);
    if (rc == 0)
        rc = check_refs(s, err);
    if (rc == 0)
        rc = find_names(s, err);
    /* json-c caches the text in the object: create it now, because checks must not modify the
     * schema. */
    if (rc == 0 && !schema_text(s))
        rc = error_memory(err);
    if (rc < 0) {
        schema_drop(s);
        return rc;
    }
    *out = s;
    return 0;
}
