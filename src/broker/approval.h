/* broker/approval.h: approvals of calls (droste/approval.h): of tools, and of models that cost more
 * than may be spent (cost_ask.h).
 *
 * A call that asks is recorded as open, with the question, and waits: until the program or the
 * webhook (approval_hook.h) answers, until another process has decided in the record, or until the
 * deadline. Its budget and sessions are held meanwhile. In a resumed run the call finds what the
 * record says: a decision, or how long it may still wait. An approval is good for one execution:
 * where a process died while an approved call was executed, the resumed run asks again, and says
 * so.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "droste/approval.h"

struct approval;
struct ask;
struct broker;
struct session;
struct store;

/* A call that asks. */
struct approval_call {
    struct broker *broker;
    struct session *session;
    const char *tool; /* its name, or COST_TOOL */
    int64_t record;   /* 0: it is in no record */
};

/* The end of the wait. `why` of a call that was denied: for the code. */
typedef void approval_fn(void *arg, bool approved, const char *why);

/* Whether a name of the setting "ask" (TOOL, MODULE.*, *) means this tool. */
bool approval_name_covers(const char *name, const char *tool);
/* Whether the call of a tool asks. */
bool approval_is_due(const struct ask *ask);
/* Whether this recorded call asked, and has not begun. */
bool approval_is_recorded(struct store *store, int64_t call);
/* Asks for a call that is recorded, if there is a record; `fn` is called once, also before this
 * returns, or never if this fails or the approval is cancelled. *out is NULL after `fn`. */
int approval_ask(const struct approval_call *call, const char *json, size_t len, approval_fn *fn,
    void *arg, struct approval **out, struct error *err);
/* The time of the session's cell, its run and the runs above stands still while it waits. */
void approval_hold(struct broker *b, struct session *s, bool on);
/* Whether a webhook is told of them, which can decide without a record, too. */
bool approval_has_hook(const struct broker *b);
/* The call has ended. */
void approval_cancel(struct approval *a);

/* For the program, which has it from approval_rules.show: as droste_approval_answer and
 * droste_approval_leave. */
int approval_answer(
    struct approval *a, bool approve, const char *by, const char *reason, struct error *err);
void approval_leave(struct approval *a);
