/* broker/prompt.c: parses prompts and lists of messages. */
#include "broker/prompt.h"

#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "lm/request.h"

enum { MESSAGES_MAX = 10000, PARTS_MAX = 30000, VALUES_MAX = 100000 };

/* Deep enough for a part of a message with unknown members. */
const struct json_limits prompt_limits = { 256u << 20, 16, VALUES_MAX };

int prompt_check(const char *text, size_t len, struct error *err)
{
    size_t bad;
    if (len == 0)
        return error_set(err, ERROR_ARGUMENT, "prompt cannot be empty");
    if (!text_is_utf8(text, len, &bad))
        return error_set(err, ERROR_ARGUMENT, "the prompt is not UTF-8 at byte %zu", bad);
    return 0;
}

/* Reads a string member; its length may include zero bytes. */
static const char *string_of(struct json_object *o, const char *key, size_t *len)
{
    struct json_object *member = NULL;
    *len = 0;
    if (!json_object_is_type(o, json_type_object) || !json_object_object_get_ex(o, key, &member) ||
        !json_object_is_type(member, json_type_string))
        return NULL;
    *len = (size_t)json_object_get_string_len(member);
    return json_object_get_string(member);
}

static int prompt_take_bytes(
    struct json_object *o, size_t message, struct lm_part *out, struct error *err)
{
    size_t len, n = 0;
    const char *data = string_of(o, "data", &len);
    char *bytes = data ? json_base64_bytes(data, len, &n) : NULL;
    if (!bytes)
        return error_set(
            err, ERROR_ARGUMENT, "message %zu: the data of a part is not valid base64", message);
    out->media_type = json_get_string(o, "media_type", NULL);
    out->data = bytes;
    out->len = n;
    return 0;
}

static int prompt_take_part(
    struct json_object *o, size_t message, struct lm_part *out, struct error *err)
{
    size_t len;
    const char *type = string_of(o, "type", &len);
    if (type && strcmp(type, "text") == 0) {
        out->kind = LM_PART_TEXT;
        out->data = string_of(o, "text", &out->len);
        return out->data ? 0
                         : error_set(err, ERROR_ARGUMENT,
                               "message %zu: a part of type text has no text", message);
    }
    if (!type || (strcmp(type, "image") && strcmp(type, "document")))
        return error_set(err, ERROR_ARGUMENT,
            "message %zu: a part has the unknown type '%.20s'; use text, image or document",
            message, type ? type : "");
    out->kind = strcmp(type, "image") == 0 ? LM_PART_IMAGE : LM_PART_DOCUMENT;
    return prompt_take_bytes(o, message, out, err);
}

static size_t count_parts(struct json_object *list)
{
    size_t count = 0;
    for (size_t i = 0; i < json_object_array_length(list); i++) {
        struct json_object *content =
            json_get_typed(json_object_array_get_idx(list, i), "content", json_type_array);
        count += json_length(content);
    }
    return count;
}

static int take_parts(
    struct prompt *p, struct json_object *content, size_t message, struct error *err)
{
    struct lm_message *m = &p->messages[message];
    m->parts = p->parts + p->part_count;
    m->part_count = json_object_array_length(content);
    if (m->part_count == 0)
        return error_set(err, ERROR_ARGUMENT, "message %zu has no parts", message);
    for (size_t k = 0; k < m->part_count; k++) {
        int rc = prompt_take_part(
            json_object_array_get_idx(content, k), message, &p->parts[p->part_count], err);
        if (rc < 0)
            return rc;
        p->part_count++;
    }
    return 0;
}

static int prompt_take_message(struct prompt *p, size_t index, struct error *err)
{
    struct json_object *o = json_object_array_get_idx(p->list, index);
    struct lm_message *m = &p->messages[index];
    struct json_object *content = json_get_typed(o, "content", json_type_array);
    const char *role = json_get_string(o, "role", "");
    m->role = lm_role(role);
    if (!m->role)
        return error_set(err, ERROR_ARGUMENT,
            "the role of message %zu is '%.20s'; use system, user or assistant", index, role);
    if (content)
        return take_parts(p, content, index, err);
    m->text = string_of(o, "content", &m->len);
    return m->text ? 0
                   : error_set(err, ERROR_ARGUMENT,
                         "the content of message %zu must be a text or a list of parts", index);
}

static int prompt_take_list(struct prompt *p, struct error *err)
{
    size_t parts;
    p->count = json_length(p->list);
    if (p->count == 0 || p->count > MESSAGES_MAX)
        return error_set(err, ERROR_ARGUMENT,
            "a prompt must be a text or a list of 1 to %d messages", MESSAGES_MAX);
    parts = count_parts(p->list);
    if (parts > PARTS_MAX)
        return error_set(err, ERROR_ARGUMENT, "a prompt may have at most %d parts", PARTS_MAX);
    p->messages = calloc(p->count, sizeof *p->messages);
    p->parts = calloc(parts + 1, sizeof *p->parts);
    if (!p->messages || !p->parts)
        return error_memory(err);
    int rc = 0;
    for (size_t i = 0; i < p->count && rc == 0; i++)
        rc = prompt_take_message(p, i, err);
    return rc;
}

int prompt_open(struct prompt *out, const char *text, size_t len, bool is_messages,
    struct json_limits *limits, struct error *err)
{
    *out = (struct prompt){ .count = 1, .single = { .role = "user", .text = text, .len = len } };
    out->messages = &out->single;
    if (!is_messages)
        return prompt_check(text, len, err);
    int rc = json_parse_within(text, len, limits, &out->list, err);
    if (rc < 0 && limits->nodes == 0)
        rc = error_set(err, ERROR_ARGUMENT,
            "the lists of messages in one call have more than %d values in total: ask for fewer "
            "at once",
            VALUES_MAX);
    if (rc == 0)
        rc = prompt_take_list(out, err);
    if (rc < 0)
        prompt_close(out);
    return rc;
}

void prompt_close(struct prompt *p)
{
    for (size_t i = 0; i < p->part_count; i++)
        if (p->parts[i].kind != LM_PART_TEXT)
            free((char *)(uintptr_t)p->parts[i].data);
    free(p->parts);
    if (p->messages != &p->single)
        free(p->messages);
    json_object_put(p->list);
    *p = (struct prompt){ 0 };
}
