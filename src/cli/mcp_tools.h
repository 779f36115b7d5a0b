/* cli/mcp_tools.h: droste mcp tools: the functions of MCP servers, as code sees them. */
#pragma once

#include "cli/cli.h"

/* `servers`: values of the setting mcp-server. Returns the exit status. */
int mcp_tools(const struct command *self, droste *d, const char *const *servers, size_t count);
