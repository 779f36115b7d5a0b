/* session/answer.c: extracts answers from submissions and from models' replies. */
#include "session/answer.h"

#include <stdlib.h>
#include <string.h>

static const char *answer_skip_space(const char *at, const char *end)
{
    while (at < end && strchr(" \t\r\n", *at) && *at)
        at++;
    return at;
}

/* Returns the only member's value in its original spelling, because numbers may exceed what
 * json-c represents. If the rest is one value, there is no other member. */
static bool only_member(
    const char *text, size_t len, const char *name, const char **value, size_t *value_len)
{
    const char *end = text + len, *at = answer_skip_space(text, end);
    size_t n = strlen(name);
    while (end > at && end[-1] != '}')
        end--;
    at = at < end && *at == '{' ? answer_skip_space(at + 1, end) : end;
    if ((size_t)(end - at) < n + 2 || at[0] != '"' || memcmp(at + 1, name, n) != 0 ||
        at[n + 1] != '"')
        return false;
    at = answer_skip_space(at + n + 2, end);
    if (at == end || *at != ':')
        return false;
    at = answer_skip_space(at + 1, end);
    *value = at;
    *value_len = (size_t)(end - at) - 1;
    return json_check(at, *value_len, &json_limits_large, NULL) == 0;
}

static void find_answer(const char *submit, size_t len, const struct schema *type,
    const char **value, size_t *value_len)
{
    size_t names = 0;
    if (type)
        schema_names(type, &names);
    *value = submit;
    *value_len = len;
    if (names == 0 && !only_member(submit, len, "answer", value, value_len) &&
        !only_member(submit, len, "output", value, value_len)) {
        *value = submit;
        *value_len = len;
    }
}

/* Removes whitespace between JSON tokens; NULL without memory. */
static char *answer_compact(const char *json, size_t len)
{
    char *out = malloc(len + 1), *to = out;
    bool string = false;
    for (size_t i = 0; out && i < len; i++) {
        char c = json[i];
        if (!string && (c == ' ' || c == '\t' || c == '\r' || c == '\n'))
            continue;
        *to++ = c;
        if (c == '"')
            string = !string;
        if (c == '\\' && i + 1 < len)
            *to++ = json[++i];
    }
    if (out)
        *to = '\0';
    return out;
}

char *answer_of(const char *submit, size_t len, const struct schema *type)
{
    const char *value;
    size_t value_len;
    find_answer(submit, len, type, &value, &value_len);
    return answer_compact(value, value_len);
}

/* Bounds the tree that checking builds: 250,000 values take some 45 MB and 60 ms. */
static const struct json_limits checked_limits = { 256u << 20, JSON_DEPTH_MAX, 250000 };

static int check_json(const struct schema *type, const char *json, size_t len, struct error *err)
{
    cleanup_json struct json_object *o = NULL;
    struct error why = { 0 };
    if (json_parse(json, len, &checked_limits, &o, &why) < 0)
        return error_set(err, ERROR_ARGUMENT, "it is not JSON that can be checked (%s)", why.text);
    return schema_check(type, o, err);
}

int answer_check(const struct schema *type, const char *submit, size_t len, struct error *err)
{
    const char *value;
    size_t value_len;
    find_answer(submit, len, type, &value, &value_len);
    return check_json(type, value, value_len, err);
}

/* ---- words ---- */

/* Finds the text between the first and the last code fence, if there are two. */
static void find_fenced(const char **text, size_t *len)
{
    static const char fence[] = "```";
    const char *open = memmem(*text, *len, fence, 3), *end = *text + *len;
    const char *line = open ? memchr(open, '\n', (size_t)(end - open)) : NULL;
    const char *close = NULL;
    for (const char *at = line; at; at = memmem(at + 1, (size_t)(end - at - 1), fence, 3))
        close = at > line ? at : close;
    if (!close)
        return;
    *text = line + 1;
    *len = (size_t)(close - line - 1);
}

int answer_from_words(
    const struct schema *type, const char *text, size_t len, char **out, struct error *err)
{
    struct buf string = { 0 };
    const char *json = text;
    size_t json_len = len;
    json_append_string(&string, text, len);
    *out = buf_steal(&string);
    if (!*out)
        return error_memory(err);
    if (!type)
        return 0;
    find_fenced(&json, &json_len);
    int rc = check_json(type, json, json_len, err);
    if (rc == 0 || check_json(type, *out, strlen(*out), NULL) < 0) {
        free(*out);
        *out = rc == 0 ? answer_compact(json, json_len) : NULL;
        return rc == 0 && !*out ? error_memory(err) : rc;
    }
    return 0;
}
