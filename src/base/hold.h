/* base/hold.h: work that may begin only when what was written before it is kept elsewhere, too.
 *
 * A hold counts what was written and what is kept. Work that costs something passes it first: it
 * begins at once if everything written is kept and that was confirmed less than `fresh_ns` ago;
 * otherwise it waits. The confirmation says that this process was still the only writer at that
 * time, so work that waited elsewhere for long (for a rate limit, or in a stopped process) asks for
 * another one, and never begins after another process has taken over.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

struct hold;

struct hold_wait {
    TAILQ_ENTRY(hold_wait) link;
    struct hold *hold; /* NULL: it does not wait */
    uint64_t until;
    void (*go)(void *arg);
    void *arg;
};

struct hold {
    TAILQ_HEAD(hold_list, hold_wait) waits; /* in the order of `until` */
    uint64_t written, kept;
    uint64_t fresh_ns, confirmed_ns; /* 0: no limit; by hold_clock_ns */
    void (*ask)(void *arg);          /* writes something, to have it confirmed */
    void (*hurry)(void *arg);        /* something waits for what was written before */
    void *arg;
};

/* Goes on while the machine sleeps. */
uint64_t hold_clock_ns(void);

/* True: the work may begin now; no hold (NULL) never holds. False: `go` is called later, from the
 * loop, unless hold_leave comes first. */
bool hold_pass(struct hold *h, struct hold_wait *w, void (*go)(void *arg), void *arg);
void hold_leave(struct hold_wait *w);
/* So much is kept; it was sent at `sent_ns`, when this process was known to be the writer. */
void hold_confirm(struct hold *h, uint64_t kept, uint64_t sent_ns);
