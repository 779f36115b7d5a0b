/* serve/native/batches.h: batches of tasks over HTTP (docs/batch.md).
 *
 * The library's batch layer does the work (droste_batch_start); this part has its files, and a
 * place among sandboxes for each run. A batch is a directory of its account, DATA/batches/KEY/ID,
 * with tasks.jsonl, results.jsonl and batch.json: what its client asked for, and its last state.
 * The worker that runs a batch locks its results, so any other can tell a batch that runs from
 * one whose server died.
 */
#pragma once

#include "serve/native/batch.h"

/* Its members as `droste batch --json` prints them. */
void batch_put_state(struct buf *out, const droste_batch_state *state);

/* ---- for the server ---- */

void batches_sweep(struct server *s, uint64_t now_ns);
/* Suspends the runs of all, which can be resumed. */
void batches_close(struct server *s);

void handle_batch_create(struct request *r);
void handle_batch_list(struct request *r);
void handle_batch_get(struct request *r);
void handle_batch_cancel(struct request *r);
void handle_batch_resume(struct request *r);
void handle_batch_delete(struct request *r);
