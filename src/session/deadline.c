/* session/deadline.c: the deadlines of a session and of its current operation.
 *
 *   cell deadline or session_interrupt ── interrupt ──► grace ──► interrupt again ──► kill
 *   deadline of a checkpoint that is asked to fork ───────────────────────────────► kill
 *   end of the session's lifetime ────────────────────────────────────────────────► kill
 */
#include "base/clock.h"
#include "session/internal.h"

/* Interrupts twice within the grace period: Python drops an exception that a signal handler
 * raises inside a destructor or a weakref callback, and a cell may catch the first one. */
enum { INTERRUPTS_MAX = 2, START_SECONDS = 120 };
/* A copy of 20 GB takes some tenths of a second (page tables, fork(2)). */
enum { CHECKPOINT_SECONDS = 5 };
/* Of a held operation: the shortest time until the next look, and below which share of the time its
 * guest counts as idle. */
enum { HELD_LOOK_MS = 250, IDLE_SHARE = 50 };

enum {
    PARTIAL_FRAME_MS = 30000, /* deadline of a partial frame, */
    PARTIAL_MIN = 1 << 20,    /* unless it grew by so much: transports can be slow */
};

int session_pause(struct session *s, bool on, struct error *err)
{
    if (!s->ops->pause)
        return error_set(err, ERROR_UNSUPPORTED,
            "the environment '%s' cannot pause sessions; local sandboxes can", s->ops->name);
    int rc = session_check_alive(s, err);
    return rc < 0 ? rc : s->ops->pause(s->sandbox, on, err);
}

/* The time of all holds, without what the guest computed meanwhile. */
static uint64_t deadline_held_ns(const struct session *s)
{
    if (s->holds == 0)
        return s->held_ns;
    uint64_t waited = clock_ns() - s->hold_since_ns, busy = session_busy_ns(s);
    uint64_t used = busy > s->hold_busy_ns ? busy - s->hold_busy_ns : 0;
    return s->held_ns + (waited > used ? waited - used : 0);
}

void session_hold(struct session *s, bool on)
{
    if (s->origin)
        session_hold(s->origin, on);
    if (on && s->holds++ == 0) {
        s->hold_since_ns = s->hold_seen_ns = clock_ns();
        s->hold_busy_ns = s->hold_seen_busy_ns = session_busy_ns(s);
    } else if (!on && s->holds > 0) {
        s->held_ns = deadline_held_ns(s);
        s->holds--;
        s->hold_since_ns = clock_ns();
        s->hold_busy_ns = session_busy_ns(s);
    }
}

/* Whether the guest has hardly computed since the last look. */
static bool deadline_is_idle(struct session *s)
{
    uint64_t now = clock_ns(), busy = session_busy_ns(s);
    uint64_t used = busy > s->hold_seen_busy_ns ? busy - s->hold_seen_busy_ns : 0;
    bool idle = s->holds > 0 && used < (now - s->hold_seen_ns) / IDLE_SHARE;
    s->hold_seen_ns = now;
    s->hold_seen_busy_ns = busy;
    return idle;
}

/* How much longer the operation may take because it was held. */
static uint64_t deadline_held_ms(struct session *s)
{
    uint64_t held_ns = deadline_held_ns(s), more_ms = 0;
    bool idle = deadline_is_idle(s);
    if (held_ns > s->deadline_held_ns)
        more_ms = (held_ns - s->deadline_held_ns) / 1000000;
    s->deadline_held_ns = held_ns;
    return idle && more_ms < HELD_LOOK_MS ? HELD_LOOK_MS : more_ms;
}

static void deadline_start(struct session *s, uint64_t milliseconds)
{
    session_paused_since(s, &s->deadline_paused_ns);
    s->deadline_held_ns = deadline_held_ns(s);
    timer_start(s->deadline, milliseconds, 0);
}

static void deadline_interrupt(struct session *s)
{
    s->interrupts_sent++;
    session_send(s, FRAME_INTERRUPT, s->operation, "", 0, NULL, 0, NULL);
    s->ops->interrupt(s->sandbox);
    deadline_start(s, (uint64_t)(s->settings.grace * 1000 / INTERRUPTS_MAX));
}

