/* egress/head.h: the head of a message of HTTP/1.1: its first line and its fields.
 *
 * The reader is strict (RFC 9112): lines end with CR LF, there is no space before a colon, no
 * folded line, no control character. What two programs could read in two ways is an error.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    EGRESS_HEAD_MAX = 32 << 10, /* bytes */
    EGRESS_FIELDS_MAX = 128,
};

/* A part of the head. */
struct egress_span {
    const char *at;
    size_t len;
};

struct egress_field {
    struct egress_span name, value; /* the value without spaces around it */
};

struct egress_head {
    struct egress_span line;
    struct egress_field fields[EGRESS_FIELDS_MAX];
    size_t count;
};

/* The length of the head at the beginning of the bytes, with its empty line; 0: incomplete.
 * `scanned` bytes were seen before. */
size_t egress_head_end(const char *data, size_t len, size_t scanned);
/* Parses a complete head. False: it is malformed. The spans point into the bytes. */
bool egress_head_parse(const char *data, size_t len, struct egress_head *out);

/* Letters compare without case. */
bool egress_span_is(struct egress_span span, const char *text);
/* The field of this name; NULL: none. *several: there is another one. */
const struct egress_field *egress_head_find(
    const struct egress_head *head, const char *name, bool *several);
/* Whether a list that is the value of fields of this name has the word. */
bool egress_head_lists(const struct egress_head *head, const char *name, struct egress_span word);
/* Whether the field belongs to this connection alone (RFC 9110, 7.6.1), or frames the body. */
bool egress_field_is_hop(const struct egress_head *head, const struct egress_field *field);
/* Decimal digits only, at most 18. */
bool egress_span_number(struct egress_span span, uint64_t *out);
/* Bytes that may be part of a name: a token. */
bool egress_span_is_token(struct egress_span span);
