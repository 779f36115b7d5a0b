/* api/record_api.c: the record of runs, for programs that read it. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api/api.h"
#include "base/cleanup.h"
#include "base/os/file.h"
#include "rlm/parse.h"
#include "store/store.h"

const char *droste_record_path(droste *d, droste_error *err)
{
    cleanup_free char *home = NULL;
    struct error why = { 0 };
    struct buf path = { 0 };
    const char *configured = d->settings.database;
    int rc = configured ? 0 : file_data_home(&home, &why);
    if (rc == 0 && configured)
        buf_puts(&path, configured);
    else if (rc == 0)
        buf_printf(&path, "%s/runs.db", home);
    char *text = rc == 0 ? buf_steal(&path) : NULL;
    if (!text) {
        api_fail(err, &why, rc < 0 ? rc : error_memory(&why));
        return NULL;
    }
    free(d->record_path);
    return d->record_path = text;
}

/* ---- open and close ---- */

struct droste_record {
    struct store *store;
};

int droste_record_open(droste *d, droste_record **out, droste_error *err)
{
    struct error why = { 0 };
    const char *path = droste_record_path(d, err);
    *out = NULL;
    if (!path)
        return -(int)ERROR_CONFIG;
    if (strcmp(path, "none") == 0)
        return api_fail(
            err, &why, error_set(&why, ERROR_CONFIG, "the record is turned off (database = none)"));
    if (access(path, F_OK) < 0 && errno == ENOENT)
        return 0;
    droste_record *record = calloc(1, sizeof *record);
    int rc = record ? store_open(path, &record->store, &why) : error_memory(&why);
    if (rc < 0)
        free(record);
    else
        *out = record;
    return api_fail(err, &why, rc);
}

void droste_record_close(droste_record *record)
{
    if (record)
        store_close(record->store);
    free(record);
}

/* ---- steps ---- */

/* A visitor of the program, whose functions fill in the public error. */
struct record_visit {
    const droste_record_visitor *visitor;
    void *arg;
};

/* The layouts are the same (api.c). */
static droste_error *record_error(struct error *err)
{
    return (droste_error *)(void *)err;
}

static int record_visit_run(void *arg, const droste_record_run *run, struct error *err)
{
    const struct record_visit *v = arg;
    return v->visitor->run(v->arg, run, record_error(err));
}

static int record_visit_turn(void *arg, const droste_record_turn *turn, struct error *err)
{
    const struct record_visit *v = arg;
    return v->visitor->turn(v->arg, turn, record_error(err));
}

static int record_visit_call(void *arg, const droste_record_call *call, struct error *err)
{
    const struct record_visit *v = arg;
    return v->visitor->call(v->arg, call, record_error(err));
}

static int record_visit_cell(void *arg, const droste_record_cell *cell, struct error *err)
{
    const struct record_visit *v = arg;
    return v->visitor->cell(v->arg, cell, record_error(err));
}

static int record_visit_end(void *arg, const droste_record_run *run, struct error *err)
{
    const struct record_visit *v = arg;
    return v->visitor->end(v->arg, run, record_error(err));
}

int droste_record_visit(droste_record *record, const char *run,
    const droste_record_visitor *visitor, void *arg, droste_error *err)
{
    struct error why = { 0 };
    struct record_visit visit = { .visitor = visitor, .arg = arg };
    const struct store_visitor inner = {
        .run = visitor->run ? record_visit_run : NULL,
        .turn = visitor->turn ? record_visit_turn : NULL,
        .call = visitor->call ? record_visit_call : NULL,
        .cell = visitor->cell ? record_visit_cell : NULL,
        .end = visitor->end ? record_visit_end : NULL,
        .children = visitor->children,
        .lazy = visitor->lazy,
    };
    return api_fail(err, &why, store_run_visit(record->store, run, &inner, &visit, &why));
}

int droste_record_list(droste_record *record, const droste_record_filter *filter,
    droste_record_run_fn *fn, void *arg, droste_error *err)
{
    struct error why = { 0 };
    const droste_record_visitor visitor = { .run = fn };
    struct record_visit visit = { .visitor = &visitor, .arg = arg };
    return api_fail(
        err, &why, store_run_list(record->store, filter, record_visit_run, &visit, &why));
}

int droste_record_find(
    droste_record *record, const char *prefix, char id[DROSTE_RUN_ID_SIZE], droste_error *err)
{
    struct error why = { 0 };
    return api_fail(err, &why, store_run_find(record->store, prefix, id, &why));
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
    struct error why = { 0 };
    struct record_reading reading = { .fn = fn, .arg = arg };
    int rc = store_value_read(record->store, value, max, record_take_piece, &reading, &why);
    return reading.ended ? 0 : api_fail(err, &why, rc);
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
    struct error why = { 0 };
    *freed = (droste_record_freed){ 0 };
    return api_fail(err, &why, store_run_remove(record->store, run, freed, &why));
}

int droste_record_collect(droste_record *record, const droste_record_keep *keep,
    droste_record_freed *freed, droste_error *err)
{
    struct error why = { 0 };
    *freed = (droste_record_freed){ 0 };
    return api_fail(err, &why, store_collect(record->store, keep, freed, &why));
}
