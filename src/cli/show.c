/* cli/show.c: see show.h.
 *
 * The record hands out a run's steps in the order in which they began: a turn, the model's call,
 * the cells of its reply, each followed by the calls that it made. They are printed as they come.
 */
#include "cli/show.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/json.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/fields.h"
#include "rlm/parse.h"

enum { LINES = 40, LINE_CHARACTERS = 400, CALL_CHARACTERS = 100 };

/* ---- as JSON ---- */

void show_run_fields(struct buf *out, const struct store_run *run)
{
    const struct store_run_begin *b = &run->begin;
    const struct store_run_end *e = &run->end;
    field_string(out, "run", b->id);
    field_string(out, "parent", b->parent);
    field_int(out, "depth", b->depth);
    field_time(out, "started", run->started_ms);
    field_time(out, "ended", run->ended_ms);
    field_string(out, "status", e->status);
    field_text(out, "question", b->question);
    field_string(out, "model", b->model);
    field_string(out, "environment", b->environment);
    field_string(out, "isolation", b->isolation);
    field_string(out, "version", b->version);
    field_json(out, "context", b->context);
    field_json(out, "limits", b->limits);
    field_json(out, "answer", e->answer);
    field_string(out, "error", e->error);
    field_int(out, "iterations", e->iterations);
    field_open(out, "usage", '{');
    field_int(out, "calls", e->calls);
    field_int(out, "input_tokens", e->input_tokens);
    field_int(out, "output_tokens", e->output_tokens);
    if (e->cost >= 0 && run->ended_ms)
        field_real(out, "cost", e->cost);
    else
        field_string(out, "cost", NULL);
    field_real(out, "seconds", e->seconds);
    field_close(out, '}');
}

struct json_show {
    struct buf out;
    bool in_turn;
};

static int json_run(void *arg, const struct store_run *run, struct error *err)
{
    struct json_show *s = arg;
    show_run_fields(&s->out, run);
    field_open(&s->out, "turns", '[');
    return 0;
}

static void json_end_turn(struct json_show *s)
{
    if (s->in_turn)
        buf_puts(&s->out, "]}");
    s->in_turn = false;
}

static int json_turn(void *arg, const struct store_turn *turn, struct error *err)
{
    struct json_show *s = arg;
    json_end_turn(s);
    field_open(&s->out, NULL, '{');
    field_int(&s->out, "turn", turn->turn);
    field_time(&s->out, "started", turn->started_ms);
    field_open(&s->out, "steps", '[');
    s->in_turn = true;
    return 0;
}

static int json_call(void *arg, const struct store_call *call, struct error *err)
{
    struct buf *out = &((struct json_show *)arg)->out;
    const struct store_call_end *e = &call->end;
    bool root = strcmp(call->begin.kind, "root") == 0;
    field_open(out, NULL, '{');
    field_string(out, "step", "call");
    field_string(out, "kind", call->begin.kind);
    field_int(out, "id", call->id);
    if (call->begin.cell)
        field_int(out, "cell", call->begin.cell);
    field_int(out, "depth", call->begin.depth);
    field_string(out, "model", call->begin.model);
    field_time(out, "started", call->started_ms);
    field_string(out, "status", e->status);
    if (root)
        field_json(out, "request", call->begin.request);
    else
        field_text(out, "request", call->begin.request);
    field_text(out, "reply", e->reply);
    field_string(out, "finish", e->finish);
    field_string(out, "error", e->error);
    field_int(out, "input_tokens", e->input_tokens);
    field_int(out, "output_tokens", e->output_tokens);
    field_bool(out, "estimated", e->estimated);
    field_int(out, "attempts", e->attempts);
    field_real(out, "seconds", e->seconds);
    field_close(out, '}');
    return 0;
}

static int json_cell(void *arg, const struct store_cell *cell, struct error *err)
{
    struct buf *out = &((struct json_show *)arg)->out;
    const struct store_cell_end *e = &cell->end;
    field_open(out, NULL, '{');
    field_string(out, "step", "cell");
    field_int(out, "id", cell->id);
    field_time(out, "started", cell->started_ms);
    field_string(out, "status", e->status);
    field_text(out, "code", cell->begin.code);
    field_text(out, "stdout", e->standard_output);
    field_text(out, "stderr", e->standard_error);
    field_json(out, "submit", e->submit);
    field_json(out, "error", e->error);
    field_json(out, "variables", e->variables);
    field_string(out, "killed", e->killed);
    field_int(out, "calls", e->calls);
    field_real(out, "seconds", e->seconds);
    field_close(out, '}');
    return 0;
}

