/* env/docker/container.h: the life of one container, from its creation to its removal.
 *
 *   create ──► attach ──► start ──► running ──► ended
 *     │ image missing: pull, create again            ▲
 *     └── any failure ──────────────────────────────┘
 *
 * The container's main process is the supervisor; the attached standard streams are the transport
 * (env/remote/remote.h). The daemon removes the container when it ends (AutoRemove). A container
 * that is no longer needed while it runs is removed by force.
 */
#pragma once

#include "env/docker/engine.h"
#include "env/common/environment.h"
#include "env/remote/remote.h"

struct container;

struct container_plan {
    struct json_object *body; /* of the create request; container_open takes ownership */
    const char *image;
    enum container_pull pull;
    /* create without a seccomp profile if the daemon rejects it: the daemon has its own */
    bool may_drop_filter;
    bool input_once; /* StdinOnce, as in the body: a lost connection cannot be restored */
    const enum limit_means *means;
    struct fair_reading *fair_reading; /* the environment's */
};

struct container_events {
    /* A line for the user: an image is being pulled. */
    void (*notice)(void *arg, const char *text);
    /* The container that was left is removed, and `c` freed. */
    void (*gone)(void *arg);
};

/* Starts creating it; no event fires within the call. The body is freed in any case. */
int container_open(struct loop *loop, struct engine *engine, const struct container_plan *plan,
    const struct container_events *events, void *arg, struct container **out, struct error *err);
struct remote *container_remote(const struct container *c);
/* The daemon's id; "" until it is known. */
const char *container_id(const struct container *c);
/* True while sandboxes can be opened in it. */
bool container_lives(const struct container *c);
/* The `arg` of container_open. */
void *container_arg(const struct container *c);
/* Prints the create request for users. */
void container_describe(const struct container *c, struct buf *out);
/* Kills all its processes because of this limit (LIMIT_NONE: no limit). */
void container_kill(struct container *c, enum limit limit);
/* All its sandboxes are closed: removes it in the background. `gone` follows, and no other
 * event. */
void container_leave(struct container *c);
/* Frees it at once, without waiting for the daemon. */
void container_free(struct container *c);
