/* serve/queue/routes.c: runs of the queue over HTTP: any node takes them and answers for them. */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/os/random.h"
#include "serve/native/runs.h"
#include "serve/queue/queue.h"
#include "serve/sandbox/sandbox.h"
#include "serve/native/run_options.h"
#include "serve/options.h"

enum { WAIT_MAX_SECONDS = 60, PRIORITY_DEFAULT = 1 };

static void queue_answer(struct request *r, unsigned status, const char *id, const char *state,
    const char *member, const char *text, size_t len)
{
    cleanup_buf struct buf json = { 0 };
    buf_printf(&json, "{\"id\": \"%s\", \"state\": \"%s\"", id, state);
    if (member) {
        buf_printf(&json, ", \"%s\": ", member);
        if (strcmp(member, "run") == 0)
            buf_append(&json, text, len);
        else
            json_append_string(&json, text, len);
    }
    buf_putc(&json, '}');
    request_reply_written(r, status, &json);
}

/* ---- put ---- */

struct queue_put {
    struct request *r; /* NULL: its client has gone */
    struct run_queue *q;
    struct queue_log log;
    struct buf request;
    char key[KEY_ID_SIZE], id[QUEUE_ID_MAX + 1];
    unsigned priority;
};

static void queue_put_free(struct queue_put *p)
{
    if (p->r) {
        p->r->on_gone = NULL;
        p->r->state = NULL;
    }
    bus_forget(p->q->bus, p);
    queue_log_close(&p->log);
    buf_free(&p->request);
    free(p);
}

static void queue_put_on_gone(struct request *r)
{
    struct queue_put *p = r->state;
    p->r = NULL; /* the run is queued all the same */
}

static void queue_put_on_queued(void *arg, const struct bus_answer *a)
{
    struct queue_put *p = arg;
    if (p->r && a->result == BUS_OK)
        queue_answer(p->r, 202, p->id, "queued", NULL, NULL, 0);
    else if (p->r)
        queue_refuse_bus(p->r, a);
    if (a->result == BUS_OK)
        bus_tell(p->q->bus, "droste.run.word.queued", p->id, strlen(p->id));
    queue_put_free(p);
}

static void queue_put_publish(struct queue_put *p)
{
    char subject[BUS_SUBJECT_MAX + 1], what[KEY_ID_SIZE + QUEUE_ID_MAX + 2];
    snprintf(subject, sizeof subject, "droste.run.queue.%u.%s", p->priority, p->key);
    snprintf(what, sizeof what, "%s %s", p->key, p->id);
    const struct bus_publication publication = {
        .subject = subject, .data = what, .len = strlen(what), .id = what
    };
    bus_publish(p->q->bus, &publication, queue_put_on_queued, p);
}

static void queue_put_on_lane(void *arg, const struct bus_answer *a)
{
    struct queue_put *p = arg;
    if (a->result == BUS_OK || a->result == BUS_CONFLICT) {
        queue_put_publish(p);
    } else {
        if (p->r)
            queue_refuse_bus(p->r, a);
        queue_put_free(p);
    }
}

/* The lane comes first: no node looks into one that it does not know. */
static void queue_put_in_queue(struct queue_put *p)
{
    if (!queue_lane_announce(p->q, p->priority, p->key, queue_put_on_lane, p))
        queue_put_publish(p);
}

static void queue_put_on_request(void *arg, enum queue_kept kept);

/* The id is taken: by this request, sent before, perhaps in part, or by a run that goes on. */
static void queue_put_on_last(void *arg, const struct bus_answer *a)
{
    struct queue_put *p = arg;
    struct queue_head head;
    bool is_read = a->result == BUS_OK && queue_head_read(a->data, a->len, &head);
    if (is_read && head.mark == MARK_REQUEST && head.more) {
        p->log.sequence = a->sequence;
        queue_log_append(
            &p->log, MARK_REQUEST, p->request.data, p->request.len, queue_put_on_request, p);
    } else if (is_read && head.mark == MARK_REQUEST) {
        queue_put_in_queue(p);
    } else {
        if (p->r && is_read)
            queue_answer(p->r, 202, p->id, "known", NULL, NULL, 0);
        else if (p->r)
            queue_refuse_bus(p->r, a);
        queue_put_free(p);
    }
}

static void queue_put_on_request(void *arg, enum queue_kept kept)
{
    struct queue_put *p = arg;
    if (kept == QUEUE_KEPT)
        queue_put_in_queue(p);
    else
        bus_stream_last(p->q->bus, "droste_run_logs", p->log.subject, queue_put_on_last, p);
}

