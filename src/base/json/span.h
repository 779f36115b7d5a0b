/* base/json/span.h: looking into JSON text where it stands, without a tree.
 *
 * For the few members of a small text that comes often: the tree of a model's answer is forty
 * allocations, and took a tenth of the host's time for a call. The text must have passed json_check. Each
 * look walks over what is before the value, so whoever wants most of a text builds a tree.
 */
#ifndef DROSTE_BASE_JSON_SPAN_H
#define DROSTE_BASE_JSON_SPAN_H

#include "base/json/json.h"

/* A value in a text, or what is between a string's quotes. `from` is NULL where there is none. */
struct json_span {
    const char *from, *to;
};

/* The one value of a text. */
struct json_span json_span_of(const char *text, size_t len);
/* True if it is an object, array, string or null: its first character, as in '{'. */
bool json_span_is(struct json_span value, char first);
/* Members by their names, in one walk; of several with a name the last, as in a tree. None where
 * absent, and in what is no object. */
void json_span_members(
    struct json_span object, const char *const names[], struct json_span found[], size_t count);
struct json_span json_span_member(struct json_span object, const char *name);
/* The first element, or the one behind another; none where the array ends, and in what is none. */
struct json_span json_span_first(struct json_span array);
struct json_span json_span_next(struct json_span element, struct json_span array);
/* Appends a string's text; of anything else nothing. */
void json_span_append(struct buf *out, struct json_span string);
/* An integer, cut to what fits as json-c does; the fallback where it is none. */
int64_t json_span_int(struct json_span number, int64_t fallback);

/* Appends what is between a string's quotes without its escapes. */
void json_append_unescaped(struct buf *out, struct json_span inside);

#endif
