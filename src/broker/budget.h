/* broker/budget.h: limits and usage of a run and all its child runs.
 *
 * The whole tree shares one object. A call reserves before it starts and settles when it ends. A
 * refused reservation leaves the budget unchanged; nothing is counted twice or lost. The limit on
 * calls covers what guests cause: their own calls and the turns of child runs that they start. The
 * number of turns bounds the root. Tokens and money cover all calls.
 *
 * Usage is kept in total, per model, per depth and per run: an `account` belongs to a run, and its
 * usage also counts for the runs above it.
 *
 * The record of the tree has a limit, too, in bytes of values before compression and deduplication.
 * A step reserves space for its request, question or code before it starts, and returns the space
 * only if nothing was recorded. Its result (a reply) is always recorded, since it was paid for, and
 * reduces the space of later steps. A refused step is therefore refused again when the run is
 * resumed.
 *
 * A budget may be part of a larger one (`up`), that of a batch: reservations and usage count there
 * too, and it may refuse them as well.
 */
#pragma once

#include <stdint.h>
#include <sys/queue.h>

#include "base/error.h"
#include "lm/lm.h"

struct approval;
struct broker;
struct session;
struct timer;

enum {
    BUDGET_DEPTH_MAX = 16,   /* of the deepest run */
    BUDGET_MODELS_MAX = 256, /* models counted separately; guests may use any name */
    BUDGET_MODEL_NAME = 128, /* bytes kept of a model's name */
};

/* 0 or less means no limit, except for `calls`, where 0 allows none and negative values mean no
 * limit, and for `depth`. */
struct budget_limits {
    int64_t calls;
    int64_t all_calls; /* including the root */
    int64_t input_tokens;
    int64_t output_tokens;
    int64_t total_tokens;
    double seconds;
    double cost;        /* dollars */
    double ask_cost;    /* dollars until an approval is needed, and that each one adds */
    unsigned depth;     /* of the deepest run; 0: no child runs */
    unsigned children;  /* concurrently active runs per depth below the root */
    int64_t tool_calls; /* like `calls`, 0 allows none */
    int64_t record_bytes;
    int64_t result_bytes; /* of them, of rich results; 0: a quarter */
};

/* Usage of completed calls. */
struct spent {
    int64_t calls;
    int64_t attempts; /* requests sent to a provider */
    int64_t input_tokens;
    int64_t output_tokens;
    double cost;      /* dollars, of calls with a known price; */
    int64_t unpriced; /* number of calls without a known price */
    bool estimated;   /* a provider did not count tokens */
};

/* Returns dollars; negative if the price of a call is unknown. */
double spent_cost(const struct spent *spent);

/* Adds a completed call; reads only usage, cost and attempts. */
void spent_add(struct spent *spent, const struct lm_reply *reply);

struct account {
    struct account *up; /* NULL for the root */
    struct spent spent;
};

struct budget_model {
    char name[BUDGET_MODEL_NAME];
    struct spent spent;
};

/* What may be spent before an approval is needed (cost_ask.h). */
struct cost_gate {
    double limit, then; /* now, and when the open question is approved */
    bool denied;
    char why[600];
    int64_t question; /* the recorded call that has the open question; 0: none */
    TAILQ_HEAD(, cost_wait) waits;
    struct cost_wait *asker; /* for which it is asked; NULL: nothing is asked */
    struct approval *approval;
    struct timer *look;
    unsigned round;
};

struct budget {
    struct budget_limits limits;
    struct cost_gate gate;
    struct budget *up;             /* the larger budget; NULL: none */
    const char *name;              /* name of a larger budget in errors: "the batch" */
    struct error refused;          /* first refusal of a larger budget */
    void (*on_refused)(void *arg); /* called then; may be NULL, must not close anything */
    void *arg;
    uint64_t start_ns;
    unsigned time_holds; /* budget_hold_time */
    uint64_t time_held_since_ns, time_held_ns;
    int64_t guest_calls;                     /* reserved by guests, settled or not */
    int64_t tool_calls;                      /* host tool calls, completed or not */
    int64_t record_bytes;                    /* bytes recorded or reserved */
    int64_t result_bytes;                    /* of them, bytes of rich results */
    int64_t held_calls;                      /* active, including the root */
    int64_t held_tokens;                     /* estimated input tokens of open calls */
    double held_cost;                        /* and their minimum price */
    unsigned open;                           /* open calls, except the root's own */
    unsigned children[BUDGET_DEPTH_MAX + 1]; /* active runs by depth */
    struct spent spent;
    struct spent depths[BUDGET_DEPTH_MAX + 2]; /* a guest's call is one level deeper than its run */
    struct budget_model *models;               /* in order of first use */
    size_t model_count;
};

