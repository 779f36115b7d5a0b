/* cli/record/show.c: see show.h.
 *
 * The record visits a run's steps in the order in which they began: a turn, the model's call, the
 * cells of its reply, each followed by its calls. Each is printed at once.
 */
#include "cli/record/show.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/buf.h"
#include "base/json/fields.h"
#include "base/json/json.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/record/timeline.h"
#include "cli/terminal/screen.h"
#include "export/describe.h"
#include "export/steps.h"

enum {
    LINES = 40, /* of a value */
    LINE_CHARACTERS = 400,
    CALL_CHARACTERS = 100,
    CALLS = 10, /* of a cell */
    CHILDREN = 20,
    CHILD_CHARACTERS = 60,
};

/* ---- as JSON ---- */

struct json_show {
    struct steps_out out;
    bool in_turn;
};

static int json_run(void *arg, const droste_record_run *run, droste_error *err)
{
    struct json_show *s = arg;
    steps_run_begin(&s->out, run);
    steps_run_end(&s->out, run);
    steps_notes(&s->out);
    field_open(&s->out.text, "turns", '[');
    return 0;
}

static void json_end_turn(struct json_show *s)
{
    if (s->in_turn)
        buf_puts(&s->out.text, "]}");
    s->in_turn = false;
}

static int json_turn(void *arg, const droste_record_turn *turn, droste_error *err)
{
    struct json_show *s = arg;
    json_end_turn(s);
    field_open(&s->out.text, NULL, '{');
    steps_turn(&s->out, turn);
    field_open(&s->out.text, "steps", '[');
    s->in_turn = true;
    return 0;
}

static int json_call(void *arg, const droste_record_call *call, droste_error *err)
{
    struct steps_out *out = &((struct json_show *)arg)->out;
    field_open(&out->text, NULL, '{');
    field_string(&out->text, "step", "call");
    steps_call(out, call);
    steps_close(out);
    return 0;
}

static int json_cell(void *arg, const droste_record_cell *cell, droste_error *err)
{
    struct steps_out *out = &((struct json_show *)arg)->out;
    field_open(&out->text, NULL, '{');
    field_string(&out->text, "step", "cell");
    steps_cell(out, cell);
    steps_close(out);
    return 0;
}

int show_as_json(droste_record *record, const char *run, droste_error *err)
{
    static const droste_record_visitor visitor = {
        .run = json_run, .turn = json_turn, .call = json_call, .cell = json_cell, .lazy = true
    };
    struct json_show s = { .out = { .record = record, .file = stdout } };
    field_open(&s.out.text, NULL, '{');
    int rc = droste_record_visit(record, run, &visitor, &s, err);
    json_end_turn(&s);
    buf_puts(&s.out.text, "]}\n");
    if (rc == 0)
        rc = steps_flush(&s.out, err);
    steps_free(&s.out);
    return rc;
}

/* ---- as text ---- */

/* The lines of a text, each after a mark; all of them if `full`. */
static void show_print_lines(const char *mark, const char *text, size_t len, bool full)
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

static void show_print_value(const char *mark, droste_value value, bool full)
{
    if (value.data)
        show_print_lines(mark, value.data, value.len, full);
}

static void print_fact(const char *name, const char *text)
{
    cleanup_buf struct buf line = { 0 };
    if (!text || !text[0])
        return;
    buf_printf(&line, "%-9s %s\n", name, text);
    screen_print_text(stdout, buf_text(&line));
}

static void print_fact_value(const char *name, droste_value value)
{
    print_fact(name, value.data);
}

static void print_context(droste_value context)
{
    cleanup_buf struct buf text = { 0 };
    if (!context.data)
        return;
    describe_context(&text, context.data, context.len);
    print_fact("context", buf_text(&text));
}

/* A string as its text, everything else as JSON. */
static void show_print_answer(droste_value answer)
{
    cleanup_json struct json_object *o = NULL;
    bool fine =
        answer.data && json_parse(answer.data, answer.len, &json_limits_large, &o, NULL) == 0;
    if (fine && json_object_is_type(o, json_type_string))
        print_fact("answer", json_object_get_string(o));
    else
        print_fact_value("answer", answer);
}