/* An asynchronous start has its own limit; this limit is for guests that never send READY. */
void session_deadline_begin(struct session *s)
{
    double limit = session_is_late(s) ? s->limit + START_SECONDS : s->limit;
    s->started_ns = clock_ns();
    if (s->limit > 0 && s->interrupts_sent == 0)
        deadline_start(s, (uint64_t)(limit * 1000 + 0.5));
}

void session_deadline_of_checkpoint(struct session *s)
{
    s->is_parked = true;
    s->limit = CHECKPOINT_SECONDS;
    session_deadline_begin(s);
}

/* A checkpoint that does not answer runs code that stays in it, or is stopped: an interrupt would
 * find nothing to end. */
static void deadline_end_checkpoint(struct session *s)
{
    session_end_sandbox(s, "timeout", ERROR_TIMEOUT,
        "the checkpoint did not answer within %g s and was killed; the session stays as it is",
        s->limit);
}

void session_deadline_reached(void *arg)
{
    struct session *s = arg;
    if (!s->operation)
        return;
    uint64_t paused_ms = session_paused_since(s, &s->deadline_paused_ns);
    if (s->interrupts_sent == 0)
        paused_ms += deadline_held_ms(s);
    if (paused_ms > 0) {
        timer_start(s->deadline, paused_ms, 0);
        return;
    }
    if (s->is_parked) {
        deadline_end_checkpoint(s);
        return;
    }
    if (s->interrupts_sent < INTERRUPTS_MAX) {
        s->deadline_passed = s->deadline_passed || s->interrupts_sent == 0;
        deadline_interrupt(s);
        return;
    }
    if (s->deadline_passed)
        session_end_sandbox(s, "timeout", ERROR_TIMEOUT,
            "the cell ran longer than %g s, did not stop within %g s of the interrupt, and was "
            "killed; its variables are gone",
            s->limit, s->settings.grace);
    else
        session_end_sandbox(s, "interrupt", ERROR_CANCELLED,
            "the cell did not stop within %g s of the interrupt and was killed; its variables are "
            "gone",
            s->settings.grace);
}

void session_begin_life(struct session *s)
{
    s->life_over = false;
    s->life_ends_ns = s->settings.limits.timeout > 0
                          ? clock_ns() + (uint64_t)(s->settings.limits.timeout * 1e9)
                          : 0;
    session_continue_life(s);
}

void session_continue_life(struct session *s)
{
    uint64_t now_ns = clock_ns();
    if (s->life_ends_ns > 0)
        timer_start(s->lifetime,
            s->life_ends_ns > now_ns ? (s->life_ends_ns - now_ns + 999999) / 1000000 : 0, 0);
}

void session_lifetime_over(void *arg)
{
    struct session *s = arg;
    s->life_over = true;
    session_end_sandbox(s, "timeout", ERROR_TIMEOUT,
        "the session reached the end of its time and was killed; its variables are gone");
}

void session_interrupt(struct session *s)
{
    struct error why = { 0 };
    if (s->finished) {
        error_set(&why, ERROR_CANCELLED,
            "interrupted while the volume was written back; it may be incomplete");
        session_tell_finished(s, &why);
    }
    if (s->operation && s->interrupts_sent == 0 && !s->dead)
        deadline_interrupt(s);
}

/* ---- a message that does not complete ---- */

/* While the session is held, the guest cannot complete a frame. */
void session_watch_partial(struct session *s)
{
    bool partial = frame_is_partial(&s->decoder) && !s->held;
    if (partial == s->partial_running)
        return;
    s->partial_running = partial;
    s->partial_bytes = 0;
    session_paused_since(s, &s->partial_paused_ns);
    if (partial)
        timer_start(s->partial, PARTIAL_FRAME_MS, 0);
    else
        timer_stop(s->partial);
}

void session_partial_too_long(void *arg)
{
    struct session *s = arg;
    bool cut = s->ops->is_cut && s->ops->is_cut(s->sandbox);
    bool paused = session_paused_since(s, &s->partial_paused_ns) > 0;
    if (cut || paused || s->partial_bytes >= PARTIAL_MIN) {
        s->partial_bytes = 0;
        timer_start(s->partial, PARTIAL_FRAME_MS, 0);
        return;
    }
    session_end_sandbox(s, "protocol", ERROR_PROTOCOL,
        "the guest was ended because it did not complete a message within %d s",
        PARTIAL_FRAME_MS / 1000);
}
