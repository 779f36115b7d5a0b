/* broker/budget.h: what a run and all its children together may spend.
 *
 * A call reserves before it is made and settles when it ends. What does not fit is refused whole
 * and leaves the budget as it was; nothing is counted twice or lost. The limit on calls counts what
 * guests ask for (llm_query and its kin); the loop's own turns are bounded by their number. Tokens
 * count all calls.
 */
#ifndef DROSTE_BROKER_BUDGET_H
#define DROSTE_BROKER_BUDGET_H

#include <stdint.h>

#include "base/error.h"
#include "lm/lm.h"

/* 0 or less: no limit, but for `calls`, where 0 allows none and less than 0 is no limit. */
struct budget_limits {
    int64_t calls;
    int64_t input_tokens;
    int64_t output_tokens;
    int64_t total_tokens;
    double seconds;
};

struct budget {
    struct budget_limits limits;
    uint64_t start_ns;
    int64_t guest_calls;  /* that were reserved by guests, settled or not */
    int64_t calls;        /* that ended, of guests and of the loop */
    int64_t input_tokens; /* of ended calls */
    int64_t output_tokens;
    int64_t held_tokens; /* input tokens, estimated, of calls under way */
    bool estimated;      /* some provider did not say */
};

/* What a call under way holds. */
struct budget_hold {
    int64_t tokens;
};

void budget_init(struct budget *b, const struct budget_limits *limits);

/* Room for `calls` more guest calls and a time in which to make them; ERROR_BUDGET says what was
 * spent of what. 0 calls: one of the loop's own. */
int budget_reserve(struct budget *b, int64_t calls, struct error *err);
/* Each reserved call then holds the tokens of its prompt, until it settles. */
int budget_hold(struct budget *b, size_t prompt_bytes, struct budget_hold *hold, struct error *err);
void budget_settle(struct budget *b, struct budget_hold *hold, const struct lm_usage *usage);
/* A hold that never became a call. */
void budget_release(struct budget *b, struct budget_hold *hold);

/* Seconds left, at least 0; a large number without a limit. */
double budget_seconds_left(const struct budget *b);

#endif
