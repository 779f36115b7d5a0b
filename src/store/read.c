/* store/read.c: reads runs back, one step at a time.
 *
 * A reader works on a snapshot of the file (a read transaction), which writers do not disturb. One
 * statement lists all steps of a tree of runs in order; others fetch each step. Short texts of a
 * step live in its statement's row, its values in `values`, until the callback returns.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/list.h"
#include "base/text.h"
#include "store/internal.h"

struct values {
    bool lazy;        /* values stay in the file */
    struct list kept; /* what was read or copied */
};

static void free_values(struct values *values)
{
    list_clear(&values->kept);
}
#define cleanup_values __attribute__((cleanup(free_values)))

/* A row's texts are gone with the next row: copies one. */
static const char *keep_text(struct query *q, const char *text, struct values *values)
{
    if (!text || q->error.code != ERROR_NONE || list_add(&values->kept, text, &q->error) < 0)
        return NULL;
    return values->kept.items[values->kept.count - 1];
}

struct whole {
    char *data;
    size_t len;
};

static int add_piece(void *arg, const char *data, size_t len, struct error *err)
{
    struct whole *whole = arg;
    memcpy(whole->data + whole->len, data, len);
    whole->len += len;
    return 0;
}

/* The caller owns *data (free), which ends with a NUL. */
static int read_whole(
    struct store *store, const char *hash, size_t size, char **data, struct error *err)
{
    cleanup_free char *out = malloc(size + 1);
    struct whole whole = { out, 0 };
    if (!out)
        return error_memory(err);
    int rc = blob_read(store, hash, size, add_piece, &whole, err);
    if (rc < 0)
        return rc;
    out[size] = '\0';
    *data = steal(&out);
    return 0;
}

static droste_value read_take_value(struct query *q, struct values *values)
{
    droste_value value = { 0 };
    char *data = NULL;
    const char *hash = take_text(q);
    if (!hash || q->error.code != ERROR_NONE)
        return value;
    if (blob_size(q->store, hash, &value.len, &q->error) < 0)
        return value;
    if (values->lazy) {
        value.hash = hash;
    } else if (read_whole(q->store, hash, value.len, &data, &q->error) == 0 &&
               list_take(&values->kept, data, &q->error) == 0) {
        value.data = data;
    }
    return value;
}

int store_append_piece(void *arg, const char *data, size_t len, struct error *err)
{
    buf_append(arg, data, len);
    return buf_failed(arg) ? error_memory(err) : 0;
}

int store_value_read(struct store *store, const droste_value *value, size_t max, store_piece_fn *fn,
    void *arg, struct error *err)
{
    size_t len = value->len < max ? value->len : max;
    if (value->data)
        return len > 0 ? fn(arg, value->data, len, err) : 0;
    return value->hash ? blob_read(store, value->hash, max, fn, arg, err) : 0;
}

/* A step without an end, in a run without a process, was interrupted. */
static const char *shown_status(const char *status, bool alive)
{
    return status && strcmp(status, "running") == 0 && !alive ? "interrupted" : status;
}

/* Ends the reader's snapshot, also after a failure. */
static int close_snapshot(struct store *store, int rc)
{
    query_rollback(store);
    return rc;
}

/* ---- the kinds of rows ---- */

static int read_take_run(
    struct query *q, droste_record_run *run, struct values *values, struct error *err)
{
    struct owner owner;
    run->id = take_text(q);
    run->parent = take_text(q);
    run->parent_cell = take_int(q);
    run->depth = take_int(q);
    run->model = take_text(q);
    run->environment = take_text(q);
    run->isolation = take_text(q);
    run->version = take_text(q);
    run->question = read_take_value(q, values);
    run->context = read_take_value(q, values);
    run->limits = read_take_value(q, values);
    run->started_ms = take_int(q);
    take_owner(q, &owner);
    run->status = shown_status(take_text(q), !owner_is_gone(&owner, &q->store->owner));
    run->error = take_text(q);
    run->answer = read_take_value(q, values);
    run->iterations = take_int(q);
    run->calls = take_int(q);
    run->input_tokens = take_int(q);
    run->output_tokens = take_int(q);
    run->cost = take_real(q);
    run->seconds = take_real(q);
    run->ended_ms = take_int(q);
    run->code = take_text(q);
    run->previous = take_text(q);
    run->seq = take_int(q);
    /* Only resuming a run needs these, and a context may be large. */
    struct values unread = { .lazy = true };
    run->settings = read_take_value(q, &unread);
    run->context_data = read_take_value(q, &unread);
    run->batch = take_text(q);
    run->task = take_text(q);
    run->tools = read_take_value(q, values);
    run->parent_fork = take_text(q);
    run->account = take_text(q);
    return query_check(q, err);
}

