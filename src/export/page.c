/* export/page.c: see page.h.
 *
 * The page is web/, with three places to fill: its title, the facts of each run, and the record's
 * lines. The facts are plain HTML, for readers without JavaScript; the rest is drawn from the lines
 * by the page's own script. Texts of the record are escaped in the facts, and in the lines no '<'
 * of them is ever written.
 */
#include "export/page.h"

#include <string.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/json/json.h"
#include "base/text.h"
#include "export/describe.h"
#include "export/embedded.h"
#include "export/grades.h"
#include "export/lines.h"
#include "base/error.h"

enum {
    TITLE_CHARACTERS = 80,
    QUESTION_MOST = 8 << 10, /* bytes */
    ANSWER_MOST = 64 << 10,
    CONTEXT_MOST = 64 << 10,
    SEVERAL_MOST = 4 << 10, /* of a question or an answer, if there are several runs */
};

/* ---- text into HTML ---- */

static void append_html(struct buf *out, const char *data, size_t len)
{
    cleanup_buf struct buf clean = { 0 }, visible = { 0 };
    text_append_utf8(&clean, data, len);
    text_append_visible(&visible, buf_text(&clean), clean.len);
    text_append_html(out, buf_text(&visible), visible.len);
    out->failed |= buf_failed(&clean) || buf_failed(&visible);
}

static void append_html_text(struct buf *out, const char *text)
{
    append_html(out, text, strlen(text));
}

/* ---- the facts ---- */

struct page {
    droste_record *record;
    const droste_export *runs;
    FILE *file;
    struct buf title, facts;
};

static size_t page_most(const struct page *p, size_t most)
{
    return p->runs->count > 1 ? SEVERAL_MOST : most;
}

static void add_fact(struct buf *out, const char *name, const char *text)
{
    if (!text || !text[0])
        return;
    buf_printf(out, "<div><dt>%s</dt><dd>", name);
    append_html_text(out, text);
    buf_puts(out, "</dd></div>\n");
}

__attribute__((format(printf, 3, 4))) static void add_fact_f(
    struct buf *out, const char *name, const char *format, ...)
{
    cleanup_buf struct buf text = { 0 };
    va_list args;
    va_start(args, format);
    buf_vprintf(&text, format, args);
    va_end(args);
    add_fact(out, name, buf_text(&text));
}

static void add_count(struct buf *out, const char *name, int64_t number)
{
    cleanup_buf struct buf text = { 0 };
    text_append_grouped(&text, number);
    add_fact(out, name, buf_text(&text));
}

static void add_tokens(struct buf *out, const droste_record_run *run)
{
    cleanup_buf struct buf text = { 0 };
    text_append_grouped(&text, run->input_tokens);
    buf_puts(&text, " in, ");
    text_append_grouped(&text, run->output_tokens);
    buf_puts(&text, " out");
    add_fact(out, "tokens", buf_text(&text));
}

static void add_cost(struct buf *out, const droste_record_run *run)
{
    if (run->ended_ms && run->cost >= 0)
        add_fact_f(out, "cost", "$%.4f", run->cost);
    else
        add_fact(out, "cost", "not known");
}

static void add_started(struct buf *out, int64_t ms)
{
    time_t seconds = (time_t)(ms / 1000);
    struct tm tm;
    char text[48];
    if (!gmtime_r(&seconds, &tm))
        return;
    strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S UTC", &tm);
    add_fact(out, "started", text);
}

static int page_add_context(struct page *p, const droste_value *context, droste_error *err)
{
    cleanup_buf struct buf json = { 0 }, words = { 0 };
    int rc = droste_record_read(p->record, context, CONTEXT_MOST, steps_append_piece, &json, err);
    describe_context(&words, buf_text(&json), json.len);
    add_fact(&p->facts, "context", buf_text(&words));
    return rc;
}

