/* env/docker/container.h: one container, from its making to its removal.
 *
 *   create ──► attach ──► start ──► running ──► ended
 *     │ no such image: pull, and once more          ▲
 *     └── whatever fails ───────────────────────────┘
 *
 * Its main process is our supervisor, and the attached standard streams are the carrier (env/remote/remote.h). The
 * daemon removes it when it ends (AutoRemove); when we are done with it first, it is removed by force.
 */
#ifndef DROSTE_ENV_DOCKER_CONTAINER_H
#define DROSTE_ENV_DOCKER_CONTAINER_H

#include "env/docker/engine.h"
#include "env/common/environment.h"
#include "env/remote/remote.h"

struct container;

struct container_plan {
    struct json_object *body; /* of the request; taken */
    const char *image;
    enum container_pull pull;
    bool may_drop_filter; /* where the daemon takes none, it has its own */
    bool input_once;      /* as in the body: a connection that is lost cannot be made again */
    const enum limit_means *means;
    struct fair_reading *fair_reading; /* the environment's */
};

struct container_events {
    /* A line for people: an image is pulled. */
    void (*notice)(void *arg, const char *text);
    /* Nothing is left of it, after container_leave. The container is freed by then. */
    void (*gone)(void *arg);
};

/* Begins; nothing is told from within. The body is freed in any case. */
int container_open(struct loop *loop, struct engine *engine, const struct container_plan *plan,
    const struct container_events *events, void *arg, struct container **out, struct error *err);
struct remote *container_remote(const struct container *c);
/* The daemon's id of it; "" while there is none. */
const char *container_id(const struct container *c);
/* True while sandboxes can be opened in it. */
bool container_lives(const struct container *c);
/* What container_open was given. */
void *container_arg(const struct container *c);
/* What the daemon was told, for people. */
void container_describe(const struct container *c, struct buf *out);
/* Ends it, because of this limit (LIMIT_NONE: none): everything in it is killed. */
void container_kill(struct container *c, enum limit limit);
/* Its sandboxes are closed: it is removed in the background, `gone` is told, and nothing else. */
void container_leave(struct container *c);
/* At once, whatever the daemon does with it. */
void container_free(struct container *c);

#endif