/* Whether the loop itself made the call. */
static bool is_loop_call(const char *kind)
{
    return kind && (strcmp(kind, "root") == 0 || strcmp(kind, "summary") == 0 ||
                       strcmp(kind, "select") == 0);
}

static int read_take_call(
    struct query *q, droste_record_call *call, struct values *values, bool alive, struct error *err)
{
    call->id = take_int(q);
    call->run = take_text(q);
    call->turn = take_int(q);
    call->cell = take_int(q);
    call->depth = take_int(q);
    call->kind = take_text(q);
    call->from_loop = is_loop_call(call->kind);
    call->model = take_text(q);
    call->request = read_take_value(q, values);
    call->started_ms = take_int(q);
    call->status = shown_status(take_text(q), alive);
    call->error = take_text(q);
    call->finish = take_text(q);
    call->reply = read_take_value(q, values);
    call->input_tokens = take_int(q);
    call->output_tokens = take_int(q);
    call->estimated = take_int(q) != 0;
    call->cost = take_real(q);
    call->attempts = take_int(q);
    call->seconds = take_real(q);
    call->ended_ms = take_int(q);
    call->key = take_text(q);
    call->repeated = take_int(q);
    call->fork = take_text(q);
    call->candidate = take_int(q);
    struct values unread = { .lazy = true }; /* only resuming a run needs it */
    call->reply_values = read_take_value(q, &unread);
    call->asked_ms = take_int(q);
    call->until_ms = take_int(q);
    call->decision = take_text(q);
    call->decided_ms = take_int(q);
    call->decided_by = take_text(q);
    call->decision_reason = take_text(q);
    call->begun_ms = take_int(q);
    return query_check(q, err);
}

static int read_take_cell(
    struct query *q, droste_record_cell *cell, struct values *values, bool alive, struct error *err)
{
    cell->id = take_int(q);
    cell->run = take_text(q);
    cell->turn = take_int(q);
    cell->code = read_take_value(q, values);
    cell->started_ms = take_int(q);
    cell->status = shown_status(take_text(q), alive);
    cell->killed = take_text(q);
    cell->standard_output = read_take_value(q, values);
    cell->standard_error = read_take_value(q, values);
    cell->submit = read_take_value(q, values);
    cell->error = read_take_value(q, values);
    cell->variables = read_take_value(q, values);
    cell->calls = take_int(q);
    cell->seconds = take_real(q);
    cell->ended_ms = take_int(q);
    cell->candidate = take_int(q);
    return query_check(q, err);
}

/* ---- one run, or a tree of them ---- */

struct visit {
    struct store *store;
    const struct store_visitor *visitor;
    void *arg;
    char run[STORE_RUN_ID_SIZE]; /* the run of the previous step */
    bool alive;                  /* that run may still be in progress */
    bool begins;                 /* steps are shown as they were when they began */
};

/* A row of the order: a kind of step, and its run. */
struct place {
    int64_t kind;
    const char *run;
    int64_t number; /* a turn's number, or a step's id */
    int64_t started_ms;
};

/* The rows that belong to a step: an array of such structures. */
struct rows {
    struct query query;
    struct values *values; /* owns their texts */
    void *items;
    size_t count, cap;
};

static void free_rows(struct rows *rows)
{
    query_close(&rows->query);
    free(rows->items);
}
#define cleanup_rows __attribute__((cleanup(free_rows)))

/* A value that stays in the file. */
static droste_value rows_take_value(struct rows *rows)
{
    struct values unread = { .lazy = true };
    droste_value value = read_take_value(&rows->query, &unread);
    value.hash = keep_text(&rows->query, value.hash, rows->values);
    return value;
}

/* `take` fills in an item of `size` bytes from the row. */
static int rows_read(
    struct rows *rows, size_t size, void (*take)(struct rows *rows, void *item), struct error *err)
{
    for (;;) {
        bool row;
        int rc = query_step(&rows->query, &row, err);
        if (rc < 0 || !row)
            return rc;
        void *items = array_grow(rows->items, rows->count, &rows->cap, size);
        if (!items)
            return error_memory(err);
        rows->items = items;
        take(rows, (char *)items + rows->count++ * size);
    }
}

