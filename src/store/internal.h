/* store/internal.h: what the files of this layer share.
 *
 * All statements are in one table (statement.c), prepared at the start, and used through a `query`:
 * parameters are bound and columns taken from left to right, and the first failure is sticky until
 * query_step reports it.
 */
#pragma once

#include <sqlite3.h>
#include <zstd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/os/owner.h"
#include "store/store.h"

enum { BUSY_TIMEOUT_MS = 10000 }; /* how long to wait for another process; store.h documents it */

enum statement {
    STATEMENT_BEGIN_READ,
    STATEMENT_BEGIN_WRITE,
    STATEMENT_COMMIT,
    STATEMENT_ROLLBACK,
    STATEMENT_BLOB_KNOWN,
    STATEMENT_BLOB_INSERT,
    STATEMENT_BLOB_FIND,
    STATEMENT_RUN_BEGIN,
    STATEMENT_RUN_NOTE_ISOLATION,
    STATEMENT_RUN_END,
    STATEMENT_RUN_FAIL,
    STATEMENT_RUN_OWNER,
    STATEMENT_RUN_ADOPT,
    STATEMENT_TURN_BEGIN,
    STATEMENT_TURN_KEEP,
    STATEMENT_TURN_READ,
    STATEMENT_CALL_BEGIN,
    STATEMENT_CALL_REPEAT,
    STATEMENT_CALL_END,
    STATEMENT_CALL_QUESTION,
    STATEMENT_CALL_ASK,
    STATEMENT_CALL_DECIDE,
    STATEMENT_CALL_RESULT,
    STATEMENT_CALL_GO,
    STATEMENT_APPROVAL_READ,
    STATEMENT_APPROVALS,
    STATEMENT_COST_QUESTIONS,
    STATEMENT_DATA_VERSION,
    STATEMENT_CELL_BEGIN,
    STATEMENT_CELL_END,
    STATEMENT_RESULT_INSERT,
    STATEMENT_ARTIFACT_ADD,
    STATEMENT_REQUEST_BEGIN,
    STATEMENT_REQUEST_END,
    STATEMENT_RUN_READ,
    STATEMENT_RUNS,
    STATEMENT_RUNS_BY_PARENT,
    STATEMENT_RUNS_BY_PREFIX,
    STATEMENT_RUN_BY_TASK,
    STATEMENT_ORDER,
    STATEMENT_EVENTS,
    STATEMENT_CALL_READ,
    STATEMENT_CELL_READ,
    STATEMENT_RESULTS_READ,
    STATEMENT_ARTIFACTS_READ,
    STATEMENT_REQUESTS_READ,
    STATEMENT_TREE_RUNNING,
    STATEMENT_TREE_STEPS,
    STATEMENT_TREE_REQUESTS,
    STATEMENT_TREE_CALLS_REMOVE,
    STATEMENT_TREE_RESULTS_REMOVE,
    STATEMENT_TREE_ARTIFACTS_REMOVE,
    STATEMENT_TREE_REQUESTS_REMOVE,
    STATEMENT_TREE_CELLS_REMOVE,
    STATEMENT_TREE_TURNS_REMOVE,
    STATEMENT_TREE_RUNS_REMOVE,
    STATEMENT_ROOTS_OLD,
    STATEMENT_RUNS_RUNNING,
    STATEMENT_RUN_INTERRUPT,
    STATEMENT_FILE_SIZE,
    STATEMENT_COUNT,
};

struct store {
    sqlite3 *db;
    char *path;
    ZSTD_CCtx *zstd;
    ZSTD_DCtx *unzstd;
    struct owner owner;    /* this process */
    struct store_log *log; /* NULL: what is written has no log (store/log.h) */
    sqlite3_stmt *statements[STATEMENT_COUNT];
};

/* schema.c: creates or upgrades the tables; refuses other programs' files and newer versions. */
int schema_prepare(struct store *store, struct error *err);

/* The version of the tables. */
extern const int schema_version;

/* error.c: sets *err from an SQLite result code, with the file and the remedy. */
int store_error(struct store *store, int rc, struct error *err);

/* statement.c */
struct query {
    struct store *store;
    sqlite3_stmt *stmt;
    int at;             /* the last parameter bound, or the next column */
    struct buf *log;    /* the entry of what is bound; NULL: none */
    struct error error; /* the first failure */
};

/* Prepares all statements once the tables exist, so that a rollback cannot fail without memory. */
int query_prepare_all(struct store *store, struct error *err);

struct query query_open(struct store *store, enum statement which);
/* Resets the statement for its next use. */
void query_close(struct query *q);
#define cleanup_query __attribute__((cleanup(query_close)))

/* Bound data must stay valid until query_close. */
void bind_text(struct query *q, const char *text); /* NULL → NULL */
void bind_int(struct query *q, int64_t value);
void bind_id(struct query *q, int64_t id); /* 0 → NULL */
void bind_real(struct query *q, double value);
void bind_bytes(struct query *q, const void *data, size_t len);

/* For what its entry has in another form. */
void bind_text_unlogged(struct query *q, const char *text);
void bind_int_unlogged(struct query *q, int64_t value);
void bind_owner_unlogged(struct query *q, const struct owner *owner);

/* Steps to the next row; *row is false after the last one. */
int query_step(struct query *q, bool *row, struct error *err);
/* The first failure of binding or taking, if any. */
int query_check(struct query *q, struct error *err);

const char *take_text(struct query *q); /* valid until the next step; NULL for NULL */
int64_t take_int(struct query *q);      /* 0 for NULL */
double take_real(struct query *q);      /* 0 for NULL */
void take_owner(struct query *q, struct owner *owner);

/* Runs a statement without parameters or rows. */
int query_run(struct store *store, enum statement which, struct error *err);
/* The number that a statement without parameters returns. */
int query_int(struct store *store, enum statement which, int64_t *out, struct error *err);
/* Rolls back after a failure, unless SQLite has; keeps the error. */
void query_rollback(struct store *store);

/* blob.c: values, within the caller's transaction. */
int blob_write(struct store *store, droste_value value, char hash[static 65], struct error *err);
int blob_size(struct store *store, const char *hash, size_t *size, struct error *err);
/* Reads the first `max` bytes in pieces; only a complete read verifies the value. */
int blob_read(struct store *store, const char *hash, size_t max, store_piece_fn *fn, void *arg,
    struct error *err);
