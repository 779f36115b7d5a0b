/* cluster/jetstream.c: streams, consumers and buckets of the bus, as requests to JetStream.
 *
 * What the server answers is checked by our own reader of JSON, with bounds. The subjects and
 * fields are those of NATS' ADR-1 (the API of JetStream), ADR-8 (buckets) and ADR-13 (pulling).
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/json/fields.h"
#include "base/text.h"
#include "cluster/jetstream.h"

static const struct json_limits api_limits = { 4u << 20, 16, 20000 };

/* ---- answers of the interface ---- */

/* By the server's err_code; others by the status of HTTP that comes with it. */
static enum bus_result api_result(int code, int err_code)
{
    static const struct {
        int err_code;
        enum bus_result result;
    } rows[] = {
        { 10071, BUS_CONFLICT },      /* wrong last sequence */
        { 10164, BUS_CONFLICT },      /* the same, without the sequence */
        { 10070, BUS_CONFLICT },      /* wrong last message id */
        { 10077, BUS_FULL },          /* maximum of messages, or of bytes */
        { 10047, BUS_FULL },          /* storage */
        { 10028, BUS_FULL },          /* memory */
        { 10014, BUS_NOT_FOUND },     /* consumer */
        { 10037, BUS_NOT_FOUND },     /* message */
        { 10043, BUS_NOT_FOUND },     /* sequence */
        { 10059, BUS_NOT_FOUND },     /* stream */
        { 10005, BUS_NO_RESPONDERS }, /* too few servers are there for the replicas */
    };
    for (size_t i = 0; i < array_length(rows); i++)
        if (rows[i].err_code == err_code)
            return rows[i].result;
    return code == 404 ? BUS_NOT_FOUND : code == 503 ? BUS_NO_RESPONDERS : BUS_REFUSED;
}

/* Reads what an answer has of what any of them may have. `text`: for the reason of a failure. */
void api_read(const struct bus *b, nats_message *m, struct api_answer *out)
{
    struct bus_answer *a = &out->answer;
    *out = (struct api_answer){ .answer.result = BUS_REFUSED, .answer.why = "" };
    if (message_status(b, m) == 503) {
        a->result = BUS_NO_RESPONDERS;
        a->why = "no stream has this subject, or JetStream is not enabled";
        return;
    }
    const char *data = b->nats->data(m);
    if (json_parse(data ? data : "", (size_t)b->nats->length(m), &api_limits, &out->tree, NULL) <
            0 ||
        !json_object_is_type(out->tree, json_type_object)) {
        a->why = "the NATS server's answer is not what JetStream promises";
        return;
    }
    struct json_object *o = out->tree, *error = json_get_typed(o, "error", json_type_object);
    if (error) {
        out->err_code = (int)json_get_int(error, "err_code", 0);
        a->result = api_result((int)json_get_int(error, "code", 0), out->err_code);
        a->why = json_get_string(error, "description", "the NATS server refused it");
        return;
    }
    struct json_object *state = json_get_typed(o, "state", json_type_object);
    a->result = BUS_OK;
    a->sequence = (uint64_t)json_get_int(o, "seq", state ? json_get_int(state, "last_seq", 0) : 0);
    a->is_duplicate = json_get_bool(o, "duplicate", false);
    a->messages = (uint64_t)json_get_int(o, "purged", json_get_int(o, "num_pending", 0));
    a->unacknowledged = (uint64_t)json_get_int(o, "num_ack_pending", 0);
    if (state) {
        a->messages = (uint64_t)json_get_int(state, "messages", 0);
        a->bytes = (uint64_t)json_get_int(state, "bytes", 0);
    }
}

void api_take(struct call *c, nats_message *m)
{
    struct api_answer read;
    api_read(c->b, m, &read);
    call_end(c, &read.answer);
    json_object_put(read.tree);
}

/* A call of the interface whose name, stream and consumer make the subject. The names were checked
 * if `are_ok`. */
static void api_call(struct call *c, bool are_ok, const struct buf *body, const char *subject)
{
    if (!are_ok)
        call_end_early(c, BUS_REFUSED, "a name or subject is not valid");
    else if (body && buf_failed(body))
        call_end_early(c, BUS_DISCONNECTED, "there is not enough memory");
    else
        call_send(c, subject, body ? buf_text(body) : "", body ? body->len : 0, NULL);
}

