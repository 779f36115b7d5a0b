/* store/statement.c: all SQL statements of this layer; binding parameters and taking columns. */
#include <stdio.h>

#include "store/entry.h"
#include "store/internal.h"

/* Calls and cells share a sequence, so that their ids order the steps. */
#define NEXT_STEP                                                                                  \
    "(SELECT 1 + max((SELECT coalesce(max(id), 0) FROM calls),"                                    \
    " (SELECT coalesce(max(id), 0) FROM cells)))"

#define RUN_COLUMNS                                                                                  \
    "SELECT id, parent, parent_cell, depth, model, environment, isolation, version, question,"       \
    " context, limits, started_ms, owner_pid, owner_start, owner_space, owner_boot, status,"         \
    " error, answer, iterations, calls, input_tokens, output_tokens, coalesce(cost, -1), seconds,"   \
    " ended_ms, error_code, previous, seq, settings, context_data, batch, task, tools, parent_fork," \
    " account FROM runs "

#define WANTED                                                                                     \
    "(?1 IS NULL OR status = ?1 OR (?1 = 'interrupted' AND status = 'running'))"                   \
    " AND (?2 IS NULL OR instr(model, ?2) > 0)"                                                    \
    " AND (?3 IS NULL OR instr(batch, ?3) > 0) AND (?4 IS NULL OR task = ?4)"                      \
    " AND (?5 IS NULL OR account = ?5 OR (?5 = '' AND account IS NOT NULL))"                       \
    " AND (?6 IS NULL OR seq < ?6) AND (?7 IS NULL OR started_ms >= ?7)"

/* All steps of run ?1, with its descendants if ?2, in the order in which they began,
 * independently of the clock: ids of calls and cells have that order. A turn precedes its first
 * step, a run its first turn. What has no step yet follows the last step that existed when it
 * began. A run's end follows the last step of its tree, children's ends first. (A corrupt file
 * may contain runs that are each other's parents; UNION ends that recursion.) */
#define ORDER                                                                                      \
    "WITH RECURSIVE"                                                                               \
    " tree (id) AS (SELECT ?1 UNION"                                                               \
    "  SELECT r.id FROM tree t JOIN runs r ON r.parent = t.id WHERE ?2),"                          \
    " steps (run, turn, id, kind) AS MATERIALIZED ("                                               \
    "  SELECT run, turn, id, 2 FROM calls WHERE run IN tree UNION ALL"                             \
    "  SELECT run, turn, id, 3 FROM cells WHERE run IN tree),"                                     \
    " spans (run, turn, first, last) AS MATERIALIZED ("                                            \
    "  SELECT run, turn, min(id), max(id) FROM steps GROUP BY run, turn),"                         \
    " own (run, first, last) AS MATERIALIZED ("                                                    \
    "  SELECT run, min(first), max(last) FROM spans GROUP BY run),"                                \
    " below (top, id) AS (SELECT id, id FROM tree UNION"                                           \
    "  SELECT b.top, r.id FROM below b JOIN runs r ON r.parent = b.id WHERE ?2),"                  \
    " ends (run, last) AS MATERIALIZED (SELECT b.top, max(coalesce(o.last, r.parent_cell, 0))"     \
    "  FROM below b JOIN runs r ON r.id = b.id LEFT JOIN own o ON o.run = b.id GROUP BY b.top) "   \
    "SELECT coalesce(o.first, r.parent_cell, 0), iif(o.first IS NULL, 4, 0), 0, r.seq,"            \
    "  0, r.id, 0, 0"                                                                              \
    " FROM runs r LEFT JOIN own o ON o.run = r.id WHERE r.id IN tree UNION ALL "                   \
    "SELECT coalesce(s.first, o.last, r.parent_cell, 0), iif(s.first IS NULL, 5, 1), 0, t.turn,"   \
    "  1, t.run, t.turn, t.started_ms"                                                             \
    " FROM turns t JOIN runs r ON r.id = t.run LEFT JOIN own o ON o.run = t.run"                   \
    " LEFT JOIN spans s ON s.run = t.run AND s.turn = t.turn WHERE t.run IN tree UNION ALL "       \
    "SELECT id, 2, 0, 0, kind, run, id, 0 FROM steps UNION ALL "                                   \
    "SELECT e.last, 6, -r.depth, -r.seq, 4, e.run, 0, 0"                                           \
    " FROM ends e JOIN runs r ON r.id = e.run "                                                    \
    "ORDER BY 1, 2, 3, 4"

