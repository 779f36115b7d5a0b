/* cluster/registry.h: the nodes of a cluster, as each node knows them.
 *
 * A node claims a random number for its life, as a key of the bucket droste-nodes, and writes what
 * it has into it twice a second. Ids of sandboxes have the number. A node that was silent for 1.5
 * seconds is lost, until it is heard of again; one that starts again has another number. A node
 * that leaves removes its key; that of a lost one stays for an hour.
 * While the bus itself is away nothing is heard of any node, and none is called lost for that.
 *
 * Requests between nodes carry a ticket: an HMAC-SHA256 with a secret that the first node makes and
 * keeps in the bucket droste-cluster. So whatever may read the bucket may act as a node: give NATS
 * accounts and TLS.
 */
#pragma once

#include "cluster/bus.h"

enum { NODE_NAME_SIZE = 65, NODE_ADDRESS_SIZE = 64, TICKET_SIZE = 65 };

struct node {
    unsigned number; /* 1 to 65535 */
    char name[NODE_NAME_SIZE], address[NODE_ADDRESS_SIZE], version[16];
    uint64_t sandboxes, most;            /* most: room for so many */
    bool is_draining, is_lost, has_left; /* has_left: in order, and is_lost, too */
    uint64_t seen_ns, revision;
    int64_t written_ms; /* by the clock of the NATS server */
};

/* What a node has written about itself; not trusted. False: it is not that. */
bool registry_read_node(const char *data, size_t len, struct node *out);

struct registry;

struct registry_options {
    struct bus_options bus;
    const char *name; /* of this node; NULL: only looks on, as no node */
    void (*lost)(void *arg, const struct node *node);
    void *arg;
};

/* Connects, and runs the loop until the nodes are known and a number is claimed. */
int registry_open(uv_loop_t *loop, const struct registry_options *options, struct registry **out,
    struct error *err);
/* Takes this node off at once; the bus stays. NULL is fine. */
void registry_leave(struct registry *g);
/* The same, and closes the bus. NULL is fine. */
void registry_close(struct registry *g);
/* For whatever else the owner has to say; until registry_close. */
struct bus *registry_bus(const struct registry *g);
/* From now on others know this node's address, "IP:PORT". */
void registry_announce(struct registry *g, const char *address);
/* What the next heartbeat says. */
void registry_report(struct registry *g, uint64_t sandboxes, uint64_t most, bool is_draining);

unsigned registry_own(const struct registry *g);
/* By number; NULL: it was never heard of. */
const struct node *registry_node(const struct registry *g, unsigned number);
/* By index, until NULL; this node is one of them. */
const struct node *registry_at(const struct registry *g, size_t index);
/* Whether a node is lost, and another one has its name: it was started again. */
bool registry_is_replaced(const struct registry *g, const struct node *node);
/* The same, or it has left: not worth telling. */
bool registry_is_gone(const struct registry *g, const struct node *node);

/* When the last heartbeat of this node was sent of which is known that it was stored; 0: none. */
uint64_t registry_proven_ns(const struct registry *g);
/* Whether no node of this name was heard of for so long, though this one was. */
bool registry_is_silent(const struct registry *g, const char *name, int ms);

/* Signs a text of node-to-node requests, and checks a signature in constant time. */
int registry_sign(const struct registry *g, const char *text, char out[TICKET_SIZE]);
bool registry_verify(const struct registry *g, const char *text, const char *ticket);