static void read_take_artifact(struct rows *rows, void *item)
{
    struct query *q = &rows->query;
    droste_record_artifact *artifact = item;
    artifact->name = keep_text(q, take_text(q), rows->values);
    artifact->size = take_int(q);
    artifact->sha256 = keep_text(q, take_text(q), rows->values);
    artifact->value = rows_take_value(rows);
    if (q->error.code == ERROR_NONE && (!artifact->name || !artifact->sha256))
        error_set(&q->error, ERROR_STORE, "a saved file in the record is damaged");
}

static void read_take_request(struct rows *rows, void *item)
{
    struct query *q = &rows->query;
    droste_record_request *request = item;
    request->run = keep_text(q, take_text(q), rows->values);
    request->turn = take_int(q);
    request->cell = take_int(q);
    request->method = keep_text(q, take_text(q), rows->values);
    request->host = keep_text(q, take_text(q), rows->values);
    request->port = take_int(q);
    request->path = keep_text(q, take_text(q), rows->values);
    request->address = keep_text(q, take_text(q), rows->values);
    request->refused = (int)take_int(q);
    request->why = keep_text(q, take_text(q), rows->values);
    request->status = take_int(q);
    request->sent = take_int(q);
    request->received = take_int(q);
    request->started_ms = take_int(q);
    request->seconds = take_real(q);
    if (q->error.code == ERROR_NONE && (!request->method || !request->host))
        error_set(&q->error, ERROR_STORE, "a request in the record is damaged");
}

/* What was known when a step began. The run's isolation and a turn's candidate come later. */
static void run_as_begun(droste_record_run *run)
{
    run->status = "running";
    run->isolation = run->error = run->code = NULL;
    run->answer = (droste_value){ 0 };
    run->ended_ms = 0;
    run->artifact_count = run->request_count = 0;
}

static void call_as_begun(droste_record_call *call)
{
    call->status = "running";
    call->error = call->finish = NULL;
    call->reply = call->reply_values = (droste_value){ 0 };
    call->ended_ms = call->repeated = 0;
    call->asked_ms = call->until_ms = call->decided_ms = call->begun_ms = 0;
    call->decision = call->decided_by = call->decision_reason = NULL;
    call->estimated = 0;
}

static void cell_as_begun(droste_record_cell *cell)
{
    const droste_value none = { 0 };
    cell->status = "running";
    cell->killed = NULL;
    cell->standard_output = cell->standard_error = none;
    cell->submit = cell->error = cell->variables = none;
    cell->ended_ms = 0;
    cell->media_count = 0;
}

static int visit_run(struct visit *v, const struct place *at, store_run_fn *fn, struct error *err)
{
    cleanup_query struct query q = query_open(v->store, STATEMENT_RUN_READ);
    cleanup_values struct values values = { .lazy = v->visitor->lazy };
    cleanup_rows struct rows artifacts = { .query = query_open(v->store, STATEMENT_ARTIFACTS_READ),
        .values = &values };
    cleanup_rows struct rows requests = { .query = query_open(v->store, STATEMENT_REQUESTS_READ),
        .values = &values };
    droste_record_run run = { 0 };
    bool row;
    bind_text(&q, at->run);
    int rc = query_step(&q, &row, err);
    if (rc == 0 && !row)
        rc = error_set(err, ERROR_NOT_FOUND, "there is no run '%.64s'", at->run);
    if (rc == 0)
        rc = read_take_run(&q, &run, &values, err);
    bind_text(&artifacts.query, at->run);
    if (rc == 0)
        rc = rows_read(&artifacts, sizeof *run.artifacts, read_take_artifact, err);
    run.artifacts = artifacts.items;
    run.artifact_count = artifacts.count;
    bind_text(&requests.query, at->run);
    if (rc == 0)
        rc = rows_read(&requests, sizeof *run.requests, read_take_request, err);
    run.requests = requests.items;
    run.request_count = requests.count;
    if (v->begins)
        run_as_begun(&run);
    return rc < 0 ? rc : fn(v->arg, &run, err);
}

static int visit_run_begin(struct visit *v, const struct place *at, struct error *err)
{
    return v->visitor->run ? visit_run(v, at, v->visitor->run, err) : 0;
}

static int visit_run_end(struct visit *v, const struct place *at, struct error *err)
{
    return v->visitor->end ? visit_run(v, at, v->visitor->end, err) : 0;
}

