/* cluster/bucket.c: buckets of the bus: keys and values in a stream (NATS' ADR-8).
 *
 * The bucket B is the stream KV_B, with the last message of each subject $KV.B.KEY; its sequence is
 * the revision. A watch is a consumer without acknowledgements that delivers to a subscription of
 * its own: first the last message of each subject, then what is published. If one is missing, by
 * its number, or nothing was heard for some heartbeats, another consumer begins from the start.
 */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/json/fields.h"
#include "cluster/jetstream.h"

enum { WATCH_HEARTBEAT_MS = 1000, WATCH_SILENCE_MS = 3000, WATCH_RETRY_MS = 250 };

/* The bucket's stream; false: the name is not valid. */
static bool bucket_stream(const char *bucket, char out[BUS_NAME_MAX + 1])
{
    bool is_ok = bus_name_is_ok(bucket) && strlen(bucket) <= BUS_NAME_MAX - 3;
    snprintf(out, BUS_NAME_MAX + 1, "KV_%s", is_ok ? bucket : "");
    return is_ok;
}

static bool bucket_subject(
    const char *bucket, const char *key, bool may_be_filter, char out[BUS_SUBJECT_MAX + 1])
{
    bool is_ok = bus_name_is_ok(bucket) && bus_subject_is_ok(key, may_be_filter);
    size_t len = is_ok ? (size_t)snprintf(out, BUS_SUBJECT_MAX + 1, "$KV.%s.%s", bucket, key) : 0;
    return is_ok && len <= BUS_SUBJECT_MAX;
}

void bus_bucket_make(struct bus *b, const struct bus_bucket *bucket, bus_done_fn *done, void *arg)
{
    char stream[BUS_NAME_MAX + 1], subject[BUS_SUBJECT_MAX + 1] = "";
    const char *const subjects[] = { subject, NULL };
    bool is_ok =
        bucket_stream(bucket->name, stream) && bucket_subject(bucket->name, ">", true, subject);
    const struct bus_stream s = { .name = is_ok ? stream : "",
        .subjects = subjects,
        .age_ms = bucket->ttl_ms,
        .bytes = bucket->bytes,
        .messages_of_subject = 1,
        .is_in_memory = bucket->is_in_memory };
    stream_make(b, &s, true, bucket->value_max, done, arg);
}

void bus_get(struct bus *b, const char *bucket, const char *key, bus_done_fn *done, void *arg)
{
    char stream[BUS_NAME_MAX + 1], subject[BUS_SUBJECT_MAX + 1];
    bool is_ok = bucket_stream(bucket, stream) && bucket_subject(bucket, key, false, subject);
    bus_stream_last(b, is_ok ? stream : "", is_ok ? subject : "", done, arg);
}

static void bucket_publish(struct bus *b, const char *bucket, const char *key, const void *data,
    size_t len, const char *operation, const uint64_t *revision, bus_done_fn *done, void *arg)
{
    char subject[BUS_SUBJECT_MAX + 1];
    struct call *c = call_new(b, BUS_TIMEOUT_MS, api_take, done, arg);
    if (!c)
        return;
    if (bucket_subject(bucket, key, false, subject))
        publish_send(c, subject, data, len, NULL, operation, revision);
    else
        call_end_early(c, BUS_REFUSED, "the bucket's name or the key is not valid");
}

void bus_put(struct bus *b, const char *bucket, const char *key, const void *data, size_t len,
    bus_done_fn *done, void *arg)
{
    bucket_publish(b, bucket, key, data, len, NULL, NULL, done, arg);
}

void bus_update(struct bus *b, const char *bucket, const char *key, uint64_t revision,
    const void *data, size_t len, bus_done_fn *done, void *arg)
{
    bucket_publish(b, bucket, key, data, len, NULL, &revision, done, arg);
}

void bus_delete(struct bus *b, const char *bucket, const char *key, uint64_t revision,
    bus_done_fn *done, void *arg)
{
    bucket_publish(b, bucket, key, "", 0, "DEL", revision > 0 ? &revision : NULL, done, arg);
}

/* ---- creating ---- */

/* A key that was deleted has a message, with the mark of that, which a new value replaces. */
struct create {
    char stream[BUS_NAME_MAX + 1], subject[BUS_SUBJECT_MAX + 1];
    size_t len;
    char data[];
};

