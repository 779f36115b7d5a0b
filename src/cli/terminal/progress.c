/* cli/terminal/progress.c: see progress.h.
 *
 * What the model says, its code, its output and its errors are printed as they come and stay. On a
 * terminal, lines below them are rewritten: what is not complete, the tree of child runs, a pause
 * before another attempt, and the state of the run with its clocks.
 */
#include "cli/terminal/progress.h"

#include <json-c/json.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/json/json.h"
#include "base/text.h"
#include "cli/terminal/children.h"
#include "cli/terminal/highlight.h"
#include "cli/reply.h"
#include "cli/terminal/screen.h"

enum {
    OUTPUT_LINES = 12,
    OUTPUT_LINE_BYTES = 400,
    CODE_LINES = 40,
    COMPLAINT_LINES = 8,
    LOG_COLUMNS = 12,
    LOG_INDENT = 4
};
enum { TREE_ROWS = 12, TREE_ROWS_KEPT = 40, DRAW_MS = 100 };

struct progress {
    struct screen screen;
    droste *d;
    uint64_t start_ns, drawn_ns;
    struct reply reply;
    struct children *children;
    struct buf output; /* a line of the cell's that is not complete */
    unsigned output_lines;
    const char *doing; /* a constant; NULL: nothing that is worth a word */
    uint64_t doing_ns;
    struct buf notice; /* while the run is prepared */
    struct buf reason; /* of the last attempt that failed */
    uint64_t retry_ns; /* when the next one comes */
    unsigned attempt, attempts;
    droste_event last; /* its numbers: its texts are gone */
};

#define DIM  screen_paint(&p->screen, "\x1b[2m")
#define BOLD screen_paint(&p->screen, "\x1b[1m")
#define RED  screen_paint(&p->screen, "\x1b[31m")
#define OFF  screen_paint(&p->screen, "\x1b[0m")
#define LOG  (&p->screen.log)

static const char *dots(const struct progress *p)
{
    return screen_mark(&p->screen, "…", "...");
}

static void progress_do(struct progress *p, const char *doing)
{
    if (doing != p->doing)
        p->doing_ns = clock_ns();
    p->doing = doing;
}

/* ---- lines that stay ---- */

/* How many bytes fit behind `used` columns; 0 if the row has no room worth using. */
static size_t log_fits(const struct progress *p, const char *text, size_t len, size_t used)
{
    size_t columns = screen_columns(&p->screen);
    if (!p->screen.moves || columns <= used + LOG_COLUMNS)
        return p->screen.moves && used > LOG_INDENT ? 0 : len;
    return screen_break(text, len, columns - used - 1);
}

/* On a terminal, words are left whole, and further rows are indented. */
static void log_line(
    struct progress *p, const char *colour, const char *mark, const char *text, size_t len)
{
    cleanup_buf struct buf visible = { 0 };
    size_t used = strlen(mark), at = 0, n;
    screen_put_text(&p->screen, &visible, text, len);
    buf_printf(LOG, "%s%s", screen_paint(&p->screen, colour), mark);
    while ((n = log_fits(p, buf_text(&visible) + at, visible.len - at, used)) < visible.len - at) {
        buf_append(LOG, visible.data + at, n);
        buf_printf(LOG, "\n%*s", LOG_INDENT, "");
        at += n;
        at += visible.data[at] == ' ';
        used = LOG_INDENT;
    }
    buf_append(LOG, buf_text(&visible) + at, visible.len - at);
    buf_printf(LOG, "%s\n", colour[0] ? OFF : "");
}

/* Each line of a text behind a mark. */
static void log_lines(
    struct progress *p, const char *colour, const char *mark, const char *text, size_t len)
{
    while (len > 0) {
        const char *end = memchr(text, '\n', len);
        size_t n = end ? (size_t)(end - text) : len;
        log_line(p, colour, mark, text, n);
        text += n + (end != NULL);
        len -= n + (end != NULL);
    }
}

static size_t count_lines(const char *text, size_t len)
{
    size_t lines = len > 0 && text[len - 1] != '\n';
    for (size_t i = 0; i < len; i++)
        lines += text[i] == '\n';
    return lines;
}

