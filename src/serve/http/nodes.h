/* serve/http/nodes.h: this server as a node of a cluster (cluster/registry.h).
 *
 * Any node answers for any sandbox: ids name their node, and a request for one of another node is
 * relayed to it (relay.h) over a kept connection between the two. Bodies, streams and WebSockets go
 * the same way, so nothing of a request passes through NATS. The first node checks the client's
 * key; a ticket tells the other one so. It is bound to the node, method, target, key and client,
 * and expires. A new sandbox goes to the node with the fewest, this one unless another has clearly
 * fewer.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "cluster/registry.h"

struct buf;
struct request;
struct server;
struct upstream;

/* Joins the cluster of the options, if there is one. */
int nodes_join(struct server *s, struct error *err);
/* This node answers at the address now: that of the options, or the server's. */
void nodes_announce(struct server *s, const char *address);
void nodes_sweep(struct server *s);
/* Others send nothing more here. */
void nodes_leave(struct server *s);
/* Behind whatever uses the bus. */
void nodes_close(struct server *s);

/* The node that must answer; 0: this one, or the request was refused. */
unsigned nodes_route(struct request *r);
/* A connection to a node; NULL: there is none. */
struct upstream *nodes_connect(struct server *s, unsigned number);
/* The same with a request of this node's own that has no body, which is sent already. The caller
 * sets arg and functions. */
struct upstream *nodes_ask(
    struct server *s, unsigned number, const char *method, const char *target);
/* The same for an account ("": none), with further fields ("NAME: VALUE\r\n") and a body. */
struct upstream *nodes_ask_as(struct server *s, unsigned number, const char *account,
    const char *method, const char *target, const char *fields, const void *body, size_t len);
/* By index, until NULL; this node is one of them. */
const struct node *nodes_peer_at(const struct server *s, size_t index);
/* The next node of the circle of all, by number, that began at `first`; 0: it is closed. */
unsigned nodes_next(const struct server *s, unsigned first);
/* Refuses a request for what no node has that answers, if one that is lost or stops may have it
 * (503). */
bool nodes_refuse_lost(struct request *r, const char *kind, const char *name);
/* Refuses a request for what no node has that answers: 404, or 503 if a lost node may have it.
 * `kind` is that of the object, as in its path; `made` is what POST does there. */
void nodes_refuse_absent(struct request *r, const char *kind, const char *name, const char *made);
/* Appends the ticket of a request to a node. */
void nodes_put_ticket(struct request *r, unsigned number, struct buf *head);
/* "EXPIRES MAC", of which nothing was verified yet. False: it is not that, or has expired. */
bool nodes_read_ticket(const char *field, int64_t now_ms, int64_t *expires_ms, const char **mac);
/* Trusts a request of another node. False: its ticket is not valid, and it was refused. */
bool nodes_check_ticket(struct request *r);
