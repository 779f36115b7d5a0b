/* session/call_forks.c: forks of a session for one of its calls.
 *
 * The guest waits for the reply to a call, and forks when the host asks it to (FORK with the id of
 * the call, and the number of the item in its head). The fork handles one item and ends. It belongs
 * to the session that called, and is closed with it at the latest.
 */
#include <inttypes.h>
#include <stdio.h>

#include "session/internal.h"

static void session_close_retired(void *arg)
{
    session_close(arg);
}

static int session_prepare_call_fork(struct session *fork, struct error *err)
{
    struct loop *loop = ((struct environment_base *)fork->env)->loop;
    schema_drop(fork->settings.answer);
    fork->settings.answer = NULL;
    fork->settings.keeps = false; /* it runs one cell */
    fork->retired = timer_new(loop, session_close_retired, fork);
    return fork->retired ? 0 : error_memory(err);
}

int session_fork_for_call(struct session *s, uint64_t call, size_t item,
    const struct session_events *events, void *events_arg, struct session **out, struct error *err)
{
    char head[48];
    if (!s->ops->fork)
        return error_set(err, ERROR_UNSUPPORTED,
            "the environment '%s' cannot fork sessions; local sandboxes can", s->ops->name);
    int rc = session_check_alive(s, err);
    if (rc < 0)
        return rc;
    int head_len = snprintf(head, sizeof head, "{\"item\":%zu}", item);
    struct session *fork = session_new_fork(s, events, events_arg);
    rc = fork ? session_prepare_call_fork(fork, err) : error_memory(err);
    if (rc == 0)
        rc = session_ask_fork(s, fork, call, head, (size_t)head_len, err);
    if (rc < 0) {
        session_close(fork);
        return rc;
    }
    fork->origin = s;
    LIST_INSERT_HEAD(&s->call_forks, fork, call_fork);
    session_begin_life(fork);
    *out = fork;
    return 0;
}

void session_retire(struct session *fork)
{
    fork->operation = 0;
    fork->done = NULL;
    timer_stop(fork->deadline);
    session_end_sandbox(fork, "closed", ERROR_CANCELLED, "the fork was ended");
    session_calls_drop(fork);
    fork->events.output = NULL;
    fork->events.display = NULL;
    timer_start(fork->retired, 0, 0);
}
