/* api/environment_api.c: the environments, what each can do, and what killed hosts have left in
 * them. */
#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "env/local/interpreter.h"
#include "volume/repository.h"

const char *droste_environment_at(size_t index, const char **about)
{
    const char *name = environment_name(index);
    if (name && about)
        *about = environment_about(index);
    return name;
}

const char *droste_environment_variables_at(size_t index)
{
    return environment_name(index) ? environment_variables(index) : NULL;
}

/* The table of one that is not known by its name alone: it is opened. */
static int environment_open_features(
    droste *d, const char *name, const struct features **out, struct error *err)
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
    struct error why = { 0 };
    if (!name)
        name = d->settings.env ? d->settings.env : "local";
    const struct features *features = environment_features(name);
    int rc = features ? 0 : environment_open_features(d, name, &features, &why);
    if (rc < 0)
        return api_fail(err, &why, rc);
    for (enum feature f = 0; f < FEATURE_COUNT; f++) {
        const struct feature_state *state = &features->of[f];
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
    struct environment_collection result = { 0 };
    struct settings *s = &d->settings;
    struct environment *env;
    struct error why = { 0 };
    *removed = -1;
    int rc = settings_given(s, "env") ? 0 : settings_set(s, "env", "docker", "droste env gc", &why);
    if (rc == 0)
        rc = api_environment(d, s, &env, &why);
    const struct environment_ops *ops = rc == 0 ? environment_ops_of(env) : NULL;
    if (ops && !ops->collect)
        rc = error_set(&why, ERROR_UNSUPPORTED,
            "nothing is ever left in the environment '%.40s': its sandboxes end with their hosts",
            ops->name);
    if (rc == 0)
        rc = ops->collect(env, environment_take_collected, &result, &why);
    if (rc == 0)
        rc = loop_run_until(d->loop, &result.done, &why);
    if (rc < 0)
        return api_fail(err, &why, rc);
    *removed = (int)result.removed;
    return api_fail(err, &result.why, -(int)result.why.code);
}

/* ---- what the settings name ---- */

const char *droste_python(droste *d, droste_error *err)
{
    struct error why = { 0 };
    char *path = NULL;
    int rc = interpreter_find(d->settings.python, &path, &why);
    if (rc < 0) {
        api_fail(err, &why, rc);
        return NULL;
    }
    free(d->python);
    return d->python = path;
}

int droste_check(droste *d, droste_error *err)
{
    struct environment *env;
    struct error why = { 0 };
    const struct settings *s = &d->settings;
    int rc = s->repo_url ? repository_check(s->repo_url, s->repo_ref, &why) : 0;
    if (rc == 0)
        rc = api_environment(d, s, &env, &why);
    return api_fail(err, &why, rc);
}
