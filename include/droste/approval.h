/* droste/approval.h: approvals of calls of tools (docs/approvals.md).
 *
 * A call of a tool that the setting "ask" names waits until it is approved or denied, here, by
 * another process through the record, or by its deadline. The time of its cell and run does not
 * pass meanwhile. Where there is a record, the question is part of it: it outlives the process, and
 * the resumed run goes on with what was decided.
 */
#ifndef DROSTE_APPROVAL_H
#define DROSTE_APPROVAL_H

#include <stddef.h>
#include <stdint.h>

#include "droste/base.h"
#include "droste/record.h"

#ifdef __cplusplus
extern "C" {
#endif

struct droste_session;

typedef struct droste_approval {
    int64_t id;       /* of the call in the record; 0: without a record */
    const char *run;  /* NULL: of a session without a run */
    const char *root; /* the run at the top of its tree */
    const char *tool;
    const char *arguments; /* a JSON object */
    size_t len;
    int64_t asked_ms, until_ms; /* 0: without a limit */
    int repeated;               /* it had begun before, in a process that died, and may be done */
    /* Of the record: */
    const char *account;  /* the client of a server that started the run; NULL: none */
    const char *decision; /* "approved" or "denied"; NULL: it waits */
    int64_t decided_ms;
    const char *decided_by, *decision_reason; /* NULL: none */
    int64_t begun_ms;                         /* the call has begun; 0: it has not */
    int ended;                                /* the call has ended */
    int interrupted;                          /* its run has no process: it has to be resumed */
    /* Of the program: the session that calls, if it is not a run */
    struct droste_session *session;
    int wants_result;   /* a function that the client of the run answers (client-tools) */
    const char *result; /* what it answered, JSON; NULL: nothing yet, or the record is not read */
    size_t result_len;
} droste_approval;

/* ---- in the program that runs the code ---- */

/* Of sessions and runs that begin afterwards: is told of each call that waits. The function, or the
 * program later, in the loop's thread, calls droste_approval_answer or droste_approval_leave once
 * for each; until then the approval is valid, also if the call has gone or another process has
 * decided. It must not wait. Without a record and without this function, such calls are denied.
 * NULL removes it. */
typedef void droste_ask_fn(void *arg, droste_approval *approval);
DROSTE_API void droste_on_approval(droste *d, droste_ask_fn *fn, void *arg);
/* Decides, and frees the approval in any case. `by` and `reason`, which the record keeps and the
 * code sees, may be NULL. ERROR_ARGUMENT: it was decided already, or the call has gone. */
DROSTE_API int droste_approval_answer(
    droste_approval *approval, int approve, const char *by, const char *reason, droste_error *err);
/* Leaves the decision to others, and frees the approval. Where nothing else can decide, without a
 * record and a webhook, the call is denied. */
DROSTE_API void droste_approval_leave(droste_approval *approval);

/* ---- through the record ---- */

/* Gets one of the record, valid during the call; a negative result ends the list. */
typedef int droste_approval_fn(void *arg, const droste_approval *approval, droste_error *err);
/* Those that wait, the oldest first: of a run and its descendants, and of an account; NULL: of
 * all. */
DROSTE_API int droste_record_approvals(droste_record *record, const char *run, const char *account,
    droste_approval_fn *fn, void *arg, droste_error *err);
/* One, by its id, decided or not. ERROR_NOT_FOUND: no such call has asked. */
DROSTE_API int droste_record_approval(
    droste_record *record, int64_t id, droste_approval_fn *fn, void *arg, droste_error *err);
/* One as a JSON object, in one piece, as `droste runs approvals --json` prints it. */
DROSTE_API int droste_approval_json(
    const droste_approval *approval, droste_piece_fn *fn, void *arg, droste_error *err);
/* Decides one. ERROR_NOT_FOUND: no such call has asked; ERROR_ARGUMENT: it was decided already, has
 * ended, or its time was up. */
DROSTE_API int droste_record_decide(droste_record *record, int64_t id, int approve, const char *by,
    const char *reason, droste_error *err);

/* Answers a call that waits for the result of the run's client: JSON. The same errors. A result is
 * kept once; droste_record_decide can only deny such a call. */
DROSTE_API int droste_record_answer(droste_record *record, int64_t id, const char *json, size_t len,
    const char *by, droste_error *err);

#ifdef __cplusplus
}
#endif

#endif
