/* serve/e2b/ipython.c: what IPython takes for Python, and E2B's users therefore write: code that is
 * indented as a whole, and lines that begin with "!", for the shell.
 *
 * Such a line is not Python outside of strings and brackets, so a scan of these suffices to find
 * it. It becomes an assignment to _exit_code, as in IPython.
 */
#include "serve/e2b/ipython.h"

#include <string.h>

#include "base/json/json.h"

/* ---- lines of the shell ---- */

struct shell_scan {
    const char *at, *end;
    char quote;     /* of the string in which it is; 0: none */
    bool is_long;   /* that has three quotes */
    int depth;      /* of brackets */
    bool continues; /* the line before ended with a backslash */
};

static bool shell_has_three(const struct shell_scan *s, char quote)
{
    return s->end - s->at >= 3 && s->at[0] == quote && s->at[1] == quote && s->at[2] == quote;
}

static void shell_skip_in_string(struct shell_scan *s)
{
    if (*s->at == '\\' && s->end - s->at > 1) {
        s->at += 2;
        return;
    }
    if (s->is_long ? shell_has_three(s, s->quote) : *s->at == s->quote) {
        s->at += s->is_long ? 3 : 1;
        s->quote = 0;
        return;
    }
    if (!s->is_long && *s->at == '\n')
        s->quote = 0; /* a mistake, which Python will tell */
    s->at++;
}

/* To the beginning of the next line that is one of code, or the end. */
static void shell_skip_line(struct shell_scan *s)
{
    char before, c = 0;
    s->continues = false;
    while (s->at < s->end) {
        before = c;
        c = *s->at;
        if (s->quote) {
            shell_skip_in_string(s);
            continue;
        }
        if (c == '"' || c == '\'') {
            s->quote = c;
            s->is_long = shell_has_three(s, c);
            s->at += s->is_long ? 3 : 1;
            continue;
        }
        if (c == '#') {
            const char *end = memchr(s->at, '\n', (size_t)(s->end - s->at));
            s->at = end ? end : s->end;
            continue;
        }
        s->depth += (c == '(' || c == '[' || c == '{') - (c == ')' || c == ']' || c == '}');
        s->at++;
        if (c != '\n')
            continue;
        s->continues = before == '\\';
        if (s->depth <= 0)
            return;
    }
}

/* Appends the code with its lines "!command" replaced by calls of the shell. False: it has none. */
static bool shell_replace(const char *code, size_t len, struct buf *out)
{
    struct shell_scan s = { .at = code, .end = code + len };
    bool found = false;
    while (s.at < s.end) {
        const char *line = s.at, *text = line;
        while (text < s.end && (*text == ' ' || *text == '\t'))
            text++;
        if (!s.continues && text < s.end && *text == '!') {
            const char *end = memchr(text, '\n', (size_t)(s.end - text));
            end = end ? end : s.end;
            buf_append(out, line, (size_t)(text - line));
            buf_puts(out, "_exit_code = __import__('subprocess').call(");
            json_append_string(out, text + 1, (size_t)(end - text - 1));
            buf_puts(out, ", shell=True, executable='/bin/bash', stdin=-3)");
            s.at = end;
            line = end;
            found = true;
        }
        shell_skip_line(&s);
        buf_append(out, line, (size_t)(s.at - line));
    }
    return found && !buf_failed(out);
}

/* ---- indentation ---- */

/* The end of the line, behind its newline. */
static const char *indent_line_end(const char *at, const char *end)
{
    const char *newline = memchr(at, '\n', (size_t)(end - at));
    return newline ? newline + 1 : end;
}

static size_t indent_of(const char *at, const char *end)
{
    size_t n = 0;
    while (at + n < end && (at[n] == ' ' || at[n] == '\t'))
        n++;
    return n;
}

/* Removes the indentation of the first line that is not blank from all lines that begin with it.
 * False: it has none. */
static bool indent_remove(const char *code, size_t len, struct buf *out)
{
    const char *end = code + len, *first = code;
    while (first < end && (first[indent_of(first, end)] == '\n'))
        first = indent_line_end(first, end);
    size_t n = indent_of(first, end);
    if (n == 0 || first + n >= end)
        return false;
    for (const char *at = code; at < end;) {
        const char *next = indent_line_end(at, end);
        size_t skip = (size_t)(next - at) > n && memcmp(at, first, n) == 0 ? n : 0;
        buf_append(out, at + skip, (size_t)(next - at) - skip);
        at = next;
    }
    return !buf_failed(out);
}

bool e2b_from_ipython(const char *code, size_t len, struct buf *out)
{
    cleanup_buf struct buf flat = { 0 };
    bool was_indented = indent_remove(code, len, &flat);
    if (was_indented) {
        code = buf_text(&flat);
        len = flat.len;
    }
    if (memchr(code, '!', len) && shell_replace(code, len, out))
        return true;
    buf_clear(out);
    buf_append(out, code, was_indented ? len : 0);
    return was_indented && !buf_failed(out);
}
