/* tests/attack/crowd.h: many sandboxes under attack in one host process, as a service would have
 * them, and what the host looks like before and after.
 *
 * The attacks are a table of Python cells (crowd.c). Attacker i runs attack i modulo the table's
 * length; each has a session, a broker and a budget of its own, and they share one loop, one
 * environment, and one model, which refuses every call. The honest session is the caller's.
 */
#pragma once

#include "broker/broker.h"
#include "broker/budget.h"
#include "lm/lm.h"
#include "session/session.h"

struct crowd_attack {
    const char *name;
    const char *code;
    bool ends; /* the sandbox does not outlive it: by itself, or because the host ends it */
};

/* NULL after the last. */
const struct crowd_attack *crowd_attack_at(size_t index);

struct attacker {
    struct crowd *crowd;
    const struct crowd_attack *attack;
    struct session *session;
    struct broker *broker;
    struct budget budget;
    struct cell_result last; /* of its last cell */
    bool done;               /* its cell has ended */
    unsigned cells, sandboxes;
    struct error refused; /* why it could not be opened, or its cell not be run */
};

struct crowd {
    struct loop *loop;
    struct environment *env;
    struct lm *lm;
    struct session_options options;
    struct attacker *attackers;
    size_t count;
    bool again;
    struct timer *timer;
    uint64_t calls; /* that the model refused */
};

/* Opens `count` sandboxes; each runs an empty cell and then its attack (the one named `only`, if
 * not NULL). With `again` an attacker whose cell has ended attacks again, in a new sandbox where
 * the old one is gone. */
int crowd_open(struct crowd *c, struct loop *loop, struct environment *env,
    const struct session_options *options, size_t count, const char *only, bool again,
    struct error *err);
/* True once each of them has begun to attack. */
bool crowd_stands(const struct crowd *c);
/* Closes what is left. */
void crowd_close(struct crowd *c);

struct crowd_host {
    unsigned descriptors, threads, children, mounts;
    unsigned processes; /* the children's children too, and so on, without copies of zygotes */
    unsigned copies;    /* and what each of them needs here is not in `descriptors` */
    size_t heap;        /* bytes that are allocated */
    size_t rss;         /* bytes in memory */
};

void crowd_look(struct crowd_host *host);
