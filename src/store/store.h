/* store/store.h: the record of runs, in one SQLite file.
 *
 * A run has turns; a turn has model calls and cells; calls made by a cell refer to it. Each
 * `_begin` and `_end` is one transaction, committed on return: if the process is killed, the record
 * contains exactly the steps whose functions had returned. (WAL with synchronous=NORMAL: a step
 * always survives the death of the process. A power cut may lose the last few steps, but never one
 * in the middle.) Several processes may share the file. A store belongs to one thread and must not
 * be used after a fork. A write waits up to ten seconds for other processes.
 *
 * What can be large (prompts, replies, code, outputs) is a `store_value`: any bytes, stored once by
 * SHA-256, compressed if that helps. Short texts (status, model, error) are C strings. There is no
 * field for an API key, and nothing is filtered out of the values.
 *
 * Errors: ERROR_STORE if the file cannot be read or written (the text names it and the remedy),
 * ERROR_ARGUMENT if a step is inconsistent (an unknown run, turn or cell, an end without its
 * beginning), ERROR_NOT_FOUND for an unknown run, ERROR_MEMORY.
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

/* Bytes. A NULL `data` means no value, unlike an empty one. Values read back are followed by a
 * NUL that `len` does not count. */
struct store_value {
    const void *data;
    size_t len;
    const char *hash; /* of a value that a lazy reader left in the file; `data` is NULL */
};

/* Whether the loop itself made the call. */
static inline bool store_is_loop_call(const char *kind)
{
    return strcmp(kind, "root") == 0 || strcmp(kind, "summary") == 0;
}

static inline struct store_value store_text(const char *text)
{
    return (struct store_value){ text, text ? strlen(text) : 0 };
}

/* Opens the file; creates (0600) or upgrades it if necessary. NULL: runs.db in file_data_home(),
 * whose directories are created (0700). */
int store_open(const char *path, struct store **out, struct error *err);
/* NULL is fine. Runs without an end stay `running` while this process lives. */
void store_close(struct store *store);
const char *store_path(const struct store *store);

/* What is known of each step at its beginning, and at its end. A C string may be NULL where the
 * comment says so. The caller chooses statuses, except "running" and "interrupted". */

struct store_run_begin {
    const char *id;          /* a text_is_name(); NULL: generated */
    const char *parent;      /* the run that started this one; NULL: a root */
    int64_t parent_cell;     /* the cell that started it; 0: none */
    const char *previous;    /* the run of the previous question; NULL: none */
    int64_t depth;           /* 0 for a root */
    const char *model;       /* as from lm_name() */
    const char *environment; /* "local", "docker"… */
    const char *isolation;   /* NULL: not yet known, see store_run_note_isolation */
    const char *version;     /* of Droste */
    struct store_value question;
    struct store_value context; /* JSON: names, types and sizes, not the context itself */
    struct store_value limits;  /* JSON: the run's limits */
    struct store_value tools;   /* JSON: names and hashes of its tools */
    /* For resuming. Readers never load these two, only their lengths and hashes. */
    struct store_value settings;     /* JSON: the run's settings */
    struct store_value context_data; /* the context, if it cannot be read again */
    const char *batch, *task;        /* the caller's names; both or none */
};

struct store_run_end {
    const char *status;
    const char *error;         /* NULL: none */
    const char *code;          /* the error's name; NULL: none, or recorded by an older version */
    struct store_value answer; /* JSON */
    int64_t iterations;
    int64_t calls; /* these totals include child runs */
    int64_t input_tokens;
    int64_t output_tokens;
    double cost; /* US dollars; negative: unknown */
    double seconds;
};

struct store_call_begin {
    const char *run;
    int64_t turn;
    int64_t cell; /* the cell that made it; 0: the loop */
    int64_t depth;
    /* "root": the loop's; "summary": the loop's, to shorten its conversation; "sub": a cell's;
     * "plain": in place of a child run; "tool": of a tool on the host */
    const char *kind;
    const char *model; /* for a tool, its name */
    struct store_value request;
    const char *key; /* the provider's idempotency key; NULL: none */
};

struct store_call_end {
    const char *status;
    const char *error;  /* NULL: none */
    const char *finish; /* NULL: unknown */
    struct store_value reply;
    int64_t input_tokens;
    int64_t output_tokens;
    bool estimated; /* the provider did not report the tokens */
    double cost;    /* US dollars; negative: unknown */
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
    const char *killed; /* the limit that ended the sandbox; NULL: none */
    struct store_value standard_output;
    struct store_value standard_error;
    struct store_value submit;    /* JSON */
    struct store_value error;     /* JSON */
    struct store_value variables; /* JSON */
    int64_t calls;                /* model calls that it made */
    double seconds;
};

/* Writing. Ids of calls and cells come from one increasing sequence in the file and so order
 * them by their beginning. Turns count from 1. */

/* `id` receives the caller's id, or a generated one from UTC time and random digits, as in
 * "20261120-191512-4f3a9c". */
int store_run_begin(struct store *store, const struct store_run_begin *begin,
    char id[STORE_RUN_ID_SIZE], struct error *err);
