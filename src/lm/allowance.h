/* lm/allowance.h: what calls of one model may use of its limits per minute (base/rate.h).
 *
 * Slices are taken from a window of this process, or from one that it shares with others (struct
 * lm_share). A call reserves a part of the slice when it leaves the queue. It sends its request
 * before the slice ends, or reserves again. What a request was found to have used is settled when
 * it has ended.
 */
#pragma once

#include "lm/call.h"

struct allowance {
    struct rate_amount limit;
    struct rate_window window;           /* without others */
    struct rate_slice left;              /* of the slice that may be used */
    uint64_t until_ns;                   /* by hold_clock_ns */
    struct rate_window changes;          /* that the others do not know yet */
    uint64_t ticket, asked_ns, again_ns; /* ticket 0: nothing is asked for */
};

/* Part of a slice. */
struct allowance_part {
    struct rate_slice slice;
    uint64_t until_ns; /* 0: none */
};

bool allowance_is_limited(const struct allowance *a);
bool allowance_is_idle(struct allowance *a);
/* Whether this can be reserved. */
bool allowance_has(const struct allowance *a, struct rate_amount need);
void allowance_reserve(struct allowance *a, struct rate_amount need, struct allowance_part *out);
/* It was not used. */
void allowance_return(struct allowance *a, struct allowance_part *part);
/* A request has used so many tokens. */
void allowance_settle(struct allowance *a, struct allowance_part *part, int64_t tokens);
/* The model, and those with whom it is shared. */
struct allowance_of {
    const struct lm_share *share; /* ask NULL: nobody */
    const char *host, *model;
    uint64_t *tickets; /* the last one */
};

/* Asks for a slice. Returns seconds until it is worth to look again; 0: now; INFINITY: when
 * allowance_grant was called. */
double allowance_ask(struct allowance *a, const struct allowance_of *of, struct rate_amount least,
    struct rate_amount most);
/* The answer; NULL: there is none for so long. */
void allowance_grant(struct allowance *a, const struct rate_slice *granted, int64_t wait_ms);
/* Tells the others what has changed, now and then. Returns seconds until it should be called
 * again; INFINITY: there is nothing to tell. */
double allowance_tell(struct allowance *a, const struct allowance_of *of);