static void create_take_mark(struct call *c, nats_message *m)
{
    const struct create *create = c->state;
    uint64_t sequence;
    if (stored_read_mark(c->b, m, &sequence)) {
        c->take = api_take;
        publish_send(c, create->subject, create->data, create->len, NULL, NULL, &sequence);
    } else {
        call_end_as(c, BUS_CONFLICT, "the key has a value");
    }
}

static void create_take(struct call *c, nats_message *m)
{
    const struct create *create = c->state;
    struct api_answer read;
    api_read(c->b, m, &read);
    if (read.answer.result == BUS_CONFLICT) {
        c->take = create_take_mark;
        stored_send(c, create->stream, create->subject);
    } else {
        call_end(c, &read.answer);
    }
    json_object_put(read.tree);
}

void bus_create(struct bus *b, const char *bucket, const char *key, const void *data, size_t len,
    bus_done_fn *done, void *arg)
{
    const uint64_t none = 0;
    struct call *c = call_new(b, BUS_TIMEOUT_MS, create_take, done, arg);
    if (!c)
        return;
    struct create *create = len <= BUS_MESSAGE_MAX ? calloc(1, sizeof *create + len) : NULL;
    c->state = create;
    if (!create || !bucket_stream(bucket, create->stream) ||
        !bucket_subject(bucket, key, false, create->subject)) {
        call_end_early(c, BUS_REFUSED, "the bucket's name, the key or the value is not valid");
        return;
    }
    create->len = len;
    memcpy(create->data, data, len);
    publish_send(c, create->subject, data, len, NULL, NULL, &none);
}

/* ---- watching ---- */

struct watch {
    struct bus *b;
    struct subscription *subscription;
    bus_entry_fn *on_entry;
    char stream[BUS_NAME_MAX + 1], filter[BUS_SUBJECT_MAX + 1];
    char consumer[80];
    size_t prefix_len; /* of "$KV.BUCKET." */
    uint64_t received; /* from this consumer */
    uint64_t expected; /* of it, until all that was there has come; UINT64_MAX: not yet known */
    bool is_complete;  /* all that was there has come */
};

static void watch_remove_consumer(struct watch *w)
{
    char subject[BUS_SUBJECT_MAX + 1];
    if (!w->consumer[0])
        return;
    snprintf(subject, sizeof subject, "$JS.API.CONSUMER.DELETE.%s.%s", w->stream, w->consumer);
    bus_send(w->b, subject, "", 0);
    w->consumer[0] = '\0';
}

static void watch_drop(void *state)
{
    struct watch *w = state;
    watch_remove_consumer(w);
    if (w->subscription)
        subscription_end(w->subscription);
    free(w);
}

static void watch_wait(struct call *c, int ms)
{
    c->deadline_ns = clock_ns() + (uint64_t)ms * 1000000u;
}

static void watch_complete(struct call *c)
{
    struct watch *w = c->state;
    if (w->is_complete)
        return;
    w->is_complete = true;
    w->on_entry(c->arg, &(struct bus_entry){ 0 });
}

/* All is there when as many messages have come as waited at first. How many wait then, as each
 * message says, is too many for ever if the server counted one that was replaced meanwhile.
 *
 * A new consumer, from the start, with a subscription of its own: the server looks for interest in
 * exactly the subject to which it delivers. */
static void watch_renew(struct call *c)
{
    cleanup_buf struct buf body = { 0 };
    char subject[BUS_SUBJECT_MAX + 1];
    struct watch *w = c->state;
    watch_wait(c, WATCH_SILENCE_MS);
    watch_remove_consumer(w);
    if (!c->b->is_connected)
        return;
    if (w->subscription)
        subscription_end(w->subscription);
    w->subscription = c->subscription = subscription_new(c->b, true);
    if (!w->subscription)
        return;
    w->subscription->call = c;
    w->received = 0;
    w->expected = UINT64_MAX;
    w->is_complete = false;
    snprintf(w->consumer, sizeof w->consumer, "%s", w->subscription->inbox + strlen("_INBOX."));
    snprintf(subject, sizeof subject, "$JS.API.CONSUMER.CREATE.%s.%s", w->stream, w->consumer);
    field_open(&body, NULL, '{');
    field_string(&body, "stream_name", w->stream);
    field_open(&body, "config", '{');
    field_string(&body, "name", w->consumer);
    field_string(&body, "deliver_subject", w->subscription->inbox);
    field_string(&body, "deliver_policy", "last_per_subject");
    field_string(&body, "filter_subject", w->filter);
    field_string(&body, "ack_policy", "none");
    field_string(&body, "replay_policy", "instant");
    field_int(&body, "max_deliver", 1);
    field_int(&body, "idle_heartbeat", (int64_t)WATCH_HEARTBEAT_MS * 1000000);
    field_bool(&body, "mem_storage", true);
    field_int(&body, "num_replicas", 1);
    field_close(&body, '}');
    field_close(&body, '}');
    call_send(c, subject, buf_text(&body), body.len, NULL);
}