int show_as_json(struct store *store, const char *run, struct error *err)
{
    static const struct store_visitor visitor = { json_run, json_turn, json_call, json_cell };
    struct json_show s = { 0 };
    field_open(&s.out, NULL, '{');
    int rc = store_run_visit(store, run, &visitor, &s, err);
    json_end_turn(&s);
    buf_puts(&s.out, "]}\n");
    if (rc == 0 && buf_failed(&s.out))
        rc = error_memory(err);
    if (rc == 0)
        fwrite(s.out.data, 1, s.out.len, stdout);
    buf_free(&s.out);
    return rc;
}

/* ---- as text ---- */

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/* The first bytes of a text (four are enough for a character) with blanks in place of all space. */
static void collapse(struct buf *line, struct store_value text, size_t max_bytes)
{
    const char *p = text.data;
    for (size_t i = 0; p && i < text.len && line->len < max_bytes; i++) {
        bool blank = is_blank(p[i]);
        if (!blank || (line->len > 0 && line->data[line->len - 1] != ' '))
            buf_putc(line, blank ? ' ' : p[i]);
    }
    if (line->len > 0 && line->data[line->len - 1] == ' ')
        line->len--;
}

void show_one_line(struct buf *out, struct store_value text, size_t max)
{
    cleanup_buf struct buf line = { 0 };
    size_t at = 0, characters = 0, last = 0;
    collapse(&line, text, 4 * max + 8);
    for (; at < line.len; at++) {
        if (((unsigned char)line.data[at] & 0xC0) == 0x80)
            continue;
        if (++characters > max)
            break;
        last = at;
    }
    buf_append(out, buf_text(&line), characters > max ? last : line.len);
    if (characters > max)
        buf_puts(out, "…");
}

/* The lines of a text, each behind a mark; all of them if `full`. */
static void print_lines(const char *mark, const char *text, size_t len, bool full)
{
    for (unsigned lines = 0; len > 0; lines++) {
        const char *end = memchr(text, '\n', len);
        size_t n = end ? (size_t)(end - text) : len;
        size_t shown = full || n <= LINE_CHARACTERS ? n : text_utf8_floor(text, n, LINE_CHARACTERS);
        if (!full && lines == LINES) {
            printf("%s… (all of it with --full)\n", mark);
            return;
        }
        fputs(mark, stdout);
        cli_print(stdout, text, shown);
        puts(shown < n ? "…" : "");
        text += n + (end != NULL);
        len -= n + (end != NULL);
    }
}

static void print_value(const char *mark, struct store_value value, bool full)
{
    if (value.data)
        print_lines(mark, value.data, value.len, full);
}

static void print_fact(const char *name, const char *text)
{
    if (!text || !text[0])
        return;
    printf("%-9s ", name);
    cli_print(stdout, text, strlen(text));
    putchar('\n');
}

static void print_fact_value(const char *name, struct store_value value)
{
    print_fact(name, value.data);
}

/* {"source":…,"bytes":…,"files":…,"left_out":…} in words. */
static void print_context(struct store_value context)
{
    cleanup_json struct json_object *o = NULL;
    cleanup_buf struct buf text = { 0 };
    if (!context.data ||
        json_parse(context.data, context.len, &json_limits_large, &o, NULL) < 0)
        return;
    int64_t files = json_get_int(o, "files", 0), left_out = json_get_int(o, "left_out", 0);
    buf_printf(&text, "%s, %lld bytes", json_get_string(o, "source", "?"),
        (long long)json_get_int(o, "bytes", 0));
    if (files > 0)
        buf_printf(&text, " in %lld files", (long long)files);
    if (left_out > 0)
        buf_printf(&text, " (%lld more were left out)", (long long)left_out);
    print_fact("context", buf_text(&text));
}

/* A string as its text, everything else as JSON. */
static void print_answer(struct store_value answer)
{
    cleanup_json struct json_object *o = NULL;
    bool fine = answer.data && json_parse(answer.data, answer.len, &json_limits_large, &o, NULL) == 0;
    if (fine && json_object_is_type(o, json_type_string))
        print_fact("answer", json_object_get_string(o));
    else
        print_fact_value("answer", answer);
}

static void print_usage(const struct store_run *run)
{
    const struct store_run_end *e = &run->end;
    if (!run->ended_ms)
        return;
    printf("%-9s %lld turns, %lld calls, %lld + %lld tokens, %.2f s\n", "usage",
        (long long)e->iterations, (long long)e->calls, (long long)e->input_tokens,
        (long long)e->output_tokens, e->seconds);
}

static void print_started(int64_t ms)
{
    time_t seconds = (time_t)(ms / 1000);
    struct tm tm;
    char text[48];
    if (!localtime_r(&seconds, &tm))
        return;
    strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S %z", &tm);
    print_fact("started", text);
}