static void log_code(struct progress *p, const char *text, size_t len)
{
    struct highlight state = { 0 };
    for (unsigned lines = 0; len > 0 && lines < CODE_LINES; lines++) {
        const char *end = memchr(text, '\n', len);
        size_t n = end ? (size_t)(end - text) : len;
        buf_printf(LOG, "%s  > %s", DIM, OFF);
        if (p->screen.paints)
            highlight_line(&state, LOG, text, n);
        else
            screen_put_text(&p->screen, LOG, text, n);
        buf_putc(LOG, '\n');
        text += n + (end != NULL);
        len -= n + (end != NULL);
    }
    if (len > 0)
        buf_printf(LOG, "%s  > %s %zu more lines%s\n", DIM, dots(p), count_lines(text, len), OFF);
}

static void log_output_line(struct progress *p)
{
    size_t len = p->output.len, n = len;
    if (n > OUTPUT_LINE_BYTES)
        n = text_utf8_floor(p->output.data, len, OUTPUT_LINE_BYTES);
    if (p->output_lines++ < OUTPUT_LINES) {
        buf_printf(LOG, "%s  | %s", DIM, OFF);
        screen_put_text(&p->screen, LOG, buf_text(&p->output), n);
        buf_printf(LOG, "%s\n", n < len ? dots(p) : "");
    }
    buf_clear(&p->output);
}

static void progress_on_output(struct progress *p, const droste_event *e)
{
    const char *text = e->text, *end;
    size_t len = e->len;
    while ((end = memchr(text, '\n', len))) {
        buf_append(&p->output, text, (size_t)(end - text));
        log_output_line(p);
        len -= (size_t)(end + 1 - text);
        text = end + 1;
    }
    if (p->output.len <= OUTPUT_LINE_BYTES)
        buf_append(&p->output, text, len < 4096 ? len : 4096);
}

static void end_output(struct progress *p)
{
    if (p->output.len > 0)
        log_output_line(p);
    if (p->output_lines > OUTPUT_LINES)
        buf_printf(LOG, "%s  | %s %u more line%s%s\n", DIM, dots(p), p->output_lines - OUTPUT_LINES,
            text_plural(p->output_lines - OUTPUT_LINES), OFF);
    p->output_lines = 0;
}

/* Where the last lines of a text begin. */
static const char *last_lines(const char *text, size_t len, unsigned lines)
{
    const char *at = text + len;
    while (at > text && at[-1] == '\n')
        at--;
    while (at > text && lines > 0) {
        const char *newline = memrchr(text, '\n', (size_t)(at - 1 - text));
        lines--;
        at = lines == 0 || !newline ? (newline ? newline + 1 : text) : newline;
    }
    return at;
}

static void log_complaint(struct progress *p, const char *text, size_t len)
{
    const char *end = last_lines(text, len, COMPLAINT_LINES);
    log_lines(p, "\x1b[31m", "  ! ", end, len - (size_t)(end - text));
}

static void keep_child_line(void *arg, const char *line, size_t columns)
{
    buf_printf(arg, "%s\n", line);
}

static void log_children(struct progress *p)
{
    if (p->screen.moves)
        children_draw(p->children, &p->screen, TREE_ROWS_KEPT, screen_columns(&p->screen) - 1,
            keep_child_line, LOG);
    children_clear(p->children);
}

/* ---- events ---- */

static void on_started(struct progress *p, const droste_event *e)
{
    buf_clear(&p->notice);
    if (e->len > 0)
        log_line(p, "\x1b[2m", "run ", e->text, e->len);
}

static void on_context(struct progress *p, const droste_event *e)
{
    log_lines(p, "", "context: ", e->text, e->len);
}

static void on_note(struct progress *p, const droste_event *e)
{
    log_lines(p, "", "note: ", e->text, e->len);
}

static void on_turn(struct progress *p, const droste_event *e)
{
    buf_printf(LOG, "%sturn %u of %u%s\n", BOLD, e->turn, e->turns, OFF);
    reply_clear(&p->reply);
    progress_do(p, "asking the model");
}

static void on_delta(struct progress *p, const droste_event *e)
{
    p->retry_ns = 0;
    progress_do(p, "the model writes");
    reply_take(&p->reply, &p->screen, e->text, e->len);
}

static void progress_on_reply(struct progress *p, const droste_event *e)
{
    p->retry_ns = 0;
    progress_do(p, NULL);
    reply_end(&p->reply, &p->screen, e->text, e->len);
}

