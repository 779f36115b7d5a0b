/* serve/sandbox/calls.c: calls of a sandbox's code that its client answers: tools, and models.
 *
 * A call is an event in the stream of the cell that runs, and the client answers it with a request
 * of its own, while it goes on reading or later. Between cells, calls of threads wait for the next
 * stream. A call in a cell without a stream fails at once; so do those whose stream was left. Tools
 * belong to a session, and a fork gets its own. A model belongs to a
 * sandbox and its forks, whose calls say only the model's key: any of their streams gets them.
 */
#include "serve/sandbox/calls.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "serve/mcp/mcp.h"
#include "serve/sandbox/cell_events.h"

/* Bytes of events that wait for a client, and calls that wait for a stream; those beyond fail. */
enum { CALLS_UNREAD_MAX = 16 << 20, CALLS_HELD_MAX = 1000 };

struct client_tool {
    struct sandbox *sb;
    char *name;
    struct client_tool *next;
};

struct client_call {
    struct sandbox *sb; /* whose stream has told of it */
    uint64_t number;
    droste_tool_call *tool; /* NULL: it is a model's */
    droste_call *model;
    struct buf event; /* until a stream tells of it */
    struct client_call *next;
};

static const char calls_unheard[] = "no client answers calls now: execute with \"stream\": true";

static void call_free(struct client_call *call)
{
    buf_free(&call->event);
    free(call);
}

static void call_fail(struct client_call *call, const char *type, const char *message)
{
    if (call->tool)
        droste_tool_fail(call->tool, type, message);
    else
        droste_refuse(call->model, message);
    call_free(call);
}

void calls_fail(struct sandbox *sb)
{
    while (sb->calls) {
        struct client_call *call = sb->calls;
        sb->calls = call->next;
        call_fail(call, "RuntimeError", "the client that answers calls has left");
    }
}

static void call_unlink(struct client_call *call)
{
    struct client_call **at = &call->sb->calls;
    while (*at != call)
        at = &(*at)->next;
    *at = call->next;
}

static void call_on_cancel(void *arg, droste_tool_call *tool)
{
    struct client_call *call = arg;
    struct sandbox *sb = call->sb;
    cleanup_buf struct buf data = { 0 };
    buf_printf(&data, "{\"call\": %llu}", (unsigned long long)call->number);
    call_unlink(call);
    if (sb->listener)
        cell_event(sb->listener, "cancel", &data);
    call_fail(call, "RuntimeError", "its cell was stopped");
}

static bool calls_have_room(const struct sandbox *sb)
{
    size_t held = 0, bytes = 0;
    if (sb->listener)
        return request_unread(sb->listener) <= CALLS_UNREAD_MAX;
    for (const struct client_call *call = sb->calls; call; call = call->next) {
        held += call->event.len > 0;
        bytes += call->event.len;
    }
    return !sb->done && held < CALLS_HELD_MAX && bytes <= CALLS_UNREAD_MAX;
}

static void call_tell(struct client_call *call)
{
    cell_event(call->sb->listener, "call", &call->event);
    buf_free(&call->event);
}

void calls_tell(struct sandbox *sb)
{
    for (struct client_call *call = sb->calls; call; call = call->next)
        if (call->event.len > 0)
            call_tell(call);
}

/* A new call of the sandbox, with the beginning of its event; NULL: no client hears of it. */
static struct client_call *call_new(struct sandbox *sb, struct buf *data)
{
    struct client_call *call = sb && calls_have_room(sb) ? calloc(1, sizeof *call) : NULL;
    if (!call)
        return NULL;
    call->sb = sb;
    call->number = ++sb->call_count;
    call->next = sb->calls;
    sb->calls = call;
    buf_printf(data, "{\"call\": %llu, \"kind\": ", (unsigned long long)call->number);
    return call;
}

/* The event is whole: the stream tells of it, or the next one will. Without memory, it fails. */
static void call_send(struct client_call *call, struct buf *event)
{
    if (buf_failed(event)) {
        call_unlink(call);
        call_fail(call, "MemoryError", "the server is out of memory");
        return;
    }
    call->event = *event;
    *event = (struct buf){ 0 };
    if (call->sb->listener)
        call_tell(call);
}

/* ---- tools ---- */

