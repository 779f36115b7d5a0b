/* rlm/chat.c: state of a conversation that outlives its runs. */
#include "rlm/chat.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "session/context.h"

static int chat_add_context(struct chat *c, const struct context *context, struct error *err)
{
    void *more = reallocarray(c->contexts, c->context_count + 1, sizeof *c->contexts);
    if (!more)
        return error_memory(err);
    c->contexts = more;
    c->contexts[c->context_count++] = context;
    return 0;
}

static int add_contexts(struct chat *c, const struct contexts *own, struct error *err)
{
    int rc = 0;
    c->own = c->context_count;
    for (size_t i = 0; rc == 0 && own && i < own->count; i++)
        rc = chat_add_context(c, own->items[i], err);
    return rc;
}

int chat_begin(struct chat *c, const struct contexts *own, struct error *err)
{
    return own && own->count > 0 ? add_contexts(c, own, err) : chat_add_context(c, NULL, err);
}

static int add_message(
    struct json_object *list, const char *role, const char *text, size_t len, struct error *err)
{
    cleanup_json struct json_object *one = json_object_new_object();
    if (!one || !json_put_text(one, "role", role) || !json_put_string(one, "content", text, len) ||
        json_object_array_add(list, json_object_get(one)) < 0)
        return error_memory(err);
    return 0;
}

int chat_say(struct chat *c, const char *role, const char *text, size_t len, struct error *err)
{
    return add_message(c->history, role, text, len, err);
}

int chat_begin_earlier(struct chat *c, struct error *err)
{
    struct json_object *list = json_object_new_array();
    if (list && json_object_array_add(c->earlier, list) == 0)
        return 0;
    json_object_put(list);
    return error_memory(err);
}

int chat_add_earlier(
    struct chat *c, const char *role, const char *text, size_t len, struct error *err)
{
    return add_message(
        json_object_array_get_idx(c->earlier, json_length(c->earlier) - 1), role, text, len, err);
}

/* The elements of both are the same objects. */
static int copy_list(struct json_object **out, struct json_object *list, struct error *err)
{
    size_t count = json_length(list);
    *out = json_object_new_array();
    for (size_t i = 0; *out && i < count; i++)
        json_object_array_add(*out, json_object_get(json_object_array_get_idx(list, i)));
    return *out ? 0 : error_memory(err);
}

/* Returns a text unchanged, anything else as JSON. */
static int say_answer(struct chat *c, const char *json, struct error *err)
{
    cleanup_json struct json_object *o = NULL;
    size_t len = json ? strlen(json) : 0;
    if (!json)
        return chat_say(c, "assistant", "", 0, err);
    if (json_parse(json, len, &json_limits_large, &o, NULL) == 0 &&
        json_object_is_type(o, json_type_string))
        return chat_say(
            c, "assistant", json_object_get_string(o), (size_t)json_object_get_string_len(o), err);
    return chat_say(c, "assistant", json, len, err);
}

int chat_go_on(struct chat *c, const struct chat *before, const char *question, const char *answer,
    const struct contexts *own, struct error *err)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < before->context_count; i++)
        rc = chat_add_context(c, before->contexts[i], err);
    if (rc == 0)
        rc = add_contexts(c, own, err);
    if (rc == 0)
        rc = copy_list(&c->history, before->history, err);
    if (rc == 0)
        rc = copy_list(&c->earlier, before->earlier, err);
    c->earlier_next = json_length(before->earlier);
    c->next = before->context_count;
    if (rc == 0)
        rc = chat_say(c, "user", question, strlen(question), err);
    return rc < 0 ? rc : say_answer(c, answer, err);
}

void chat_free(struct chat *c)
{
    free(c->contexts);
    json_object_put(c->history);
    json_object_put(c->earlier);
    context_free(c->bound_history);
    *c = (struct chat){ 0 };
}

/* ---- in the guest ---- */

void chat_bind_begin(struct chat *c, bool more_only)
{
    if (!more_only)
        c->next = c->earlier_next = 0;
}

static int bind_context(struct chat *c, size_t i, struct session *s, session_done_fn *done,
    void *arg, struct error *err)
{
    struct context_names names;
    context_names(c->contexts[i], i, &names);
    if (c->contexts[i])
        return context_set(c->contexts[i], s, names.names, names.count, done, arg, err);
    return session_set(s, names.names, names.count, VALUE_TEXT, "", 0, -1, done, arg, err);
}

/* Bound as a context, so that a long history costs the host no memory of its own. */
static int bind_messages(struct chat *c, struct json_object *list, const char *name,
    struct session *s, session_done_fn *done, void *arg, struct error *err)
{
    const char *const names[] = { name };
    size_t len = 0;
    const char *text = json_text(list, &len);
    context_free(steal(&c->bound_history));
    int rc = text ? context_from_memory(text, len, VALUE_JSON, &c->bound_history, err)
                  : error_memory(err);
    return rc < 0 ? rc : context_set(c->bound_history, s, names, 1, done, arg, err);
}

int chat_bind_history(
    struct chat *c, struct session *s, session_done_fn *done, void *arg, struct error *err)
{
    return bind_messages(c, c->history, "history", s, done, arg, err);
}

static int bind_earlier(struct chat *c, size_t i, struct session *s, session_done_fn *done,
    void *arg, struct error *err)
{
    char name[32];
    snprintf(name, sizeof name, "history_%zu", i);
    return bind_messages(c, json_object_array_get_idx(c->earlier, i), name, s, done, arg, err);
}

int chat_bind_next(struct chat *c, const struct prepare *prepared, struct session *s,
    session_done_fn *done, void *arg, struct error *err)
{
    size_t i = c->next++;
    int rc;
    if (i < c->context_count) {
        rc = prepare_check_context(prepared, c->contexts[i], err);
        if (rc == 0)
            rc = bind_context(c, i, s, done, arg, err);
        return rc < 0 ? rc : 1;
    }
    size_t earlier = c->earlier_next + (i - c->context_count), count = json_length(c->earlier);
    if (!c->history || earlier > count)
        return 0;
    rc = earlier < count ? bind_earlier(c, earlier, s, done, arg, err)
                         : chat_bind_history(c, s, done, arg, err);
    return rc < 0 ? rc : 1;
}

const struct context *chat_bound(const struct chat *c, size_t *index)
{
    *index = c->next - 1;
    return c->next > 0 && c->next <= c->context_count ? c->contexts[c->next - 1] : NULL;
}
