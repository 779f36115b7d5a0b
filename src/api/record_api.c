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
    const char *given = d->settings.database;
    int rc = given ? 0 : file_data_home(&home, &why);
    if (rc == 0 && given)
        buf_puts(&path, given);
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

static droste_value record_value(const struct store_value *v)
{
    return (droste_value){ v->data, v->len, v->hash };
}

struct record_visit {
    const droste_record_visitor *visitor;
    droste_record_run_fn *list; /* of a list */
    void *arg;
};

/* The error of a function of the program. */
static int record_told(int rc, const droste_error *from, struct error *err)
{
    if (rc < 0) {
        *err = (struct error){ .code = (enum error_code)from->code, .sys = from->sys };
        memcpy(err->text, from->text, sizeof err->text);
    }
    return rc;
}

static int record_tell_run(
    droste_record_run_fn *fn, void *arg, const struct store_run *run, struct error *err)
{
    const struct store_run_begin *b = &run->begin;
    const struct store_run_end *e = &run->end;
    droste_error why = { 0 };
    const droste_record_run public = {
        .id = b->id,
        .parent = b->parent,
        .parent_cell = b->parent_cell,
        .previous = b->previous,
        .batch = b->batch,
        .task = b->task,
        .depth = b->depth,
        .model = b->model,
        .environment = b->environment,
        .isolation = b->isolation,
        .version = b->version,
        .question = record_value(&b->question),
        .context = record_value(&b->context),
        .limits = record_value(&b->limits),
        .tools = record_value(&b->tools),
        .started_ms = run->started_ms,
        .ended_ms = run->ended_ms,
        .status = e->status,
        .error = e->error,
        .answer = record_value(&e->answer),
        .iterations = e->iterations,
        .calls = e->calls,
        .input_tokens = e->input_tokens,
        .output_tokens = e->output_tokens,
        .cost = e->cost,
        .seconds = e->seconds,
    };
    return record_told(fn(arg, &public, &why), &why, err);
}

static int record_visit_run(void *arg, const struct store_run *run, struct error *err)
{
    const struct record_visit *v = arg;
    return record_tell_run(v->visitor->run, v->arg, run, err);
}

static int record_visit_end(void *arg, const struct store_run *run, struct error *err)
{
    const struct record_visit *v = arg;
    return record_tell_run(v->visitor->end, v->arg, run, err);
}

static int record_visit_listed(void *arg, const struct store_run *run, struct error *err)
{
    const struct record_visit *v = arg;
    return record_tell_run(v->list, v->arg, run, err);
}

static int record_visit_turn(void *arg, const struct store_turn *turn, struct error *err)
{
    const struct record_visit *v = arg;
    droste_error why = { 0 };
    const droste_record_turn public = { turn->run, turn->turn, turn->started_ms };
    return record_told(v->visitor->turn(v->arg, &public, &why), &why, err);
}

static int record_visit_call(void *arg, const struct store_call *call, struct error *err)
{
    const struct record_visit *v = arg;
    const struct store_call_begin *b = &call->begin;
    const struct store_call_end *e = &call->end;
    droste_error why = { 0 };
    const droste_record_call public = {
        .id = call->id,
        .run = b->run,
        .turn = b->turn,
        .cell = b->cell,
        .depth = b->depth,
        .from_loop = store_is_loop_call(b->kind),
        .kind = b->kind,
        .model = b->model,
        .request = record_value(&b->request),
        .started_ms = call->started_ms,
        .ended_ms = call->ended_ms,
        .status = e->status,
        .error = e->error,
        .finish = e->finish,
        .reply = record_value(&e->reply),
        .input_tokens = e->input_tokens,
        .output_tokens = e->output_tokens,
        .estimated = e->estimated,
        .cost = e->cost,
        .attempts = e->attempts,
        .repeated = call->repeated,
        .seconds = e->seconds,
    };
    return record_told(v->visitor->call(v->arg, &public, &why), &why, err);
}

static int record_visit_cell(void *arg, const struct store_cell *cell, struct error *err)
{
    const struct record_visit *v = arg;
    const struct store_cell_end *e = &cell->end;
    droste_error why = { 0 };
    const droste_record_cell public = {
        .id = cell->id,
        .run = cell->begin.run,
        .turn = cell->begin.turn,
        .code = record_value(&cell->begin.code),
        .started_ms = cell->started_ms,
        .ended_ms = cell->ended_ms,
        .status = e->status,
        .killed = e->killed,
        .standard_output = record_value(&e->standard_output),
        .standard_error = record_value(&e->standard_error),
        .submit = record_value(&e->submit),
        .error = record_value(&e->error),
        .variables = record_value(&e->variables),
        .calls = e->calls,
        .seconds = e->seconds,
    };
    return record_told(v->visitor->cell(v->arg, &public, &why), &why, err);
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
    struct record_visit visit = { .list = fn, .arg = arg };
    const struct store_filter inner = { .status = filter->status,
        .model = filter->model,
        .batch = filter->batch,
        .task = filter->task,
        .limit = filter->limit };
    return api_fail(
        err, &why, store_run_list(record->store, &inner, record_visit_listed, &visit, &why));
}

_Static_assert(
    (int)DROSTE_RUN_ID_SIZE == (int)STORE_RUN_ID_SIZE, "ids are as long as the record's");

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
    bool ended; /* by the function */
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
    const struct store_value inner = { value->data, value->len, value->hash };
    int rc = store_value_read(record->store, &inner, max, record_take_piece, &reading, &why);
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

static droste_record_freed record_freed(const struct store_freed *f)
{
    return (
        droste_record_freed){ f->runs, f->values, f->value_bytes, f->interrupted, f->file_bytes };
}

int droste_record_remove(
    droste_record *record, const char *run, droste_record_freed *freed, droste_error *err)
{
    struct error why = { 0 };
    struct store_freed inner = { 0 };
    int rc = store_run_remove(record->store, run, &inner, &why);
    *freed = record_freed(&inner);
    return api_fail(err, &why, rc);
}

int droste_record_collect(droste_record *record, const droste_record_keep *keep,
    droste_record_freed *freed, droste_error *err)
{
    struct error why = { 0 };
    struct store_freed inner = { 0 };
    const struct store_keep kept = { keep ? keep->newest : 0, keep ? keep->older_ms : 0 };
    int rc = store_collect(record->store, keep ? &kept : NULL, &inner, &why);
    *freed = record_freed(&inner);
    return api_fail(err, &why, rc);
}
