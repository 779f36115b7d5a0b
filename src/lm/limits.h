/* lm/limits.h: rate limits of a server, learned from the headers of its answers.
 *
 * Each limit is a token bucket: it had `level` when the server last reported it, fills at `rate`,
 * and a request takes from it. A request that would exceed it waits here instead of being refused
 * there. A report is believed for at most a minute, so that no wrong or hostile header can stop a
 * run.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum limit {
    LIMIT_REQUESTS,
    LIMIT_TOKENS, /* of input and output together */
    LIMIT_INPUT,
    LIMIT_OUTPUT,
    LIMIT_COUNT,
};

/* What a request takes from each bucket. */
struct limits_need {
    double of[LIMIT_COUNT];
};

struct limits {
    struct bucket {
        double capacity, level, rate; /* rate: per second */
        uint64_t at_ns;               /* the time of `level` */
        uint64_t until_ns;            /* when this expires; 0: unknown */
    } buckets[LIMIT_COUNT];
    uint64_t paused_until_ns;
};

/* The value of a response header; NULL if absent. */
typedef const char *limits_header_fn(void *arg, const char *name);

/* Whether these headers report limits. */
bool limits_are_reported(limits_header_fn *header, void *arg);
/* `sent_since`: what was requested after this response's request, and may not be counted in it. */
void limits_learn(struct limits *l, limits_header_fn *header, void *arg,
    const struct limits_need *sent_since, uint64_t now_ns);
/* Sends nothing for this long. */
void limits_pause(struct limits *l, double seconds, uint64_t now_ns);
/* Seconds until this can be requested; 0: now. */
double limits_wait(const struct limits *l, const struct limits_need *need, uint64_t now_ns);
void limits_take(struct limits *l, const struct limits_need *need, uint64_t now_ns);
/* True if no limit matters now. */
bool limits_are_idle(const struct limits *l, uint64_t now_ns);

/* Seconds from "6m0s", "12ms", "1.5" or a date of RFC 3339; negative: invalid. */
double limits_parse_reset(const char *text, double wall_seconds);
