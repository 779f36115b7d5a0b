/* droste/record.h: the record of runs, step by step. */
#ifndef DROSTE_RECORD_H
#define DROSTE_RECORD_H

#include <stddef.h>
#include <stdint.h>

#include "droste/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The file of the record, which need not exist; "none": recording is turned off. NULL with *err.
 * Valid until the next call. */
DROSTE_API const char *droste_record_path(droste *d, droste_error *err);

/* An open record (docs/record.md). Other processes may write to it at the same time. */
typedef struct droste_record droste_record;
/* Opens the record that the settings name. *out is NULL if there is none yet; it is not created.
 * ERROR_CONFIG if recording is turned off. */
DROSTE_API int droste_record_open(droste *d, droste_record **out, droste_error *err);
/* NULL is allowed. */
DROSTE_API void droste_record_close(droste_record *record);

enum { DROSTE_RUN_ID_SIZE = 65 }; /* with the terminating NUL */

/* Bytes. `data` and `hash` NULL mean no value, unlike an empty one. `data` is followed by a NUL
 * that `len` does not count. */
typedef struct droste_value {
    const void *data;
    size_t len;
    const char *hash; /* of a value that a lazy visitor left in the file: see droste_record_read */
} droste_value;

/* Steps. Texts may be NULL where a comment says so. Times are milliseconds since 1970. A step that
 * has not ended has the status "running", or "interrupted" if its process is gone; its `ended_ms`
 * is 0, and the members after `status` are empty. */

/* A file that a run has saved when it ended (docs/files.md). */
typedef struct droste_record_artifact {
    const char *name; /* in the sandbox */
    int64_t size;
    const char *sha256;
    droste_value value; /* always left in the file; no hash: contents not recorded */
} droste_record_artifact;

/* A request of the sandbox's to the network, or a tunnel (docs/network.md). */
typedef struct droste_record_request {
    const char *run;
    int64_t turn, cell; /* during which it began; 0: between cells */
    const char *method; /* "GET"…; "CONNECT" and "SOCKS": a tunnel */
    const char *host;   /* "": the request was malformed */
    int64_t port;
    const char *path;    /* its first 2,000 bytes; NULL: a tunnel */
    const char *address; /* that it was connected to; NULL: none, or it has not ended */
    int refused;
    const char *why;        /* it was refused, or failed; NULL: neither */
    int64_t status;         /* of HTTP; 0: none, or it has not ended */
    int64_t sent, received; /* bytes */
    int64_t started_ms;
    double seconds; /* negative: it has not ended */
} droste_record_request;

typedef struct droste_record_run {
    const char *id, *parent;         /* the run that started it; NULL: a root */
    int64_t parent_cell;             /* the cell that started it; 0: none */
    const char *previous;            /* the run of the previous question; NULL: none */
    const char *batch, *task;        /* both or none */
    int64_t depth;                   /* 0 for a root */
    const char *model, *environment; /* "openai/gpt-5", "local" */
    const char *isolation;           /* NULL: not yet known */
    const char *version;             /* of Droste */
    droste_value question;
    droste_value context;      /* JSON: names, types and sizes, not the context itself */
    droste_value limits;       /* JSON */
    droste_value tools;        /* JSON: names and hashes */
    droste_value settings;     /* JSON; always left in the file, as the next */
    droste_value context_data; /* the context, if it cannot be read again */
    int64_t seq;               /* increases with each run in the record */
    int64_t started_ms, ended_ms;
    const char *status;  /* a result's, "running" or "interrupted" */
    const char *error;   /* NULL: none */
    const char *code;    /* the error's name; NULL: none, or recorded by an older version */
    droste_value answer; /* JSON */
    int64_t iterations;
    int64_t calls, input_tokens, output_tokens; /* including child runs */
    double cost;                                /* US dollars; negative: unknown */
    double seconds;
    const char *parent_fork; /* like `fork` of a call; NULL: the cell itself started it */
    const droste_record_artifact *artifacts; /* only of a visit; by name */
    size_t artifact_count;
    const char *account;                   /* the client of a server that started it; NULL: none */
    const droste_record_request *requests; /* only of a visit; in the order in which they began */
    size_t request_count;
} droste_record_run;

typedef struct droste_record_turn {
    const char *run;
    int64_t turn; /* from 1 */
    int64_t started_ms;
    int64_t kept;        /* the candidate that was kept, from 1; 0: none, or none yet */
    const char *reason;  /* why; NULL: none was kept */
    const char *session; /* "kept"; "before": the candidate's died, and the run continued with the
                          * one from before the turn; "lost": both died. NULL: none was kept */
} droste_record_turn;

