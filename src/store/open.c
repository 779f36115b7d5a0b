/* store/open.c: opening and closing the file. */
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/os/file.h"
#include "store/internal.h"

enum { WINDOW_LOG_MAX = 23 }; /* 8 MiB; our own compression level needs 2 */

/* The record is private; existing parent directories keep their modes. */
static int default_path(char **out, struct error *err)
{
    cleanup_free char *home = NULL;
    cleanup_buf struct buf path = { 0 };
    int rc = file_data_home(&home, err);
    if (rc < 0)
        return rc;
    struct error inner = { 0 };
    if (file_make_directories(home, &inner) < 0)
        return error_set(err, ERROR_STORE,
            "%.160s; set DROSTE_HOME to a directory that you can write", inner.text);
    buf_printf(&path, "%s/runs.db", home);
    *out = buf_steal(&path);
    return *out ? 0 : error_memory(err);
}

/* Uses mknod, because closing a descriptor of the file would drop the locks that another store
 * in this process holds on it (fcntl(2), "record locks"). */
static int store_make_file(const char *path, struct error *err)
{
    if (mknod(path, S_IFREG | 0600, 0) == 0 || errno == EEXIST)
        return 0;
    bool full = errno == ENOSPC || errno == EDQUOT;
    return error_set_errno(err, ERROR_STORE, "creating the record %.100s (%s, or set DROSTE_HOME)",
        path, full ? "free some space" : "make sure that you can write its directory");
}

static int store_configure(struct store *store, struct error *err)
{
    /* The file may be untrusted: nothing in its schema may run as code. */
    int rc = sqlite3_db_config(store->db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    if (rc == SQLITE_OK)
        rc = sqlite3_busy_timeout(store->db, BUSY_TIMEOUT_MS);
    if (rc == SQLITE_OK)
        rc = sqlite3_exec(store->db,
            "PRAGMA trusted_schema = OFF;"
            "PRAGMA foreign_keys = ON;"
            "PRAGMA synchronous = NORMAL;"
            "PRAGMA journal_size_limit = 67108864;",
            NULL, NULL, NULL);
    return rc == SQLITE_OK ? 0 : store_error(store, rc, err);
}

static int open_database(struct store *store, struct error *err)
{
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE;
    int rc = sqlite3_open_v2(store->path, &store->db, flags, NULL);
    if (rc != SQLITE_OK)
        return store_error(store, rc, err);
    /* Without write permission, SQLite silently opens read-only. */
    if (sqlite3_db_readonly(store->db, "main") == 1)
        return store_error(store, SQLITE_READONLY, err);
    rc = store_configure(store, err);
    if (rc == 0)
        rc = schema_prepare(store, err);
    return rc < 0 ? rc : query_prepare_all(store, err);
}

int store_open(const char *path, struct store **out, struct error *err)
{
    struct store *store = calloc(1, sizeof *store);
    if (!store)
        return error_memory(err);
    int rc = 0;
    if (!path)
        rc = default_path(&store->path, err);
    else if (!(store->path = strdup(path)))
        rc = error_memory(err);
    if (rc == 0 && !(store->zstd = ZSTD_createCCtx()))
        rc = error_memory(err);
    if (rc == 0 && !(store->unzstd = ZSTD_createDCtx()))
        rc = error_memory(err);
    if (rc == 0) /* bounds the memory that foreign data can request */
        ZSTD_DCtx_setParameter(store->unzstd, ZSTD_d_windowLogMax, WINDOW_LOG_MAX);
    if (rc == 0)
        rc = store_make_file(store->path, err);
    if (rc == 0)
        rc = open_database(store, err);
    if (rc < 0) {
        store_close(store);
        return rc;
    }
    owner_self(&store->owner);
    *out = store;
    return 0;
}

void store_close(struct store *store)
{
    if (!store)
        return;
    for (int i = 0; i < STATEMENT_COUNT; i++)
        sqlite3_finalize(store->statements[i]);
    sqlite3_close(store->db);
    ZSTD_freeCCtx(store->zstd);
    ZSTD_freeDCtx(store->unzstd);
    free(store->path);
    free(store);
}
