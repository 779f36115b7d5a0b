/* store/store.h: the record of runs, in one SQLite file.
 *
 * A run has turns; a turn has model calls and cells; a cell's own calls name it. Each `_begin` and
 * `_end` is one transaction, committed when it returns: a process that is killed at any instant
 * leaves exactly the steps whose functions had returned. (WAL with synchronous=NORMAL: a step also
 * survives the death of the process, always; after a power cut the last few may be missing, but
 * never one in the middle.) Several processes may share the file; one store is for one thread and
 * is not to be used across a fork. A write waits up to ten seconds for another process's.
 *
 * What can be large (prompts, replies, code, outputs) is a `store_value`: any bytes, kept once for
 * each content by its SHA-256, compressed where that helps. The short texts (status, model, error)
 * are C strings. There is no place for an API key here, and nothing is taken out of what is given.
 *
 * Errors: ERROR_STORE when the file cannot be read or written (the text names it and the cure),
 * ERROR_ARGUMENT when a step makes no sense (a run, turn or cell that is not there, an end without
 * its beginning), ERROR_NOT_FOUND for a run that is not there, ERROR_MEMORY.
 */
#ifndef DROSTE_STORE_STORE_H
#define DROSTE_STORE_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/error.h"

enum {
    STORE_RUN_ID_SIZE = 65,      /* an id is at most 64 characters */
    STORE_VALUE_MAX = 512 << 20, /* bytes of one value */
};

struct store;

/* Bytes and their number. `data` NULL: there is none, which is not the same as an empty one. What
 * is read back is followed by a NUL that `len` does not count. */
struct store_value {
    const void *data;
    size_t len;
    const char *hash; /* of a value that a lazy reader left in the file; `data` is NULL then */
};

/* Whether it is a call of the loop's own. */
static inline bool store_is_loop_call(const char *kind)
{
    return strcmp(kind, "root") == 0 || strcmp(kind, "summary") == 0;
}

static inline struct store_value store_text(const char *text)
{
    return (struct store_value){ text, text ? strlen(text) : 0 };
}

/* Opens the file, and makes it (0600) or brings it up to date where needed. NULL: runs.db in
 * file_data_home(), whose directories are made (0700). */
int store_open(const char *path, struct store **out, struct error *err);
/* NULL is fine. Runs that were not ended stay `running` while this process lives. */
void store_close(struct store *store);
const char *store_path(const struct store *store);

/* What is known of each step when it begins, and what when it ends. A C string may be NULL where
 * it says so; a status is a word of the caller's, but for "running" and "interrupted", which are
 * the store's. */

struct store_run_begin {
    const char *id;          /* a text_is_name(); NULL: one is made */
    const char *parent;      /* the run that asked for this one; NULL: a root */
    int64_t parent_cell;     /* the cell in which it asked; 0: none */
    const char *previous;    /* the run that asked the question before; NULL: none */
    int64_t depth;           /* 0 for a root */
    const char *model;       /* as lm_name() gives it */
    const char *environment; /* "local", "docker"… */
    const char *isolation;   /* NULL: not known yet, see store_run_note_isolation */
    const char *version;     /* of Droste */
    struct store_value question;
    struct store_value context; /* JSON: names, types and sizes, not the context itself */
    struct store_value limits;  /* JSON: what the run may use */
    struct store_value tools;   /* JSON: names and hashes of its tools, not the tools themselves */
    /* For whoever resumes it. Readers never read these two: they have a length and a hash. */
    struct store_value settings;     /* JSON: how it was asked for */
    struct store_value context_data; /* the context, where it could not be had again */
    const char *batch, *task; /* what it was asked for, in the words of who asked; both or none */
};

struct store_run_end {
    const char *status;
    const char *error;         /* NULL: none */
    const char *code;          /* the error's name; NULL: none, or an older Droste wrote it */
    struct store_value answer; /* JSON */
    int64_t iterations;
    int64_t calls; /* these totals include the run's children */
    int64_t input_tokens;
    int64_t output_tokens;
    double cost; /* US dollars; negative: not known */
    double seconds;
};