static int visit_turn(struct visit *v, const struct place *at, struct error *err)
{
    cleanup_query struct query q = query_open(v->store, STATEMENT_TURN_READ);
    droste_record_turn turn = { .run = at->run, .turn = at->number, .started_ms = at->started_ms };
    bool row;
    if (!v->visitor->turn)
        return 0;
    bind_text(&q, at->run);
    bind_int(&q, at->number);
    int rc = query_step(&q, &row, err);
    if (rc < 0)
        return rc;
    if (!v->begins) {
        turn.kept = take_int(&q);
        turn.reason = take_text(&q);
        turn.session = take_text(&q);
    }
    rc = query_check(&q, err);
    return rc < 0 ? rc : v->visitor->turn(v->arg, &turn, err);
}

/* Whether the run of the next step may still be in progress. */
static int look_alive(struct visit *v, const char *run, struct error *err)
{
    cleanup_query struct query q = query_open(v->store, STATEMENT_RUN_OWNER);
    struct owner owner = { 0 };
    bool row;
    if (strcmp(v->run, run) == 0)
        return 0;
    bind_text(&q, run);
    int rc = query_step(&q, &row, err);
    if (rc < 0)
        return rc;
    const char *status = take_text(&q);
    take_owner(&q, &owner);
    v->alive = status && strcmp(status, "running") == 0 && !owner_is_gone(&owner, &v->store->owner);
    snprintf(v->run, sizeof v->run, "%s", run);
    return query_check(&q, err);
}

/* Finds the row of a call or cell. */
static int visit_find(struct visit *v, const struct place *at, struct query *q, struct error *err)
{
    bool row;
    int rc = look_alive(v, at->run, err);
    bind_int(q, at->number);
    return rc < 0 ? rc : query_step(q, &row, err);
}

static int visit_call(struct visit *v, const struct place *at, struct error *err)
{
    cleanup_query struct query q = query_open(v->store, STATEMENT_CALL_READ);
    cleanup_values struct values values = { .lazy = v->visitor->lazy };
    droste_record_call call = { 0 };
    if (!v->visitor->call)
        return 0;
    int rc = visit_find(v, at, &q, err);
    if (rc == 0)
        rc = read_take_call(&q, &call, &values, v->alive, err);
    if (v->begins)
        call_as_begun(&call);
    return rc < 0 ? rc : v->visitor->call(v->arg, &call, err);
}

/* A form of a rich result. */
static void read_take_media(struct rows *rows, void *item)
{
    static const char *const forms[] = { "text", "json", "bytes" };
    struct query *q = &rows->query;
    droste_record_media *media = item;
    media->result = take_int(q);
    media->type = keep_text(q, take_text(q), rows->values);
    const char *form = take_text(q);
    media->form = NULL;
    for (size_t i = 0; form && i < array_length(forms); i++)
        if (strcmp(form, forms[i]) == 0)
            media->form = forms[i];
    media->value = rows_take_value(rows);
    if (q->error.code == ERROR_NONE && (!media->form || !media->type || !media->value.hash))
        error_set(&q->error, ERROR_STORE, "a rich result in the record is damaged");
}

static int visit_cell(struct visit *v, const struct place *at, struct error *err)
{
    cleanup_query struct query q = query_open(v->store, STATEMENT_CELL_READ);
    cleanup_values struct values values = { .lazy = v->visitor->lazy };
    cleanup_rows struct rows media = { .query = query_open(v->store, STATEMENT_RESULTS_READ),
        .values = &values };
    droste_record_cell cell = { 0 };
    if (!v->visitor->cell)
        return 0;
    int rc = visit_find(v, at, &q, err);
    if (rc == 0)
        rc = read_take_cell(&q, &cell, &values, v->alive, err);
    bind_int(&media.query, at->number);
    if (rc == 0)
        rc = rows_read(&media, sizeof *cell.media, read_take_media, err);
    cell.media = media.items;
    cell.media_count = media.count;
    if (v->begins)
        cell_as_begun(&cell);
    return rc < 0 ? rc : v->visitor->cell(v->arg, &cell, err);
}

typedef int visit_fn(struct visit *v, const struct place *at, struct error *err);

/* Indexed by the kinds of ORDER in statement.c. */
static visit_fn *const visits[] = { visit_run_begin, visit_turn, visit_call, visit_cell,
    visit_run_end };

