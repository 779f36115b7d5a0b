/* broker/budget.c: reserves and settles what runs spend. */
#include "broker/budget.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/loop.h"
#include "base/text.h"

enum { BYTES_PER_TOKEN = 4 };

static const char other_models[] = "(other models)";

void budget_init(struct budget *b, const struct budget_limits *limits)
{
    *b = (struct budget){ .limits = *limits, .start_ns = clock_ns() };
    b->gate.limit = limits->ask_cost;
    TAILQ_INIT(&b->gate.waits);
}

void budget_free(struct budget *b)
{
    free(b->models);
    b->models = NULL;
    b->model_count = 0;
    timer_free(b->gate.look);
    b->gate.look = NULL;
}

double spent_cost(const struct spent *spent)
{
    return spent->unpriced > 0 ? -1 : spent->cost;
}

uint64_t budget_held_ns(const struct budget *b)
{
    return b->time_held_ns + (b->time_holds > 0 ? clock_ns() - b->time_held_since_ns : 0);
}

void budget_hold_time(struct budget *b, bool on)
{
    if (b->up)
        budget_hold_time(b->up, on);
    if (on && b->time_holds++ == 0) {
        b->time_held_since_ns = clock_ns();
    } else if (!on && --b->time_holds == 0) {
        b->time_held_ns += clock_ns() - b->time_held_since_ns;
    }
}

double budget_seconds_left(const struct budget *b)
{
    if (b->limits.seconds <= 0)
        return 1e9;
    double held = (double)budget_held_ns(b) / 1e9;
    double left = b->limits.seconds - clock_seconds_since(b->start_ns) + held;
    return left > 0 ? left : 0;
}

/* Reports a refusal of a larger budget to its owner. Returns rc. */
static int note_refusal(struct budget *up, int rc, const struct error *why, struct error *err)
{
    bool first = rc < 0 && up->refused.code == ERROR_NONE;
    if (rc == 0)
        return 0;
    if (err) {
        *err = *why;
        error_wrap(err, "%s", up->name);
    }
    if (!first || !error_is_budget(why->code))
        return rc;
    up->refused = *why;
    if (up->on_refused)
        up->on_refused(up->arg);
    return rc;
}

static int check_time(const struct budget *b, struct error *err)
{
    if (budget_seconds_left(b) <= 0)
        return error_set(
            err, ERROR_BUDGET_TIME, "the time limit of %g s was reached", b->limits.seconds);
    return 0;
}

int budget_check(struct budget *b, int64_t calls, struct error *err)
{
    struct error why = { 0 };
    int64_t max = b->limits.calls;
    int rc = check_time(b, err);
    if (rc == 0 && b->up)
        rc = note_refusal(b->up, check_time(b->up, &why), &why, err);
    if (rc < 0)
        return rc;
    if (calls > 0 && max >= 0 && calls > max - b->guest_calls)
        return error_set(err, ERROR_BUDGET_CALLS,
            "LLM call limit exceeded: %lld + %lld > %lld. Use Python code for aggregation instead "
            "of making more LLM calls.",
            (long long)b->guest_calls, (long long)calls, (long long)max);
    return 0;
}

int budget_reserve(struct budget *b, int64_t calls, struct error *err)
{
    int rc = budget_check(b, calls, err);
    if (rc == 0)
        b->guest_calls += calls;
    return rc;
}

void budget_unreserve(struct budget *b, int64_t calls)
{
    b->guest_calls -= calls;
}

/* ---- reservations of calls ---- */

static int refuse_tokens(
    const char *kind, int64_t spent, int64_t more, int64_t max, struct error *err)
{
    return error_set(err, ERROR_BUDGET_TOKENS,
        "%s token limit exceeded: %lld used or reserved + %lld > %lld", kind, (long long)spent,
        (long long)more, (long long)max);
}

static int check_tokens(const struct budget *b, int64_t more, struct error *err)
{
    const struct budget_limits *max = &b->limits;
    int64_t input = b->spent.input_tokens + b->held_tokens;
    int64_t total = input + b->spent.output_tokens;
    if (max->input_tokens > 0 && more > max->input_tokens - input)
        return refuse_tokens("input", input, more, max->input_tokens, err);
    if (max->output_tokens > 0 && b->spent.output_tokens >= max->output_tokens)
        return refuse_tokens("output", b->spent.output_tokens, 1, max->output_tokens, err);
    if (max->total_tokens > 0 && more >= max->total_tokens - total)
        return refuse_tokens("total", total, more, max->total_tokens, err);
    return 0;
}

double budget_used_cost(const struct budget *b)
{
    return b->spent.cost + b->held_cost;
}

