/* base/hold.c: see hold.h. */
#include "base/hold.h"

#include <time.h>

uint64_t hold_clock_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_BOOTTIME, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static bool hold_is_open(const struct hold *h)
{
    return h->kept == h->written &&
           (!h->fresh_ns || hold_clock_ns() - h->confirmed_ns < h->fresh_ns);
}

bool hold_pass(struct hold *h, struct hold_wait *w, void (*go)(void *arg), void *arg)
{
    if (!h || hold_is_open(h))
        return true;
    if (h->kept == h->written)
        h->ask(h->arg);
    *w = (struct hold_wait){ .hold = h, .until = h->written, .go = go, .arg = arg };
    TAILQ_INSERT_TAIL(&h->waits, w, link);
    h->hurry(h->arg);
    return false;
}

void hold_leave(struct hold_wait *w)
{
    if (!w->hold)
        return;
    TAILQ_REMOVE(&w->hold->waits, w, link);
    w->hold = NULL;
}

/* The process may have been stopped between the confirmation and its arrival: then it needs
 * another one. */
void hold_confirm(struct hold *h, uint64_t kept, uint64_t sent_ns)
{
    struct hold_wait *w;
    h->kept = kept;
    h->confirmed_ns = sent_ns;
    while ((w = TAILQ_FIRST(&h->waits)) && w->until <= h->kept) {
        if (h->fresh_ns && hold_clock_ns() - h->confirmed_ns >= h->fresh_ns) {
            if (h->kept == h->written)
                h->ask(h->arg);
            for (; w; w = TAILQ_NEXT(w, link))
                w->until = h->written;
            return;
        }
        hold_leave(w);
        w->go(w->arg);
    }
}
