/* serve/queue/versions.c: runs of an old version, which end instead of being done.
 *
 * A client that trains a model gives its runs the version of the policy that they use. Once it has
 * trained a newer one, it has no use for runs of older ones, and says so: the bucket
 * droste_versions has, for each key, the oldest version that is still wanted. A node reads it when
 * it takes a run that has a version, so none begins that is stale; and it watches the bucket, to
 * cancel those that it is doing.
 */
#include <stdlib.h>
#include <string.h>

#include "serve/native/runs.h"
#include "serve/queue/queue.h"

static const char versions_bucket[] = "droste_versions";

void queue_versions_make(struct run_queue *q, bus_done_fn *done, void *arg)
{
    bus_bucket_make(q->bus, &(struct bus_bucket){ .name = versions_bucket }, done, arg);
}

/* A value that is no number says nothing. */
static int64_t queue_version_parse(const char *data)
{
    int64_t number = data ? run_parse_number(data) : 0;
    return number < 0 ? 0 : number;
}

void queue_version_ask(struct run_queue *q, const char *key, bus_done_fn *done, void *arg)
{
    bus_get(q->bus, versions_bucket, key, done, arg);
}

int64_t queue_version_wanted(const struct bus_answer *a)
{
    return a->result == BUS_NOT_FOUND ? 0 : a->result == BUS_OK ? queue_version_parse(a->data) : -1;
}

static void queue_on_version(void *arg, const struct bus_entry *entry)
{
    struct run_queue *q = arg;
    if (entry->key && entry->data)
        q->drop(q, entry->key, queue_version_parse(entry->data));
}

int queue_versions_watch(struct run_queue *q, struct error *err)
{
    return bus_watch(q->bus, versions_bucket, ">", queue_on_version, q, err);
}

/* ---- over HTTP ---- */

struct queue_drop {
    struct request *r; /* NULL: its client has gone */
};

static void queue_drop_on_gone(struct request *r)
{
    struct queue_drop *drop = r->state;
    drop->r = NULL;
}

static void queue_drop_on_written(void *arg, const struct bus_answer *a)
{
    struct queue_drop *drop = arg;
    struct request *r = drop->r;
    if (r) {
        r->on_gone = NULL;
        r->state = NULL;
    }
    if (r && a->result == BUS_OK)
        request_reply(r, 204, NULL, NULL, 0);
    else if (r)
        queue_refuse_bus(r, a);
    free(drop);
}

void handle_queue_drop(struct request *r)
{
    struct run_queue *q = queue_of(r);
    const char *text = q ? request_query(r, "before_version", "") : NULL;
    if (!text)
        return;
    if (run_parse_number(text) < 0) {
        request_refuse(r, 400, "argument", "before_version is a number");
        return;
    }
    struct queue_drop *drop = request_alloc(r, sizeof *drop);
    if (!drop)
        return;
    drop->r = r;
    r->state = drop;
    r->on_gone = queue_drop_on_gone;
    bus_put(
        q->bus, versions_bucket, queue_key_of(r), text, strlen(text), queue_drop_on_written, drop);
}
