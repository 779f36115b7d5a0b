/* env/docker_sweep.h: removes the containers of hosts that are gone.
 *
 * Each container says by labels on which machine and by which process it was made. Those of another machine are
 * left alone, and so are those of which it is not sure that their process has ended.
 */
#ifndef DROSTE_ENV_DOCKER_SWEEP_H
#define DROSTE_ENV_DOCKER_SWEEP_H

#include "base/buf.h"
#include "env/docker_engine.h"

/* This process and this machine, as the labels have them. */
void sweep_labels(struct buf *owner, struct buf *machine);

struct sweep;
/* `why`: ERROR_NONE where it worked. The sweep is gone after. */
typedef void sweep_fn(void *arg, unsigned removed, const struct error *why);
int sweep_start(
    struct engine *engine, sweep_fn *done, void *arg, struct sweep **out, struct error *err);
/* Ends it without `done`. NULL is fine. */
void sweep_cancel(struct sweep *s);

#endif
