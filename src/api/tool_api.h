/* api/tool_api.h: the tools of the program and of the settings. */
#pragma once

#include <stdbool.h>

#include "base/buf.h"
#include "base/error.h"
#include "droste.h"

struct settings;
struct tools;

/* All tools, which the caller frees (tools_free); NULL: none. Those of MCP servers are added when
 * the servers have been reached (mcp_api.h). Appends to `facts` what identifies
 * them when a run is resumed (tool_facts.h). */
int api_tools(
    droste *d, const struct settings *s, struct tools **out, struct buf *facts, struct error *err);
/* Adds a function of the program; `replaces` as in tool_spec. */
int tool_api_add(struct tools *tools, const char *name, const char *description,
    const char *parameters, bool replaces, droste_tool_fn *fn, void *arg, struct error *err);
