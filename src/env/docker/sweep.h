/* env/docker/sweep.h: removes the containers of hosts that are gone (env/common/owner_labels.h). */
#ifndef DROSTE_ENV_DOCKER_SWEEP_H
#define DROSTE_ENV_DOCKER_SWEEP_H

#include "env/docker/engine.h"
#include "env/common/environment.h"

struct sweep;
/* The sweep is gone after `done`. */
int sweep_start(struct engine *engine, environment_collected_fn *done, void *arg,
    struct sweep **out, struct error *err);
/* Ends it without `done`. NULL is fine. */
void sweep_cancel(struct sweep *s);

#endif
