/* env/clouds/daytona/daytona.h: the environment `daytona`; see docs/environments.md. */
#ifndef DROSTE_ENV_CLOUDS_DAYTONA_DAYTONA_H
#define DROSTE_ENV_CLOUDS_DAYTONA_DAYTONA_H

#include "env/common/environment.h"

extern const struct features daytona_features;

int daytona_configured(struct error *err);
int daytona_open(struct loop *loop, const struct environment_options *options,
    struct environment **out, struct error *err);

#endif