static void on_cell(struct progress *p, const droste_event *e)
{
    log_code(p, e->text, e->len);
    p->output_lines = 0;
    progress_do(p, "running code");
}

/* The text is a JSON object, as there are all events. */
static void progress_on_result(struct progress *p, const droste_event *e)
{
    cleanup_json struct json_object *o = NULL;
    struct json_object *error = NULL, *traceback = NULL;
    bool fine = strcmp(e->status, "ok") == 0 || strcmp(e->status, "submitted") == 0;
    end_output(p);
    log_children(p);
    if (!fine && (o = json_tokener_parse(e->text)) && json_object_object_get_ex(o, "error", &error))
        json_object_object_get_ex(error, "traceback", &traceback);
    if (traceback)
        log_complaint(
            p, json_object_get_string(traceback), (size_t)json_object_get_string_len(traceback));
    buf_printf(
        LOG, "  %s%s%s%s in %.3f s%s\n", fine ? "" : RED, e->status, OFF, DIM, e->seconds, OFF);
    progress_do(p, NULL);
}

/* Every reason that the run's own model gives, and of code's calls each once in a row: thousands
 * may wait for the same server. */
static void on_retry(struct progress *p, const droste_event *e)
{
    bool own = e->run == 0 && e->call == 0;
    bool same = p->reason.len == e->len && memcmp(buf_text(&p->reason), e->text, e->len) == 0;
    p->retry_ns = clock_ns() + (uint64_t)(e->seconds * 1e9);
    p->attempt = e->attempt;
    p->attempts = e->attempts;
    buf_clear(&p->reason);
    buf_append(&p->reason, e->text, e->len);
    if (!own && same)
        return;
    char mark[64];
    snprintf(mark, sizeof mark, "  ~ attempt %u of %u follows in %.1f s: ", e->attempt, e->attempts,
        e->seconds);
    log_line(p, "\x1b[33m", mark, e->text, e->len);
}

/* On a terminal without rewritten lines, each start and end of a child run is a line. */
static void log_child(struct progress *p, const droste_event *e)
{
    bool ends = strcmp(e->kind, "child_end") == 0;
    bool answered = ends && strcmp(e->status, "answered") == 0;
    cleanup_buf struct buf text = { 0 };
    if (p->screen.moves || (!ends && strcmp(e->kind, "child") != 0))
        return;
    buf_printf(LOG, "  %*schild run %llu", 2 * (int)e->depth, "", (unsigned long long)e->call);
    if (ends)
        buf_printf(LOG, " %s in %.1f s", e->status, e->seconds);
    if (!answered) {
        screen_fit(&p->screen, &text, e->text, e->len, 160);
        buf_printf(LOG, ": %s", buf_text(&text));
    }
    buf_putc(LOG, '\n');
}

static void progress_on_approval(struct progress *p, const droste_event *e)
{
    bool failed = e->status && strcmp(e->status, "unannounced") == 0;
    if (failed)
        log_line(
            p, "\x1b[33m", "  the webhook was not told of a call that waits: ", e->text, e->len);
}

static const struct {
    const char *kind;
    void (*take)(struct progress *p, const droste_event *e);
} takers[] = {
    { "started", on_started },
    { "context", on_context },
    { "notice", on_note },
    { "approval", progress_on_approval },
    { "turn", on_turn },
    { "delta", on_delta },
    { "reply", progress_on_reply },
    { "cell", on_cell },
    { "output", progress_on_output },
    { "result", progress_on_result },
};

/* Numbers of calls and children are of their own; those of the run come with all other events. */
static void keep_numbers(struct progress *p, const droste_event *e)
{
    bool ends = strcmp(e->kind, "called") == 0 || strcmp(e->kind, "child_end") == 0;
    int64_t calls = p->last.calls, in = p->last.input_tokens, out = p->last.output_tokens;
    unsigned turn = p->last.turn, turns = p->last.turns;
    p->last = *e;
    if (ends) {
        p->last.calls = calls;
        p->last.input_tokens = in;
        p->last.output_tokens = out;
    }
    if (e->run > 0) {
        p->last.turn = turn;
        p->last.turns = turns;
    }
}

static void progress_show(struct progress *p);

