/* serve/http/upstream.h: a request to another worker of this server, over a socket pair whose other
 * end that worker got as a descriptor. HTTP/1.1, as it came; the answers are libmicrohttpd's. Or to
 * a server in a sandbox, whose answers may be anything (e2b/ports.c).
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>
#include <uv.h>

#include "base/fifo.h"

struct server;

/* Fields between workers. Those of clients are not passed on. */
#define RELAY_ACCOUNT "X-Droste-Account"
#define RELAY_CLIENT  "X-Droste-Client"
#define RELAY_FIRST   "X-Droste-First" /* where the circle of those that are asked began */

#define RELAY_TICKET "X-Droste-Ticket" /* of a request between nodes (nodes.h) */

/* Of a node's request to itself: the id of the template to make (native/recipes.h). */
#define RELAY_TEMPLATE "X-Droste-Template"

#define RELAY_ABOUT "X-Droste-About" /* of an answer: for the log (request.h) */

/* Bytes that wait to be written, above which the sender should wait. */
enum { UPSTREAM_UNSENT_MAX = 256 << 10 };

struct upstream {
    struct server *server;
    unsigned worker;
    int fd;
    uv_poll_t *poll;
    struct fifo out;
    struct buf in;
    size_t in_at;

    /* The answer. */
    enum {
        UPSTREAM_HEAD,
        UPSTREAM_LENGTH,
        UPSTREAM_CHUNK,
        UPSTREAM_DATA,
        UPSTREAM_DATA_END,
        UPSTREAM_LAST,
        UPSTREAM_UPGRADED,
        UPSTREAM_REST, /* a body up to the end of the connection */
        UPSTREAM_DONE
    } state;
    unsigned status;
    bool has_length, has_chunks, is_last, is_paused;
    bool is_foreign;         /* no worker: one request a connection */
    bool is_head;            /* the answer to the request has no body */
    bool may_upgrade;        /* 101 may answer it */
    unsigned long long left; /* of the body, or of its chunk */

    void *arg;
    void (*on_field)(void *arg, const char *name, const char *value);
    void (*on_head)(void *arg); /* status, has_length and left are set */
    void (*on_data)(void *arg, const char *data, size_t len);
    void (*on_sent)(void *arg); /* nothing is unsent */
    /* Once, last; the upstream is gone afterwards. False: the worker ended, or its answer is
     * broken. */
    void (*on_end)(void *arg, bool is_whole);
    struct upstream *next_open, **link_open; /* those to nodes */
    struct upstream *next;                   /* idle ones */
    uint64_t idle_ns;
};

/* NULL: the worker does not run, or there are no descriptors. The caller sets arg and functions. */
struct upstream *upstream_open(struct server *s, unsigned worker);
/* To another node at this address; `key` tells nodes and workers apart. */
struct upstream *upstream_open_node(
    struct server *s, unsigned key, const struct sockaddr *address, socklen_t len);
/* Ends all with this key, as if the other end had closed. */
void upstream_lose(struct server *s, unsigned key);
/* The same over a connection to a server that is not a worker; takes the descriptor. */
struct upstream *upstream_over(struct server *s, int fd);
void upstream_send(struct upstream *u, const void *data, size_t len);
static inline size_t upstream_unsent(const struct upstream *u)
{
    return fifo_len(&u->out);
}
/* Stops and continues reading. */
void upstream_pause(struct upstream *u, bool is_paused);
/* Before its end: the connection is closed. Calls nothing. */
void upstream_drop(struct upstream *u);
/* Closes idle connections older than some seconds, or all. */
void upstream_sweep(struct server *s, uint64_t now_ns, bool all);