static int text_run(void *arg, const struct store_run *run, struct error *err)
{
    cleanup_buf struct buf where = { 0 };
    buf_printf(&where, "%s, isolation %s, droste %s", run->begin.environment,
        run->begin.isolation ? run->begin.isolation : "not known", run->begin.version);
    print_fact("run", run->begin.id);
    print_fact("parent", run->begin.parent);
    print_fact_value("question", run->begin.question);
    print_fact("model", run->begin.model);
    print_context(run->begin.context);
    print_fact("where", buf_text(&where));
    print_started(run->started_ms);
    print_fact("status", run->end.status);
    print_answer(run->end.answer);
    print_fact("error", run->end.error);
    print_usage(run);
    return 0;
}

static int text_turn(void *arg, const struct store_turn *turn, struct error *err)
{
    printf("\nturn %lld\n", (long long)turn->turn);
    return 0;
}

/* Tokens and time of a call, or why it failed. */
static void print_call_end(const struct store_call *call)
{
    const struct store_call_end *e = &call->end;
    fputs(e->status, stdout);
    if (call->ended_ms)
        printf(" in %.2f s, %s%lld + %lld tokens", e->seconds, e->estimated ? "about " : "",
            (long long)e->input_tokens, (long long)e->output_tokens);
    if (e->attempts > 1)
        printf(", %lld attempts", (long long)e->attempts);
    if (e->error)
        printf(": ");
    cli_print(stdout, e->error ? e->error : "", e->error ? strlen(e->error) : 0);
    putchar('\n');
}

/* Where the line begins that ends just before `at`: the fence above a block's code. */
static size_t line_before(const char *text, size_t at)
{
    if (at > 0)
        at--;
    while (at > 0 && text[at - 1] != '\n')
        at--;
    return at;
}

/* The reply; its code comes again as cells, so that here a word stands in for it. */
static void print_reply(struct store_value reply, bool full)
{
    struct reply_block block;
    const char *text = reply.data;
    size_t at = 0, from = 0;
    if (!text)
        return;
    while (!full && reply_next_block(text, reply.len, &at, &block)) {
        size_t fence = line_before(text, (size_t)(block.code - text));
        if (fence > from)
            print_lines("  ", text + from, fence - from, full);
        puts("  [code]");
        from = at;
    }
    print_lines("  ", text + from, reply.len - from, full);
}

static void print_root_call(const struct store_call *call, bool full)
{
    printf("  model ");
    cli_print(stdout, call->begin.model, strlen(call->begin.model));
    printf(": ");
    print_call_end(call);
    if (full)
        print_value("  < ", call->begin.request, full);
    print_reply(call->end.reply, full);
}

static void print_short(const char *mark, struct store_value text)
{
    cleanup_buf struct buf line = { 0 };
    if (!text.data || text.len == 0)
        return;
    show_one_line(&line, text, CALL_CHARACTERS);
    fputs(mark, stdout);
    cli_print(stdout, buf_text(&line), line.len);
    putchar('\n');
}

static void print_sub_call(const struct store_call *call, bool full)
{
    printf("  call of the cell: ");
    print_call_end(call);
    if (full) {
        print_value("    < ", call->begin.request, full);
        print_value("    ", call->end.reply, full);
        return;
    }
    print_short("    < ", call->begin.request);
    print_short("    ", call->end.reply);
}

static int text_call(void *arg, const struct store_call *call, struct error *err)
{
    const bool *full = arg;
    if (strcmp(call->begin.kind, "root") == 0)
        print_root_call(call, *full);
    else
        print_sub_call(call, *full);
    return 0;
}

static void print_cell_error(struct store_value error, bool full)
{
    cleanup_json struct json_object *o = NULL;
    if (!error.data || json_parse(error.data, error.len, &json_limits_large, &o, NULL) < 0)
        return;
    const char *traceback = json_get_string(o, "traceback", NULL);
    const char *message = json_get_string(o, "message", "");
    if (traceback)
        print_lines("  ! ", traceback, strlen(traceback), full);
    else
        print_lines("  ! ", message, strlen(message), full);
}

static int text_cell(void *arg, const struct store_cell *cell, struct error *err)
{
    bool full = *(const bool *)arg;
    const struct store_cell_end *e = &cell->end;
    print_value("  > ", cell->begin.code, full);
    print_value("  | ", e->standard_output, full);
    print_value("  |!", e->standard_error, full);
    print_cell_error(e->error, full);
    print_value("  = ", e->submit, full);
    printf("  %s", e->status);
    if (e->killed)
        printf(" by %s", e->killed);
    if (cell->ended_ms)
        printf(" in %.3f s", e->seconds);
    if (e->calls > 0)
        printf(", %lld call%s", (long long)e->calls, e->calls == 1 ? "" : "s");
    putchar('\n');
    return 0;
}

int show_as_text(struct store *store, const char *run, bool full, struct error *err)
{
    static const struct store_visitor visitor = { text_run, text_turn, text_call, text_cell };
    return store_run_visit(store, run, &visitor, &full, err);
}
