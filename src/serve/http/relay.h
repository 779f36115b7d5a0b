/* serve/http/relay.h: requests that another worker must answer. */
#pragma once

#include <stdbool.h>

struct request;
struct server;
struct upstream;
struct buf;
struct json_object;

/* The worker with the fewest sandboxes; this one unless another has clearly fewer. */
unsigned relay_place(const struct server *s);
/* The one for a word, always the same. */
unsigned relay_place_by(const struct server *s, const char *word);

/* The worker that must answer: that of the sandbox which the request names, or the one where a new
 * sandbox is placed; for a request that names none, the next one that may have it. */
unsigned relay_worker_of(struct request *r);
/* Passes the request on to another node. */
void relay_begin_node(struct request *r, unsigned node);
/* Passes the request on to a worker, with its body as it comes, and answers with what that answers.
 * Called with the head. */
void relay_begin(struct request *r, unsigned worker);
/* Passes on a request, with what has been read of its body, to the next worker or node that may
 * have what it names. False: all have been asked. */
bool relay_on(struct request *r);
/* The same for what the workers of a node share: to the next node. */
bool relay_on_node(struct request *r);
/* For what is not here: true if another node, which may have it, answers, or the request was
 * refused because a lost one may have it. `kind` is what it is. */
bool relay_elsewhere(struct request *r, const char *kind, const char *name);
/* The same as relay_begin over a connection to a server in the request's sandbox. It gets neither
 * the tokens and fields that are this server's, nor, if `host` is given, the client's Host. `lost`
 * answers a request to which the server gave no answer. */
void relay_through(
    struct request *r, struct upstream *u, const char *host, void (*lost)(struct request *r));
/* Asks all other workers and nodes the same and calls `done` with the arrays `name` of their
 * answers joined; those of workers that do not answer are left out. A request of another worker is
 * answered with {NAME: own}, which is also what `done` NULL makes of all. Takes the reference of
 * `own`; NULL: there was no memory for it, and the request is refused. */
void relay_gather(struct request *r, const char *name, struct json_object *own,
    void (*done)(struct request *r, struct json_object *all));
/* The same of what is on the disk, which the workers of a node share: asks other nodes only. */
void relay_gather_shared(struct request *r, const char *name, struct json_object *own,
    void (*done)(struct request *r, struct json_object *all));
/* relay_gather of a list that was written as text. */
void relay_gather_written(struct request *r, const char *name, const struct buf *own,
    void (*done)(struct request *r, struct json_object *all));
