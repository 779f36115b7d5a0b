/* serve/e2b/shell_lines.c: lines that begin with "!" in Python code, as IPython's users write them.
 *
 * Such a line is no Python outside of strings and brackets, so a scan of these suffices to find it.
 * It becomes an assignment to _exit_code, as in IPython.
 */
#include <string.h>

#include "base/json/json.h"
#include "serve/e2b/contexts.h"

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

bool e2b_shell_lines(const char *code, size_t len, struct buf *out)
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
