/* broker/tool_mcp.h: the functions of an MCP server as tools. */
#pragma once

#include "base/buf.h"
#include "base/error.h"

struct mcp_client;
struct tools;

/* Adds all functions, as NAME.FUNCTION; the client's list is there (mcp_client_is_ready). */
int tools_add_mcp(struct tools *t, struct mcp_client *client, struct error *err);
