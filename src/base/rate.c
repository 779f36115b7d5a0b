/* base/rate.c: see rate.h. */
#include "base/rate.h"

#include <stdio.h>
#include <string.h>

static int64_t rate_ends_ms(const struct rate_slice *s)
{
    return (s->second + 60) * 1000 + RATE_MARGIN_MS;
}

/* What lies in the future is of a clock that was ahead: it counts for a minute and no longer. */
static void rate_clip(struct rate_window *w, int64_t now_ms)
{
    const int64_t latest_ms = now_ms + 60000;
    for (size_t i = 0; i < w->count; i++)
        if (w->slices[i].second > latest_ms / 1000)
            w->slices[i].second = latest_ms / 1000;
    if (w->next_until_ms > latest_ms)
        w->next_until_ms = now_ms;
}

void rate_drop_old(struct rate_window *w, int64_t now_ms)
{
    rate_clip(w, now_ms);
    for (size_t i = w->count; i-- > 0;)
        if (rate_ends_ms(&w->slices[i]) <= now_ms)
            w->slices[i] = w->slices[--w->count];
    if (w->next[0] && w->next_until_ms <= now_ms)
        w->next[0] = '\0';
}

static struct rate_amount rate_used(const struct rate_window *w)
{
    struct rate_amount sum = { 0 };
    for (size_t i = 0; i < w->count; i++) {
        sum.requests += w->slices[i].amount.requests;
        sum.tokens += w->slices[i].amount.tokens;
    }
    return sum;
}

static int64_t rate_min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* What is left for this one; all that it asks for where there is no limit. */
static struct rate_amount rate_left(const struct rate_window *w, const struct rate_ask *ask)
{
    struct rate_amount used = rate_used(w);
    if (w->next[0] && strcmp(w->next, ask->holder) != 0) {
        used.requests += w->wants.requests;
        used.tokens += w->wants.tokens;
    }
    return (struct rate_amount){
        ask->limit.requests ? ask->limit.requests - used.requests : ask->most.requests,
        ask->limit.tokens ? ask->limit.tokens - used.tokens : ask->most.tokens,
    };
}

static struct rate_amount rate_least(const struct rate_ask *ask)
{
    const struct rate_amount limit = ask->limit, least = ask->least;
    return (struct rate_amount){
        limit.requests ? rate_min(least.requests, limit.requests) : 0,
        limit.tokens ? rate_min(least.tokens, limit.tokens) : 0,
    };
}

void rate_add(struct rate_window *w, const struct rate_slice *slice)
{
    struct rate_slice *to = NULL;
    for (size_t i = 0; i < w->count && (!to || to->second != slice->second); i++)
        if (!to || w->slices[i].second == slice->second || w->slices[i].second > to->second)
            to = &w->slices[i];
    if (to && to->second != slice->second && w->count < RATE_SLICES)
        to = NULL;
    if (!to) {
        w->slices[w->count++] = *slice;
        return;
    }
    if (slice->second > to->second) /* there is no room: the latest one counts for longer */
        to->second = slice->second;
    to->amount.requests += slice->amount.requests;
    to->amount.tokens += slice->amount.tokens;
}

bool rate_take(struct rate_window *w, int64_t now_ms, int64_t end_ms, const struct rate_ask *ask,
    struct rate_slice *out)
{
    struct rate_amount least = rate_least(ask);
    rate_drop_old(w, now_ms);
    struct rate_amount left = rate_left(w, ask);
    bool is_next = strcmp(w->next, ask->holder) == 0;
    if (left.requests < least.requests || left.tokens < least.tokens) {
        if (w->next[0] && !is_next)
            return false;
        snprintf(w->next, sizeof w->next, "%s", ask->holder);
        w->wants = least;
        w->next_until_ms = now_ms + RATE_NEXT_MS;
        return false;
    }
    if (is_next)
        w->next[0] = '\0';
    *out = (struct rate_slice){ (end_ms + 999) / 1000,
        { rate_min(ask->most.requests, left.requests), rate_min(ask->most.tokens, left.tokens) } };
    rate_add(w, out);
    return true;
}

int64_t rate_wait_ms(const struct rate_window *w, int64_t now_ms, const struct rate_ask *ask)
{
    struct rate_amount least = rate_least(ask), left = rate_left(w, ask);
    int64_t ends_ms = now_ms;
    while (left.requests < least.requests || left.tokens < least.tokens) {
        const struct rate_slice *first = NULL;
        for (size_t i = 0; i < w->count; i++)
            if (rate_ends_ms(&w->slices[i]) > ends_ms &&
                (!first || w->slices[i].second < first->second))
                first = &w->slices[i];
        if (!first)
            break;
        left.requests += first->amount.requests;
        left.tokens += first->amount.tokens;
        ends_ms = rate_ends_ms(first);
    }
    return ends_ms - now_ms;
}

void rate_change(struct rate_window *w, const struct rate_slice *by)
{
    for (size_t i = 0; i < w->count; i++) {
        struct rate_amount *amount = &w->slices[i].amount;
        if (w->slices[i].second != by->second)
            continue;
        amount->requests += by->amount.requests;
        amount->tokens += by->amount.tokens;
        amount->requests = amount->requests < 0 ? 0 : amount->requests;
        amount->tokens = amount->tokens < 0 ? 0 : amount->tokens;
    }
}
