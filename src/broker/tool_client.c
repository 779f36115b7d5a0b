/* broker/tool_client.c: see tool_client.h. */
#include "broker/tool_client.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "broker/tool_call.h"
#include "broker/tool_mcp.h"
#include "broker/tools.h"
#include "store/store.h"

static const struct json_limits client_limits = { 4 << 20, 40, 200000 };

/* Not reached: each call asks first, and is answered by the record. */
static void tool_client_call(void *arg, struct tool_call *call, const char *json, size_t len)
{
    (void)arg;
    (void)json;
    (void)len;
    tool_call_fail(call, "RuntimeError", "the client of the run has to answer this call");
}

static int tool_client_add(struct tools *t, struct json_object *about, struct error *err)
{
    const char *name = json_get_string(about, "name", "");
    cleanup_free char *full = text_printf(CLIENT_TOOLS ".%s", name);
    cleanup_free char *schema =
        tool_mcp_schema(json_get_typed(about, "parameters", json_type_object));
    const struct tool_spec spec = { .name = full,
        .description = json_get_string(about, "description", NULL),
        .parameters = schema,
        .returns = "{\"type\": \"string\"}",
        .fn = tool_client_call,
        .of_server = true,
        .of_client = true };
    if (!full || !schema)
        return error_memory(err);
    if (tools_find(t, full))
        return error_set(err, ERROR_ARGUMENT, "two functions have the name '%.64s'", name);
    return tools_add(t, &spec, err);
}

int tools_add_client(struct tools *t, const char *json, struct error *err)
{
    cleanup_json struct json_object *list = NULL;
    int rc = json_parse(json, strlen(json), &client_limits, &list, err);
    if (rc == 0 && !json_object_is_type(list, json_type_array))
        rc = error_set(err, ERROR_ARGUMENT, "expected a list of functions");
    if (rc == 0 && tools_have(t, CLIENT_TOOLS))
        rc = error_set(
            err, ERROR_ARGUMENT, "a tool or an MCP server has the name '" CLIENT_TOOLS "', too");
    for (size_t i = 0; rc == 0 && i < json_length(list); i++)
        rc = tool_client_add(t, json_object_array_get_idx(list, i), err);
    return rc < 0 ? error_wrap(err, "client-tools") : 0;
}