static void tool_on_call(void *arg, droste_tool_call *tool, const char *json, size_t len)
{
    struct client_tool *of = arg;
    cleanup_buf struct buf data = { 0 };
    struct client_call *call = call_new(of->sb, &data);
    size_t values_len = 0;
    const char *values = droste_tool_values(tool, &values_len);
    if (!call) {
        droste_tool_fail(tool, "RuntimeError", calls_unheard);
        return;
    }
    call->tool = tool;
    buf_puts(&data, "\"tool\", \"name\": ");
    json_append_string(&data, of->name, strlen(of->name));
    buf_puts(&data, ", \"arguments\": ");
    buf_append(&data, json, len);
    if (values) {
        buf_puts(&data, ", \"values\": \"");
        json_append_base64(&data, values, values_len);
        buf_puts(&data, "\"");
    }
    buf_puts(&data, "}");
    droste_tool_on_cancel(tool, call_on_cancel, call);
    call_send(call, &data);
}

static int tool_add(struct sandbox *sb, const char *name, const char *description,
    const char *parameters, droste_error *err)
{
    struct client_tool *tool = calloc(1, sizeof *tool);
    char *copy = strdup(name);
    int rc = -1;
    *err = (droste_error){ .code = DROSTE_ERROR_MEMORY, .text = "out of memory" };
    if (tool && copy) {
        *tool = (struct client_tool){ sb, copy, sb->tools };
        rc = droste_session_tool_add(
            sb->session, name, description, parameters, tool_on_call, tool, err);
    }
    if (rc == 0) {
        sb->tools = tool;
        return 0;
    }
    free(tool);
    free(copy);
    return rc;
}

static void tools_free(struct sandbox *sb, bool from_session)
{
    while (sb->tools) {
        struct client_tool *tool = sb->tools;
        sb->tools = tool->next;
        if (from_session)
            droste_session_tool_remove(sb->session, tool->name, NULL);
        free(tool->name);
        free(tool);
    }
}

void handle_tools(struct request *r)
{
    struct sandbox *sb = sandbox_idle_of(r);
    struct json_object *list = json_get_typed(r->json, "tools", json_type_array);
    droste_error err;
    if (!sb)
        return;
    tools_free(sb, true);
    for (size_t i = 0; i < json_length(list); i++) {
        struct json_object *o = json_object_array_get_idx(list, i);
        struct json_object *parameters = json_get_typed(o, "parameters", json_type_object);
        if (tool_add(sb, json_get_string(o, "name", ""), json_get_string(o, "description", NULL),
                parameters ? json_text(parameters, NULL) : NULL, &err) < 0) {
            tools_free(sb, true);
            request_fail(r, &err);
            return;
        }
    }
    request_reply(r, 204, NULL, NULL, 0);
}

/* The fork's session has the same tools, which call the first sandbox: it forgets them. */
void calls_inherit(struct sandbox *fork, const struct sandbox *of)
{
    fork->model_key = of->model_key;
    for (const struct client_tool *tool = of->tools; tool; tool = tool->next)
        droste_session_tool_remove(fork->session, tool->name, NULL);
}

void calls_close(struct sandbox *sb)
{
    calls_fail(sb);
    tools_free(sb, false);
}

/* ---- models ---- */

static void model_append_part(struct buf *data, const droste_part *part)
{
    static const char *const kinds[] = { "text", "image", "document" };
    buf_printf(data, "{\"kind\": \"%s\", ", kinds[part->kind]);
    if (part->kind == DROSTE_PART_TEXT) {
        buf_puts(data, "\"text\": ");
        json_append_string(data, part->data, part->len);
    } else {
        buf_puts(data, "\"media_type\": ");
        json_append_string(data, part->media_type, strlen(part->media_type));
        buf_puts(data, ", \"data\": \"");
        json_append_base64(data, part->data, part->len);
        buf_puts(data, "\"");
    }
    buf_puts(data, "}");
}

static void model_append_message(struct buf *data, const droste_message *m)
{
    buf_puts(data, "{\"role\": ");
    json_append_string(data, m->role, strlen(m->role));
    if (m->part_count == 0) {
        buf_puts(data, ", \"text\": ");
        json_append_string(data, m->text, m->len);
    } else {
        buf_puts(data, ", \"parts\": [");
        for (size_t i = 0; i < m->part_count; i++) {
            buf_puts(data, i ? ", " : "");
            model_append_part(data, &m->parts[i]);
        }
        buf_puts(data, "]");
    }
    buf_puts(data, "}");
}

