/* broker/tool_mcp.c: see tool_mcp.h.
 *
 * Names and schemas of servers are not made for Python. A function's name becomes an identifier:
 * other characters become '_', a keyword gets one behind it, and so does a name that is there
 * already, with a number. A schema that the broker cannot use is replaced by one that takes any
 * named arguments, which the server then judges. JSON Schema allows further properties unless it
 * says otherwise; a signature that models read is better without, so they must be allowed by name.
 *
 * The answer is the server's result as it is, without `_meta`: {"content": […],
 * "structuredContent": …}; the guest makes Python values of it. A result with `isError` becomes a
 * ToolError with its texts.
 */
#include "broker/tool_mcp.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/json/fields.h"
#include "base/text.h"
#include "broker/tool_call.h"
#include "broker/tool_schema.h"
#include "broker/tools.h"
#include "mcp_client/client.h"

enum { WORDS_MAX = 20000 };

struct mcp_function {
    struct mcp_client *client;
    char *name; /* the server's */
};

struct mcp_asked {
    struct tool_call *call;
    struct mcp_request *request;
};

/* ---- calls ---- */

/* The texts of a result, one below the other. */
static void result_texts(struct json_object *result, struct buf *out)
{
    struct json_object *content = json_get_typed(result, "content", json_type_array);
    for (size_t i = 0; i < json_length(content); i++) {
        struct json_object *block = json_object_array_get_idx(content, i);
        const char *text = json_get_string(block, "text", NULL);
        if (!text || strcmp(json_get_string(block, "type", ""), "text") != 0)
            continue;
        if (out->len > 0)
            buf_putc(out, '\n');
        buf_puts(out, text);
    }
    if (out->len > WORDS_MAX) {
        out->len = text_utf8_floor(out->data, out->len, WORDS_MAX);
        buf_puts(out, "…");
    }
}

static void mcp_answer(struct tool_call *call, struct json_object *result)
{
    static const char *const members[] = { "content", "structuredContent" };
    cleanup_buf struct buf out = { 0 };
    buf_putc(&out, '{');
    for (size_t i = 0; i < array_length(members); i++) {
        struct json_object *value = NULL;
        if (json_object_object_get_ex(result, members[i], &value) && value)
            field_json(&out, members[i], json_text(value, NULL));
    }
    buf_putc(&out, '}');
    if (buf_failed(&out))
        tool_call_fail(call, "MemoryError", "the host is out of memory");
    else
        tool_call_answer(call, out.data, out.len);
}

static void mcp_replied(void *arg, struct json_object *result, const struct error *why)
{
    struct mcp_asked *asked = arg;
    struct tool_call *call = asked->call;
    cleanup_buf struct buf words = { 0 };
    free(asked);
    if (why) {
        tool_call_fail(call, why->code == ERROR_LOST ? "ConnectionError" : "ToolError", why->text);
    } else if (strcmp(json_get_string(result, "resultType", "complete"), "complete") != 0) {
        tool_call_fail(
            call, "ToolError", "the server asks its user for something, which code cannot answer");
    } else if (json_get_bool(result, "isError", false)) {
        result_texts(result, &words);
        tool_call_fail(call, "ToolError", words.len > 0 ? words.data : "the server gave no reason");
    } else {
        mcp_answer(call, result);
    }
    json_object_put(result);
}

static void mcp_not_awaited(void *arg, struct tool_call *call)
{
    struct mcp_asked *asked = arg;
    if (asked->request)
        mcp_client_cancel(asked->request);
    free(asked);
    tool_call_fail(call, "RuntimeError", "the answer is no longer awaited");
}

static void call_mcp(void *arg, struct tool_call *call, const char *json, size_t len)
{
    const struct mcp_function *f = arg;
    struct error err = { 0 };
    struct mcp_asked *asked = calloc(1, sizeof *asked);
    if (!asked) {
        tool_call_fail(call, "MemoryError", "the host is out of memory");
        return;
    }
    asked->call = call;
    tool_call_on_cancel(call, mcp_not_awaited, asked);
    if (mcp_client_call(f->client, f->name, json, len, mcp_replied, asked, &asked->request, &err) <
        0)
        mcp_replied(asked, NULL, &err);
}

static void mcp_function_release(void *arg)
{
    struct mcp_function *f = arg;
    mcp_client_release(f->client);
    free(f->name);
    free(f);
}

/* ---- names and schemas ---- */

/* Appends NAME.FUNCTION, with a name that is free and that Python can have. */
static void mcp_write_name(
    const struct tools *t, const char *module, const char *name, struct buf *out)
{
    cleanup_buf struct buf plain = { 0 };
    text_append_identifier(&plain, name);
    buf_printf(out, "%s.%s", module, buf_text(&plain));
    for (unsigned n = 2; tools_find(t, buf_text(out)); n++) {
        buf_clear(out);
        buf_printf(out, "%s.%s_%u", module, buf_text(&plain), n);
    }
}

char *tool_mcp_schema(struct json_object *input)
{
    static const char any[] =
        "{\"type\":\"object\",\"properties\":{},\"additionalProperties\":true}";
    struct json_object *more = NULL;
    if (!input || tool_schema_check(input, NULL) < 0)
        return strdup(any);
    bool is_open = json_object_object_get_ex(input, "additionalProperties", &more) &&
                   !json_object_is_type(more, json_type_boolean);
    bool has_names = json_get_typed(input, "properties", json_type_object);
    if (is_open)
        json_object_object_add(input, "additionalProperties", json_object_new_boolean(true));
    if (!has_names && (!more || is_open || json_object_get_boolean(more)))
        return strdup(more ? any : "{\"type\":\"object\",\"properties\":{}}");
    const char *text = json_text(input, NULL);
    return text ? strdup(text) : NULL;
}

static int mcp_add(
    struct tools *t, struct mcp_client *client, const struct mcp_tool *tool, struct error *err)
{
    cleanup_buf struct buf name = { 0 };
    cleanup_free char *schema = tool_mcp_schema(tool->input);
    struct mcp_function *f = calloc(1, sizeof *f);
    mcp_write_name(t, mcp_client_name(client), tool->name, &name);
    if (f)
        *f = (struct mcp_function){ mcp_client_hold(client), strdup(tool->name) };
    struct tool_spec spec = { .name = buf_text(&name),
        .description = tool->description,
        .parameters = schema,
        .returns = tool->output ? json_text(tool->output, NULL) : NULL,
        .fn = call_mcp,
        .arg = f,
        .release = mcp_function_release,
        .of_server = true };
    if (f && f->name && schema && !buf_failed(&name))
        return tools_add(t, &spec, err);
    if (f)
        mcp_function_release(f);
    return error_memory(err);
}

int tools_add_mcp(struct tools *t, struct mcp_client *client, struct error *err)
{
    size_t count;
    const struct mcp_tool *list = mcp_client_tools(client, &count);
    int rc = tools_have(t, mcp_client_name(client))
                 ? error_set(err, ERROR_ARGUMENT, "mcp-server '%.64s': a tool has this name, too",
                       mcp_client_name(client))
                 : 0;
    for (size_t i = 0; rc == 0 && i < count; i++)
        rc = mcp_add(t, client, &list[i], err);
    return rc;
}
