/* cli/reply.c: see reply.h.
 *
 * Code is printed when it runs; until then its last lines are among those that are rewritten.
 * Fences are those of rlm/parse.h.
 */
#include "cli/reply.h"

#include <string.h>
#include <strings.h>

#include "base/cleanup.h"

enum { REPLY_LINES = 60, PREVIEW_LINES = 8, INDENT = 2 };

void reply_clear(struct reply *r)
{
    buf_clear(&r->line);
    buf_clear(&r->code);
    *r = (struct reply){ .line = r->line, .code = r->code };
}

void reply_free(struct reply *r)
{
    buf_free(&r->line);
    buf_free(&r->code);
}

/* ---- lines ---- */

static void print_row(struct reply *r, struct screen *s, const char *text, size_t len)
{
    if (len == 0) {
        r->blank = r->lines > 0;
        return;
    }
    if (r->lines++ >= REPLY_LINES)
        return;
    buf_puts(&s->log, r->blank ? "\n  " : "  ");
    r->blank = false;
    screen_put_text(s, &s->log, text, len);
    buf_putc(&s->log, '\n');
}

/* Prints rows that are full, and returns how much of the text they took. */
static size_t print_full_rows(struct reply *r, struct screen *s, const char *text, size_t len)
{
    size_t columns = screen_columns(s), at = 0, n;
    columns = columns > INDENT + 8 ? columns - INDENT - 1 : 8;
    while (s->moves && (n = screen_break(text + at, len - at, columns)) < len - at) {
        print_row(r, s, text + at, n);
        at += n;
        at += text[at] == ' ';
    }
    return at;
}

/* The length of a fence at the beginning of a line; 0: there is none. *behind: where it ends. */
static size_t fence_length(const char *line, size_t len, size_t *behind)
{
    size_t indent = 0, n = 0;
    while (indent < len && indent < 4 && line[indent] == ' ')
        indent++;
    while (indent + n < len && indent < 4 && strchr("`~", line[indent]) &&
           line[indent + n] == line[indent])
        n++;
    *behind = indent + n;
    return n >= 3 ? n : 0;
}

static bool is_code_language(const char *text, size_t len)
{
    static const char *const names[] = { "repl", "python", "py", "python3" };
    while (len > 0 && *text == ' ') {
        text++;
        len--;
    }
    size_t n = 0;
    while (n < len && text[n] != ' ' && text[n] != '\r')
        n++;
    for (size_t i = 0; i < array_length(names); i++)
        if (strlen(names[i]) == n && strncasecmp(names[i], text, n) == 0)
            return true;
    return false;
}

/* True for the line of a fence that begins or ends code, which is not printed. */
static bool take_fence(struct reply *r, const char *line, size_t len)
{
    size_t behind, n = fence_length(line, len, &behind);
    bool was_code = r->fence == FENCE_CODE;
    if (n == 0)
        return false;
    char mark = line[behind - 1];
    if (r->fence == FENCE_NONE) {
        r->fence = is_code_language(line + behind, len - behind) ? FENCE_CODE : FENCE_OTHER;
        r->mark = mark;
        r->marks = n;
        buf_clear(&r->code);
        return r->fence == FENCE_CODE;
    }
    while (behind < len && strchr(" \t\r", line[behind]))
        behind++;
    if (mark != r->mark || n < r->marks || behind < len)
        return false;
    r->fence = FENCE_NONE;
    buf_clear(&r->code);
    return was_code;
}

static void reply_take_line(struct reply *r, struct screen *s, const char *line, size_t len)
{
    if (take_fence(r, line, len))
        return;
    if (r->fence == FENCE_CODE) {
        buf_append(&r->code, line, len);
        buf_putc(&r->code, '\n');
        return;
    }
    while (len > 0 && strchr(" \t\r", line[len - 1]))
        len--;
    size_t at = print_full_rows(r, s, line, len);
    print_row(r, s, line + at, len - at);
}

/* A line that may become a fence is not printed before its end. */
static bool reply_is_words(const struct reply *r)
{
    return r->fence != FENCE_CODE && r->line.len > 0 && !strchr(" `~", r->line.data[0]);
}

void reply_take(struct reply *r, struct screen *s, const char *text, size_t len)
{
    const char *end;
    r->taken += len;
    while ((end = memchr(text, '\n', len))) {
        size_t n = (size_t)(end - text);
        buf_append(&r->line, text, n);
        reply_take_line(r, s, buf_text(&r->line), r->line.len);
        buf_clear(&r->line);
        text += n + 1;
        len -= n + 1;
    }
    buf_append(&r->line, text, len);
    if (reply_is_words(r))
        buf_consume(&r->line, print_full_rows(r, s, buf_text(&r->line), r->line.len));
}

void reply_end(struct reply *r, struct screen *s, const char *text, size_t len)
{
    if (r->taken < len)
        reply_take(r, s, text + r->taken, len - r->taken);
    if (r->line.len > 0)
        reply_take_line(r, s, buf_text(&r->line), r->line.len);
    if (r->lines > REPLY_LINES)
        buf_printf(
            &s->log, "  %s %zu more lines\n", screen_mark(s, "…", "..."), r->lines - REPLY_LINES);
    reply_clear(r);
}

/* ---- the preview ---- */

static void reply_draw_line(
    struct screen *s, const char *mark, const char *text, size_t len, size_t columns)
{
    cleanup_buf struct buf line = { 0 };
    size_t used = strlen(mark);
    if (columns <= used)
        return;
    buf_printf(&line, "%s%s", screen_paint(s, "\x1b[2m"), mark);
    used += screen_fit(s, &line, text, len, columns - used);
    buf_puts(&line, screen_paint(s, "\x1b[0m"));
    screen_add(s, buf_text(&line), used);
}

/* Where the last lines of a text begin, which ends with a newline. */
static size_t last_lines_at(const struct buf *text, unsigned lines)
{
    size_t at = text->len;
    while (at > 0 && (text->data[at - 1] != '\n' || lines-- > 0))
        at--;
    return at;
}

void reply_draw(const struct reply *r, struct screen *s, size_t columns)
{
    const char *code = buf_text(&r->code), *end;
    for (size_t at = last_lines_at(&r->code, PREVIEW_LINES); at < r->code.len;
         at = (size_t)(end - code) + 1) {
        end = memchr(code + at, '\n', r->code.len - at);
        reply_draw_line(s, "  > ", code + at, (size_t)(end - code) - at, columns);
    }
    if (r->line.len > 0)
        reply_draw_line(
            s, r->fence == FENCE_CODE ? "  > " : "  ", r->line.data, r->line.len, columns);
}
