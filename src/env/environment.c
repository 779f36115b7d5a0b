/* env/environment.c: environments by name. */
#include "env/environment.h"

#include <string.h>

#include "base/cleanup.h"
#include "env/local.h"

static const struct {
    const char *name;
    int (*open)(struct loop *loop, struct environment **out, struct error *err);
    const char *needs; /* for a name that this version knows and does not build */
} environments[] = {
    { "local", local_open, NULL },
    { "docker", NULL, "a Docker daemon" },
    { "daytona", NULL, "a Daytona account" },
    { "prime", NULL, "a Prime account" },
    { "e2b", NULL, "an E2B account" },
    { "modal", NULL, "a Modal account" },
};

int environment_open(
    const char *name, struct loop *loop, struct environment **out, struct error *err)
{
    for (size_t i = 0; i < array_length(environments); i++) {
        if (strcmp(environments[i].name, name) != 0)
            continue;
        if (!environments[i].open)
            return error_set(err, ERROR_UNSUPPORTED,
                "environment '%s' (which needs %s) is not in this version; use --env local", name,
                environments[i].needs);
        return environments[i].open(loop, out, err);
    }
    return error_set(
        err, ERROR_ARGUMENT, "environment '%.40s' is not known; use --env local", name);
}

void environment_close(struct environment *env)
{
    if (env)
        environment_ops_of(env)->free(env);
}
