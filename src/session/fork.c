/* session/fork.c: new sessions, and forks of one. */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "session/internal.h"

enum { FORK_SECONDS = 30 }; /* for the guest to copy itself, however large */

/* A session without a sandbox. */
struct session *session_new(struct environment *env, const struct session_settings *settings,
    const struct session_events *events, void *arg)
{
    struct session *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->env = env;
    s->ops = environment_ops_of(env);
    s->settings = *settings;
    s->settings.answer = schema_hold(settings->answer);
    s->out.limit = s->err.limit = settings->limits.output;
    s->events = *events;
    s->arg = arg;
    struct loop *loop = ((struct environment_base *)s->env)->loop;
    session_receive_begin(s);
    s->deadline = timer_new(loop, session_deadline_reached, s);
    s->lifetime = timer_new(loop, session_lifetime_over, s);
    s->partial = timer_new(loop, session_partial_too_long, s);
    s->stall = timer_new(loop, session_stalled, s);
    if (s->deadline && s->lifetime && s->partial && s->stall)
        return s;
    session_close(s);
    return NULL;
}

int session_ask_fork(struct session *s, struct session *fork, uint64_t id, const char *head,
    size_t head_len, struct error *err)
{
    unsigned char header[FRAME_HEADER_SIZE];
    struct frame frame = { .type = FRAME_FORK, .flags = FRAME_FD, .id = id, .head_len = head_len };
    struct iovec iov[] = { { header, sizeof header }, { (void *)(uintptr_t)head, head_len } };
    frame_write_header(header, &frame);
    return s->ops->fork(
        s->sandbox, iov, array_length(iov), &session_handlers, fork, &fork->sandbox, err);
}

struct session *session_new_fork(
    const struct session *s, const struct session_events *events, void *arg)
{
    struct session *fork = session_new(s->env, &s->settings, events, arg);
    if (!fork)
        return NULL;
    fork->last_id = s->last_id; /* cells keep numbers that are unique in tracebacks */
    fork->last_cell = s->last_cell;
    fork->variables = s->variables ? json_object_get(s->variables) : NULL;
    fork->directory = s->directory ? strdup(s->directory) : NULL;
    fork->variables_head = s->variables_head ? strdup(s->variables_head) : NULL;
    if (!s->directory == !fork->directory && !s->variables_head == !fork->variables_head)
        return fork;
    session_close(fork);
    return NULL;
}

int session_make_fork(struct session *s, uint64_t operation, const struct session_events *events,
    void *events_arg, struct session **out, struct error *err)
{
    struct session *fork = session_new_fork(s, events, events_arg);
    int rc = fork ? session_ask_fork(s, fork, operation, NULL, 0, err) : error_memory(err);
    if (rc < 0)
        session_close(fork);
    else
        *out = fork;
    return rc;
}

int session_fork(struct session *s, const struct session_events *events, void *events_arg,
    session_done_fn *done, void *arg, struct session **out, struct error *err)
{
    if (!s->ops->fork)
        return error_set(err, ERROR_UNSUPPORTED,
            "the environment '%s' cannot fork sessions; local sandboxes can", s->ops->name);
    bool joins = s->forks_asked > 0 && s->done == done && s->done_arg == arg;
    int rc = joins ? 0 : session_begin(s, done, arg, err);
    if (rc < 0)
        return rc;
    rc = session_make_fork(s, s->operation, events, events_arg, out, err);
    if (rc < 0)
        return joins ? rc : session_take_back(s, rc);
    s->forks_asked++;
    session_begin_life(*out);
    if (joins)
        return 0;
    s->limit = FORK_SECONDS;
    session_deadline_begin(s);
    return 0;
}
