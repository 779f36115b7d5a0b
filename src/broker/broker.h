/* broker/broker.h: answers the calls of guests.
 *
 * A call of a guest is one or more prompts; each becomes a call of a model, under the budget and
 * in the record, and their answers go back together, in order. A prompt that fails is that item's
 * error; what the budget refuses is refused for the whole call, before anything is spent. A call
 * that waits longer than `answer_timeout` gets what has come, and an error for each other prompt.
 */
#ifndef DROSTE_BROKER_BROKER_H
#define DROSTE_BROKER_BROKER_H

#include "base/error.h"
#include "broker/budget.h"
#include "broker/recorded.h"
#include "lm/lm.h"
#include "session/session.h"
#include "store/store.h"

struct broker;

struct broker_options {
    struct lm *lm; /* answers guests; NULL: every call is refused with `no_model` */
    struct budget *budget;
    double call_timeout; /* seconds of a model's call; 0: none */
    struct loop *loop;
    double answer_timeout;     /* seconds that a guest's call waits for its answer; 0: no limit */
    int64_t max_tokens;        /* of one answer; 0: the provider's default */
    unsigned depth;            /* of the calls that are made here */
    struct store *store;       /* NULL: no record */
    const char *run;           /* its id there; must outlive the broker */
    struct recorded *recorded; /* of a run that is resumed; NULL: it is a new one */
    /* A guest asks something else than the record says. Called from within broker_call too, so that
     * the broker must not be closed here. NULL where nothing is recorded. */
    void (*diverged)(void *arg, const struct error *why);
    void (*changed)(void *arg); /* after each call that ended; may be NULL */
    void *arg;
};

int broker_open(const struct broker_options *options, struct broker **out, struct error *err);
/* Cancels what is under way; the guests' sessions get no answer. NULL is fine. */
void broker_close(struct broker *b);

/* From now on nothing is written to the record: what is under way stays so there. */
void broker_abandon(struct broker *b);

/* Where the guest is, for the record; the cell before this one is over. */
void broker_place(struct broker *b, int64_t turn, int64_t cell);
/* Calls of guests that are under way. */
unsigned broker_pending(const struct broker *b);

/* What the record keeps of a reply; it points into the reply. */
struct store_call_end broker_call_end(const struct lm_reply *reply);

/* The two events of a session whose `arg` is a broker. */
void broker_call(struct broker *b, struct session *s, const struct session_call *call);
void broker_drop(struct broker *b, struct session *s, uint64_t id);

#endif
