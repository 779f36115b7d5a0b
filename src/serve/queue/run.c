/* serve/queue/run.c: a run that this node has taken from the queue, from its log to its end.
 *
 * taken ─► its log is read ─► has ended? ─► acknowledged
 *                            │ MARK_TAKEN is appended: an earlier node cannot append any more
 *                            ▼
 *          the record is made of the units ─► the run is resumed, or begun ─► MARK_END
 *                            │
 *                            ▼
 *          acknowledged
 *
 * A node that had the run before may still send a request to a model for as long as its last append
 * counts as recent (STORE_LOG_FRESH_MS), so a run that was taken before waits so long after
 * MARK_TAKEN.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/json/fields.h"
#include "cluster/ledger.h"
#include "serve/log.h"
#include "serve/native/runs.h"
#include "serve/queue/queue.h"

enum {
    TAKEOVER_MS = 1000,
    RETRY_MS = 1000,
    VERSION_RETRY_MS = 2000,
    PAUSE_MS = 5000,
    HELD_RETRY_MS = 1000,
    END_CUT = 100000,
    END_CUT_MORE = 4096,
    REASON_MAX = 128,   /* what is added to the end of a cancelled run */
    NO_REQUEST_MAX = 5, /* deliveries of a run whose log has no request */
};

struct queue_run {
    struct run_queue *q;
    struct bus_message *m;
    char key[KEY_ID_SIZE], id[QUEUE_ID_MAX + 1];
    struct queue_reading reading;
    struct queue_log log;
    struct json_object *request;
    droste_running *running;
    char error[240];
    bool has_units; /* that were appended here */
    bool is_lost, begins, is_over, is_cancelled;
    bool is_stale;   /* its version is not wanted any more */
    int64_t version; /* -1: it has none */
    double cost;     /* with `is_over` */
    int64_t input_tokens, output_tokens;
    double held;       /* dollars that the key's ledger holds for it; 0: the key has no limit */
    uint64_t begin_ns; /* when it may begin, with `begins` */
    struct queue_run *next;
};

static void queue_run_free(struct queue_run *u)
{
    struct run_queue *q = u->q;
    struct queue_run **at = &q->runs;
    while (*at != u)
        at = &(*at)->next;
    *at = u->next;
    q->count--;
    bus_forget(q->bus, u);
    ledger_forget(q->ledger, u);
    queue_log_close(&u->log);
    queue_reading_free(&u->reading);
    json_object_put(u->request);
    bus_message_free(u->m);
    free(u);
    queue_look(q);
}

/* Another node may take it, after the delay. */
static void queue_run_return(struct queue_run *u, int64_t delay_ms)
{
    bus_nak(steal(&u->m), delay_ms);
    queue_run_free(u);
}

static void queue_run_forget(struct queue_run *u)
{
    queue_copy_remove(u->q, u->id);
}

/* ---- what the key may spend ---- */

/* Dollars a day; 0: no limit. */
static double queue_run_limit(const struct queue_run *u)
{
    const struct account *account = account_by_id(&u->q->s->accounts, u->key);
    return account ? account->key.limits.cost : 0;
}

/* What the request allows, which is at most the key's limit; 0: it says nothing. */
static double queue_run_most(const struct queue_run *u)
{
    struct json_object *settings = json_get_typed(u->request, "settings", json_type_array);
    double most = 0;
    for (size_t i = 0; i + 1 < json_length(settings); i += 2)
        if (strcmp(json_object_get_string(json_object_array_get_idx(settings, i)), "max-cost") == 0)
            most = json_object_get_double(json_object_array_get_idx(settings, i + 1));
    return most;
}

/* What the end of a log says that the run has cost. A dead letter does not say it: it may have
 * spent all that it held, if it has begun. */
static double queue_run_cost(
    struct queue_run *u, enum queue_mark mark, const char *text, size_t len)
{
    cleanup_json struct json_object *o = NULL;
    if (mark != MARK_END || json_parse(text, len, &json_limits_large, &o, NULL) < 0)
        return u->has_units || u->reading.units.len > 0 ? LEDGER_ALL : 0;
    struct json_object *usage = json_get_typed(o, "usage", json_type_object);
    u->input_tokens = json_get_int(usage, "input_tokens", 0);
    u->output_tokens = json_get_int(usage, "output_tokens", 0);
    return fmax(json_get_double(usage, "cost", 0), 0);
}

