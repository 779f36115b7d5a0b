/* session/state.c: what others ask of a session, and how its sandbox is ended. */
#include <stdio.h>

#include "session/internal.h"

int session_check_alive(const struct session *s, struct error *err)
{
    if (session_is_alive(s))
        return 0;
    if (err)
        *err = s->death;
    return -(int)s->death.code;
}

void session_end_sandbox(
    struct session *s, const char *killed, enum error_code code, const char *format, ...)
{
    va_list args;
    if (!session_is_alive(s))
        return;
    va_start(args, format);
    error_vset(&s->death, code, format, args);
    va_end(args);
    snprintf(s->killed, sizeof s->killed, "%s", killed);
    s->ops->kill(s->sandbox);
}

void session_tell_finished(struct session *s, const struct error *why)
{
    session_finished_fn *done = s->finished;
    s->finished = NULL;
    if (done)
        done(s->finished_arg, why);
}

void session_show(struct session *s)
{
    if (!s->events.display)
        return;
    s->ops->drain(s->sandbox);
    s->events.display(s->arg, s, &s->results);
}

void session_clear_results(struct session *s)
{
    bundles_clear(&s->results);
    if (s->events.display)
        s->events.display(s->arg, s, &s->results);
}

void session_hand_over(struct session *s, void *arg)
{
    s->arg = arg;
}

bool session_is_late(const struct session *s)
{
    return s->late && !s->ready;
}

bool session_is_alive(const struct session *s)
{
    return !s->dead && s->death.code == ERROR_NONE;
}

const bool *session_is_ready(const struct session *s)
{
    return &s->ready;
}

enum isolation session_isolation(const struct session *s)
{
    return s->ops->isolation(s->sandbox);
}

const char *session_volume(const struct session *s)
{
    return s->sandbox && s->ops->volume ? s->ops->volume(s->sandbox) : NULL;
}

const char *session_workspace(const struct session *s)
{
    return s->sandbox && s->ops->workspace ? s->ops->workspace(s->sandbox) : NULL;
}

const char *session_sandbox_id(const struct session *s)
{
    return s->sandbox && s->ops->id ? s->ops->id(s->sandbox) : NULL;
}

const char *session_about(const struct session *s)
{
    return s->ops->about ? s->ops->about(s->env) : NULL;
}

bool session_figures(const struct session *s, struct sandbox_figures *out)
{
    return s->sandbox && s->ops->figures && s->ops->figures(s->sandbox, out);
}

uint64_t session_busy_ns(const struct session *s)
{
    return s->sandbox && s->ops->busy_ns ? s->ops->busy_ns(s->sandbox) : 0;
}

void session_charge(struct session *s, uint64_t ns)
{
    if (!s->dead && s->sandbox && s->ops->charge)
        s->ops->charge(s->sandbox, ns);
}

const struct session_limits *session_limits_of(const struct session *s)
{
    return &s->settings.limits;
}

void session_describe(const struct session *s, struct buf *out)
{
    if (s->ops->describe)
        s->ops->describe(s->env, s->sandbox, out);
}

uint64_t session_paused_since(const struct session *s, uint64_t *seen_ns)
{
    uint64_t then_ns = *seen_ns;
    *seen_ns = s->ops->paused_ns ? s->ops->paused_ns(s->sandbox) : 0;
    return (*seen_ns - then_ns + 999999) / 1000000;
}
