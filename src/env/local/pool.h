/* env/local/pool.h: sandboxes that are ready before somebody asks.
 *
 * A member has been cloned and has carried out its plan; it waits for its first message, so that a
 * start is that message. Members are of one kind each (zygote and limits: all that a plan is made
 * from), are used once, and are never given to a spec of another kind.
 */
#ifndef DROSTE_ENV_LOCAL_POOL_H
#define DROSTE_ENV_LOCAL_POOL_H

#include "env/common/environment.h"
#include "env/local/zygote.h"

struct pool;

/* Makes a member: as the environment's open, with the given events. */
typedef int pool_make_fn(void *arg, struct zygote *z, const struct jail_limits *limits,
    const struct sandbox_events *events, void *events_arg, struct sandbox **out, struct error *err);
typedef void pool_close_fn(struct sandbox *s);

int pool_open(struct loop *loop, pool_make_fn *make, pool_close_fn *close, void *arg,
    struct pool **out, struct error *err);
/* Closes its members. NULL is fine. */
void pool_close(struct pool *p);

/* A ready member of this kind, which is the caller's now, or NULL. */
struct sandbox *pool_take(struct pool *p, const struct zygote *z, const struct jail_limits *limits);
/* Keeps `wanted` members of this kind ready from now on; they are made when the loop is idle. */
void pool_keep(struct pool *p, struct zygote *z, const struct jail_limits *limits, unsigned wanted);

#endif