typedef struct droste_record_call {
    int64_t id;
    const char *run;
    int64_t turn, cell, depth; /* cell 0: a call of the loop */
    /* "root": the loop's; "summary": the loop's, to shorten its conversation;
     * "select": the loop's, to choose a candidate; "sub": a cell's;
     * "plain": in place of a child run; "tool": of a tool on the host */
    const char *kind;
    int from_loop;     /* its kind is "root", "summary" or "select" */
    const char *model; /* for a tool, its name */
    droste_value request;
    const char *key; /* the provider's idempotency key; NULL: none */
    int64_t started_ms, ended_ms;
    const char *status;
    const char *error, *finish; /* NULL: none, unknown */
    droste_value reply;
    int64_t input_tokens, output_tokens;
    int estimated; /* the provider did not report the tokens */
    double cost;   /* US dollars; negative: unknown */
    int64_t attempts;
    int64_t repeated; /* how often resuming processes have repeated it */
    double seconds;
    /* The fork of a fork_map that made it: "1:3" is item 3 of the cell's first fork_map, "1:3/1:0"
     * the first item of a fork_map in that fork. NULL: the cell itself */
    const char *fork;
    int64_t candidate; /* of the turn, from 1; 0: it has none */
    /* What a tool returned, encoded (docs/values.md), if `reply`, its JSON form, does not keep its
     * types. Always left in the file. */
    droste_value reply_values;
    /* An approval of a call that asks for one (droste/approval.h); 0 or NULL: none */
    int64_t asked_ms, until_ms; /* 0: without a limit */
    const char *decision;       /* "approved" or "denied"; NULL: not yet */
    int64_t decided_ms;
    const char *decided_by, *decision_reason;
    int64_t begun_ms; /* when the approved call began */
} droste_record_call;

/* One form of a rich result of a cell (docs/rich-results.md). The forms of a result follow each
 * other, and the results of a cell are in their order. */
typedef struct droste_record_media {
    int64_t result;     /* which result of the cell, from 0 */
    const char *type;   /* "image/png" */
    const char *form;   /* "text" (UTF-8), "json" or "bytes" */
    droste_value value; /* always left in the file: see droste_record_read */
} droste_record_media;

typedef struct droste_record_cell {
    int64_t id;
    const char *run;
    int64_t turn;
    droste_value code;
    int64_t started_ms, ended_ms;
    const char *status;
    const char *killed; /* the limit that ended the sandbox; NULL: none */
    droste_value standard_output, standard_error;
    droste_value submit, error, variables; /* JSON */
    int64_t calls;                         /* model calls that it made */
    double seconds;
    const droste_record_media *media; /* rich results, form by form */
    size_t media_count;
    int64_t candidate; /* of the turn, from 1; 0: it has none */
} droste_record_cell;

/* Receive one step, valid during the call, in which only droste_record_read may be called. A
 * negative result, with *err filled in, ends the visit with that error. */
typedef int droste_record_run_fn(void *arg, const droste_record_run *run, droste_error *err);
typedef struct droste_record_visitor {
    droste_record_run_fn *run; /* each of these functions may be NULL */
    int (*turn)(void *arg, const droste_record_turn *turn, droste_error *err);
    int (*call)(void *arg, const droste_record_call *call, droste_error *err);
    int (*cell)(void *arg, const droste_record_cell *cell, droste_error *err);
    droste_record_run_fn *end; /* the run again, after all its steps */
    int children;              /* include the run's descendants */
    int lazy;                  /* values have a length and a hash, but no data */
} droste_record_visitor;
/* Visits a snapshot of one run in the order in which its steps began. */
DROSTE_API int droste_record_visit(droste_record *record, const char *run,
    const droste_record_visitor *visitor, void *arg, droste_error *err);

/* Visits what has happened in a run after the event *at (0: its beginning), in the order in which
 * it happened: the beginning and the end of each step, and what became known in between (a run's
 * isolation, a turn's candidate). A step's beginning is shown as it was, with the status "running".
 * *at is set to the event's number before its function is called. The numbers increase, and a run
 * that is resumed continues them, so that a reader that keeps the last one loses nothing and sees
 * nothing twice. Ends after `most` events (0: all). A run whose process is gone has no end. */
DROSTE_API int droste_record_follow(droste_record *record, const char *run, int64_t *at,
    int64_t most, const droste_record_visitor *visitor, void *arg, droste_error *err);

