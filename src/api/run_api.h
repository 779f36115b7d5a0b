/* api/run_api.h: starts runs: new ones, or those of the record that are continued. */
#pragma once

#include "base/error.h"
#include "droste.h"

struct run_link;

/* Starts a run. `link` is NULL outside of conversations. With a link and `out`, the conversation
 * keeps the run after its end. */
int api_start(droste *d, const droste_request *q, const struct run_link *link, droste_running **out,
    struct error *err);
/* The same, and waits for its end. */
int api_run(droste *d, droste_request *q, const struct run_link *link, droste_running **running,
    droste_result **out, struct error *err);