/* ---- the end ---- */

static void queue_run_acknowledge(struct queue_run *u)
{
    bus_ack(steal(&u->m), NULL, NULL);
    queue_run_free(u);
}

/* Unless it is certain that the ledger has the cost, the run comes again, and is settled then. */
static void queue_run_on_settled(void *arg, enum bus_result result, double amount, double held)
{
    struct queue_run *u = arg;
    if (result == BUS_OK)
        queue_run_acknowledge(u);
    else
        queue_run_return(u, RETRY_MS);
}

static void queue_run_settle(struct queue_run *u)
{
    char what[KEY_ID_SIZE + QUEUE_ID_MAX + 2];
    snprintf(what, sizeof what, "%s %s", u->key, u->id);
    bus_tell(u->q->bus, "droste.run.word.ended", what, strlen(what));
    if (queue_run_limit(u) > 0)
        ledger_settle(u->q->ledger, u->key, u->id, u->cost, queue_run_on_settled, u);
    else
        queue_run_acknowledge(u);
}

static void queue_run_on_ended(void *arg, enum queue_kept kept)
{
    struct queue_run *u = arg;
    struct account *account = account_by_id(&u->q->s->accounts, u->key);
    if (kept != QUEUE_KEPT) {
        queue_run_free(u); /* another one has it */
        return;
    }
    if (account) /* the limit of its day is the ledger's */
        table_use(account->row, u->input_tokens, u->output_tokens, u->cost);
    queue_run_settle(u);
}

static void queue_run_end(struct queue_run *u, enum queue_mark mark, const char *text, size_t len)
{
    u->is_over = true;
    u->cost = queue_run_cost(u, mark, text, len);
    queue_log_append(&u->log, mark, text, len, queue_run_on_ended, u);
}

static void queue_run_bury(struct queue_run *u, const char *why)
{
    char subject[BUS_SUBJECT_MAX + 1];
    snprintf(subject, sizeof subject, "droste.run.dead.%s.%s", u->key, u->id);
    const struct bus_publication p = {
        .subject = subject, .data = why, .len = strlen(why), .id = u->id
    };
    log_event(u->q->s, LOG_ERROR, "run %s is a dead letter: %s", u->id, why);
    bus_publish(u->q->bus, &p, NULL, NULL);
    queue_run_end(u, MARK_DEAD, why, strlen(why));
}

static void queue_run_on_failed(void *arg, enum queue_kept kept)
{
    struct queue_run *u = arg;
    if (kept == QUEUE_KEPT)
        queue_run_return(u, RETRY_MS);
    else
        queue_run_free(u);
}

/* An attempt has failed for a reason that may be this node's. */
static void queue_run_fail(struct queue_run *u, const char *why)
{
    log_event(u->q->s, LOG_ERROR, "run %s failed here: %s", u->id, why);
    queue_run_forget(u);
    if (u->reading.failures + 1 >= QUEUE_FAILURES_MAX)
        queue_run_bury(u, why);
    else
        queue_log_append(&u->log, MARK_FAILED, why, strlen(why), queue_run_on_failed, u);
}

struct queue_ended {
    droste_record *record;
    struct buf json;
    size_t cut;
    bool has_ended, is_cancelled;
    bool is_open; /* one without an end is wanted, too */
};

static int queue_on_record(void *arg, const droste_record_run *run, droste_error *err)
{
    struct queue_ended *e = arg;
    e->has_ended = strcmp(run->status, "running") != 0 && strcmp(run->status, "interrupted") != 0;
    e->is_cancelled = strcmp(run->status, "cancelled") == 0;
    return droste_record_json(e->record, run, e->cut, runs_add_piece, &e->json, err);
}