static bool queue_put_write(struct request *r, const char *const *settings, struct buf *out)
{
    struct json_object *context = NULL;
    const char *question = json_get_string(r->json, "question", "");
    buf_puts(out, "{\"question\": ");
    json_append_string(out, question, strlen(question));
    if (json_object_object_get_ex(r->json, "context", &context)) {
        size_t len;
        const char *text = json_text(context, &len);
        buf_puts(out, ", \"context\": ");
        buf_append(out, text, len);
    }
    int64_t version = json_get_int(r->json, "version", -1);
    if (version >= 0)
        buf_printf(out, ", \"version\": %lld", (long long)version);
    buf_puts(out, ", \"settings\": [");
    for (size_t i = 0; settings[i]; i++) {
        buf_puts(out, i ? ", " : "");
        json_append_string(out, settings[i], strlen(settings[i]));
    }
    buf_puts(out, "]}");
    return !buf_failed(out);
}

/* A request without an id gets a random one; with an Idempotency-Key, one that any node makes of
 * the key again. */
static int queue_put_name(struct request *r, char id[QUEUE_ID_MAX + 1])
{
    const char *repeats = request_header_of(r, "Idempotency-Key");
    char text[KEY_ID_SIZE + 256], hash[HASH_TEXT_SIZE];
    if (!repeats)
        return random_hex(id, 24, NULL);
    int len = snprintf(text, sizeof text, "%s %s", queue_key_of(r), repeats);
    int rc = hash_sha256(text, (size_t)len, hash, NULL);
    if (rc == 0)
        snprintf(id, QUEUE_ID_MAX + 1, "%.32s", hash);
    return rc;
}

void handle_queue_put(struct request *r)
{
    cleanup_buf struct buf words = { 0 };
    struct run_queue *q = queue_of(r);
    const char *id = json_get_string(r->json, "id", "");
    if (!q)
        return;
    if (id[0] && !queue_id_is_ok(id)) {
        request_refuse(
            r, 400, "argument", "an id has at most %d letters, digits, '_' and '-'", QUEUE_ID_MAX);
        return;
    }
    const char *repeats = request_header_of(r, "Idempotency-Key");
    if (repeats && strlen(repeats) > 255) {
        request_refuse(r, 400, "argument", "an Idempotency-Key has at most 255 characters");
        return;
    }
    runs_put_trace(r, &words);
    if (!run_settings_queued(r, json_get_typed(r->json, "options", json_type_object), &words))
        return;
    cleanup_free const char **settings = sandbox_list_settings(&words);
    struct queue_put *p = calloc(1, sizeof *p);
    if (!settings || !p || !queue_put_write(r, settings, &p->request) ||
        (!id[0] && queue_put_name(r, p->id) < 0)) {
        if (p)
            buf_free(&p->request);
        free(p);
        request_refuse_memory(r);
        return;
    }
    p->r = r;
    p->q = q;
    p->priority = (unsigned)json_get_int(r->json, "priority", PRIORITY_DEFAULT);
    snprintf(p->key, sizeof p->key, "%s", queue_key_of(r));
    if (id[0])
        snprintf(p->id, sizeof p->id, "%s", id);
    r->state = p;
    r->on_gone = queue_put_on_gone;
    queue_log_init(&p->log, q, p->key, p->id);
    queue_log_append(
        &p->log, MARK_REQUEST, p->request.data, p->request.len, queue_put_on_request, p);
}

/* ---- get ---- */

struct queue_waiter {
    struct request *r;
    struct run_queue *q;
    char subject[BUS_SUBJECT_MAX + 1], what[KEY_ID_SIZE + QUEUE_ID_MAX + 2];
    uint64_t until_ns;
    bool is_asking;
    struct queue_waiter *next;
};

static void queue_waiter_free(struct queue_waiter *w)
{
    struct queue_waiter **at = &w->q->waiters;
    while (*at != w)
        at = &(*at)->next;
    *at = w->next;
    w->r->on_gone = NULL;
    w->r->state = NULL;
    bus_forget(w->q->bus, w);
    free(w);
}

static void queue_waiter_on_gone(struct request *r)
{
    queue_waiter_free(r->state);
}

static void queue_waiter_on_last(void *arg, const struct bus_answer *a)
{
    struct queue_waiter *w = arg;
    struct request *r = w->r;
    struct queue_head head;
    w->is_asking = false;
    if (a->result == BUS_NOT_FOUND) {
        request_refuse(r, 404, "not_found", "there is no run '%s'", r->name);
    } else if (a->result != BUS_OK || !queue_head_read(a->data, a->len, &head)) {
        if (clock_ns() < w->until_ns)
            return; /* it asks again */
        queue_refuse_bus(r, a);
    } else if (head.mark == MARK_END) {
        queue_answer(r, 200, r->name, "ended", "run", head.data, head.len);
    } else if (head.mark == MARK_DEAD) {
        queue_answer(r, 200, r->name, "dead", "reason", head.data, head.len);
    } else if (clock_ns() < w->until_ns) {
        return;
    } else {
        queue_answer(
            r, 200, r->name, head.mark == MARK_REQUEST ? "queued" : "running", NULL, NULL, 0);
    }
    queue_waiter_free(w);
}

static void queue_waiter_ask(struct queue_waiter *w)
{
    if (w->is_asking)
        return;
    w->is_asking = true;
    bus_stream_last(w->q->bus, "droste_run_logs", w->subject, queue_waiter_on_last, w);
}

