/* mcp/call.c: answers to requests, and what tools give. */
#include "mcp/call.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/text.h"

void mcp_question_free(struct mcp_question *q)
{
    json_object_put(q->params);
    free(q->method);
    free(q);
}

/* Ends the questions of a call that ends. */
static void call_drop_questions(struct mcp_call *c)
{
    while (c->questions) {
        struct mcp_question *q = c->questions;
        c->questions = q->next;
        q->fn(q->arg, NULL, NULL, "the request has ended");
        mcp_question_free(q);
    }
}

static void call_free(struct mcp_call *c)
{
    for (struct mcp_call **at = &c->peer->calls; *at; at = &(*at)->next)
        if (*at == c) {
            *at = c->next;
            break;
        }
    call_drop_questions(c);
    if (c->free_state)
        c->free_state(c->state);
    json_object_put(c->kept);
    json_object_put(c->message);
    json_object_put(c->origin);
    free(c);
}

void mcp_call_drop(struct mcp_call *c)
{
    call_free(c);
}

void mcp_call_cancel(struct mcp_call *c)
{
    if (c->cancel)
        c->cancel(c); /* drops it */
    else
        call_free(c);
}

static void call_send_text(
    struct mcp_call *c, const char *json, size_t len, struct mcp_message message)
{
    message.json = json;
    message.len = len;
    message.stream = c->stream;
    message.is_stateless = c->is_stateless;
    c->peer->send(c->peer->arg, &message);
}

/* Sends the answer, which it takes, and frees the call. */
static void call_send(struct mcp_call *c, struct json_object *answer, int code)
{
    static const char memory[] = "{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":-32603,"
                                 "\"message\":\"out of memory\"}}";
    size_t len = 0;
    if (answer && c->is_parked) {
        c->kept = answer;
        c->cancel = NULL;
        return;
    }
    const char *text = answer ? json_text(answer, &len) : NULL;
    struct mcp_message message = {
        .is_answer = true, .code = text ? code : RPC_INTERNAL, .is_refusal = code && c->is_refusal
    };
    call_send_text(c, text ? text : memory, text ? len : sizeof memory - 1, message);
    json_object_put(answer);
    call_free(c);
}

static struct json_object *call_id(const struct mcp_call *c)
{
    return c->id ? json_object_get(c->id) : NULL;
}

/* Adds what answers of 2026-07-28 carry. */
static bool call_complete(const struct mcp_call *c, struct json_object *result)
{
    struct json_object *meta = json_get_typed(result, "_meta", json_type_object);
    if (!json_object_object_get_ex(result, "resultType", NULL) &&
        !json_put_text(result, "resultType", "complete"))
        return false;
    if (!meta && !((meta = json_object_new_object()) && json_put(result, "_meta", meta)))
        return false;
    struct json_object *info = json_object_new_object();
    if (!info || !json_put_text(info, "name", "droste") ||
        !json_put_text(info, "version", droste_version())) {
        json_object_put(info);
        return false;
    }
    if (!json_put(meta, META "serverInfo", info))
        return false;
    return !c->is_cached || (json_put(result, "ttlMs", json_object_new_int(0)) &&
                                json_put_text(result, "cacheScope", "private"));
}

void mcp_call_answer(struct mcp_call *c, struct json_object *result)
{
    if (result && c->is_stateless && !call_complete(c, result)) {
        json_object_put(result);
        result = NULL;
    }
    call_send(c, result ? rpc_result(call_id(c), result) : NULL, 0);
}

void mcp_call_fail_with(struct mcp_call *c, int code, struct json_object *data, const char *text)
{
    call_send(c, rpc_error(call_id(c), code, text, data), code);
}

void mcp_call_fail(struct mcp_call *c, int code, const char *format, ...)
{
    cleanup_buf struct buf text = { 0 };
    va_list args;
    va_start(args, format);
    buf_vprintf(&text, format, args);
    va_end(args);
    mcp_call_fail_with(c, code, NULL, buf_text(&text));
}

/* ---- notifications ---- */

static void call_note(struct mcp_call *c, struct json_object *o, bool may_be_lost)
{
    size_t len = 0;
    const char *text = o && !c->is_parked ? json_text(o, &len) : NULL;
    if (text)
        call_send_text(c, text, len, (struct mcp_message){ .may_be_lost = may_be_lost });
    json_object_put(o);
}

void mcp_call_note(struct mcp_call *c, struct json_object *o)
{
    call_note(c, o, false);
}

void mcp_call_progress_of(struct mcp_call *c, double done, double total, const char *text)
{
    struct json_object *params = c->progress_token ? json_object_new_object() : NULL;
    if (!params)
        return;
    c->progress = done;
    bool ok = json_put(params, "progressToken", json_object_get(c->progress_token)) &&
              json_put(params, "progress", json_object_new_double(done));
    if (ok && total > 0)
        ok = json_put(params, "total", json_object_new_double(total));
    if (ok && json_put_text(params, "message", text))
        call_note(c, rpc_call(NULL, "notifications/progress", params), true);
    else
        json_object_put(params);
}

