/* session/flow.c: bounds the data that waits for a guest that does not read.
 *
 *   reading ── UNREAD_FULL bytes wait ──► held ── half of them were read ──► reading
 *   held ── none of them read for session_limits.stall seconds ──► the sandbox is ended
 *
 * While a session is held, the host handles no frame of its guest and the environment stops reading
 * the channel, because each frame may be a call that needs a reply. Only replies to open calls are
 * still to come: small ones, or errors instead once UNREAD_MOST bytes wait. An honest guest reads
 * while it writes (guest/python/core/link.py), so the two sides cannot deadlock.
 */
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

int session_flow_check(const struct session *s, size_t len, struct error *err)
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

void session_flow_sent(struct session *s)
{
    if (s->held || s->dead || flow_unread(s) < UNREAD_FULL)
        return;
    s->held = true;
    frame_hold(&s->decoder);
    s->ops->hold(s->sandbox, true);
    session_watch_partial(s);
    wait_for_room(s);
}

void session_room(void *arg)
{
    struct session *s = arg;
    if (!s->held || s->dead)
        return;
    wait_for_room(s);
    if (flow_unread(s) > UNREAD_FULL / 2)
        return;
    s->held = false;
    timer_stop(s->stall);
    s->ops->hold(s->sandbox, false);
    session_receive_more(s);
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
