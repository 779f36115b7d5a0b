/* cli/terminal/screen.c: see screen.h.
 *
 * Lines that are rewritten are shorter than the terminal, so they begin where they were written,
 * until the terminal is made narrower. Terminals then break them anew, so the rows to remove are
 * counted with the new width. libedit has no such lines, and curses takes the whole screen and its
 * scrollback away.
 */
#include "cli/terminal/screen.h"

#include <errno.h>
#include <langinfo.h>
#include <limits.h>
#include <locale.h>
#include <poll.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <wchar.h>

#include "base/text.h"
#include "cli/cli.h"

enum {
    COLUMNS_DEFAULT = 80,
    ROWS_DEFAULT = 24,
    TAB_COLUMNS = 4,
    LOG_MAX = 1 << 20,
    CLOSE_MS = 1000
};

/* Without setting it: libedit needs UTF-8 in any case. */
static bool locale_is_utf8(void)
{
    locale_t user = newlocale(LC_CTYPE_MASK, "", NULL);
    bool is = user && strcmp(nl_langinfo_l(CODESET, user), "UTF-8") == 0;
    if (user)
        freelocale(user);
    return is;
}

void screen_open(struct screen *s, FILE *out)
{
    *s = (struct screen){ .out = out,
        .moves = cli_terminal_moves(out),
        .paints = cli_terminal_paints(out),
        .visible = isatty(fileno(out)),
        .utf8 = locale_is_utf8() };
}

