/* rlm/run.h: what the files of this floor share: a run, and the tree that it is part of.
 *
 * The root and all below it share one `tree`: the options, the budget, the models by depth. A run
 * knows its parent only to say so in the record; its broker asks the tree for children (child.c),
 * and ending a run ends its broker, which ends its children, and so on down.
 */
#ifndef DROSTE_RLM_RUN_H
#define DROSTE_RLM_RUN_H

#include <sys/queue.h>

#include "broker/broker.h"
#include "rlm/rlm.h"

TAILQ_HEAD(child_list, child);

struct tree {
    struct loop *loop;
    struct rlm_options o; /* of the root; the texts are copies */
    char *instructions, *setup;
    struct budget budget;
    struct rlm_run *root;
    struct child_list children; /* all that were not buried yet, the oldest first */
    struct timer *later;        /* begins children and buries them */
};

/* Where a run stands in the tree, and what it is for. */
struct run_place {
    struct rlm_run *parent; /* NULL: the root */
    int64_t parent_cell;
    unsigned depth, iterations;
    const char *question;
    const struct context *context; /* NULL: none */
    const char *model;             /* as lm_request has it; NULL: the one of its depth */
};

struct message {
    const char *role;
    char *text;
    size_t len;
};

struct rlm_run {
    struct tree *tree;
    struct run_place place; /* its texts are the run's */
    char *question, *model;
    struct lm *lm; /* writes the code */
    struct account account;
    bool reserved; /* the first call of a child, when it was asked for */
    rlm_done_fn *done;
    void *done_arg;

    struct session *session;
    struct broker *broker;
    struct json_object *variable; /* what `context` became */
    unsigned restarts;

    struct message *messages;
    size_t message_count, message_cap;
    size_t recorded; /* messages that are in the record already */

    unsigned turn;
    struct lm_call *call;
    int64_t call_record;
    struct budget_hold hold;
    bool last; /* the model is being asked for an answer without code */

    struct buf reply; /* the reply whose blocks are being run */
    size_t at;        /* behind the last block that began */
    unsigned block;
    int64_t cell_record;
    struct buf feedback;

    struct timer *deadline, *later;
    uint64_t start_ns;
    bool finished;
    struct rlm_result result;
};

/* run.c: a run begins, and ends. What fails is told to the record and by the return, not by `done`;
 * the call that was reserved for a child is the run's in either case. */
int run_start(struct tree *tree, const struct run_place *place, rlm_done_fn *done, void *arg,
    struct rlm_run **out, struct error *err);
void run_end(struct rlm_run *run, enum rlm_status status, const struct error *why);
/* Of one that has ended; not from within its callbacks. */
void run_free(struct rlm_run *run);
/* The model that answers calls of this depth. */
struct lm *tree_lm(const struct tree *tree, unsigned depth);

/* child.c: the runs below the root. */
extern const struct broker_children run_children;
void tree_look(void *tree); /* the timer's: begins what has room, buries what is over */
void tree_bury(struct tree *tree, bool all);

/* run_record.c: what the record is told of a run. All of it is nothing without a record. */
int run_record_begin(struct rlm_run *r, struct error *err);
int run_record_isolation(struct rlm_run *r, struct error *err);
void run_record_end(struct rlm_run *r); /* a failure becomes the result's error */
int run_record_turn(struct rlm_run *r, struct error *err);
int run_record_call(struct rlm_run *r, struct error *err);
int run_record_call_end(struct rlm_run *r, const struct lm_reply *reply, struct error *err);
int run_record_cell(struct rlm_run *r, const char *code, size_t len, struct error *err);
int run_record_cell_end(struct rlm_run *r, const struct cell_result *c, struct error *err);
/* The cell under way dies with the run; `by` is what ended both. */
void run_record_cell_lost(struct rlm_run *r, const char *by);

#endif
