/* base/json/schema_internal.h: what the parts of base/json/schema.h share: reading a schema, its keywords,
 * checking a value. */
#ifndef DROSTE_BASE_JSON_SCHEMA_INTERNAL_H
#define DROSTE_BASE_JSON_SCHEMA_INTERNAL_H

#include "base/buf.h"
#include "base/pattern.h"
#include "base/json/schema.h"

/* What must stand behind a keyword. */
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

/* Of what kind of value a keyword speaks; others fit it. */
enum of { OF_NONE, OF_ANY, OF_OBJECT, OF_ARRAY, OF_STRING, OF_NUMBER };

struct mismatch {
    size_t depth; /* in bytes of the path */
    char text[200];
};

struct check {
    const struct schema *schema;
    struct buf path; /* of the value, as a JSON pointer */
    struct mismatch mismatch;
    uint64_t work; /* steps that are left */
    unsigned depth;
    bool gave_up, endless;
    struct error why; /* it gave up, if it says */
};

/* `says` is what stands behind the keyword in `schema`. */
#define KEYWORD_ARGS                                                                               \
    struct check *c, struct json_object *schema, struct json_object *says, struct json_object *value

struct keyword {
    const char *name;
    enum shape shape;
    enum of of;
    bool (*fits)(KEYWORD_ARGS);
};

/* schema_keywords.c */
extern const struct keyword schema_keywords[]; /* a NULL name ends them */
/* NULL: it is not supported. */
const struct keyword *schema_keyword(const char *name);
bool schema_is_number(struct json_object *value);

/* schema.c */
/* Work; false: there was too much of it. */
bool schema_step(struct check *c, uint64_t steps);
bool schema_fits(struct check *c, struct json_object *schema, struct json_object *value);
/* Whether what is at the key fits, or at the index of an array; the path then says so. */
bool schema_fits_at(
    struct check *c, struct json_object *schema, struct json_object *value, const char *key);
bool schema_fits_item(
    struct check *c, struct json_object *schema, struct json_object *array, size_t index);
/* Says what is wrong at the path; false. */
bool schema_fail(struct check *c, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Whether the text matches the pattern that stands at `key`. */
bool schema_matches(struct check *c, const void *key, const char *text, size_t len);

/* schema_parse.c: of a schema that was read. */
struct json_object *schema_root(const struct schema *schema);
struct json_object *schema_resolve(const struct schema *schema, const char *ref);
const struct pattern *schema_pattern(const struct schema *schema, const void *key);

#endif
