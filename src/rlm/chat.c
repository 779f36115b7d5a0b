/* rlm/chat.c: see chat.h. */
#include "rlm/chat.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "session/context.h"

static int add_context(struct chat *c, const struct context *context, struct error *err)
{
    void *more = reallocarray(c->contexts, c->context_count + 1, sizeof *c->contexts);
    if (!more)
        return error_memory(err);
    c->contexts = more;
    c->contexts[c->context_count++] = context;
    return 0;
}

int chat_begin(struct chat *c, const struct context *context, struct error *err)
{
    return add_context(c, context, err);
}

static int say(struct chat *c, const char *role, const char *text, size_t len, struct error *err)
{
    cleanup_json struct json_object *one = json_object_new_object();
    if (!one || !json_put_text(one, "role", role) || !json_put_string(one, "content", text, len) ||
        json_object_array_add(c->history, json_object_get(one)) < 0)
        return error_memory(err);
    return 0;
}

/* A text as itself, all else as JSON. */
static int say_answer(struct chat *c, const char *json, struct error *err)
{
    cleanup_json struct json_object *o = NULL;
    size_t len = json ? strlen(json) : 0;
    if (!json)
        return say(c, "assistant", "", 0, err);
    if (json_parse(json, len, &json_limits_large, &o, NULL) == 0 &&
        json_object_is_type(o, json_type_string))
        return say(
            c, "assistant", json_object_get_string(o), (size_t)json_object_get_string_len(o), err);
    return say(c, "assistant", json, len, err);
}

int chat_go_on(struct chat *c, const struct chat *before, const char *question, const char *answer,
    const struct context *context, struct error *err)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < before->context_count; i++)
        rc = add_context(c, before->contexts[i], err);
    if (rc == 0 && context)
        rc = add_context(c, context, err);
    c->history = json_object_new_array();
    if (rc == 0 && !c->history)
        rc = error_memory(err);
    size_t said = before->history ? json_object_array_length(before->history) : 0;
    for (size_t i = 0; rc == 0 && i < said; i++)
        json_object_array_add(
            c->history, json_object_get(json_object_array_get_idx(before->history, i)));
    c->next = before->context_count;
    if (rc == 0)
        rc = say(c, "user", question, strlen(question), err);
    return rc < 0 ? rc : say_answer(c, answer, err);
}

void chat_free(struct chat *c)
{
    free(c->contexts);
    json_object_put(c->history);
    *c = (struct chat){ 0 };
}

/* ---- in the guest ---- */

void chat_bind_begin(struct chat *c, bool more_only)
{
    if (!more_only)
        c->next = 0;
}

void chat_context_name(const struct chat *c, char out[32])
{
    size_t last = c->context_count - 1;
    if (last == 0)
        snprintf(out, 32, "context");
    else
        snprintf(out, 32, "context_%zu", last);
}

static int bind_context(struct chat *c, size_t i, struct session *s, session_done_fn *done,
    void *arg, struct error *err)
{
    char name[32];
    const char *names[] = { name, "context" };
    size_t count = i == 0 ? 2 : 1;
    snprintf(name, sizeof name, "context_%zu", i);
    if (i == 0) { /* the guest describes the first name */
        names[0] = "context";
        names[1] = name;
    }
    if (c->contexts[i])
        return context_set(c->contexts[i], s, names, count, done, arg, err);
    return session_set(s, names, count, VALUE_TEXT, "", 0, -1, done, arg, err);
}

static int bind_history(
    struct chat *c, struct session *s, session_done_fn *done, void *arg, struct error *err)
{
    static const char *const names[] = { "history" };
    size_t len = 0;
    const char *text = json_text(c->history, &len);
    return text ? session_set(s, names, 1, VALUE_JSON, text, len, -1, done, arg, err)
                : error_memory(err);
}

int chat_bind_next(
    struct chat *c, struct session *s, session_done_fn *done, void *arg, struct error *err)
{
    size_t i = c->next++;
    if (i >= c->context_count + (c->history != NULL))
        return 0;
    int rc = i < c->context_count ? bind_context(c, i, s, done, arg, err)
                                  : bind_history(c, s, done, arg, err);
    return rc < 0 ? rc : 1;
}

const struct context *chat_bound(const struct chat *c)
{
    return c->next > 0 && c->next <= c->context_count ? c->contexts[c->next - 1] : NULL;
}
