/* base/json/span.c: walks over JSON text that was checked; it still never reads past the end. */
#include "base/json/span.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const struct json_span none = { NULL, NULL };

static const char *span_skip_space(const char *p, const char *end)
{
    while (p < end && (*p == ' ' || *p == '\t' || *p == '\n' || *p == '\r'))
        p++;
    return p;
}

/* At a string's opening quote; returns what follows the closing one. */
static const char *span_skip_string(const char *p, const char *end)
{
    p++;
    while ((p += json_plain_run(p, (size_t)(end - p))) < end) {
        if (*p == '"')
            return p + 1;
        p += end - p > 1 ? 2 : 1; /* an escape; the digits after \u are plain characters */
    }
    return end;
}

/* Needs no stack: the brackets of a checked text match. */
static const char *skip_nested(const char *p, const char *end)
{
    size_t depth = 0;
    while (p < end) {
        char c = *p;
        if (c == '"') {
            p = span_skip_string(p, end);
            continue;
        }
        p++;
        if (c == '{' || c == '[')
            depth++;
        else if ((c == '}' || c == ']') && --depth == 0)
            return p;
    }
    return end;
}

/* True after a number or a word. */
static bool ends_scalar(char c)
{
    return c <= ' ' || c == ',' || c == ']' || c == '}';
}

static const char *skip_value(const char *p, const char *end)
{
    if (p < end && *p == '"')
        return span_skip_string(p, end);
    if (p < end && (*p == '{' || *p == '['))
        return skip_nested(p, end);
    while (p < end && !ends_scalar(*p))
        p++;
    return p;
}

static struct json_span value_at(const char *p, const char *end)
{
    p = span_skip_space(p, end);
    return p < end ? (struct json_span){ p, skip_value(p, end) } : none;
}

struct json_span json_span_of(const char *text, size_t len)
{
    return value_at(text, text + len);
}

bool json_span_is(struct json_span value, char first)
{
    return value.from && *value.from == first;
}

static struct json_span span_inside(struct json_span string)
{
    return (struct json_span){ string.from + 1, string.to - 1 };
}

static bool escaped_is(struct json_span in, const char *name)
{
    struct buf plain = { 0 };
    json_append_unescaped(&plain, in);
    bool same = strcmp(buf_text(&plain), name) == 0;
    buf_free(&plain);
    return same;
}

/* A name may be written with escapes. */
static bool key_is(struct json_span key, const char *name)
{
    struct json_span in = span_inside(key);
    size_t len = strlen(name), n = (size_t)(in.to - in.from);
    if (n == len)
        return memcmp(in.from, name, len) == 0;
    return n > len && memchr(in.from, '\\', n) && escaped_is(in, name);
}

/* After a value or bracket: moves to the next value or key; NULL at the end. */
static const char *next_at(const char *p, const char *end)
{
    p = span_skip_space(p, end);
    if (p < end && *p == ',')
        p = span_skip_space(p + 1, end);
    return p < end && *p != ']' && *p != '}' ? p : NULL;
}

void json_span_members(
    struct json_span object, const char *const names[], struct json_span found[], size_t count)
{
    const char *p = json_span_is(object, '{') ? next_at(object.from + 1, object.to) : NULL;
    for (size_t i = 0; i < count; i++)
        found[i] = none;
    while (p) {
        struct json_span key = { p, span_skip_string(p, object.to) };
        struct json_span value = value_at(span_skip_space(key.to, object.to) + 1, object.to);
        for (size_t i = 0; i < count; i++)
            if (key_is(key, names[i]))
                found[i] = value;
        p = next_at(value.to, object.to);
    }
}

struct json_span json_span_member(struct json_span object, const char *name)
{
    struct json_span found;
    json_span_members(object, &name, &found, 1);
    return found;
}

static struct json_span element_at(const char *p, const char *end)
{
    return p ? value_at(p, end) : none;
}

struct json_span json_span_first(struct json_span array)
{
    return json_span_is(array, '[') ? element_at(next_at(array.from + 1, array.to), array.to)
                                    : none;
}

struct json_span json_span_next(struct json_span element, struct json_span array)
{
    return element.from ? element_at(next_at(element.to, array.to), array.to) : none;
}

void json_span_append(struct buf *out, struct json_span string)
{
    if (json_span_is(string, '"'))
        json_append_unescaped(out, span_inside(string));
}

int64_t json_span_int(struct json_span number, int64_t fallback)
{
    char copy[24];
    size_t n = number.from ? (size_t)(number.to - number.from) : 0;
    if (n == 0 || n >= sizeof copy || !strchr("-0123456789", *number.from))
        return fallback;
    memcpy(copy, number.from, n);
    copy[n] = '\0';
    if (strpbrk(copy, ".eE"))
        return fallback;
    errno = 0;
    int64_t value = strtoll(copy, NULL, 10);
    if (errno == 0)
        return value;
    /* json-c also clamps unsigned integers; longer numbers are doubles. */
    errno = 0;
    (void)strtoull(copy, NULL, 10);
    return errno == 0 && copy[0] != '-' ? INT64_MAX : fallback;
}
