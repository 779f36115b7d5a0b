/* session/flow.c: replies to calls, and a bound on those that wait for a guest that does not read.
 *
 *   reading ── UNREAD_FULL bytes wait ──► held ── half of them were read ──► reading
 *   held ── none of them read for session_limits.stall seconds ──► the sandbox is ended
 *
 * While a session is held, the host handles no frame of its guest and the environment stops reading
 * the channel, because each frame may be a call that needs a reply. Only replies to open calls are
 * still to come: small ones, or errors instead once UNREAD_MOST bytes wait. An honest guest reads
 * while it writes (guest/python/core/link.py), so the two sides cannot deadlock.
 */
#include <stdlib.h>

#include "base/cleanup.h"
#include "session/internal.h"

enum {
    UNREAD_FULL = 1 << 20,   /* five times a socket buffer; thousands of replies */
    UNREAD_MOST = 256 << 20, /* the largest message; answers of many threads */
    REPLY_SMALL = 4096,      /* with 16384 calls open, 64 MiB more */
};

static size_t flow_unread(const struct session *s)
{
    return s->ops->unread ? s->ops->unread(s->sandbox) : 0;
}

static int flow_check(const struct session *s, size_t len, struct error *err)
{
    if (len <= REPLY_SMALL || flow_unread(s) <= UNREAD_MOST)
        return 0;
    return error_set(err, ERROR_BUDGET,
        "%d MiB of answers wait for this code to read them, so this one was dropped",
        UNREAD_MOST >> 20);
}

static void wait_for_room(struct session *s)
{
    session_paused_since(s, &s->stall_paused_ns);
    if (s->settings.stall_limit > 0)
        timer_start(s->stall, (uint64_t)(s->settings.stall_limit * 1000 + 0.5), 0);
}

static void flow_sent(struct session *s)
{
    if (s->held || s->dead || flow_unread(s) < UNREAD_FULL)
        return;
    s->held = true;
    frame_hold(&s->decoder);
    s->ops->hold(s->sandbox, true);
    session_watch_partial(s);
    wait_for_room(s);
}

int session_reply(struct session *s, uint64_t id, struct json_object *head,
    const struct session_part *parts, size_t count, struct error *err)
{
    size_t head_len = 0;
    size_t total = 0;
    for (size_t i = 0; i < count; i++)
        total += parts[i].len;
    if (!s->dead && flow_check(s, total, err) < 0)
        return -(int)ERROR_BUDGET;
    if (s->dead || !session_call_close(s, id))
        return 0;
    cleanup_buf struct buf blob = { 0 };
    cleanup_free size_t *lengths = malloc((count + 1) * sizeof *lengths);
    if (!lengths)
        return error_memory(err);
    for (size_t i = 0; i < count; i++)
        lengths[i] = parts[i].len;
    frame_parts_begin(&blob, lengths, count);
    for (size_t i = 0; i < count; i++)
        buf_append(&blob, parts[i].data, parts[i].len);
    const char *text = head ? json_text(head, &head_len) : "";
    if (buf_failed(&blob) || !text)
        return error_memory(err);
    struct session_part part = { blob.data, blob.len };
    int rc = session_send_blob(s, FRAME_REPLY, id, text, head_len, &part, 1, err);
    flow_sent(s);
    return rc;
}

bool session_flow_has_room(struct session *s)
{
    if (!s->held || s->dead)
        return false;
    wait_for_room(s);
    if (flow_unread(s) > UNREAD_FULL / 2)
        return false;
    s->held = false;
    timer_stop(s->stall);
    s->ops->hold(s->sandbox, false);
    return true;
}

void session_stalled(void *arg)
{
    struct session *s = arg;
    if ((s->ops->is_cut && s->ops->is_cut(s->sandbox)) ||
        session_paused_since(s, &s->stall_paused_ns) > 0) {
        wait_for_room(s);
        return;
    }
    session_end_sandbox(s, "protocol", ERROR_PROTOCOL,
        "the guest was ended because it read nothing for %g s while %zu KiB of answers waited for "
        "it",
        s->settings.stall_limit, flow_unread(s) >> 10);
}