/* What the record says of the run, in one message. False: it has not ended, unless `is_open`. */
static bool queue_run_read(struct queue_run *u, struct queue_ended *e)
{
    static const size_t cuts[] = { QUEUE_PART_MAX, END_CUT, END_CUT_MORE };
    struct server *s = u->q->s;
    e->record = server_record(s, NULL);
    for (size_t i = 0; e->record && i < array_length(cuts); i++) {
        buf_clear(&e->json);
        e->cut = cuts[i];
        if (droste_record_get(e->record, u->id, queue_on_record, e, NULL) < 0 ||
            !(e->has_ended || e->is_open))
            return false;
        if (e->json.len + REASON_MAX <= QUEUE_PART_MAX)
            break;
    }
    return (e->has_ended || e->is_open) && !buf_failed(&e->json);
}

/* Adds a member to a JSON object, which is not empty. */
static void queue_add_reason(struct buf *json)
{
    static const char member[] = ", \"reason\": \"stale\"}";
    if (json->len > 0 && json->data[json->len - 1] == '}') {
        json->len--;
        buf_puts(json, member);
    }
}

/* True: the record has the end, which is now appended. */
static bool queue_run_finish(struct queue_run *u)
{
    struct queue_ended e = { 0 };
    bool has_ended = queue_run_read(u, &e);
    if (has_ended && u->is_stale && e.is_cancelled)
        queue_add_reason(&e.json);
    if (has_ended)
        queue_run_end(u, MARK_END, buf_text(&e.json), e.json.len);
    buf_free(&e.json);
    return has_ended;
}

/* Its record cannot be written here, because the disk is full or broken. */
static void queue_run_move(struct queue_run *u, const char *why)
{
    log_event(u->q->s, LOG_ERROR, "run %s goes to another node: %s", u->id, why);
    u->q->paused_until_ns = clock_ns() + PAUSE_MS * 1000000ull;
    queue_run_forget(u);
    queue_run_return(u, 0);
}

static void queue_run_on_done(void *arg, droste_result *result)
{
    struct queue_run *u = arg;
    droste_error why = { .code = DROSTE_ERROR_MEMORY, .text = "out of memory" };
    bool is_suspended = result && strcmp(droste_result_status(result), "interrupted") == 0;
    if (result)
        droste_result_error(result, &why);
    droste_result_free(result);
    u->running = NULL;
    u->q->s->figures->gauges[GAUGE_RUNS]--;
    if (u->is_lost) {
        queue_run_forget(u);
        queue_run_free(u);
    } else if (is_suspended) { /* this node stops */
        queue_run_forget(u);
        queue_run_return(u, 0);
    } else if (why.code == DROSTE_ERROR_STORE) {
        queue_run_move(u, why.text);
    } else if (!queue_run_finish(u)) {
        queue_run_fail(u, why.text);
    }
}

/* ---- the run ---- */

static void queue_run_on_kept(void *arg, enum queue_kept kept)
{
    struct queue_run *u = arg;
    droste_error lost = { .code = DROSTE_ERROR_LOST, .text = "another node has taken the run" };
    if (!u->running)
        return;
    if (kept == QUEUE_LOST) {
        u->is_lost = true;
        droste_log_lost(u->running, &lost);
    } else {
        droste_log_kept(u->running);
        if (u->log.is_cancelled && !u->is_cancelled && u->running) {
            u->is_cancelled = true;
            droste_cancel(u->running);
        }
    }
    server_wake(u->q->s);
}

static void queue_run_on_unit(void *arg, droste_running *run, const void *data, size_t len)
{
    struct queue_run *u = arg;
    u->has_units = true;
    queue_log_append(&u->log, MARK_UNIT, data, len, queue_run_on_kept, u);
}