static void api_subject(
    char out[BUS_SUBJECT_MAX + 1], const char *operation, const char *stream, const char *consumer)
{
    snprintf(out, BUS_SUBJECT_MAX + 1, "$JS.API.%s.%s%s%s", operation, stream, consumer ? "." : "",
        consumer ? consumer : "");
}

/* ---- streams ---- */

static void stream_write(
    const struct bus_stream *s, int replicas, bool is_bucket, int64_t value_max, struct buf *out)
{
    field_open(out, NULL, '{');
    field_string(out, "name", s->name);
    field_open(out, "subjects", '[');
    for (size_t i = 0; s->subjects[i]; i++)
        field_string(out, NULL, s->subjects[i]);
    field_close(out, ']');
    field_string(out, "retention", s->retention == BUS_WORK ? "workqueue" : "limits");
    field_string(out, "storage", s->is_in_memory ? "memory" : "file");
    field_string(out, "discard", s->refuses_when_full || is_bucket ? "new" : "old");
    field_int(out, "num_replicas", replicas);
    field_int(out, "max_consumers", -1);
    field_int(out, "max_msgs", s->messages ? s->messages : -1);
    field_int(out, "max_bytes", s->bytes ? s->bytes : -1);
    field_int(out, "max_age", s->age_ms * 1000000);
    field_int(out, "max_msgs_per_subject", s->messages_of_subject ? s->messages_of_subject : -1);
    field_int(out, "max_msg_size", value_max ? value_max : -1);
    int64_t duplicates_ms = s->duplicates_ms ? s->duplicates_ms : 120000;
    if (s->age_ms && duplicates_ms > s->age_ms) /* the server refuses a longer time */
        duplicates_ms = s->age_ms;
    field_int(out, "duplicate_window", duplicates_ms * 1000000);
    field_bool(out, "allow_rollup_hdrs", is_bucket);
    field_bool(out, "deny_delete", is_bucket);
    field_close(out, '}');
}

/* What the second attempt of a stream needs, for a server that stands alone. */
struct stream_alone {
    char subject[BUS_SUBJECT_MAX + 1];
    struct buf body;
};

static void stream_alone_drop(void *state)
{
    struct stream_alone *alone = state;
    if (alone)
        buf_free(&alone->body);
    free(alone);
}

enum { STREAM_EXISTS = 10058, STREAM_STANDS_ALONE = 10074 };

static void stream_take_made(struct call *c, nats_message *m)
{
    struct api_answer read;
    struct stream_alone *alone = c->state;
    api_read(c->b, m, &read);
    if (read.err_code == STREAM_STANDS_ALONE && alone->body.len > 0) {
        call_send(c, alone->subject, buf_text(&alone->body), alone->body.len, NULL);
        buf_clear(&alone->body);
    } else {
        if (read.err_code == STREAM_EXISTS)
            read.answer.result = BUS_OK;
        call_end(c, &read.answer);
    }
    json_object_put(read.tree);
}

static bool stream_is_ok(const struct bus_stream *s)
{
    bool is_ok = bus_name_is_ok(s->name) && s->subjects && s->subjects[0];
    for (size_t i = 0; is_ok && s->subjects[i]; i++)
        is_ok = bus_subject_is_ok(s->subjects[i], true);
    return is_ok;
}

void stream_make(struct bus *b, const struct bus_stream *s, bool is_bucket, int64_t value_max,
    bus_done_fn *done, void *arg)
{
    cleanup_buf struct buf body = { 0 };
    struct call *c = call_new(b, BUS_TIMEOUT_MS, stream_take_made, done, arg);
    struct stream_alone *alone = c ? calloc(1, sizeof *alone) : NULL;
    if (!c)
        return;
    if (!alone || !stream_is_ok(s)) {
        free(alone);
        call_end_early(c, BUS_REFUSED, "the name or a subject of the stream is not valid");
        return;
    }
    c->state = alone;
    c->drop = stream_alone_drop;
    api_subject(alone->subject, "STREAM.CREATE", s->name, NULL);
    if (b->options.replicas == 0)
        stream_write(s, 1, is_bucket, value_max, &alone->body);
    stream_write(s, b->options.replicas ? b->options.replicas : 3, is_bucket, value_max, &body);
    api_call(c, true, &body, alone->subject);
}

