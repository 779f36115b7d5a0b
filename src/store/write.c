/* store/write.c: records the steps of a run, each in a transaction of its own.
 *
 * `write_open` begins the transaction and the statement; binding a value stores it; `write_close`
 * runs the statement and commits, or rolls back. The first failure is reported there.
 */
#include <stdio.h>
#include <time.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/os/random.h"
#include "base/text.h"
#include "store/entry.h"
#include "store/internal.h"

enum { ID_TRIES = 32 };

struct write {
    struct query query;
    char hashes[6][HASH_TEXT_SIZE]; /* of the values, until the statement has run */
    int values;
    bool begun;
    bool done;  /* false: the statement matched nothing, and the file is unchanged */
    int64_t id; /* what the statement returns */
};

static struct write write_open(struct store *store, enum statement which)
{
    struct write w = { .query = query_open(store, which) };
    w.begun = query_run(store, STATEMENT_BEGIN_WRITE, &w.query.error) == 0;
    w.query.log = entry_begin(store, which);
    return w;
}

static void bind_run(struct query *q, const char *run)
{
    entry_put_bytes(q->log, ENTRY_RUN, run, run ? strlen(run) : 0);
    bind_text_unlogged(q, run);
}

/* A call or cell; 0: none. */
static void bind_step(struct query *q, int64_t step)
{
    entry_put_int(q->log, ENTRY_STEP, entry_step(q->store, step));
    if (step != 0)
        bind_int_unlogged(q, step);
    else
        bind_text_unlogged(q, NULL);
}

static void bind_request(struct query *q, int64_t request)
{
    entry_put_int(q->log, ENTRY_REQUEST, entry_request(q->store, request));
    bind_int_unlogged(q, request);
}

static void bind_value(struct write *w, droste_value value)
{
    struct query *q = &w->query;
    char *hash = NULL;
    if (value.data && q->error.code == ERROR_NONE) {
        hash = w->hashes[w->values++];
        blob_write(q->store, value, hash, &q->error);
    }
    entry_put_bytes(q->log, ENTRY_VALUE, value.data, value.len);
    bind_text_unlogged(q, hash);
}

static void bind_owner(struct query *q, const struct owner *owner)
{
    if (q->log)
        buf_putc(q->log, ENTRY_OWNER);
    bind_owner_unlogged(q, owner);
}

/* Runs the statement to its end. */
static int write_run(struct write *w, struct error *err)
{
    bool more = false;
    int rc = query_step(&w->query, &w->done, err);
    if (rc < 0 || !w->done)
        return rc;
    w->id = take_int(&w->query);
    /* SQLite checks foreign keys at the end of the statement, after its row. */
    return query_step(&w->query, &more, err);
}

static int write_close(struct write *w, struct error *err)
{
    struct store *store = w->query.store;
    int rc = write_run(w, err);
    query_close(&w->query);
    if (rc == 0 && w->done)
        rc = query_run(store, STATEMENT_COMMIT, err);
    if (rc == 0 && w->done && w->query.log)
        rc = entry_commit(store, w->id, err);
    if (w->begun && (rc < 0 || !w->done))
        query_rollback(store);
    return rc;
}

static int check_status(const char *status, struct error *err)
{
    if (status && strcmp(status, "running") != 0 && strcmp(status, "interrupted") != 0)
        return 0;
    return error_set(err, ERROR_ARGUMENT, "a step cannot end as '%.32s'", status ? status : "");
}

/* Negative: unknown. */
static void bind_cost(struct query *q, double cost)
{
    if (cost >= 0)
        bind_real(q, cost);
    else
        bind_id(q, 0);
}

/* ---- runs ---- */

/* "20261120-191512-4f3a9c": sorts by time and can be read aloud. */
static int make_id(char id[STORE_RUN_ID_SIZE], struct error *err)
{
    struct tm utc;
    time_t now = time(NULL);
    gmtime_r(&now, &utc);
    size_t used = strftime(id, STORE_RUN_ID_SIZE, "%Y%m%d-%H%M%S-", &utc);
    return random_hex(id + used, 6, err);
}

