/* env/common/fair_reading.c: the scheduler of guests' output (see the header for its rules). */
#include "env/common/fair_reading.h"

#include <stdlib.h>

#include "base/cleanup.h"
#include "base/clock.h"

enum {
    TICK_MS = 1,
    AT_ONCE = 8, /* waiting ports to read in a tick: half a MiB with the pieces of local.c */
    SMALL_BYTES = 16384, /* a smaller piece was just written: waiting collects many into one */
    CROWD = 4,         /* as many ports may fill their pieces, or use host time, without waiting */
    MUCH_NS = 1000000, /* host time in one operation that counts as much */
    ROUND_NS = 200000, /* for put-off ports, before the others are polled again */
    /* for one message that counts as long; a call with its reply takes 0.03 ms */
    HEAVY_NS = 1000000,
    REST = 4,        /* factor of the rest with four or more such ports */
    REST_ALONE = 16, /* factor with one; two share it */
    REST_MOST_NS = 1000000000,
    LATELY_NS = 1000000000,
};

/* The last two active ports without long messages. */
struct active_port {
    const void *arg;
    uint64_t ns;
};

TAILQ_HEAD(turn_list, fair_reader);

struct fair_reading {
    struct timer *tick;
    struct every_turn *each;
    struct turn_list list, put_off, resting;
    struct timer *alarm; /* at rest_until, while any port rests */
    uint64_t rest_until;
    struct active_port last_active[2];
    size_t count, heavy_users; /* ports in `list`; ports that have used much host time */
    size_t heavy;              /* ports with a long message */
};

static void fair_reading_tick(void *arg)
{
    struct fair_reading *q = arg;
    for (unsigned n = 0; n < AT_ONCE && q->count > 0; n++) {
        struct fair_reader *t = TAILQ_FIRST(&q->list);
        fair_reading_leave(q, t);
        t->next(t->arg, t->port);
    }
    if (q->count > 0)
        timer_start(q->tick, TICK_MS, 0);
}

/* Another port was active lately and would have to wait. */
static bool others_are_active(const struct fair_reading *q, const void *arg, uint64_t now)
{
    for (size_t i = 0; i < array_length(q->last_active); i++)
        if (q->last_active[i].arg && q->last_active[i].arg != arg &&
            now - q->last_active[i].ns < LATELY_NS)
            return true;
    return false;
}

static bool fair_reading_may_read(const struct fair_reading *q, const struct fair_reader *t)
{
    uint64_t now = t->heavy ? clock_ns() : 0;
    return !t->heavy || now >= q->rest_until || !others_are_active(q, t->arg, now);
}

static void fair_reading_rest(struct fair_reading *q, struct fair_reader *t)
{
    uint64_t now = clock_ns();
    uint64_t ns = q->rest_until > now ? q->rest_until - now : 0;
    bool first = TAILQ_EMPTY(&q->resting);
    TAILQ_INSERT_TAIL(&q->resting, t, link);
    t->waits = t->rests = true;
    if (first)
        timer_start(q->alarm, ns / 1000000 + 1, 0);
}

static void put_off(struct fair_reading *q, struct fair_reader *t)
{
    every_turn_start(q->each);
    TAILQ_INSERT_TAIL(&q->put_off, t, link);
    t->waits = t->put_off = true;
}

static void end_rest(void *arg)
{
    struct fair_reading *q = arg;
    while (!TAILQ_EMPTY(&q->resting)) {
        struct fair_reader *t = TAILQ_FIRST(&q->resting);
        fair_reading_leave(q, t);
        put_off(q, t);
    }
}

/* Ports that were not put off are polled between these rounds. If a port of the round has a long
 * message, the remaining ports with long messages rest with it again. */
static void fair_reading_read_some(void *arg)
{
    struct fair_reading *q = arg;
    uint64_t begun = clock_ns();
    while (!TAILQ_EMPTY(&q->put_off) && clock_ns() - begun < ROUND_NS) {
        struct fair_reader *t = TAILQ_FIRST(&q->put_off);
        fair_reading_leave(q, t);
        if (fair_reading_may_read(q, t))
            t->read(t->arg, t->port);
        else
            fair_reading_rest(q, t);
    }
    if (TAILQ_EMPTY(&q->put_off))
        every_turn_stop(q->each);
}

