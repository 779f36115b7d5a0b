/* cli/mcp_install.h: droste mcp install: enters the server into an agent's configuration. */
#ifndef DROSTE_CLI_MCP_INSTALL_H
#define DROSTE_CLI_MCP_INSTALL_H

#include "cli/cli.h"

/* `words`: the agent's name, then arguments of `droste mcp`. Returns the exit status. */
int mcp_install(const struct command *self, const char *const *words, size_t count);

#endif