/* Run ?1 and its descendants. */
#define TREE                                                                                       \
    "WITH RECURSIVE tree (id) AS (SELECT ?1 UNION"                                                 \
    " SELECT r.id FROM tree t JOIN runs r ON r.parent = t.id) "

/* A call that asked for an approval, with its run and the root of that. (A depth bounds the way up:
 * a corrupt file may contain runs that are each other's parents.) */
#define APPROVAL_COLUMNS                                                                           \
    "SELECT c.id, c.run, root.id, root.account, c.model, c.request, c.question, c.asked_ms,"       \
    " c.until_ms,"                                                                                 \
    " c.decision, c.decided_ms, c.decided_by, c.decision_reason, c.begun_ms, c.repeated,"          \
    " c.reply, c.status, r.status, r.owner_pid, r.owner_start, r.owner_space, r.owner_boot"        \
    " FROM calls c JOIN runs r ON r.id = c.run JOIN runs root ON root.id ="                        \
    " (WITH RECURSIVE up (id, parent, n) AS (SELECT r.id, r.parent, 0 UNION ALL"                   \
    "  SELECT p.id, p.parent, n + 1 FROM up JOIN runs p ON p.id = up.parent WHERE n < 64)"         \
    " SELECT id FROM up ORDER BY n DESC LIMIT 1) "

#define OWNER "owner_pid, owner_start, owner_space, owner_boot"

