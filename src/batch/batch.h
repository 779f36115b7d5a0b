/* batch/batch.h: what the files of this layer share: a batch, and its tasks that are under way. */
#ifndef DROSTE_BATCH_BATCH_H
#define DROSTE_BATCH_BATCH_H

#include <sys/queue.h>

#include "api/api.h"
#include "batch/grader.h"
#include "batch/results.h"
#include "batch/tasks.h"

TAILQ_HEAD(slot_list, slot);

struct batch {
    droste *d;
    const droste_batch_options *o;
    droste_batch_fn *fn; /* may be NULL */
    void *arg;
    struct grader named, *grader; /* NULL: none but those of tasks */
    struct tasks *tasks;
    struct results *results;
    struct store *store;  /* NULL: no record */
    struct models models; /* of the settings; tasks may have others */
    struct budget budget;
    struct timer *work, *tick, *deadline;
    size_t next; /* the task that begins next */
    unsigned ticks;
    struct slot_list slots;
    droste_batch_state state;
    uint64_t start_ns;
    struct error why;    /* it stopped */
    struct error failed; /* it had to: what droste_batch returns */
    bool done;
};

/* batch.c */
void batch_notice(struct batch *b, const char *text, size_t len);
/* No more tasks begin, and runs are put aside: soon, from the loop. `word` is the state's. */
void batch_stop(struct batch *b, const char *word, const struct error *why);
/* The same because nothing can go on. */
void batch_fail(struct batch *b, const struct error *why);
/* Counts what became of a task. */
void batch_count(struct batch *b, const struct outcome *outcome);
/* A place is free. */
void batch_look(struct batch *b);

/* slot.c: a task under way: its run, its grade, its line. */
void slot_begin(struct batch *b, struct task_place *place);
/* Ends them all, without lines; runs end soon. */
void slots_stop(struct batch *b);

#endif
