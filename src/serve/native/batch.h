/* serve/native/batch.h: one batch: what the files of batches share (batches.h). */
#pragma once

#include "serve/access/admission.h"
#include "serve/http/request.h"
#include "serve/native/runs.h"

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
/* ---- its files ---- */

/* The directory of the batches of an account; NULL: the request was refused. */
char *batch_root(struct request *r);
/* The directory of the request's batch, to be freed; NULL: there is none, and the request was
 * refused. */
char *batch_directory_of(struct request *r);
/* What batch.json says; NULL: it cannot be read. */
struct json_object *batch_read(const char *directory);
int batch_save(struct served_batch *b, struct error *err);
/* Whether a process runs it. */
bool batch_is_locked(const char *directory);

/* ---- batch_runs.c ---- */

/* Sets what the library asks of a host. */
void batch_set_host(struct served_batch *b);
/* Asks again for places that a limit of the key has refused. */
void batch_seek_places(struct served_batch *b, uint64_t now_ns);

/* ---- batch_results.c ---- */

/* Sends what has come to those who read the results of this batch. */
void batch_results_serve(struct server *s, const char *id);
void handle_batch_results(struct request *r);
