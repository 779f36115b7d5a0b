/* mcp/call.c: answers to requests, and what tools give. */
#include "mcp/call.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/text.h"

static void call_free(struct mcp_call *c)
{
    for (struct mcp_call **at = &c->peer->calls; *at; at = &(*at)->next)
        if (*at == c) {
            *at = c->next;
            break;
        }
    if (c->free_state)
        c->free_state(c->state);
    json_object_put(c->message);
    free(c);
}

void mcp_call_drop(struct mcp_call *c)
{
    call_free(c);
}

/* Sends {"jsonrpc", "id", KEY: value}, and takes the value. */
static void call_send(struct mcp_call *c, const char *key, struct json_object *value)
{
    static const char memory[] = "{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":-32603,"
                                 "\"message\":\"out of memory\"}}";
    cleanup_json struct json_object *o = json_object_new_object();
    size_t len = 0;
    bool ok = o && value && json_put_text(o, "jsonrpc", "2.0") &&
              json_put(o, "id", c->id ? json_object_get(c->id) : NULL);
    if (ok)
        ok = json_put(o, key, value);
    else
        json_object_put(value);
    const char *text = ok ? json_text(o, &len) : NULL;
    if (text)
        c->peer->send(c->peer->arg, text, len);
    else
        c->peer->send(c->peer->arg, memory, sizeof memory - 1);
    call_free(c);
}

/* Adds what answers of 2026-07-28 carry. */
static bool call_complete(const struct mcp_call *c, struct json_object *result)
{
    if (!json_object_object_get_ex(result, "resultType", NULL) &&
        !json_put_text(result, "resultType", "complete"))
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
    call_send(c, "result", result);
}

void mcp_call_fail_with(struct mcp_call *c, int code, struct json_object *data, const char *text)
{
    struct json_object *o = json_object_new_object();
    bool ok =
        o && json_put(o, "code", json_object_new_int(code)) && json_put_text(o, "message", text);
    if (ok && data)
        ok = json_put(o, "data", data);
    else
        json_object_put(data);
    if (!ok) {
        json_object_put(o);
        o = NULL;
    }
    call_send(c, "error", o);
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

void mcp_call_progress(struct mcp_call *c, const char *text, size_t len)
{
    if (!c->progress_token)
        return;
    cleanup_json struct json_object *o = json_object_new_object();
    cleanup_buf struct buf clean = { 0 };
    text_append_utf8(&clean, text, len);
    struct json_object *params = json_object_new_object();
    c->progress += 1;
    bool ok = o && params && !buf_failed(&clean) && json_put_text(o, "jsonrpc", "2.0") &&
              json_put_text(o, "method", "notifications/progress") &&
              json_put(params, "progressToken", json_object_get(c->progress_token)) &&
              json_put(params, "progress", json_object_new_double(c->progress)) &&
              json_put_string(params, "message", buf_text(&clean), clean.len);
    if (ok && json_put(o, "params", params)) {
        size_t size;
        const char *json = json_text(o, &size);
        if (json)
            c->peer->send(c->peer->arg, json, size);
    } else if (!ok) {
        json_object_put(params);
    }
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