/* Spending above the gate was denied. */
static int check_gate(const struct budget *b, double used, double more, struct error *err)
{
    if (!b->gate.denied || more <= b->gate.limit - used)
        return 0;
    return error_set(err, ERROR_BUDGET_COST, "$%.6f spent or reserved + $%.6f > $%g (ask-cost): %s",
        used, more, b->gate.limit, b->gate.why);
}

/* Estimates the price of the prompt, plus that of the answer if its length is bounded. Free
 * models are never refused. */
static int check_cost(
    const struct budget *b, const struct budget_call *call, double *cost, struct error *err)
{
    double max = b->limits.cost, used = budget_used_cost(b);
    struct lm_usage usage = { .input_tokens = (int64_t)(call->prompt_bytes / BYTES_PER_TOKEN),
        .output_tokens = call->max_tokens };
    *cost = 0;
    if (max <= 0 && b->limits.ask_cost <= 0)
        return 0;
    double more = call->lm ? lm_cost(call->lm, call->lm_model, &usage) : -1;
    if (more < 0)
        return error_set(err, ERROR_CONFIG,
            "%s is set, but the price of %.80s is unknown: set it with --prices FILE",
            max > 0 ? "max-cost" : "ask-cost", call->model);
    if (max > 0 && more > max - used)
        return error_set(err, ERROR_BUDGET_COST,
            "cost limit exceeded: $%.6f spent or reserved + $%.6f > $%g", used, more, max);
    *cost = more;
    return check_gate(b, used, more, err);
}

static int check_calls(const struct budget *b, struct error *err)
{
    int64_t max = b->limits.all_calls, used = b->spent.calls + b->held_calls;
    if (max > 0 && used >= max)
        return error_set(err, ERROR_BUDGET_CALLS,
            "call limit exceeded: %lld made or in progress + 1 > %lld", (long long)used,
            (long long)max);
    return 0;
}

static int budget_check_call(const struct budget *b, const struct budget_call *call, int64_t tokens,
    double *cost, struct error *err)
{
    int rc = check_calls(b, err);
    if (rc == 0)
        rc = check_tokens(b, tokens, err);
    return rc < 0 ? rc : check_cost(b, call, cost, err);
}

bool budget_may_hold(const struct budget *b, const struct budget_call *call, double *cost)
{
    int64_t tokens = (int64_t)(call->prompt_bytes / BYTES_PER_TOKEN);
    return budget_check_call(b, call, tokens, cost, NULL) == 0;
}

static bool find_model(const struct budget *b, const char *name, size_t *at)
{
    for (*at = 0; *at < b->model_count; ++*at)
        if (strcmp(b->models[*at].name, name) == 0)
            return true;
    return false;
}

/* Finds or adds the usage entry of a model. */
static int place_model(struct budget *b, const char *name, size_t *at, struct error *err)
{
    char kept[BUDGET_MODEL_NAME];
    size_t len = strlen(name);
    len = len < sizeof kept ? len : text_utf8_floor(name, len, sizeof kept - 1);
    snprintf(kept, sizeof kept, "%.*s", (int)len, name);
    if (find_model(b, kept, at))
        return 0;
    if (b->model_count >= BUDGET_MODELS_MAX - 1) {
        snprintf(kept, sizeof kept, "%s", other_models);
        if (find_model(b, kept, at))
            return 0;
    }
    struct budget_model *models = realloc(b->models, (b->model_count + 1) * sizeof *models);
    if (!models)
        return error_memory(err);
    b->models = models;
    b->models[b->model_count] = (struct budget_model){ 0 };
    memcpy(b->models[b->model_count++].name, kept, sizeof kept);
    return 0;
}

static unsigned clip_depth(unsigned depth)
{
    return depth < BUDGET_DEPTH_MAX + 1 ? depth : BUDGET_DEPTH_MAX + 1;
}

static void add_hold(struct budget *b, int64_t tokens, double cost, int64_t calls)
{
    b->held_calls += calls;
    b->held_tokens += tokens;
    b->held_cost += cost;
    if (b->held_cost < 1e-12) /* rounding errors of sums of doubles */
        b->held_cost = 0;
}

int budget_hold(
    struct budget *b, const struct budget_call *call, struct budget_hold *hold, struct error *err)
{
    int64_t more = (int64_t)(call->prompt_bytes / BYTES_PER_TOKEN);
    unsigned depth = clip_depth(call->depth);
    struct error why = { 0 };
    double cost = 0, up_cost = 0;
    size_t model = 0;
    *hold = (struct budget_hold){ 0 };
    int rc = budget_check_call(b, call, more, &cost, err);
    if (rc == 0)
        rc = place_model(b, call->model, &model, err);
    if (rc == 0 && b->up)
        rc = note_refusal(b->up, budget_check_call(b->up, call, more, &up_cost, &why), &why, err);
    if (rc < 0)
        return rc;
    *hold = (struct budget_hold){ more, cost, up_cost, model, depth, call->account, true };
    b->open += depth > 0;
    add_hold(b, more, cost, 1);
    if (b->up)
        add_hold(b->up, more, up_cost, 1);
    return 0;
}

