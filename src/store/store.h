/* store/store.h: the record of runs, in one SQLite file.
 *
 * A run has turns; a turn has model calls and cells; calls made by a cell refer to it. Each
 * `_begin` and `_end` is one transaction, committed on return: if the process is killed, the record
 * contains exactly the steps whose functions had returned. (WAL with synchronous=NORMAL: a step
 * always survives the death of the process. A power cut may lose the last few steps, but never one
 * in the middle.) Several processes may share the file. A store belongs to one thread and must not
 * be used after a fork. A write waits up to ten seconds for other processes.
 *
 * What can be large (prompts, replies, code, outputs) is a `droste_value`: bytes, stored once by
 * SHA-256, compressed if that helps. Short texts (status, model, error) are C strings. There is no
 * field for an API key, and nothing is filtered out of the values.
 *
 * Errors: ERROR_STORE if the file cannot be read or written (the text names it and the remedy),
 * ERROR_ARGUMENT if a step is inconsistent (an unknown run, turn or cell, an end without its
 * beginning), ERROR_NOT_FOUND for an unknown run, ERROR_MEMORY.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/error.h"
#include "droste/approval.h"
#include "droste/record.h"

enum {
    STORE_RUN_ID_SIZE = DROSTE_RUN_ID_SIZE,
    STORE_VALUE_MAX = 512 << 20, /* bytes of one value */
};

struct store;

static inline droste_value store_text(const char *text)
{
    return (droste_value){ text, text ? strlen(text) : 0 };
}

/* Opens the file; creates (0600) or upgrades it if necessary. NULL: runs.db in file_data_home(),
 * whose directories are created (0700). */
int store_open(const char *path, struct store **out, struct error *err);
/* NULL is fine. Runs without an end stay `running` while this process lives. */
void store_close(struct store *store);

/* Writing. A `_begin` stores what is known of a step at its beginning, an `_end` its status and the
 * members after it (droste/record.h). The caller chooses statuses, except "running" and
 * "interrupted". Ids of calls and cells come from one increasing sequence in the file and so order
 * them by their beginning. Turns count from 1. */

/* `id` receives the caller's id, or a generated one from UTC time and random digits, as in
 * "20261120-191512-4f3a9c". */
int store_run_begin(struct store *store, const droste_record_run *begin, char id[STORE_RUN_ID_SIZE],
    struct error *err);
int store_run_note_isolation(
    struct store *store, const char *run, const char *isolation, struct error *err);
int store_run_end(
    struct store *store, const char *run, const droste_record_run *end, struct error *err);
/* Turns a run that has ended into an error; its answer stays. */
int store_run_fail(
    struct store *store, const char *run, const struct error *why, struct error *err);
/* Transfers an interrupted run to this process, as `running`. Refuses a run that has ended, or
 * whose owner may still live. */
int store_run_adopt(struct store *store, const char *run, struct error *err);

/* Releases a run of this process as `interrupted`, with its recorded steps. */
int store_run_release(struct store *store, const char *run, struct error *err);

/* Adds a file that a run has saved at its end; its value may be none. */
int store_artifact_add(struct store *store, const char *run, const droste_record_artifact *artifact,
    struct error *err);

/* A request to the network: refused at once (`refused`, with its status), or begun. */
int store_request_begin(
    struct store *store, const droste_record_request *begin, int64_t *request, struct error *err);
int store_request_end(
    struct store *store, int64_t request, const droste_record_request *end, struct error *err);

int store_turn_begin(struct store *store, const char *run, int64_t turn, struct error *err);

/* Sets which candidate of the turn is kept, once. */
int store_turn_keep(struct store *store, const droste_record_turn *turn, struct error *err);
int store_call_begin(
    struct store *store, const droste_record_call *begin, int64_t *call, struct error *err);
/* Repeats a call that began in a process that is gone, and did not end there. */
int store_call_repeat(struct store *store, int64_t call, struct error *err);
int store_call_end(
    struct store *store, int64_t call, const droste_record_call *end, struct error *err);

/* Approvals of calls (droste/approval.h). */

/* The name of questions about costs, in place of a tool's. */
#define COST_TOOL "ask-cost"
/* The module of functions that the client of a run answers (broker/tool_client.h). */
#define CLIENT_TOOLS "functions"

/* Asks for an approval of an open call, until then (0: without a limit); what was decided before is
 * forgotten. `question` of a model's call: JSON about its costs; NULL: a tool's call. */
int store_call_ask(
    struct store *store, int64_t call, const char *question, int64_t until_ms, struct error *err);
/* Decides one that waits. ERROR_NOT_FOUND: no such call has asked. ERROR_ARGUMENT: it was decided,
 * has ended, or its time is up; `late`: the decision is that of the deadline. */
int store_call_decide(struct store *store, int64_t call, bool approve, const char *by,
    const char *reason, bool late, struct error *err);
