/* lm/limits.c: parses rate-limit headers and keeps token buckets. */
#include "lm/limits.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/text.h"

#define BELIEVED_SECONDS 60.0
#define TOKENS_MOST      1e12

static const struct source {
    enum limit limit;
    const char *most, *left, *reset; /* headers */
} sources[] = {
    { LIMIT_REQUESTS, "x-ratelimit-limit-requests", "x-ratelimit-remaining-requests",
        "x-ratelimit-reset-requests" },
    { LIMIT_TOKENS, "x-ratelimit-limit-tokens", "x-ratelimit-remaining-tokens",
        "x-ratelimit-reset-tokens" },
    { LIMIT_REQUESTS, "anthropic-ratelimit-requests-limit",
        "anthropic-ratelimit-requests-remaining", "anthropic-ratelimit-requests-reset" },
    { LIMIT_TOKENS, "anthropic-ratelimit-tokens-limit", "anthropic-ratelimit-tokens-remaining",
        "anthropic-ratelimit-tokens-reset" },
    { LIMIT_INPUT, "anthropic-ratelimit-input-tokens-limit",
        "anthropic-ratelimit-input-tokens-remaining", "anthropic-ratelimit-input-tokens-reset" },
    { LIMIT_OUTPUT, "anthropic-ratelimit-output-tokens-limit",
        "anthropic-ratelimit-output-tokens-remaining", "anthropic-ratelimit-output-tokens-reset" },
};

/* A number of at least 0, ended by a space or the end; negative: invalid. */
static double parse_count(const char *text)
{
    char *end;
    if (!text || !isdigit((unsigned char)text[0]))
        return -1;
    double n = text_to_double(text, &end);
    if (*end != '\0' && *end != ' ')
        return -1;
    return !isfinite(n) ? -1 : fmin(n, TOKENS_MOST);
}

static double parse_date(const char *text, double wall_seconds)
{
    struct tm tm = { 0 };
    const char *end = strptime(text, "%Y-%m-%dT%H:%M:%S", &tm);
    if (!end)
        return -1;
    double fraction = *end == '.' ? text_to_double(end, NULL) : 0;
    if (*end == '.')
        end += 1 + strspn(end + 1, "0123456789");
    int hours = 0, minutes = 0;
    char sign = '+';
    if (strcmp(end, "Z") != 0 && sscanf(end, "%c%2d:%2d", &sign, &hours, &minutes) != 3)
        return -1;
    if (strchr("+-Z", sign) == NULL)
        return -1;
    double offset = (hours * 60.0 + minutes) * 60 * (sign == '-' ? -1 : 1);
    return fmax((double)timegm(&tm) + fraction - offset - wall_seconds, 0);
}

/* One number with its unit at *text, which advances; negative: invalid. */
static double parse_span(const char **text)
{
    static const struct {
        const char *unit;
        double seconds;
    } units[] = { { "ms", 0.001 }, { "us", 1e-6 }, { "h", 3600 }, { "m", 60 }, { "s", 1 },
        { "d", 86400 } };
    char *end;
    if (!isdigit((unsigned char)**text))
        return -1;
    double n = text_to_double(*text, &end);
    for (size_t i = 0; i < array_length(units); i++) {
        size_t len = strlen(units[i].unit);
        if (strncmp(end, units[i].unit, len) != 0)
            continue;
        *text = end + len;
        return n * units[i].seconds;
    }
    if (*end != '\0')
        return -1;
    *text = end;
    return n;
}

double limits_parse_reset(const char *text, double wall_seconds)
{
    double sum = 0;
    if (strlen(text) > 4 && text[4] == '-')
        return parse_date(text, wall_seconds);
    if (text[0] == '\0')
        return -1;
    while (*text) {
        double span = parse_span(&text);
        if (span < 0 || !isfinite(span))
            return -1;
        sum += span;
    }
    return fmin(sum, TOKENS_MOST);
}

static uint64_t limits_after(uint64_t now_ns, double seconds)
{
    return now_ns + (uint64_t)(seconds * 1e9);
}

static double level_at(const struct bucket *b, uint64_t now_ns)
{
    double seconds = now_ns > b->at_ns ? (double)(now_ns - b->at_ns) / 1e9 : 0;
    return fmin(b->level + b->rate * seconds, b->capacity);
}

/* `reset` is when the bucket will be full again, as providers define it. */
static void learn_one(
    struct bucket *b, double most, double left, double reset, double sent_since, uint64_t now_ns)
{
    if (left < 0 || (most < 0 && reset < 0))
        return;
    double seconds = reset < 0 || reset > BELIEVED_SECONDS ? BELIEVED_SECONDS : reset;
    double rate = 0;
    if (most > left)
        rate = (most - left) / (reset > 0 ? reset : BELIEVED_SECONDS);
    *b = (struct bucket){
        .capacity = fmax(most, left),
        .level = left - sent_since,
        .rate = rate,
        .at_ns = now_ns,
        .until_ns = limits_after(now_ns, seconds),
    };
}

bool limits_are_reported(limits_header_fn *header, void *arg)
{
    for (size_t i = 0; i < array_length(sources); i++)
        if (header(arg, sources[i].left))
            return true;
    return false;
}

void limits_learn(struct limits *l, limits_header_fn *header, void *arg,
    const struct limits_need *sent_since, uint64_t now_ns)
{
    for (size_t i = 0; i < array_length(sources); i++) {
        const struct source *s = &sources[i];
        const char *left = header(arg, s->left);
        if (!left)
            continue;
        double remaining = parse_count(left), most = parse_count(header(arg, s->most));
        const char *reset = header(arg, s->reset);
        double wall = (double)clock_wall_ms() / 1000;
        learn_one(&l->buckets[s->limit], most, remaining,
            reset ? limits_parse_reset(reset, wall) : -1, sent_since->of[s->limit], now_ns);
    }
}

void limits_pause(struct limits *l, double seconds, uint64_t now_ns)
{
    uint64_t until = limits_after(now_ns, fmin(seconds, BELIEVED_SECONDS));
    if (until > l->paused_until_ns)
        l->paused_until_ns = until;
}

/* A need larger than the bucket waits until the bucket is full. */
static double bucket_wait(const struct bucket *b, double need, uint64_t now_ns)
{
    if (now_ns >= b->until_ns)
        return 0;
    double missing = fmin(need, b->capacity) - level_at(b, now_ns);
    double forgotten = (double)(b->until_ns - now_ns) / 1e9;
    if (missing <= 0)
        return 0;
    return b->rate > 0 ? fmin(missing / b->rate, forgotten) : forgotten;
}

double limits_wait(const struct limits *l, const struct limits_need *need, uint64_t now_ns)
{
    double wait = 0;
    if (l->paused_until_ns > now_ns)
        wait = (double)(l->paused_until_ns - now_ns) / 1e9;
    for (size_t i = 0; i < LIMIT_COUNT; i++)
        wait = fmax(wait, bucket_wait(&l->buckets[i], need->of[i], now_ns));
    return wait;
}

void limits_take(struct limits *l, const struct limits_need *need, uint64_t now_ns)
{
    for (size_t i = 0; i < LIMIT_COUNT; i++) {
        struct bucket *b = &l->buckets[i];
        if (now_ns >= b->until_ns)
            continue;
        b->level = level_at(b, now_ns) - need->of[i];
        b->at_ns = now_ns;
    }
}

bool limits_are_idle(const struct limits *l, uint64_t now_ns)
{
    for (size_t i = 0; i < LIMIT_COUNT; i++)
        if (now_ns < l->buckets[i].until_ns)
            return false;
    return now_ns >= l->paused_until_ns;
}
