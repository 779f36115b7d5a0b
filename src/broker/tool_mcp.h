/* broker/tool_mcp.h: the functions of an MCP server as tools. */
#pragma once

#include "base/buf.h"
#include "base/error.h"

struct mcp_client;
struct json_object;
struct tools;

/* A function's schema in the way of this program's tools: one that the broker cannot use (or NULL)
 * is replaced. The caller frees it; NULL without memory. */
char *tool_mcp_schema(struct json_object *input);
/* Adds all functions, as NAME.FUNCTION; the client's list is there (mcp_client_is_ready). */
int tools_add_mcp(struct tools *t, struct mcp_client *client, struct error *err);