/* Visits the step of a row: a kind, a run, a number, and a time. */
static int visit_row(struct visit *v, struct query *q, struct error *err)
{
    struct place at = { .kind = take_int(q), .run = take_text(q) };
    at.number = take_int(q);
    at.started_ms = take_int(q);
    int rc = query_check(q, err);
    if (rc == 0 && (at.kind < 0 || at.kind >= (int64_t)array_length(visits)))
        rc = error_set(err, ERROR_STORE, "an event in the record is damaged");
    return rc < 0 ? rc : visits[at.kind](v, &at, err);
}

static int visit_all(struct visit *v, const char *run, struct error *err)
{
    cleanup_query struct query q = query_open(v->store, STATEMENT_ORDER);
    bind_text(&q, run);
    bind_int(&q, v->visitor->children);
    for (bool any = false;; any = true) {
        bool row;
        int rc = query_step(&q, &row, err);
        if (rc == 0 && !row)
            return any ? 0 : error_set(err, ERROR_NOT_FOUND, "there is no run '%.64s'", run);
        q.at = 4; /* after the columns of the order */
        if (rc == 0)
            rc = visit_row(v, &q, err);
        if (rc < 0)
            return rc;
    }
}

int store_run_visit(struct store *store, const char *run, const struct store_visitor *visitor,
    void *arg, struct error *err)
{
    struct visit v = { .store = store, .visitor = visitor, .arg = arg };
    int rc = query_run(store, STATEMENT_BEGIN_READ, err);
    return rc < 0 ? rc : close_snapshot(store, visit_all(&v, run, err));
}

int store_run_get(
    struct store *store, const char *run, store_run_fn *fn, void *arg, struct error *err)
{
    const struct store_visitor visitor = { .run = fn };
    struct visit v = { .store = store, .visitor = &visitor, .arg = arg };
    const struct place at = { .run = run };
    int rc = query_run(store, STATEMENT_BEGIN_READ, err);
    return rc < 0 ? rc : close_snapshot(store, visit_run_begin(&v, &at, err));
}

/* ---- what has happened since ---- */

static int visit_events(
    struct visit *v, const char *run, int64_t *at, int64_t most, struct error *err)
{
    cleanup_query struct query q = query_open(v->store, STATEMENT_EVENTS);
    bind_text(&q, run);
    bind_int(&q, v->visitor->children);
    bind_int(&q, *at);
    bind_int(&q, most > 0 ? most : -1);
    for (;;) {
        bool row;
        int rc = query_step(&q, &row, err);
        if (rc < 0 || !row)
            return rc;
        *at = take_int(&q);
        v->begins = take_int(&q) == 0;
        rc = visit_row(v, &q, err);
        if (rc < 0)
            return rc;
    }
}

int store_run_follow(struct store *store, const char *run, int64_t *at, int64_t most,
    const struct store_visitor *visitor, void *arg, struct error *err)
{
    struct visit v = { .store = store, .visitor = visitor, .arg = arg };
    int rc = query_run(store, STATEMENT_BEGIN_READ, err);
    return rc < 0 ? rc : close_snapshot(store, visit_events(&v, run, at, most, err));
}

/* ---- many runs ---- */

/* Only a run's owner reveals whether it is `interrupted`, so the statement also returns runs
 * that are recorded as running. */
static bool is_wanted(const droste_record_filter *filter, const droste_record_run *run)
{
    return !filter->status || strcmp(run->status, filter->status) == 0;
}

