/* rlm/candidate.h: the candidates of a turn (candidates.c), which end with the run (run_end.c). */
#pragma once

#include "rlm/run.h"

/* The program has it until it has chosen, which may be after the end of the run. */
struct rlm_choice {
    struct rlm_run *run; /* NULL: it has ended */
    char name[SELECT_NAME_SIZE];
    struct rlm_candidate all[RLM_CANDIDATES_MAX];
};

struct candidates {
    struct rlm_run *items[RLM_CANDIDATES_MAX];
    size_t count, over;
    bool forked;
    struct timer *step;
    struct error refused; /* why the session could not be forked */
    struct lm_call *call; /* of the selector */
    struct rlm_choice *choice;
    struct recorded_call *recorded;
    void (*kept)(struct rlm_run *r); /* goes on with the turn of the one that was kept */
};

static inline bool candidate_is_usable(const struct rlm_run *c)
{
    return c->over && c->result.error.code == ERROR_NONE;
}

static inline bool candidate_has_submitted(const struct rlm_run *c)
{
    return candidate_is_usable(c) && c->result.answer;
}