static const char *const texts[STATEMENT_COUNT] = {
    [STATEMENT_BEGIN_READ] = "BEGIN",
    /* IMMEDIATE: SQLite waits for another writer only before the first read. */
    [STATEMENT_BEGIN_WRITE] = "BEGIN IMMEDIATE",
    [STATEMENT_COMMIT] = "COMMIT",
    [STATEMENT_ROLLBACK] = "ROLLBACK",

    [STATEMENT_BLOB_KNOWN] = "SELECT 1 FROM blobs WHERE hash = ?",
    [STATEMENT_BLOB_INSERT] = "INSERT INTO blobs (hash, size, encoding, data) VALUES (?, ?, ?, ?)",
    [STATEMENT_BLOB_FIND] = "SELECT rowid, size, encoding FROM blobs WHERE hash = ?",

    /* A write returns a row if it matched. */
    [STATEMENT_RUN_BEGIN] =
        "INSERT INTO runs (id, parent, parent_cell, depth, model, environment, isolation, version,"
        " question, context, limits, previous, settings, context_data, owner_pid, owner_start,"
        " owner_space, owner_boot, started_ms, batch, task, tools, parent_fork, account)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (id) DO NOTHING RETURNING seq",
    [STATEMENT_RUN_NOTE_ISOLATION] = "UPDATE runs SET isolation = ? WHERE id = ? RETURNING seq",
    [STATEMENT_RUN_END] =
        "UPDATE runs SET status = ?, error = ?, error_code = ?, answer = ?, iterations = ?,"
        " calls = ?, input_tokens = ?, output_tokens = ?, cost = ?, seconds = ?, ended_ms = ?"
        " WHERE id = ? AND status = 'running' RETURNING seq",
    [STATEMENT_RUN_FAIL] = "UPDATE runs SET status = 'error', error = ?, error_code = ?"
                           " WHERE id = ? AND status <> 'running' RETURNING seq",
    [STATEMENT_RUN_OWNER] = "SELECT status, " OWNER " FROM runs WHERE id = ?",
    [STATEMENT_RUN_ADOPT] =
        "UPDATE runs SET owner_pid = ?, owner_start = ?, owner_space = ?, owner_boot = ?,"
        " status = 'running', iterations = NULL, calls = NULL, input_tokens = NULL,"
        " output_tokens = NULL, cost = NULL, seconds = NULL, ended_ms = NULL WHERE id = ? "
        "RETURNING seq",
    [STATEMENT_TURN_BEGIN] = "INSERT INTO turns (run, turn, started_ms) VALUES (?, ?, ?)"
                             " ON CONFLICT DO NOTHING RETURNING turn",
    [STATEMENT_TURN_KEEP] = "UPDATE turns SET kept = ?, reason = ?, session = ?"
                            " WHERE run = ? AND turn = ? AND kept IS NULL RETURNING turn",
    [STATEMENT_TURN_READ] = "SELECT coalesce(kept, 0), reason, session FROM turns"
                            " WHERE run = ? AND turn = ?",
    [STATEMENT_CALL_BEGIN] =
        "INSERT INTO calls (id, run, turn, cell, depth, kind, model, request, key, started_ms,"
        " fork, candidate) VALUES (" NEXT_STEP ", ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING id",
    [STATEMENT_CALL_REPEAT] = "UPDATE calls SET repeated = repeated + 1"
                              " WHERE id = ? AND status = 'running' RETURNING id",
    [STATEMENT_CALL_END] =
        "UPDATE calls SET status = ?, error = ?, finish = ?, reply = ?, reply_values = ?,"
        " input_tokens = ?, output_tokens = ?, estimated = ?, cost = ?, attempts = ?, seconds = ?,"
        " ended_ms = ?"
        " WHERE id = ? AND status = 'running' RETURNING id",
    [STATEMENT_CALL_QUESTION] =
        "UPDATE calls SET question = ? WHERE id = ? AND status = 'running' RETURNING id",
    [STATEMENT_CALL_ASK] =
        "UPDATE calls SET asked_ms = ?, until_ms = ?, decision = NULL, decided_ms = NULL,"
        " decided_by = NULL, decision_reason = NULL, begun_ms = NULL"
        " WHERE id = ? AND status = 'running' RETURNING id",
    [STATEMENT_CALL_DECIDE] =
        "UPDATE calls SET decision = ?, decided_ms = ?, decided_by = ?, decision_reason = ?"
        " WHERE id = ? AND status = 'running' AND asked_ms IS NOT NULL AND decision IS NULL"
        " RETURNING id",
    [STATEMENT_CALL_RESULT] =
        "UPDATE calls SET decision = 'approved', decided_ms = ?, decided_by = ?, reply = ?"
        " WHERE id = ? AND status = 'running' AND asked_ms IS NOT NULL AND decision IS NULL"
        " RETURNING id",
    [STATEMENT_CALL_GO] = "UPDATE calls SET begun_ms = ? WHERE id = ? AND status = 'running'"
                          " AND decision = 'approved' AND begun_ms IS NULL RETURNING id",
    [STATEMENT_APPROVAL_READ] = APPROVAL_COLUMNS "WHERE c.id = ?1 AND c.asked_ms IS NOT NULL",
    [STATEMENT_APPROVALS] =
        APPROVAL_COLUMNS "WHERE c.asked_ms IS NOT NULL AND c.decision IS NULL"
                         " AND c.status = 'running' AND r.status IN ('running', 'interrupted')"
                         " AND (?1 IS NULL OR root.id = ?1 OR r.id = ?1)"
                         " AND (?2 IS NULL OR root.account = ?2) ORDER BY c.id",
    [STATEMENT_COST_QUESTIONS] =
        APPROVAL_COLUMNS "WHERE c.question IS NOT NULL AND root.id = ?1 ORDER BY c.id",
    [STATEMENT_DATA_VERSION] = "PRAGMA data_version",
    [STATEMENT_CELL_BEGIN] = "INSERT INTO cells (id, run, turn, code, started_ms, candidate)"
                             " VALUES (" NEXT_STEP ", ?, ?, ?, ?, ?) RETURNING id",
    [STATEMENT_CELL_END] =
        "UPDATE cells SET status = ?, killed = ?, standard_output = ?, standard_error = ?,"
        " submit = ?, error = ?, variables = ?, calls = ?, seconds = ?, ended_ms = ?"
        " WHERE id = ? AND status = 'running' RETURNING id",
    [STATEMENT_RESULT_INSERT] = "INSERT INTO results (cell, result, form, type, encoding, data)"
                                " VALUES (?, ?, ?, ?, ?, ?)",

    [STATEMENT_ARTIFACT_ADD] = "INSERT OR REPLACE INTO artifacts (run, name, size, sha256, data)"
                               " VALUES (?, ?, ?, ?, ?) RETURNING 1",

    [STATEMENT_REQUEST_BEGIN] =
        "INSERT INTO requests (run, turn, cell, method, host, port, path, refused, why, status,"
        " started_ms, seconds) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING id",
    [STATEMENT_REQUEST_END] =
        "UPDATE requests SET address = ?, refused = ?, why = ?, status = ?, sent = ?, received = ?,"
        " seconds = ? WHERE id = ? RETURNING id",

    [STATEMENT_RUN_READ] = RUN_COLUMNS "WHERE id = ?",
    [STATEMENT_RUNS] = RUN_COLUMNS "WHERE " WANTED " ORDER BY seq DESC",
    [STATEMENT_RUNS_BY_PARENT] = RUN_COLUMNS "WHERE " WANTED " AND parent IS ?8 ORDER BY seq DESC",
    /* '~' sorts after every character of a name. */
    [STATEMENT_RUNS_BY_PREFIX] = "SELECT id FROM runs WHERE id >= ?1 AND id < ?1 || '~'"
                                 " ORDER BY id <> ?1, seq DESC LIMIT ?2",
    [STATEMENT_RUN_BY_TASK] =
        "SELECT id, status, " OWNER " FROM runs WHERE batch = ?1 AND task = ?2"
        " ORDER BY seq DESC LIMIT 1",
    [STATEMENT_ORDER] = ORDER,
    [STATEMENT_EVENTS] =
        "WITH RECURSIVE tree (id) AS (SELECT ?1 UNION"
        " SELECT r.id FROM tree t JOIN runs r ON r.parent = t.id WHERE ?2)"
        " SELECT seq, ends, kind, run, number,"
        "  (SELECT started_ms FROM turns t WHERE kind = 1 AND t.run = e.run AND t.turn = number)"
        " FROM events e WHERE run IN tree AND seq > ?3 ORDER BY seq LIMIT ?4",
    [STATEMENT_CALL_READ] =
        "SELECT id, run, turn, cell, depth, kind, model, request, started_ms, status, error,"
        " finish, reply, input_tokens, output_tokens, estimated, coalesce(cost, -1), attempts,"
        " seconds, ended_ms, key, repeated, fork, coalesce(candidate, 0), reply_values, asked_ms,"
        " until_ms, decision, decided_ms, decided_by, decision_reason, begun_ms FROM calls"
        " WHERE id = ?",
    [STATEMENT_CELL_READ] =
        "SELECT id, run, turn, code, started_ms, status, killed, standard_output, standard_error,"
        " submit, error, variables, calls, seconds, ended_ms, coalesce(candidate, 0) FROM cells"
        " WHERE id = ?",
    [STATEMENT_RESULTS_READ] = "SELECT result, type, encoding, data FROM results"
                               " WHERE cell = ? ORDER BY result, form",

    [STATEMENT_ARTIFACTS_READ] = "SELECT name, size, sha256, data FROM artifacts"
                                 " WHERE run = ? ORDER BY name",

    [STATEMENT_REQUESTS_READ] =
        "SELECT run, turn, cell, method, host, port, path, address, refused, why, status, sent,"
        " received, started_ms, coalesce(seconds, -1) FROM requests WHERE run = ? ORDER BY id",

    [STATEMENT_TREE_RUNNING] =
        TREE "SELECT id, " OWNER " FROM runs WHERE id IN tree AND status = 'running'",
    [STATEMENT_TREE_STEPS] = TREE "SELECT id FROM calls WHERE run IN tree UNION ALL"
                                  " SELECT id FROM cells WHERE run IN tree ORDER BY 1",
    [STATEMENT_TREE_REQUESTS] = TREE "SELECT id FROM requests WHERE run IN tree ORDER BY 1",
    [STATEMENT_TREE_CALLS_REMOVE] = TREE "DELETE FROM calls WHERE run IN tree",
    [STATEMENT_TREE_RESULTS_REMOVE] =
        TREE "DELETE FROM results WHERE cell IN (SELECT id FROM cells WHERE run IN tree)",
    [STATEMENT_TREE_ARTIFACTS_REMOVE] = TREE "DELETE FROM artifacts WHERE run IN tree",
    [STATEMENT_TREE_REQUESTS_REMOVE] = TREE "DELETE FROM requests WHERE run IN tree",
    [STATEMENT_TREE_CELLS_REMOVE] = TREE "DELETE FROM cells WHERE run IN tree",
    [STATEMENT_TREE_TURNS_REMOVE] = TREE "DELETE FROM turns WHERE run IN tree",
    [STATEMENT_TREE_RUNS_REMOVE] = TREE "DELETE FROM runs WHERE id IN tree",
    [STATEMENT_ROOTS_OLD] = "SELECT id FROM (SELECT id, started_ms FROM runs WHERE parent IS NULL"
                            " ORDER BY seq DESC LIMIT -1 OFFSET ?1) WHERE started_ms < ?2",
    [STATEMENT_RUNS_RUNNING] = "SELECT id, " OWNER " FROM runs WHERE status = 'running'",
    /* The totals of the steps, instead of those that the end would have recorded. */
    [STATEMENT_RUN_INTERRUPT] =
        TREE "UPDATE runs SET status = 'interrupted',"
             " iterations = (SELECT count(*) FROM turns WHERE run = ?1),"
             " calls = (SELECT count(*) FROM calls WHERE run IN tree AND kind <> 'tool'),"
             " input_tokens = (SELECT CAST(total(input_tokens) AS INTEGER) FROM calls"
             "  WHERE run IN tree),"
             " output_tokens = (SELECT CAST(total(output_tokens) AS INTEGER) FROM calls"
             "  WHERE run IN tree),"
             " cost = (SELECT iif(count(cost) = count(*), total(cost), NULL) FROM calls"
             "  WHERE run IN tree AND kind <> 'tool'),"
             " seconds = (seen.last - started_ms) / 1000.0, ended_ms = seen.last"
             " FROM (SELECT max(ms) AS last FROM ("
             "  SELECT max(started_ms) AS ms FROM runs WHERE id IN tree UNION ALL"
             "  SELECT max(started_ms) FROM turns WHERE run IN tree UNION ALL"
             "  SELECT max(coalesce(ended_ms, started_ms)) FROM cells WHERE run IN tree UNION ALL"
             "  SELECT max(coalesce(ended_ms, started_ms)) FROM calls WHERE run IN tree)) AS seen"
             " WHERE id = ?1 RETURNING seq",
    [STATEMENT_FILE_SIZE] =
        "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size",
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

static void statement_note(struct query *q, int rc)
{
    if (rc != SQLITE_OK && q->error.code == ERROR_NONE)
        store_error(q->store, rc, &q->error);
}

void bind_text_unlogged(struct query *q, const char *text)
{
    statement_note(q, sqlite3_bind_text(q->stmt, ++q->at, text, -1, SQLITE_STATIC));
}

void bind_int_unlogged(struct query *q, int64_t value)
{
    statement_note(q, sqlite3_bind_int64(q->stmt, ++q->at, value));
}

void bind_text(struct query *q, const char *text)
{
    entry_put_bytes(q->log, ENTRY_TEXT, text, text ? strlen(text) : 0);
    bind_text_unlogged(q, text);
}

void bind_int(struct query *q, int64_t value)
{
    entry_put_int(q->log, ENTRY_INT, value);
    bind_int_unlogged(q, value);
}

void bind_id(struct query *q, int64_t id)
{
    if (id != 0)
        bind_int(q, id);
    else
        bind_text(q, NULL);
}

void bind_real(struct query *q, double value)
{
    entry_put_real(q->log, value);
    statement_note(q, sqlite3_bind_double(q->stmt, ++q->at, value));
}

void bind_bytes(struct query *q, const void *data, size_t len)
{
    statement_note(q, sqlite3_bind_blob64(q->stmt, ++q->at, data, len, SQLITE_STATIC));
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
        statement_note(q, SQLITE_NOMEM);
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

void bind_owner_unlogged(struct query *q, const struct owner *owner)
{
    bind_int_unlogged(q, owner->pid);
    bind_int_unlogged(q, owner->start);
    bind_int_unlogged(q, owner->space);
    bind_text_unlogged(q, owner->boot);
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
    return query_int(store, which, NULL, err);
}

int query_int(struct store *store, enum statement which, int64_t *out, struct error *err)
{
    cleanup_query struct query q = query_open(store, which);
    bool row;
    int rc = query_step(&q, &row, err);
    if (rc == 0 && out)
        *out = take_int(&q);
    return rc;
}

void query_rollback(struct store *store)
{
    if (!sqlite3_get_autocommit(store->db))
        query_run(store, STATEMENT_ROLLBACK, NULL);
}
