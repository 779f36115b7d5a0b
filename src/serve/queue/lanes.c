/* serve/queue/lanes.c: the queue's lanes, from which this node fetches what it has room for.
 *
 * A lane is the messages of one key with one priority. Lanes of a higher priority come first; those
 * of the same priority take turns, so that a key with a thousand runs delays another's by one. A
 * bucket names the lanes, and each has a consumer that all nodes share.
 */
#include "serve/queue/queue.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "serve/log.h"

struct queue_lane {
    struct run_queue *q;
    unsigned priority;
    char key[KEY_ID_SIZE], name[BUS_NAME_MAX + 1];
    bool is_ready, has_failed;
    bool is_empty; /* the last fetch found nothing, and no run was queued since */
    uint64_t rests_until_ns;
    struct queue_lane *next;
};

enum { FETCH_MAX = 16 };

/* ---- fetch ---- */

static bool queue_lane_is_open(const struct queue_lane *l)
{
    return l->is_ready && !l->is_empty && clock_ns() >= l->rests_until_ns;
}

void queue_lanes_wake(struct run_queue *q)
{
    for (struct queue_lane *l = q->lanes; l; l = l->next)
        l->is_empty = false;
    queue_look(q);
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
    for (unsigned p = 0; p < QUEUE_PRIORITIES; p++) {
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
    l->is_empty = false;
    l->q->take(l->q, m);
}

static void queue_on_fetched(void *arg, const struct bus_answer *a)
{
    struct queue_lane *l = arg;
    l->q->is_fetching = false;
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
    l->is_empty = true; /* unless there is a message */
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
    l->is_empty = false;
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

void queue_on_lane(void *arg, const struct bus_entry *entry)
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

void queue_lanes_make_again(struct run_queue *q)
{
    for (struct queue_lane *l = q->lanes; l; l = l->next)
        if (l->has_failed)
            queue_lane_make(l);
}

void queue_lanes_free(struct run_queue *q)
{
    while (q->lanes) {
        struct queue_lane *l = q->lanes;
        bus_forget(q->bus, l);
        q->lanes = l->next;
        free(l);
    }
}
