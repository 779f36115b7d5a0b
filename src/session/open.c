/* session/open.c: opens a session in a sandbox, and finishes one whose volume is written back. */
#include <string.h>

#include "env/common/embedded.h"
#include "session/internal.h"
#include "session/options.h"
#include "session/template.h"

static int session_greet(struct session *s, const struct session_options *o,
    const struct egress_grant *grant, struct error *err)
{
    cleanup_buf struct buf head = { 0 }, variables = { 0 };
    struct session_part rules_source = { (const char *)embedded_rules, embedded_rules_size };
    session_write_hello(o, grant, session_volume(s), session_workspace(s), &head);
    s->directory = session_directory(o, session_workspace(s));
    session_write_variables(o, grant, &variables);
    if (buf_failed(&head) || buf_failed(&variables))
        return error_memory(err);
    s->variables_head = variables.len > 0 ? buf_steal(&variables) : NULL;
    return session_send_blob(s, FRAME_HELLO, 0, head.data, head.len, &rules_source, o->rules, err);
}

/* Starts its sandbox, with a grant of its own to the network. */
static int session_start(struct session *s, const struct session_options *o, struct error *err)
{
    struct sandbox_spec spec = o->spec;
    int rc = egress_grant_new(spec.egress, &spec.grant, err);
    if (rc == 0)
        rc = s->ops->open(s->env, &spec, &session_handlers, s, &s->sandbox, err);
    if (rc == 0) {
        s->late = s->ops->traits & TRAIT_LATE || (s->ops->waits && s->ops->waits(s->sandbox));
        if (o->template)
            rc = session_restore(s, o->template, err);
    }
    if (rc == 0)
        rc = session_greet(s, o, spec.grant, err);
    egress_grant_release(spec.grant);
    return rc;
}

int session_open(struct environment *env, const struct session_options *options,
    const struct session_events *events, void *arg, struct session **out, struct error *err)
{
    if (session_check_timeout(options->execute_timeout, options->execute_timeout_cap, err) < 0)
        return -(int)ERROR_ARGUMENT;
    int rc = environment_check(env, &options->spec, err);
    if (rc == 0 && environment_ops_of(env)->about)
        rc = session_check_custom(options, environment_ops_of(env)->name, err);
    const struct session_settings settings = {
        .limits = { options->spec.limits, options->timeout, options->execute_timeout,
            options->output_limit },
        .execute_timeout_cap = options->execute_timeout_cap,
        .grace = options->grace,
        .stall_limit = options->stall,
        .results_limit = options->results_limit,
        .result_size = options->result_size,
        .answer = options->answer,
        .keeps = options->checkpoint_each,
        .checkpoint_memory = options->checkpoint_memory,
    };
    if (rc == 0 && options->checkpoint_each && !environment_ops_of(env)->fork)
        return error_set(err, ERROR_UNSUPPORTED,
            "--checkpoint auto: the environment '%s' cannot fork sessions; local sandboxes can",
            environment_ops_of(env)->name);
    struct session *s = rc == 0 ? session_new(env, &settings, events, arg) : NULL;
    if (!s)
        return rc < 0 ? rc : error_memory(err);
    rc = session_start(s, options, err);
    if (rc < 0) {
        session_close(s);
        return rc;
    }
    session_begin_life(s);
    *out = s;
    return 0;
}

bool session_finish(struct session *s, session_finished_fn *done, void *arg)
{
    if (s->finished || !s->ops->finish || !s->ops->finish(s->sandbox))
        return false;
    s->finished = done;
    s->finished_arg = arg;
    if (!s->dead && s->death.code == ERROR_NONE)
        error_set(&s->death, ERROR_LOST, "the session was ended");
    session_service_free(s);
    s->dead = true;
    s->operation = 0;
    s->done = NULL;
    timer_stop(s->deadline);
    timer_stop(s->lifetime);
    timer_stop(s->partial);
    session_drop_settled(s);
    bundles_free(&s->results);
    session_calls_drop(s);
    return true;
}