static int add_facts(struct page *p, const droste_record_run *run, droste_error *err)
{
    struct buf *out = &p->facts;
    buf_puts(out, "<dl class=\"facts\">\n");
    add_fact(out, "model", run->model);
    add_fact(out, "batch", run->batch);
    add_fact(out, "task", run->task);
    int rc = page_add_context(p, &run->context, err);
    add_fact(out, "environment", run->environment);
    add_fact(out, "isolation", run->isolation ? run->isolation : "not known");
    if (run->ended_ms) {
        add_count(out, "turns", run->iterations);
        add_count(out, "model calls", run->calls);
        add_tokens(out, run);
        add_fact_f(out, "time", "%.2f s", run->seconds);
    }
    add_cost(out, run);
    add_started(out, run->started_ms);
    add_fact(out, "Droste", run->version);
    buf_puts(out, "</dl>\n");
    return rc;
}

/* The beginning of a value, and its size if it was cut. */
static int page_add_value(
    struct page *p, struct buf *out, const droste_value *value, size_t most, droste_error *err)
{
    cleanup_buf struct buf text = { 0 };
    int rc = droste_record_read(p->record, value, most, steps_append_piece, &text, err);
    append_html(out, buf_text(&text), text.len);
    if (value->len > most)
        buf_printf(out, "… (of %zu bytes)", value->len);
    return rc;
}

/* A string as its text, everything else as JSON. */
static int add_answer(struct page *p, const droste_record_run *run, droste_error *err)
{
    const droste_value *answer = &run->answer;
    size_t most = page_most(p, ANSWER_MOST);
    cleanup_json struct json_object *o = NULL;
    cleanup_buf struct buf text = { 0 };
    int rc = 0;
    if (!answer->hash)
        return 0;
    buf_puts(&p->facts, "<pre>");
    if (answer->len <= most)
        rc = droste_record_read(p->record, answer, SIZE_MAX, steps_append_piece, &text, err);
    if (rc == 0 && json_parse(buf_text(&text), text.len, &json_limits_large, &o, NULL) == 0 &&
        json_object_is_type(o, json_type_string))
        append_html(&p->facts, json_object_get_string(o), (size_t)json_object_get_string_len(o));
    else if (rc == 0)
        rc = page_add_value(p, &p->facts, answer, most, err);
    buf_puts(&p->facts, "</pre>");
    return rc;
}

static int add_outcome(struct page *p, const droste_record_run *run, droste_error *err)
{
    const char *status = run->status;
    buf_printf(
        &p->facts, "<div class=\"answer%s\">\n<span class=\"pill", run->answer.hash ? "" : " none");
    if (text_is_name(status)) /* anything else is not safe as a class */
        buf_printf(&p->facts, " %s", status);
    buf_puts(&p->facts, "\">");
    append_html_text(&p->facts, status);
    buf_puts(&p->facts, "</span>\n");
    int rc = add_answer(p, run, err);
    if (run->error) {
        buf_puts(&p->facts, "<p class=\"why\">");
        append_html_text(&p->facts, run->error);
        buf_puts(&p->facts, "</p>");
    }
    buf_puts(&p->facts, "</div>\n");
    return rc;
}

static int add_title(struct page *p, const droste_record_run *run, droste_error *err)
{
    cleanup_buf struct buf start = { 0 }, line = { 0 };
    int rc = droste_record_read(
        p->record, &run->question, 4 * TITLE_CHARACTERS + 8, steps_append_piece, &start, err);
    describe_line(&line, (droste_value){ buf_text(&start), start.len }, TITLE_CHARACTERS);
    append_html(&p->title, buf_text(&line), line.len);
    buf_puts(&p->title, " · Droste");
    return rc;
}

static int page_take_run(void *arg, const droste_record_run *run, droste_error *err)
{
    struct page *p = arg;
    int rc = p->runs->count == 1 ? add_title(p, run, err) : 0;
    buf_puts(&p->facts, "<header data-run=\"");
    append_html_text(&p->facts, run->id);
    buf_puts(&p->facts, "\">\n<div class=\"soft\">Droste run <span class=\"mono\">");
    append_html_text(&p->facts, run->id);
    buf_puts(&p->facts, "</span></div>\n<h1>");
    if (rc == 0)
        rc = page_add_value(p, &p->facts, &run->question, page_most(p, QUESTION_MOST), err);
    buf_puts(&p->facts, "</h1>\n");
    if (rc == 0)
        rc = add_outcome(p, run, err);
    if (rc == 0)
        rc = add_facts(p, run, err);
    buf_puts(&p->facts, "</header>\n");
    if (rc == 0 && (buf_failed(&p->title) || buf_failed(&p->facts)))
        rc = error_memory(err);
    return rc;
}