static int insert_run(struct store *store, const droste_record_run *begin, const char *id,
    bool *inserted, struct error *err)
{
    struct write w = write_open(store, STATEMENT_RUN_BEGIN);
    bind_run(&w.query, id);
    bind_run(&w.query, begin->parent);
    bind_step(&w.query, begin->parent_cell);
    bind_int(&w.query, begin->depth);
    bind_text(&w.query, begin->model);
    bind_text(&w.query, begin->environment);
    bind_text(&w.query, begin->isolation);
    bind_text(&w.query, begin->version);
    bind_value(&w, begin->question);
    bind_value(&w, begin->context);
    bind_value(&w, begin->limits);
    bind_text(&w.query, begin->previous);
    bind_value(&w, begin->settings);
    bind_value(&w, begin->context_data);
    bind_owner(&w.query, &store->owner);
    bind_int(&w.query, clock_wall_ms());
    bind_text(&w.query, begin->batch);
    bind_text(&w.query, begin->task);
    bind_value(&w, begin->tools);
    bind_text(&w.query, begin->parent_fork);
    bind_text(&w.query, begin->account);
    int rc = write_close(&w, err);
    *inserted = w.done;
    return rc;
}

int store_run_begin(struct store *store, const droste_record_run *begin, char id[STORE_RUN_ID_SIZE],
    struct error *err)
{
    bool inserted = false;
    if (begin->id && !text_is_name(begin->id))
        return error_set(err, ERROR_ARGUMENT,
            "run id '%.64s': use letters, digits, '.', '_' and '-', at most 64", begin->id);
    for (int tries = 0; tries < ID_TRIES && !inserted; tries++) {
        int rc = 0;
        if (begin->id)
            memmove(id, begin->id, strlen(begin->id) + 1); /* they may overlap */
        else
            rc = make_id(id, err);
        if (rc == 0)
            rc = insert_run(store, begin, id, &inserted, err);
        if (rc < 0)
            return rc;
        if (!inserted && begin->id)
            return error_set(err, ERROR_ARGUMENT, "a run '%s' already exists", id);
    }
    return inserted ? 0 : error_set(err, ERROR_STORE, "no unused id for a run was found");
}

/* For updates of a run by its id; a run that does not match is an error. */
static int close_run(struct write *w, const char *run, struct error *err)
{
    int rc = write_close(w, err);
    if (rc == 0 && !w->done)
        return error_set(err, ERROR_ARGUMENT, "there is no run '%.64s', or it has ended", run);
    return rc;
}

int store_run_note_isolation(
    struct store *store, const char *run, const char *isolation, struct error *err)
{
    struct write w = write_open(store, STATEMENT_RUN_NOTE_ISOLATION);
    bind_text(&w.query, isolation);
    bind_run(&w.query, run);
    return close_run(&w, run, err);
}

int store_run_end(
    struct store *store, const char *run, const droste_record_run *end, struct error *err)
{
    int rc = check_status(end->status, err);
    if (rc < 0)
        return rc;
    struct write w = write_open(store, STATEMENT_RUN_END);
    bind_text(&w.query, end->status);
    bind_text(&w.query, end->error);
    bind_text(&w.query, end->code);
    bind_value(&w, end->answer);
    bind_int(&w.query, end->iterations);
    bind_int(&w.query, end->calls);
    bind_int(&w.query, end->input_tokens);
    bind_int(&w.query, end->output_tokens);
    bind_cost(&w.query, end->cost);
    bind_real(&w.query, end->seconds);
    bind_int(&w.query, clock_wall_ms());
    bind_run(&w.query, run);
    return close_run(&w, run, err);
}

int store_run_fail(struct store *store, const char *run, const struct error *why, struct error *err)
{
    struct write w = write_open(store, STATEMENT_RUN_FAIL);
    bind_text(&w.query, why->text);
    bind_text(&w.query, error_code_name(why->code));
    bind_run(&w.query, run);
    return close_run(&w, run, err);
}

/* 0 if the run can be adopted, within the transaction that does so. */
static int check_adoptable(struct store *store, const char *run, struct error *err)
{
    cleanup_query struct query q = query_open(store, STATEMENT_RUN_OWNER);
    struct owner owner = { 0 };
    bool row;
    bind_text(&q, run);
    int rc = query_step(&q, &row, err);
    if (rc < 0)
        return rc;
    if (!row)
        return error_set(err, ERROR_NOT_FOUND, "there is no run '%.64s'", run);
    const char *status = take_text(&q);
    if (status && strcmp(status, "interrupted") == 0) /* store_collect has already ended it */
        return 0;
    if (!status || strcmp(status, "running") != 0)
        return error_set(
            err, ERROR_ARGUMENT, "run '%.64s' has ended: %.32s", run, status ? status : "");
    take_owner(&q, &owner);
    if (!owner_is_gone(&owner, &store->owner))
        return error_set(err, ERROR_ARGUMENT, "run '%.64s' is still active in process %lld", run,
            (long long)owner.pid);
    return 0;
}

