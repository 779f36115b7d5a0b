/* mcp_client/client.h: a client of one MCP server: the functions that it has, and calls of them.
 *
 * The server is reached when a caller first waits for it, and again with the next call after it was
 * lost. Both revisions of the protocol are spoken: the one with `initialize`, up to 2025-11-25,
 * and the stateless one of 2026-07-28. Nothing that the server says is trusted: messages, lists
 * and texts are bounded, and what is not understood is an error of the one call that it concerns.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/queue.h>

#include "base/error.h"
#include "base/json/json.h"
#include "base/loop.h"
#include "mcp_client/tool_list.h"

struct mcp_spec;
struct mcp_client;

struct mcp_client_options {
    struct loop *loop;
    const char *ca_file;                         /* certificates to trust; NULL: the system's */
    void (*notice)(void *arg, const char *text); /* what a user should know; NULL: dropped */
    void *arg;
};

/* Does not reach the server yet. The texts are copied. */
int mcp_client_new(const struct mcp_spec *spec, const struct mcp_client_options *options,
    struct mcp_client **out, struct error *err);
/* A further reference. */
struct mcp_client *mcp_client_hold(struct mcp_client *c);
/* The last one ends the server. Ends no call: cancel them before. NULL is fine. */
void mcp_client_release(struct mcp_client *c);

/* ---- its functions ---- */

/* A wait for the list of functions. */
struct mcp_client_wait {
    TAILQ_ENTRY(mcp_client_wait) link;
    void (*done)(void *arg, const struct error *why); /* NULL: the list is there */
    void *arg;
    bool waits;
};

/* Whether the list is there and current. */
bool mcp_client_is_ready(const struct mcp_client *c);
/* Reaches the server, and calls `done` once, also before this returns. */
void mcp_client_wait_for(struct mcp_client *c, struct mcp_client_wait *wait);
void mcp_client_stop_waiting(struct mcp_client *c, struct mcp_client_wait *wait);
const struct mcp_tool *mcp_client_tools(const struct mcp_client *c, size_t *count);
const char *mcp_client_name(const struct mcp_client *c);

/* ---- calls ---- */

/* ERROR_NONE with the result, an object that belongs to the caller of the function; ERROR_LOST: the
 * server was lost, or could not be reached; ERROR_PROTOCOL; ERROR_ARGUMENT: it refused. */
typedef void mcp_reply_fn(void *arg, struct json_object *result, const struct error *why);

struct mcp_request;
/* Calls a function; `arguments` is a JSON object. `fn` is called once, also before this
 * returns, unless the call is cancelled. */
int mcp_client_call(struct mcp_client *c, const char *tool, const char *arguments, size_t len,
    mcp_reply_fn *fn, void *arg, struct mcp_request **out, struct error *err);
/* Cancels the call, and tells the server so. */
void mcp_client_cancel(struct mcp_request *q);