void bus_stream_make(struct bus *b, const struct bus_stream *stream, bus_done_fn *done, void *arg)
{
    stream_make(b, stream, false, 0, done, arg);
}

void bus_stream_info(struct bus *b, const char *stream, bus_done_fn *done, void *arg)
{
    char subject[BUS_SUBJECT_MAX + 1];
    struct call *c = call_new(b, BUS_TIMEOUT_MS, api_take, done, arg);
    if (!c)
        return;
    api_subject(subject, "STREAM.INFO", stream, NULL);
    api_call(c, bus_name_is_ok(stream), NULL, subject);
}

/* ---- the last message of a subject ---- */

static bool stored_is_deleted(struct json_object *stored)
{
    const char *text = json_get_string(stored, "hdrs", "");
    size_t len = 0;
    cleanup_free char *head = json_base64_bytes(text, strlen(text), &len);
    return head && (memmem(head, len, "KV-Operation: DEL", 17) ||
                       memmem(head, len, "KV-Operation: PURGE", 19));
}

bool stored_read_mark(const struct bus *b, nats_message *m, uint64_t *sequence)
{
    struct api_answer read;
    api_read(b, m, &read);
    struct json_object *stored = json_get_typed(read.tree, "message", json_type_object);
    bool is_mark = read.answer.result == BUS_OK && stored != NULL && stored_is_deleted(stored);
    *sequence = is_mark ? (uint64_t)json_get_int(stored, "seq", 0) : 0;
    json_object_put(read.tree);
    return is_mark;
}

/* "2026-11-28T09:31:14.123456789Z"; 0: it is none. */
static int64_t stored_time_ms(const char *text)
{
    struct tm tm = { 0 };
    const char *rest = strptime(text, "%Y-%m-%dT%H:%M:%S", &tm);
    double fraction = rest && *rest == '.' ? text_to_double(rest, NULL) : 0;
    return rest ? (int64_t)timegm(&tm) * 1000 + (int64_t)(fraction * 1000) : 0;
}

static void stored_take(struct call *c, nats_message *m)
{
    struct api_answer read;
    cleanup_free char *data = NULL;
    api_read(c->b, m, &read);
    struct json_object *stored = json_get_typed(read.tree, "message", json_type_object);
    if (read.answer.result == BUS_OK) {
        const char *text = stored ? json_get_string(stored, "data", "") : "";
        data = json_base64_bytes(text, strlen(text), &read.answer.len);
        read.answer.data = data;
        read.answer.sequence = stored ? (uint64_t)json_get_int(stored, "seq", 0) : 0;
        read.answer.stored_ms = stored ? stored_time_ms(json_get_string(stored, "time", "")) : 0;
        if (!stored || !data) {
            read.answer.result = BUS_REFUSED;
            read.answer.why = "the NATS server's answer is not what JetStream promises";
        } else if (stored_is_deleted(stored)) {
            read.answer.result = BUS_NOT_FOUND;
            read.answer.why = "the key was deleted";
            read.answer.data = NULL;
        }
    }
    call_end(c, &read.answer);
    json_object_put(read.tree);
}

void stored_send(struct call *c, const char *stream, const char *subject)
{
    cleanup_buf struct buf body = { 0 };
    char api[BUS_SUBJECT_MAX + 1];
    api_subject(api, "STREAM.MSG.GET", stream, NULL);
    field_open(&body, NULL, '{');
    field_string(&body, "last_by_subj", subject);
    field_close(&body, '}');
    api_call(c, bus_name_is_ok(stream) && bus_subject_is_ok(subject, false), &body, api);
}

void bus_stream_last(
    struct bus *b, const char *stream, const char *subject, bus_done_fn *done, void *arg)
{
    struct call *c = call_new(b, BUS_TIMEOUT_MS, stored_take, done, arg);
    if (c)
        stored_send(c, stream, subject);
}