int store_run_adopt(struct store *store, const char *run, struct error *err)
{
    struct write w = write_open(store, STATEMENT_RUN_ADOPT);
    if (w.begun)
        check_adoptable(store, run, &w.query.error);
    bind_owner(&w.query, &store->owner);
    bind_run(&w.query, run);
    return close_run(&w, run, err);
}

int store_run_release(struct store *store, const char *run, struct error *err)
{
    struct write w = write_open(store, STATEMENT_RUN_INTERRUPT);
    bind_run(&w.query, run);
    return close_run(&w, run, err);
}

int store_artifact_add(
    struct store *store, const char *run, const droste_record_artifact *artifact, struct error *err)
{
    struct write w = write_open(store, STATEMENT_ARTIFACT_ADD);
    bind_run(&w.query, run);
    bind_text(&w.query, artifact->name);
    bind_int(&w.query, artifact->size);
    bind_text(&w.query, artifact->sha256);
    bind_value(&w, artifact->value);
    return write_close(&w, err);
}

/* ---- requests to the network ---- */

int store_request_begin(
    struct store *store, const droste_record_request *begin, int64_t *request, struct error *err)
{
    struct write w = write_open(store, STATEMENT_REQUEST_BEGIN);
    bind_run(&w.query, begin->run);
    bind_int(&w.query, begin->turn);
    bind_step(&w.query, begin->cell);
    bind_text(&w.query, begin->method);
    bind_text(&w.query, begin->host);
    bind_int(&w.query, begin->port);
    bind_text(&w.query, begin->path);
    bind_int(&w.query, begin->refused);
    bind_text(&w.query, begin->why);
    bind_int(&w.query, begin->status);
    bind_int(&w.query, begin->started_ms);
    if (begin->refused)
        bind_real(&w.query, begin->seconds);
    else
        bind_text(&w.query, NULL);
    int rc = write_close(&w, err);
    *request = w.id;
    return rc;
}

int store_request_end(
    struct store *store, int64_t request, const droste_record_request *end, struct error *err)
{
    struct write w = write_open(store, STATEMENT_REQUEST_END);
    bind_text(&w.query, end->address);
    bind_int(&w.query, end->refused);
    bind_text(&w.query, end->why);
    bind_int(&w.query, end->status);
    bind_int(&w.query, end->sent);
    bind_int(&w.query, end->received);
    bind_real(&w.query, end->seconds);
    bind_request(&w.query, request);
    return write_close(&w, err);
}

/* ---- turns, calls, cells ---- */

int store_turn_begin(struct store *store, const char *run, int64_t turn, struct error *err)
{
    struct write w = write_open(store, STATEMENT_TURN_BEGIN);
    bind_run(&w.query, run);
    bind_int(&w.query, turn);
    bind_int(&w.query, clock_wall_ms());
    int rc = write_close(&w, err);
    if (rc == 0 && !w.done)
        return error_set(
            err, ERROR_ARGUMENT, "run '%.64s' already has a turn %lld", run, (long long)turn);
    return rc;
}

int store_turn_keep(struct store *store, const droste_record_turn *turn, struct error *err)
{
    struct write w = write_open(store, STATEMENT_TURN_KEEP);
    bind_int(&w.query, turn->kept);
    bind_text(&w.query, turn->reason);
    bind_text(&w.query, turn->session);
    bind_run(&w.query, turn->run);
    bind_int(&w.query, turn->turn);
    int rc = write_close(&w, err);
    if (rc == 0 && !w.done)
        return error_set(err, ERROR_ARGUMENT, "turn %lld of run '%.64s' has kept a candidate",
            (long long)turn->turn, turn->run);
    return rc;
}

