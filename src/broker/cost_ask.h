/* broker/cost_ask.h: spending that needs an approval (the setting "ask-cost").
 *
 * A call of a model that would bring what its tree has spent above the budget's gate waits before
 * it starts. One question is asked at a time, for the call that came first; the other calls above
 * the gate wait for the same decision. An approval raises the gate by the amount of the setting, as
 * often as the call needs; a denial keeps it, so that such calls are refused.
 *
 * A call is recorded before it waits, and the question with it (approval.h). A resumed run takes
 * the gate from what was approved, and goes on with a question that was not decided, whichever of
 * its calls comes first.
 */
#pragma once

#include <stdbool.h>

#include "broker/budget.h"

struct store;

/* Whether the call has to wait: it is within the limits, and above the gate. */
bool cost_ask_is_due(const struct budget *b, const struct budget_call *call);
/* Begins to wait; the members from `call` to `arg` are set, and `record` is the call's if there is
 * a record. `go` is called later, from the loop: the call then reserves its costs as any other,
 * which fails after a denial. ERROR_BUDGET_COST: nothing could answer. */
int cost_ask_begin(struct cost_wait *w, struct budget *b, struct error *err);
/* It is cancelled. It may not wait. */
void cost_ask_leave(struct cost_wait *w);
/* Takes over what the record has about the root of a run that is resumed. */
int cost_ask_resume(struct budget *b, struct store *store, const char *root, struct error *err);
