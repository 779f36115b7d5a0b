/* cli/terminal/progress.h: a run as it goes, for a person. */
#pragma once

#include <stdio.h>

#include "droste.h"

struct progress;

/* Takes the notices and the ticks (droste_every) of `d` (NULL: none) until progress_close. */
struct progress *progress_open(FILE *out, droste *d);
/* A droste_event_fn of a run with `all_events`, whose arg is the progress. */
void progress_event(void *arg, const droste_event *event);
/* The closing line; `result` may be NULL. NULL progress is fine. */
void progress_close(struct progress *p, const droste_result *result);
