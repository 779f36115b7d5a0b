/* cli/record/export.c: see export.h.
 *
 * The record visits the steps of a tree of runs in order. Each step is written as a line at once,
 * with its values in pieces, so that memory does not grow with the record.
 */
#include "cli/record/export.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "cli/cli.h"
#include "cli/fields.h"
#include "cli/record/page.h"

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
    droste_record *record, const struct page_runs *runs, FILE *file, droste_error *err)
{
    cleanup_steps struct steps_out o = { .record = record, .file = file };
    int rc = 0;
    for (size_t i = 0; i < runs->count && rc == 0; i++)
        rc = droste_record_visit(record, runs->ids[i], &export_visitor, &o, err);
    return rc;
}

/* ---- the file ---- */

struct target {
    const char *path; /* NULL: standard output */
    char *draft;      /* renamed to `path` at the end; NULL: writes to `path` */
    FILE *file;
};

/* In the same directory as the target, readable by its owner only. */
static int open_draft(struct target *t, droste_error *err)
{
    struct buf name = { 0 };
    buf_printf(&name, "%s.XXXXXX", t->path);
    cleanup_free char *draft = buf_steal(&name);
    if (!draft)
        return cli_set_memory(err);
    cleanup_fd int fd = mkostemp(draft, O_CLOEXEC);
    if (fd < 0)
        return cli_set_errno(err, DROSTE_ERROR_IO, "making %.160s", t->path);
    t->file = fdopen(fd, "w");
    if (!t->file) {
        unlink(draft);
        return cli_set_memory(err);
    }
    steal_fd(&fd);
    t->draft = steal(&draft);
    return 0;
}

static int open_target(struct target *t, const char *out, droste_error *err)
{
    struct stat st;
    *t = (struct target){ .path = out && strcmp(out, "-") != 0 ? out : NULL, .file = stdout };
    if (!t->path)
        return 0;
    if (stat(t->path, &st) < 0 || S_ISREG(st.st_mode))
        return open_draft(t, err);
    t->file = fopen(t->path, "we"); /* a device or a pipe stays what it is */
    return t->file ? 0 : cli_set_errno(err, DROSTE_ERROR_IO, "opening %.160s", t->path);
}

static int close_target(struct target *t, int rc, droste_error *err)
{
    bool failed = t->path ? fclose(t->file) != 0 : fflush(t->file) != 0;
    if (failed && rc == 0)
        rc = cli_set_errno(err, DROSTE_ERROR_IO, "writing");
    if (t->draft && rc == 0 && rename(t->draft, t->path) < 0)
        rc = cli_set_errno(err, DROSTE_ERROR_IO, "renaming %.80s", t->draft);
    if (t->draft && rc < 0)
        unlink(t->draft);
    free(t->draft);
    return rc;
}

int export_runs(droste_record *record, const struct page_runs *runs, enum export_format format,
    const char *out, droste_error *err)
{
    struct target target;
    int rc = open_target(&target, out, err);
    if (rc < 0)
        return rc;
    if (format == EXPORT_HTML)
        rc = page_write(record, runs, target.file, err);
    else
        rc = export_write_lines(record, runs, target.file, err);
    rc = close_target(&target, rc, err);
    return rc < 0 && target.path
               ? cli_set_error(err, err->code, "exporting to %.80s: %s", target.path, err->text)
               : rc;
}
