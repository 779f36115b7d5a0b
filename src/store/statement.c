/* store/statement.c: every statement of the floor, and the hand that fills and reads them. */
#include <stdio.h>

#include "store/internal.h"

/* Calls and cells count together, so that their ids are the order of the steps. */
#define NEXT_STEP                                                                                  \
    "(SELECT 1 + max((SELECT coalesce(max(id), 0) FROM calls),"                                    \
    " (SELECT coalesce(max(id), 0) FROM cells)))"

#define RUN_COLUMNS                                                                                \
    "SELECT id, parent, parent_cell, depth, model, environment, isolation, version, question,"     \
    " context, limits, started_ms, owner_pid, owner_start, owner_space, owner_boot, status, "      \
    "error,"                                                                                       \
    " answer, iterations, calls, input_tokens, output_tokens, coalesce(cost, -1), seconds,"        \
    " ended_ms FROM runs "

static const char *const texts[STATEMENT_COUNT] = {
    [STATEMENT_BEGIN_READ] = "BEGIN",
    /* IMMEDIATE: waiting for the writer works only before anything was read. */
    [STATEMENT_BEGIN_WRITE] = "BEGIN IMMEDIATE",
    [STATEMENT_COMMIT] = "COMMIT",
    [STATEMENT_ROLLBACK] = "ROLLBACK",

    [STATEMENT_BLOB_KNOWN] = "SELECT 1 FROM blobs WHERE hash = ?",
    [STATEMENT_BLOB_INSERT] = "INSERT INTO blobs (hash, size, encoding, data) VALUES (?, ?, ?, ?)",
    [STATEMENT_BLOB_READ] = "SELECT size, encoding, data FROM blobs WHERE hash = ?",

    /* A write returns a row if it found what it was for. */
    [STATEMENT_RUN_BEGIN] =
        "INSERT INTO runs (id, parent, parent_cell, depth, model, environment, isolation, version,"
        " question, context, limits, owner_pid, owner_start, owner_space, owner_boot, started_ms)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (id) DO NOTHING RETURNING seq",
    [STATEMENT_RUN_NOTE_ISOLATION] = "UPDATE runs SET isolation = ? WHERE id = ? RETURNING seq",
    [STATEMENT_RUN_END] =
        "UPDATE runs SET status = ?, error = ?, answer = ?, iterations = ?, calls = ?,"
        " input_tokens = ?, output_tokens = ?, cost = ?, seconds = ?, ended_ms = ?"
        " WHERE id = ? AND status = 'running' RETURNING seq",
    [STATEMENT_RUN_OWNER] = "SELECT status, owner_pid, owner_start, owner_space, owner_boot"
                            " FROM runs WHERE id = ?",
    [STATEMENT_RUN_ADOPT] =
        "UPDATE runs SET owner_pid = ?, owner_start = ?, owner_space = ?, owner_boot = ?"
        " WHERE id = ? RETURNING seq",
    [STATEMENT_TURN_BEGIN] = "INSERT INTO turns (run, turn, started_ms) VALUES (?, ?, ?)"
                             " ON CONFLICT DO NOTHING RETURNING turn",
    [STATEMENT_CALL_BEGIN] =
        "INSERT INTO calls (id, run, turn, cell, depth, kind, model, request, started_ms)"
        " VALUES (" NEXT_STEP ", ?, ?, ?, ?, ?, ?, ?, ?) RETURNING id",
    [STATEMENT_CALL_END] =
        "UPDATE calls SET status = ?, error = ?, finish = ?, reply = ?, input_tokens = ?,"
        " output_tokens = ?, estimated = ?, attempts = ?, seconds = ?, ended_ms = ?"
        " WHERE id = ? AND status = 'running' RETURNING id",
    [STATEMENT_CELL_BEGIN] = "INSERT INTO cells (id, run, turn, code, started_ms)"
                             " VALUES (" NEXT_STEP ", ?, ?, ?, ?) RETURNING id",
    [STATEMENT_CELL_END] =
        "UPDATE cells SET status = ?, killed = ?, standard_output = ?, standard_error = ?,"
        " submit = ?, error = ?, variables = ?, calls = ?, seconds = ?, ended_ms = ?"
        " WHERE id = ? AND status = 'running' RETURNING id",

    [STATEMENT_RUN_READ] = RUN_COLUMNS "WHERE id = ?",
    [STATEMENT_RUNS] = RUN_COLUMNS "ORDER BY seq DESC LIMIT ?",
    [STATEMENT_RUNS_BY_PARENT] = RUN_COLUMNS "WHERE parent IS ? ORDER BY seq DESC LIMIT ?",
    /* '~' comes after every character of a name. */
    [STATEMENT_RUNS_BY_PREFIX] = "SELECT id FROM runs WHERE id >= ?1 AND id < ?1 || '~'"
                                 " ORDER BY id <> ?1, seq DESC LIMIT ?2",
    [STATEMENT_TURNS] = "SELECT turn, started_ms FROM turns WHERE run = ? ORDER BY turn",
    [STATEMENT_STEPS] = "SELECT id, 1 FROM calls WHERE run = ?1 AND turn = ?2 UNION ALL "
                        "SELECT id, 0 FROM cells WHERE run = ?1 AND turn = ?2 ORDER BY 1",
    [STATEMENT_CALL_READ] =
        "SELECT id, run, turn, cell, depth, kind, model, request, started_ms, status, error,"
        " finish, reply, input_tokens, output_tokens, estimated, attempts, seconds, ended_ms"
        " FROM calls WHERE id = ?",
    [STATEMENT_CELL_READ] =
        "SELECT id, run, turn, code, started_ms, status, killed, standard_output, standard_error,"
        " submit, error, variables, calls, seconds, ended_ms FROM cells WHERE id = ?",
};

