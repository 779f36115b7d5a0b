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

#ifdef __cplusplus
}
#endif

#endif