int store_call_begin(
    struct store *store, const droste_record_call *begin, int64_t *call, struct error *err)
{
    struct write w = write_open(store, STATEMENT_CALL_BEGIN);
    bind_run(&w.query, begin->run);
    bind_int(&w.query, begin->turn);
    bind_step(&w.query, begin->cell);
    bind_int(&w.query, begin->depth);
    bind_text(&w.query, begin->kind);
    bind_text(&w.query, begin->model);
    bind_value(&w, begin->request);
    bind_text(&w.query, begin->key);
    bind_int(&w.query, clock_wall_ms());
    bind_text(&w.query, begin->fork);
    bind_id(&w.query, begin->candidate);
    int rc = write_close(&w, err);
    *call = w.id;
    return rc;
}

/* For the ends of calls and cells. */
static int close_step(struct write *w, const char *what, int64_t id, struct error *err)
{
    bind_int(&w->query, clock_wall_ms());
    bind_step(&w->query, id);
    int rc = write_close(w, err);
    if (rc == 0 && !w->done)
        return error_set(
            err, ERROR_ARGUMENT, "there is no %s %lld, or it has ended", what, (long long)id);
    return rc;
}

/* For updates of a call that has not ended. */
static int close_open_call(struct write *w, int64_t call, struct error *err)
{
    bind_step(&w->query, call);
    int rc = write_close(w, err);
    if (rc == 0 && !w->done)
        return error_set(err, ERROR_ARGUMENT, "call %lld is not active", (long long)call);
    return rc;
}

int store_call_repeat(struct store *store, int64_t call, struct error *err)
{
    struct write w = write_open(store, STATEMENT_CALL_REPEAT);
    return close_open_call(&w, call, err);
}

int store_call_end(
    struct store *store, int64_t call, const droste_record_call *end, struct error *err)
{
    int rc = check_status(end->status, err);
    if (rc < 0)
        return rc;
    struct write w = write_open(store, STATEMENT_CALL_END);
    bind_text(&w.query, end->status);
    bind_text(&w.query, end->error);
    bind_text(&w.query, end->finish);
    bind_value(&w, end->reply);
    bind_value(&w, end->reply_values);
    bind_int(&w.query, end->input_tokens);
    bind_int(&w.query, end->output_tokens);
    bind_int(&w.query, end->estimated);
    bind_cost(&w.query, end->cost);
    bind_int(&w.query, end->attempts);
    bind_real(&w.query, end->seconds);
    return close_step(&w, "call", call, err);
}

static int write_question(struct store *store, int64_t call, const char *text, struct error *err)
{
    struct write w = write_open(store, STATEMENT_CALL_QUESTION);
    bind_text(&w.query, text);
    return close_open_call(&w, call, err);
}

int store_call_ask(
    struct store *store, int64_t call, const char *question, int64_t until_ms, struct error *err)
{
    int rc = question ? write_question(store, call, question, err) : 0;
    if (rc < 0)
        return rc;
    struct write w = write_open(store, STATEMENT_CALL_ASK);
    bind_int(&w.query, clock_wall_ms());
    bind_id(&w.query, until_ms);
    return close_open_call(&w, call, err);
}

struct decision {
    bool approves, has_result, late;
};

/* 0 if the decision may be made, within the transaction that makes it. */
static int check_undecided(void *arg, const droste_approval *a, struct error *err)
{
    const struct decision *made = arg;
    if (made->has_result && !a->wants_result)
        return error_set(err, ERROR_ARGUMENT,
            "approval %lld: the call waits for a decision, not for a result", (long long)a->id);
    if (made->approves && !made->has_result && a->wants_result)
        return error_set(err, ERROR_ARGUMENT,
            "approval %lld: the call waits for a result; an approval alone does not help it",
            (long long)a->id);
    if (a->decision)
        return error_set(err, ERROR_ARGUMENT, "approval %lld was %s already, by %.100s",
            (long long)a->id, a->decision, a->decided_by ? a->decided_by : "an unknown client");
    if (a->ended)
        return error_set(
            err, ERROR_ARGUMENT, "approval %lld: its call has ended already", (long long)a->id);
    if (!made->late && a->until_ms && clock_wall_ms() >= a->until_ms)
        return error_set(err, ERROR_ARGUMENT,
            "approval %lld: its time is up (ask-timeout), and the default decides",
            (long long)a->id);
    return 0;
}

