/* env/common/fair_reading.h: fair scheduling of guests' output in the host's loop.
 *
 * All guests of a host share one loop. A port is a descriptor that is read in pieces. Three rules
 * keep a busy port from delaying the others:
 *
 *   batching  After a piece of output, or of an unfinished message, a port waits for the next tick
 *             before it is read again, unless the piece was large and few ports are waiting. A tick
 *             reads only some of the waiting ports.
 *   put-off   Processing a guest's messages costs host time. Once a port has used much of it in one
 *             operation, and several ports have, it is read after the others.
 *   rest      A message or its answer can cost the host much time at once. Ports with such a
 *             message in this operation then rest together while any other port is active: 16 times
 *             as long as it took if there is one such port, 8 times with two, 4 times with four or
 *             more.
 *
 * A guest that writes little, in whole messages, never waits. A port that is alone does not rest.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "base/error.h"
#include "base/loop.h"

struct fair_reading;

struct fair_reader {
    TAILQ_ENTRY(fair_reader) link;
    void (*next)(void *arg, unsigned port); /* its tick has come: read the port again */
    void (*read)(void *arg, unsigned port); /* it was put off and is to be read now */
    void *arg;
    unsigned port;
    uint64_t used_ns; /* host processor time in this operation, in nanoseconds */
    size_t before;    /* length of the previous piece */
    bool waits, put_off, rests;
    bool heavy; /* one message of this operation took long */
};

int fair_reading_open(struct loop *loop, struct fair_reading **out, struct error *err);
void fair_reading_close(struct fair_reading *q);

/* Call after reading `len` bytes. True if the port must wait; `next` is called later. */
bool fair_reading_wait(struct fair_reading *q, struct fair_reader *t, size_t len);
/* Removes the port from whichever list it waits in. */
void fair_reading_leave(struct fair_reading *q, struct fair_reader *t);

/* Call when the port is readable. True if other ports go first; `hear` is called later. */
bool fair_reading_put_off(struct fair_reading *q, struct fair_reader *t);
/* Processing the port's output took `ns` of processor time and `passed_ns` of wall-clock time. The
 * former decides whether that is much, because the guest is not responsible for a busy machine; the
 * latter sets the length of the rest, because that is how long the others had to wait. */
void fair_reading_add_use(
    struct fair_reading *q, struct fair_reader *t, uint64_t ns, uint64_t passed_ns);
/* Answering the port's requests took `ns` of processor time. */
void fair_reading_charge(struct fair_reading *q, struct fair_reader *t, uint64_t ns);
/* A new operation begins: resets the accounting. Also call it before freeing the reader. */
void fair_reading_begin(struct fair_reading *q, struct fair_reader *t);
