/* serve/native/runs.c: runs of models: started, cancelled and resumed here, read from the record.
 *
 * A run's id begins with its worker, as a sandbox's does (relay.c), so that requests about it come
 * to the worker that has it. What is known of a run is what the record says: it outlives the
 * server, and a run whose server died is `interrupted` until it is resumed. A key sees the runs
 * that it started, by the record's account.
 */
#include "serve/native/runs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/os/file.h"
#include "serve/native/contexts.h"
#include "serve/http/nodes.h"
#include "serve/http/relay.h"
#include "serve/log.h"
#include "serve/sandbox/sandbox.h"
#include "serve/access/spending.h"
#include "serve/native/run_options.h"
#include "serve/options.h"

/* Values are cut after so many bytes: of a run that is described alone, in events. */
enum { RUN_CUT = 64 << 20, RUN_EVENT_CUT = 1 << 20 };
enum { TRACE_MAX = 1 << 30 };

/* A run that is active in this worker. */
struct run {
    struct server *server;
    struct account *owner;
    char id[SERVE_ID_SIZE];
    droste_running *running;
    struct request *request; /* waits until it has begun; NULL: it has, or its client has gone */
    void (*begun)(struct request *r);
    double attend_seconds; /* 0: it goes on without clients */
    uint64_t attended_ns;
    double held_cost;     /* see spending.h */
    droste_done_fn *then; /* gets the result; may be NULL */
    void *then_arg;
    struct admission *starting; /* of one without a request: until it has begun */
    bool is_suspended;
    struct run *next;
};

static struct run *run_active(struct server *s, const char *id)
{
    struct run *run = s->runs;
    while (run && strcmp(run->id, id) != 0)
        run = run->next;
    return run;
}

bool runs_have(struct server *s, const char *id)
{
    return run_active(s, id) != NULL;
}

int64_t run_parse_number(const char *text)
{
    size_t n = strlen(text);
    return n > 0 && n < 19 && strspn(text, "0123456789") == n ? strtoll(text, NULL, 10) : -1;
}

droste_record *runs_record(struct request *r)
{
    droste_error err = { 0 };
    droste_record *record = server_record(r->server, &err);
    if (err.code)
        request_fail(r, &err);
    return record;
}

/* ---- what the record says of one ---- */

struct run_facts {
    struct request *r;
    droste_record *record;
    char status[32];
    struct buf *json; /* NULL: not wanted */
    bool is_mine;
};

int runs_add_piece(void *arg, const char *data, size_t len)
{
    buf_append(arg, data, len);
    return 0;
}

bool runs_is_mine(const struct request *r, const droste_record_run *run)
{
    if (r->account->key.scopes & SCOPE_ADMIN)
        return true;
    return run->account && strcmp(run->account, r->account->key.id) == 0;
}

int runs_on_state(void *arg, const droste_record_run *run, droste_error *err)
{
    struct runs_state *state = arg;
    state->is_mine = runs_is_mine(state->r, run);
    state->is_interrupted = strcmp(run->status, "interrupted") == 0;
    return 0;
}

static int run_on_found(void *arg, const droste_record_run *run, droste_error *err)
{
    struct run_facts *facts = arg;
    facts->is_mine = runs_is_mine(facts->r, run);
    snprintf(facts->status, sizeof facts->status, "%s", run->status);
    if (!facts->json || !facts->is_mine)
        return 0;
    return droste_record_json(facts->record, run, RUN_CUT, runs_add_piece, facts->json, err);
}

/* Looks for the request's run among those of its account; false: the request was refused. */
static bool run_look(struct request *r, struct run_facts *facts, struct buf *json)
{
    droste_error err = { .code = DROSTE_ERROR_NOT_FOUND };
    *facts = (struct run_facts){ .r = r, .record = runs_record(r), .json = json };
    if (r->reply)
        return false;
    int rc = facts->record ? droste_record_get(facts->record, r->id, run_on_found, facts, &err)
                           : -(int)err.code;
    if (rc == 0 && facts->is_mine)
        return true;
    if (rc < 0 && err.code != DROSTE_ERROR_NOT_FOUND)
        request_fail(r, &err);
    else if (rc == 0 || !relay_on_node(r)) /* its node may have been started again since */
        nodes_refuse_absent(r, "run", r->id, "starts");
    return false;
}

