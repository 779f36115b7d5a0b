/* env/turns.c: see turns.h. */
#include "env/turns.h"

#include <stdlib.h>

enum {
    TICK_MS = 1,
    AT_ONCE = 8, /* of those that wait, in a tick; with local.c's pieces half a MiB */
    SMALL_BYTES =
        16384, /* who gives less has written it just now: waiting makes one piece of many */
    CROWD = 4, /* so many may give large pieces without waiting */
};

TAILQ_HEAD(turn_list, turn);

struct turns {
    struct timer *tick;
    struct turn_list list;
    size_t count;
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

int turns_open(struct loop *loop, struct turns **out, struct error *err)
{
    struct turns *q = calloc(1, sizeof *q);
    if (!q)
        return error_memory(err);
    TAILQ_INIT(&q->list);
    q->tick = timer_new(loop, tick, q);
    if (!q->tick) {
        free(q);
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
    free(q);
}

bool turns_wait(struct turns *q, struct turn *t, size_t len)
{
    if (t->waits)
        return true;
    if (len >= SMALL_BYTES && q->count < CROWD)
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
    TAILQ_REMOVE(&q->list, t, link);
    t->waits = false;
    q->count--;
}
