/* lm/queue.h: schedules calls under the concurrency limits of hosts and models, and the rate limits
 * that servers report.
 *
 * Calls to one model of one host form a lane, first come, first served; the lanes of a host take
 * turns. The language models of a program share a queue, so that two of them at one provider stay
 * within its limits together. The queue is reference-counted.
 */
#pragma once

#include "lm/client.h"

struct lane;

struct queue_place {
    const char *host, *model;
    unsigned host_most, model_most; /* concurrent calls; model_most 0: no separate limit */
    struct rate_amount rate;        /* of the model in a minute; 0: no limit */
};

/* The loop calls `begin` once for each call that may begin. */
typedef void queue_begin_fn(struct lm_call *call);

struct lm_queue *queue_hold(struct lm_queue *queue);
/* Appends the call to its lane. */
int queue_join(struct lm_queue *queue, const struct queue_place *place, queue_begin_fn *begin,
    struct lm_call *call, struct error *err);
/* The call is over, or no longer needs to begin. Fine for one that never joined. */
void queue_leave(struct lm_call *call);

/* The call is about to send a request. 0: it sends it now; otherwise seconds after which it should
 * try again. */
double queue_take(struct lm_call *call);
/* Its request has used so many tokens. */
void queue_settle(struct lm_call *call, int64_t tokens);
/* Its server responded with these headers. */
void queue_learn(struct lm_call *call, limits_header_fn *header, void *arg);
/* Its server requested a pause. */
void queue_pause(struct lm_call *call, double seconds);
