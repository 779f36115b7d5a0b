/* env/docker.h: sandboxes in Docker's containers; see docs/environments.md. */
#ifndef DROSTE_ENV_DOCKER_H
#define DROSTE_ENV_DOCKER_H

#include "env/environment.h"

extern const struct powers docker_powers;
int docker_configured(struct error *err);

int docker_open(struct loop *loop, const struct environment_options *options,
    struct environment **out, struct error *err);

#endif