int store_run_note_isolation(
    struct store *store, const char *run, const char *isolation, struct error *err);
int store_run_end(
    struct store *store, const char *run, const struct store_run_end *end, struct error *err);
/* Turns a run that has ended into an error; its answer stays. */
int store_run_fail(
    struct store *store, const char *run, const struct error *why, struct error *err);
/* Transfers an interrupted run to this process, as `running`. Refuses a run that has ended, or
 * whose owner may still live. */
int store_run_adopt(struct store *store, const char *run, struct error *err);

/* Releases a run of this process as `interrupted`, with its recorded steps. */
int store_run_release(struct store *store, const char *run, struct error *err);

int store_turn_begin(struct store *store, const char *run, int64_t turn, struct error *err);

int store_call_begin(
    struct store *store, const struct store_call_begin *begin, int64_t *call, struct error *err);
/* Repeats a call that began in a process that is gone, and did not end there. */
int store_call_repeat(struct store *store, int64_t call, struct error *err);
int store_call_end(
    struct store *store, int64_t call, const struct store_call_end *end, struct error *err);

int store_cell_begin(
    struct store *store, const struct store_cell_begin *begin, int64_t *cell, struct error *err);
int store_cell_end(
    struct store *store, int64_t cell, const struct store_cell_end *end, struct error *err);

/* Reading returns the same structs. A step without an end has the status "running", or
 * "interrupted" if its process is gone; the rest of its `end` is empty. Times are milliseconds
 * since 1970; ended_ms is 0 before the end. */

struct store_run {
    struct store_run_begin begin;
    struct store_run_end end;
    int64_t seq; /* increases with each run in the record */
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
    int64_t repeated; /* how often resuming processes have repeated it */
};

struct store_cell {
    int64_t id;
    struct store_cell_begin begin;
    struct store_cell_end end;
    int64_t started_ms;
    int64_t ended_ms;
};

/* Readers pass on one step at a time. Its memory is valid during the callback, which must not
 * call the store. A negative return stops the reader and is its result. */
typedef int store_run_fn(void *arg, const struct store_run *run, struct error *err);

struct store_visitor {
    store_run_fn *run; /* each may be NULL */
    int (*turn)(void *arg, const struct store_turn *turn, struct error *err);
    int (*call)(void *arg, const struct store_call *call, struct error *err);
    int (*cell)(void *arg, const struct store_cell *cell, struct error *err);
    store_run_fn *end; /* the run again, after all its steps */
    bool children;     /* include the run's descendants */
    bool lazy;         /* values have a length and a hash, but no data */
};

/* Visits a snapshot of one run in the order in which things began: the run, then each turn
 * followed by its calls and cells. With `children`, steps of child runs come in between. */
int store_run_visit(struct store *store, const char *run, const struct store_visitor *visitor,
    void *arg, struct error *err);

/* Reads a value from a callback, in pieces, up to its first `max` bytes; the only function that
 * a callback may call. Damage is reported at the end, unless the value was truncated. */
typedef int store_piece_fn(void *arg, const char *data, size_t len, struct error *err);
int store_value_read(struct store *store, const struct store_value *value, size_t max,
    store_piece_fn *fn, void *arg, struct error *err);
/* A store_piece_fn that appends to the struct buf `arg`. */
int store_append_piece(void *arg, const char *data, size_t len, struct error *err);

struct store_filter {
    const char *parent; /* only this run's children; NULL: roots */
    bool children;      /* roots and children; `parent` is ignored */
    const char *status; /* only runs with this status; NULL: any */
    const char *model;  /* only runs whose model's name contains this; NULL: any */
    const char *batch;  /* only runs of batches whose name contains this; NULL: any */
    const char *task;   /* only runs of this task; NULL: any */
    int64_t limit;      /* 0: all */
};

/* Lists runs, the newest first. */
int store_run_list(struct store *store, const struct store_filter *filter, store_run_fn *fn,
    void *arg, struct error *err);

/* The run whose id is `prefix`, or the only one that begins with it. ERROR_NOT_FOUND and
 * ERROR_ARGUMENT (several) name candidates. */
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

struct store_freed {
    int64_t runs;
    int64_t values;
    int64_t value_bytes; /* as stored */
    int64_t interrupted; /* runs whose process was gone, ended as interrupted */
    int64_t file_bytes;  /* by which the file shrank */
};

/* Removes the run and its descendants; the file keeps its size for reuse. */
int store_run_remove(
    struct store *store, const char *run, struct store_freed *freed, struct error *err);

struct store_keep {
    int64_t newest;   /* keeps this many roots, and */
    int64_t older_ms; /* those that began since then */
};

/* Ends runs whose process is gone as `interrupted`, with the totals of their steps; removes the
 * trees that are not kept (`keep` NULL: keeps all) and in which nothing is in progress; removes
 * unreferenced values; and compacts the file. *freed is filled in either case: compacting may
 * fail alone, because it needs exclusive access. */
int store_collect(struct store *store, const struct store_keep *keep, struct store_freed *freed,
    struct error *err);

#endif
