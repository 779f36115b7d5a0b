/* env/common/fair_reading.h: who says much waits for its turn.
 *
 * All guests of a host share one loop. A port (a descriptor that is read in pieces) which has said
 * something without end, or a little of it, is not looked at again before a short while, and in one
 * turn only so many of those that wait are: the others' messages come between. A guest that says
 * little and whole things never waits, but for one thing: what it says takes the host some time, too,
 * and whoever has had much of that since it was given something to do is heard after the others, where there
 * are many such.
 *
 * One message can take the host long, and so can the answers to it. Ports of which that was so,
 * since they were given something to do, then rest together, as long as another one was heard
 * lately: 16 times as long as it took if there is one such port, 8 times with two, and 4 times with
 * four or more. A port that is alone does not rest.
 */
#ifndef DROSTE_ENV_COMMON_FAIR_READING_H
#define DROSTE_ENV_COMMON_FAIR_READING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "base/error.h"
#include "base/loop.h"

struct fair_reading;

struct fair_reader {
    TAILQ_ENTRY(fair_reader) link;
    void (*next)(void *arg, unsigned port); /* its turn has come: it is looked at again */
    void (*hear)(void *arg, unsigned port); /* it has something to say, which is to be read now */
    void *arg;
    unsigned port;
    uint64_t took; /* nanoseconds of the host's processor time, since fair_reading_attend */
    size_t before; /* length of the piece before this one */
    bool waits, put_off, rests;
    bool heavy; /* one thing that it said took long, since fair_reading_attend */
};

int fair_reading_open(struct loop *loop, struct fair_reading **out, struct error *err);
/* NULL is fine. */
void fair_reading_close(struct fair_reading *q);

/* After a piece of `len` bytes: true if the port has to wait; `next` is called then, later. */
bool fair_reading_wait(struct fair_reading *q, struct fair_reader *t, size_t len);
/* It waits no more, if it does. */
void fair_reading_leave(struct fair_reading *q, struct fair_reader *t);

/* The port has something to say. True if others come first: `hear` is called then, later. */
bool fair_reading_put_off(struct fair_reading *q, struct fair_reader *t);
/* What it said took the host `ns` of processor time, within `passed_ns`: what is much or long is judged by the former, as a busy
 * machine is not its doing, and the rest is as long as the others had to wait. */
void fair_reading_took(
    struct fair_reading *q, struct fair_reader *t, uint64_t ns, uint64_t passed_ns);
/* Answers to the port took the host `ns` of processor time. */
void fair_reading_charge(struct fair_reading *q, struct fair_reader *t, uint64_t ns);
/* It was given something to do: what it has taken before is forgotten. Also before it is freed. */
void fair_reading_attend(struct fair_reading *q, struct fair_reader *t);

#endif