/* ---- the page ---- */

static int write_buf(struct page *p, const struct buf *text, droste_error *err)
{
    if (fwrite(buf_text(text), 1, text->len, p->file) == text->len)
        return 0;
    return error_set_errno(err, ERROR_IO, "writing the page");
}

/* Of several runs: what they are. */
static void add_summary(struct page *p)
{
    cleanup_buf struct buf name = { 0 };
    const char *batch = p->runs->batch, *slash = batch ? strrchr(batch, '/') : NULL;
    text_append_grouped(&name, (int64_t)p->runs->count);
    buf_puts(&name, " runs");
    if (batch)
        buf_printf(&name, " of %s", slash ? slash + 1 : batch);
    append_html(&p->title, buf_text(&name), name.len);
    buf_puts(&p->title, " · Droste");
    buf_puts(&p->facts, "<header id=\"summary\">\n<div class=\"soft\">Droste</div>\n<h1>");
    append_html(&p->facts, buf_text(&name), name.len);
    buf_puts(&p->facts, "</h1>\n</header>\n");
}

static int write_title(struct page *p, droste_error *err)
{
    static const droste_record_visitor visitor = { .run = page_take_run, .lazy = true };
    int rc = 0;
    if (p->runs->count != 1)
        add_summary(p);
    for (size_t i = 0; i < p->runs->count && rc == 0; i++)
        rc = droste_record_visit(p->record, p->runs->runs[i], &visitor, p, err);
    return rc < 0 ? rc : write_buf(p, &p->title, err);
}

static int write_facts(struct page *p, droste_error *err)
{
    return write_buf(p, &p->facts, err);
}

static int page_write_lines(struct page *p, droste_error *err)
{
    cleanup_steps struct steps_out o = { .record = p->record, .file = p->file, .in_page = true };
    int rc = 0;
    for (size_t i = 0; i < p->runs->count && rc == 0; i++)
        rc = droste_record_visit(p->record, p->runs->runs[i], &lines_visitor, &o, err);
    return rc == 0 && p->runs->batch ? grades_write(p->runs->batch, &o, err) : rc;
}

/* The places of web/page.html, in their order, and what is written there. */
static const struct {
    const char *mark;
    int (*write)(struct page *p, droste_error *err);
} marks[] = {
    { "<!--title-->", write_title },
    { "<!--facts-->", write_facts },
    { "<!--lines-->", page_write_lines },
};

static int write_all(struct page *p, droste_error *err)
{
    const char *at = (const char *)embedded_page, *end = at + embedded_page_size;
    for (size_t i = 0; i < array_length(marks); i++) {
        size_t len = strlen(marks[i].mark);
        const char *mark = memmem(at, (size_t)(end - at), marks[i].mark, len);
        if (!mark)
            return error_set(err, ERROR_IO,
                "the page's template lacks the mark %s; this build is incomplete, rebuild it",
                marks[i].mark);
        fwrite(at, 1, (size_t)(mark - at), p->file);
        int rc = marks[i].write(p, err);
        if (rc < 0)
            return rc;
        at = mark + len;
    }
    fwrite(at, 1, (size_t)(end - at), p->file);
    return ferror(p->file) ? error_set_errno(err, ERROR_IO, "writing the page") : 0;
}

int page_write(droste_record *record, const droste_export *runs, FILE *file, droste_error *err)
{
    struct page p = { .record = record, .runs = runs, .file = file };
    int rc = write_all(&p, err);
    buf_free(&p.title);
    buf_free(&p.facts);
    return rc;
}
