/* env/clouds/daytona/create.h: what Daytona is asked for when a sandbox is made, from a spec. */
#ifndef DROSTE_ENV_CLOUDS_DAYTONA_CREATE_H
#define DROSTE_ENV_CLOUDS_DAYTONA_CREATE_H

#include "base/json/json.h"
#include "env/common/environment.h"

#define DAYTONA_MEMORY "/home/daytona/memory" /* where a volume is seen */

struct daytona_create {
    const struct sandbox_spec *spec;
    const char *name;            /* unique, ours: by it a sandbox is made once */
    const char *owner, *machine; /* the values of our labels (owner_labels.h) */
    const char *target;          /* of the account; NULL: its own default */
    const char *volume_id;       /* NULL: none */
};

/* What of a spec makes no sense here: ERROR_ARGUMENT, ERROR_UNSUPPORTED. */
int daytona_check(const struct sandbox_spec *spec, struct error *err);
int daytona_create_body(
    const struct daytona_create *c, struct json_object **out, struct error *err);

#endif
