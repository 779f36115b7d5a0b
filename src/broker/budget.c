/* broker/budget.c: see budget.h. */
#include "broker/budget.h"

#include "base/clock.h"

enum { BYTES_PER_TOKEN = 4 };

void budget_init(struct budget *b, const struct budget_limits *limits)
{
    *b = (struct budget){ .limits = *limits, .start_ns = clock_ns() };
}

double budget_seconds_left(const struct budget *b)
{
    if (b->limits.seconds <= 0)
        return 1e9;
    double left = b->limits.seconds - clock_seconds_since(b->start_ns);
    return left > 0 ? left : 0;
}

int budget_reserve(struct budget *b, int64_t calls, struct error *err)
{
    int64_t max = b->limits.calls;
    if (budget_seconds_left(b) <= 0)
        return error_set(err, ERROR_BUDGET, "the time limit of %g s is reached", b->limits.seconds);
    if (calls > 0 && max >= 0 && calls > max - b->guest_calls)
        return error_set(err, ERROR_BUDGET,
            "LLM call limit exceeded: %lld + %lld > %lld. Use Python code for aggregation instead "
            "of making more LLM calls.",
            (long long)b->guest_calls, (long long)calls, (long long)max);
    b->guest_calls += calls;
    return 0;
}

static int refuse_tokens(
    const char *kind, int64_t spent, int64_t more, int64_t max, struct error *err)
{
    return error_set(err, ERROR_BUDGET, "%s token limit exceeded: %lld spent or held + %lld > %lld",
        kind, (long long)spent, (long long)more, (long long)max);
}

int budget_hold(struct budget *b, size_t prompt_bytes, struct budget_hold *hold, struct error *err)
{
    const struct budget_limits *max = &b->limits;
    int64_t more = (int64_t)(prompt_bytes / BYTES_PER_TOKEN);
    int64_t input = b->input_tokens + b->held_tokens, total = input + b->output_tokens;
    *hold = (struct budget_hold){ 0 };
    if (max->input_tokens > 0 && more > max->input_tokens - input)
        return refuse_tokens("input", input, more, max->input_tokens, err);
    if (max->output_tokens > 0 && b->output_tokens >= max->output_tokens)
        return refuse_tokens("output", b->output_tokens, 1, max->output_tokens, err);
    if (max->total_tokens > 0 && more >= max->total_tokens - total)
        return refuse_tokens("total", total, more, max->total_tokens, err);
    hold->tokens = more;
    b->held_tokens += more;
    return 0;
}

void budget_release(struct budget *b, struct budget_hold *hold)
{
    b->held_tokens -= hold->tokens;
    hold->tokens = 0;
}

void budget_settle(struct budget *b, struct budget_hold *hold, const struct lm_usage *usage)
{
    budget_release(b, hold);
    b->calls++;
    b->input_tokens += usage->input_tokens;
    b->output_tokens += usage->output_tokens;
    b->estimated = b->estimated || usage->estimated;
}
