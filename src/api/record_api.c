/* api/record_api.c: the record of runs, for programs that read it. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api/api.h"
#include "api/running.h"
#include "base/cleanup.h"
#include "base/os/file.h"
#include "rlm/parse.h"
#include "store/log.h"

const char *droste_record_path(droste *d, droste_error *err)
{
    err = api_error(err);
    cleanup_free char *home = NULL;
    struct buf path = { 0 };
    const char *configured = d->settings.database;
    int rc = configured ? 0 : file_data_home(&home, err);
    if (rc == 0 && configured)
        buf_puts(&path, configured);
    else if (rc == 0)
        buf_printf(&path, "%s/runs.db", home);
    char *text = rc == 0 ? buf_steal(&path) : NULL;
    if (!text) {
        if (rc == 0)
            error_memory(err);
        return NULL;
    }
    free(d->record_path);
    return d->record_path = text;
}

/* ---- open and close ---- */

/* A droste_record is a struct store. */
static struct store *record_store(droste_record *record)
{
    return (struct store *)(void *)record;
}

int droste_record_open(droste *d, droste_record **out, droste_error *failure)
{
    const char *path = droste_record_path(d, failure);
    struct store *store = NULL;
    int rc = 0;
    *out = NULL;
    if (!path)
        return -(int)ERROR_CONFIG;
    struct error *err = api_error(failure);
    if (strcmp(path, "none") == 0)
        return error_set(err, ERROR_CONFIG, "the record is turned off (database = none)");
    if (access(path, F_OK) == 0 || errno != ENOENT)
        rc = store_open(path, &store, err);
    *out = (droste_record *)(void *)store;
    return rc;
}

void droste_record_close(droste_record *record)
{
    store_close(record_store(record));
}

static bool api_runs(const droste *d, const char *run)
{
    const struct droste_running *r;
    TAILQ_FOREACH(r, &d->runs, link)
    if ((r->id && strcmp(r->id, run) == 0) || strcmp(r->resume, run) == 0)
        return true;
    return false;
}

int droste_record_import(
    droste *d, const char *run, const void *data, size_t len, droste_error *err)
{
    err = api_error(err);
    struct store *store = NULL;
    int rc = api_store(d, &store, err);
    if (rc == 0 && !store)
        rc = error_set(err, ERROR_CONFIG, "the record is turned off (database = none)");
    droste_record_freed freed;
    if (rc < 0)
        return rc;
    bool is_left = !api_runs(d, run);
    if (len == 0) {
        rc = (is_left ? store_run_remove_left : store_run_remove)(store, run, &freed, err);
        return rc == -(int)ERROR_NOT_FOUND ? 0 : rc;
    }
    if (is_left)
        store_run_remove_left(store, run, &freed, NULL);
    return store_import(store, run, data, len, err);
}

int droste_record_import_check(const char *run, const void *data, size_t len, droste_error *failure)
{
    return store_import_check(run, data, len, api_error(failure));
}

/* ---- steps ---- */

_Static_assert(sizeof(droste_record_visitor) == sizeof(struct store_visitor) &&
                   offsetof(droste_record_visitor, lazy) == offsetof(struct store_visitor, lazy),
    "the public visitor is the inner one, as their errors are (api.c)");

int droste_record_visit(droste_record *record, const char *run,
    const droste_record_visitor *visitor, void *arg, droste_error *err)
{
    const struct store_visitor *inner = (const struct store_visitor *)(const void *)visitor;
    return store_run_visit(record_store(record), run, inner, arg, api_error(err));
}

int droste_record_follow(droste_record *record, const char *run, int64_t *at, int64_t most,
    const droste_record_visitor *visitor, void *arg, droste_error *err)
{
    const struct store_visitor *inner = (const struct store_visitor *)(const void *)visitor;
    return store_run_follow(record_store(record), run, at, most, inner, arg, api_error(err));
}

int droste_record_get(
    droste_record *record, const char *run, droste_record_run_fn *fn, void *arg, droste_error *err)
{
    store_run_fn *inner = (store_run_fn *)(void (*)(void))fn;
    return store_run_get(record_store(record), run, inner, arg, api_error(err));
}

int droste_record_list(droste_record *record, const droste_record_filter *filter,
    droste_record_run_fn *fn, void *arg, droste_error *err)
{
    store_run_fn *inner = (store_run_fn *)(void (*)(void))fn;
    return store_run_list(record_store(record), filter, inner, arg, api_error(err));
}

int droste_record_find(
    droste_record *record, const char *prefix, char id[DROSTE_RUN_ID_SIZE], droste_error *err)
{
    return store_run_find(record_store(record), prefix, id, api_error(err));
}

/* ---- values ---- */

struct record_reading {
    droste_piece_fn *fn;
    void *arg;
    bool ended; /* the function has ended the reading */
};

static int record_take_piece(void *arg, const char *data, size_t len, struct error *err)
{
    struct record_reading *r = arg;
    r->ended = r->fn(r->arg, data, len) != 0;
    return r->ended ? error_set(err, ERROR_CANCELLED, "reading a value was ended") : 0;
}

int droste_record_read(droste_record *record, const droste_value *value, size_t max,
    droste_piece_fn *fn, void *arg, droste_error *err)
{
    err = api_error(err);
    struct record_reading reading = { .fn = fn, .arg = arg };
    int rc = store_value_read(record_store(record), value, max, record_take_piece, &reading, err);
    return reading.ended ? 0 : rc;
}

int droste_reply_next_code(
    const char *text, size_t len, size_t *at, const char **code, size_t *code_len)
{
    struct reply_block block;
    if (!reply_next_block(text, len, at, &block))
        return 0;
    *code = block.code;
    *code_len = block.len;
    return 1;
}

/* ---- removing ---- */

int droste_record_remove(
    droste_record *record, const char *run, droste_record_freed *freed, droste_error *err)
{
    err = api_error(err);
    *freed = (droste_record_freed){ 0 };
    return store_run_remove(record_store(record), run, freed, err);
}

int droste_record_collect(droste_record *record, const droste_record_keep *keep,
    droste_record_freed *freed, droste_error *err)
{
    err = api_error(err);
    *freed = (droste_record_freed){ 0 };
    return store_collect(record_store(record), keep, freed, err);
}
