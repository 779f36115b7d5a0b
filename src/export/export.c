/* export/export.c: see export.h.
 *
 * The record visits the steps of a tree of runs in order. Each step is written as a line at once,
 * with its values in pieces, so that memory does not grow with the record.
 */
#include "export/export.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/json/fields.h"
#include "export/otlp.h"
#include "export/page.h"
#include "export/public_error.h"
#include "export/steps.h"

/* ---- lines ---- */

/* Limits the values of a page by its size so far, so that a browser can open a run of any size. */
static size_t page_cut(int64_t written)
{
    static const struct {
        int64_t until;
        size_t most;
    } cuts[] = { { 16 << 20, 64 << 10 }, { 32 << 20, 4 << 10 }, { INT64_MAX, 256 } };
    size_t i = 0;
    while (written >= cuts[i].until)
        i++;
    return cuts[i].most;
}

static void open_line(struct steps_out *o, const char *type, const char *run)
{
    if (o->in_page)
        o->most = page_cut(o->written);
    field_open(&o->text, NULL, '{');
    field_int(&o->text, "schema", EXPORT_SCHEMA);
    field_string(&o->text, "type", type);
    if (run)
        field_string(&o->text, "run", run);
}

static int close_line(struct steps_out *o, droste_error *err)
{
    steps_close(o);
    buf_putc(&o->text, '\n');
    return steps_flush(o, err);
}

static int export_write_run(void *arg, const droste_record_run *run, droste_error *err)
{
    struct steps_out *o = arg;
    open_line(o, "run", NULL);
    steps_run_begin(o, run);
    return close_line(o, err);
}

static int write_turn(void *arg, const droste_record_turn *turn, droste_error *err)
{
    struct steps_out *o = arg;
    open_line(o, "turn", turn->run);
    steps_turn(o, turn);
    return close_line(o, err);
}

static int write_call(void *arg, const droste_record_call *call, droste_error *err)
{
    struct steps_out *o = arg;
    open_line(o, "call", call->run);
    field_int(&o->text, "turn", call->turn);
    steps_call(o, call);
    return close_line(o, err);
}

static int write_cell(void *arg, const droste_record_cell *cell, droste_error *err)
{
    struct steps_out *o = arg;
    open_line(o, "cell", cell->run);
    field_int(&o->text, "turn", cell->turn);
    steps_cell(o, cell);
    return close_line(o, err);
}

static int write_end(void *arg, const droste_record_run *run, droste_error *err)
{
    struct steps_out *o = arg;
    open_line(o, "end", run->id);
    steps_run_end(o, run);
    return close_line(o, err);
}

const droste_record_visitor export_visitor = { .run = export_write_run,
    .turn = write_turn,
    .call = write_call,
    .cell = write_cell,
    .end = write_end,
    .children = true,
    .lazy = true };

static int export_write_lines(
    droste_record *record, const droste_export *runs, FILE *file, droste_error *err)
{
    cleanup_steps struct steps_out o = { .record = record, .file = file };
    int rc = 0;
    for (size_t i = 0; i < runs->count && rc == 0; i++)
        rc = droste_record_visit(record, runs->runs[i], &export_visitor, &o, err);
    return rc;
}

static int export_write(
    droste_record *record, const droste_export *runs, FILE *file, droste_error *err)
{
    static int (*const formats[])(
        droste_record *, const droste_export *, FILE *, droste_error *) = {
        [DROSTE_EXPORT_JSONL] = export_write_lines,
        [DROSTE_EXPORT_HTML] = page_write,
        [DROSTE_EXPORT_OTLP] = otlp_write,
    };
    int rc = formats[runs->format](record, runs, file, err);
    bool failed = fclose(file) != 0;
    return failed && rc == 0 ? public_error_set_errno(err, DROSTE_ERROR_IO, "writing") : rc;
}

/* ---- one by one ---- */

struct export_events {
    struct steps_out out;
    const int64_t *at;
    droste_record_event_fn *fn;
    void *arg;
};

/* Gives the line that the visitor of lines has made. */
static int export_tell(struct export_events *e, const char *type, int rc, droste_error *err)
{
    struct buf *text = &e->out.text;
    if (rc < 0)
        return rc;
    text->data[--text->len] = '\0'; /* the end of the line */
    droste_record_event event = { *e->at, type, buf_text(text), text->len };
    rc = e->fn(e->arg, &event, err);
    buf_clear(text);
    return rc;
}