static int queue_run_start(struct queue_run *u, droste_error *err)
{
    struct server *s = u->q->s;
    const droste_log log = { .append = queue_run_on_unit, .arg = u };
    struct json_object *settings = json_get_typed(u->request, "settings", json_type_array);
    struct json_object *context = NULL;
    size_t count = json_length(settings);
    char most[32];
    cleanup_free const char **list = calloc(count + 3, sizeof *list);
    droste_request q = { .question = json_get_string(u->request, "question", ""),
        .settings = list,
        .id = u->id,
        .account = u->key,
        .done = queue_run_on_done,
        .log = &log,
        .arg = u };
    for (size_t i = 0; list && i < count; i++)
        list[i] = json_object_get_string(json_object_array_get_idx(settings, i));
    if (list && u->held > 0) {
        snprintf(most, sizeof most, "%.9f", u->held);
        list[count] = "max-cost";
        list[count + 1] = most;
    }
    if (u->reading.units.len > 0) {
        q = (droste_request){ .resume = u->id, .done = q.done, .log = q.log, .arg = u };
    } else if (json_object_object_get_ex(u->request, "context", &context)) {
        bool is_text = json_object_is_type(context, json_type_string);
        q.data = is_text ? json_object_get_string(context) : json_text(context, &q.len);
        q.len = is_text ? (size_t)json_object_get_string_len(context) : q.len;
        q.kind = is_text ? NULL : "json";
    }
    return droste_start(s->d, &q, &u->running, err);
}

static void queue_run_cancel_unbegun(struct queue_run *u)
{
    static const char *const counts[] = { "calls", "input_tokens", "output_tokens", "cost",
        "seconds" };
    cleanup_buf struct buf json = { 0 };
    field_open(&json, NULL, '{');
    field_string(&json, "run", u->id);
    field_string(&json, "question", json_get_string(u->request, "question", ""));
    field_string(&json, "status", "cancelled");
    field_null(&json, "answer");
    field_string(&json, "error", "cancelled before it began");
    if (u->is_stale)
        field_string(&json, "reason", "stale");
    field_int(&json, "iterations", 0);
    field_open(&json, "usage", '{');
    for (size_t i = 0; i < array_length(counts); i++)
        field_int(&json, counts[i], 0);
    field_close(&json, '}');
    field_close(&json, '}');
    queue_run_end(u, MARK_END, buf_text(&json), json.len);
}

/* A node that was lost has begun it. What it has paid for is in its units, and so in the record. */
static void queue_run_cancel_left(struct queue_run *u)
{
    struct queue_ended e = { .is_open = true };
    cleanup_json struct json_object *o = NULL;
    size_t len = 0;
    if (!queue_run_read(u, &e) ||
        json_parse(e.json.data, e.json.len, &json_limits_large, &o, NULL) < 0) {
        queue_run_fail(u, "the record of the run cannot be read");
    } else {
        json_object_object_add(o, "status", json_object_new_string("cancelled"));
        json_object_object_add(
            o, "error", json_object_new_string("cancelled after its node was lost"));
        if (u->is_stale)
            json_object_object_add(o, "reason", json_object_new_string("stale"));
        queue_run_forget(u);
        const char *text = json_text(o, &len);
        queue_run_end(u, MARK_END, text, len);
    }
    buf_free(&e.json);
}

static bool queue_run_is_unwanted(const struct queue_run *u)
{
    return u->log.is_cancelled || u->is_stale;
}

static void queue_run_begin(struct queue_run *u)
{
    struct server *s = u->q->s;
    droste_error err = { .text = "out of memory" };
    struct buf *units = &u->reading.units;
    u->begins = false;
    if (units->len == 0 && queue_run_is_unwanted(u)) {
        queue_run_cancel_unbegun(u);
        return;
    }
    bool has_copy = queue_copy_is_back(u->q, u->id);
    int rc = buf_failed(units) ? -1 : 0;
    if (rc == 0 && (units->len > 0 || has_copy))
        rc = droste_record_import(s->d, u->id, units->data, units->len, &err);
    if (rc == 0 && units->len > 0 && queue_run_finish(u))
        return; /* the end is in its units, and was not told */
    if (rc == 0 && units->len > 0 && queue_run_is_unwanted(u)) {
        queue_run_cancel_left(u);
        return;
    }
    if (rc == 0)
        rc = queue_run_start(u, &err);
    if (rc < 0 && err.code == DROSTE_ERROR_STORE) {
        queue_run_move(u, err.text);
        return;
    }
    if (rc < 0) {
        queue_run_fail(u, err.text);
        return;
    }
    s->figures->gauges[GAUGE_RUNS]++;
    table_count(s->figures, COUNT_RUNS, 1);
    server_wake(s);
}