static void progress_tick(void *arg)
{
    struct progress *p = arg;
    if (p->screen.moves && clock_ns() - p->drawn_ns >= (uint64_t)DRAW_MS * 1000000u)
        progress_show(p);
}

void progress_event(void *arg, const droste_event *e)
{
    struct progress *p = arg;
    keep_numbers(p, e);
    if (strcmp(e->kind, "retry") == 0)
        on_retry(p, e);
    log_child(p, e);
    if (!children_take(p->children, e))
        for (size_t i = 0; i < array_length(takers); i++)
            if (strcmp(takers[i].kind, e->kind) == 0)
                takers[i].take(p, e);
    if (p->screen.log.len > 0)
        progress_show(p);
    else
        progress_tick(p);
}

static void progress_on_notice(void *arg, const char *text)
{
    struct progress *p = arg;
    bool same = strcmp(buf_text(&p->notice), text) == 0;
    buf_clear(&p->notice);
    buf_puts(&p->notice, text);
    if (!p->screen.moves && !same && text[0])
        log_line(p, "", "", text, strlen(text));
    progress_show(p);
}

/* ---- lines that are rewritten ---- */

struct part {
    unsigned rank; /* in which order parts get the columns; what does not fit is left out */
    char text[80];
    bool fits;
};

static void put_doing(const struct progress *p, char *out, size_t size)
{
    double seconds = clock_seconds_since(p->doing_ns);
    if (p->last.turn == 0)
        snprintf(out, size, "starting");
    else if (p->doing)
        snprintf(out, size, "%s %.1f s", p->doing, seconds);
}

static void put_tokens(const droste_event *e, char *out, size_t size)
{
    if (e->input_tokens + e->output_tokens > 0)
        snprintf(out, size, "%lld + %lld tokens", (long long)e->input_tokens,
            (long long)e->output_tokens);
}

static void put_cost(const droste_event *e, char *out, size_t size)
{
    if (e->cost > 0)
        snprintf(out, size, e->cost < 0.01 ? "$%.5f" : "$%.2f", e->cost);
}

static void put_calls(const droste_event *e, char *out, size_t size)
{
    int n = snprintf(out, size, "%lld call%s", (long long)e->calls, text_plural(e->calls));
    if (e->pending)
        snprintf(out + n, size - (size_t)n, " (%u under way)", e->pending);
}

static void show_status(struct progress *p, size_t columns)
{
    enum { TURN, DOING, CALLS, TOKENS, COST, TIME, PARTS };
    const droste_event *e = &p->last;
    struct part parts[PARTS] = {
        [TURN] = { .rank = 0 },
        [DOING] = { .rank = 2 },
        [CALLS] = { .rank = 4 },
        [TOKENS] = { .rank = 5 },
        [COST] = { .rank = 3 },
        [TIME] = { .rank = 1 },
    };
    cleanup_buf struct buf line = { 0 };
    const char *between = screen_mark(&p->screen, " · ", " - ");
    if (e->turn > 0)
        snprintf(parts[TURN].text, sizeof parts[TURN].text, "turn %u/%u", e->turn, e->turns);
    put_doing(p, parts[DOING].text, sizeof parts[DOING].text);
    put_calls(e, parts[CALLS].text, sizeof parts[CALLS].text);
    put_tokens(e, parts[TOKENS].text, sizeof parts[TOKENS].text);
    put_cost(e, parts[COST].text, sizeof parts[COST].text);
    snprintf(parts[TIME].text, sizeof parts[TIME].text, "%.1f s", clock_seconds_since(p->start_ns));
    size_t used = 0;
    for (unsigned rank = 0; rank < PARTS; rank++)
        for (size_t i = 0; i < PARTS; i++) {
            size_t more = strlen(parts[i].text) + (used > 0 ? 3 : 0);
            parts[i].fits |= parts[i].rank == rank && parts[i].text[0] && used + more <= columns;
            used += parts[i].rank == rank && parts[i].fits ? more : 0;
        }
    buf_puts(&line, DIM);
    size_t begin = line.len;
    for (size_t i = 0; i < PARTS; i++)
        if (parts[i].fits)
            buf_printf(&line, "%s%s", line.len > begin ? between : "", parts[i].text);
    buf_puts(&line, OFF);
    screen_add(&p->screen, buf_text(&line), used);
}