int store_call_decide(struct store *store, int64_t call, bool approve, const char *by,
    const char *reason, bool late, struct error *err)
{
    struct write w = write_open(store, STATEMENT_CALL_DECIDE);
    struct decision made = { .approves = approve, .late = late };
    if (w.begun)
        store_approval_read(store, call, check_undecided, &made, &w.query.error);
    bind_text(&w.query, approve ? "approved" : "denied");
    bind_int(&w.query, clock_wall_ms());
    bind_text(&w.query, by);
    bind_text(&w.query, reason);
    return close_open_call(&w, call, err);
}

int store_call_result(
    struct store *store, int64_t call, droste_value result, const char *by, struct error *err)
{
    struct write w = write_open(store, STATEMENT_CALL_RESULT);
    struct decision made = { .approves = true, .has_result = true };
    if (w.begun)
        store_approval_read(store, call, check_undecided, &made, &w.query.error);
    bind_int(&w.query, clock_wall_ms());
    bind_text(&w.query, by);
    bind_value(&w, result);
    return close_open_call(&w, call, err);
}

/* Another process has decided; the log does not have that yet. */
static int write_decision(void *arg, const droste_approval *a, struct error *err)
{
    struct store *store = arg;
    struct buf *log = entry_more(store, STATEMENT_CALL_DECIDE);
    if (!log || !a->decision)
        return 0;
    entry_put_bytes(log, ENTRY_TEXT, a->decision, strlen(a->decision));
    entry_put_int(log, ENTRY_INT, a->decided_ms);
    entry_put_bytes(log, ENTRY_TEXT, a->decided_by, a->decided_by ? strlen(a->decided_by) : 0);
    entry_put_bytes(
        log, ENTRY_TEXT, a->decision_reason, a->decision_reason ? strlen(a->decision_reason) : 0);
    entry_put_int(log, ENTRY_STEP, entry_step(store, a->id));
    return 0;
}

int store_call_go(struct store *store, int64_t call, struct error *err)
{
    struct write w = write_open(store, STATEMENT_CALL_GO);
    if (w.begun && w.query.log)
        store_approval_read(store, call, write_decision, store, &w.query.error);
    bind_int(&w.query, clock_wall_ms());
    return close_open_call(&w, call, err);
}

int store_cell_begin(
    struct store *store, const droste_record_cell *begin, int64_t *cell, struct error *err)
{
    struct write w = write_open(store, STATEMENT_CELL_BEGIN);
    bind_run(&w.query, begin->run);
    bind_int(&w.query, begin->turn);
    bind_value(&w, begin->code);
    bind_int(&w.query, clock_wall_ms());
    bind_id(&w.query, begin->candidate);
    int rc = write_close(&w, err);
    *cell = w.id;
    return rc;
}

/* Stores the forms of a cell's rich results, within its transaction. */
static void write_media(
    struct store *store, int64_t cell, const droste_record_cell *end, struct error *err)
{
    for (size_t i = 0; i < end->media_count && err->code == ERROR_NONE; i++) {
        const droste_record_media *media = &end->media[i];
        cleanup_query struct query q = query_open(store, STATEMENT_RESULT_INSERT);
        char hash[HASH_TEXT_SIZE];
        bool row;
        if (blob_write(store, media->value, hash, err) < 0)
            return;
        q.log = entry_more(store, STATEMENT_RESULT_INSERT);
        bind_step(&q, cell);
        bind_int(&q, media->result);
        bind_int(&q, (int64_t)i);
        bind_text(&q, media->type);
        bind_text(&q, media->form);
        entry_put_bytes(q.log, ENTRY_VALUE, media->value.data, media->value.len);
        bind_text_unlogged(&q, hash);
        query_step(&q, &row, err);
    }
}

int store_cell_end(
    struct store *store, int64_t cell, const droste_record_cell *end, struct error *err)
{
    int rc = check_status(end->status, err);
    if (rc < 0)
        return rc;
    struct write w = write_open(store, STATEMENT_CELL_END);
    bind_text(&w.query, end->status);
    bind_text(&w.query, end->killed);
    bind_value(&w, end->standard_output);
    bind_value(&w, end->standard_error);
    bind_value(&w, end->submit);
    bind_value(&w, end->error);
    bind_value(&w, end->variables);
    bind_int(&w.query, end->calls);
    bind_real(&w.query, end->seconds);
    if (w.query.error.code == ERROR_NONE)
        write_media(store, cell, end, &w.query.error);
    return close_step(&w, "cell", cell, err);
}
