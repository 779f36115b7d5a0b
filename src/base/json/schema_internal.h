/* base/json/schema_internal.h: what parsing a schema, its keywords, and checking a value share. */
#ifndef DROSTE_BASE_JSON_SCHEMA_INTERNAL_H
#define DROSTE_BASE_JSON_SCHEMA_INTERNAL_H

#include "base/buf.h"
#include "base/pattern.h"
#include "base/json/schema.h"

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

struct keyword {
    const char *name;
    enum shape shape;
    enum of of;
    bool (*fits)(KEYWORD_ARGS);
};

/* schema_keywords.c */
extern const struct keyword schema_keywords[]; /* ends with a NULL name */
/* NULL: not supported. */
const struct keyword *schema_keyword(const char *name);
bool schema_is_number(struct json_object *value);

/* schema.c */
/* Counts work; false if there was too much. */
bool schema_step(struct check *c, uint64_t steps);
bool schema_fits(struct check *c, struct json_object *schema, struct json_object *value);
/* Whether the member at the key, or element at the index, fits; extends the path meanwhile. */
bool schema_fits_at(
    struct check *c, struct json_object *schema, struct json_object *value, const char *key);
bool schema_fits_item(
    struct check *c, struct json_object *schema, struct json_object *array, size_t index);
/* Reports an error at the current path; returns false. */
bool schema_fail(struct check *c, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Whether the text matches the pattern at `key`. */
bool schema_matches(struct check *c, const void *key, const char *text, size_t len);

/* schema_parse.c: access to a parsed schema. */
struct json_object *schema_root(const struct schema *schema);
struct json_object *schema_resolve(const struct schema *schema, const char *ref);
const struct pattern *schema_pattern(const struct schema *schema, const void *key);

#endif
