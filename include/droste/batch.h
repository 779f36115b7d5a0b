/* droste/batch.h: many tasks from a file, each a run. */
#ifndef DROSTE_BATCH_H
#define DROSTE_BATCH_H

#include <stddef.h>
#include <stdint.h>

#include "droste/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Many tasks from a file, each a run, whose results are appended to another file; docs/batch.md
 * describes both. Unused members are zero or NULL. */
typedef struct droste_batch_options {
    const char *tasks;     /* the file of tasks */
    const char *results;   /* the file of results; made where it is not there */
    unsigned concurrency;  /* runs at once; 0: 8 */
    const char *grader;    /* "exact", "contains", "numeric", "numeric:0.01", "numeric:1%",
                             "program:PATH"; NULL: what the tasks say */
    double grader_timeout; /* seconds of a program; 0: 60 */
    int again;             /* ask once more what has a result without an answer */
    /* of all tasks together, those with results of earlier lives of the batch included; 0: no
     * limit */
    int64_t max_calls;
    int64_t max_tokens;
    double max_cost; /* dollars */
    double timeout;  /* seconds of this life of the batch */
} droste_batch_options;

/* The number of tasks by outcome, and their usage. */
typedef struct droste_batch_state {
    size_t tasks;   /* in the file */
    size_t earlier; /* had their result before this life of the batch, and keep it */
    size_t running;
    size_t answered, exhausted, budget, timeout, cancelled,
        error;          /* have their results, by status */
    size_t resumed;     /* runs of an earlier life that this one went on with */
    size_t interrupted; /* were suspended when it stopped */
    size_t graded, passed;
    size_t ungraded; /* whose grader failed */
    double score;    /* of all graded together */
    int64_t calls, input_tokens, output_tokens;
    double cost; /* dollars; negative: the price of some call is not known */
    double seconds;
    const char
        *stopped; /* why no more tasks begin: "interrupt", "budget", "timeout", "error"; NULL:
                            they do */
    char why[DROSTE_ERROR_SIZE]; /* in words */
} droste_batch_state;

typedef struct droste_batch_event {
    const char *kind; /* "notice", "result" (a line of the results), "tick" (some time passed) */
    const char *text;
    size_t len;
    const droste_batch_state *state;
} droste_batch_event;
typedef void droste_batch_fn(void *arg, const droste_batch_event *event);

/* Runs a batch until every task has a result, or it stops. Then *end, which may be NULL, has its
 * state. An error return means that it could not begin or had to stop: invalid tasks (before
 * anything is paid), a results file in use by another batch, a full disk. Runs that are active
 * when it stops are suspended; the same call continues them. */
DROSTE_API int droste_batch(droste *d, const droste_batch_options *options, droste_batch_fn *fn,
    void *arg, droste_batch_state *end, droste_error *err);

/* ---- without waiting ---- */

struct droste_request;

/* The part of a program that starts the runs of a batch itself: a server, which has a place for
 * them first, or a queue. Unused members are NULL. Texts are valid until the batch has ended. */
typedef struct droste_batch_host {
    const char *const *settings; /* of all tasks, over those of the droste: a name, its value, …,
                                    NULL */
    const char *directory;       /* of contexts with relative paths; NULL: that of the tasks */
    const char *name;            /* of the file of tasks, for messages; NULL: its path */
    /* Looks at each task before the first begins: what of `request` the task has (question,
     * contexts, settings of its own). Negative: the batch is refused. */
    int (*check)(void *arg, const struct droste_request *request, droste_error *err);
    /* Has the run of a task started, now or later: with droste_start and this request, to which it
     * may add settings, id, account and an event function, or elsewhere. request->done is called
     * once with its result, and never from within; it may come by way of a function of the host.
     * The request is valid until then. Negative: the task fails. */
    int (*start)(void *arg, const struct droste_request *request, droste_error *err);
    /* The batch stops: suspends that run. 1: it had not begun, and `done` will not be called. */
    int (*stop)(void *arg, const struct droste_request *request);
    int is_elsewhere; /* not 0: the runs are on other machines and end with droste_batch_take, so
                         neither their models nor the record are opened here */
    void *arg;
} droste_batch_host;

/* A batch that was started without waiting. It is freed once its `done` was called. */
typedef struct droste_running_batch droste_running_batch;
/* Receives its end, in the loop's thread; `err` is NULL unless it had to stop. */
typedef void droste_batch_done_fn(
    void *arg, const droste_batch_state *end, const droste_error *err);

/* Starts a batch beside other runs and batches, as droste_batch. The options, which are not
 * copied, and the host (may be NULL) must be valid until its end, and droste_free must not come
 * before that. An error return means that it could not begin: invalid tasks, before anything is
 * paid. */
DROSTE_API int droste_batch_start(droste *d, const droste_batch_options *options,
    const droste_batch_host *host, droste_batch_fn *fn, droste_batch_done_fn *done, void *arg,
    droste_running_batch **out, droste_error *err);
/* The run of a task, which the host has taken, could not begin; not from within `start`. */
DROSTE_API void droste_batch_refuse(
    droste_running_batch *b, const struct droste_request *request, const droste_error *why);
/* The run of a task has ended on another machine, with what droste_record_json (GET /v1/runs/ID of
 * a server) says of it there. Not from within `start`. ERROR_ARGUMENT: the text says nothing of a
 * run, and the task goes on. */
DROSTE_API int droste_batch_take(droste_running_batch *b, const struct droste_request *request,
    const char *json, size_t len, droste_error *err);
/* Begins no more tasks and suspends its runs; `done` follows. `stopped` is the state's, and is
 * not copied: "interrupt", "budget", "error". */
DROSTE_API void droste_batch_stop(droste_running_batch *b, const char *stopped, const char *why);
/* Its present state, valid until its end. */
DROSTE_API const droste_batch_state *droste_batch_state_of(droste_running_batch *b);

#ifdef __cplusplus
}
#endif

#endif