static int export_tell_run(void *arg, const droste_record_run *run, droste_error *err)
{
    struct export_events *e = arg;
    return export_tell(e, "run", export_write_run(&e->out, run, err), err);
}

static int export_tell_turn(void *arg, const droste_record_turn *turn, droste_error *err)
{
    struct export_events *e = arg;
    return export_tell(e, "turn", write_turn(&e->out, turn, err), err);
}

static int export_tell_call(void *arg, const droste_record_call *call, droste_error *err)
{
    struct export_events *e = arg;
    return export_tell(e, "call", write_call(&e->out, call, err), err);
}

static int export_tell_cell(void *arg, const droste_record_cell *cell, droste_error *err)
{
    struct export_events *e = arg;
    return export_tell(e, "cell", write_cell(&e->out, cell, err), err);
}

static int export_tell_end(void *arg, const droste_record_run *run, droste_error *err)
{
    struct export_events *e = arg;
    return export_tell(e, "end", write_end(&e->out, run, err), err);
}

int droste_record_events(droste_record *record, const char *run, int children, int64_t *at,
    int64_t most, size_t cut, droste_record_event_fn *fn, void *arg, droste_error *failure)
{
    const droste_record_visitor visitor = { .run = export_tell_run,
        .turn = export_tell_turn,
        .call = export_tell_call,
        .cell = export_tell_cell,
        .end = export_tell_end,
        .children = children,
        .lazy = true };
    struct export_events e = {
        .out = { .record = record, .most = cut }, .at = at, .fn = fn, .arg = arg
    };
    droste_error err = { 0 };
    int rc = droste_record_follow(record, run, at, most, &visitor, &e, &err);
    steps_free(&e.out);
    return rc < 0 ? public_error_set(failure, err.code, "%s", err.text) : 0;
}

int droste_record_json(droste_record *record, const droste_record_run *run, size_t cut,
    droste_piece_fn *fn, void *arg, droste_error *failure)
{
    cleanup_steps struct steps_out o = { .record = record, .most = cut };
    droste_error err = { 0 };
    field_open(&o.text, NULL, '{');
    steps_run_begin(&o, run);
    steps_run_end(&o, run);
    steps_close(&o);
    if (steps_flush(&o, &err) < 0)
        return public_error_set(failure, err.code, "%s", err.text);
    fn(arg, buf_text(&o.text), o.text.len);
    return 0;
}

/* ---- the file ---- */

int droste_record_export_fd(
    droste_record *record, const droste_export *runs, int fd, droste_error *err)
{
    cleanup_fd int copy = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    if (copy < 0)
        return public_error_set_errno(err, DROSTE_ERROR_IO, "exporting");
    FILE *file = fdopen(copy, "w");
    if (!file)
        return public_error_set_memory(err);
    steal_fd(&copy);
    return export_write(record, runs, file, err);
}

/* A draft in the same directory, readable by its owner only, which is renamed at the end. */
static int export_replace(
    droste_record *record, const droste_export *runs, const char *path, droste_error *err)
{
    struct buf name = { 0 };
    buf_printf(&name, "%s.XXXXXX", path);
    cleanup_free char *draft = buf_steal(&name);
    if (!draft)
        return public_error_set_memory(err);
    cleanup_fd int fd = mkostemp(draft, O_CLOEXEC);
    if (fd < 0)
        return public_error_set_errno(err, DROSTE_ERROR_IO, "creating %.160s", path);
    int rc = droste_record_export_fd(record, runs, fd, err);
    if (rc == 0 && rename(draft, path) < 0)
        rc = public_error_set_errno(err, DROSTE_ERROR_IO, "renaming %.80s", draft);
    if (rc < 0)
        unlink(draft);
    return rc;
}

/* A device or a pipe stays what it is. */
static int export_append(
    droste_record *record, const droste_export *runs, const char *path, droste_error *err)
{
    cleanup_fd int fd = open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0)
        return public_error_set_errno(err, DROSTE_ERROR_IO, "opening %.160s", path);
    return droste_record_export_fd(record, runs, fd, err);
}

int droste_record_export(
    droste_record *record, const droste_export *runs, const char *path, droste_error *err)
{
    struct stat st;
    droste_error why = { 0 };
    bool replaces = stat(path, &st) < 0 || S_ISREG(st.st_mode);
    int rc = replaces ? export_replace(record, runs, path, &why)
                      : export_append(record, runs, path, &why);
    return rc < 0 ? public_error_set(err, why.code, "exporting to %.80s: %s", path, why.text) : 0;
}