static int list_rows(struct query *q, const droste_record_filter *filter, store_run_fn *fn,
    void *arg, struct error *err)
{
    int64_t left = filter->limit > 0 ? filter->limit : INT64_MAX;
    while (left > 0) {
        cleanup_values struct values values = { 0 };
        droste_record_run run = { 0 };
        bool row;
        int rc = query_step(q, &row, err);
        if (rc < 0 || !row)
            return rc;
        rc = read_take_run(q, &run, &values, err);
        if (rc == 0 && is_wanted(filter, &run)) {
            left--;
            rc = fn(arg, &run, err);
        }
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int list_runs(struct store *store, const droste_record_filter *filter, store_run_fn *fn,
    void *arg, struct error *err)
{
    cleanup_query struct query q =
        query_open(store, filter->children ? STATEMENT_RUNS : STATEMENT_RUNS_BY_PARENT);
    bind_text(&q, filter->status);
    bind_text(&q, filter->model);
    bind_text(&q, filter->batch);
    bind_text(&q, filter->task);
    bind_text(&q, filter->account);
    bind_id(&q, filter->before);
    bind_id(&q, filter->since_ms);
    if (!filter->children)
        bind_text(&q, filter->parent);
    return list_rows(&q, filter, fn, arg, err);
}

int store_run_list(struct store *store, const droste_record_filter *filter, store_run_fn *fn,
    void *arg, struct error *err)
{
    int rc = query_run(store, STATEMENT_BEGIN_READ, err);
    return rc < 0 ? rc : close_snapshot(store, list_runs(store, filter, fn, arg, err));
}

/* ---- by prefix ---- */

enum { CANDIDATES = 4 }; /* as many as fit in an error message */

struct candidates {
    char ids[CANDIDATES + 1][STORE_RUN_ID_SIZE];
    int count;
};

/* Runs whose id begins with `prefix` ("" for all): an exact match first, then the newest. */
static int find_candidates(
    struct store *store, const char *prefix, struct candidates *found, struct error *err)
{
    cleanup_query struct query q = query_open(store, STATEMENT_RUNS_BY_PREFIX);
    bool row = true;
    bind_text(&q, prefix);
    bind_int(&q, CANDIDATES + 1);
    for (found->count = 0; found->count <= CANDIDATES; found->count++) {
        int rc = query_step(&q, &row, err);
        if (rc < 0 || !row)
            return rc;
        const char *id = take_text(&q);
        snprintf(found->ids[found->count], STORE_RUN_ID_SIZE, "%s", id ? id : "");
    }
    return 0;
}

static void list_candidates(const struct candidates *found, char *out, size_t size)
{
    size_t used = 0;
    out[0] = '\0';
    for (int i = 0; i < found->count && used < size; i++)
        used += (size_t)snprintf(out + used, size - used, "%s%s", i > 0 ? ", " : "",
            i < CANDIDATES ? found->ids[i] : "...");
}

static int unknown_prefix(struct store *store, const char *prefix, struct error *err)
{
    struct candidates newest;
    char names[160];
    int rc = find_candidates(store, "", &newest, err);
    if (rc < 0)
        return rc;
    if (newest.count == 0)
        return error_set(err, ERROR_NOT_FOUND, "no run '%.64s': the record %.120s is empty", prefix,
            store->path);
    list_candidates(&newest, names, sizeof names);
    return error_set(
        err, ERROR_NOT_FOUND, "no run begins with '%.64s'; the newest are %s", prefix, names);
}

static int take_id(void *arg, const droste_record_run *run, struct error *err)
{
    (void)err;
    snprintf(arg, STORE_RUN_ID_SIZE, "%s", run->id);
    return 0;
}

/* Leaves `id` empty if there is none. */
static int find_last(struct store *store, char id[STORE_RUN_ID_SIZE], struct error *err)
{
    static const droste_record_filter newest = { .limit = 1 };
    id[0] = '\0';
    return store_run_list(store, &newest, take_id, id, err);
}

int store_run_find(
    struct store *store, const char *prefix, char id[STORE_RUN_ID_SIZE], struct error *err)
{
    struct candidates found;
    char names[160];
    if (!text_is_name(prefix))
        return error_set(
            err, ERROR_ARGUMENT, "'%.64s' cannot be the beginning of a run's id", prefix);
    int rc = find_candidates(store, prefix, &found, err);
    if (rc < 0)
        return rc;
    if (found.count == 0 && strcmp(prefix, "last") == 0) {
        rc = find_last(store, id, err);
        if (rc < 0 || id[0])
            return rc;
    }
    if (found.count == 0)
        return unknown_prefix(store, prefix, err);
    if (found.count > 1 && strcmp(found.ids[0], prefix) != 0) {
        list_candidates(&found, names, sizeof names);
        return error_set(
            err, ERROR_ARGUMENT, "more than one run begins with '%.64s': %s", prefix, names);
    }
    memcpy(id, found.ids[0], STORE_RUN_ID_SIZE);
    return 0;
}

int store_task_find(struct store *store, const char *batch, const char *task,
    struct store_found *found, struct error *err)
{
    cleanup_query struct query q = query_open(store, STATEMENT_RUN_BY_TASK);
    struct owner owner;
    bool row;
    *found = (struct store_found){ 0 };
    bind_text(&q, batch);
    bind_text(&q, task);
    int rc = query_step(&q, &row, err);
    if (rc < 0 || !row)
        return rc;
    const char *id = take_text(&q), *status = take_text(&q);
    take_owner(&q, &owner);
    snprintf(found->id, sizeof found->id, "%s", id ? id : "");
    snprintf(found->status, sizeof found->status, "%s",
        shown_status(status ? status : "", !owner_is_gone(&owner, &store->owner)));
    return query_check(&q, err);
}
