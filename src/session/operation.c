/* session/operation.c: how an operation begins and ends.
 *
 *   starting ── READY ──► ready; an operation may be under way in both, the guest takes it in turn
 *   idle ── exec, set ──► busy ── RESULT with the operation's id ──► idle
 *   any ── the sandbox ends, breaks the protocol, or is killed at a deadline ──► dead
 *
 * What the guest sends is held against this state in receive.c.
 */
#include "base/clock.h"
#include "session/checkpoint_list.h"
#include "session/options.h"

int session_begin(struct session *s, session_done_fn *done, void *arg, struct error *err)
{
    int rc = session_check_alive(s, err);
    if (rc < 0)
        return rc;
    if (s->operation || (s->checkpoints && s->checkpoints->done))
        return error_set(err, ERROR_ARGUMENT, "the session is busy with another operation");
    s->operation = ++s->last_id;
    s->is_cell = s->is_numbered = false;
    s->started_ns = clock_ns();
    s->interrupts_sent = 0;
    s->deadline_passed = s->is_parked = false;
    s->calls = 0;
    s->collects = false;
    s->done = done;
    s->done_arg = arg;
    s->ops->begin_operation(s->sandbox);
    return 0;
}

int session_take_back(struct session *s, int rc)
{
    s->operation = 0;
    s->done = NULL;
    timer_stop(s->deadline);
    return rc;
}

void session_deliver(struct session *s, struct cell_result *r)
{
    session_done_fn *done = s->done;
    timer_stop(s->deadline);
    s->ops->drain(s->sandbox);
    r->out_left_out = capture_take(&s->out, &r->out);
    r->err_left_out = capture_take(&s->err, &r->err);
    r->seconds = clock_seconds_since(s->started_ns);
    r->calls = s->calls;
    r->results = s->results;
    s->results = (struct bundles){ 0 };
    s->ops->usage(s->sandbox, &r->usage);
    if (s->dead)
        session_revive(s, r);
    else
        session_end_cell(s);
    r->alive = !s->dead;
    r->variables = s->variables ? json_object_get(s->variables) : NULL;
    s->operation = 0;
    s->done = NULL;
    done(s->done_arg, r);
}

int session_offer(struct session *s, const char *json, size_t len, struct error *err)
{
    if (!session_is_alive(s))
        return 0; /* the next operation reports the failure */
    return session_send_blob(s, FRAME_OFFER, 0, json, len, NULL, 0, err);
}

int session_expect(struct session *s, struct schema *answer, struct error *err)
{
    cleanup_buf struct buf head = { 0 };
    buf_putc(&head, '{');
    session_write_fields(answer, &head);
    buf_putc(&head, '}');
    if (buf_failed(&head))
        return error_memory(err);
    schema_hold(answer);
    schema_drop(s->settings.answer);
    s->settings.answer = answer;
    return session_offer(s, head.data, head.len, err);
}
