/* cli/approvals.h: calls that wait for an approval: listed, decided, and asked for. */
#pragma once

#include <stdbool.h>

#include "droste.h"

/* Prints those of a run with its descendants (NULL: of all); `record` may be NULL: none. */
int cli_approvals(droste_record *record, const char *run, bool json, droste_error *err);
/* Decides the one with this id, and says what follows. */
int cli_decide(
    droste_record *record, const char *id, bool approve, const char *reason, droste_error *err);

/* Says that a webhook was not told of a call; any other event is ignored. */
void cli_approval_event(const droste_event *e);

/* Runs that begin from now on ask on the terminal, or else say how to decide. */
void cli_approve(droste *d);
/* The same for sessions, which have no record: without a terminal, such calls are denied. */
void cli_approve_session(droste *d);