bool runs_find(struct request *r)
{
    struct run_facts facts;
    return run_look(r, &facts, NULL);
}

static void run_reply(struct request *r)
{
    struct run_facts facts;
    cleanup_buf struct buf json = { 0 };
    if (!run_look(r, &facts, &json))
        return;
    request_reply_written(r, (unsigned)r->route->status, &json);
}

/* ---- followers ---- */

static void run_mark_followers(struct server *s, const char *id)
{
    for (struct follower *f = s->followers; f; f = f->next)
        if (!id || strcmp(f->r->id, id) == 0)
            f->is_dirty = true;
}

static int follower_on_event(void *arg, const droste_record_event *event, droste_error *err)
{
    struct request *r = arg;
    char head[64];
    snprintf(
        head, sizeof head, "id: %lld\nevent: %s\ndata: ", (long long)event->number, event->type);
    request_push(r, head, strlen(head));
    request_push(r, event->json, event->len);
    request_push(r, "\n\n", 2);
    return 0;
}

static int follower_read(struct follower *f, droste_record *record)
{
    return droste_record_events(record, f->r->id, true, &f->at, RUN_EVENTS_AT_ONCE, RUN_EVENT_CUT,
        follower_on_event, f->r, NULL);
}

static void follower_end(struct follower *f, const char *status)
{
    static const char interrupted[] = "event: interrupted\ndata: {}\n\n";
    if (!status) { /* it was removed, or the record cannot be read */
        request_cut(f->r);
        return;
    }
    if (strcmp(status, "interrupted") == 0)
        request_push(f->r, interrupted, sizeof interrupted - 1);
    request_end(f->r);
}

static const struct follower_kind follower_native = { .read = follower_read, .end = follower_end };

/* The status is read before the events: after an end there are none that this look has missed. */
static void follower_look(struct follower *f)
{
    struct request *r = f->r;
    struct run_facts facts = { .r = r, .record = r->server->record };
    int64_t before = f->at;
    f->is_dirty = false;
    bool is_active = run_active(r->server, r->id) != NULL;
    int rc = droste_record_get(facts.record, r->id, run_on_found, &facts, NULL);
    if (rc == 0)
        rc = f->kind->read(f, facts.record);
    if (rc < 0)
        f->kind->end(f, NULL);
    else if (f->at != before)
        f->is_dirty = true; /* there may be more */
    else if (!is_active && strcmp(facts.status, "running") != 0)
        f->kind->end(f, facts.status);
}

static bool follower_waits(const struct follower *f)
{
    const struct request *r = f->r;
    return !r->gone && !r->ended && !r->cut && (!r->reply || r->streaming);
}

void runs_serve(struct server *s)
{
    for (struct follower *f = s->followers; f; f = f->next)
        if (f->is_dirty && follower_waits(f) && request_unread(f->r) <= SERVE_UNREAD_MAX) {
            follower_look(f);
            server_wake(s);
        }
}

static void follower_on_drained(struct request *r)
{
    for (struct follower *f = r->server->followers; f; f = f->next)
        if (f->r == r)
            f->is_dirty = true;
    server_wake(r->server);
}

void runs_follow(struct follower *f)
{
    struct server *s = f->r->server;
    f->is_dirty = true;
    f->next = s->followers;
    s->followers = f;
    f->r->on_drained = follower_on_drained;
    server_wake(s);
}

void runs_unfollow(struct follower *f)
{
    struct follower **at = &f->r->server->followers;
    while (*at != f)
        at = &(*at)->next;
    *at = f->next;
}

static void follower_on_free(struct request *r)
{
    runs_unfollow(r->state);
    free(r->state);
}

/* Last-Event-ID: the last event that the client has seen; -1: it is not a number. */
static int64_t follower_start(struct request *r)
{
    const char *text = request_header_of(r, "Last-Event-ID");
    return text && *text ? run_parse_number(text) : 0;
}

void handle_run_events(struct request *r)
{
    struct run_facts facts;
    int64_t at = follower_start(r);
    if (at < 0) {
        request_refuse(r, 400, "argument", "Last-Event-ID is the id of an event, a number");
        return;
    }
    if (!run_look(r, &facts, NULL))
        return;
    struct follower *f = request_alloc(r, sizeof *f);
    if (!f)
        return;
    *f = (struct follower){ .r = r, .kind = &follower_native, .at = at };
    r->state = f;
    r->on_free = follower_on_free;
    runs_follow(f);
    request_stream(r, "text/event-stream");
}

