/* lm/allowance.c: see allowance.h. */
#include "lm/allowance.h"

#include <math.h>

#include "base/cleanup.h"

enum { TELL_MS = 250 };

bool allowance_is_limited(const struct allowance *a)
{
    return a->limit.requests > 0 || a->limit.tokens > 0;
}

static int64_t allowance_ms(void)
{
    return (int64_t)(hold_clock_ns() / 1000000u);
}

bool allowance_is_idle(struct allowance *a)
{
    rate_drop_old(&a->window, allowance_ms());
    return a->window.count == 0 && a->changes.count == 0 && a->ticket == 0;
}

static bool allowance_fits(const struct allowance *a, struct rate_amount need)
{
    const struct rate_amount limit = a->limit, left = a->left.amount;
    return (limit.requests == 0 || left.requests >= need.requests) &&
           (limit.tokens == 0 || left.tokens >= need.tokens || left.tokens >= limit.tokens);
}

bool allowance_has(const struct allowance *a, struct rate_amount need)
{
    return !allowance_is_limited(a) || (hold_clock_ns() < a->until_ns && allowance_fits(a, need));
}

void allowance_reserve(struct allowance *a, struct rate_amount need, struct allowance_part *out)
{
    if (!allowance_is_limited(a))
        return;
    if (need.tokens > a->left.amount.tokens) /* more than the limit: it takes all */
        need.tokens = a->left.amount.tokens;
    *out = (struct allowance_part){ { a->left.second, need }, a->until_ns };
    a->left.amount.requests -= need.requests;
    a->left.amount.tokens -= need.tokens;
}

static void allowance_change(struct allowance *a, const struct rate_slice *by)
{
    if (by->amount.requests == 0 && by->amount.tokens == 0)
        return;
    rate_add(&a->changes, by);
    a->again_ns = 0;
}

static void allowance_change_back(struct allowance *a, const struct rate_slice *unused)
{
    allowance_change(a, &(struct rate_slice){
                            unused->second, { -unused->amount.requests, -unused->amount.tokens } });
}

void allowance_return(struct allowance *a, struct allowance_part *part)
{
    if (part->until_ns > 0)
        allowance_change_back(a, &part->slice);
    *part = (struct allowance_part){ 0 };
}

void allowance_settle(struct allowance *a, struct allowance_part *part, int64_t tokens)
{
    const struct rate_amount more = { 0, tokens - part->slice.amount.tokens };
    if (part->until_ns > 0)
        allowance_change(a, &(struct rate_slice){ part->slice.second, more });
    *part = (struct allowance_part){ 0 };
}

static double allowance_seconds_until(uint64_t ns)
{
    uint64_t now = hold_clock_ns();
    return now < ns ? (double)(ns - now) / 1e9 : 0;
}

static void allowance_ask_others(
    struct allowance *a, const struct allowance_of *of, const struct rate_ask *ask)
{
    cleanup_buf struct buf name = { 0 };
    buf_printf(&name, "%s %s", of->host, of->model);
    struct lm_share_ask shared = { .ticket = ++*of->tickets,
        .model = buf_text(&name),
        .limit = ask->limit,
        .least = ask->least,
        .most = ask->most,
        .changes = a->changes.slices,
        .change_count = a->changes.count };
    a->ticket = shared.ticket;
    a->asked_ns = hold_clock_ns();
    of->share->ask(of->share->arg, &shared);
    a->changes.count = 0;
}

/* A slice of this process's own window. */
static double allowance_ask_here(struct allowance *a, const struct rate_ask *ask)
{
    struct rate_slice slice;
    int64_t now_ms = allowance_ms();
    for (size_t i = 0; i < a->changes.count; i++)
        rate_change(&a->window, &a->changes.slices[i]);
    a->changes.count = 0;
    a->asked_ns = hold_clock_ns();
    if (rate_take(&a->window, now_ms, now_ms + RATE_LEASE_MS, ask, &slice))
        allowance_grant(a, &slice, 0);
    else
        allowance_grant(a, NULL, rate_wait_ms(&a->window, now_ms, ask));
    return allowance_seconds_until(a->again_ns);
}

double allowance_ask(struct allowance *a, const struct allowance_of *of, struct rate_amount least,
    struct rate_amount most)
{
    const struct rate_ask ask = {
        .holder = "here", .limit = a->limit, .least = least, .most = most
    };
    double wait = allowance_seconds_until(a->again_ns);
    if (a->ticket > 0)
        return INFINITY;
    if (wait > 0)
        return wait;
    allowance_change_back(a, &a->left);
    a->left = (struct rate_slice){ 0 };
    a->until_ns = 0;
    if (!of->share->ask)
        return allowance_ask_here(a, &ask);
    allowance_ask_others(a, of, &ask);
    return INFINITY;
}

void allowance_grant(struct allowance *a, const struct rate_slice *granted, int64_t wait_ms)
{
    a->ticket = 0;
    a->again_ns = granted ? 0 : hold_clock_ns() + (uint64_t)wait_ms * 1000000u;
    if (!granted)
        return;
    a->left = *granted;
    a->until_ns = a->asked_ns + RATE_LEASE_MS * 1000000ull;
}

double allowance_tell(struct allowance *a, const struct allowance_of *of)
{
    double wait = allowance_seconds_until(a->asked_ns + TELL_MS * 1000000ull);
    if (a->changes.count == 0 || a->ticket > 0 || !of->share->ask)
        return INFINITY;
    if (wait > 0)
        return wait;
    allowance_ask_others(a, of, &(struct rate_ask){ .limit = a->limit });
    return INFINITY;
}
