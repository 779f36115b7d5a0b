/* store/error.c: turns SQLite's result codes into messages with a remedy. */
#include <errno.h>

#include "store/internal.h"

static const struct {
    int rc; /* a primary result code */
    enum error_code code;
    const char *text;
} words[] = {
    { SQLITE_FULL, ERROR_STORE,
        "the disk is full; free some space, or set DROSTE_HOME to a directory on another disk" },
    { SQLITE_NOTADB, ERROR_STORE,
        "the file is not a database; move it away, or set DROSTE_HOME to another directory" },
    { SQLITE_CORRUPT, ERROR_STORE,
        "the database is damaged; move it away (sqlite3's .recover may save its runs)" },
    { SQLITE_READONLY, ERROR_STORE,
        "you may not write it; set DROSTE_HOME to a directory that you can write" },
    { SQLITE_PERM, ERROR_STORE,
        "you may not open it; set DROSTE_HOME to a directory that you can write" },
    { SQLITE_CANTOPEN, ERROR_STORE,
        "it cannot be opened; set DROSTE_HOME to a directory that you can write" },
    { SQLITE_BUSY, ERROR_STORE,
        "another process has locked it for more than ten seconds; try again" },
    { SQLITE_TOOBIG, ERROR_STORE, "a value is too large for the database" },
    { SQLITE_CONSTRAINT, ERROR_ARGUMENT,
        "the step refers to a missing run, turn or cell, or lacks a required value" },
};

static bool disk_is_full(struct store *store, int rc)
{
    int sys = store->db ? sqlite3_system_errno(store->db) : 0;
    return (rc & 0xff) == SQLITE_IOERR && (sys == ENOSPC || sys == EDQUOT);
}

int store_error(struct store *store, int rc, struct error *err)
{
    if ((rc & 0xff) == SQLITE_NOMEM)
        return error_memory(err);
    int primary = disk_is_full(store, rc) ? SQLITE_FULL : rc & 0xff;
    for (size_t i = 0; i < array_length(words); i++)
        if (words[i].rc == primary)
            return error_set(err, words[i].code, "record %.120s: %s", store->path, words[i].text);
    return error_set(err, ERROR_STORE, "record %.120s: %s (SQLite %d)", store->path,
        store->db ? sqlite3_errmsg(store->db) : sqlite3_errstr(rc), rc);
}
