/* env/common/environment.c: environments by name. */
#include "env/common/environment.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/hash.h"
#include "env/remote/bridge.h"
#include "env/clouds/daytona/daytona.h"
#include "env/docker/docker.h"
#include "env/clouds/vm/e2b.h"
#include "env/local/local.h"
#include "env/clouds/modal.h"
#include "env/clouds/vm/prime.h"

enum { SETTLE_SECONDS = 10 };

typedef int open_fn(struct loop *loop, const struct environment_options *options,
    struct environment **out, struct error *err);

/* The user's own, by a path behind the prefix. */
static const struct {
    const char *prefix;
    int (*open)(struct loop *loop, const char *path, const struct environment_options *options,
        struct environment **out, struct error *err);
} kinds[] = {
    { "bridge:", bridge_open },
};

static const struct {
    const char *name;
    open_fn *open;
    const struct features *features;
    int (*configured)(struct error *err); /* NULL: it needs nothing */
    const char *about;                    /* what its sandboxes are */
    const char *variables;                /* that it reads of the process when it is opened */
} environments[] = {
    { "local", local_open, &local_features, NULL,
        "processes of this machine, behind its kernel's walls", "" },
    { "docker", docker_open, &docker_features, docker_configured,
        "containers of a Docker daemon (DOCKER_HOST)",
        "DOCKER_HOST DOCKER_TLS_VERIFY DOCKER_CERT_PATH" },
    { "daytona", daytona_open, &daytona_features, daytona_configured,
        "sandboxes of Daytona's cloud (DAYTONA_API_KEY)",
        "DAYTONA_API_KEY DAYTONA_JWT_TOKEN DAYTONA_ORGANIZATION_ID DAYTONA_API_URL "
        "DAYTONA_API_BASE_URL DAYTONA_TARGET" },
    { "prime", prime_open, &prime_features, prime_configured,
        "virtual machines of Prime Intellect (PRIME_API_KEY)",
        "PRIME_API_KEY PRIME_TEAM_ID PRIME_API_BASE_URL PRIME_BASE_URL" },
    { "e2b", e2b_open, &e2b_features, e2b_configured, "sandboxes of E2B (E2B_API_KEY)",
        "E2B_API_KEY E2B_DOMAIN E2B_API_URL E2B_SANDBOX_URL" },
    { "modal", modal_open, &modal_features, modal_configured,
        "sandboxes of Modal, over its own SDK (MODAL_TOKEN_ID)",
        "DROSTE_MODAL_PYTHON MODAL_TOKEN_ID MODAL_TOKEN_SECRET MODAL_SERVER_URL MODAL_PROFILE "
        "MODAL_ENVIRONMENT MODAL_CONFIG_PATH" },
};

const char *environment_name(size_t i)
{
    return i < array_length(environments) ? environments[i].name : NULL;
}

const char *environment_about(size_t i)
{
    return environments[i].about;
}

int environment_configured(size_t i, struct error *err)
{
    return environments[i].configured ? environments[i].configured(err) : 0;
}

static const char *variables_of(const char *name)
{
    for (size_t i = 0; i < array_length(environments); i++)
        if (strcmp(environments[i].name, name) == 0)
            return environments[i].variables;
    return "";
}

const char *environment_variables(size_t i)
{
    return environments[i].variables;
}

int environment_circumstances(
    const char *name, char out[ENVIRONMENT_CIRCUMSTANCES_SIZE], struct error *err)
{
    cleanup_buf struct buf all = { 0 };
    const char *at = variables_of(name);
    for (size_t n; *at; at += n + (at[n] == ' ')) {
        char variable[64];
        n = strcspn(at, " ");
        snprintf(variable, sizeof variable, "%.*s", (int)n, at);
        const char *value = getenv(variable);
        buf_printf(&all, "%s%s\n", value ? "=" : "", value ? value : "");
    }
    return buf_failed(&all) ? error_memory(err) : hash_sha256(all.data, all.len, out, err);
}

const struct features *environment_features(const char *name)
{
    for (size_t i = 0; i < array_length(environments); i++)
        if (strcmp(environments[i].name, name) == 0)
            return environments[i].features;
    return NULL;
}

int environment_open(const char *name, struct loop *loop, const struct environment_options *options,
    struct environment **out, struct error *err)
{
    static const struct environment_options none = { 0 };
    if (!options)
        options = &none;
    for (size_t i = 0; i < array_length(kinds); i++)
        if (strncmp(name, kinds[i].prefix, strlen(kinds[i].prefix)) == 0)
            return kinds[i].open(loop, name + strlen(kinds[i].prefix), options, out, err);
    for (size_t i = 0; i < array_length(environments); i++)
        if (strcmp(environments[i].name, name) == 0)
            return environments[i].open(loop, options, out, err);
    return error_set(err, ERROR_ARGUMENT,
        "environment '%.40s' is not known; `droste env ls` lists those that are", name);
}

int environment_check(
    const struct environment *env, const struct sandbox_spec *spec, struct error *err)
{
    const struct environment_ops *ops = environment_ops_of(env);
    const bool wanted[FEATURE_COUNT] = {
        [FEATURE_ISOLATION] = spec->isolation != ISOLATION_AUTO,
        [FEATURE_VOLUME] = spec->volume != NULL,
        [FEATURE_WORKSPACE] = spec->workspace != NULL,
        [FEATURE_READ] = spec->read_path_count > 0,
        [FEATURE_CPUS] = spec->limits.cpus > 0,
    };
    uint64_t asked = spec->asked;
    for (enum feature p = 0; p < FEATURE_COUNT; p++)
        asked |= wanted[p] ? (uint64_t)1 << p : 0;
    return ops->features ? features_check(ops->features, ops->name, asked, err) : 0;
}

void environment_settle(struct environment *env)
{
    const struct environment_base *base = (const struct environment_base *)env;
    uint64_t begun = clock_ns();
    while (base->ops->settling && base->ops->settling(env) && !loop_is_running(base->loop) &&
           clock_seconds_since(begun) < SETTLE_SECONDS)
        if (loop_turn(base->loop, 500, NULL) < 0)
            break;
}

void environment_on_notice(
    struct environment *env, void (*notice)(void *arg, const char *text), void *arg)
{
    struct environment_base *base = (struct environment_base *)env;
    base->notice = notice;
    base->notice_arg = arg;
}

void environment_close(struct environment *env)
{
    if (env)
        environment_ops_of(env)->free(env);
}