static void queue_run_on_taken(void *arg, enum queue_kept kept)
{
    struct queue_run *u = arg;
    bool was_taken = u->m->delivered > 1 || u->reading.units.len > 0;
    if (kept == QUEUE_LOST) {
        queue_run_free(u);
    } else if (u->reading.taken >= QUEUE_TAKEN_MAX) {
        queue_run_bury(u, "every node that took the run was lost");
    } else {
        u->begins = true;
        u->begin_ns = clock_ns() + (was_taken ? TAKEOVER_MS * 1000000ull : 0);
        if (!was_taken || (queue_run_is_unwanted(u) && u->reading.units.len == 0))
            queue_run_begin(u);
    }
}

/* ---- its log ---- */

static void queue_run_on_log(void *arg, const struct bus_answer *a);

static void queue_run_read_on(struct queue_run *u)
{
    bus_stream_next(
        u->q->bus, "droste_run_logs", u->log.subject, u->reading.sequence + 1, queue_run_on_log, u);
}

/* Its units are of another version: nothing is appended, so that nothing counts against the run,
 * and a node with its version finds it as it was. */
static bool queue_run_is_foreign(struct queue_run *u)
{
    droste_error err = { 0 };
    const struct buf *units = &u->reading.units;
    if (buf_failed(units) || units->len == 0 ||
        droste_record_import_check(u->id, units->data, units->len, &err) != -DROSTE_ERROR_STORE)
        return false;
    log_event(u->q->s, LOG_WARNING, "run %s waits for another node: %s", u->id, err.text);
    return true;
}

static void queue_run_mark_taken(struct queue_run *u)
{
    const char *node = u->q->owner;
    queue_log_append(&u->log, MARK_TAKEN, node, strlen(node), queue_run_on_taken, u);
}

static void queue_run_on_held(void *arg, enum bus_result result, double amount, double held)
{
    struct queue_run *u = arg;
    char why[160];
    if (result == BUS_OK) {
        u->held = amount;
        queue_run_mark_taken(u);
    } else if (result == BUS_FULL && held <= 0) {
        snprintf(why, sizeof why,
            "models have cost this key %.4g dollars today; it may spend %.4g a day (UTC)", amount,
            queue_run_limit(u));
        queue_run_bury(u, why);
    } else { /* other runs hold it, or the ledger is out of reach */
        queue_rest(u->q, u->key, HELD_RETRY_MS);
        queue_run_return(u, HELD_RETRY_MS);
    }
}

/* Takes what the run may cost from its key's ledger, before anything is spent. What is stale spends
 * nothing more. */
static void queue_run_hold(struct queue_run *u)
{
    double limit = queue_run_limit(u);
    if (limit > 0 && !u->is_stale)
        ledger_hold(u->q->ledger, u->key, u->id, limit, queue_run_most(u), queue_run_on_held, u);
    else
        queue_run_mark_taken(u);
}

static void queue_run_on_version(void *arg, const struct bus_answer *a)
{
    struct queue_run *u = arg;
    int64_t wanted = queue_version_wanted(a);
    if (wanted < 0) {
        queue_run_return(u, RETRY_MS);
        return;
    }
    u->is_stale = u->is_stale || u->version < wanted;
    queue_run_hold(u);
}

/* Its request has not come whole, or is not there any more. */
static void queue_run_has_no_request(struct queue_run *u)
{
    if (u->m->delivered >= NO_REQUEST_MAX)
        queue_run_bury(u, "the cluster has no request of the run any more");
    else
        queue_run_return(u, RETRY_MS);
}

static void queue_run_was_read(struct queue_run *u)
{
    const struct queue_reading *r = &u->reading;
    u->log.sequence = r->sequence;
    u->log.is_cancelled = r->is_cancelled;
    if (r->last == MARK_END || r->last == MARK_DEAD) {
        u->cost = queue_run_cost(u, r->last, buf_text(&r->end), r->end.len);
        queue_run_settle(u);
        return;
    }
    if (json_parse(buf_text(&r->request), r->request.len, &json_limits_large, &u->request, NULL) <
            0 ||
        !json_object_is_type(u->request, json_type_object)) {
        queue_run_has_no_request(u);
        return;
    }
    if (queue_run_is_foreign(u)) {
        queue_run_return(u, VERSION_RETRY_MS);
        return;
    }
    u->version = json_get_int(u->request, "version", -1);
    if (u->version < 0)
        queue_run_hold(u);
    else
        queue_version_ask(u->q, u->key, queue_run_on_version, u);
}