struct store_call_begin {
    const char *run;
    int64_t turn;
    int64_t cell; /* the cell that asked; 0: the loop itself */
    int64_t depth;
    const char *kind;  /* "root": a loop's own; "summary": as well, to shorten its conversation;
                          "sub": a cell's; "plain": in a child run's place; "tool": of a tool of the
                          host's */
    const char *model; /* of a tool its name */
    struct store_value request;
    const char *key; /* by which the provider would know the call again; NULL: none */
};

struct store_call_end {
    const char *status;
    const char *error;  /* NULL: none */
    const char *finish; /* NULL: not known */
    struct store_value reply;
    int64_t input_tokens;
    int64_t output_tokens;
    bool estimated; /* the provider did not give the tokens */
    double cost;    /* US dollars; negative: not known */
    int64_t attempts;
    double seconds;
};

struct store_cell_begin {
    const char *run;
    int64_t turn;
    struct store_value code;
};

struct store_cell_end {
    const char *status;
    const char *killed; /* the limit that ended the sandbox; NULL: none did */
    struct store_value standard_output;
    struct store_value standard_error;
    struct store_value submit;    /* JSON */
    struct store_value error;     /* JSON */
    struct store_value variables; /* JSON */
    int64_t calls;                /* model calls that it made */
    double seconds;
};

/* Writing. The ids of calls and cells come from one rising sequence of the file, so that their
 * order is the order in which they began. Turns count from 1. */

/* The id goes to `id`: the caller's, or UTC time and chance, as in "20261120-191512-4f3a9c". */
int store_run_begin(struct store *store, const struct store_run_begin *begin,
    char id[STORE_RUN_ID_SIZE], struct error *err);
int store_run_note_isolation(
    struct store *store, const char *run, const char *isolation, struct error *err);
int store_run_end(
    struct store *store, const char *run, const struct store_run_end *end, struct error *err);
/* A run that has ended is an error after all; its answer stays. */
int store_run_fail(
    struct store *store, const char *run, const struct error *why, struct error *err);
/* Makes an interrupted run this process's, `running` again, in order to go on with it. A run that
 * has ended, or whose owner may still live, is refused. */
int store_run_adopt(struct store *store, const char *run, struct error *err);

/* Gives a run that this process runs back, `interrupted`, with what is in the record of it. */
int store_run_release(struct store *store, const char *run, struct error *err);

int store_turn_begin(struct store *store, const char *run, int64_t turn, struct error *err);

int store_call_begin(
    struct store *store, const struct store_call_begin *begin, int64_t *call, struct error *err);
/* A call that began in a process which is gone, and did not end there, is made once more. */
int store_call_repeat(struct store *store, int64_t call, struct error *err);
int store_call_end(
    struct store *store, int64_t call, const struct store_call_end *end, struct error *err);

int store_cell_begin(
    struct store *store, const struct store_cell_begin *begin, int64_t *cell, struct error *err);
int store_cell_end(
    struct store *store, int64_t cell, const struct store_cell_end *end, struct error *err);

/* Reading. What was written comes back in the same structs. A step that has not ended has the
 * status "running", or "interrupted" if nobody is left to end it; the rest of its `end` is empty.
 * Times are milliseconds since 1970; ended_ms is 0 before the end. */

struct store_run {
    struct store_run_begin begin;
    struct store_run_end end;
    int64_t seq; /* rises with each run of the record */
    int64_t started_ms;
    int64_t ended_ms;
};

struct store_turn {
    const char *run;
    int64_t turn;
    int64_t started_ms;
};

struct store_call {
    int64_t id;
    struct store_call_begin begin;
    struct store_call_end end;
    int64_t started_ms;
    int64_t ended_ms;
    int64_t repeated; /* how often it was made again by processes that resumed the run */
};