/* ---- start and resume ---- */

static void run_on_gone(struct request *r)
{
    struct run *run = r->state;
    run->request = NULL; /* the run goes on */
}

static void run_on_event(void *arg, const droste_event *event)
{
    struct run *run = arg;
    struct request *r = run->request;
    if (run->starting && event->run == 0 && strcmp(event->kind, "started") == 0)
        admission_settle(steal(&run->starting));
    if (strcmp(event->kind, "delta") != 0 && strcmp(event->kind, "output") != 0)
        run_mark_followers(run->server, run->id);
    if (!r || event->run != 0 || strcmp(event->kind, "started") != 0)
        return;
    run->request = NULL;
    r->on_gone = NULL;
    snprintf(r->id, sizeof r->id, "%s", run->id);
    run->begun(r);
}

static void run_reply_begun(struct request *r)
{
    run_reply(r);
    request_locate(r, "/v1/runs/%s", r->id);
}

static void run_free(struct run *run)
{
    struct server *s = run->server;
    if (run->starting)
        admission_settle(run->starting);
    struct run **at = &s->runs;
    while (*at != run)
        at = &(*at)->next;
    *at = run->next;
    table_release(s->table, s->worker, run->owner->index);
    if (run->held_cost > 0)
        table_hold(run->owner->row, s->worker, -run->held_cost);
    s->has_released = true;
    s->figures->gauges[GAUGE_RUNS]--;
    free(run);
}

/* The run as a trace, in one write: workers append to the same file. */
static void run_write_trace(struct server *s, const char *id)
{
    droste_export runs = { .runs = &id, .count = 1, .format = DROSTE_EXPORT_OTLP };
    cleanup_fd int fd = memfd_create("droste-trace", MFD_CLOEXEC);
    cleanup_buf struct buf text = { 0 };
    droste_error why = { 0 };
    struct error err = { 0 };
    int rc = server_record(s, &why) || !why.code ? 0 : -1;
    if (rc == 0 && s->record)
        rc = droste_record_export_fd(s->record, &runs, fd, &why);
    if (rc < 0)
        log_event(s, LOG_ERROR, "the trace of run %s is missing: %s", id, why.text);
    else if (lseek(fd, 0, SEEK_SET) < 0 || file_read_fd(fd, "a trace", TRACE_MAX, &text, &err) < 0)
        log_event(s, LOG_ERROR, "the trace of run %s is missing: %s", id, err.text);
    else if (write(s->traces_fd, buf_text(&text), text.len) != (ssize_t)text.len)
        log_event(s, LOG_ERROR, "the trace of run %s was not written: %s", id, strerror(errno));
}

/* What an ended run has used counts for its key; what an interrupted one has, when it has ended. */
static int run_on_spent(void *arg, const droste_record_run *one, droste_error *err)
{
    struct run *run = arg;
    if (one->ended_ms > 0)
        table_spend(run->owner->row, one->input_tokens, one->output_tokens, one->cost);
    return 0;
}

static void run_on_done(void *arg, droste_result *result)
{
    struct run *run = arg;
    struct server *s = run->server;
    struct request *r = run->request;
    droste_error err = { .code = DROSTE_ERROR_MEMORY, .text = "out of memory" };
    if (result)
        droste_result_error(result, &err);
    if (r) {
        r->on_gone = NULL;
        request_fail(r, &err);
    }
    if (server_record(s, NULL))
        droste_record_get(s->record, run->id, run_on_spent, run, NULL);
    run_mark_followers(s, run->id);
    if (result && s->traces_fd >= 0)
        run_write_trace(s, run->id);
    droste_done_fn *then = run->then;
    void *then_arg = run->then_arg;
    run_free(run);
    if (then)
        then(then_arg, result);
    else
        droste_result_free(result);
}

/* The run, with what followers and metrics need. */
static struct run *run_new(struct server *s, struct account *owner, const char *id)
{
    struct run *run = calloc(1, sizeof *run);
    if (!run)
        return NULL;
    run->server = s;
    run->owner = owner;
    run->attended_ns = clock_ns();
    snprintf(run->id, sizeof run->id, "%s", id);
    run->next = s->runs;
    s->runs = run;
    s->figures->gauges[GAUGE_RUNS]++;
    return run;
}

