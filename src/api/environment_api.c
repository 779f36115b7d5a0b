/* api/environment_api.c: the environment of the settings; the list of all environments, with their
 * features; sandboxes that killed hosts have left. */
#include "api/environment_api.h"

#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "api/custom_api.h"
#include "base/cleanup.h"
#include "base/loop.h"
#include "env/common/environment.h"
#include "env/local/interpreter.h"
#include "volume/repository.h"

/* ---- the environment of the settings ---- */

/* Closes the open environment if it is not the requested one. ERROR_ARGUMENT while it is in use. */
static int leave_environment(
    droste *d, const char *name, const char *circumstances, struct error *err)
{
    bool renamed = d->env && strcmp(d->env_name, name) != 0;
    bool moved = d->env && strcmp(d->env_circumstances, circumstances) != 0;
    if (!renamed && !moved)
        return 0;
    if (d->env_sessions + d->run_count > 0)
        return renamed
                   ? error_set(err, ERROR_ARGUMENT,
                         "the environment cannot change from %s to %.40s while sessions or "
                         "runs are open",
                         d->env_name, name)
                   : error_set(err, ERROR_ARGUMENT,
                         "the variables of %s have changed (see `droste env ls`) while sessions "
                         "or runs are open: close them first",
                         d->env_name);
    environment_close(d->env);
    d->env = NULL;
    return 0;
}

int api_environment(
    droste *d, const struct settings *s, struct environment **out, struct error *err)
{
    const char *name = s->env ? s->env : "local";
    char circumstances[ENVIRONMENT_CIRCUMSTANCES_SIZE];
    if (environment_circumstances(name, circumstances, err) < 0 ||
        leave_environment(d, name, circumstances, err) < 0)
        return -(int)err->code;
    if (!d->env) {
        free(steal(&d->env_name));
        d->env_name = strdup(name);
        struct environment_options options = { .ca_file = s->ca_file };
        int rc = d->env_name ? api_custom_open(d, d->env_name, &d->env, err) : error_memory(err);
        if (rc == 0 && !d->env)
            rc = environment_open(name, d->loop, &options, &d->env, err);
        if (rc < 0)
            return rc;
        memcpy(d->env_circumstances, circumstances, sizeof circumstances);
    }
    environment_on_notice(d->env, d->notice, d->notice_arg);
    *out = d->env;
    return 0;
}

void droste_on_notice(droste *d, droste_notice_fn *fn, void *arg)
{
    d->notice = fn;
    d->notice_arg = arg;
    if (d->env)
        environment_on_notice(d->env, fn, arg);
}

/* ---- all environments ---- */

const char *droste_environment_at(size_t index, const char **about)
{
    const struct environment_kind *kind = environment_at(index);
    if (kind && about)
        *about = kind->about;
    return kind ? kind->name : NULL;
}

const char *droste_environment_variables_at(size_t index)
{
    const struct environment_kind *kind = environment_at(index);
    return kind ? kind->variables : NULL;
}

/* The features of an environment that must be opened to know them. */
static int environment_open_features(
    droste *d, const char *name, const struct feature_state **out, struct error *err)
{
    struct settings settings = { 0 };
    struct environment *env;
    int rc = settings_copy(&settings, &d->settings, err);
    if (rc == 0)
        rc = settings_set(&settings, "env", name, "droste env show", err);
    if (rc == 0)
        rc = api_environment(d, &settings, &env, err);
    if (rc == 0)
        *out = environment_ops_of(env)->features;
    settings_free(&settings);
    return rc;
}

int droste_environment_features(
    droste *d, const char *name, droste_feature_fn *fn, void *arg, droste_error *err)
{
    err = api_error(err);
    if (!name)
        name = d->settings.env ? d->settings.env : "local";
    const struct environment_kind *kind = environment_named(name);
    const struct feature_state *features = kind ? kind->features : NULL;
    int rc = features ? 0 : environment_open_features(d, name, &features, err);
    if (rc < 0)
        return rc;
    for (enum feature f = 0; f < FEATURE_COUNT; f++) {
        const struct feature_state *state = &features[f];
        const droste_feature feature = { feature_name(f), feature_settings(f), state->given,
            state->text };
        fn(arg, &feature);
    }
    return 0;
}

/* ---- what killed hosts have left ---- */

struct environment_collection {
    bool done;
    unsigned removed;
    struct error why;
};

static void environment_take_collected(void *arg, unsigned removed, const struct error *why)
{
    *(struct environment_collection *)arg =
        (struct environment_collection){ .done = true, .removed = removed, .why = *why };
}

int droste_environment_collect(droste *d, int *removed, droste_error *err)
{
    err = api_error(err);
    struct environment_collection result = { 0 };
    struct settings *s = &d->settings;
    struct environment *env;
    *removed = -1;
    int rc = settings_is_set(s, "env") ? 0 : settings_set(s, "env", "docker", "droste env gc", err);
    if (rc == 0)
        rc = api_environment(d, s, &env, err);
    const struct environment_ops *ops = rc == 0 ? environment_ops_of(env) : NULL;
    if (ops && !ops->collect)
        rc = error_set(err, ERROR_UNSUPPORTED,
            "the environment '%.40s' needs no cleaning: its sandboxes end with their hosts",
            ops->name);
    if (rc == 0)
        rc = ops->collect(env, environment_take_collected, &result, err);
    if (rc == 0)
        rc = loop_run_until(d->loop, &result.done, err);
    if (rc < 0)
        return rc;
    *removed = (int)result.removed;
    *err = result.why;
    return -(int)err->code;
}

/* ---- what the settings name ---- */

const char *droste_python(droste *d, droste_error *err)
{
    err = api_error(err);
    char *path = NULL;
    int rc = interpreter_find(d->settings.python, &path, err);
    if (rc < 0)
        return NULL;
    free(d->python);
    return d->python = path;
}

int droste_check(droste *d, droste_error *err)
{
    err = api_error(err);
    struct environment *env;
    const struct settings *s = &d->settings;
    int rc = s->repo_url ? repository_check(s->repo_url, s->repo_ref, err) : 0;
    if (rc == 0)
        rc = api_environment(d, s, &env, err);
    return rc;
}
