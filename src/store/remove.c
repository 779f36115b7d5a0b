/* store/remove.c: removes runs with everything that belongs to them, and values without references.
 *
 * It uses a connection of its own with foreign keys off. Otherwise SQLite would search for
 * references to each removed row in tables without a suitable index, which takes minutes; the
 * statements below take milliseconds and leave no dangling references. (Turning foreign keys off
 * temporarily on the main connection would invalidate every prepared statement, ROLLBACK among
 * them.)
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/buf.h"
#include "base/clock.h"
#include "store/internal.h"

static int remove_execute(struct store *store, const char *sql, struct error *err)
{
    int rc = sqlite3_exec(store->db, sql, NULL, NULL, NULL);
    return rc == SQLITE_OK ? 0 : store_error(store, rc, err);
}

/* Runs a statement to its end; adds the number of changes to *count, which may be NULL. */
static int remove_change(struct query *q, int64_t *count, struct error *err)
{
    bool row = true;
    int rc = 0;
    while (rc == 0 && row)
        rc = query_step(q, &row, err);
    if (rc == 0 && count)
        *count += sqlite3_changes64(q->store->db);
    return rc;
}

/* Opens a connection without foreign keys, in a transaction. */
static int remove_begin(struct store *store, struct store **own, struct error *err)
{
    int rc = store_open(store->path, own, err);
    if (rc == 0)
        rc = remove_execute(*own, "PRAGMA foreign_keys = OFF", err);
    return rc < 0 ? rc : query_run(*own, STATEMENT_BEGIN_WRITE, err);
}

/* Closing rolls back what was not committed, and needs no memory. */
static int remove_end(struct store *own, int rc, struct error *err)
{
    if (rc == 0)
        rc = query_run(own, STATEMENT_COMMIT, err);
    store_close(own);
    return rc;
}

/* A run of the tree that may still be in progress: its id and process; "" if there is none. Not in
 * this process, if the run `is_left`. */
static int find_living(struct store *store, const char *run, bool is_left,
    char id[STORE_RUN_ID_SIZE], struct owner *owner, struct error *err)
{
    cleanup_query struct query q = query_open(store, STATEMENT_TREE_RUNNING);
    bind_text(&q, run);
    for (id[0] = '\0';;) {
        bool row;
        int rc = query_step(&q, &row, err);
        if (rc < 0 || !row)
            return rc;
        const char *found = take_text(&q);
        take_owner(&q, owner);
        bool is_ours = owner->pid == store->owner.pid && owner->start == store->owner.start &&
                       owner->space == store->owner.space;
        if (owner_is_gone(owner, &store->owner) || (is_left && is_ours))
            continue;
        snprintf(id, STORE_RUN_ID_SIZE, "%s", found ? found : "?");
        return 0;
    }
}

/* Removes the run, its descendants, and what belongs to them. */
static int remove_tree(
    struct store *store, const char *run, droste_record_freed *freed, struct error *err)
{
    static const enum statement steps[] = { STATEMENT_TREE_CALLS_REMOVE,
        STATEMENT_TREE_RESULTS_REMOVE, STATEMENT_TREE_ARTIFACTS_REMOVE,
        STATEMENT_TREE_REQUESTS_REMOVE, STATEMENT_TREE_CELLS_REMOVE, STATEMENT_TREE_TURNS_REMOVE,
        STATEMENT_TREE_RUNS_REMOVE };
    int rc = 0;
    for (size_t i = 0; i < array_length(steps) && rc == 0; i++) {
        cleanup_query struct query q = query_open(store, steps[i]);
        bind_text(&q, run);
        rc = remove_change(&q, steps[i] == STATEMENT_TREE_RUNS_REMOVE ? &freed->runs : NULL, err);
    }
    return rc;
}

/* " UNION ALL SELECT column FROM table" for each column that refers to a value. Reading the
 * schema keeps this correct for columns of later versions. */
static int list_references(struct store *store, struct buf *out, struct error *err)
{
    sqlite3_stmt *stmt = NULL;
    int rc = sqlite3_prepare_v2(store->db,
        "SELECT printf(' UNION ALL SELECT \"%w\" FROM \"%w\"', f.\"from\", m.name)"
        " FROM sqlite_schema m, pragma_foreign_key_list(m.name) f"
        " WHERE m.type = 'table' AND f.\"table\" = 'blobs'",
        -1, &stmt, NULL);
    while (rc == SQLITE_OK && (rc = sqlite3_step(stmt)) == SQLITE_ROW) {
        const char *text = (const char *)sqlite3_column_text(stmt, 0);
        rc = text ? SQLITE_OK : SQLITE_NOMEM;
        buf_puts(out, text ? text : "");
    }
    sqlite3_finalize(stmt);
    return rc == SQLITE_DONE ? 0 : store_error(store, rc, err);
}

static int count_values(void *arg, int columns, char **values, char **names)
{
    droste_record_freed *freed = arg;
    freed->values++;
    freed->value_bytes += values[0] ? strtoll(values[0], NULL, 10) : 0;
    return 0;
}

