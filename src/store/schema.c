/* store/schema.c: the tables, and upgrades from older versions.
 *
 * `steps[n]` upgrades a file from version n to n + 1; the version is PRAGMA user_version. Never
 * edit a released step: append another. application_id distinguishes our files from other
 * programs'.
 */
#include <stdio.h>
#include <time.h>

#include "base/clock.h"
#include "store/internal.h"

enum {
    APPLICATION = 0x44726f73, /* "Dros" */
    SCHEMA_VERSION = 15,
};

const int schema_version = SCHEMA_VERSION;

static const char *const steps[SCHEMA_VERSION] = {
    /* Values by their SHA-256; `size` is the decoded size. */
    "CREATE TABLE blobs ("
    "  hash TEXT NOT NULL PRIMARY KEY,"
    "  size INTEGER NOT NULL,"
    "  encoding TEXT NOT NULL CHECK (encoding IN ('raw', 'zstd')),"
    "  data BLOB NOT NULL"
    ") STRICT;"

    /* `seq` orders runs by their beginning, independently of the clock. */
    "CREATE TABLE runs ("
    "  seq INTEGER NOT NULL PRIMARY KEY,"
    "  id TEXT NOT NULL UNIQUE,"
    "  parent TEXT REFERENCES runs (id),"
    "  parent_cell INTEGER REFERENCES cells (id),"
    "  depth INTEGER NOT NULL,"
    "  model TEXT NOT NULL,"
    "  environment TEXT NOT NULL,"
    "  isolation TEXT,"
    "  version TEXT NOT NULL,"
    "  question TEXT REFERENCES blobs (hash),"
    "  context TEXT REFERENCES blobs (hash),"
    "  limits TEXT REFERENCES blobs (hash),"
    "  started_ms INTEGER NOT NULL,"
    "  owner_pid INTEGER NOT NULL,"
    "  owner_start INTEGER NOT NULL,"
    "  owner_space INTEGER NOT NULL,"
    "  owner_boot TEXT NOT NULL,"
    "  status TEXT NOT NULL DEFAULT 'running',"
    "  error TEXT,"
    "  answer TEXT REFERENCES blobs (hash),"
    "  iterations INTEGER,"
    "  calls INTEGER,"
    "  input_tokens INTEGER,"
    "  output_tokens INTEGER,"
    "  cost REAL,"
    "  seconds REAL,"
    "  ended_ms INTEGER"
    ") STRICT;"
    "CREATE INDEX runs_by_parent ON runs (parent);"

    "CREATE TABLE turns ("
    "  run TEXT NOT NULL REFERENCES runs (id),"
    "  turn INTEGER NOT NULL CHECK (turn > 0),"
    "  started_ms INTEGER NOT NULL,"
    "  PRIMARY KEY (run, turn)"
    ") STRICT, WITHOUT ROWID;"

    "CREATE TABLE cells ("
    "  id INTEGER NOT NULL PRIMARY KEY,"
    "  run TEXT NOT NULL,"
    "  turn INTEGER NOT NULL,"
    "  code TEXT REFERENCES blobs (hash),"
    "  started_ms INTEGER NOT NULL,"
    "  status TEXT NOT NULL DEFAULT 'running',"
    "  killed TEXT,"
    "  standard_output TEXT REFERENCES blobs (hash),"
    "  standard_error TEXT REFERENCES blobs (hash),"
    "  submit TEXT REFERENCES blobs (hash),"
    "  error TEXT REFERENCES blobs (hash),"
    "  variables TEXT REFERENCES blobs (hash),"
    "  calls INTEGER,"
    "  seconds REAL,"
    "  ended_ms INTEGER,"
    "  FOREIGN KEY (run, turn) REFERENCES turns (run, turn)"
    ") STRICT;"
    "CREATE INDEX cells_by_turn ON cells (run, turn);"

    "CREATE TABLE calls ("
    "  id INTEGER NOT NULL PRIMARY KEY,"
    "  run TEXT NOT NULL,"
    "  turn INTEGER NOT NULL,"
    "  cell INTEGER REFERENCES cells (id),"
    "  depth INTEGER NOT NULL,"
    "  kind TEXT NOT NULL,"
    "  model TEXT NOT NULL,"
    "  request TEXT REFERENCES blobs (hash),"
    "  started_ms INTEGER NOT NULL,"
    "  status TEXT NOT NULL DEFAULT 'running',"
    "  error TEXT,"
    "  finish TEXT,"
    "  reply TEXT REFERENCES blobs (hash),"
    "  input_tokens INTEGER,"
    "  output_tokens INTEGER,"
    "  estimated INTEGER,"
    "  attempts INTEGER,"
    "  seconds REAL,"
    "  ended_ms INTEGER,"
    "  FOREIGN KEY (run, turn) REFERENCES turns (run, turn)"
    ") STRICT;"
    "CREATE INDEX calls_by_turn ON calls (run, turn);",

    /* For resuming a run. */
    "ALTER TABLE runs ADD COLUMN settings TEXT REFERENCES blobs (hash);"
    "ALTER TABLE runs ADD COLUMN context_data TEXT REFERENCES blobs (hash);"
    "ALTER TABLE calls ADD COLUMN key TEXT;"
    "ALTER TABLE calls ADD COLUMN repeated INTEGER NOT NULL DEFAULT 0;",

    /* A call's dollars, NULL if the price is unknown; and the kind of a run's error. */
    ("ALTER TABLE calls ADD COLUMN cost REAL;"
     "ALTER TABLE runs ADD COLUMN error_code TEXT;"),

    /* The batch and task of a run, so that both resume together. */
    ("ALTER TABLE runs ADD COLUMN batch TEXT;"
     "ALTER TABLE runs ADD COLUMN task TEXT;"
     "CREATE INDEX runs_by_task ON runs (batch, task, seq) WHERE batch IS NOT NULL;"),

    /* The previous run of the conversation. */
    "ALTER TABLE runs ADD COLUMN previous TEXT;",

    /* Hashes of the tools, compared when the run is resumed. */
    "ALTER TABLE runs ADD COLUMN tools TEXT REFERENCES blobs (hash);",

    /* The forms of the rich results of cells. */
    "CREATE TABLE results ("
    "  cell INTEGER NOT NULL REFERENCES cells (id),"
    "  result INTEGER NOT NULL,"
    "  form INTEGER NOT NULL,"
    "  type TEXT NOT NULL,"
    "  encoding TEXT NOT NULL CHECK (encoding IN ('text', 'json', 'bytes')),"
    "  data TEXT NOT NULL REFERENCES blobs (hash),"
    "  PRIMARY KEY (cell, result, form)"
    ") STRICT, WITHOUT ROWID;",

    /* The fork of a fork_map that made a call or began a child run. */
    ("ALTER TABLE calls ADD COLUMN fork TEXT;"
     "ALTER TABLE runs ADD COLUMN parent_fork TEXT;"),

    /* Candidates of a turn, from 1, and which one is kept. */
    ("ALTER TABLE calls ADD COLUMN candidate INTEGER;"
     "ALTER TABLE cells ADD COLUMN candidate INTEGER;"
     "ALTER TABLE turns ADD COLUMN kept INTEGER;"
     "ALTER TABLE turns ADD COLUMN reason TEXT;"
     "ALTER TABLE turns ADD COLUMN session TEXT;"),

    /* Files that a run has saved; `data` is NULL where the record had no room for the contents. */
    "CREATE TABLE artifacts ("
    "  run TEXT NOT NULL REFERENCES runs (id),"
    "  name TEXT NOT NULL,"
    "  size INTEGER NOT NULL,"
    "  sha256 TEXT NOT NULL,"
    "  data TEXT REFERENCES blobs (hash),"
    "  PRIMARY KEY (run, name)"
    ") STRICT, WITHOUT ROWID;",

    /* What a tool returned, where its JSON form in `reply` does not keep the types. */
    "ALTER TABLE calls ADD COLUMN reply_values TEXT REFERENCES blobs (hash);",

    /* The client of a server that started the run; and what happened in which order: `kind` as in
     * ORDER (statement.c), with `ends` 1 where a step has ended or changed. Triggers write the
     * events, so that no writer can forget one. What an older version recorded is ordered by its
     * clock. */
    ("ALTER TABLE runs ADD COLUMN account TEXT;"
     "CREATE INDEX runs_by_account ON runs (account, seq) WHERE account IS NOT NULL;"
     "CREATE TABLE events ("
     "  seq INTEGER NOT NULL PRIMARY KEY,"
     "  run TEXT NOT NULL,"
     "  kind INTEGER NOT NULL,"
     "  number INTEGER NOT NULL,"
     "  ends INTEGER NOT NULL"
     ") STRICT;"
     "INSERT INTO events (run, kind, number, ends) SELECT run, kind, number, ends FROM ("
     "  SELECT id AS run, 0 AS kind, 0 AS number, 0 AS ends, started_ms AS ms, 0 AS rank, seq AS n"
     "   FROM runs UNION ALL"
     "  SELECT id, 4, 0, 1, ended_ms, 6, -seq FROM runs"
     "   WHERE status NOT IN ('running', 'interrupted') UNION ALL"
     "  SELECT run, 1, turn, 0, started_ms, 1, turn FROM turns UNION ALL"
     "  SELECT run, 1, turn, 1, started_ms, 5, turn FROM turns WHERE kept IS NOT NULL UNION ALL"
     "  SELECT run, 2, id, 0, started_ms, 2, id FROM calls UNION ALL"
     "  SELECT run, 2, id, 1, ended_ms, 3, id FROM calls WHERE status <> 'running' UNION ALL"
     "  SELECT run, 3, id, 0, started_ms, 2, id FROM cells UNION ALL"
     "  SELECT run, 3, id, 1, ended_ms, 4, id FROM cells WHERE status <> 'running'"
     " ) ORDER BY ms, rank, n;"
     "CREATE INDEX events_by_run ON events (run, seq);"
     "CREATE TRIGGER run_began AFTER INSERT ON runs BEGIN"
     "  INSERT INTO events (run, kind, number, ends) VALUES (NEW.id, 0, 0, 0); END;"
     "CREATE TRIGGER run_isolated AFTER UPDATE OF isolation ON runs"
     " WHEN NEW.isolation IS NOT OLD.isolation BEGIN"
     "  INSERT INTO events (run, kind, number, ends) VALUES (NEW.id, 0, 0, 1); END;"
     "CREATE TRIGGER run_ended AFTER UPDATE OF status ON runs"
     " WHEN NEW.status NOT IN ('running', 'interrupted') BEGIN"
     "  INSERT INTO events (run, kind, number, ends) VALUES (NEW.id, 4, 0, 1); END;"
     "CREATE TRIGGER run_removed AFTER DELETE ON runs BEGIN"
     "  DELETE FROM events WHERE run = OLD.id; END;"
     "CREATE TRIGGER turn_began AFTER INSERT ON turns BEGIN"
     "  INSERT INTO events (run, kind, number, ends) VALUES (NEW.run, 1, NEW.turn, 0); END;"
     "CREATE TRIGGER turn_kept AFTER UPDATE OF kept ON turns BEGIN"
     "  INSERT INTO events (run, kind, number, ends) VALUES (NEW.run, 1, NEW.turn, 1); END;"
     "CREATE TRIGGER call_began AFTER INSERT ON calls BEGIN"
     "  INSERT INTO events (run, kind, number, ends) VALUES (NEW.run, 2, NEW.id, 0); END;"
     "CREATE TRIGGER call_ended AFTER UPDATE OF status ON calls BEGIN"
     "  INSERT INTO events (run, kind, number, ends) VALUES (NEW.run, 2, NEW.id, 1); END;"
     "CREATE TRIGGER cell_began AFTER INSERT ON cells BEGIN"
     "  INSERT INTO events (run, kind, number, ends) VALUES (NEW.run, 3, NEW.id, 0); END;"
     "CREATE TRIGGER cell_ended AFTER UPDATE OF status ON cells BEGIN"
     "  INSERT INTO events (run, kind, number, ends) VALUES (NEW.run, 3, NEW.id, 1); END;"),

    /* Requests of sandboxes to the network. */
    ("CREATE TABLE requests ("
     "  id INTEGER NOT NULL PRIMARY KEY,"
     "  run TEXT NOT NULL REFERENCES runs (id),"
     "  turn INTEGER NOT NULL,"
     "  cell INTEGER REFERENCES cells (id),"
     "  method TEXT NOT NULL,"
     "  host TEXT NOT NULL,"
     "  port INTEGER NOT NULL,"
     "  path TEXT,"
     "  address TEXT,"
     "  refused INTEGER NOT NULL,"
     "  why TEXT,"
     "  status INTEGER NOT NULL DEFAULT 0,"
     "  sent INTEGER NOT NULL DEFAULT 0,"
     "  received INTEGER NOT NULL DEFAULT 0,"
     "  started_ms INTEGER NOT NULL,"
     "  seconds REAL"
     ") STRICT;"
     "CREATE INDEX requests_by_run ON requests (run, id);"),

    /* Approvals of calls: when one was asked for, until when it is waited for, what was decided,
     * and when the approved call began. */
    ("ALTER TABLE calls ADD COLUMN asked_ms INTEGER;"
     "ALTER TABLE calls ADD COLUMN until_ms INTEGER;"
     "ALTER TABLE calls ADD COLUMN decision TEXT CHECK (decision IN ('approved', 'denied'));"
     "ALTER TABLE calls ADD COLUMN decided_ms INTEGER;"
     "ALTER TABLE calls ADD COLUMN decided_by TEXT;"
     "ALTER TABLE calls ADD COLUMN decision_reason TEXT;"
     "ALTER TABLE calls ADD COLUMN begun_ms INTEGER;"
     "CREATE INDEX calls_that_ask ON calls (id)"
     " WHERE asked_ms IS NOT NULL AND decision IS NULL AND status = 'running';"
     "CREATE TRIGGER call_asked AFTER UPDATE OF asked_ms ON calls"
     " WHEN NEW.asked_ms IS NOT NULL BEGIN"
     "  INSERT INTO events (run, kind, number, ends) VALUES (NEW.run, 2, NEW.id, 1); END;"
     "CREATE TRIGGER call_decided AFTER UPDATE OF decision ON calls"
     " WHEN NEW.decision IS NOT NULL BEGIN"
     "  INSERT INTO events (run, kind, number, ends) VALUES (NEW.run, 2, NEW.id, 1); END;"),

    /* Calls of models that ask about their costs: the question, as JSON. */
    ("ALTER TABLE calls ADD COLUMN question TEXT;"
     "CREATE INDEX calls_about_costs ON calls (id) WHERE question IS NOT NULL;"),
};