/* Keeps the result, JSON, of a call that waits for one (wants_result). The call ends when its
 * process has it. The same errors. */
int store_call_result(
    struct store *store, int64_t call, droste_value result, const char *by, struct error *err);
/* The approved call begins, once. */
int store_call_go(struct store *store, int64_t call, struct error *err);
typedef int store_approval_fn(void *arg, const droste_approval *approval, struct error *err);
/* The approval of one call, decided or not; ERROR_NOT_FOUND: none was asked for. */
int store_approval_read(
    struct store *store, int64_t call, store_approval_fn *fn, void *arg, struct error *err);
/* Those that wait, the oldest first: of a run and its descendants, of an account; NULL: of all. */
int store_approvals(struct store *store, const char *run, const char *account,
    store_approval_fn *fn, void *arg, struct error *err);
/* All questions about costs of a root's tree, decided or not, the oldest first. */
int store_cost_questions(
    struct store *store, const char *root, store_approval_fn *fn, void *arg, struct error *err);
/* Changes when another connection, such as that of another process, has written to the file. */
int store_version(struct store *store, int64_t *version, struct error *err);

int store_cell_begin(
    struct store *store, const droste_record_cell *begin, int64_t *cell, struct error *err);
int store_cell_end(
    struct store *store, int64_t cell, const droste_record_cell *end, struct error *err);

/* Readers pass on one step at a time. Its memory is valid during the callback, which must not
 * call the store. A negative return stops the reader and is its result. */
typedef int store_run_fn(void *arg, const droste_record_run *run, struct error *err);

struct store_visitor {
    store_run_fn *run; /* each may be NULL */
    int (*turn)(void *arg, const droste_record_turn *turn, struct error *err);
    int (*call)(void *arg, const droste_record_call *call, struct error *err);
    int (*cell)(void *arg, const droste_record_cell *cell, struct error *err);
    store_run_fn *end; /* the run again, after all its steps */
    int children;      /* include the run's descendants */
    int lazy;          /* values have a length and a hash, but no data */
};

/* Visits a snapshot of one run in the order in which things began: the run, then each turn
 * followed by its calls and cells. With `children`, steps of child runs come in between. */
int store_run_visit(struct store *store, const char *run, const struct store_visitor *visitor,
    void *arg, struct error *err);

/* The one run with exactly this id; ERROR_NOT_FOUND. */
int store_run_get(
    struct store *store, const char *run, store_run_fn *fn, void *arg, struct error *err);

/* Visits up to `most` (0: all) events after *at, as droste_record_follow describes. */
int store_run_follow(struct store *store, const char *run, int64_t *at, int64_t most,
    const struct store_visitor *visitor, void *arg, struct error *err);

/* Reads a value from a callback, in pieces, up to its first `max` bytes; the only function that
 * a callback may call. Damage is reported at the end, unless the value was truncated. */
typedef int store_piece_fn(void *arg, const char *data, size_t len, struct error *err);
int store_value_read(struct store *store, const droste_value *value, size_t max, store_piece_fn *fn,
    void *arg, struct error *err);
/* A store_piece_fn that appends to the struct buf `arg`. */
int store_append_piece(void *arg, const char *data, size_t len, struct error *err);

/* Lists runs, the newest first. */
int store_run_list(struct store *store, const droste_record_filter *filter, store_run_fn *fn,
    void *arg, struct error *err);

/* The run whose id is `prefix`, or the only one that begins with it; for "last", the root run that
 * began last. ERROR_NOT_FOUND and ERROR_ARGUMENT (several) name candidates. */
int store_run_find(
    struct store *store, const char *prefix, char id[STORE_RUN_ID_SIZE], struct error *err);

/* The newest run of a batch's task: its id and status ("interrupted" included); an empty id if
 * there is none. */
struct store_found {
    char id[STORE_RUN_ID_SIZE];
    char status[32];
};
int store_task_find(struct store *store, const char *batch, const char *task,
    struct store_found *found, struct error *err);

/* Removing a run removes what only its tree refers to. What may be in progress is refused. */

/* Removes the run and its descendants; the file keeps its size for reuse. */
int store_run_remove(
    struct store *store, const char *run, droste_record_freed *freed, struct error *err);
/* The same for one that this process had begun and does not run any more: its end could not be
 * written, because the disk was full. */
int store_run_remove_left(
    struct store *store, const char *run, droste_record_freed *freed, struct error *err);

/* Ends runs whose process is gone as `interrupted`, with the totals of their steps; removes the
 * trees that are not kept (`keep` NULL: keeps all) and in which nothing is in progress; removes
 * unreferenced values; and compacts the file. *freed is filled in either case: compacting may
 * fail alone, because it needs exclusive access. */
int store_collect(struct store *store, const droste_record_keep *keep, droste_record_freed *freed,
    struct error *err);