static int remove_values(struct store *store, droste_record_freed *freed, struct error *err)
{
    cleanup_buf struct buf sql = { 0 };
    buf_puts(&sql, "DELETE FROM blobs WHERE hash NOT IN (SELECT value FROM (SELECT '' AS value");
    int rc = list_references(store, &sql, err);
    buf_puts(&sql, ") WHERE value IS NOT NULL) RETURNING length(data)");
    if (rc < 0)
        return rc;
    if (buf_failed(&sql))
        return error_memory(err);
    rc = sqlite3_exec(store->db, buf_text(&sql), count_values, freed, NULL);
    return rc == SQLITE_OK ? 0 : store_error(store, rc, err);
}

static int remove_run(struct store *store, const char *run, bool is_left,
    droste_record_freed *freed, struct error *err)
{
    char living[STORE_RUN_ID_SIZE];
    struct owner owner;
    int rc = find_living(store, run, is_left, living, &owner, err);
    if (rc < 0)
        return rc;
    if (living[0])
        return error_set(err, ERROR_ARGUMENT,
            "run '%.64s' is still active in process %lld; stop that process first", living,
            (long long)owner.pid);
    return remove_tree(store, run, freed, err);
}

static int remove_whole(struct store *store, const char *run, bool is_left,
    droste_record_freed *freed, struct error *err)
{
    struct store *own = NULL;
    *freed = (droste_record_freed){ 0 };
    int rc = remove_begin(store, &own, err);
    if (rc == 0)
        rc = remove_run(own, run, is_left, freed, err);
    if (rc == 0 && freed->runs == 0)
        rc = error_set(err, ERROR_NOT_FOUND, "there is no run '%.64s'", run);
    if (rc == 0)
        rc = remove_values(own, freed, err);
    return remove_end(own, rc, err);
}

int store_run_remove(
    struct store *store, const char *run, droste_record_freed *freed, struct error *err)
{
    return remove_whole(store, run, false, freed, err);
}

int store_run_remove_left(
    struct store *store, const char *run, droste_record_freed *freed, struct error *err)
{
    return remove_whole(store, run, true, freed, err);
}

/* ---- the garbage collector ---- */

/* Ends the running runs whose process is gone, with the totals of their steps. */
static int finish_orphans(struct store *store, droste_record_freed *freed, struct error *err)
{
    cleanup_query struct query q = query_open(store, STATEMENT_RUNS_RUNNING);
    for (;;) {
        struct owner owner = { 0 };
        bool row;
        int rc = query_step(&q, &row, err);
        if (rc < 0 || !row)
            return rc;
        const char *id = take_text(&q);
        take_owner(&q, &owner);
        if (!owner_is_gone(&owner, &store->owner))
            continue;
        cleanup_query struct query finish = query_open(store, STATEMENT_RUN_INTERRUPT);
        bind_text(&finish, id);
        rc = remove_change(&finish, &freed->interrupted, err);
        if (rc < 0)
            return rc;
    }
}

typedef char run_id[STORE_RUN_ID_SIZE];

/* The ids of the roots that are neither among the newest nor young. */
static int choose_old(
    struct store *store, const droste_record_keep *keep, struct buf *ids, struct error *err)
{
    cleanup_query struct query q = query_open(store, STATEMENT_ROOTS_OLD);
    bind_int(&q, keep->newest);
    bind_int(&q, clock_wall_ms() - keep->older_ms);
    for (;;) {
        run_id id = "";
        bool row;
        int rc = query_step(&q, &row, err);
        if (rc < 0 || !row)
            return rc;
        const char *found = take_text(&q);
        snprintf(id, sizeof id, "%s", found ? found : "");
        buf_append(ids, id, sizeof id);
        if (buf_failed(ids))
            return error_memory(err);
    }
}

/* Keeps trees in which something may still be in progress. */
static int remove_old(struct store *store, const droste_record_keep *keep,
    droste_record_freed *freed, struct error *err)
{
    cleanup_buf struct buf ids = { 0 };
    int rc = choose_old(store, keep, &ids, err);
    for (size_t at = 0; at < ids.len && rc == 0; at += sizeof(run_id)) {
        run_id living;
        struct owner owner;
        rc = find_living(store, ids.data + at, false, living, &owner, err);
        if (rc == 0 && !living[0])
            rc = remove_tree(store, ids.data + at, freed, err);
    }
    return rc;
}

static int remove_collect(struct store *store, const droste_record_keep *keep,
    droste_record_freed *freed, struct error *err)
{
    struct store *own = NULL;
    int rc = remove_begin(store, &own, err);
    if (rc == 0)
        rc = finish_orphans(own, freed, err);
    if (rc == 0 && keep)
        rc = remove_old(own, keep, freed, err);
    if (rc == 0)
        rc = remove_values(own, freed, err);
    return remove_end(own, rc, err);
}

int store_collect(struct store *store, const droste_record_keep *keep, droste_record_freed *freed,
    struct error *err)
{
    int64_t before = 0, after = 0;
    *freed = (droste_record_freed){ 0 };
    int rc = query_int(store, STATEMENT_FILE_SIZE, &before, err);
    if (rc == 0)
        rc = remove_collect(store, keep, freed, err);
    if (rc == 0)
        rc = remove_execute(store, "VACUUM; PRAGMA wal_checkpoint(TRUNCATE)", err);
    if (rc == 0)
        rc = query_int(store, STATEMENT_FILE_SIZE, &after, err);
    freed->file_bytes = before - after;
    return rc;
}
