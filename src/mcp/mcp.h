/* mcp/mcp.h: a server of the Model Context Protocol, apart from the transport of its messages.
 *
 * It gives a program, usually a coding agent, sandboxed Python with state, runs over long contexts,
 * and files. Two revisions are spoken on one connection: the one with `initialize`, up to
 * 2025-11-25, and the stateless one of 2026-07-28, whose requests carry their version. Everything
 * runs in the thread of the library's loop. docs/mcp.md is for users.
 */
#ifndef DROSTE_MCP_MCP_H
#define DROSTE_MCP_MCP_H

#include <stddef.h>

#include "base/error.h"
#include "droste.h"

/* What one user has: sessions, and the contexts and runs that are resources. */
struct mcp;
/* A connection. Those of one user share the sessions. */
struct mcp_peer;

/* Receives a message for the client, one JSON object in one line. */
typedef void mcp_send_fn(void *arg, const char *json, size_t len);

struct mcp_options {
    /* Directories and files of this machine from which contexts may be loaded; ends with NULL. */
    const char *const *paths;
    size_t max_sessions; /* Python sessions at once */
};

/* The options are copied. ERROR_NOT_FOUND: a path does not exist. */
int mcp_new(droste *d, const struct mcp_options *options, struct mcp **out, struct error *err);
/* After its connections; ends the sessions. NULL is fine. */
void mcp_free(struct mcp *mcp);

/* NULL without memory. */
struct mcp_peer *mcp_connect(struct mcp *mcp, mcp_send_fn *send, void *arg);
/* Ends the connection and what its requests had under way; the sessions stay. NULL is fine. */
void mcp_disconnect(struct mcp_peer *peer);
/* Takes one message, which may be anything. Answers follow at once or later. */
void mcp_receive(struct mcp_peer *peer, const char *text, size_t len);
/* Requests that are not answered. */
size_t mcp_pending(const struct mcp_peer *peer);

#endif
