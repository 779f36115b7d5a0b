/* env/daytona.h: sandboxes of Daytona's; see docs/environments.md. */
#ifndef DROSTE_ENV_DAYTONA_H
#define DROSTE_ENV_DAYTONA_H

#include "env/environment.h"

extern const struct powers daytona_powers;

int daytona_configured(struct error *err);
int daytona_open(struct loop *loop, const struct environment_options *options,
    struct environment **out, struct error *err);

#endif
