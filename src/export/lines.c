/* export/lines.c: see lines.h.
 *
 * The record visits the steps of a tree of runs in order. Each step is written as a line at once,
 * with its values in pieces, so that memory does not grow with the record.
 */
#include "export/lines.h"

#include "base/json/fields.h"
#include "base/error.h"
#include "export/steps.h"

/* Limits the values of a page by its size so far, so that a browser can open a run of any size. */
static size_t lines_page_cut(int64_t written)
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

static void lines_open(struct steps_out *o, const char *type, const char *run)
{
    if (o->in_page)
        o->most = lines_page_cut(o->written);
    field_open(&o->text, NULL, '{');
    field_int(&o->text, "schema", LINES_SCHEMA);
    field_string(&o->text, "type", type);
    if (run)
        field_string(&o->text, "run", run);
}

static int lines_close(struct steps_out *o, droste_error *err)
{
    steps_close(o);
    buf_putc(&o->text, '\n');
    return steps_flush(o, err);
}

static int lines_run(void *arg, const droste_record_run *run, droste_error *err)
{
    struct steps_out *o = arg;
    lines_open(o, "run", NULL);
    steps_run_begin(o, run);
    return lines_close(o, err);
}

static int lines_turn(void *arg, const droste_record_turn *turn, droste_error *err)
{
    struct steps_out *o = arg;
    lines_open(o, "turn", turn->run);
    steps_turn(o, turn);
    return lines_close(o, err);
}

static int lines_call(void *arg, const droste_record_call *call, droste_error *err)
{
    struct steps_out *o = arg;
    lines_open(o, "call", call->run);
    field_int(&o->text, "turn", call->turn);
    steps_call(o, call);
    return lines_close(o, err);
}

static int lines_cell(void *arg, const droste_record_cell *cell, droste_error *err)
{
    struct steps_out *o = arg;
    lines_open(o, "cell", cell->run);
    field_int(&o->text, "turn", cell->turn);
    steps_cell(o, cell);
    return lines_close(o, err);
}

static int lines_end(void *arg, const droste_record_run *run, droste_error *err)
{
    struct steps_out *o = arg;
    lines_open(o, "end", run->id);
    steps_run_end(o, run);
    return lines_close(o, err);
}

const droste_record_visitor lines_visitor = { .run = lines_run,
    .turn = lines_turn,
    .call = lines_call,
    .cell = lines_cell,
    .end = lines_end,
    .children = true,
    .lazy = true };

int lines_write(droste_record *record, const droste_export *runs, FILE *file, droste_error *err)
{
    cleanup_steps struct steps_out o = { .record = record, .file = file };
    int rc = 0;
    for (size_t i = 0; i < runs->count && rc == 0; i++)
        rc = droste_record_visit(record, runs->runs[i], &lines_visitor, &o, err);
    return rc;
}

/* ---- one by one ---- */

struct line_events {
    struct steps_out out;
    const int64_t *at;
    droste_record_event_fn *fn;
    void *arg;
};

/* Gives the line that the visitor of lines has made. */
static int event_tell(struct line_events *e, const char *type, int rc, droste_error *err)
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

static int event_tell_run(void *arg, const droste_record_run *run, droste_error *err)
{
    struct line_events *e = arg;
    return event_tell(e, "run", lines_run(&e->out, run, err), err);
}

static int event_tell_turn(void *arg, const droste_record_turn *turn, droste_error *err)
{
    struct line_events *e = arg;
    return event_tell(e, "turn", lines_turn(&e->out, turn, err), err);
}

static int event_tell_call(void *arg, const droste_record_call *call, droste_error *err)
{
    struct line_events *e = arg;
    return event_tell(e, "call", lines_call(&e->out, call, err), err);
}

static int event_tell_cell(void *arg, const droste_record_cell *cell, droste_error *err)
{
    struct line_events *e = arg;
    return event_tell(e, "cell", lines_cell(&e->out, cell, err), err);
}

static int event_tell_end(void *arg, const droste_record_run *run, droste_error *err)
{
    struct line_events *e = arg;
    return event_tell(e, "end", lines_end(&e->out, run, err), err);
}

int droste_record_events(droste_record *record, const char *run, int children, int64_t *at,
    int64_t most, size_t cut, droste_record_event_fn *fn, void *arg, droste_error *err)
{
    const droste_record_visitor visitor = { .run = event_tell_run,
        .turn = event_tell_turn,
        .call = event_tell_call,
        .cell = event_tell_cell,
        .end = event_tell_end,
        .children = children,
        .lazy = true };
    struct line_events e = {
        .out = { .record = record, .most = cut }, .at = at, .fn = fn, .arg = arg
    };
    droste_error why = { 0 };
    int rc = droste_record_follow(record, run, at, most, &visitor, &e, &why);
    steps_free(&e.out);
    return rc < 0 ? error_set(err, (enum error_code)why.code, "%s", why.text) : 0;
}

int droste_record_json(droste_record *record, const droste_record_run *run, size_t cut,
    droste_piece_fn *fn, void *arg, droste_error *err)
{
    cleanup_steps struct steps_out o = { .record = record, .most = cut };
    field_open(&o.text, NULL, '{');
    steps_run_begin(&o, run);
    steps_run_end(&o, run);
    steps_close(&o);
    droste_error why = { 0 };
    if (steps_flush(&o, &why) < 0)
        return error_set(err, (enum error_code)why.code, "%s", why.text);
    fn(arg, buf_text(&o.text), o.text.len);
    return 0;
}
