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
    struct allowance allowance;
    unsigned late; /* calls of `running` that wait for an allowance */
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
    struct lm_share share;
    uint64_t tickets;
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
            if (all || (empty && limits_are_idle(&lane->limits, now) &&
                           allowance_is_idle(&lane->allowance)))
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

static struct rate_amount rate_need_of(const struct lm_call *call)
{
    int64_t tokens = (int64_t)call->input_bytes / 4 + call->request.max_tokens;
    return (struct rate_amount){ 1, tokens > 0 ? tokens : 1 };
}

static struct allowance_of lane_allowance_of(struct lane *lane)
{
    struct lm_queue *queue = lane->host->queue;
    return (struct allowance_of){ &queue->share, lane->host->name, lane->model, &queue->tickets };
}

static void rate_need_add(struct rate_amount *sum, const struct lm_call *call)
{
    struct rate_amount need = rate_need_of(call);
    sum->requests += need.requests;
    sum->tokens += need.tokens;
}

/* Asks for the call, and for those that could begin behind it. */
static double lane_ask(struct lane *lane, const struct lm_call *call)
{
    struct rate_amount most = { 0 };
    unsigned room =
        lane->host->most > lane->host->active ? lane->host->most - lane->host->active : 0;
    const struct lm_call *other;
    rate_need_add(&most, call);
    TAILQ_FOREACH(other, &lane->running, lane_link)
    if (lane->late > 0 && other->is_late && other != call)
        rate_need_add(&most, other);
    TAILQ_FOREACH(other, &lane->waiting, lane_link)
    {
        if (room-- == 0)
            break;
        if (other != call)
            rate_need_add(&most, other);
    }
    const struct allowance_of of = lane_allowance_of(lane);
    return allowance_ask(&lane->allowance, &of, rate_need_of(call), most);
}

/* Seconds until the call may have its allowance; 0: it is there. Those that have begun and wait
 * come before those that have not. */
static double lane_wait(struct lane *lane, const struct lm_call *call)
{
    struct rate_amount need = rate_need_of(call);
    double wait = 0;
    if (!allowance_is_limited(&lane->allowance))
        return 0;
    if (lane->late > 0 && !call->is_late)
        return INFINITY;
    if (!allowance_has(&lane->allowance, need))
        wait = lane_ask(lane, call);
    return wait > 0 ? wait : allowance_has(&lane->allowance, need) ? 0 : 0.001;
}

/* The first call of the lane that may begin; otherwise lowers *soonest to the time when it may. */
static struct lm_call *next_call(struct lane *lane, uint64_t now, double *soonest)
{
    struct lm_call *call = TAILQ_FIRST(&lane->waiting);
    if (!call || (lane->most > 0 && lane->active >= lane->most))
        return NULL;
    struct limits_need need = need_of(call);
    double wait = limits_wait(&lane->limits, &need, now);
    if (wait <= 0)
        wait = lane_wait(lane, call);
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
    allowance_reserve(&lane->allowance, rate_need_of(call), &call->reserved);
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

/* Lowers *soonest to the time when the others of a lane must be told of something. */
static void queue_tell(struct lm_queue *queue, double *soonest)
{
    struct host *host;
    struct lane *lane;
    TAILQ_FOREACH(host, &queue->hosts, link)
    TAILQ_FOREACH(lane, &host->lanes, link)
    {
        const struct allowance_of of = lane_allowance_of(lane);
        *soonest = fmin(*soonest, allowance_tell(&lane->allowance, &of));
    }
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
    queue_tell(queue, &soonest);
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
    lane->allowance.limit = place->rate;
    call->lane = lane;
    call->begin = begin_fn;
    call->running = false;
    TAILQ_INSERT_TAIL(&lane->waiting, call, lane_link);
    pump_soon(queue);
    return 0;
}

static void lane_set_late(struct lane *lane, struct lm_call *call, bool is_late)
{
    if (call->is_late == is_late)
        return;
    call->is_late = is_late;
    lane->late += is_late ? 1 : -1u;
    pump_soon(lane->host->queue);
}

void queue_leave(struct lm_call *call)
{
    struct lane *lane = call->lane;
    if (!lane)
        return;
    allowance_return(&lane->allowance, &call->reserved);
    lane_set_late(lane, call, false);
    call->lane = NULL;
    TAILQ_REMOVE(call->running ? &lane->running : &lane->waiting, call, lane_link);
    if (call->running) {
        lane->active--;
        lane->host->active--;
    }
    pump_soon(lane->host->queue);
}

double queue_take(struct lm_call *call)
{
    enum { LATE_MS = 100 };
    struct lane *lane = call->lane;
    struct limits_need need = need_of(call);
    if (call->reserved.until_ns > 0 && hold_clock_ns() >= call->reserved.until_ns)
        allowance_return(&lane->allowance, &call->reserved);
    if (call->reserved.until_ns == 0) {
        lane_set_late(lane, call, true);
        if (lane_wait(lane, call) > 0)
            return LATE_MS / 1000.0;
        allowance_reserve(&lane->allowance, rate_need_of(call), &call->reserved);
    }
    lane_set_late(lane, call, false);
    call->sent = call->reserved;
    call->reserved = (struct allowance_part){ 0 };
    limits_take(&lane->limits, &need, clock_ns());
    return 0;
}

void queue_settle(struct lm_call *call, int64_t tokens)
{
    if (call->lane && call->sent.until_ns > 0)
        allowance_settle(&call->lane->allowance, &call->sent, tokens);
}

void lm_queue_share(struct lm_queue *queue, const struct lm_share *share)
{
    queue->share = *share;
}

void lm_queue_grant(
    struct lm_queue *queue, uint64_t ticket, const struct rate_slice *granted, int64_t wait_ms)
{
    struct host *host;
    struct lane *lane;
    TAILQ_FOREACH(host, &queue->hosts, link)
    TAILQ_FOREACH(lane, &host->lanes, link)
    if (lane->allowance.ticket == ticket)
        allowance_grant(&lane->allowance, granted, wait_ms);
    pump_soon(queue);
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