void budget_release(struct budget *b, struct budget_hold *hold)
{
    if (!hold->open)
        return;
    add_hold(b, -hold->tokens, -hold->cost, -1);
    if (b->up)
        add_hold(b->up, -hold->tokens, -hold->up_cost, -1);
    b->open -= hold->depth > 0;
    hold->open = false;
}

void spent_add(struct spent *to, const struct lm_reply *reply)
{
    to->calls++;
    to->attempts += reply->attempts;
    to->input_tokens += reply->usage.input_tokens;
    to->output_tokens += reply->usage.output_tokens;
    to->cost += reply->cost >= 0 ? reply->cost : 0;
    to->unpriced += reply->cost < 0;
    to->estimated = to->estimated || reply->usage.estimated;
}

static void broker_budget_settle(struct budget *b, size_t model, unsigned depth,
    struct account *account, const struct lm_reply *reply)
{
    spent_add(&b->spent, reply);
    spent_add(&b->depths[depth], reply);
    spent_add(&b->models[model].spent, reply);
    for (struct account *a = account; a; a = a->up)
        spent_add(&a->spent, reply);
}

void budget_settle(struct budget *b, struct budget_hold *hold, const struct lm_reply *reply)
{
    if (!hold->open)
        return;
    budget_release(b, hold);
    if (b->up)
        spent_add(&b->up->spent, reply);
    broker_budget_settle(b, hold->model, hold->depth, hold->account, reply);
}

int budget_recall(struct budget *b, const char *model, unsigned depth, struct account *account,
    const struct lm_reply *reply, struct error *err)
{
    size_t at = 0;
    int rc = place_model(b, model, &at, err);
    if (rc == 0)
        broker_budget_settle(b, at, clip_depth(depth), account, reply);
    return rc;
}

bool budget_is_refused_above(const struct budget *b)
{
    return b->up && b->up->refused.code != ERROR_NONE;
}

int budget_reserve_tool(struct budget *b, struct error *err)
{
    int64_t max = b->limits.tool_calls;
    int rc = budget_reserve(b, 0, err);
    if (rc == 0 && max >= 0 && b->tool_calls >= max)
        rc = error_set(err, ERROR_BUDGET_TOOL_CALLS,
            "tool call limit exceeded: %lld + 1 > %lld (max-tool-calls)", (long long)b->tool_calls,
            (long long)max);
    b->tool_calls += rc == 0;
    return rc;
}

static int reserve_record(
    struct budget *b, size_t bytes, int64_t max, const char *of, struct error *err)
{
    int64_t used = b->record_bytes, more = (int64_t)bytes;
    if (b->limits.record_bytes > 0 && more > max - used)
        return error_set(err, ERROR_BUDGET_RECORD,
            "record size exceeded: %lld + %lld > %lld bytes (%smax-record-size)", (long long)used,
            (long long)more, (long long)max, of);
    b->record_bytes += more;
    return 0;
}

int budget_reserve_record(struct budget *b, size_t bytes, struct error *err)
{
    return reserve_record(b, bytes, b->limits.record_bytes, "", err);
}

int budget_reserve_request(struct budget *b, size_t bytes, struct error *err)
{
    int64_t max = b->limits.record_bytes;
    return reserve_record(b, bytes, max - max / 16, "15/16 of ", err);
}

bool budget_reserve_result(struct budget *b, size_t bytes)
{
    int64_t most = b->limits.result_bytes ? b->limits.result_bytes : b->limits.record_bytes / 4;
    if (most > 0 && (int64_t)bytes > most - b->result_bytes)
        return false;
    if (reserve_record(b, bytes, b->limits.record_bytes, "", NULL) < 0)
        return false;
    b->result_bytes += (int64_t)bytes;
    return true;
}

void budget_unreserve_record(struct budget *b, size_t bytes)
{
    b->record_bytes -= (int64_t)bytes;
}

void budget_count_record(struct budget *b, size_t bytes)
{
    b->record_bytes += (int64_t)bytes;
}

void budget_count(struct budget *b, const struct spent *spent)
{
    struct spent *to = &b->spent;
    to->calls += spent->calls;
    to->attempts += spent->attempts;
    to->input_tokens += spent->input_tokens;
    to->output_tokens += spent->output_tokens;
    to->cost += spent->cost;
    to->unpriced += spent->unpriced;
    to->estimated = to->estimated || spent->estimated;
}
