/* serve/native/runs.h: runs of models over HTTP. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "droste.h"
#include "serve/sandbox/sandbox.h"

struct json_object;
struct request;
struct server;

/* ---- for protocols that answer with a run ---- */

enum { RUN_EVENTS_AT_ONCE = 64 };

struct follower;

struct follower_kind {
    /* Tells of at most RUN_EVENTS_AT_ONCE events after f->at, and sets that. Negative: failed. */
    int (*read)(struct follower *f, droste_record *record);
    /* Nothing more will happen now; the run has this status. NULL: the record cannot be read. */
    void (*end)(struct follower *f, const char *status);
    /* Four times a second; may be NULL. */
    void (*tick)(struct follower *f, uint64_t now_ns);
};

/* A request that follows the run with its id. */
struct follower {
    struct request *r;
    const struct follower_kind *kind;
    int64_t at; /* the last event that it was told of */
    bool is_dirty;
    struct follower *next;
};

/* `r` and `kind` are set. The owner calls runs_unfollow before it frees it. */
void runs_follow(struct follower *f);
void runs_unfollow(struct follower *f);

struct runs_start {
    droste_request *request; /* without functions */
    const char *id;
    /* Called when the run is in the record, with its id as the request's. If it cannot begin, the
     * request is refused. */
    void (*begun)(struct request *r);
    /* So long after its last client has gone (runs_attend) the run is cancelled, or suspended if it
     * waits for the client; 0: never. */
    double attend_seconds;
};
/* A run that no request waits for; its account and its id are the request's. */
struct runs_begin {
    droste_request *request; /* without an event function; `done` gets the result */
    const char *id;
    struct account *owner;
    struct admission *place; /* reserved; the run takes it over */
    double held_cost;        /* see spending.h; the run gives it back, also if it cannot begin */
};
/* Negative: it cannot begin. */
int runs_begin(
    struct server *s, const struct runs_begin *begin, struct run **out, droste_error *err);
/* Ends it as `interrupted`. */
void runs_suspend(struct run *run);
/* In the place that admission has reserved for the request. */
void runs_start(struct request *r, const struct runs_start *start);
/* A client waits for the run, in whichever worker. */
void runs_attend(struct server *s, const char *id, uint64_t now_ns);
/* The record; NULL: there is none yet, or the request was refused. */
droste_record *runs_record(struct request *r);
/* False: this server records no runs, and the request was refused. */
bool runs_are_recorded(struct request *r);
/* Whether the request names a run of its account; false: it was refused. */
bool runs_find(struct request *r);
/* Whether this worker runs it. */
bool runs_have(struct server *s, const char *id);
/* False: this worker does not run it. */
bool runs_cancel(struct server *s, const char *id);
/* Appends to the buf `arg`. */
int runs_add_piece(void *arg, const char *data, size_t len);
/* A number of a client; -1: it is none. */
int64_t run_parse_number(const char *text);
/* Appends the setting for the client's trace, if it names one. */
void runs_put_trace(struct request *r, struct buf *words);
/* Whether the request's account may know of the run. */
bool runs_is_mine(const struct request *r, const droste_record_run *run);

/* For droste_record_get. */
struct runs_state {
    const struct request *r;
    bool is_mine, is_interrupted;
};
int runs_on_state(void *arg, const droste_record_run *run, droste_error *err);

/* ---- for the server ---- */

/* Tells followers what has happened in their runs; the loop calls it. */
void runs_serve(struct server *s);
/* Suspends the runs of revoked keys, and looks at runs of other processes. */
void runs_sweep(struct server *s);
/* Suspends all runs, which can be resumed, and closes the record. */
void runs_close(struct server *s);

void handle_run_create(struct request *r);
void handle_run_list(struct request *r);
void handle_run_get(struct request *r);
void handle_run_delete(struct request *r);
void handle_run_events(struct request *r);
void handle_run_cancel(struct request *r);
void handle_run_export(struct request *r);
void handle_run_resume(struct request *r);