struct found {
    int64_t application;
    int64_t version;
    int64_t tables;
};

/* One SELECT, so that all three are from the same instant. */
static int schema_look(struct store *store, struct found *found, struct error *err)
{
    sqlite3_stmt *stmt = NULL;
    int rc = sqlite3_prepare_v2(store->db,
        "SELECT application_id, user_version, (SELECT count(*) FROM sqlite_schema)"
        " FROM pragma_application_id, pragma_user_version",
        -1, &stmt, NULL);
    if (rc == SQLITE_OK)
        rc = sqlite3_step(stmt);
    if (rc == SQLITE_ROW) {
        found->application = sqlite3_column_int64(stmt, 0);
        found->version = sqlite3_column_int64(stmt, 1);
        found->tables = sqlite3_column_int64(stmt, 2);
    }
    sqlite3_finalize(stmt);
    return rc == SQLITE_ROW ? 0 : store_error(store, rc, err);
}

static int store_schema_check(struct store *store, const struct found *found, struct error *err)
{
    bool empty = found->application == 0 && found->version == 0 && found->tables == 0;
    if (empty)
        return 0;
    if (found->application != APPLICATION || found->version < 1)
        return error_set(err, ERROR_STORE,
            "record %.120s: the file is the database of another program; set DROSTE_HOME to "
            "another directory",
            store->path);
    if (found->version > SCHEMA_VERSION)
        return error_set(err, ERROR_STORE,
            "record %.120s: a newer Droste wrote it (version %lld, supported up to %d); upgrade, "
            "or set DROSTE_HOME",
            store->path, (long long)found->version, SCHEMA_VERSION);
    return 0;
}