static void watch_take(struct call *c, nats_message *m)
{
    struct watch *w = c->state;
    struct api_answer read;
    api_read(c->b, m, &read);
    enum bus_result result = read.answer.result;
    struct json_object *delivered = json_get_typed(read.tree, "delivered", json_type_object);
    int64_t before = delivered ? json_get_int(delivered, "consumer_seq", 0) : 0;
    json_object_put(read.tree);
    if (result != BUS_OK) {
        w->consumer[0] = '\0';
        watch_wait(c, WATCH_RETRY_MS); /* the bucket may come */
        return;
    }
    w->expected = (uint64_t)before + read.answer.messages;
    if (w->received >= w->expected)
        watch_complete(c);
}

/* Says the number of the last message, which may have been lost. Nothing else waits. */
static void watch_take_heartbeat(struct call *c, nats_message *m)
{
    struct watch *w = c->state;
    const char *last = message_field(c->b, m, "Nats-Last-Consumer");
    if (last && strtoull(last, NULL, 10) > w->received)
        watch_renew(c);
    else
        watch_wait(c, WATCH_SILENCE_MS);
    if (last && strtoull(last, NULL, 10) == w->received)
        watch_complete(c);
}

static void watch_receive(struct call *c, nats_message **m)
{
    struct watch *w = c->state;
    struct message_origin origin;
    const struct nats_library *nats = c->b->nats;
    const char *subject = nats->subject(*m);
    if (!message_read_origin(nats->reply(*m), &origin)) {
        watch_take_heartbeat(c, *m);
        return;
    }
    bool is_current = strlen(w->consumer) == origin.consumer_len &&
                      memcmp(w->consumer, origin.consumer, origin.consumer_len) == 0;
    if (!is_current || strncmp(subject, w->filter, w->prefix_len) != 0)
        return;
    if (origin.consumer_sequence != w->received + 1) {
        watch_renew(c);
        return;
    }
    w->received++;
    watch_wait(c, WATCH_SILENCE_MS);
    const char *operation = message_field(c->b, *m, "KV-Operation");
    const char *data = nats->data(*m);
    struct bus_entry entry = { .key = subject + w->prefix_len,
        .data = operation ? NULL
                : data    ? data
                          : "",
        .len = operation ? 0 : (size_t)nats->length(*m),
        .revision = origin.sequence,
        .written_ms = (int64_t)(origin.time_ns / 1000000) };
    size_t slot = c->slot;
    uint32_t generation = c->generation;
    struct bus *b = c->b;
    w->on_entry(c->arg, &entry);
    bool is_there = b->calls[slot] == c && c->generation == generation; /* not forgotten */
    if (is_there && (origin.waiting == 0 || w->received >= w->expected))
        watch_complete(c);
}

int bus_watch(struct bus *b, const char *bucket, const char *filter, bus_entry_fn *on_entry,
    void *arg, struct error *err)
{
    struct watch *w = calloc(1, sizeof *w);
    if (!w)
        return error_memory(err);
    if (!bucket_stream(bucket, w->stream) || !bucket_subject(bucket, filter, true, w->filter)) {
        free(w);
        return error_set(err, ERROR_ARGUMENT, "the name of a bucket or a filter is not valid");
    }
    w->b = b;
    w->on_entry = on_entry;
    w->prefix_len = strlen("$KV..") + strlen(bucket);
    struct call *c = call_new(b, -1, watch_take, NULL, arg);
    if (!c) {
        free(w);
        return error_set(err, ERROR_IO, "watching the bucket '%s': too many operations", bucket);
    }
    c->state = w;
    c->drop = watch_drop;
    c->receive = watch_receive;
    c->renew = watch_renew;
    watch_renew(c);
    return 0;
}
