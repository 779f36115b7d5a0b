/* cli/progress.c: see progress.h.
 *
 * Turns, code and output are printed as they come and stay; on a terminal one more line at the
 * bottom counts turns, calls, tokens and seconds, and is rewritten in place.
 */
#include "cli/progress.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/text.h"
#include "cli/cli.h"

enum { OUTPUT_LINES = 12, CODE_LINES = 40, COMPLAINT_LINES = 8 };

struct progress {
    FILE *out;
    bool moves, paints; /* may rewrite its last line, may use colours */
    bool status_shown;
    uint64_t start_ns, drawn_ns;
    unsigned output_lines; /* of the cell under way that were printed */
    bool at_line_start, cut;
    droste_event last;
    size_t reply_bytes; /* of the reply that is coming in */
};

struct progress *progress_open(FILE *out)
{
    struct progress *p = calloc(1, sizeof *p);
    if (p)
        *p = (struct progress){ .out = out,
            .moves = cli_terminal_moves(out),
            .paints = cli_terminal_paints(out),
            .start_ns = clock_ns(),
            .at_line_start = true };
    return p;
}

static const char *progress_paint(const struct progress *p, const char *code)
{
    return p->paints ? code : "";
}
#define DIM  progress_paint(p, "\x1b[2m")
#define BOLD progress_paint(p, "\x1b[1m")
#define CODE progress_paint(p, "\x1b[36m")
#define SAID progress_paint(p, "\x1b[32m")
#define RED  progress_paint(p, "\x1b[31m")
#define OFF  progress_paint(p, "\x1b[0m")

static void hide_status(struct progress *p)
{
    if (p->status_shown)
        fputs("\r\x1b[K", p->out);
    p->status_shown = false;
}

static void progress_show_status(struct progress *p, bool now)
{
    const droste_event *e = &p->last;
    uint64_t ns = clock_ns();
    if (!p->moves || !p->at_line_start || (!now && ns - p->drawn_ns < 100000000u))
        return;
    p->drawn_ns = ns;
    hide_status(p);
    fprintf(p->out, "%sturn %u/%u · %lld call%s%s", DIM, e->turn, e->turns, (long long)e->calls,
        text_plural(e->calls), e->pending ? "" : " ·");
    if (e->pending)
        fprintf(p->out, " (%u under way) ·", e->pending);
    fprintf(p->out, " %lld in, %lld out tokens · %.1f s%s", (long long)e->input_tokens,
        (long long)e->output_tokens, clock_seconds_since(p->start_ns), OFF);
    fflush(p->out);
    p->status_shown = true;
}

static void end_line(struct progress *p)
{
    if (!p->at_line_start)
        fprintf(p->out, "%s\n", OFF);
    p->at_line_start = true;
}

/* The first lines of a text, each behind a mark. */
static void progress_print_lines(struct progress *p, const char *mark, const char *colour,
    const char *text, size_t len, unsigned max)
{
    unsigned lines = 0;
    while (len > 0 && lines < max) {
        const char *end = memchr(text, '\n', len);
        size_t n = end ? (size_t)(end - text) : len;
        fprintf(p->out, "%s%s", colour, mark);
        cli_print(p->out, text, n);
        fprintf(p->out, "%s\n", colour[0] ? OFF : "");
        text += n + (end != NULL);
        len -= n + (end != NULL);
        lines++;
    }
    if (len > 0)
        fprintf(p->out, "%s%s…%s\n", mark, DIM, OFF);
}

static void print_output(struct progress *p, const char *text, size_t len)
{
    while (len > 0 && p->output_lines < OUTPUT_LINES) {
        const char *end = memchr(text, '\n', len);
        size_t n = end ? (size_t)(end - text) : len;
        if (p->at_line_start)
            fprintf(p->out, "%s  | ", SAID);
        cli_print(p->out, text, n < 400 ? n : text_utf8_floor(text, len, 400));
        p->at_line_start = false;
        if (end) {
            end_line(p);
            p->output_lines++;
        }
        text += n + (end != NULL);
        len -= n + (end != NULL);
    }
    if (len > 0 && !p->cut) {
        end_line(p);
        fprintf(p->out, "  | %s…%s\n", DIM, OFF);
        p->cut = true;
    }
}

static void on_turn(struct progress *p, const droste_event *e)
{
    fprintf(p->out, "%sturn %u of %u%s\n", BOLD, e->turn, e->turns, OFF);
    p->reply_bytes = 0;
}

/* What the model says before its code, in short. */
static void progress_on_reply(struct progress *p, const droste_event *e)
{
    const char *fence = memmem(e->text, e->len, "```", 3);
    size_t len = fence ? (size_t)(fence - e->text) : e->len;
    while (len > 0 && (unsigned char)e->text[len - 1] <= ' ')
        len--;
    progress_print_lines(p, "  ", "", e->text, len, 4);
}

static void on_cell(struct progress *p, const droste_event *e)
{
    progress_print_lines(p, "  > ", CODE, e->text, e->len, CODE_LINES);
    p->output_lines = 0;
    p->cut = false;
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

static void progress_on_result(struct progress *p, const droste_event *e)
{
    end_line(p);
    bool fine = strcmp(e->status, "ok") == 0 || strcmp(e->status, "submitted") == 0;
    const char *end = last_lines(e->text, e->len, COMPLAINT_LINES);
    if (!fine)
        progress_print_lines(
            p, "  ! ", RED, end, e->len - (size_t)(end - e->text), COMPLAINT_LINES);
    fprintf(
        p->out, "  %s%s%s%s in %.3f s%s\n", fine ? "" : RED, e->status, OFF, DIM, e->seconds, OFF);
}

void progress_event(void *arg, const droste_event *e)
{
    struct progress *p = arg;
    const char *kind = e->kind;
    p->last = *e;
    hide_status(p);
    if (strcmp(kind, "started") == 0 && e->len > 0)
        fprintf(p->out, "%srun %s%s\n", DIM, e->text, OFF);
    else if (strcmp(kind, "context") == 0)
        progress_print_lines(p, "context: ", "", e->text, e->len, 1);
    else if (strcmp(kind, "notice") == 0)
        progress_print_lines(p, "note: ", "", e->text, e->len, 1);
    else if (strcmp(kind, "turn") == 0)
        on_turn(p, e);
    else if (strcmp(kind, "reply") == 0)
        progress_on_reply(p, e);
    else if (strcmp(kind, "cell") == 0)
        on_cell(p, e);
    else if (strcmp(kind, "output") == 0)
        print_output(p, e->text, e->len);
    else if (strcmp(kind, "result") == 0)
        progress_on_result(p, e);
    progress_show_status(p, strcmp(kind, "delta") != 0 && strcmp(kind, "calls") != 0);
    fflush(p->out);
}

void progress_close(struct progress *p, const droste_result *result)
{
    if (!p)
        return;
    hide_status(p);
    end_line(p);
    if (result)
        fprintf(p->out, "%s%s after %u turn%s, %lld call%s, %lld + %lld tokens, %.2f s%s\n", DIM,
            droste_result_status(result), p->last.turn, text_plural(p->last.turn),
            (long long)p->last.calls, text_plural(p->last.calls), (long long)p->last.input_tokens,
            (long long)p->last.output_tokens, droste_result_seconds(result), OFF);
    free(p);
}