/* Tries once to switch to WAL; `mode` is the resulting mode. */
static int switch_to_wal(struct store *store, char mode[16])
{
    sqlite3_stmt *stmt = NULL;
    int rc = sqlite3_prepare_v2(store->db, "PRAGMA journal_mode = WAL", -1, &stmt, NULL);
    if (rc == SQLITE_OK)
        rc = sqlite3_step(stmt);
    const char *text = rc == SQLITE_ROW ? (const char *)sqlite3_column_text(stmt, 0) : NULL;
    snprintf(mode, 16, "%s", text ? text : "");
    sqlite3_finalize(stmt);
    return rc;
}

/* Switching needs exclusive access, and SQLite does not always wait for that by itself. */
static int use_wal(struct store *store, struct error *err)
{
    char mode[16];
    uint64_t start = clock_ns();
    int rc = switch_to_wal(store, mode);
    while ((rc & 0xff) == SQLITE_BUSY && clock_seconds_since(start) * 1e3 < BUSY_TIMEOUT_MS) {
        nanosleep(&(struct timespec){ .tv_nsec = 10000000 }, NULL);
        rc = switch_to_wal(store, mode);
    }
    if (rc != SQLITE_ROW)
        return store_error(store, rc, err);
    if (strcmp(mode, "wal") != 0)
        return error_set(err, ERROR_STORE,
            "record %.120s: this file system does not support shared memory (WAL); set "
            "DROSTE_HOME to a directory on a local disk",
            store->path);
    return 0;
}

