/* rlm/prompt_tools.c: the tools and values of the user, for the model. */
#include <string.h>

#include "rlm/prompt.h"

enum { TOOL_BYTES = 4000 };

/* A text behind its first line is indented, so that it stays one point of the list. */
static void put_description(struct buf *out, const char *text)
{
    size_t len = strnlen(text, TOOL_BYTES);
    for (size_t i = 0; i < len; i++) {
        buf_putc(out, text[i]);
        if (text[i] == '\n' && i + 1 < len && text[i + 1] != '\n')
            buf_puts(out, "  ");
    }
    buf_putc(out, '\n');
}

static void put_tool(struct buf *out, struct json_object *tool)
{
    const char *description = json_get_string(tool, "description", "");
    buf_printf(out, "- `%.80s%.*s`%s", json_get_string(tool, "name", "?"), TOOL_BYTES,
        json_get_string(tool, "signature", "()"), description[0] ? ": " : "");
    put_description(out, description);
}

/* Functions of MCP servers are those of modules. */
static bool tools_have_modules(struct json_object *tools)
{
    for (size_t i = 0; i < json_length(tools); i++)
        if (strchr(json_get_string(json_object_array_get_idx(tools, i), "name", ""), '.'))
            return true;
    return false;
}

static void put_datum(struct buf *out, struct json_object *variable)
{
    buf_printf(out, "- `%.80s`: ", json_get_string(variable, "name", "?"));
    prompt_describe_context(out, variable);
    buf_puts(out, ", given to you as a variable\n");
}

void prompt_tools(struct buf *out, struct json_object *tools, struct json_object *data)
{
    cleanup_buf struct buf list = { 0 };
    if (json_length(tools) + json_length(data) == 0)
        return;
    for (size_t i = 0; i < json_length(data); i++)
        put_datum(&list, json_object_array_get_idx(data, i));
    for (size_t i = 0; i < json_length(tools); i++)
        put_tool(&list, json_object_array_get_idx(tools, i));
    if (json_length(tools) > 0)
        buf_puts(&list, prompt_text(PROMPT_SESSION_TOOL_CALLS));
    if (tools_have_modules(tools))
        buf_puts(&list, prompt_text(PROMPT_SESSION_TOOL_MODULES));
    PROMPT_FILL(out, PROMPT_SESSION_TOOLS, { "tools", buf_text(&list) });
    out->failed |= list.failed;
}
