/* base/json/json.h: JSON from untrusted sources, checked before anything is built from it.
 *
 * json-c builds and writes the trees. It is lenient in ways that a wire format must not be, and a
 * small text can grow into a large tree ("[[[[…" or a million nulls), so `json_check` first walks
 * the text without memory or recursion: strict RFC 8259, UTF-8, bounded depth and number of nodes.
 */
#pragma once

#include <json-c/json.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/error.h"

struct json_limits {
    size_t bytes;   /* length of the text */
    unsigned depth; /* nested arrays and objects, at most JSON_DEPTH_MAX */
    size_t nodes;   /* values and keys */
};

enum { JSON_DEPTH_MAX = 128 };

/* Heads of frames, configuration, lines of recordings. */
extern const struct json_limits json_limits_small;
/* Answers, submitted values and models' replies. */
extern const struct json_limits json_limits_large;

/* 0 if the text is one JSON value within the limits; otherwise ERROR_PROTOCOL with the position. */
int json_check(const char *text, size_t len, const struct json_limits *limits, struct error *err);

/* Stands for a value that is sent separately; it is not valid JSON. */
#define JSON_HOLE "NaN"
/* As json_check, for text that may contain holes. *count is their number; `holes` receives the
 * positions of the first `max`. */
int json_check_outline(const char *text, size_t len, const struct json_limits *limits,
    size_t *holes, size_t max, size_t *count, struct error *err);

/* Checks, then builds. The caller owns *out (json_object_put), which is NULL for JSON null. */
int json_parse(const char *text, size_t len, const struct json_limits *limits,
    struct json_object **out, struct error *err);

/* Builds what this program has written (fields.h); ERROR_MEMORY also if an append failed. */
int json_parse_written(const struct buf *text, struct json_object **out, struct error *err);

/* As json_parse, and subtracts the values used from `limits`: one bound for many texts. */
int json_parse_within(const char *text, size_t len, struct json_limits *limits,
    struct json_object **out, struct error *err);

/* Members of an object by name; the fallback if absent or of another type. */
const char *json_get_string(struct json_object *o, const char *key, const char *fallback);
int64_t json_get_int(struct json_object *o, const char *key, int64_t fallback);
double json_get_double(struct json_object *o, const char *key, double fallback);
bool json_get_bool(struct json_object *o, const char *key, bool fallback);
/* NULL unless the member exists and is of that type (json_type_object…). */
struct json_object *json_get_typed(struct json_object *o, const char *key, enum json_type type);
/* The number of elements of an array; 0 for anything else, and for NULL. */
size_t json_length(struct json_object *array);

/* Adds members; false without memory, leaving the object unchanged. */
bool json_put_string(struct json_object *o, const char *key, const char *value, size_t len);
bool json_put_text(struct json_object *o, const char *key, const char *value); /* NULL → null */
/* Takes the child's reference, even on failure. */
bool json_put(struct json_object *o, const char *key, struct json_object *child);

/* The tree as one line of text, which belongs to the tree; NULL without memory. */
const char *json_text(struct json_object *o, size_t *len);

/* A value in a text, or the inside of a string. `from` is NULL if there is none. */
struct json_span {
    const char *from, *to;
};

/* Appends the inside of a string with its escapes resolved. */
void json_append_unescaped(struct buf *out, struct json_span inside);

/* The number of leading bytes that a JSON string contains unescaped. */
size_t json_plain_run(const char *text, size_t len);
/* Appends text (well-formed UTF-8) as a JSON string, with its quotes. */
void json_append_string(struct buf *out, const char *text, size_t len);
/* The length of that JSON string. */
size_t json_string_length(const char *text, size_t len);
/* Appends a finite number with a decimal point in every locale. */
void json_append_number(struct buf *out, double value);
void json_append_seconds(struct buf *out, double seconds); /* with six digits behind the point */
/* Appends base64 (RFC 4648) without quotes. */
void json_append_base64(struct buf *out, const void *data, size_t len);
/* Decodes base64 with padding and without white space (free); NULL if it is invalid, or without
 * memory. */
char *json_base64_bytes(const char *text, size_t len, size_t *out_len);

static inline void cleanup_json_fn(struct json_object **o)
{
    if (*o)
        json_object_put(*o);
}
#define cleanup_json __attribute__((cleanup(cleanup_json_fn), unused))
