/* rlm/prompt_tools.c: what the model is told of the tools and values that it was given. */
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

static void put_datum(struct buf *out, struct json_object *variable)
{
    buf_printf(out, "- `%.80s`: ", json_get_string(variable, "name", "?"));
    prompt_describe_context(out, variable);
    buf_puts(out, ", given to you as a variable\n");
}

void prompt_tools(struct buf *out, struct json_object *tools, struct json_object *data)
{
    if (json_length(tools) + json_length(data) == 0)
        return;
    buf_puts(out, "\nThe session also has, for this task:\n");
    for (size_t i = 0; i < json_length(data); i++)
        put_datum(out, json_object_array_get_idx(data, i));
    for (size_t i = 0; i < json_length(tools); i++)
        put_tool(out, json_object_array_get_idx(tools, i));
    if (json_length(tools) > 0)
        buf_puts(out, "They are functions that you call from your code; what they return is a "
                      "Python value. A "
                      "function that fails raises an exception.\n");
}
