/* mcp_client/tool_list.c: see tool_list.h.
 *
 * A server is not trusted: the number of functions and the size of each text and schema are
 * bounded. A function without a usable name is left out; one with a schema that is too large is
 * kept without it, so that its caller names the arguments freely and the server judges them.
 */
#include "mcp_client/tool_list.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/text.h"

enum { TOOLS_MAX = 500, PAGES_MAX = 100, NAME_MAX_ = 128, DESCRIPTION_MAX = 4000 };

#define SCHEMAS_MAX ((size_t)4 << 20) /* of all functions */

static const struct json_limits schema_limits = { 64 << 10, 24, 4000 };

static bool tool_name_is_usable(struct json_object *name)
{
    if (!json_object_is_type(name, json_type_string))
        return false;
    const char *text = json_object_get_string(name);
    size_t len = (size_t)json_object_get_string_len(name);
    cleanup_buf struct buf visible = { 0 };
    text_append_visible(&visible, text, len);
    return len > 0 && len <= NAME_MAX_ && strlen(text) == len && visible.len == len &&
           !text[strcspn(text, "\t\n")];
}

/* A description, or the title in its place; NULL: there is none. */
static char *tool_take_description(struct json_object *tool)
{
    const char *text = json_get_string(tool, "description", NULL);
    struct buf out = { 0 };
    if (!text)
        text = json_get_string(tool, "title", NULL);
    if (!text)
        return NULL;
    text_append_visible(&out, text, strlen(text));
    if (out.len > DESCRIPTION_MAX) {
        out.len = text_utf8_floor(out.data, out.len, DESCRIPTION_MAX);
        buf_puts(&out, "…");
    }
    return buf_steal(&out);
}

static struct json_object *tool_take_schema(
    struct tool_list *list, struct json_object *tool, const char *member)
{
    struct json_object *schema = json_get_typed(tool, member, json_type_object);
    size_t len;
    const char *text = schema ? json_text(schema, &len) : NULL;
    if (!text || len > SCHEMAS_MAX - list->schema_bytes ||
        json_check(text, len, &schema_limits, NULL) < 0)
        return NULL;
    list->schema_bytes += len;
    return json_object_get(schema);
}

static int tool_list_add(struct tool_list *list, struct json_object *tool, struct error *err)
{
    struct json_object *name = NULL;
    json_object_object_get_ex(tool, "name", &name);
    if (!json_object_is_type(tool, json_type_object) || !tool_name_is_usable(name)) {
        snprintf(
            list->skipped, sizeof list->skipped, "a function without a usable name is left out");
        return 0;
    }
    struct mcp_tool *grown = reallocarray(list->items, list->count + 1, sizeof *grown);
    if (!grown)
        return error_memory(err);
    list->items = grown;
    struct mcp_tool *t = &grown[list->count++];
    *t = (struct mcp_tool){ .name = strdup(json_object_get_string(name)),
        .description = tool_take_description(tool),
        .input = tool_take_schema(list, tool, "inputSchema"),
        .output = tool_take_schema(list, tool, "outputSchema") };
    return t->name ? 0 : error_memory(err);
}

int tool_list_take(struct tool_list *list, struct json_object *page, struct error *err)
{
    struct json_object *tools = json_get_typed(page, "tools", json_type_array);
    if (!tools)
        return error_set(err, ERROR_PROTOCOL, "its tools/list has no list `tools`");
    for (size_t i = 0; i < json_object_array_length(tools); i++) {
        if (list->count == TOOLS_MAX) {
            snprintf(list->skipped, sizeof list->skipped,
                "it has more than %d functions; the others are left out", TOOLS_MAX);
            return 0;
        }
        int rc = tool_list_add(list, json_object_array_get_idx(tools, i), err);
        if (rc < 0)
            return rc;
    }
    const char *next = json_get_string(page, "nextCursor", NULL);
    return next && next[0] && ++list->pages < PAGES_MAX;
}

void tool_list_free(struct tool_list *list)
{
    for (size_t i = 0; i < list->count; i++) {
        free(list->items[i].name);
        free(list->items[i].description);
        json_object_put(list->items[i].input);
        json_object_put(list->items[i].output);
    }
    free(list->items);
    *list = (struct tool_list){ 0 };
}
