/* lm/queue.h: which call may begin: so many at once to a host, so many to a model, and no more than
 * the server said it would take.
 *
 * Calls to one model of one host are a lane, first come, first served; the lanes of a host take
 * turns. A queue is shared by the language models of a program, so that two of them at one provider
 * keep its limits together. It is held by each of them and by whoever made it, and goes with the
 * last.
 */
#ifndef DROSTE_LM_QUEUE_H
#define DROSTE_LM_QUEUE_H

#include "lm/client.h"

struct lane;

struct queue_place {
    const char *host, *model;
    unsigned host_most, model_most; /* calls at once; model_most 0: no limit of its own */
};

/* `begin` is called from the loop, once for each call that may begin. */
typedef void queue_begin_fn(struct lm_call *call);

struct lm_queue *queue_hold(struct lm_queue *queue);
/* Puts the call at the end of its lane. */
int queue_join(struct lm_queue *queue, const struct queue_place *place, queue_begin_fn *begin,
    struct lm_call *call, struct error *err);
/* The call is over, or does not want to begin any more. Fine for one that never joined. */
void queue_leave(struct lm_call *call);

/* A request of this call leaves now. */
void queue_take(struct lm_call *call);
/* Its server answered, with these headers. */
void queue_learn(struct lm_call *call, limits_header_fn *header, void *arg);
/* Its server wants to hear nothing for so long. */
void queue_pause(struct lm_call *call, double seconds);

#endif
