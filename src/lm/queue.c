/* lm/queue.c: lanes of calls, served in turns.
 *
 * Beginning a call runs the caller's code, which may start, cancel and close anything. So lanes and
 * hosts are looked up again after each beginning, are freed only while none of our loops is on the
 * stack, and a reference to the queue is held meanwhile.
 */
#include "lm/queue.h"

#include <math.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"

struct lane {
    TAILQ_ENTRY(lane) link;
    struct host *host;
    char *model;
    unsigned active, most;
    struct lane_list waiting, running; /* both in the order of their beginning */
    struct limits limits;
};
TAILQ_HEAD(lanes, lane);

struct host {
    TAILQ_ENTRY(host) link;
    struct lm_queue *queue;
    char *name;
    unsigned active, most;
    struct lanes lanes;
};

struct lm_queue {
    unsigned holders;
    struct timer *timer;
    bool soon; /* the timer is due at once */
    TAILQ_HEAD(, host) hosts;
};

static struct limits_need need_of(const struct lm_call *call)
{
    double input = (double)call->input_bytes / 4, output = (double)call->request.max_tokens;
    return (struct limits_need){ { 1, input + output, input, 1 } };
}

static void lane_free(struct lane *lane)
{
    TAILQ_REMOVE(&lane->host->lanes, lane, link);
    free(lane->model);
    free(lane);
}

static void host_free(struct host *host)
{
    TAILQ_REMOVE(&host->queue->hosts, host, link);
    free(host->name);
    free(host);
}

/* Frees lanes and hosts without calls or known limits: a guest may name any number of models. */
static void queue_sweep(struct lm_queue *queue, bool all)
{
    struct host *host, *next_host;
    struct lane *lane, *next;
    uint64_t now = clock_ns();
    for (host = TAILQ_FIRST(&queue->hosts); host; host = next_host) {
        next_host = TAILQ_NEXT(host, link);
        for (lane = TAILQ_FIRST(&host->lanes); lane; lane = next) {
            next = TAILQ_NEXT(lane, link);
            bool empty = lane->active == 0 && TAILQ_EMPTY(&lane->waiting);
            if (all || (empty && limits_are_idle(&lane->limits, now)))
                lane_free(lane);
        }
        if (TAILQ_EMPTY(&host->lanes))
            host_free(host);
    }
}

static void queue_release(struct lm_queue *queue)
{
    if (--queue->holders > 0)
        return;
    queue_sweep(queue, true);
    timer_free(queue->timer);
    free(queue);
}

/* The first call of the lane that may begin; otherwise lowers *soonest to the time when it may. */
static struct lm_call *next_call(const struct lane *lane, uint64_t now, double *soonest)
{
    struct lm_call *call = TAILQ_FIRST(&lane->waiting);
    if (!call || (lane->most > 0 && lane->active >= lane->most))
        return NULL;
    struct limits_need need = need_of(call);
    double wait = limits_wait(&lane->limits, &need, now);
    if (wait <= 0)
        return call;
    *soonest = fmin(*soonest, wait);
    return NULL;
}

static struct lm_call *queue_choose(const struct lm_queue *queue, uint64_t now, double *soonest)
{
    struct host *host;
    struct lane *lane;
    *soonest = INFINITY;
    TAILQ_FOREACH(host, &queue->hosts, link)
    {
        if (host->active >= host->most)
            continue;
        TAILQ_FOREACH(lane, &host->lanes, link)
        {
            struct lm_call *call = next_call(lane, now, soonest);
            if (call)
                return call;
        }
    }
    return NULL;
}

static void queue_begin(struct lm_call *call)
{
    struct lane *lane = call->lane;
    struct host *host = lane->host;
    TAILQ_REMOVE(&lane->waiting, call, lane_link);
    TAILQ_INSERT_TAIL(&lane->running, call, lane_link);
    TAILQ_REMOVE(&host->lanes, lane, link); /* the other lanes' turn */
    TAILQ_INSERT_TAIL(&host->lanes, lane, link);
    call->running = true;
    lane->active++;
    host->active++;
    call->begin(call);
}

/* Thousands of calls may come and go before the loop's next turn: only the first starts the
 * timer. */
static void pump_soon(struct lm_queue *queue)
{
    if (queue->soon)
        return;
    queue->soon = true;
    timer_start(queue->timer, 0, 0);
}

