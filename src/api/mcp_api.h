/* api/mcp_api.h: the MCP servers of the settings, whose functions are tools.
 *
 * A droste has one client for each server, which all of its sessions and runs share. A server is
 * reached when the first of them is prepared.
 */
#pragma once

#include <stdbool.h>

#include "base/error.h"
#include "droste.h"

struct buf;
struct settings;
struct tools;

/* Makes the clients that are missing, and appends what identifies them to `facts` (tool_facts.h).
 * ERROR_ARGUMENT: a setting is wrong, or two have one name. */
int api_mcp_open(droste *d, const struct settings *s, struct buf *facts, struct error *err);
/* Whether all lists of functions are there. */
bool api_mcp_is_ready(const droste *d, const struct settings *s);
/* Adds all functions. Their lists are there. */
int api_mcp_add(droste *d, const struct settings *s, struct tools *tools, struct error *err);

/* Waits for all lists. */
struct api_mcp_wait;
typedef void api_mcp_done_fn(void *arg, const struct error *why);
/* `done` is called once, later, with the error of the first server that failed, or NULL. */
int api_mcp_wait(droste *d, const struct settings *s, api_mcp_done_fn *done, void *arg,
    struct api_mcp_wait **out, struct error *err);
/* Ends the wait soon, with ERROR_CANCELLED. */
void api_mcp_wait_cancel(struct api_mcp_wait *w);
/* Ends it without `done`. NULL is fine. */
void api_mcp_wait_free(struct api_mcp_wait *w);

/* Ends the clients, after the sessions and runs. */
void api_mcp_close(droste *d);
