/* store/internal.h: what the files of this layer share and nobody else sees.
 *
 * Every statement stands in one table (statement.c), is prepared at the start, and is used through
 * a `query`: parameters are bound from left to right, columns are taken from left to right, and the
 * first failure sticks until query_step says it.
 */
#ifndef DROSTE_STORE_INTERNAL_H
#define DROSTE_STORE_INTERNAL_H

#include <sqlite3.h>
#include <zstd.h>

#include "base/cleanup.h"
#include "base/os/owner.h"
#include "store/store.h"

enum { BUSY_TIMEOUT_MS = 10000 }; /* how long to wait for another process; store.h says it too */

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
    STATEMENT_CALL_BEGIN,
    STATEMENT_CALL_REPEAT,
    STATEMENT_CALL_END,
    STATEMENT_CELL_BEGIN,
    STATEMENT_CELL_END,
    STATEMENT_RUN_READ,
    STATEMENT_RUNS,
    STATEMENT_RUNS_BY_PARENT,
    STATEMENT_RUNS_BY_PREFIX,
    STATEMENT_RUN_BY_TASK,
    STATEMENT_ORDER,
    STATEMENT_CALL_READ,
    STATEMENT_CELL_READ,
    STATEMENT_TREE_RUNNING,
    STATEMENT_TREE_CALLS_REMOVE,
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
    struct owner owner; /* this process */
    sqlite3_stmt *statements[STATEMENT_COUNT];
};

/* schema.c: makes the tables, or brings them up to date; refuses what is not ours or is newer. */
int schema_prepare(struct store *store, struct error *err);

/* error.c: *err from an SQLite result code, naming the file and the cure. */
int store_error(struct store *store, int rc, struct error *err);

/* statement.c */
struct query {
    struct store *store;
    sqlite3_stmt *stmt;
    int at;             /* the parameter bound last, or the column to be taken next */
    struct error error; /* the first failure */
};

/* All of them, when the tables are there: a rollback must not fail for want of memory. */
int query_prepare_all(struct store *store, struct error *err);

struct query query_open(struct store *store, enum statement which);
/* Makes the statement ready for its next use. */
void query_close(struct query *q);
#define cleanup_query __attribute__((cleanup(query_close)))

/* What is bound must last until query_close. */
void bind_text(struct query *q, const char *text); /* NULL → NULL */
void bind_int(struct query *q, int64_t value);
void bind_id(struct query *q, int64_t id); /* 0 → NULL */
void bind_real(struct query *q, double value);
void bind_bytes(struct query *q, const void *data, size_t len);

/* Runs to the next row. *row is false after the last one. */
int query_step(struct query *q, bool *row, struct error *err);
/* What failed so far while binding or taking. */
int query_check(struct query *q, struct error *err);

const char *take_text(struct query *q); /* valid until the next step; NULL for NULL */
int64_t take_int(struct query *q);      /* 0 for NULL */
double take_real(struct query *q);      /* 0 for NULL */
void take_owner(struct query *q, struct owner *owner);

/* Runs a statement that takes and gives nothing. */
int query_run(struct store *store, enum statement which, struct error *err);
/* Ends a transaction after a failure, if SQLite has not done so itself; keeps the error. */
void query_rollback(struct store *store);

/* blob.c: values, within the caller's transaction. */
int blob_write(
    struct store *store, struct store_value value, char hash[static 65], struct error *err);
int blob_size(struct store *store, const char *hash, size_t *size, struct error *err);
/* The first `max` bytes, piece by piece; it is known to be undamaged only if that was all. */
int blob_read(struct store *store, const char *hash, size_t max, store_piece_fn *fn, void *arg,
    struct error *err);

#endif
