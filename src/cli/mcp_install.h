/* cli/mcp_install.h: droste mcp install: enters the server into an agent's configuration. */
#pragma once

#include "cli/cli.h"

/* `words`: the agent's name, then arguments of `droste mcp`. Returns the exit status. */
int mcp_install(const struct command *self, const char *const *words, size_t count);