typedef struct droste_record_filter {
    const char *parent;  /* only this run's children; NULL: roots */
    int children;        /* roots and children; `parent` is ignored */
    const char *status;  /* only runs with this status; NULL, as in the following: any */
    const char *model;   /* only runs whose model's name contains this */
    const char *batch;   /* only runs of batches whose name contains this */
    const char *task;    /* only runs of this task */
    int64_t limit;       /* 0: all */
    const char *account; /* only runs of this account; "": of any */
    int64_t before;      /* only runs with a lower `seq`; 0: all */
    int64_t since_ms;    /* only runs that began then or later */
} droste_record_filter;
/* Lists runs, the newest first. */
DROSTE_API int droste_record_list(droste_record *record, const droste_record_filter *filter,
    droste_record_run_fn *fn, void *arg, droste_error *err);
/* Finds the one run whose id is `prefix` or begins with it; for "last", the run that began last and
 * is not a child of another. ERROR_NOT_FOUND; ERROR_ARGUMENT: several. */
DROSTE_API int droste_record_find(
    droste_record *record, const char *prefix, char id[DROSTE_RUN_ID_SIZE], droste_error *err);

/* Returns 0 to continue. */
typedef int droste_piece_fn(void *arg, const char *data, size_t len);
/* Visits the one run with exactly this id, without its steps; ERROR_NOT_FOUND. */
DROSTE_API int droste_record_get(
    droste_record *record, const char *run, droste_record_run_fn *fn, void *arg, droste_error *err);

/* Reads a value of the current step in pieces, up to its first `max` bytes. */
DROSTE_API int droste_record_read(droste_record *record, const droste_value *value, size_t max,
    droste_piece_fn *fn, void *arg, droste_error *err);

enum droste_export_format {
    DROSTE_EXPORT_JSONL, /* each step as a line of JSON */
    DROSTE_EXPORT_HTML,  /* a page that needs nothing but itself */
    DROSTE_EXPORT_OTLP,  /* traces of OpenTelemetry: a line of OTLP/JSON for each run */
};
/* Runs, with their descendants, as other programs read them (docs/record.md). */
typedef struct droste_export {
    const char *const *runs; /* ids */
    size_t count;
    const char *batch; /* of a page: the results file of their batch, which has the grades; NULL */
    enum droste_export_format format;
} droste_export;
/* Writes them to a file, which is complete at the end, or unchanged; a device or FIFO is written to
 * as it is. */
DROSTE_API int droste_record_export(
    droste_record *record, const droste_export *runs, const char *path, droste_error *err);
/* Writes them to a descriptor, which stays open. On a terminal, control characters are escaped. */
DROSTE_API int droste_record_export_fd(
    droste_record *record, const droste_export *runs, int fd, droste_error *err);

/* A piece of JSON, for the function below. */
typedef struct droste_record_event {
    int64_t number;   /* as droste_record_follow has it */
    const char *type; /* "run", "turn", "call", "cell", "end" */
    const char *json; /* the line of an export */
    size_t len;
} droste_record_event;
typedef int droste_record_event_fn(void *arg, const droste_record_event *event, droste_error *err);
/* As droste_record_follow, with the lines of an export. Values are cut after `cut` bytes (0:
 * never); a line's "cut" names those, with their sizes. */
DROSTE_API int droste_record_events(droste_record *record, const char *run, int children,
    int64_t *at, int64_t most, size_t cut, droste_record_event_fn *fn, void *arg,
    droste_error *err);
/* The JSON object that describes a run of a visit or a list, as `droste runs ls --json` has it;
 * values are cut in the same way. Call it from their function; `fn` gets it in one piece. */
DROSTE_API int droste_record_json(droste_record *record, const droste_record_run *run, size_t cut,
    droste_piece_fn *fn, void *arg, droste_error *err);

typedef struct droste_record_freed {
    int64_t runs, values;
    int64_t value_bytes; /* as stored */
    int64_t interrupted; /* runs whose process was gone, ended as interrupted */
    int64_t file_bytes;  /* by which the file shrank */
} droste_record_freed;
/* Removes a run and its descendants. ERROR_ARGUMENT for a run that may be active. */
DROSTE_API int droste_record_remove(
    droste_record *record, const char *run, droste_record_freed *freed, droste_error *err);
typedef struct droste_record_keep {
    int64_t newest;   /* keeps this many roots, and */
    int64_t older_ms; /* those that began less than this many milliseconds ago */
} droste_record_keep;
/* Ends runs whose process is gone, removes the trees that are not kept (NULL: keeps all), and
 * compacts the file. *freed is filled in also after an error. */
DROSTE_API int droste_record_collect(droste_record *record, const droste_record_keep *keep,
    droste_record_freed *freed, droste_error *err);

/* Finds the next block of code in a model's reply, from *at, which moves behind it. False: there is
 * none. */
DROSTE_API int droste_reply_next_code(
    const char *text, size_t len, size_t *at, const char **code, size_t *code_len);

#ifdef __cplusplus
}
#endif

#endif
