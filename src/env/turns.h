/* env/turns.h: who says much waits for its turn.
 *
 * All guests of a host share one loop. A port (a descriptor that is read in pieces) which has said
 * something without end, or a little of it, is not looked at again before a short while, and in one
 * turn only so many of those that wait are: the others' messages come between. A guest that says
 * little and whole things never waits.
 */
#ifndef DROSTE_ENV_TURNS_H
#define DROSTE_ENV_TURNS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/queue.h>

#include "base/error.h"
#include "base/loop.h"

struct turns;

struct turn {
    TAILQ_ENTRY(turn) link;
    void (*next)(void *arg, unsigned port); /* its turn has come */
    void *arg;
    unsigned port;
    bool waits;
};

int turns_open(struct loop *loop, struct turns **out, struct error *err);
/* NULL is fine. */
void turns_close(struct turns *q);

/* After a piece of `len` bytes: true if the port has to wait; `next` is called then, later. */
bool turns_wait(struct turns *q, struct turn *t, size_t len);
/* It waits no more, if it does. */
void turns_leave(struct turns *q, struct turn *t);

#endif