struct store_cell {
    int64_t id;
    struct store_cell_begin begin;
    struct store_cell_end end;
    int64_t started_ms;
    int64_t ended_ms;
};

/* Readers hand out one step at a time; its memory is valid during the callback, which must not
 * call the store. A callback returns 0, or a negative error that stops the reader and is its
 * result. */
typedef int store_run_fn(void *arg, const struct store_run *run, struct error *err);

struct store_visitor {
    store_run_fn *run; /* NULL where nobody looks; so with the others */
    int (*turn)(void *arg, const struct store_turn *turn, struct error *err);
    int (*call)(void *arg, const struct store_call *call, struct error *err);
    int (*cell)(void *arg, const struct store_cell *cell, struct error *err);
    store_run_fn *end; /* the run once more, behind all of its steps */
    bool children;     /* the run's descendants too */
    bool lazy;         /* values have a length and a hash, and no data */
};

/* One run as it was at one instant, in the order in which things began: the run, then each turn
 * followed by its calls and cells. With `children`, what theirs did comes in between. */
int store_run_visit(struct store *store, const char *run, const struct store_visitor *visitor,
    void *arg, struct error *err);

/* A value from a callback, piece by piece, at most its first `max` bytes. The one function that a
 * callback may call. A value that is damaged is an error, at its end, unless it was cut. */
typedef int store_piece_fn(void *arg, const char *data, size_t len, struct error *err);
int store_value_read(struct store *store, const struct store_value *value, size_t max,
    store_piece_fn *fn, void *arg, struct error *err);
/* A function for it: the pieces go into the struct buf that `arg` is. */
int store_append_piece(void *arg, const char *data, size_t len, struct error *err);

struct store_filter {
    const char *parent; /* only this run's children; NULL: roots */
    bool children;      /* roots and children alike; `parent` is not looked at */
    const char *status; /* only runs of this status; NULL: any */
    const char *model;  /* only runs whose model's name has this in it; NULL: any */
    const char *batch;  /* only runs for tasks of batches whose name has this in it; NULL: any */
    const char *task;   /* only runs for this task; NULL: any */
    int64_t limit;      /* 0: all */
};

/* Runs, the newest first. */
int store_run_list(struct store *store, const struct store_filter *filter, store_run_fn *fn,
    void *arg, struct error *err);

/* The one run whose id is `prefix` or else begins with it. ERROR_NOT_FOUND and ERROR_ARGUMENT (more
 * than one) name what it could have been. */
int store_run_find(
    struct store *store, const char *prefix, char id[STORE_RUN_ID_SIZE], struct error *err);

/* The newest run of a task of a batch: its id and what became of it ("interrupted" too), or, where there
 * is none, an empty id. */
struct store_found {
    char id[STORE_RUN_ID_SIZE];
    char status[32];
};
int store_task_find(struct store *store, const char *batch, const char *task,
    struct store_found *found, struct error *err);

/* Removing. What a run's tree alone had goes with it; what may still be going on is refused. */

struct store_freed {
    int64_t runs;
    int64_t values;
    int64_t value_bytes; /* as they were kept */
    int64_t interrupted; /* runs whose process was gone, ended as such */
    int64_t file_bytes;  /* by which the file shrank */
};

/* The run and its descendants; the file keeps its size, for what comes next. */
int store_run_remove(
    struct store *store, const char *run, struct store_freed *freed, struct error *err);

struct store_keep {
    int64_t newest;   /* so many roots stay, and */
    int64_t older_ms; /* what began since then */
};

/* Ends the runs whose process is gone as `interrupted`, with the totals of their steps; removes the
 * trees that are not to be kept (`keep` NULL: all are) and in which nothing goes on; removes what no
 * row refers to; and makes the file as small as it can be. *freed is filled in either case: the
 * last part may fail alone, as it needs the file for itself. */
int store_collect(struct store *store, const struct store_keep *keep, struct store_freed *freed,
    struct error *err);

#endif
