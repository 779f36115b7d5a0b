/* broker/broker.h: answers the calls of guests.
 *
 * A call of a guest is one or more prompts; each becomes a call of a model (llm_query) or a child
 * run (rlm_query), under the budget and in the record, and their answers go back together, in order.
 * Where no child run may begin, a plain call of a model stands in for it. A prompt that fails is that item's
 * error; what the budget refuses is refused for the whole call, before anything is spent. A call
 * that waits longer than `answer_timeout` gets what has come, and an error for each other prompt. A call of a tool is a call with one item.
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
struct child; /* a child run, as whoever runs children knows it */

/* A child run that a guest asks for. What it points to is valid during `start`. */
struct broker_child {
    const char *prompt; /* UTF-8 */
    size_t len;
    struct shared_value *context; /* NULL: none */
    const char *model;            /* as lm_request has it; NULL: the one of its depth */
    int64_t cell;                 /* that asked, in the record; 0: none */
    const char *resume;           /* the run of the record that goes on; NULL: a new one */
    bool reserved;                /* one call was, in the budget, which is the child's now */
};

/* The end of a child run: its answer as JSON, or an error, or both (its last words). */
typedef void broker_child_fn(void *arg, const char *json, size_t len, const struct error *error);

/* Who runs children; the layer above does. */
struct broker_children {
    /* Begins one, or goes on with it. `done` comes later, from the loop, unless it is cancelled
     * first; then its handle is gone. */
    int (*start)(void *arg, const struct broker_child *child, broker_child_fn *done, void *done_arg,
        struct child **out, struct error *err);
    void (*cancel)(struct child *child, const struct error *why);
    /* The record has the end of this one, which the guest is told; it is not begun. */
    int (*pass)(void *arg, const struct recorded_run *run, struct error *err);
};

/* A call of a model that code asked for: it begins, or has ended. */
struct broker_told {
    uint64_t id; /* which of this broker's, from 1 */
    const char *model;
    const char *text; /* the prompt, where it begins */
    size_t len;
    const struct lm_reply *reply; /* NULL: it begins */
};

struct broker_options {
    struct lm *lm; /* answers guests; NULL: every call is refused with `no_model` */
    const struct broker_children *children; /* NULL: none may begin */
    void *children_arg;
    const struct tools *tools; /* that guests may call; NULL: none */
    struct budget *budget;
    struct account *account; /* who pays; may be NULL */
    double call_timeout;     /* seconds of a model's call; 0: none */
    struct loop *loop;
    double answer_timeout; /* seconds that a guest's call waits for its answer; 0: no limit */
    double tool_timeout;   /* seconds of a tool's call; 0: no limit */
    int64_t max_tokens;    /* of one answer; 0: the provider's default */
    unsigned depth;        /* of the calls that are made here */
    struct store *store;   /* NULL: no record */
    const char *run;       /* its id there; must outlive the broker */
    bool asks_nobody;      /* what the record does not answer has the run stop: as `diverged` */
    struct replay_log *recorded; /* of a run that is resumed; NULL: it is a new one */
    /* A guest asks something else than the record says. Called from within broker_call too, so that
     * the broker must not be closed here. NULL where nothing is recorded. */
    void (*diverged)(void *arg, const struct error *why);
    void (*changed)(void *arg); /* after each call that ended; may be NULL */
    void (*told)(void *arg, const struct broker_told *told); /* may be NULL; may close nothing */
    void *arg;
};

int broker_open(const struct broker_options *options, struct broker **out, struct error *err);
/* Cancels what is under way; the guests' sessions get no answer. NULL is fine. */
void broker_close(struct broker *b);

/* Nobody is to wait any more: the session's calls are cancelled and get this error. */
void broker_give_up(struct broker *b, struct session *s, const struct error *why);

/* A cell has reached its deadline, with this message (may be NULL): nobody needs what the session still
 * waits for, whole runs below included. What the cell's own thread asked is gone already: the interrupt
 * made it give up. */
void broker_deadline(struct broker *b, struct session *s, const char *message);

/* From now on nothing is written to the record: what is under way stays so there. */
void broker_abandon(struct broker *b);

/* Where the guest is, for the record; the cell before this one is over. */
void broker_place(struct broker *b, int64_t turn, int64_t cell);

/* What the record keeps of a reply; it points into the reply. */
struct store_call_end broker_call_end(const struct lm_reply *reply);

/* The two events of a session whose `arg` is a broker. */
void broker_call(struct broker *b, struct session *s, const struct session_call *call);
void broker_drop(struct broker *b, struct session *s, uint64_t id);

#endif
