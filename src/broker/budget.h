/* broker/budget.h: what a run and all its children together may spend, and what they spent.
 *
 * One object for the whole tree. A call reserves before it is made and settles when it ends. What
 * does not fit is refused whole and leaves the budget as it was; nothing is counted twice or lost.
 * The limit on calls counts what guests cause: their own calls and the turns of the child runs that
 * they start; the root's turns are bounded by their number. Tokens and money count all calls.
 *
 * What was spent is kept as a whole, for each model, for each depth, and for each run: an `account`
 * is a run's, and what is added to it is added to those above it.
 *
 * What the tree puts into the record is limited too: bytes of values as they are given to the store,
 * before they are compressed or found there already. A step takes room for what it asks (a request, a
 * question, code) before it begins, and gives it back only if nothing of it came into the record; its
 * end (a reply) is recorded whatever it needs, as it was paid for, and leaves less for the next. So a
 * step that was refused is refused again when the run is resumed.
 *
 * A budget may be part of a larger one (`up`), a batch's: what it holds and spends counts there too,
 * and what does not fit there is refused as well.
 */
#ifndef DROSTE_BROKER_BUDGET_H
#define DROSTE_BROKER_BUDGET_H

#include <stdint.h>

#include "base/error.h"
#include "lm/lm.h"

enum {
    BUDGET_DEPTH_MAX = 16,   /* the deepest run's */
    BUDGET_MODELS_MAX = 256, /* that are told apart; a guest names what it likes */
    BUDGET_MODEL_NAME = 128, /* bytes of a model's name that are kept */
};

/* 0 or less: no limit, but for `calls`, where 0 allows none and less than 0 is no limit, and for
 * `depth`. */
struct budget_limits {
    int64_t calls;
    int64_t all_calls; /* the root's too */
    int64_t input_tokens;
    int64_t output_tokens;
    int64_t total_tokens;
    double seconds;
    double cost;        /* dollars */
    unsigned depth;     /* of the deepest run; 0: no child runs */
    unsigned children;  /* runs at work at once at each depth below the root's */
    int64_t tool_calls; /* as `calls`: 0 allows none */
    int64_t record_bytes;
};

/* What calls that ended have come to. */
struct spent {
    int64_t calls;
    int64_t attempts; /* requests that left for a provider */
    int64_t input_tokens;
    int64_t output_tokens;
    double cost;      /* dollars, of the calls whose price is known; */
    int64_t unpriced; /* and the number of the others */
    bool estimated;   /* some provider did not count the tokens */
};

/* Dollars; negative where the price of some call is not known. */
double spent_cost(const struct spent *spent);

/* Counts a call that ended; only its usage, cost and attempts are read. */
void spent_add(struct spent *spent, const struct lm_reply *reply);

struct account {
    struct account *up; /* NULL: the root's */
    struct spent spent;
};

struct budget_model {
    char name[BUDGET_MODEL_NAME];
    struct spent spent;
};

struct budget {
    struct budget_limits limits;
    struct budget *up;             /* that it is part of; NULL: of none */
    const char *name;              /* for errors of a larger one: "the batch" */
    struct error refused;          /* the first thing that did not fit into a larger one */
    void (*on_refused)(void *arg); /* told then; may be NULL, and may close nothing */
    void *arg;
    uint64_t start_ns;
    int64_t guest_calls;                     /* that were reserved by guests, settled or not */
    int64_t tool_calls;                      /* of the host's tools, ended or not */
    int64_t record_bytes;                    /* in the record, or about to be */
    int64_t held_calls;                      /* under way, the root's too */
    int64_t held_tokens;                     /* input tokens, estimated, of calls under way */
    double held_cost;                        /* and what they cost at least */
    unsigned open;                           /* calls under way, but for the root's own */
    unsigned children[BUDGET_DEPTH_MAX + 1]; /* runs at work, by their depth */
    struct spent spent;
    struct spent depths[BUDGET_DEPTH_MAX + 2]; /* a guest's call is one deeper than its run */
    struct budget_model *models;               /* in the order in which they were first asked */
    size_t model_count;
};

void budget_init(struct budget *b, const struct budget_limits *limits);
void budget_free(struct budget *b);

/* Room for `calls` more calls of guests and a time in which to make them; ERROR_BUDGET_* says what was
 * spent of what. 0 calls: one of the root's own. */
int budget_reserve(struct budget *b, int64_t calls, struct error *err);
/* Whether it would have room, which is not taken. */
int budget_check(struct budget *b, int64_t calls, struct error *err);
/* Gives back the room of calls that were never made. */
void budget_unreserve(struct budget *b, int64_t calls);

/* A call that is about to be made. */
struct budget_call {
    const char *model; /* as the record has it */
    unsigned depth;
    size_t prompt_bytes;
    int64_t max_tokens;      /* of the answer; 0: not known */
    const struct lm *lm;     /* which knows the price; NULL: nobody does */
    const char *lm_model;    /* as lm_request has it; may be NULL */
    struct account *account; /* may be NULL */
};

/* What a call under way holds. */
struct budget_hold {
    int64_t tokens;
    double cost, up_cost; /* here, and in the larger budget */
    size_t model;         /* its place in `models` */
    unsigned depth;
    struct account *account;
    bool open;
};

/* Each reserved call then holds the tokens and the price of its prompt, until it settles.
 * ERROR_BUDGET_*; ERROR_CONFIG where money is limited and nobody knows the price; ERROR_MEMORY. */
int budget_hold(
    struct budget *b, const struct budget_call *call, struct budget_hold *hold, struct error *err);
/* The call ended, well or not; its usage, cost and attempts count. */
void budget_settle(struct budget *b, struct budget_hold *hold, const struct lm_reply *reply);
/* A call that ended in an earlier life of the tree, and held nothing in this one; of the reply as
 * spent_add. A larger budget is not told: its owner knows of earlier lives before any of them goes
 * on (budget_count). */
int budget_recall(struct budget *b, const char *model, unsigned depth, struct account *account,
    const struct lm_reply *reply, struct error *err);
/* A hold that never became a call. */
void budget_release(struct budget *b, struct budget_hold *hold);

/* Room for one call of a tool, which takes it. */
int budget_reserve_tool(struct budget *b, struct error *err);

/* Room in the record for so many bytes more, which takes it; ERROR_BUDGET_RECORD. */
int budget_reserve_record(struct budget *b, size_t bytes, struct error *err);
/* The same for what code asks, which leaves a sixteenth of the record to the runs' own steps: code that
 * is refused can still submit what it has. */
int budget_reserve_request(struct budget *b, size_t bytes, struct error *err);
/* Gives it back: they did not come there. */
void budget_unreserve_record(struct budget *b, size_t bytes);
/* Bytes that are in the record whether there was room for them or not. */
void budget_count_record(struct budget *b, size_t bytes);

/* Seconds left, at least 0; a large number without a limit. */
double budget_seconds_left(const struct budget *b);

/* Whether a larger budget has refused something: then whoever asked in this one is to be put aside, and
 * the record of what could not be made again stays as it is. */
bool budget_is_refused_above(const struct budget *b);

/* Counts in a larger budget what was spent before there was one. */
void budget_count(struct budget *b, const struct spent *spent);

#endif