size_t screen_columns(const struct screen *s)
{
    struct winsize size = { 0 };
    bool known = ioctl(fileno(s->out), TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
    return known ? size.ws_col : COLUMNS_DEFAULT;
}

size_t screen_rows(const struct screen *s)
{
    struct winsize size = { 0 };
    bool known = ioctl(fileno(s->out), TIOCGWINSZ, &size) == 0 && size.ws_row > 0;
    return known ? size.ws_row : ROWS_DEFAULT;
}

const char *screen_paint(const struct screen *s, const char *code)
{
    return s->paints ? code : "";
}

const char *screen_mark(const struct screen *s, const char *utf8, const char *ascii)
{
    return s->utf8 ? utf8 : ascii;
}

/* ---- width ---- */

/* Texts are UTF-8 whatever the user's locale is, so their widths come from one that has it. */
static locale_t screen_locale(void)
{
    static locale_t utf8;
    if (!utf8)
        utf8 = newlocale(LC_CTYPE_MASK, "C.UTF-8", NULL);
    return utf8;
}

struct glyph {
    size_t bytes, columns;
};

/* The next character of well-formed text. Combining characters have no columns. */
static struct glyph next_glyph(const char *text, size_t len)
{
    wchar_t c = 0;
    mbstate_t state = { 0 };
    size_t n = mbrtowc(&c, text, len, &state);
    if (n == 0 || n > len)
        return (struct glyph){ 1, 1 };
    int columns = wcwidth(c);
    return (struct glyph){ n, columns < 0 ? 1 : (size_t)columns };
}

static size_t fit_glyphs(
    struct buf *out, const char *text, size_t len, size_t columns, size_t *used)
{
    size_t at = 0;
    *used = 0;
    while (at < len) {
        bool blank = text[at] == '\t' || text[at] == '\n';
        struct glyph g = blank ? (struct glyph){ 1, 1 } : next_glyph(text + at, len - at);
        if (*used + g.columns > columns)
            break;
        buf_append(out, blank ? " " : text + at, g.bytes);
        *used += g.columns;
        at += g.bytes;
    }
    return at;
}

/* More bytes than this are not shown on any line; a character has at most 10 as an escape. */
enum { FIT_BYTES = 4096 };

size_t screen_fit(
    const struct screen *s, struct buf *out, const char *text, size_t len, size_t columns)
{
    cleanup_buf struct buf visible = { 0 };
    bool longer = len > FIT_BYTES;
    const char *ellipsis = screen_mark(s, "…", "...");
    size_t tail = s->utf8 ? 1 : 3, used, begin = out->len;
    text_append_visible(&visible, text, longer ? text_utf8_floor(text, len, FIT_BYTES) : len);
    locale_t utf8 = screen_locale(), before = utf8 ? uselocale(utf8) : NULL;
    size_t taken = fit_glyphs(out, buf_text(&visible), visible.len, columns, &used);
    if ((taken < visible.len || longer) && columns > tail) {
        out->len = begin;
        fit_glyphs(out, buf_text(&visible), visible.len, columns - tail, &used);
        buf_puts(out, ellipsis);
        used += tail;
    }
    if (before)
        uselocale(before);
    return used;
}

size_t screen_break(const char *text, size_t len, size_t columns)
{
    locale_t utf8 = screen_locale(), before = utf8 ? uselocale(utf8) : NULL;
    size_t at = 0, used = 0, word = 0;
    while (at < len) {
        bool tab = text[at] == '\t';
        struct glyph g = tab ? (struct glyph){ 1, TAB_COLUMNS } : next_glyph(text + at, len - at);
        if (used + g.columns > columns && at > 0)
            break;
        used += g.columns;
        at += g.bytes;
        if (at < len && text[at] == ' ')
            word = at;
    }
    if (before)
        uselocale(before);
    return at < len && word > 0 ? word : at;
}

/* Where further rows of a line begin: below the last of its columns for which there is room, else a
 * little to the right of the first. A sentence has no columns. */
static size_t line_indent(const char *line, size_t len, size_t columns)
{
    size_t first = strspn(line, " "), indent = 0;
    bool has_columns = first > 0;
    for (size_t at = first; at + 2 < len; at++) {
        if (strncmp(line + at, "  ", 2) != 0)
            continue;
        at += strspn(line + at, " ");
        indent = at < columns / 2 ? at : indent;
        has_columns = true;
    }
    if (indent > 0 || !has_columns)
        return indent;
    return first + 2 < columns / 2 ? first + 2 : 2;
}

/* Prints a line in as many rows as it needs. A word that is wider than a row stays whole, so that
 * it can be copied. */
static void print_rows(FILE *out, const char *line, size_t len, size_t columns)
{
    size_t indent = line_indent(line, len, columns), column = strspn(line, " "), at = column;
    while (column < columns) {
        size_t end = at + screen_break(line + at, len - at, columns - column);
        end += end < len ? strcspn(line + end, " \n") : 0;
        if (end >= len)
            break;
        fprintf(out, "%.*s\n%*s", (int)end, line, (int)indent, "");
        end += strspn(line + end, " ");
        line += end;
        len -= end;
        column = indent;
        at = 0;
    }
    fprintf(out, "%.*s", (int)len, line);
}

void screen_print_text(FILE *out, const char *text)
{
    const struct screen screen = { .out = out };
    cleanup_buf struct buf visible = { 0 };
    if (!isatty(fileno(out))) {
        cli_print(out, text, strlen(text));
        return;
    }
    text_append_visible(&visible, text, strlen(text));
    text = buf_text(&visible);
    for (size_t len; *text; text += len + (text[len] == '\n')) {
        len = strcspn(text, "\n");
        print_rows(out, text, len, screen_columns(&screen));
        fputs(text[len] ? "\n" : "", out);
    }
}

void screen_put_text(const struct screen *s, struct buf *out, const char *text, size_t len)
{
    if (s->visible)
        text_append_visible(out, text, len);
    else
        buf_append(out, text, len);
}

/* ---- lines that are rewritten ---- */

void screen_add(struct screen *s, const char *line, size_t columns)
{
    buf_printf(&s->next, "%s%s", s->next_columns.len > 0 ? "\n" : "", line);
    buf_append(&s->next_columns, &columns, sizeof columns);
}

/* The rows that the shown lines take in a terminal of this width. */
static size_t shown_rows(const struct screen *s)
{
    size_t width = screen_columns(s), rows = 0;
    for (size_t at = 0; at + sizeof(size_t) <= s->shown.len; at += sizeof(size_t)) {
        size_t columns;
        memcpy(&columns, s->shown.data + at, sizeof columns);
        rows += columns > width ? (columns + width - 1) / width : 1;
    }
    return rows;
}

static void screen_put_hide(struct screen *s, struct buf *out)
{
    for (size_t rows = shown_rows(s); rows > 0; rows--)
        buf_puts(out, rows > 1 ? "\r\x1b[K\x1b[A" : "\r\x1b[K");
    buf_clear(&s->shown);
}

/* A pipe that poll(2) reports as writable takes PIPE_BUF bytes. */
static void screen_send(struct screen *s, int wait_ms)
{
    size_t len;
    while ((len = fifo_len(&s->waiting)) > 0) {
        struct pollfd out = { .fd = fileno(s->out), .events = POLLOUT };
        if (poll(&out, 1, wait_ms) != 1)
            return;
        ssize_t n = write(out.fd, fifo_data(&s->waiting), len < PIPE_BUF ? len : PIPE_BUF);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        fifo_drop(&s->waiting, n < 0 ? len : (size_t)n);
    }
}

static void screen_put_log(struct screen *s, struct buf *out)
{
    if (s->lost)
        buf_puts(out, "(nothing read this output, so a part of it is missing)\n");
    s->lost = false;
    buf_append(out, s->log.data, s->log.len);
    buf_clear(&s->log);
}

static void screen_put_next(struct screen *s, struct buf *out)
{
    buf_append(out, s->next.data, s->next.len);
    buf_append(&s->shown, s->next_columns.data, s->next_columns.len);
}

void screen_draw(struct screen *s)
{
    cleanup_buf struct buf frame = { 0 };
    screen_send(s, 0);
    if (fifo_len(&s->waiting) == 0) {
        screen_put_hide(s, &frame);
        screen_put_log(s, &frame);
        if (s->moves)
            screen_put_next(s, &frame);
        fifo_add(&s->waiting, frame.data, frame.len);
        screen_send(s, 0);
    } else if (s->log.len > LOG_MAX) {
        buf_clear(&s->log);
        s->lost = true;
    }
    buf_clear(&s->next);
    buf_clear(&s->next_columns);
}

void screen_close(struct screen *s)
{
    screen_send(s, CLOSE_MS);
    if (fifo_len(&s->waiting) == 0 && (s->log.len > 0 || s->shown.len > 0)) {
        screen_draw(s);
        screen_send(s, CLOSE_MS);
    }
    fifo_free(&s->waiting);
    buf_free(&s->log);
    buf_free(&s->shown);
    buf_free(&s->next);
    buf_free(&s->next_columns);
}
