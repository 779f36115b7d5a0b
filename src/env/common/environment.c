/* env/common/environment.c: what all environments have in common. */
#include "env/common/environment.h"

#include "base/clock.h"

enum { SETTLE_SECONDS = 10 };

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
        loop_turn(base->loop, 500);
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
