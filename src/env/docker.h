/* env/docker.h: sandboxes in Docker's containers; see docs/environments.md. */
#ifndef DROSTE_ENV_DOCKER_H
#define DROSTE_ENV_DOCKER_H

#include "env/environment.h"

int docker_open(struct loop *loop, struct environment **out, struct error *err);

/* Told once: how many containers of hosts that are gone were removed; or why it is not known. */
typedef void docker_swept_fn(void *arg, unsigned removed, const struct error *why);
/* Removes what killed hosts of this machine have left in the daemon. */
int docker_sweep(struct environment *env, docker_swept_fn *done, void *arg, struct error *err);

#endif