int fair_reading_open(struct loop *loop, struct fair_reading **out, struct error *err)
{
    struct fair_reading *q = calloc(1, sizeof *q);
    if (!q)
        return error_memory(err);
    TAILQ_INIT(&q->list);
    TAILQ_INIT(&q->put_off);
    TAILQ_INIT(&q->resting);
    q->tick = timer_new(loop, fair_reading_tick, q);
    q->alarm = timer_new(loop, end_rest, q);
    q->each = every_turn_new(loop, fair_reading_read_some, q);
    if (!q->tick || !q->alarm || !q->each) {
        fair_reading_close(q);
        return error_memory(err);
    }
    *out = q;
    return 0;
}

void fair_reading_close(struct fair_reading *q)
{
    if (!q)
        return;
    timer_free(q->tick);
    timer_free(q->alarm);
    every_turn_free(q->each);
    free(q);
}

bool fair_reading_wait(struct fair_reading *q, struct fair_reader *t, size_t len)
{
    if (t->waits)
        return true;
    size_t recent =
        t->before + len; /* what the kernel had queued may end shortly after a full piece */
    t->before = len;
    if (recent >= SMALL_BYTES && q->count < CROWD)
        return false;
    if (q->count == 0)
        timer_start(q->tick, TICK_MS, 0);
    TAILQ_INSERT_TAIL(&q->list, t, link);
    t->waits = true;
    q->count++;
    return true;
}

void fair_reading_leave(struct fair_reading *q, struct fair_reader *t)
{
    if (!t->waits)
        return;
    TAILQ_REMOVE(t->rests ? &q->resting : t->put_off ? &q->put_off : &q->list, t, link);
    q->count -= !t->put_off && !t->rests;
    t->waits = t->put_off = t->rests = false;
}

/* ---- accounting of host time ---- */

static void note_active(struct fair_reading *q, const void *arg, uint64_t now)
{
    if (q->last_active[0].arg != arg)
        q->last_active[1] = q->last_active[0];
    q->last_active[0] = (struct active_port){ arg, now };
}

bool fair_reading_put_off(struct fair_reading *q, struct fair_reader *t)
{
    if (t->waits)
        return true;
    if (!fair_reading_may_read(q, t)) {
        fair_reading_rest(q, t);
        return true;
    }
    if (t->used_ns < MUCH_NS || q->heavy_users <= CROWD)
        return false;
    put_off(q, t);
    return true;
}

/* One such port leaves the others 16/17 of the host's time; four or more leave 4/5. */
static uint64_t rest_ns(const struct fair_reading *q, uint64_t passed_ns)
{
    uint64_t times = q->heavy * REST < REST_ALONE ? REST_ALONE / q->heavy : REST;
    return passed_ns < REST_MOST_NS / times ? times * passed_ns : REST_MOST_NS;
}

static void fair_reading_add(
    struct fair_reading *q, struct fair_reader *t, uint64_t ns, uint64_t passed_ns)
{
    bool much = t->used_ns >= MUCH_NS;
    t->used_ns += ns;
    q->heavy_users += !much && t->used_ns >= MUCH_NS;
    if (ns < HEAVY_NS)
        return;
    q->heavy += !t->heavy;
    t->heavy = true;
    uint64_t until = clock_ns() + rest_ns(q, passed_ns);
    q->rest_until = until > q->rest_until ? until : q->rest_until;
}

void fair_reading_add_use(
    struct fair_reading *q, struct fair_reader *t, uint64_t ns, uint64_t passed_ns)
{
    fair_reading_add(q, t, ns, passed_ns);
    if (!t->heavy)
        note_active(q, t->arg, clock_ns());
}

void fair_reading_charge(struct fair_reading *q, struct fair_reader *t, uint64_t ns)
{
    fair_reading_add(q, t, ns, ns);
}

void fair_reading_begin(struct fair_reading *q, struct fair_reader *t)
{
    q->heavy_users -= t->used_ns >= MUCH_NS;
    t->used_ns = 0;
    q->heavy -= t->heavy;
    t->heavy = false;
}
