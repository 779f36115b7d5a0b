/* lm/limits.h: how much more a server will take, learned from the headers of its answers.
 *
 * Each limit is a token bucket: it held `level` when the server last said so, fills at `rate`, and
 * a request takes out of it. A request that would find too little waits here instead of being
 * refused there. What a server says is believed for a minute at most, so that no header, odd or
 * hostile, can stop a run.
 */
#ifndef DROSTE_LM_LIMITS_H
#define DROSTE_LM_LIMITS_H

#include <stdbool.h>
#include <stdint.h>

enum limit {
    LIMIT_REQUESTS,
    LIMIT_TOKENS, /* of input and output together */
    LIMIT_INPUT,
    LIMIT_OUTPUT,
    LIMIT_COUNT,
};

/* What a request takes out of each bucket. */
struct limits_need {
    double of[LIMIT_COUNT];
};

struct limits {
    struct bucket {
        double capacity, level, rate; /* rate: per second */
        uint64_t at_ns;               /* when `level` was so */
        uint64_t until_ns;            /* what is known is forgotten then; 0: nothing is known */
    } buckets[LIMIT_COUNT];
    uint64_t paused_until_ns;
};

/* The value of a header of the answer; NULL: it has none of that name. */
typedef const char *limits_header_fn(void *arg, const char *name);

/* Whether these headers say anything of limits. */
bool limits_are_told(limits_header_fn *header, void *arg);
/* `sent_since`: what was asked for after the request that this answers, and may not be counted. */
void limits_learn(struct limits *l, limits_header_fn *header, void *arg,
    const struct limits_need *sent_since, uint64_t now_ns);
/* Nothing is to be sent for so long. */
void limits_pause(struct limits *l, double seconds, uint64_t now_ns);
/* Seconds until this can be asked for; 0: now. */
double limits_wait(const struct limits *l, const struct limits_need *need, uint64_t now_ns);
void limits_take(struct limits *l, const struct limits_need *need, uint64_t now_ns);
/* True if nothing is known that would matter now. */
bool limits_are_idle(const struct limits *l, uint64_t now_ns);

/* Seconds in "6m0s", "12ms", "1.5" or a date of RFC 3339; negative: in none of them. */
double limits_parse_reset(const char *text, double wall_seconds);

#endif
