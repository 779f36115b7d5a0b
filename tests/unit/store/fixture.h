/* tests/unit/store/fixture.h: a directory of its own for each test, and short hands to write with.
 */
#pragma once

#include "../test.h"

#include <fcntl.h>
#include <ftw.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "store/store.h"

struct place {
    char directory[64];
    char file[96]; /* runs.db in it */
};

static inline int place_make(void **state)
{
    static struct place place;
    snprintf(place.directory, sizeof place.directory, "/tmp/droste-store-XXXXXX");
    if (!mkdtemp(place.directory))
        return -1;
    snprintf(place.file, sizeof place.file, "%s/runs.db", place.directory);
    *state = &place;
    return 0;
}

static inline int remove_entry(const char *path, const struct stat *st, int type, struct FTW *at)
{
    return remove(path);
}

static inline int place_remove(void **state)
{
    struct place *place = *state;
    return nftw(place->directory, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

#define store_test(f) cmocka_unit_test_setup_teardown(f, place_make, place_remove)

static inline struct store *open_store(const char *path)
{
    struct store *store = NULL;
    assert_ok(store_open(path, &store, err));
    return store;
}

/* A run with nothing remarkable about it; `id` may be NULL. */
static inline droste_record_run plain_run(const char *id)
{
    return (droste_record_run){ .id = id,
        .model = "replay:demo",
        .environment = "local",
        .version = "0.1.0",
        .question = store_text("why?") };
}

static inline void begin_run(struct store *store, const char *id)
{
    char made[STORE_RUN_ID_SIZE];
    droste_record_run begin = plain_run(id);
    assert_ok(store_run_begin(store, &begin, made, err));
}

static inline void end_run(struct store *store, const char *id)
{
    droste_record_run end = { .status = "done", .answer = store_text("{}") };
    assert_ok(store_run_end(store, id, &end, err));
}

static inline int64_t begin_call(struct store *store, const char *run, const char *prompt)
{
    int64_t call = 0;
    droste_record_call begin = {
        .run = run, .turn = 1, .kind = "root", .model = "m", .request = store_text(prompt)
    };
    assert_ok(store_call_begin(store, &begin, &call, err));
    return call;
}

static inline void end_call(struct store *store, int64_t call, const char *reply)
{
    droste_record_call end = { .status = "ok", .reply = store_text(reply) };
    assert_ok(store_call_end(store, call, &end, err));
}

static inline int64_t begin_cell(struct store *store, const char *run, droste_value code)
{
    int64_t cell = 0;
    droste_record_cell begin = { .run = run, .turn = 1, .code = code };
    assert_ok(store_cell_begin(store, &begin, &cell, err));
    return cell;
}

static inline void end_cell(struct store *store, int64_t cell, droste_value output)
{
    droste_record_cell end = { .status = "ok", .standard_output = output };
    assert_ok(store_cell_end(store, cell, &end, err));
}

/* One number from the file, by a connection of its own. */
static inline int64_t ask(const char *file, const char *sql)
{
    sqlite3 *db = NULL;
    sqlite3_stmt *stmt = NULL;
    int64_t answer = -1;
    sqlite3_open_v2(file, &db, SQLITE_OPEN_READWRITE, NULL);
    sqlite3_busy_timeout(db, 10000);
    if (sqlite3_prepare_v2(db, sql, -1, &stmt, NULL) != SQLITE_OK)
        fail_msg("%s: %s", sql, sqlite3_errmsg(db));
    if (sqlite3_step(stmt) == SQLITE_ROW)
        answer = sqlite3_column_int64(stmt, 0);
    sqlite3_finalize(stmt);
    sqlite3_close(db);
    return answer;
}

static inline void assert_intact(const char *file)
{
    assert_int_equal(ask(file, "SELECT integrity_check = 'ok' FROM pragma_integrity_check"), 1);
    assert_int_equal(ask(file, "SELECT count(*) FROM pragma_foreign_key_check"), 0);
}

/* The exit status of a child that is expected to leave by itself, else -signal. */
static inline int wait_for(pid_t pid)
{
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}
