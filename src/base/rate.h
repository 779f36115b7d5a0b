/* base/rate.h: limits per minute, out of which slices are taken, perhaps by several processes.
 *
 * A slice is an amount that its holder may use within RATE_LEASE_MS. It counts until a minute
 * after the end of that time, so in any minute no more than the limit is used, whether a holder
 * returns what it did not use, or dies. Slices of the same second are kept as one.
 *
 * The first that asks for more than is left is next: others get what is left besides that for as
 * long as it asks again. So a large request is not overtaken by small ones without end.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    RATE_LEASE_MS = 3000,
    RATE_MARGIN_MS = 1000, /* that requests may take from here to their server */
    RATE_NEXT_MS = 2500,   /* so long the next one is waited for when it asks no more */
    RATE_SLICES = 96,
    RATE_HOLDER_SIZE = 17,
};

/* In a limit, 0 is no limit. */
struct rate_amount {
    int64_t requests, tokens;
};

struct rate_slice {
    int64_t second; /* until which it is used */
    struct rate_amount amount;
};

struct rate_window {
    struct rate_slice slices[RATE_SLICES];
    size_t count;
    char next[RATE_HOLDER_SIZE];
    struct rate_amount wants; /* of the next */
    int64_t next_until_ms;
};

struct rate_ask {
    const char *holder;
    struct rate_amount limit, least, most; /* of `least`, what exceeds the limit is not needed */
};

/* True: *out may be used until `end_ms`, which is not before `now_ms`. False: it is too early. */
bool rate_take(struct rate_window *w, int64_t now_ms, int64_t end_ms, const struct rate_ask *ask,
    struct rate_slice *out);
/* Forgets what counts no more. */
void rate_drop_old(struct rate_window *w, int64_t now_ms);
/* Milliseconds until a slice ends that is in the way of this; 0: none is. */
int64_t rate_wait_ms(const struct rate_window *w, int64_t now_ms, const struct rate_ask *ask);
/* More or less of a slice was used than was taken. One that counts no more is ignored. */
void rate_change(struct rate_window *w, const struct rate_slice *by);
/* Adds to the slice of that second. */
void rate_add(struct rate_window *w, const struct rate_slice *slice);
