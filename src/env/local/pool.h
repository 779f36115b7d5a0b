/* env/local/pool.h: sandboxes that are prepared in advance.
 *
 * A member is cloned and has executed its plan; it waits for its first message, so that starting a
 * session takes only that message. Members belong to one kind (zygote and limits, which determine
 * the plan), are used once, and are never used for another kind.
 */
#pragma once

#include "env/common/environment.h"
#include "env/local/zygote.h"

struct pool;

/* Creates a member, like the environment's `open`, with the given events. */
typedef int pool_make_fn(void *arg, struct zygote *z, const struct jail_limits *limits,
    const struct sandbox_events *events, void *events_arg, struct sandbox **out, struct error *err);
typedef void pool_close_fn(struct sandbox *s);

int pool_open(struct loop *loop, pool_make_fn *make, pool_close_fn *close, void *arg,
    struct pool **out, struct error *err);
/* Closes its members. NULL is fine. */
void pool_close(struct pool *p);

/* A ready member of this kind, owned by the caller from now on; or NULL. */
struct sandbox *pool_take(struct pool *p, const struct zygote *z, const struct jail_limits *limits);
/* From now on, keeps `wanted` members of this kind ready. They are created when the loop is
 * idle. */
void pool_keep(struct pool *p, struct zygote *z, const struct jail_limits *limits, unsigned wanted);
/* The zygote is about to be freed: closes its members, and makes no more. */
void pool_forget(struct pool *p, const struct zygote *z);