static void print_usage(const droste_record_run *run)
{
    cleanup_buf struct buf text = { 0 };
    if (!run->ended_ms)
        return;
    buf_printf(&text, "%lld turn%s, %lld call%s, %lld + %lld tokens", (long long)run->iterations,
        text_plural(run->iterations), (long long)run->calls, text_plural(run->calls),
        (long long)run->input_tokens, (long long)run->output_tokens);
    if (run->cost >= 0)
        buf_printf(&text, ", $%.4f", run->cost);
    buf_printf(&text, ", %.2f s", run->seconds);
    print_fact("usage", buf_text(&text));
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

/* ---- children ---- */

struct child {
    char id[DROSTE_RUN_ID_SIZE], parent[DROSTE_RUN_ID_SIZE];
    int64_t cell;
    struct buf line;
};

struct text_show {
    droste_record *record;
    bool full;
    const char *run;
    struct child children[CHILDREN]; /* the first ones, in the order in which they began */
    int64_t child_count;             /* of all children */
    int64_t turn, in_turn;           /* of the last cell, and its number there */
    int64_t cell, calls;             /* the current cell, and the number of its calls */
    struct timeline timeline;
};

static int note_child(void *arg, const droste_record_run *run, droste_error *err)
{
    struct text_show *s = arg;
    cleanup_buf struct buf question = { 0 };
    if (strcmp(run->id, s->run) == 0 || s->child_count++ >= CHILDREN)
        return 0;
    struct child *c = &s->children[s->child_count - 1];
    snprintf(c->id, sizeof c->id, "%s", run->id);
    snprintf(c->parent, sizeof c->parent, "%s", run->parent ? run->parent : "");
    c->cell = run->parent_cell;
    buf_printf(&c->line, "%s, %s", run->id, run->status);
    if (run->ended_ms)
        buf_printf(&c->line, " in %.2f s, %lld call%s", run->seconds, (long long)run->calls,
            run->calls == 1 ? "" : "s");
    if (run->parent_fork)
        buf_printf(&c->line, ", of fork %s", run->parent_fork);
    buf_puts(&c->line, ": ");
    int rc = droste_record_read(
        s->record, &run->question, 4 * CHILD_CHARACTERS + 8, steps_append_piece, &question, err);
    droste_value text = { .data = buf_text(&question), .len = question.len };
    describe_line(&c->line, text, CHILD_CHARACTERS);
    return rc;
}

static void print_child(const char *mark, const struct child *c)
{
    fputs(mark, stdout);
    cli_print(stdout, buf_text(&c->line), c->line.len);
    putchar('\n');
}

/* Prints the tree below a run. Each run has one parent, so the recursion ends even if a damaged
 * file claims that two runs are each other's parents: neither is below a run that is shown. */
static void print_children_below(const struct text_show *s, const char *parent, int in)
{
    for (int64_t i = 0; i < s->child_count && i < CHILDREN; i++) {
        if (strcmp(s->children[i].parent, parent) != 0)
            continue;
        printf("%*s", in, "");
        print_child("", &s->children[i]);
        print_children_below(s, s->children[i].id, in + 2);
    }
}

static void print_children(const struct text_show *s)
{
    if (s->child_count == 0)
        return;
    printf("%-9s %lld\n", "children", (long long)s->child_count);
    print_children_below(s, s->run, 2);
    if (s->child_count > CHILDREN)
        printf("  … and %lld more\n", (long long)(s->child_count - CHILDREN));
}

static void print_children_of(const struct text_show *s, int64_t cell)
{
    for (int64_t i = 0; i < s->child_count && i < CHILDREN; i++)
        if (s->children[i].cell == cell && strcmp(s->children[i].parent, s->run) == 0)
            print_child("  run of the cell: ", &s->children[i]);
}

/* ---- the run and its steps ---- */

/* Its volume and repository. */
static void print_limits(droste_value limits)
{
    cleanup_json struct json_object *o = NULL;
    cleanup_buf struct buf repo = { 0 };
    if (json_parse(limits.data ? limits.data : "", limits.len, &json_limits_small, &o, NULL) < 0)
        return;
    struct json_object *of = json_get_typed(o, "repo", json_type_object);
    if (of)
        buf_printf(
            &repo, "%s at %s", json_get_string(of, "url", ""), json_get_string(of, "commit", ""));
    print_fact("volume", json_get_string(o, "volume", NULL));
    print_fact("repo", of ? buf_text(&repo) : NULL);
}

static int text_run(void *arg, const droste_record_run *run, droste_error *err)
{
    struct text_show *s = arg;
    cleanup_buf struct buf where = { 0 };
    buf_printf(&where, "%s, isolation %s, droste %s", run->environment,
        run->isolation ? run->isolation : "not known", run->version);
    print_fact("run", run->id);
    print_fact("parent", run->parent);
    print_fact("after", run->previous);
    print_fact("batch", run->batch);
    print_fact("task", run->task);
    print_fact_value("question", run->question);
    print_fact("model", run->model);
    print_context(run->context);
    print_fact("where", buf_text(&where));
    print_limits(run->limits);
    print_started(run->started_ms);
    print_fact("status", run->status);
    show_print_answer(run->answer);
    print_fact("error", run->error);
    print_usage(run);
    print_children(s);
    return 0;
}

/* After the calls of a cell: the number of those omitted. */
static void end_calls(struct text_show *s)
{
    if (s->calls > CALLS && !s->full)
        printf("  … %lld more calls of the cell (all of them with --full)\n",
            (long long)(s->calls - CALLS));
    s->cell = s->calls = 0;
}

static int text_turn(void *arg, const droste_record_turn *turn, droste_error *err)
{
    end_calls(arg);
    printf("\nturn %lld", (long long)turn->turn);
    if (turn->kept) {
        printf(", kept candidate %lld: ", (long long)turn->kept);
        cli_print(
            stdout, turn->reason ? turn->reason : "", turn->reason ? strlen(turn->reason) : 0);
    }
    putchar('\n');
    return 0;
}

/* Prints a line that ends with tokens and time of a call, or why it failed. */
static void print_call_line(struct buf *line, const droste_record_call *call)
{
    buf_puts(line, call->status);
    if (call->ended_ms)
        buf_printf(line, " in %.2f s", call->seconds);
    if (call->ended_ms && strcmp(call->kind, "tool") != 0)
        buf_printf(line, ", %s%lld + %lld tokens", call->estimated ? "about " : "",
            (long long)call->input_tokens, (long long)call->output_tokens);
    if (call->attempts > 1)
        buf_printf(line, ", %lld attempts", (long long)call->attempts);
    if (call->repeated > 0)
        buf_puts(line, ", repeated after the process was killed");
    buf_printf(line, "%s%s\n", call->error ? ": " : "", call->error ? call->error : "");
    screen_print_text(stdout, buf_text(line));
}

/* The start of the line that ends just before `at`: the fence above a block's code. */
static size_t line_before(const char *text, size_t at)
{
    if (at > 0)
        at--;
    while (at > 0 && text[at - 1] != '\n')
        at--;
    return at;
}

/* The reply, with [code] for each block of code, because cells show the code. */
static void print_reply(droste_value reply, bool full)
{
    const char *text = reply.data, *code;
    size_t code_len;
    size_t at = 0, from = 0;
    if (!text)
        return;
    while (!full && droste_reply_next_code(text, reply.len, &at, &code, &code_len)) {
        size_t fence = line_before(text, (size_t)(code - text));
        if (fence > from)
            show_print_lines("  ", text + from, fence - from, full);
        puts("  [code]");
        from = at;
    }
    show_print_lines("  ", text + from, reply.len - from, full);
}

static void print_candidate(int64_t candidate)
{
    if (candidate)
        printf("  candidate %lld:\n", (long long)candidate);
}

static void print_root_call(const droste_record_call *call, bool full)
{
    cleanup_buf struct buf line = { 0 };
    print_candidate(call->candidate);
    buf_printf(
        &line, "  %s %s: ", strcmp(call->kind, "select") == 0 ? "choice of" : "model", call->model);
    print_call_line(&line, call);
    if (full)
        show_print_value("  < ", call->request, full);
    print_reply(call->reply, full);
}

static void print_short(const char *mark, droste_value text)
{
    cleanup_buf struct buf line = { 0 };
    if (!text.data || text.len == 0)
        return;
    describe_line(&line, text, CALL_CHARACTERS);
    fputs(mark, stdout);
    cli_print(stdout, buf_text(&line), line.len);
    putchar('\n');
}

/* A cell's call of a model or a tool. */
static void print_sub_call(const droste_record_call *call, bool full)
{
    cleanup_buf struct buf line = { 0 };
    if (strcmp(call->kind, "tool") == 0)
        buf_printf(&line, "  tool %s: ", call->model);
    else
        buf_puts(&line, "  call of the cell: ");
    if (call->fork)
        buf_printf(&line, "fork %s, ", call->fork);
    print_call_line(&line, call);
    if (full) {
        show_print_value("    < ", call->request, full);
        show_print_value("    ", call->reply, full);
        return;
    }
    print_short("    < ", call->request);
    print_short("    ", call->reply);
}

static int text_call(void *arg, const droste_record_call *call, droste_error *err)
{
    struct text_show *s = arg;
    bool root = call->from_loop;
    if (root || call->cell != s->cell)
        end_calls(s);
    if (root) {
        timeline_add(&s->timeline, call->turn, "model", call->started_ms,
            call->ended_ms ? call->seconds : -1, 0);
        print_root_call(call, s->full);
        return 0;
    }
    s->cell = call->cell;
    if (++s->calls <= CALLS || s->full)
        print_sub_call(call, s->full);
    return 0;
}

static void print_cell_error(droste_value error, bool full)
{
    cleanup_json struct json_object *o = NULL;
    if (!error.data || json_parse(error.data, error.len, &json_limits_large, &o, NULL) < 0)
        return;
    const char *traceback = json_get_string(o, "traceback", NULL);
    const char *message = json_get_string(o, "message", "");
    if (traceback)
        show_print_lines("  ! ", traceback, strlen(traceback), full);
    else
        show_print_lines("  ! ", message, strlen(message), full);
}

/* What a terminal can show of a rich result: its text, or else another form that is text. */
static const droste_record_media *text_form(const droste_record_media *media, size_t count)
{
    const droste_record_media *found = NULL;
    for (size_t i = 0; i < count && media[i].result == media[0].result; i++) {
        if (strcmp(media[i].type, "text/plain") == 0)
            return &media[i];
        if (!found && strcmp(media[i].form, "bytes") != 0)
            found = &media[i];
    }
    return found;
}

static int put_result(const struct text_show *s, const droste_record_media *media, size_t count,
    struct buf *line, droste_error *err)
{
    cleanup_buf struct buf text = { 0 };
    const droste_record_media *form = text_form(media, count);
    for (size_t i = 0; i < count && media[i].result == media[0].result; i++)
        buf_printf(line, "%s%s %zu byte%s", i ? ", " : "", media[i].type, media[i].value.len,
            text_plural((int64_t)media[i].value.len));
    if (!form)
        return 0;
    buf_puts(line, ": ");
    int rc = droste_record_read(
        s->record, &form->value, 4 * CALL_CHARACTERS + 8, steps_append_piece, &text, err);
    droste_value value = { .data = buf_text(&text), .len = text.len };
    describe_line(line, value, CALL_CHARACTERS);
    return rc;
}

/* A line for each rich result: its name (as --save-results has it), types, sizes and a text. */
static int print_results(struct text_show *s, const droste_record_cell *cell, droste_error *err)
{
    s->in_turn = cell->turn == s->turn ? s->in_turn + 1 : 1;
    s->turn = cell->turn;
    for (size_t i = 0; i < cell->media_count; i++) {
        cleanup_buf struct buf line = { 0 };
        const droste_record_media *media = &cell->media[i];
        if (i > 0 && media->result == media[-1].result)
            continue;
        int rc = put_result(s, media, cell->media_count - i, &line, err);
        if (rc < 0)
            return rc;
        printf("  * %lld.%lld.%lld ", (long long)s->turn, (long long)s->in_turn,
            (long long)media->result + 1);
        cli_print(stdout, buf_text(&line), line.len);
        putchar('\n');
    }
    return 0;
}

static int text_cell(void *arg, const droste_record_cell *cell, droste_error *err)
{
    struct text_show *s = arg;
    bool full = s->full;
    end_calls(s);
    timeline_add(&s->timeline, cell->turn, "code", cell->started_ms,
        cell->ended_ms ? cell->seconds : -1, cell->calls);
    print_candidate(cell->candidate);
    show_print_value("  > ", cell->code, full);
    show_print_value("  | ", cell->standard_output, full);
    show_print_value("  |!", cell->standard_error, full);
    print_cell_error(cell->error, full);
    if (print_results(s, cell, err) < 0)
        return -(int)err->code;
    show_print_value("  = ", cell->submit, full);
    printf("  %s", cell->status);
    if (cell->killed)
        printf(" by %s", cell->killed);
    if (cell->ended_ms)
        printf(" in %.3f s", cell->seconds);
    if (cell->calls > 0)
        printf(", %lld call%s", (long long)cell->calls, cell->calls == 1 ? "" : "s");
    putchar('\n');
    print_children_of(s, cell->id);
    return 0;
}

/* GET http://a.example:80/x  200, 120 bytes sent, 4096 received */
static void print_request(const droste_record_request *request)
{
    cleanup_buf struct buf line = { 0 };
    buf_printf(&line, "%s %s:%lld%s", request->method, request->host, (long long)request->port,
        request->path ? request->path : "");
    cli_print(stdout, line.data, line.len);
    if (request->refused)
        fputs("  refused", stdout);
    else if (request->seconds < 0)
        fputs("  has not ended", stdout);
    else
        printf("  %lld, %lld bytes sent, %lld received in %.3f s", (long long)request->status,
            (long long)request->sent, (long long)request->received, request->seconds);
    if (request->why) {
        fputs(": ", stdout);
        cli_print(stdout, request->why, strlen(request->why));
    }
    putchar('\n');
}

static int text_end(void *arg, const droste_record_run *run, droste_error *err)
{
    for (size_t i = 0; i < run->request_count; i++) {
        fputs(i ? "          " : "\nnetwork   ", stdout);
        print_request(&run->requests[i]);
    }
    for (size_t i = 0; i < run->artifact_count; i++) {
        const droste_record_artifact *artifact = &run->artifacts[i];
        fputs(i ? "          " : "\nartifacts ", stdout);
        cli_print(stdout, artifact->name, strlen(artifact->name));
        printf(" (%lld bytes%s)\n", (long long)artifact->size,
            artifact->value.hash ? "" : ", not in the record");
    }
    return 0;
}

int show_as_text(droste_record *record, const char *run, bool full, droste_error *err)
{
    static const droste_record_visitor below = {
        .run = note_child, .children = true, .lazy = true
    };
    static const droste_record_visitor visitor = {
        .run = text_run, .turn = text_turn, .call = text_call, .cell = text_cell, .end = text_end
    };
    struct text_show s = { .record = record, .full = full, .run = run };
    int rc = droste_record_visit(record, run, &below, &s, err);
    if (rc == 0)
        rc = droste_record_visit(record, run, &visitor, &s, err);
    end_calls(&s);
    if (rc == 0)
        timeline_print(&s.timeline);
    for (size_t i = 0; i < CHILDREN; i++)
        buf_free(&s.children[i].line);
    return rc;
}