int query_prepare_all(struct store *store, struct error *err)
{
    for (int i = 0; i < STATEMENT_COUNT; i++) {
        int rc = sqlite3_prepare_v3(
            store->db, texts[i], -1, SQLITE_PREPARE_PERSISTENT, &store->statements[i], NULL);
        if (rc != SQLITE_OK)
            return store_error(store, rc, err);
    }
    return 0;
}

struct query query_open(struct store *store, enum statement which)
{
    return (struct query){ .store = store, .stmt = store->statements[which] };
}

void query_close(struct query *q)
{
    if (!q->stmt)
        return;
    sqlite3_reset(q->stmt);
    sqlite3_clear_bindings(q->stmt);
}

static void note(struct query *q, int rc)
{
    if (rc != SQLITE_OK && q->error.code == ERROR_NONE)
        store_error(q->store, rc, &q->error);
}

void bind_text(struct query *q, const char *text)
{
    note(q, sqlite3_bind_text(q->stmt, ++q->at, text, -1, SQLITE_STATIC));
}

void bind_int(struct query *q, int64_t value)
{
    note(q, sqlite3_bind_int64(q->stmt, ++q->at, value));
}

void bind_id(struct query *q, int64_t id)
{
    if (id != 0)
        bind_int(q, id);
    else
        note(q, sqlite3_bind_null(q->stmt, ++q->at));
}

void bind_real(struct query *q, double value)
{
    note(q, sqlite3_bind_double(q->stmt, ++q->at, value));
}

void bind_bytes(struct query *q, const void *data, size_t len)
{
    note(q, sqlite3_bind_blob64(q->stmt, ++q->at, data, len, SQLITE_STATIC));
}

int query_check(struct query *q, struct error *err)
{
    if (q->error.code == ERROR_NONE)
        return 0;
    if (err)
        *err = q->error;
    return -(int)q->error.code;
}

int query_step(struct query *q, bool *row, struct error *err)
{
    int failed = query_check(q, err);
    if (failed < 0)
        return failed;
    int rc = sqlite3_step(q->stmt);
    if (rc != SQLITE_ROW && rc != SQLITE_DONE)
        return store_error(q->store, rc, err);
    q->at = 0;
    *row = rc == SQLITE_ROW;
    return 0;
}

const char *take_text(struct query *q)
{
    int column = q->at++;
    const char *text = (const char *)sqlite3_column_text(q->stmt, column);
    if (!text && sqlite3_column_type(q->stmt, column) != SQLITE_NULL)
        note(q, SQLITE_NOMEM);
    return text;
}

int64_t take_int(struct query *q)
{
    return sqlite3_column_int64(q->stmt, q->at++);
}

double take_real(struct query *q)
{
    return sqlite3_column_double(q->stmt, q->at++);
}

const void *take_bytes(struct query *q, size_t *len)
{
    int column = q->at++;
    const void *data = sqlite3_column_blob(q->stmt, column);
    *len = (size_t)sqlite3_column_bytes(q->stmt, column);
    return data;
}

void take_owner(struct query *q, struct owner *owner)
{
    owner->pid = take_int(q);
    owner->start = take_int(q);
    owner->space = take_int(q);
    const char *boot = take_text(q);
    snprintf(owner->boot, sizeof owner->boot, "%s", boot ? boot : "");
}

int query_run(struct store *store, enum statement which, struct error *err)
{
    cleanup_query struct query q = query_open(store, which);
    bool row;
    return query_step(&q, &row, err);
}

void query_rollback(struct store *store)
{
    if (!sqlite3_get_autocommit(store->db))
        query_run(store, STATEMENT_ROLLBACK, NULL);
}
