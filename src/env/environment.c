/* env/environment.c: environments by name. */
#include "env/environment.h"

#include <string.h>

#include "base/cleanup.h"
#include "env/bridge.h"
#include "env/docker.h"
#include "env/local.h"
#include "env/plugin.h"

/* The user's own, by a path behind the prefix. */
static const struct {
    const char *prefix;
    int (*open)(struct loop *loop, const char *path, struct environment **out, struct error *err);
} kinds[] = {
    { "plugin:", plugin_open },
    { "bridge:", bridge_open },
};

static const struct {
    const char *name;
    int (*open)(struct loop *loop, struct environment **out, struct error *err);
    const char *about; /* of one that this version has: what its sandboxes are */
    const char *needs; /* of one that it knows and does not have */
} environments[] = {
    { "local", local_open, "processes of this machine, behind its kernel's walls", NULL },
    { "docker", docker_open, "containers of a Docker daemon (DOCKER_HOST)", NULL },
    { "daytona", NULL, NULL, "a Daytona account" },
    { "prime", NULL, NULL, "a Prime account" },
    { "e2b", NULL, NULL, "an E2B account" },
    { "modal", NULL, NULL, "a Modal account" },
};

const char *environment_name(size_t i)
{
    return i < array_length(environments) ? environments[i].name : NULL;
}

const char *environment_about(size_t i)
{
    return environments[i].about;
}

const char *environment_needs(size_t i)
{
    return environments[i].needs;
}

int environment_open(
    const char *name, struct loop *loop, struct environment **out, struct error *err)
{
    for (size_t i = 0; i < array_length(kinds); i++)
        if (strncmp(name, kinds[i].prefix, strlen(kinds[i].prefix)) == 0)
            return kinds[i].open(loop, name + strlen(kinds[i].prefix), out, err);
    for (size_t i = 0; i < array_length(environments); i++) {
        if (strcmp(environments[i].name, name) != 0)
            continue;
        if (!environments[i].open)
            return error_set(err, ERROR_UNSUPPORTED,
                "environment '%s' (which needs %s) is not in this version; use --env local or "
                "docker",
                name, environments[i].needs);
        return environments[i].open(loop, out, err);
    }
    return error_set(
        err, ERROR_ARGUMENT, "environment '%.40s' is not known; use --env local or docker", name);
}

void environment_on_news(
    struct environment *env, void (*news)(void *arg, const char *text), void *arg)
{
    struct environment_base *base = (struct environment_base *)env;
    base->news = news;
    base->news_arg = arg;
}

void environment_close(struct environment *env)
{
    if (env)
        environment_ops_of(env)->free(env);
}