void bus_stream_next(struct bus *b, const char *stream, const char *subject, uint64_t sequence,
    bus_done_fn *done, void *arg)
{
    cleanup_buf struct buf body = { 0 };
    char api[BUS_SUBJECT_MAX + 1];
    struct call *c = call_new(b, BUS_TIMEOUT_MS, stored_take, done, arg);
    if (!c)
        return;
    api_subject(api, "STREAM.MSG.GET", stream, NULL);
    field_open(&body, NULL, '{');
    field_int(&body, "seq", (int64_t)sequence);
    field_string(&body, "next_by_subj", subject);
    field_close(&body, '}');
    api_call(c, bus_name_is_ok(stream) && bus_subject_is_ok(subject, true), &body, api);
}

/* ---- publications ---- */

void publish_send(struct call *c, const char *subject, const void *data, size_t len, const char *id,
    const char *operation, const uint64_t *expected)
{
    struct field fields[4] = { 0 };
    char sequence[24];
    size_t n = 0;
    if (id)
        fields[n++] = (struct field){ "Nats-Msg-Id", id };
    if (operation)
        fields[n++] = (struct field){ "KV-Operation", operation };
    if (expected) {
        snprintf(sequence, sizeof sequence, "%llu", (unsigned long long)*expected);
        fields[n++] = (struct field){ "Nats-Expected-Last-Subject-Sequence", sequence };
    }
    call_send(c, subject, data, len, n > 0 ? fields : NULL);
}

void bus_publish(struct bus *b, const struct bus_publication *p, bus_done_fn *done, void *arg)
{
    int timeout_ms = p->timeout_ms ? p->timeout_ms : BUS_TIMEOUT_MS;
    struct call *c = call_new(b, timeout_ms, api_take, done, arg);
    if (!c)
        return;
    bool is_ok =
        bus_subject_is_ok(p->subject, false) &&
        (!p->id || (*p->id && strlen(p->id) <= BUS_SUBJECT_MAX && strpbrk(p->id, "\r\n") == NULL));
    if (is_ok)
        publish_send(
            c, p->subject, p->data, p->len, p->id, NULL, p->expects_sequence ? &p->sequence : NULL);
    else
        call_end_early(c, BUS_REFUSED, "the subject or the id is not valid");
}

/* ---- consumers ---- */

void bus_consumer_make(struct bus *b, const struct bus_consumer *k, bus_done_fn *done, void *arg)
{
    cleanup_buf struct buf body = { 0 };
    char subject[BUS_SUBJECT_MAX + 1];
    struct call *c = call_new(b, BUS_TIMEOUT_MS, api_take, done, arg);
    if (!c)
        return;
    bool is_ok = bus_name_is_ok(k->stream) && bus_name_is_ok(k->name) &&
                 (!k->filter || bus_subject_is_ok(k->filter, true));
    api_subject(subject, "CONSUMER.DURABLE.CREATE", k->stream, k->name);
    field_open(&body, NULL, '{');
    field_string(&body, "stream_name", k->stream);
    field_open(&body, "config", '{');
    field_string(&body, "durable_name", k->name);
    field_string(&body, "ack_policy", "explicit");
    field_string(&body, "deliver_policy", "all");
    field_string(&body, "replay_policy", "instant");
    field_int(&body, "ack_wait", (k->ack_ms ? k->ack_ms : 30000) * 1000000);
    field_int(&body, "max_deliver", k->most_delivered ? k->most_delivered : -1);
    field_int(&body, "max_ack_pending", k->most_unacknowledged ? k->most_unacknowledged : 1000);
    if (k->filter)
        field_string(&body, "filter_subject", k->filter);
    field_close(&body, '}');
    field_close(&body, '}');
    api_call(c, is_ok, &body, subject);
}

void bus_consumer_info(
    struct bus *b, const char *stream, const char *consumer, bus_done_fn *done, void *arg)
{
    char subject[BUS_SUBJECT_MAX + 1];
    struct call *c = call_new(b, BUS_TIMEOUT_MS, api_take, done, arg);
    if (!c)
        return;
    bool is_ok = bus_name_is_ok(stream) && bus_name_is_ok(consumer);
    api_subject(subject, "CONSUMER.INFO", is_ok ? stream : "", consumer);
    api_call(c, is_ok, NULL, subject);
}

/* ---- fetching ---- */

struct fetch {
    unsigned left;
    bus_message_fn *on_message;
};

