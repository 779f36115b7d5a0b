/* batch/state.c: see state.h. */
#include "batch/state.h"

#include <stddef.h>

#include "base/clock.h"
#include "base/loop.h"
#include "rlm/rlm.h"

/* ---- events ---- */

void batch_refresh(struct batch *b)
{
    const struct spent *spent = &b->budget.spent;
    b->state.calls = spent->calls;
    b->state.input_tokens = spent->input_tokens;
    b->state.output_tokens = spent->output_tokens;
    b->state.cost = spent_cost(spent);
    b->state.seconds = clock_seconds_since(b->start_ns);
}

void batch_tell(struct batch *b, const char *kind, const char *text, size_t len)
{
    droste_batch_event event = { kind, text, len, &b->state };
    batch_refresh(b);
    if (b->fn)
        b->fn(b->arg, &event);
}

void batch_notice(struct batch *b, const char *text, size_t len)
{
    batch_tell(b, "notice", text, len);
}

void batch_count(struct batch *b, const struct outcome *outcome)
{
    static const size_t counts[] = {
        [RLM_ANSWERED] = offsetof(droste_batch_state, answered),
        [RLM_EXHAUSTED] = offsetof(droste_batch_state, exhausted),
        [RLM_BUDGET] = offsetof(droste_batch_state, budget),
        [RLM_TIMEOUT] = offsetof(droste_batch_state, timeout),
        [RLM_CANCELLED] = offsetof(droste_batch_state, cancelled),
        [RLM_ERROR] = offsetof(droste_batch_state, error),
    };
    ++*(size_t *)(void *)((char *)&b->state + counts[outcome->status]);
    b->state.graded += outcome->grade.is_graded;
    b->state.passed += outcome->grade.is_graded && outcome->grade.passed;
    b->state.score += outcome->grade.is_graded ? outcome->grade.score : 0;
    b->state.ungraded += outcome->ungraded;
    batch_refresh(b);
}

/* ---- stopping ---- */

void batch_look(struct batch *b)
{
    timer_start(b->work, 0, 0);
}

void batch_stop(struct batch *b, const char *word, const struct error *why)
{
    if (b->state.stopped)
        return;
    b->state.stopped = word;
    b->why = *why;
    snprintf(b->state.why, sizeof b->state.why, "%s", why->text);
    batch_look(b);
}

void batch_fail(struct batch *b, const struct error *why)
{
    if (b->failed.code == ERROR_NONE)
        b->failed = *why;
    batch_stop(b, "error", why);
}