static int run_begin(struct run *run, droste_request *request, droste_error *err)
{
    request->event = run_on_event;
    request->done = run_on_done;
    request->all_events = 1; /* of calls of the code and of child runs, which followers see */
    request->arg = run;
    int rc = droste_start(run->server->d, request, &run->running, err);
    if (rc < 0)
        run_free(run);
    else
        table_count(run->server->figures, COUNT_RUNS, 1);
    return rc;
}

int runs_begin(
    struct server *s, const struct runs_begin *begin, struct run **out, droste_error *err)
{
    struct run *run = run_new(s, begin->owner, begin->id);
    if (!run) {
        if (begin->held_cost > 0)
            table_hold(begin->owner->row, s->worker, -begin->held_cost);
        *err = (droste_error){ .code = DROSTE_ERROR_MEMORY, .text = "out of memory" };
        return -1;
    }
    run->held_cost = begin->held_cost;
    run->then = begin->request->done;
    run->then_arg = begin->request->arg;
    run->starting = begin->place;
    begin->place->has_place = false; /* it is the run's */
    *out = run;
    int rc = run_begin(run, begin->request, err);
    if (rc < 0)
        *out = NULL;
    return rc;
}

void runs_start(struct request *r, const struct runs_start *start)
{
    struct server *s = r->server;
    struct run *run = run_new(s, r->account, start->id);
    droste_error err;
    if (!run) {
        request_refuse_memory(r);
        return;
    }
    run->request = r;
    run->begun = start->begun;
    run->attend_seconds = start->attend_seconds;
    r->admission.has_place = false; /* they are the run's */
    run->held_cost = r->held_cost;
    r->held_cost = 0;
    r->state = run;
    r->on_gone = run_on_gone;
    if (run_begin(run, start->request, &err) < 0) {
        r->on_gone = NULL;
        request_fail(r, &err);
    }
}

/* The context is a text, whose type the settings say or guess, or any other value as JSON; or a
 * stored one, whose path the caller frees. False: the request was refused. */
static bool run_take_context(struct request *r, droste_request *request, char **path)
{
    struct json_object *context = NULL;
    const char *stored = json_get_string(r->json, "context_file", NULL);
    if (stored) {
        request->context = *path = contexts_path(r, stored);
        return *path != NULL;
    }
    if (!json_object_object_get_ex(r->json, "context", &context))
        return true;
    if (json_object_is_type(context, json_type_string)) {
        request->data = json_object_get_string(context);
        request->len = (size_t)json_object_get_string_len(context);
        return true;
    }
    request->data = json_text(context, &request->len);
    request->kind = "json";
    return true;
}

void runs_put_trace(struct request *r, struct buf *words)
{
    char trace[TRACEPARENT_SIZE];
    if (trace_field(&r->trace.span, trace))
        sandbox_setting(words, "traceparent", trace);
}

static void run_create(struct request *r)
{
    struct server *s = r->server;
    cleanup_buf struct buf words = { 0 };
    char id[SERVE_ID_SIZE];
    runs_put_trace(r, &words);
    if (!run_settings(r, json_get_typed(r->json, "options", json_type_object), &words))
        return;
    cleanup_free const char **settings = sandbox_list_settings(&words);
    if (!settings || server_make_id(s, id) < 0) {
        request_refuse_memory(r);
        return;
    }
    droste_request request = { .question = json_get_string(r->json, "question", ""),
        .settings = settings,
        .id = id,
        .account = r->account->key.id };
    cleanup_free char *path = NULL;
    if (run_take_context(r, &request, &path))
        runs_start(r, &(struct runs_start){ &request, id, run_reply_begun, 0 });
}

/* Without a record there is nothing to describe, follow or resume. */
bool runs_are_recorded(struct request *r)
{
    droste_error err;
    const char *path = droste_record_path(r->server->d, &err);
    if (!path)
        request_fail(r, &err);
    else if (strcmp(path, "none") == 0)
        request_refuse(r, 501, "unsupported", "this server has no database of runs");
    return !r->reply;
}

void handle_run_create(struct request *r)
{
    if (runs_are_recorded(r))
        admission_ask(r, run_create);
}