/* A status without a message: how the server ends a fetch (ADR-13). */
static void fetch_end(struct call *c, int status, const char *description)
{
    enum { NO_MESSAGES = 404, TIME_IS_UP = 408, ENDED = 409, NO_RESPONDERS = 503 };
    if (status == NO_MESSAGES || status == TIME_IS_UP)
        call_end_as(c, BUS_OK, "");
    else if (status == NO_RESPONDERS || (status == ENDED && strstr(description, "Deleted")))
        call_end_as(c, BUS_NOT_FOUND, "the stream or its consumer is not there");
    else if (status == ENDED)
        call_end_as(c, BUS_TIMEOUT, "the NATS server ended the fetch");
    else if (status >= 400)
        call_end_as(c, BUS_REFUSED, "the NATS server refused the fetch");
}

/* A status has the subject of its fetch. That of an earlier fetch may be late. */
static bool fetch_is_meant(const struct call *c, const char *subject)
{
    char own[96];
    snprintf(own, sizeof own, "%s%zx-%x", c->subscription->inbox, c->slot, c->generation);
    return strcmp(subject, own) == 0;
}

static void fetch_receive(struct call *c, nats_message **m)
{
    struct fetch *f = c->state;
    struct bus *b = c->b;
    struct message_origin origin;
    if (!message_read_origin(b->nats->reply(*m), &origin)) {
        const char *description = message_field(b, *m, "Description");
        if (fetch_is_meant(c, b->nats->subject(*m)))
            fetch_end(c, message_status(b, *m), description ? description : "");
        return;
    }
    struct bus_message *message = message_new(b, steal(m));
    f->left--;
    if (message && c->is_forgotten)
        bus_nak(message, 0);
    else if (message)
        f->on_message(c->arg, message);
    if (f->left == 0)
        call_end_as(c, BUS_OK, "");
}

/* One for each consumer, for all its fetches, one after the other. */
static struct subscription *fetch_subscription(
    struct bus *b, const char *stream, const char *consumer)
{
    char name[sizeof((struct subscription *)0)->consumer];
    snprintf(name, sizeof name, "%s.%s", stream, consumer);
    for (struct subscription *s = b->subscriptions; s; s = s->next)
        if (strcmp(s->consumer, name) == 0)
            return s;
    struct subscription *s = subscription_new(b, false);
    if (s)
        memcpy(s->consumer, name, sizeof name);
    return s;
}

static void fetch_send(
    struct call *c, const char *stream, const char *consumer, unsigned count, int wait_ms)
{
    cleanup_buf struct buf body = { 0 };
    char subject[BUS_SUBJECT_MAX + 1];
    field_open(&body, NULL, '{');
    field_int(&body, "batch", count);
    if (wait_ms > 0)
        field_int(&body, "expires", (int64_t)wait_ms * 1000000);
    else
        field_bool(&body, "no_wait", true);
    field_close(&body, '}');
    api_subject(subject, "CONSUMER.MSG.NEXT", stream, consumer);
    call_send_from(c, c->subscription->inbox, subject, buf_text(&body), body.len, NULL);
}

void bus_fetch(struct bus *b, const char *stream, const char *consumer, unsigned count, int wait_ms,
    bus_message_fn *on_message, bus_done_fn *done, void *arg)
{
    enum { FETCH_MOST = 256, FETCH_MARGIN_MS = 2000 };
    struct call *c = call_new(b, wait_ms + FETCH_MARGIN_MS, NULL, done, arg);
    struct fetch *f = c ? calloc(1, sizeof *f) : NULL;
    if (!c)
        return;
    bool is_ok = f && bus_name_is_ok(stream) && bus_name_is_ok(consumer) && count > 0 &&
                 count <= FETCH_MOST && wait_ms >= 0;
    struct subscription *s = is_ok ? fetch_subscription(b, stream, consumer) : NULL;
    c->state = f;
    c->receive = fetch_receive;
    if (!is_ok) {
        call_end_early(c, BUS_REFUSED, "a name or number of the fetch is not valid");
    } else if (!s) {
        call_end_early(c, BUS_DISCONNECTED, "the inbox of the fetch cannot be subscribed to");
    } else if (s->call) {
        call_end_early(c, BUS_REFUSED, "this consumer has a fetch under way");
    } else {
        *f = (struct fetch){ count, on_message };
        c->subscription = s;
        s->call = c;
        fetch_send(c, stream, consumer, count, wait_ms);
    }
}
