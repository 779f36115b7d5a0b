/* mcp_client/tool_list.h: what a server says in `tools/list`, page by page. */
#pragma once

#include <stddef.h>

#include "base/error.h"
#include "base/json/json.h"

/* What a server offers, of which all but the name may be NULL. */
struct mcp_tool {
    char *name;
    char *description;                  /* without control characters, bounded */
    struct json_object *input, *output; /* JSON schemas */
};

/* A zeroed list is empty. */
struct tool_list {
    struct mcp_tool *items;
    size_t count;
    unsigned pages;
    size_t schema_bytes;
    char skipped[200]; /* what was left out, and why; "": nothing */
};

/* Adds a page. 1: there is another one; 0: it was the last; negative: it is not a list. */
int tool_list_take(struct tool_list *list, struct json_object *page, struct error *err);
void tool_list_free(struct tool_list *list);
