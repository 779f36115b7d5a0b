/* serve/sandbox/commits.h: commits of volumes between nodes of a cluster that share no directory.
 *
 * Each node keeps chunks (base/chunk.h) in a directory of its own. A node gets a commit by asking
 * others for the list and for each chunk that it does not have, one after the other, over the kept
 * connections (http/nodes.h), and checks that each chunk has its name. So a broken node can delay a
 * commit, but not change it. A commit is copied by asking another node to get it.
 *
 *   GET /v1/chunks/NAME              a chunk
 *   PUT /v1/commits/NAME?from=NODE   get this commit, from that node first; 204: it is on the disk
 *
 * Both are for nodes only, whose requests carry a ticket.
 */
#pragma once

#include "base/list.h"
#include "serve/http/request.h"

struct commit_transfer;

struct commit_transfers {
    struct server *server;
    const char *store; /* the directory of the chunks */
    struct commit_transfer *first;
};

/* NULL: the commit is there. Not called when the transfers are closed. */
typedef void commit_done_fn(void *arg, const struct error *err);

/* Gets what is missing here of a commit, from any node, `node` first (0: any). `is_checked`: what
 * is there already is checked, too. */
void commit_fetch(struct commit_transfers *all, const char *commit, unsigned node, bool is_checked,
    commit_done_fn *done, void *arg);
/* Asks one other node after another to get a commit of this one, until one has it; *node is its
 * number then. The order is that of `word`, so that a volume's commits come to the same node. */
void commit_copy(struct commit_transfers *all, const char *commit, const char *word, unsigned *node,
    commit_done_fn *done, void *arg);
/* Whether there is another node that could have a copy. */
bool commit_has_peers(const struct server *s);
void commit_transfers_close(struct commit_transfers *all);

/* Removes the chunks of a directory that none of these commits has, of which it takes the list.
 * One at a time; `done` is not called when the server ends. */
void commit_sweep(
    struct server *s, const char *store, struct list *commits, void (*done)(struct server *s));

extern const struct routes commit_routes;