static void queue_run_on_log(void *arg, const struct bus_answer *a)
{
    struct queue_run *u = arg;
    if (a->result == BUS_NOT_FOUND) {
        queue_run_was_read(u);
    } else if (a->result != BUS_OK) {
        queue_run_return(u, RETRY_MS);
    } else {
        queue_reading_take(&u->reading, a);
        queue_run_read_on(u);
    }
}

bool queue_run_is_here(const struct run_queue *q, const char *key, const char *id)
{
    for (const struct queue_run *u = q->runs; u; u = u->next)
        if (strcmp(u->id, id) == 0 && strcmp(u->key, key) == 0)
            return true;
    return false;
}

void queue_run_take(struct run_queue *q, struct bus_message *m)
{
    char key[KEY_ID_SIZE] = "", id[QUEUE_ID_MAX + 1] = "";
    const char *space = strchr(m->data, ' ');
    size_t n = space ? (size_t)(space - m->data) : 0;
    struct queue_run *u = calloc(1, sizeof *u);
    if (!u || q->is_closing) {
        free(u);
        bus_nak(m, RETRY_MS);
        return;
    }
    if (!space || n == 0 || n >= sizeof key || !queue_id_is_ok(space + 1)) {
        free(u);
        bus_term(m);
        return;
    }
    memcpy(key, m->data, n);
    strcpy(id, space + 1);
    if (queue_run_is_here(q, key, id)) {
        /* This process was stopped for longer than its lease: first it learns what it has lost. */
        free(u);
        bus_nak(m, RETRY_MS);
        return;
    }
    u->q = q;
    u->m = m;
    u->version = -1;
    memcpy(u->key, key, sizeof key);
    memcpy(u->id, id, sizeof id);
    queue_log_init(&u->log, q, u->key, u->id);
    u->next = q->runs;
    q->runs = u;
    q->count++;
    queue_run_read_on(u);
}

/* ---- all of them ---- */

void queue_run_cancel(struct run_queue *q, const char *what)
{
    char own[KEY_ID_SIZE + QUEUE_ID_MAX + 2];
    for (struct queue_run *u = q->runs; u; u = u->next) {
        snprintf(own, sizeof own, "%s %s", u->key, u->id);
        if (strcmp(own, what) != 0 || !u->running || u->is_cancelled)
            continue;
        u->is_cancelled = true;
        droste_cancel(u->running);
        server_wake(q->s);
        return;
    }
}

/* Those that have not begun here end instead. */
void queue_runs_drop(struct run_queue *q, const char *key, int64_t before)
{
    for (struct queue_run *u = q->runs; u; u = u->next) {
        if (u->version < 0 || u->version >= before || u->is_cancelled || strcmp(u->key, key) != 0)
            continue;
        u->is_stale = true;
        if (!u->running)
            continue;
        u->is_cancelled = true;
        droste_cancel(u->running);
        server_wake(q->s);
    }
}

void queue_runs_tick(struct run_queue *q)
{
    uint64_t now_ns = clock_ns();
    struct queue_run *next;
    for (struct queue_run *u = q->runs; u; u = next) {
        next = u->next;
        bus_progress(u->m);
        if (u->begins && now_ns >= u->begin_ns)
            queue_run_begin(u);
    }
}

void queue_runs_close(struct run_queue *q)
{
    struct queue_run *next;
    q->is_closing = true;
    for (struct queue_run *u = q->runs; u; u = next) {
        next = u->next;
        if (u->running)
            droste_suspend(u->running);
        else
            queue_run_return(u, 0);
    }
    while (q->runs && droste_turn(q->s->d, 1000, NULL) > 0)
        ;
}
