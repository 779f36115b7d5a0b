/* serve/queue/open.c: opens the queue of a node, and does what is due four times a second. */
#include "serve/queue/queue.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/os/random.h"
#include "cluster/ledger.h"
#include "cluster/rates.h"
#include "cluster/registry.h"
#include "serve/log.h"
#include "serve/native/recipes.h"

enum { IDLE_TICKS = 4, DEPTH_TICKS = 8 };

/* ---- limits of models, which the nodes share ---- */

static void queue_on_slice(
    void *arg, uint64_t ticket, const struct rate_slice *granted, int64_t wait_ms)
{
    struct run_queue *q = arg;
    droste_rate_slice slice = { 0 };
    if (granted)
        slice = (droste_rate_slice){ granted->second,
            { granted->amount.requests, granted->amount.tokens } };
    droste_rate_grant(q->s->d, ticket, granted ? &slice : NULL, wait_ms);
    server_wake(q->s);
}

static void queue_on_rate(void *arg, const droste_rate_ask *ask)
{
    struct run_queue *q = arg;
    const struct rate_ask wanted = { .limit = { ask->limit.requests, ask->limit.tokens },
        .least = { ask->least.requests, ask->least.tokens },
        .most = { ask->most.requests, ask->most.tokens } };
    cleanup_free struct rate_slice *changes = calloc(ask->change_count + 1, sizeof *changes);
    size_t count = changes ? ask->change_count : 0;
    for (size_t i = 0; i < count; i++)
        changes[i] = (struct rate_slice){ ask->changes[i].second,
            { ask->changes[i].amount.requests, ask->changes[i].amount.tokens } };
    rates_take(q->rates, ask->model, ask->ticket, &wanted, changes, count, queue_on_slice, q);
}

/* ---- open and close ---- */

static void queue_on_word(void *arg, struct bus_message *m)
{
    struct run_queue *q = arg;
    if (strcmp(m->subject, "droste.run.word.queued") == 0) {
        queue_lanes_wake(q);
    } else if (strcmp(m->subject, "droste.run.word.ended") == 0) {
        queue_waiters_wake(q, m->data);
    } else {
        queue_run_cancel(q, m->data);
    }
    bus_message_free(m);
}

static void queue_on_depth(void *arg, const struct bus_answer *a)
{
    struct run_queue *q = arg;
    if (a->result == BUS_OK)
        q->s->figures->gauges[GAUGE_QUEUED] = a->messages;
}

static void queue_make(struct run_queue *q);

/* The servers may have been electing a leader, or too few of them. */
static void queue_make_again(struct run_queue *q)
{
    if (!q->is_ready && q->making == 0)
        queue_make(q);
    queue_lanes_make_again(q);
}

static void queue_on_tick(uv_timer_t *timer)
{
    struct run_queue *q = timer->data;
    if (q->s->worker == 0 && q->ticks % DEPTH_TICKS == 0) /* the figures of workers are added */
        bus_stream_info(q->bus, "droste_runs", queue_on_depth, q);
    queue_logs_tick(q);
    queue_runs_tick(q);
    queue_spending_tick(q);
    if (++q->ticks % IDLE_TICKS == 0) {
        queue_make_again(q);
        queue_waiters_wake(q, NULL);
        if (queue_is_ready(q) && !q->has_copies) {
            q->has_copies = true;
            queue_copies_find(q);
        }
        queue_copies_remove(q);
        queue_lanes_wake(q); /* the word of a run may have been lost */
    }
    queue_look(q);
}

static void queue_on_made(void *arg, const struct bus_answer *a)
{
    struct run_queue *q = arg;
    q->making--;
    if (a->result == BUS_OK)
        return;
    log_event(q->s, LOG_ERROR, "the queue of runs cannot be made: %s", a->why);
    q->is_ready = false;
}

/* It is ready when all are there. */
static void queue_make(struct run_queue *q)
{
    static const char *const queue[] = { "droste.run.queue.>", NULL };
    static const char *const logs[] = { "droste.run.log.>", NULL };
    static const char *const dead[] = { "droste.run.dead.>", NULL };
    const int64_t day_ms = 86400000;
    const struct bus_stream streams[] = {
        { .name = "droste_run_logs", .subjects = logs, .age_ms = 7 * day_ms },
        { .name = "droste_dead_runs", .subjects = dead, .age_ms = 30 * day_ms },
        { .name = "droste_runs", .subjects = queue, .retention = BUS_WORK, .age_ms = 7 * day_ms },
    };
    const struct bus_bucket lanes = { .name = "droste_lanes" };
    const struct bus_bucket volumes = { .name = "droste-volumes" }; /* native/volumes.c */
    q->is_ready = true;
    q->making = 6 + array_length(streams);
    ledger_make(q->ledger, queue_on_made, q);
    rates_make(q->rates, queue_on_made, q);
    bus_bucket_make(q->bus, &lanes, queue_on_made, q);
    bus_bucket_make(q->bus, &volumes, queue_on_made, q);
    recipes_make_bucket(q->bus, queue_on_made, q);
    queue_versions_make(q, queue_on_made, q);
    for (size_t i = 0; i < array_length(streams); i++)
        bus_stream_make(q->bus, &streams[i], queue_on_made, q);
}

int queue_open(struct server *s, struct error *err)
{
    const struct serve_options *o = s->options;
    struct run_queue *q = calloc(1, sizeof *q);
    if (!q)
        return error_memory(err);
    size_t workers = o->workers ? o->workers : 1;
    q->s = s;
    q->room = (o->runs + workers - 1) / workers;
    q->bus = registry_bus(s->nodes);
    q->take = queue_run_take;
    q->drop = queue_runs_drop;
    int rc = random_hex(q->owner, 16, err);
    if (rc == 0)
        rc = ledger_open(q->bus, &q->ledger, err);
    if (rc == 0)
        rc = rates_open(q->bus, q->owner, &q->rates, err);
    if (rc < 0) {
        ledger_close(q->ledger);
        free(q);
        return rc;
    }
    s->queue = q;
    droste_on_rate(s->d, queue_on_rate, q);
    uv_timer_init(&s->loop, &q->timer);
    q->timer.data = q;
    uv_timer_start(&q->timer, queue_on_tick, QUEUE_TICK_MS, QUEUE_TICK_MS);
    queue_make(q);
    rc = bus_watch(q->bus, "droste_lanes", ">", queue_on_lane, q, err);
    if (rc == 0)
        rc = queue_versions_watch(q, err);
    if (rc == 0)
        rc = queue_spending_watch(q, err);
    return rc < 0 ? rc : bus_subscribe(q->bus, "droste.run.word.*", NULL, queue_on_word, q, err);
}

void queue_close(struct server *s)
{
    struct run_queue *q = s->queue;
    if (!q)
        return;
    uv_timer_stop(&q->timer);
    bus_forget(q->bus, q);
    queue_spending_free(q);
    ledger_close(steal(&q->ledger));
    droste_on_rate(s->d, NULL, NULL);
    rates_close(steal(&q->rates));
    queue_copies_free(q);
    queue_lanes_free(q);
}
