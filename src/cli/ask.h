/* cli/ask.h: a run from its beginning to its end, with its progress. */
#pragma once

#include <stdbool.h>

#include "droste.h"

/* Starts the request and waits; shows its progress on standard error. An error means that it did
 * not begin. Otherwise *out is the result. `event`, `arg` and `all_events` of the
 * request are set here. */
int cli_ask(droste *d, droste_request *request, bool show, droste_result **out, droste_error *err);
