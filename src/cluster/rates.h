/* cluster/rates.h: what the nodes of a cluster may ask of a model in a minute, together.
 *
 * The window of a model (base/rate.h) is a value in the bucket droste-rates. Each change is
 * written upon the revision that was read, so the nodes together never take more than the limit.
 * Its seconds are those of the NATS server's clock, which a node knows from the time at which the
 * server has stored something: nodes' own clocks may be wrong, and only have to run evenly.
 */
#pragma once

#include "base/buf.h"
#include "base/rate.h"
#include "cluster/bus.h"

struct rates;

/* granted NULL: there is nothing for so long. */
typedef void rates_done_fn(
    void *arg, uint64_t ticket, const struct rate_slice *granted, int64_t wait_ms);

/* `holder` is this process, of at most RATE_HOLDER_SIZE - 1 letters and digits. */
int rates_open(struct bus *bus, const char *holder, struct rates **out, struct error *err);
/* Makes the bucket. */
void rates_make(struct rates *q, bus_done_fn *done, void *arg);
/* Calls no `done` of what is under way. NULL is fine. */
void rates_close(struct rates *q);

/* Takes a slice of the model's window, from ask->least to ask->most, after these changes of earlier
 * ones. `most` without requests: only the changes are made. */
void rates_take(struct rates *q, const char *model, uint64_t ticket, const struct rate_ask *ask,
    const struct rate_slice *changes, size_t count, rates_done_fn *done, void *arg);

/* ---- the value ---- */

/* Not trusted. False: it is no window. */
bool rates_read(const char *data, size_t len, struct rate_window *out);
void rates_write(const struct rate_window *w, struct buf *out);