static int schema_execute(struct store *store, const char *sql, struct error *err)
{
    int rc = sqlite3_exec(store->db, sql, NULL, NULL, NULL);
    return rc == SQLITE_OK ? 0 : store_error(store, rc, err);
}

static int schema_upgrade(struct store *store, struct error *err)
{
    struct found found = { 0 };
    char marks[96];
    snprintf(marks, sizeof marks, "PRAGMA application_id = %d; PRAGMA user_version = %d",
        APPLICATION, SCHEMA_VERSION);
    int rc = schema_look(store, &found, err);
    if (rc == 0)
        rc = store_schema_check(store, &found, err);
    if (rc < 0)
        return rc;
    for (int64_t v = found.version; v < SCHEMA_VERSION && rc == 0; v++)
        rc = schema_execute(store, steps[v], err);
    return rc < 0 ? rc : schema_execute(store, marks, err);
}

int schema_prepare(struct store *store, struct error *err)
{
    struct found found = { 0 };
    int rc = schema_look(store, &found, err);
    if (rc == 0)
        rc = store_schema_check(store, &found, err);
    if (rc == 0)
        rc = use_wal(store, err);
    if (rc < 0 || found.version == SCHEMA_VERSION)
        return rc;
    /* Another process may be upgrading, too: look again once the file is locked. After a failure
     * the store is closed, which rolls back. */
    rc = schema_execute(store, "BEGIN IMMEDIATE", err);
    if (rc == 0)
        rc = schema_upgrade(store, err);
    return rc < 0 ? rc : schema_execute(store, "COMMIT", err);
}