void mcp_call_progress(struct mcp_call *c, const char *text, size_t len)
{
    cleanup_buf struct buf clean = { 0 };
    text_append_utf8(&clean, text, len);
    if (!buf_failed(&clean))
        mcp_call_progress_of(c, c->progress + 1, 0, buf_text(&clean));
}

/* Less important ones have higher numbers (RFC 5424); -1: it is not a level. */
static int log_rank(const char *level)
{
    static const char *const levels[] = { "emergency", "alert", "critical", "error", "warning",
        "notice", "info", "debug" };
    for (size_t i = 0; level && i < array_length(levels); i++)
        if (strcmp(levels[i], level) == 0)
            return (int)i;
    return -1;
}

void mcp_log_set_level(struct mcp_call *c)
{
    const char *level = json_get_string(c->params, "level", NULL);
    if (log_rank(level) < 0) {
        mcp_call_fail(c, RPC_PARAMS, "`level` is one of RFC 5424: debug, info, … emergency");
        return;
    }
    snprintf(c->peer->log_level, sizeof c->peer->log_level, "%s", level);
    mcp_call_answer(c, json_object_new_object());
}

void mcp_call_log(
    struct mcp_call *c, const char *level, const char *logger, struct json_object *data)
{
    /* Up to 2025-11-25, a client that has set no level gets what the server likes to tell. */
    const char *wanted = c->is_stateless         ? c->log_level
                         : c->peer->log_level[0] ? c->peer->log_level
                                                 : "info";
    struct json_object *params =
        log_rank(level) <= log_rank(wanted) ? json_object_new_object() : NULL;
    bool ok =
        params && json_put_text(params, "level", level) && json_put_text(params, "logger", logger);
    if (ok && json_put(params, "data", steal(&data)))
        call_note(c, rpc_call(NULL, "notifications/message", params), false);
    else
        json_object_put(params);
    json_object_put(data);
}

/* ---- results of tools ---- */

struct json_object *mcp_result(void)
{
    struct json_object *o = json_object_new_object();
    if (o && json_put(o, "content", json_object_new_array()))
        return o;
    json_object_put(o);
    return NULL;
}

static void tool_add(struct json_object *result, struct json_object *item)
{
    struct json_object *content = json_get_typed(result, "content", json_type_array);
    if (!content || !item || json_object_array_add(content, item) < 0)
        json_object_put(item);
}

void mcp_result_add_text(struct json_object *result, const char *text, size_t len)
{
    cleanup_buf struct buf clean = { 0 };
    text_append_utf8(&clean, text, len);
    struct json_object *item = json_object_new_object();
    if (item && json_put_text(item, "type", "text") &&
        json_put_string(item, "text", buf_text(&clean), clean.len))
        tool_add(result, item);
    else
        json_object_put(item);
}

void mcp_result_add_media(
    struct json_object *result, const char *kind, const char *type, const void *data, size_t len)
{
    cleanup_buf struct buf text = { 0 };
    json_append_base64(&text, data, len);
    struct json_object *item = json_object_new_object();
    if (item && json_put_text(item, "type", kind) && json_put_text(item, "mimeType", type) &&
        json_put_string(item, "data", buf_text(&text), text.len))
        tool_add(result, item);
    else
        json_object_put(item);
}

void mcp_result_set_data(struct json_object *result, struct json_object *data)
{
    size_t len;
    const char *text = data ? json_text(data, &len) : NULL;
    if (text && json_length(json_get_typed(result, "content", json_type_array)) == 0)
        mcp_result_add_text(result, text, len);
    if (data)
        json_put(result, "structuredContent", data);
}

static void tool_fail_text(struct mcp_call *c, const char *text)
{
    struct json_object *result = mcp_result();
    if (result) {
        mcp_result_add_text(result, text, strlen(text));
        json_put(result, "isError", json_object_new_boolean(true));
    }
    mcp_call_answer(c, result);
}

void mcp_tool_fail(struct mcp_call *c, const char *format, ...)
{
    cleanup_buf struct buf text = { 0 };
    va_list args;
    va_start(args, format);
    buf_vprintf(&text, format, args);
    va_end(args);
    tool_fail_text(c, buf_text(&text));
}

void mcp_tool_fail_error(struct mcp_call *c, const droste_error *err)
{
    tool_fail_text(c, err->text);
}

/* ---- what the program wrote ---- */

bool mcp_put_written(struct json_object *o, const char *key, const char *json)
{
    struct json_object *value = NULL;
    return json_parse(json, strlen(json), &json_limits_small, &value, NULL) == 0 &&
           json_put(o, key, value);
}

bool mcp_list_append(struct json_object *list, const char *json)
{
    cleanup_json struct json_object *more = NULL;
    if (!json)
        return true;
    if (json_parse(json, strlen(json), &json_limits_small, &more, NULL) < 0)
        return false;
    for (size_t i = 0; i < json_length(more); i++)
        if (json_object_array_add(list, json_object_get(json_object_array_get_idx(more, i))) < 0)
            return false;
    return true;
}
