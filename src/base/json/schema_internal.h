/* base/json/schema_internal.h: a parsed schema, and the table of keywords by which it is parsed and
 * applied.
 */
#pragma once

#include "base/json/json.h"

struct compiled_pattern {
    const void *key; /* position in the schema */
    struct pattern *pattern;
};

struct schema {
    unsigned holders;
    struct json_object *root;
    const char **names;
    size_t name_count;
    struct compiled_pattern *patterns;
    size_t pattern_count, pattern_room;
    struct json_object **seen; /* subschemas seen while parsing */
    size_t seen_count, seen_room;
};

/* schema.c: the value at a reference such as "#/$defs/NAME"; NULL: there is none. */
struct json_object *schema_resolve(const struct schema *schema, const char *ref);
/* The pattern that was compiled for the place `key`. */
const struct pattern *schema_pattern(const struct schema *schema, const void *key);

/* The form that a keyword's value must have. */
enum shape {
    SHAPE_NOTE, /* anything */
    SHAPE_SCHEMA,
    SHAPE_SCHEMAS,
    SHAPE_SCHEMA_MAP,
    SHAPE_PATTERN_MAP,
    SHAPE_REF,
    SHAPE_TYPE,
    SHAPE_VALUE,
    SHAPE_VALUES,
    SHAPE_NAMES,
    SHAPE_COUNT,
    SHAPE_NUMBER,
    SHAPE_POSITIVE,
    SHAPE_FLAG,
    SHAPE_PATTERN,
    SHAPE_DIALECT,
    SHAPE_ID,
};

/* The type of value that a keyword constrains; values of other types pass. */
enum of { OF_NONE, OF_ANY, OF_OBJECT, OF_ARRAY, OF_STRING, OF_NUMBER };

struct check;

struct keyword {
    const char *name;
    enum shape shape;
    enum of of;
    /* `says` is the keyword's value in `schema`. */
    bool (*fits)(struct check *c, struct json_object *schema, struct json_object *says,
        struct json_object *value);
};

/* schema_check.c; NULL: not supported. */
const struct keyword *schema_keyword(const char *name);