void budget_init(struct budget *b, const struct budget_limits *limits);
void budget_free(struct budget *b);

/* Reserves `calls` calls of guests and checks the time; ERROR_BUDGET_* has usage and limit. 0
 * calls: a call of the root itself. */
int budget_reserve(struct budget *b, int64_t calls, struct error *err);
/* Checks without reserving. */
int budget_check(struct budget *b, int64_t calls, struct error *err);
/* Releases reserved calls that were never made. */
void budget_unreserve(struct budget *b, int64_t calls);

/* A call that is about to start. */
struct budget_call {
    const char *model; /* name in the record */
    unsigned depth;
    size_t prompt_bytes;
    int64_t max_tokens;      /* tokens of the answer; 0: unknown */
    const struct lm *lm;     /* source of the price; NULL: unknown */
    const char *lm_model;    /* as in lm_request; may be NULL */
    struct account *account; /* may be NULL */
};

/* A call that waits until it may cost what it does. */
struct cost_wait {
    struct budget *budget; /* NULL: it does not wait */
    TAILQ_ENTRY(cost_wait) link;
    struct budget_call call;
    struct broker *broker;
    struct session *session;
    int64_t record;
    unsigned round; /* in which it was last looked at */
    void (*go)(void *arg);
    void *arg;
};

/* Reservation of an open call. */
struct budget_hold {
    int64_t tokens;
    double cost, up_cost; /* here and in the larger budget */
    size_t model;         /* index in `models` */
    unsigned depth;
    struct account *account;
    bool open;
};

/* Reserves the tokens and price of a reserved call's prompt until it settles. ERROR_BUDGET_*;
 * ERROR_CONFIG if money is limited but the price unknown; ERROR_MEMORY. */
int budget_hold(
    struct budget *b, const struct budget_call *call, struct budget_hold *hold, struct error *err);
/* What is spent or reserved, in dollars. */
double budget_used_cost(const struct budget *b);
/* Whether the limits allow a call that asks for its costs; *cost is its lowest price. */
bool budget_may_hold(const struct budget *b, const struct budget_call *call, double *cost);
/* Settles a completed or failed call; counts its usage, cost and attempts. */
void budget_settle(struct budget *b, struct budget_hold *hold, const struct lm_reply *reply);
/* Counts a call of an earlier process of a resumed tree; `reply` as for spent_add. Not reported
 * to a larger budget, whose owner counts earlier processes itself (budget_count). */
int budget_recall(struct budget *b, const char *model, unsigned depth, struct account *account,
    const struct lm_reply *reply, struct error *err);
/* Releases the reservation of a call that never started. */
void budget_release(struct budget *b, struct budget_hold *hold);

/* Reserves a tool call. */
int budget_reserve_tool(struct budget *b, struct error *err);

/* Reserves bytes in the record; ERROR_BUDGET_RECORD. */
int budget_reserve_record(struct budget *b, size_t bytes, struct error *err);
/* Reserves bytes for requests of code. Leaves a sixteenth of the record for the runs' own steps,
 * so that refused code can still submit what it has. */
int budget_reserve_request(struct budget *b, size_t bytes, struct error *err);
/* Reserves bytes for a form of a rich result; false if it does not fit. Rich results have a
 * quarter of the record, so that the run can continue when they are left out. */
bool budget_reserve_result(struct budget *b, size_t bytes);
/* Releases bytes that were not recorded. */
void budget_unreserve_record(struct budget *b, size_t bytes);
/* Counts recorded bytes without a check. */
void budget_count_record(struct budget *b, size_t bytes);

/* Returns the remaining seconds, at least 0; a large number without a limit. */
double budget_seconds_left(const struct budget *b);

/* The time does not pass while calls wait for approvals; calls may nest. */
void budget_hold_time(struct budget *b, bool on);
/* For how long that was so. */
uint64_t budget_held_ns(const struct budget *b);

/* Whether a larger budget has refused something. The run is then suspended, and its record must
 * not change. */
bool budget_is_refused_above(const struct budget *b);

/* Counts usage from before there was a larger budget. */
void budget_count(struct budget *b, const struct spent *spent);
