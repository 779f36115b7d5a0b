/* broker/broker.h: answers the calls of guests.
 *
 * A call of a guest has one or more prompts. Each becomes a model call (llm_query) or a child run
 * (rlm_query), subject to the budget and the record, and the answers return together, in order. If
 * no child run may start, a plain model call replaces it. A prompt that fails is an error of its
 * item; the budget refuses whole calls before anything is spent. A call that takes longer than
 * `answer_timeout` returns the available answers, and errors for the other prompts. A tool call has
 * one item.
 */
#ifndef DROSTE_BROKER_BROKER_H
#define DROSTE_BROKER_BROKER_H

#include "base/error.h"
#include "broker/budget.h"
#include "broker/shared_value.h"
#include "broker/replay/replay_log.h"
#include "broker/tools.h"
#include "lm/lm.h"
#include "session/session.h"
#include "store/store.h"

struct broker;
struct child; /* handle of the implementation of child runs */

/* A child run that a guest requests. Pointers are valid during `start`. */
struct broker_child {
    const char *prompt; /* UTF-8 */
    size_t len;
    struct shared_value *context; /* NULL: none */
    const char *model;            /* as in lm_request; NULL: the default of its depth */
    int64_t cell;                 /* id of the calling cell in the record; 0: none */
    const char *resume;           /* recorded run to continue; NULL: a new one */
    bool reserved;                /* one call is reserved; the child takes it over */
};

/* The end of a child run: its answer as JSON, an error, or both (the last output). */
typedef void broker_child_fn(void *arg, const char *json, size_t len, const struct error *error);

/* Runs child runs; implemented by the layer above. */
struct broker_children {
    /* Starts or continues a run. Calls `done` later, from the loop, unless it is cancelled
     * first; after either, the handle is invalid. */
    int (*start)(void *arg, const struct broker_child *child, broker_child_fn *done, void *done_arg,
        struct child **out, struct error *err);
    void (*cancel)(struct child *child, const struct error *why);
    /* The record has the end of this run; reports it without starting the run. */
    int (*pass)(void *arg, const struct recorded_run *run, struct error *err);
};

/* A model call of the guest's code: its start or its end. */
struct broker_told {
    uint64_t id; /* number within this broker, from 1 */
    const char *model;
    const char *text; /* the prompt, at the start */
    size_t len;
    const struct lm_reply *reply; /* NULL: the start */
};

struct broker_options {
    struct lm *lm;                          /* for model calls; NULL: all fail with `no_model` */
    const struct broker_children *children; /* NULL: no child runs */
    void *children_arg;
    const struct tools *tools; /* tools for guests; NULL: none */
    struct budget *budget;
    struct account *account; /* charged account; may be NULL */
    double call_timeout;     /* seconds per model call; 0: no limit */
    struct loop *loop;
    double answer_timeout;       /* seconds per guest call; 0: no limit */
    double tool_timeout;         /* seconds per tool call; 0: no limit */
    int64_t max_tokens;          /* tokens per answer; 0: the provider's default */
    unsigned depth;              /* depth of the calls made here */
    struct store *store;         /* NULL: no record */
    const char *run;             /* run id in the record; must outlive the broker */
    bool asks_nobody;            /* stop the run, as `diverged`, for unrecorded calls */
    struct replay_log *recorded; /* log of a resumed run; NULL: a new run */
    /* Called if a guest's call differs from the record, possibly within broker_call, so it must
     * not close the broker. NULL if nothing is recorded. */
    void (*diverged)(void *arg, const struct error *why);
    void (*changed)(void *arg); /* called after each call; may be NULL */
    void (*told)(
        void *arg, const struct broker_told *told); /* may be NULL; must not close anything */
    void *arg;
};

int broker_open(const struct broker_options *options, struct broker **out, struct error *err);
/* Cancels all calls; sessions get no answers. NULL is allowed. */
void broker_close(struct broker *b);

/* Cancels all calls of a session with this error. */
void broker_give_up(struct broker *b, struct session *s, const struct error *why);

/* Cancels the session's open calls, including child runs, when a cell has reached its deadline
 * with this message (may be NULL). The interrupt has already made the cell's main thread drop
 * its calls. */
void broker_deadline(struct broker *b, struct session *s, const char *message);

/* Stops recording; open calls stay open in the record. */
void broker_abandon(struct broker *b);

/* Sets the guest's position for the record; the previous cell is over. */
void broker_place(struct broker *b, int64_t turn, int64_t cell);

/* Returns the part of a reply that is recorded; it points into the reply. */
struct store_call_end broker_call_end(const struct lm_reply *reply);

/* The callbacks of a session whose `arg` is a broker. */
void broker_call(struct broker *b, struct session *s, const struct session_call *call);
void broker_drop(struct broker *b, struct session *s, uint64_t id);

#endif
