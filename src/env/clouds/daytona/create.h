/* env/clouds/daytona/create.h: translates a specification into Daytona's create request. */
#pragma once

#include "base/json/json.h"
#include "env/common/environment.h"

/* Where a volume is mounted, and where programs written for Daytona's sandboxes expect staged
 * files. */
#define DAYTONA_MEMORY    "/home/daytona/memory"
#define DAYTONA_WORKSPACE "/home/daytona/workspace"

/* The names above, beside Droste's. */
extern const struct layout daytona_layout;

struct daytona_create {
    const struct sandbox_spec *spec;
    const char *name;      /* unique, chosen by the host: makes creation idempotent */
    const char *target;    /* of the account; NULL: the account's default */
    const char *volume_id; /* NULL: none */
};

/* Checks the specification: ERROR_ARGUMENT, ERROR_UNSUPPORTED. */
int daytona_check(const struct sandbox_spec *spec, struct error *err);
int daytona_create_body(
    const struct daytona_create *c, struct json_object **out, struct error *err);