static void run_resume(struct request *r)
{
    struct run_facts facts;
    if (!run_look(r, &facts, NULL))
        return;
    if (run_active(r->server, r->id) || strcmp(facts.status, "interrupted") != 0) {
        request_refuse(r, 409, "not_interrupted",
            "the run is '%s'; only an interrupted one resumes", facts.status);
        return;
    }
    if (!spending_check(r))
        return;
    droste_request request = { .resume = r->id };
    runs_start(r, &(struct runs_start){ &request, r->id, run_reply_begun, 0 });
}

void handle_run_resume(struct request *r)
{
    if (runs_find(r)) /* here, and not on another node */
        admission_ask(r, run_resume);
}

/* ---- the others ---- */

void handle_run_get(struct request *r)
{
    run_reply(r);
}

bool runs_cancel(struct server *s, const char *id)
{
    struct run *run = run_active(s, id);
    if (run)
        droste_cancel(run->running);
    return run != NULL;
}

void handle_run_cancel(struct request *r)
{
    struct run_facts facts;
    if (!run_look(r, &facts, NULL))
        return;
    if (runs_cancel(r->server, r->id))
        request_reply(r, 204, NULL, NULL, 0);
    else
        request_refuse(
            r, 409, "not_active", "this server does not run it: it is '%s'", facts.status);
}

void handle_run_delete(struct request *r)
{
    struct run_facts facts;
    droste_record_freed freed;
    droste_error err;
    if (!run_look(r, &facts, NULL))
        return;
    if (run_active(r->server, r->id) || strcmp(facts.status, "running") == 0)
        request_refuse(r, 409, "busy", "the run is active; cancel it first");
    else if (droste_record_remove(facts.record, r->id, &freed, &err) < 0)
        request_fail(r, &err);
    else
        request_reply(r, 204, NULL, NULL, 0);
}

/* ---- for the server ---- */

void runs_suspend(struct run *run)
{
    if (!run->is_suspended)
        droste_suspend(run->running);
    run->is_suspended = true;
}

void runs_attend(struct server *s, const char *id, uint64_t now_ns)
{
    struct run *run = run_active(s, id);
    if (run)
        run->attended_ns = now_ns;
    else
        table_attend(s->table, id, now_ns);
}

/* A client that retries has gone for some seconds; one that has left does not come back. */
static bool run_is_deserted(const struct run *run, uint64_t now_ns)
{
    uint64_t attended = table_attended(run->server->table, run->id);
    if (attended < run->attended_ns)
        attended = run->attended_ns;
    return run->attend_seconds > 0 && now_ns > attended &&
           (double)(now_ns - attended) / 1e9 > run->attend_seconds;
}

static int run_on_waiting(void *arg, const droste_approval *a, droste_error *err)
{
    bool *waits = arg;
    *waits = *waits || a->wants_result;
    return 0;
}

/* One that waits for its client gives back its sandbox: it is resumed with what the client
 * answers. */
static void run_leave(struct run *run)
{
    struct server *s = run->server;
    bool waits = false;
    if (s->record || droste_record_open(s->d, &s->record, NULL) == 0)
        droste_record_approvals(s->record, run->id, NULL, run_on_waiting, &waits, NULL);
    if (waits)
        runs_suspend(run);
    else
        droste_cancel(run->running);
}

void runs_sweep(struct server *s)
{
    uint64_t now_ns = clock_ns();
    for (struct follower *f = s->followers; f; f = f->next) {
        if (!run_active(s, f->r->id))
            f->is_dirty = true; /* another process may go on with it */
        if (f->kind->tick && follower_waits(f))
            f->kind->tick(f, now_ns);
    }
    for (struct run *run = s->runs; run; run = run->next) {
        if (run->owner->is_revoked)
            runs_suspend(run);
        else if (run->request)
            run->attended_ns = now_ns; /* it waits for the beginning */
        else if (run_is_deserted(run, now_ns))
            run_leave(run);
    }
}

void runs_close(struct server *s)
{
    for (struct run *run = s->runs; run; run = run->next) {
        if (run->request)
            run->request->on_gone = NULL;
        run->request = NULL;
        runs_suspend(run);
    }
    while (s->runs && droste_turn(s->d, 1000, NULL) > 0)
        ;
    droste_record_close(s->record);
    s->record = NULL;
}