void queue_waiters_wake(struct run_queue *q, const char *what)
{
    for (struct queue_waiter *w = q->waiters; w; w = w->next)
        if (!what || strcmp(w->what, what) == 0)
            queue_waiter_ask(w);
}

void handle_queue_get(struct request *r)
{
    struct run_queue *q = queue_of(r);
    const char *wait = q ? request_query(r, "wait", "0") : NULL;
    char *end = NULL;
    if (!wait)
        return;
    double seconds = strtod(wait, &end);
    if (*end || !(seconds >= 0 && seconds <= WAIT_MAX_SECONDS)) {
        request_refuse(
            r, 400, "argument", "wait is a number of seconds up to %d", WAIT_MAX_SECONDS);
        return;
    }
    if (!queue_id_is_ok(r->name)) {
        request_refuse(r, 404, "not_found", "there is no run '%s'", r->name);
        return;
    }
    struct queue_waiter *w = request_alloc(r, sizeof *w);
    if (!w)
        return;
    *w = (struct queue_waiter){
        .r = r, .q = q, .until_ns = clock_ns() + (uint64_t)(seconds * 1e9), .next = q->waiters
    };
    snprintf(w->subject, sizeof w->subject, "droste.run.log.%s.%s", queue_key_of(r), r->name);
    snprintf(w->what, sizeof w->what, "%s %s", queue_key_of(r), r->name);
    q->waiters = w;
    r->state = w;
    r->on_gone = queue_waiter_on_gone;
    queue_waiter_ask(w);
}

/* ---- cancel ---- */

struct queue_stop {
    struct request *r; /* NULL: its client has gone */
    struct run_queue *q;
    char subject[BUS_SUBJECT_MAX + 1], what[KEY_ID_SIZE + QUEUE_ID_MAX + 2];
};

static void queue_stop_on_gone(struct request *r)
{
    struct queue_stop *stop = r->state;
    stop->r = NULL;
}

static void queue_stop_free(struct queue_stop *stop)
{
    if (stop->r) {
        stop->r->on_gone = NULL;
        stop->r->state = NULL;
    }
    free(stop);
}

static void queue_stop_ask(struct queue_stop *stop);

static void queue_stop_on_marked(void *arg, const struct bus_answer *a)
{
    struct queue_stop *stop = arg;
    if (a->result == BUS_CONFLICT) { /* its node has appended meanwhile, perhaps the end */
        queue_stop_ask(stop);
        return;
    }
    if (stop->r && a->result == BUS_OK)
        request_reply(stop->r, 204, NULL, NULL, 0);
    else if (stop->r)
        queue_refuse_bus(stop->r, a);
    bus_tell(stop->q->bus, "droste.run.word.cancel", stop->what, strlen(stop->what));
    queue_stop_free(stop);
}

static void queue_stop_on_last(void *arg, const struct bus_answer *a)
{
    struct queue_stop *stop = arg;
    struct queue_head head;
    bool is_read = a->result == BUS_OK && queue_head_read(a->data, a->len, &head);
    cleanup_buf struct buf mark = { 0 };
    if (is_read && head.mark != MARK_END && head.mark != MARK_DEAD) {
        buf_printf(&mark, "%c%s%08x.", MARK_CANCEL, stop->q->owner, ++stop->q->number);
        const struct bus_publication p = { .subject = stop->subject,
            .data = buf_text(&mark),
            .len = mark.len,
            .expects_sequence = true,
            .sequence = a->sequence };
        bus_publish(stop->q->bus, &p, queue_stop_on_marked, stop);
        return;
    }
    if (stop->r && a->result == BUS_NOT_FOUND)
        request_refuse(stop->r, 404, "not_found", "there is no run '%s'", stop->r->name);
    else if (stop->r && is_read)
        request_refuse(stop->r, 409, "not_active", "the run has ended");
    else if (stop->r)
        queue_refuse_bus(stop->r, a);
    queue_stop_free(stop);
}

static void queue_stop_ask(struct queue_stop *stop)
{
    bus_stream_last(stop->q->bus, "droste_run_logs", stop->subject, queue_stop_on_last, stop);
}

void handle_queue_cancel(struct request *r)
{
    struct run_queue *q = queue_of(r);
    if (!q)
        return;
    struct queue_stop *stop = queue_id_is_ok(r->name) ? calloc(1, sizeof *stop) : NULL;
    if (!stop) {
        request_refuse(r, 404, "not_found", "there is no run '%s'", r->name);
        return;
    }
    stop->r = r;
    stop->q = q;
    snprintf(stop->subject, sizeof stop->subject, "droste.run.log.%s.%s", queue_key_of(r), r->name);
    snprintf(stop->what, sizeof stop->what, "%s %s", queue_key_of(r), r->name);
    r->state = stop;
    r->on_gone = queue_stop_on_gone;
    queue_stop_ask(stop);
}
