/* session/events.c: what a sandbox reports to its session; frames are read in receive.c. */
#include "session/internal.h"

static void sandbox_settled(void *arg)
{
    struct session *s = arg;
    struct cell_result r = s->settled;
    if (!s->settling)
        return;
    s->settling = false;
    session_deliver(s, &r);
}

static void sandbox_ended(void *arg, const struct sandbox_exit *how)
{
    struct session *s = arg;
    s->dead = true;
    s->how = *how;
    /* A sandbox that never started is not lost: the environment does not work. */
    if (!s->ready && how->error.code == ERROR_LOST)
        s->how.error.code = ERROR_ENVIRONMENT;
    session_explain_death(s);
    session_service_end(s, &s->death);
    timer_stop(s->lifetime);
    timer_stop(s->partial);
    timer_stop(s->stall);
    session_calls_drop(s);
    session_drop_settled(s);
    if (!s->operation)
        return;
    struct cell_result r;
    session_death(s, &r);
    session_deliver(s, &r);
}

static void sandbox_output(void *arg, int stream, const char *data, size_t len)
{
    struct session *s = arg;
    if (s->results.clear_waits)
        session_clear_results(s);
    capture_add(stream == 1 ? &s->out : &s->err, data, len);
    if (s->events.output)
        s->events.output(s->arg, s, stream, data, len);
}

static void sandbox_room(void *arg)
{
    if (session_flow_has_room(arg))
        session_receive_more(arg);
}

static void sandbox_finished(void *arg, const struct error *why)
{
    session_tell_finished(arg, why);
}

static bool sandbox_request(void *arg, const struct egress_request *request)
{
    struct session *s = arg;
    return !s->events.request || s->events.request(s->arg, s, request);
}

static bool sandbox_approve(void *arg, struct droste_network_request *request)
{
    struct session *s = arg;
    return s->events.approve && s->events.approve(s->arg, s, request);
}

const struct sandbox_events session_handlers = { session_receive, sandbox_output, sandbox_ended,
    sandbox_settled, sandbox_room, sandbox_finished, session_take_fd, sandbox_request,
    sandbox_approve };
