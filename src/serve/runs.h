/* serve/runs.h: runs of models over HTTP. */
#ifndef DROSTE_SERVE_RUNS_H
#define DROSTE_SERVE_RUNS_H

#include <stdbool.h>

#include "base/buf.h"

struct request;
struct server;

/* Tells followers what has happened in their runs; the loop calls it. */
void runs_serve(struct server *s);
/* Suspends the runs of revoked keys, and looks at runs of other processes. */
void runs_sweep(struct server *s);
/* Suspends all runs, which can be resumed, and closes the record. */
void runs_close(struct server *s);

/* ---- run_options.c ---- */

/* Appends the settings of the run that the request asks for, as sandbox_setting does: its options,
 * checked, and the limits of server and key. False: the request was refused. */
bool run_settings(struct request *r, struct buf *words);

void handle_run_create(struct request *r);
void handle_run_list(struct request *r);
void handle_run_get(struct request *r);
void handle_run_delete(struct request *r);
void handle_run_events(struct request *r);
void handle_run_cancel(struct request *r);
void handle_run_resume(struct request *r);

#endif
