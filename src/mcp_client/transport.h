/* mcp_client/transport.h: brings messages to an MCP server and back.
 *
 * A transport is used by one client (client.c), which may close it from within any event: no event
 * follows then. What a server writes is not looked at here, but for its length.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/loop.h"

struct mcp_spec;

/* Of one message, in both directions. */
#define MCP_MESSAGE_MAX ((size_t)64 << 20)

enum mcp_loss {
    MCP_LOSS_REQUEST,    /* this request has failed */
    MCP_LOSS_SESSION,    /* the server has forgotten the session; it did not look at the request */
    MCP_LOSS_CONNECTION, /* everything has */
};

struct mcp_transport_events {
    void (*message)(void *arg, const char *text, size_t len);
    /* `id`: the request; 0 if it is the connection's end. */
    void (*lost)(void *arg, enum mcp_loss what, uint64_t id, const struct error *why);
};

struct mcp_outgoing {
    const char *text; /* JSON in one line; copied */
    size_t len;
    uint64_t id;             /* 0: no request, so nothing is answered */
    const char *method;      /* NULL: an answer */
    const char *name;        /* of the tool that is called; NULL: none */
    const char *version;     /* NULL: not agreed yet */
    bool stateless, listens; /* of 2026-07-28; its answer is a stream that stays open */
};

struct mcp_transport;
struct mcp_transport_ops {
    int (*send)(struct mcp_transport *t, const struct mcp_outgoing *m, struct error *err);
    /* The request's answer is not awaited any more; NULL: nothing to do. */
    void (*forget)(struct mcp_transport *t, uint64_t id);
    /* Receives what the server says unasked, from now on; NULL: it does so anyway. */
    void (*listen)(struct mcp_transport *t, const char *version);
    void (*close)(struct mcp_transport *t);
};

/* The beginning of both kinds. */
struct mcp_transport {
    const struct mcp_transport_ops *ops;
    const struct mcp_transport_events *events;
    void *arg;
};

int mcp_stdio_open(struct loop *loop, const struct mcp_spec *spec,
    const struct mcp_transport_events *events, void *arg, struct mcp_transport **out,
    struct error *err);
/* `ca_file`: certificates to trust; NULL: the system's. */
int mcp_http_open(struct loop *loop, const struct mcp_spec *spec, const char *ca_file,
    const struct mcp_transport_events *events, void *arg, struct mcp_transport **out,
    struct error *err);