/* Begins calls, at most a batch of them, so that immediate answers, each starting the next call,
 * do not starve the loop. */
static void queue_pump(void *arg)
{
    enum { BATCH = 64 };
    struct lm_queue *queue = queue_hold(arg);
    struct lm_call *call = NULL;
    double soonest = INFINITY;
    uint64_t now = clock_ns();
    queue->soon = false;
    for (int n = 0; n < BATCH && (call = queue_choose(queue, now, &soonest)); n++)
        queue_begin(call);
    if (call)
        pump_soon(queue);
    else if (isfinite(soonest) && !queue->soon)
        timer_start(queue->timer, (uint64_t)ceil(soonest * 1000) + 1, 0);
    queue_sweep(queue, false);
    queue_release(queue);
}

struct lm_queue *lm_queue_new(struct loop *loop)
{
    struct lm_queue *queue = calloc(1, sizeof *queue);
    if (!queue)
        return NULL;
    queue->holders = 1;
    TAILQ_INIT(&queue->hosts);
    queue->timer = timer_new(loop, queue_pump, queue);
    if (!queue->timer) {
        free(queue);
        return NULL;
    }
    return queue;
}

void lm_queue_free(struct lm_queue *queue)
{
    if (queue)
        queue_release(queue);
}

struct lm_queue *queue_hold(struct lm_queue *queue)
{
    queue->holders++;
    return queue;
}

static struct host *find_host(struct lm_queue *queue, const char *name)
{
    struct host *host;
    TAILQ_FOREACH(host, &queue->hosts, link)
    if (strcmp(host->name, name) == 0)
        return host;
    host = calloc(1, sizeof *host);
    if (!host || !(host->name = strdup(name))) {
        free(host);
        return NULL;
    }
    host->queue = queue;
    TAILQ_INIT(&host->lanes);
    TAILQ_INSERT_TAIL(&queue->hosts, host, link);
    return host;
}

static struct lane *find_lane(struct host *host, const char *model)
{
    struct lane *lane;
    TAILQ_FOREACH(lane, &host->lanes, link)
    if (strcmp(lane->model, model) == 0)
        return lane;
    lane = calloc(1, sizeof *lane);
    if (!lane || !(lane->model = strdup(model))) {
        free(lane);
        return NULL;
    }
    lane->host = host;
    TAILQ_INIT(&lane->waiting);
    TAILQ_INIT(&lane->running);
    TAILQ_INSERT_TAIL(&host->lanes, lane, link);
    return lane;
}

int queue_join(struct lm_queue *queue, const struct queue_place *place, queue_begin_fn *begin_fn,
    struct lm_call *call, struct error *err)
{
    struct host *host = find_host(queue, place->host);
    struct lane *lane = host ? find_lane(host, place->model) : NULL;
    if (!lane)
        return error_memory(err);
    host->most = place->host_most;
    lane->most = place->model_most;
    call->lane = lane;
    call->begin = begin_fn;
    call->running = false;
    TAILQ_INSERT_TAIL(&lane->waiting, call, lane_link);
    pump_soon(queue);
    return 0;
}

void queue_leave(struct lm_call *call)
{
    struct lane *lane = call->lane;
    if (!lane)
        return;
    call->lane = NULL;
    TAILQ_REMOVE(call->running ? &lane->running : &lane->waiting, call, lane_link);
    if (call->running) {
        lane->active--;
        lane->host->active--;
    }
    pump_soon(lane->host->queue);
}

void queue_take(struct lm_call *call)
{
    struct limits_need need = need_of(call);
    limits_take(&call->lane->limits, &need, clock_ns());
}

void queue_learn(struct lm_call *call, limits_header_fn *header, void *arg)
{
    struct limits_need since = { 0 };
    struct lm_call *later = call;
    /* most servers report nothing, and there may be many calls */
    if (!limits_are_reported(header, arg))
        return;
    while ((later = TAILQ_NEXT(later, lane_link))) {
        struct limits_need need = need_of(later);
        for (size_t i = 0; i < LIMIT_COUNT; i++)
            since.of[i] += need.of[i];
    }
    limits_learn(&call->lane->limits, header, arg, &since, clock_ns());
}

void queue_pause(struct lm_call *call, double seconds)
{
    limits_pause(&call->lane->limits, seconds, clock_ns());
}
