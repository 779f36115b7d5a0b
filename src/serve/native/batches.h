/* serve/native/batches.h: batches of tasks over HTTP (docs/batch.md).
 *
 * The library's batch layer does the work (droste_batch_start); this part has its files, and a
 * place among sandboxes for each run. A batch is a directory of its account, DATA/batches/KEY/ID,
 * with tasks.jsonl, results.jsonl and batch.json: what its client asked for, and its last state.
 * The worker that runs a batch locks its results, so any other can tell a batch that runs from
 * one whose server died.
 */
#pragma once

#include "serve/access/admission.h"
#include "serve/native/runs.h"
#include "serve/http/request.h"

struct batch_place;

/* A batch that is active in this worker, or that is about to be. */
struct served_batch {
    struct server *server;
    struct account *owner;
    char id[SERVE_ID_SIZE];
    char *directory, *tasks, *results; /* paths */
    char *contexts;                    /* directory of the account's stored contexts */
    struct json_object *object;        /* batch.json */
    struct buf words;
    const char **settings; /* of all tasks; points into `words` */
    droste_batch_options options;
    droste_batch_host host;
    droste_running_batch *running;
    struct batch_place *places; /* runs that wait for a place or are active */
    unsigned ticks;
    struct served_batch *next;
};

/* The active one; NULL: this worker does not run it. */
struct served_batch *batch_active(struct server *s, const char *id);
/* Its members as `droste batch --json` prints them. */
void batch_put_state(struct buf *out, const droste_batch_state *state);

/* ---- for the server ---- */

void batches_sweep(struct server *s, uint64_t now_ns);
/* Suspends the runs of all, which can be resumed. */
void batches_close(struct server *s);

/* ---- batch_runs.c ---- */

/* Sets what the library asks of a host. */
void batch_set_host(struct served_batch *b);
/* Asks again for places that a limit of the key has refused. */
void batch_seek_places(struct served_batch *b, uint64_t now_ns);

/* ---- batch_results.c ---- */

/* Sends what has come to those who read the results of this batch. */
void batch_results_serve(struct server *s, const char *id);
void handle_batch_results(struct request *r);

/* ---- for batch_results.c ---- */

/* The directory of the request's batch, to be freed; NULL: there is none, and the request was
 * refused. */
char *batch_directory_of(struct request *r);

void handle_batch_create(struct request *r);
void handle_batch_list(struct request *r);
void handle_batch_get(struct request *r);
void handle_batch_cancel(struct request *r);
void handle_batch_resume(struct request *r);
void handle_batch_delete(struct request *r);
