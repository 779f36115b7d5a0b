/* broker/tool_client.h: functions that the client of a run answers (the setting "client-tools").
 *
 * They are the functions of the module CLIENT_TOOLS, in the shape of an MCP server's. A call is
 * recorded and waits, as one that asks for an approval does (approval.h); in place of a decision it
 * gets its result, which the client puts into the record: {"content": [{"type": "text", …}, …]}. So
 * the wait survives the process, and a result that the record has is not asked for again. A call
 * that is denied, or whose time is up, fails.
 */
#pragma once

#include "base/error.h"

struct tools;

/* `json`: a list of {"name", "description", "parameters"}, the last two optional; a name is one
 * that Python can have. */
int tools_add_client(struct tools *t, const char *json, struct error *err);
