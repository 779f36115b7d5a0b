/* batch/state.h: the state of a batch, its counts and its stop. */
#pragma once

#include <sys/queue.h>

#include "api/models.h"
#include "api/settings.h"
#include "batch/grader.h"
#include "batch/results.h"
#include "batch/tasks.h"

TAILQ_HEAD(slot_list, slot);

struct batch {
    droste *d;
    const droste_batch_options *o;
    droste_batch_host host;   /* all zero: none */
    struct settings settings; /* of all tasks */
    droste_batch_fn *fn;      /* may be NULL */
    droste_batch_done_fn *ended;
    void *arg;
    struct grader named, *grader; /* NULL: only those of tasks */
    struct tasks *tasks;
    struct results *results;
    struct store *store;  /* NULL: no record */
    struct models models; /* from the settings; tasks may have others */
    struct budget budget;
    struct timer *work, *tick, *deadline;
    size_t next; /* the next task to start */
    unsigned ticks;
    struct slot_list slots;
    droste_batch_state state;
    uint64_t start_ns;
    struct error why;    /* stopped */
    struct error failed; /* the reason: what droste_batch returns */
};

/* Brings the sums of the state up to date. */
void batch_refresh(struct batch *b);
/* Reports an event with the state. */
void batch_tell(struct batch *b, const char *kind, const char *text, size_t len);
void batch_notice(struct batch *b, const char *text, size_t len);
/* Starts no more tasks and suspends runs soon, from the loop. `word` is the state's. */
void batch_stop(struct batch *b, const char *word, const struct error *why);
/* The same, after an error that stops everything. */
void batch_fail(struct batch *b, const struct error *why);
/* Counts the outcome of a task. */
void batch_count(struct batch *b, const struct outcome *outcome);
/* Called when a slot becomes free. */
void batch_look(struct batch *b);
