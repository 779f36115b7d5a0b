/* base/json/span.h: reads values in JSON text in place, without building a tree.
 *
 * For small, frequent texts of which only a few members matter: the tree of a model's answer takes
 * forty allocations, a tenth of the host's time for a call. The text must have passed json_check.
 * Each access walks over what precedes the value, so reading most of a text is better done with a
 * tree.
 */
#pragma once

#include "base/json/json.h"

/* The single value of a text. */
struct json_span json_span_of(const char *text, size_t len);
/* True if it is an object, array, string or null: its first character, as in '{'. */
bool json_span_is(struct json_span value, char first);
/* Finds members by name in one walk; the last of duplicates wins, as in a tree. Empty if absent,
 * or if the value is not an object. */
void json_span_members(
    struct json_span object, const char *const names[], struct json_span found[], size_t count);
struct json_span json_span_member(struct json_span object, const char *name);
/* The first element, or the next one; empty at the end, and for values that are not arrays. */
struct json_span json_span_first(struct json_span array);
struct json_span json_span_next(struct json_span element, struct json_span array);
/* Appends a string's text; appends nothing for other values. */
void json_span_append(struct buf *out, struct json_span string);
/* An integer, clamped to 64 bits as in json-c; the fallback for other values. */
int64_t json_span_int(struct json_span number, int64_t fallback);
