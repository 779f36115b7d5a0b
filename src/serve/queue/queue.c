/* serve/queue/queue.c: the queue's lanes, from which this node fetches what it has room for.
 *
 * A lane is the messages of one key with one priority. Lanes of a higher priority come first; those
 * of the same priority take turns, so that a key with a thousand runs delays another's by one. A
 * bucket names the lanes, and each has a consumer that all nodes share.
 */
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

struct queue_lane {
    struct run_queue *q;
    unsigned priority;
    char key[KEY_ID_SIZE], name[BUS_NAME_MAX + 1];
    bool is_ready, has_failed;
    uint64_t rests_until_ns;
    struct queue_lane *next;
};

enum { FETCH_MAX = 16, IDLE_TICKS = 4, DEPTH_TICKS = 8 };

/* ---- fetch ---- */

static bool queue_lane_is_open(const struct queue_lane *l)
{
    return l->is_ready && clock_ns() >= l->rests_until_ns;
}

void queue_rest(struct run_queue *q, const char *key, int ms)
{
    for (struct queue_lane *l = q->lanes; l; l = l->next)
        if (strcmp(l->key, key) == 0)
            l->rests_until_ns = clock_ns() + (uint64_t)ms * 1000000u;
}

/* The lane whose turn it is; NULL: there is none. */
static struct queue_lane *queue_next_lane(struct run_queue *q)
{
    unsigned skipped = 0;
    for (unsigned p = 0; p < QUEUE_PRIORITIES; p++) {
        unsigned of_priority = 0;
        for (struct queue_lane *l = q->lanes; l; l = l->next)
            of_priority += l->priority == p && queue_lane_is_open(l);
        skipped += of_priority;
        if (of_priority == 0 || q->empty >= skipped)
            continue;
        struct queue_lane *l = q->turn[p] ? q->turn[p]->next : q->lanes;
        for (unsigned round = 0; round < 2; round++, l = q->lanes)
            for (; l; l = l->next)
                if (l->priority == p && queue_lane_is_open(l))
                    return q->turn[p] = l;
    }
    return NULL;
}

static void queue_on_message(void *arg, struct bus_message *m)
{
    struct queue_lane *l = arg;
    l->q->empty = 0;
    queue_run_take(l->q, m);
}

static void queue_on_fetched(void *arg, const struct bus_answer *a)
{
    struct queue_lane *l = arg;
    l->q->is_fetching = false;
    l->q->empty++;
    if (a->result == BUS_OK)
        queue_look(l->q);
}

void queue_look(struct run_queue *q)
{
    if (!queue_is_ready(q) || q->is_fetching || q->is_closing || q->s->draining ||
        q->count >= q->room || clock_ns() < q->paused_until_ns)
        return;
    struct queue_lane *l = queue_next_lane(q);
    if (!l)
        return;
    size_t share = (q->room - q->count) / (q->lane_count ? q->lane_count : 1);
    unsigned count = share < 1 ? 1 : share > FETCH_MAX ? FETCH_MAX : (unsigned)share;
    q->is_fetching = true;
    bus_fetch(q->bus, "droste_runs", l->name, count, 0, queue_on_message, queue_on_fetched, l);
}

/* ---- lanes ---- */

static void queue_on_consumer(void *arg, const struct bus_answer *a)
{
    struct queue_lane *l = arg;
    l->is_ready = a->result == BUS_OK;
    if (l->is_ready)
        l->q->lane_count++;
    else
        log_event(l->q->s, LOG_ERROR, "the queue of key %s cannot be read: %s", l->key, a->why);
    l->has_failed = !l->is_ready && a->result != BUS_REFUSED;
    l->q->empty = 0;
    queue_look(l->q);
}

static void queue_lane_make(struct queue_lane *l)
{
    char filter[BUS_SUBJECT_MAX + 1];
    l->has_failed = false;
    snprintf(filter, sizeof filter, "droste.run.queue.%u.%s", l->priority, l->key);
    const struct bus_consumer consumer = { .stream = "droste_runs",
        .name = l->name,
        .filter = filter,
        .ack_ms = QUEUE_LEASE_MS,
        .most_unacknowledged = 100000 };
    bus_consumer_make(l->q->bus, &consumer, queue_on_consumer, l);
}

/* A key of the bucket: "PRIORITY.KEY". */
static void queue_on_lane(void *arg, const struct bus_entry *entry)
{
    struct run_queue *q = arg;
    if (!entry->key || !entry->data || entry->key[0] < '0' ||
        entry->key[0] >= '0' + QUEUE_PRIORITIES || entry->key[1] != '.' ||
        strlen(entry->key + 2) >= KEY_ID_SIZE)
        return;
    unsigned priority = (unsigned)(entry->key[0] - '0');
    for (struct queue_lane *l = q->lanes; l; l = l->next)
        if (l->priority == priority && strcmp(l->key, entry->key + 2) == 0)
            return;
    struct queue_lane *l = calloc(1, sizeof *l);
    if (!l)
        return;
    l->q = q;
    l->priority = priority;
    snprintf(l->key, sizeof l->key, "%s", entry->key + 2);
    snprintf(l->name, sizeof l->name, "p%u-%s", priority, l->key);
    l->next = q->lanes;
    q->lanes = l;
    queue_lane_make(l);
}

bool queue_lane_announce(
    struct run_queue *q, unsigned priority, const char *key, bus_done_fn *done, void *arg)
{
    char name[KEY_ID_SIZE + 8];
    for (struct queue_lane *l = q->lanes; l; l = l->next)
        if (l->priority == priority && strcmp(l->key, key) == 0)
            return false;
    snprintf(name, sizeof name, "%u.%s", priority, key);
    bus_create(q->bus, "droste_lanes", name, "1", 1, done, arg);
    return true;
}

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
        q->empty = 0;
        queue_look(q);
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
    for (struct queue_lane *l = q->lanes; l; l = l->next)
        if (l->has_failed)
            queue_lane_make(l);
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
        q->empty = 0;
        queue_make_again(q);
        queue_waiters_wake(q, NULL);
        if (queue_is_ready(q) && !q->has_copies) {
            q->has_copies = true;
            queue_copies_find(q);
        }
        queue_copies_remove(q);
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
    while (q->lanes) {
        struct queue_lane *l = q->lanes;
        bus_forget(q->bus, l);
        q->lanes = l->next;
        free(l);
    }
}