static void show_text(struct progress *p, const char *colour, const char *mark, const char *text,
    size_t len, size_t columns)
{
    cleanup_buf struct buf line = { 0 };
    size_t used = strlen(mark);
    if (columns <= used || len == 0)
        return;
    buf_printf(&line, "%s%s", screen_paint(&p->screen, colour), mark);
    used += screen_fit(&p->screen, &line, text, len, columns - used);
    buf_puts(&line, OFF);
    screen_add(&p->screen, buf_text(&line), used);
}

/* The reason is above. */
static void show_retry(struct progress *p, size_t columns)
{
    uint64_t now = clock_ns();
    char text[64];
    if (p->retry_ns <= now)
        return;
    int n = snprintf(text, sizeof text, "  ~ attempt %u of %u in %.1f s", p->attempt, p->attempts,
        (double)(p->retry_ns - now) / 1e9);
    show_text(p, "\x1b[33m", "", text, (size_t)n, columns);
}

static void show_child(void *arg, const char *line, size_t columns)
{
    screen_add(arg, line, columns);
}

static void progress_show(struct progress *p)
{
    p->drawn_ns = clock_ns();
    if (!p->screen.moves) {
        screen_draw(&p->screen);
        return;
    }
    size_t columns = screen_columns(&p->screen) - 1, rows = screen_rows(&p->screen) / 2;
    reply_draw(&p->reply, &p->screen, columns);
    show_text(p, "", "  | ", buf_text(&p->output), p->output.len, columns);
    children_draw(p->children, &p->screen, rows < TREE_ROWS ? rows : TREE_ROWS, columns, show_child,
        &p->screen);
    show_retry(p, columns);
    show_text(p, "", "", buf_text(&p->notice), p->notice.len, columns);
    show_status(p, columns);
    screen_draw(&p->screen);
}

/* ---- the beginning and the end ---- */

struct progress *progress_open(FILE *out, droste *d)
{
    struct progress *p = calloc(1, sizeof *p);
    if (!p)
        return NULL;
    p->d = d;
    p->start_ns = p->doing_ns = clock_ns();
    p->children = children_new();
    screen_open(&p->screen, out);
    if (!p->children) {
        free(p);
        return NULL;
    }
    if (d)
        droste_on_notice(d, progress_on_notice, p);
    if (d && p->screen.moves)
        droste_every(d, DRAW_MS, progress_tick, p, NULL);
    return p;
}

/* With the call that made the run fail, after which no event came. */
static void log_end(struct progress *p, const droste_result *result)
{
    droste_event *e = &p->last;
    char cost[32] = "";
    cleanup_buf struct buf text = { 0 };
    cleanup_json struct json_object *whole = json_tokener_parse(droste_result_json(result, NULL));
    struct json_object *usage = json_get_typed(whole, "usage", json_type_object), *dollars = NULL;
    if (usage && json_object_object_get_ex(usage, "cost", &dollars)) {
        e->calls = json_get_int(usage, "calls", e->calls);
        e->input_tokens = json_get_int(usage, "input_tokens", e->input_tokens);
        e->output_tokens = json_get_int(usage, "output_tokens", e->output_tokens);
        e->cost = json_object_get_double(dollars);
    }
    put_cost(e, cost, sizeof cost);
    buf_printf(&text, "%s after %u turn%s, %lld call%s, %lld + %lld tokens, %s%s%.2f s",
        droste_result_status(result), e->turn, text_plural(e->turn), (long long)e->calls,
        text_plural(e->calls), (long long)e->input_tokens, (long long)e->output_tokens, cost,
        cost[0] ? ", " : "", droste_result_seconds(result));
    log_line(p, "\x1b[2m", "", buf_text(&text), text.len);
}

void progress_close(struct progress *p, const droste_result *result)
{
    if (!p)
        return;
    if (p->d) {
        droste_on_notice(p->d, NULL, NULL);
        droste_every(p->d, 0, NULL, NULL, NULL);
    }
    reply_end(&p->reply, &p->screen, "", 0);
    end_output(p);
    log_children(p);
    if (result)
        log_end(p, result);
    screen_draw(&p->screen);
    screen_close(&p->screen);
    reply_free(&p->reply);
    children_free(p->children);
    buf_free(&p->output);
    buf_free(&p->notice);
    buf_free(&p->reason);
    free(p);
}
