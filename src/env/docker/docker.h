/* env/docker/docker.h: the environment `docker`: sandboxes in containers; see docs/environments.md.
 */
#ifndef DROSTE_ENV_DOCKER_DOCKER_H
#define DROSTE_ENV_DOCKER_DOCKER_H

#include "env/common/environment.h"

extern const struct features docker_features;
int docker_configured(struct error *err);

int docker_open(struct loop *loop, const struct environment_options *options,
    struct environment **out, struct error *err);

#endif
