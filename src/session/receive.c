/* session/receive.c: checks frames from the guest against the session's state: READY once and
 * first, RESULT only for the current operation, CALL with an unused id. Anything else, or a message
 * that does not complete in time, ends the sandbox.
 */
#include <string.h>

#include "base/cleanup.h"
#include "session/internal.h"

enum {
    PARTS_MAX = 1000000, /* parts in one call */
    HEAD_MAX = 2 << 20,
};

/* Enough for the indices of 20,000 prompts, three times over. */
static const struct json_limits call_limits = { HEAD_MAX, 8, 65536 };

/* The operation of several forks ends with the last answer, and with the first refusal. Returns
 * false while others are to come. */
static bool receive_all_forks(struct session *s, struct cell_result *r)
{
    if (s->forks_asked == 0)
        return true;
    s->forks_asked--;
    if (s->fork_failed) {
        cell_result_free(r);
        *r = s->fork_failure;
    }
    s->fork_failed = s->forks_asked > 0 && r->status != CELL_OK;
    if (s->fork_failed)
        s->fork_failure = *r;
    else if (s->forks_asked > 0)
        cell_result_free(r);
    return s->forks_asked == 0;
}

static int receive_on_result(struct session *s, const struct frame *frame, struct error *err)
{
    struct cell_result r;
    int kept;
    if (s->ready && session_take_kept(s, frame, &kept, err))
        return kept;
    if (!s->ready || !s->operation || s->settling || frame->id != s->operation)
        return error_set(err, ERROR_PROTOCOL, "a result for an operation that is not active");
    int rc = result_read(s, frame, &r, err);
    if (rc < 0)
        return rc;
    if (!receive_all_forks(s, &r))
        return 0;
    if (s->is_cell && s->ops->settle) {
        timer_stop(s->deadline);
        s->settling = true;
        s->settled = r;
        if (s->ops->settle(s->sandbox) || !s->settling)
            return 0;
        s->settling = false;
    }
    session_deliver(s, &r);
    return 0;
}

static int on_ready(struct session *s, const struct frame *frame, struct error *err)
{
    if (s->ready)
        return error_set(err, ERROR_PROTOCOL, "a second READY");
    bool late = session_is_late(s);
    s->ready = true;
    if (late && s->operation)
        session_deadline_begin(s);
    return 0;
}

static int on_call(struct session *s, const struct frame *frame, struct error *err)
{
    cleanup_json struct json_object *head = NULL;
    struct session_call call = { .id = frame->id };
    if (!s->ready)
        return error_set(err, ERROR_PROTOCOL, "a call arrived before READY");
    int rc = json_parse(frame->head, frame->head_len, &call_limits, &head, err);
    if (rc == 0 && !json_object_is_type(head, json_type_object))
        rc = error_set(err, ERROR_PROTOCOL, "the head of a call is not an object");
    if (rc == 0)
        rc = frame_parts_open(frame->blob, frame->blob_len, PARTS_MAX, &call.parts, err);
    if (rc == 0)
        rc = session_call_open(s, frame->id, err);
    if (rc < 0)
        return rc;
    if (strcmp(json_get_string(head, "name", ""), "shown") == 0)
        return session_reply(s, frame->id, NULL, NULL, 0, err);
    s->calls++;
    call.head = head;
    s->events.call(s->arg, s, &call);
    return 0;
}

/* If the answer has been sent already, there is nothing to cancel. */
static int on_cancel(struct session *s, const struct frame *frame, struct error *err)
{
    if (!s->ready)
        return error_set(err, ERROR_PROTOCOL, "a call is cancelled before READY");
    if (session_call_close(s, frame->id))
        s->events.call_dropped(s->arg, s, frame->id);
    return 0;
}

/* A thread may show something while its cell ends: that is late, and is dropped. */
static int on_display(struct session *s, const struct frame *frame, struct error *err)
{
    if (!s->ready || frame->id > s->last_id)
        return error_set(err, ERROR_PROTOCOL, "a rich result of no cell");
    if (!s->operation || frame->id != s->operation || s->settling)
        return 0;
    if (!s->collects)
        return error_set(err, ERROR_PROTOCOL, "a rich result that was not asked for");
    s->ops->drain(s->sandbox);                         /* what was printed before */
    if (s->results.clear_waits && frame->blob_len > 0) /* it shows something */
        session_clear_results(s);
    int rc = bundles_take(&s->results, frame, err);
    if (rc == 0 && s->results.latest >= 0)
        session_show(s);
    return rc;
}

static const struct {
    uint8_t type;
    int (*handle)(struct session *s, const struct frame *frame, struct error *err);
} handlers[] = {
    { FRAME_READY, on_ready },
    { FRAME_CALL, on_call },
    { FRAME_RESULT, receive_on_result },
    { FRAME_CANCEL, on_cancel },
    { FRAME_DISPLAY, on_display },
};

static const struct frame_rule rules[] = {
    { FRAME_READY, 4096, 0, false }, { FRAME_CALL, HEAD_MAX, SESSION_BLOB_MAX, true },
    { FRAME_RESULT, HEAD_MAX, SESSION_BLOB_MAX, true }, { FRAME_CANCEL, 0, 0, false },
    { FRAME_DISPLAY, BUNDLES_HEAD_MAX, BUNDLES_BYTES + 4096, false }, /* and the table of parts */
};

static int receive_on_frame(void *arg, const struct frame *frame, struct error *err)
{
    struct session *s = arg;
    if (!session_is_alive(s))
        return 0; /* being ended: ignore further frames */
    for (size_t i = 0; i < array_length(handlers); i++)
        if (handlers[i].type == frame->type)
            return handlers[i].handle(s, frame, err);
    return error_set(err, ERROR_PROTOCOL, "frame of unexpected type %u", frame->type);
}

static void receive_refuse(struct session *s, const struct error *why)
{
    session_end_sandbox(
        s, "protocol", why->code, "the guest broke the protocol and was ended: %s", why->text);
}

void session_take_fd(void *arg, int fd)
{
    struct session *s = arg;
    frame_take_fd(&s->decoder, fd);
}

bool session_receive(void *arg, const char *data, size_t len)
{
    struct session *s = arg;
    struct error err = { 0 };
    if (s->death.code != ERROR_NONE)
        return true;
    if (frame_feed(&s->decoder, data, len, receive_on_frame, s, &err) < 0) {
        receive_refuse(s, &err);
        return true;
    }
    s->partial_bytes += len;
    if (!s->dead)
        session_watch_partial(s);
    return frame_is_partial(&s->decoder);
}

void session_receive_more(struct session *s)
{
    struct error err = { 0 };
    if (s->death.code != ERROR_NONE)
        return;
    if (frame_go_on(&s->decoder, receive_on_frame, s, &err) < 0)
        receive_refuse(s, &err);
    else if (!s->dead)
        session_watch_partial(s);
}

void session_receive_begin(struct session *s)
{
    s->decoder.total = sealed_total_new(); /* NULL: values come in the stream */
    s->decoder.rules = rules;
    s->decoder.rule_count = array_length(rules);
}
