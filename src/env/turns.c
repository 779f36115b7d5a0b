/* env/turns.c: see turns.h. */
#include "env/turns.h"

#include <stdlib.h>

#include "base/clock.h"

enum {
    TICK_MS = 1,
    AT_ONCE = 8, /* of those that wait, in a tick; with local.c's pieces half a MiB */
    SMALL_BYTES =
        16384,         /* who gives less has written it just now: waiting makes one piece of many */
    CROWD = 4,         /* so many may give large pieces, or take the host's time, without waiting */
    MUCH_NS = 1000000, /* of the host's time, in one operation */
    ROUND_NS = 200000, /* of it for all who were put off, before the others are looked at again */
};

TAILQ_HEAD(turn_list, turn);

struct turns {
    struct timer *tick;
    struct every_turn *each;
    struct turn_list list, put_off;
    size_t count, takers; /* of `list`; of those that have taken much */
};

static void tick(void *arg)
{
    struct turns *q = arg;
    for (unsigned n = 0; n < AT_ONCE && q->count > 0; n++) {
        struct turn *t = TAILQ_FIRST(&q->list);
        turns_leave(q, t);
        t->next(t->arg, t->port);
    }
    if (q->count > 0)
        timer_start(q->tick, TICK_MS, 0);
}

/* As long as there is somebody. Those that are not put off are read in between. */
static void hear_some(void *arg)
{
    struct turns *q = arg;
    uint64_t begun = clock_ns();
    while (!TAILQ_EMPTY(&q->put_off) && clock_ns() - begun < ROUND_NS) {
        struct turn *t = TAILQ_FIRST(&q->put_off);
        turns_leave(q, t);
        t->hear(t->arg, t->port);
    }
    if (TAILQ_EMPTY(&q->put_off))
        every_turn_stop(q->each);
}

int turns_open(struct loop *loop, struct turns **out, struct error *err)
{
    struct turns *q = calloc(1, sizeof *q);
    if (!q)
        return error_memory(err);
    TAILQ_INIT(&q->list);
    TAILQ_INIT(&q->put_off);
    q->tick = timer_new(loop, tick, q);
    q->each = every_turn_new(loop, hear_some, q);
    if (!q->tick || !q->each) {
        turns_close(q);
        return error_memory(err);
    }
    *out = q;
    return 0;
}

void turns_close(struct turns *q)
{
    if (!q)
        return;
    timer_free(q->tick);
    every_turn_free(q->each);
    free(q);
}

bool turns_wait(struct turns *q, struct turn *t, size_t len)
{
    if (t->waits)
        return true;
    size_t lately =
        t->before + len; /* what the kernel had queued may end shortly after a piece of ours */
    t->before = len;
    if (lately >= SMALL_BYTES && q->count < CROWD)
        return false;
    if (q->count == 0)
        timer_start(q->tick, TICK_MS, 0);
    TAILQ_INSERT_TAIL(&q->list, t, link);
    t->waits = true;
    q->count++;
    return true;
}

void turns_leave(struct turns *q, struct turn *t)
{
    if (!t->waits)
        return;
    TAILQ_REMOVE(t->put_off ? &q->put_off : &q->list, t, link);
    q->count -= !t->put_off;
    t->waits = t->put_off = false;
}

/* ---- the host's time ---- */

bool turns_put_off(struct turns *q, struct turn *t)
{
    if (t->waits)
        return true;
    if (t->took < MUCH_NS || q->takers <= CROWD)
        return false;
    every_turn_start(q->each);
    TAILQ_INSERT_TAIL(&q->put_off, t, link);
    t->waits = t->put_off = true;
    return true;
}

void turns_took(struct turns *q, struct turn *t, uint64_t ns)
{
    bool much = t->took >= MUCH_NS;
    t->took += ns;
    q->takers += !much && t->took >= MUCH_NS;
}

void turns_attend(struct turns *q, struct turn *t)
{
    q->takers -= t->took >= MUCH_NS;
    t->took = 0;
}