/* "callback:KEY.NAME" of options.c. One with a stream, or else one without a cell. */
static struct sandbox *model_listener(struct server *s, const char *opened, const char **name)
{
    char *end = NULL;
    const char *colon = strchr(opened, ':');
    uint64_t key = colon ? strtoull(colon + 1, &end, 10) : 0;
    *name = end && *end == '.' ? end + 1 : "";
    struct sandbox *idle = NULL;
    for (struct sandbox *sb = s->sandboxes; sb && key > 0; sb = sb->next) {
        if (sb->model_key == key && sb->listener)
            return sb;
        if (sb->model_key == key && !sb->done)
            idle = sb;
    }
    return idle;
}

static void model_on_call(void *arg, const droste_message *all, size_t count, droste_call *model)
{
    struct server *s = arg;
    cleanup_buf struct buf data = { 0 };
    if (s->mcp && mcp_take_model_call(s->mcp->core, all, count, model))
        return;
    const char *opened = droste_call_opened(model), *asked = droste_call_model(model), *name;
    struct sandbox *sb = model_listener(s, opened, &name);
    struct client_call *call = call_new(sb, &data);
    if (!call) {
        droste_refuse(model, calls_unheard);
        return;
    }
    call->model = model;
    buf_puts(&data, "\"model\", \"name\": ");
    json_append_string(&data, name, strlen(name));
    buf_puts(&data, ", \"model\": ");
    if (strcmp(strchr(opened, ':') + 1, asked) == 0)
        buf_puts(&data, "null"); /* the code named none */
    else
        json_append_string(&data, asked, strlen(asked));
    buf_puts(&data, ", \"messages\": [");
    for (size_t i = 0; i < count; i++) {
        buf_puts(&data, i ? ", " : "");
        model_append_message(&data, &all[i]);
    }
    buf_puts(&data, "]}");
    call_send(call, &data);
}

void calls_open(struct server *s)
{
    droste_set_model(s->d, model_on_call, s);
}

/* ---- answers ---- */

/* The value has been checked; `values` may be NULL. */
static void call_answer_tool(struct request *r, droste_tool_call *tool, struct json_object *error,
    const char *values, size_t values_len)
{
    struct json_object *value = NULL;
    size_t len = strlen("null");
    if (error) {
        droste_tool_fail(tool, json_get_string(error, "type", "ToolError"),
            json_get_string(error, "message", ""));
        return;
    }
    json_object_object_get_ex(r->json, "value", &value);
    const char *json = value ? json_text(value, &len) : "null";
    if (values)
        droste_tool_answer_values(tool, json, len, values, values_len);
    else
        droste_tool_answer(tool, json, len);
}

static void call_answer_model(struct request *r, droste_call *model, struct json_object *error)
{
    struct json_object *text = json_get_typed(r->json, "text", json_type_string);
    if (error || !text)
        droste_refuse(model,
            error ? json_get_string(error, "message", "") : "the answer of the client has no text");
    else
        droste_answer(
            model, json_object_get_string(text), (size_t)json_object_get_string_len(text));
}

static struct client_call *call_find(struct sandbox *sb, const char *name)
{
    char *end = NULL;
    uint64_t number = strtoull(name, &end, 10);
    struct client_call *call = *end ? NULL : sb->calls;
    while (call && call->number != number)
        call = call->next;
    return call;
}

void handle_call_answer(struct request *r)
{
    struct sandbox *sb = sandbox_of(r);
    struct client_call *call = sb ? call_find(sb, r->name) : NULL;
    const char *text = json_get_string(r->json, "values", NULL);
    struct json_object *error = json_get_typed(r->json, "error", json_type_object);
    size_t len = 0;
    if (!sb)
        return;
    if (!call) {
        request_refuse(r, 404, "not_found", "no call %s waits for an answer", r->name);
        return;
    }
    cleanup_free char *values = text ? json_base64_bytes(text, strlen(text), &len) : NULL;
    if (text && !values) {
        request_refuse(r, 400, "argument", "`values` is not valid base64");
        return;
    }
    call_unlink(call);
    if (call->model)
        call_answer_model(r, call->model, error);
    else
        call_answer_tool(r, call->tool, error, values, len);
    call_free(call);
    request_reply(r, 204, NULL, NULL, 0);
}
