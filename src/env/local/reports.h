/* env/local/reports.h: one socket on which all keepers with a pid namespace report how their
 * workers ended.
 *
 * A status pipe for each sandbox would cost the host a descriptor. Only keepers hold the socket; no
 * guest can reach it. End of file on the sandbox's standard error, which the keeper holds open,
 * means that there will be no report.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/loop.h"
#include "jail/zygote_wire.h"

struct reports;

/* A sandbox's keeper has reported. Called from the loop, or from reports_read. */
typedef void report_fn(void *sandbox, const struct zygote_status *status);

int reports_open(struct loop *loop, report_fn *fn, struct reports **out, struct error *err);
/* NULL is fine. */
void reports_close(struct reports *r);

/* In the child of a fork: closes what the loop does not watch. */
void reports_forked(struct reports *r);

/* Expects a report about this sandbox. *tag, never 0, identifies it in the clone request. */
int reports_expect(struct reports *r, void *sandbox, uint64_t *tag, struct error *err);
/* Ignores what may still come. 0 is fine. */
void reports_forget(struct reports *r, uint64_t tag);
/* A new descriptor of the keepers' end; -1 with errno. */
int reports_share(const struct reports *r);
/* Handles the reports that are there. */
void reports_read(struct reports *r);
