/* rlm/parse.c: parses replies line by line, without recursion or regular expressions. */
#include "rlm/parse.h"

#include <string.h>
#include <strings.h>

struct line {
    const char *text;
    size_t len;  /* without the newline */
    size_t next; /* offset of the next line */
};

static struct line line_at(const char *text, size_t len, size_t at)
{
    const char *end = memchr(text + at, '\n', len - at);
    size_t n = end ? (size_t)(end - text) - at : len - at;
    struct line line = { text + at, n, at + n + (end != NULL) };
    while (line.len > 0 && line.text[line.len - 1] == '\r')
        line.len--;
    return line;
}

struct fence {
    char mark;
    size_t count;
    const char *info; /* text after the marks, trimmed */
    size_t info_len;
};

static bool is_fence(const struct line *line, struct fence *fence)
{
    size_t i = 0, end = line->len;
    while (i < line->len && i < 3 && line->text[i] == ' ')
        i++;
    if (i >= line->len || (line->text[i] != '`' && line->text[i] != '~'))
        return false;
    fence->mark = line->text[i];
    size_t from = i;
    while (i < line->len && line->text[i] == fence->mark)
        i++;
    fence->count = i - from;
    while (i < end && (line->text[i] == ' ' || line->text[i] == '\t'))
        i++;
    while (end > i && (line->text[end - 1] == ' ' || line->text[end - 1] == '\t'))
        end--;
    fence->info = line->text + i;
    fence->info_len = end - i;
    return fence->count >= 3 && !(fence->mark == '`' && memchr(fence->info, '`', fence->info_len));
}

static bool parse_is_code(const struct fence *fence)
{
    static const char *const languages[] = { "repl", "python", "python3", "py" };
    size_t word = 0;
    while (word < fence->info_len && !strchr(" \t{", fence->info[word]))
        word++;
    for (size_t i = 0; i < sizeof languages / sizeof *languages; i++)
        if (strlen(languages[i]) == word && strncasecmp(languages[i], fence->info, word) == 0)
            return true;
    return false;
}

static bool parse_closes(const struct line *line, const struct fence *open)
{
    struct fence fence;
    return is_fence(line, &fence) && fence.mark == open->mark && fence.count >= open->count &&
           fence.info_len == 0;
}

/* ---- Python's strings of several lines ---- */

/* Returns the multi-line string that is open at the end of this line, given the one before
 * (`quote`): '\'', '"', or 0 for none. Single-line strings end with the line. */
static char string_after(const struct line *line, char quote)
{
    const char *end = line->text + line->len;
    bool triple = quote != 0;
    for (const char *p = line->text; p < end; p++) {
        bool three = end - p >= 3 && p[1] == *p && p[2] == *p;
        if (quote && *p == '\\') {
            p++;
        } else if (quote && *p == quote && (!triple || three)) {
            p += triple ? 2 : 0;
            quote = 0;
        } else if (!quote && *p == '#') {
            return 0;
        } else if (!quote && (*p == '"' || *p == '\'')) {
            quote = *p;
            triple = three;
            p += triple ? 2 : 0;
        }
    }
    return triple ? quote : 0;
}

/* Bounds the search for a better end: blocks with unterminated strings must not keep the host
 * busy. */
enum { ENDS_MAX = 64, LOOK_MAX = 100000 };

struct block_end {
    size_t end, next;
};

/* Finds the closing fence outside of strings in the code; if there is none, the first possible
 * one; without any, the end of the text. */
static struct block_end find_end(
    const char *text, size_t len, size_t start, const struct fence *open)
{
    struct block_end first = { len, len };
    bool code = parse_is_code(open);
    unsigned ends = 0;
    char quote = 0;
    for (size_t at = start; at < len;) {
        struct line line = line_at(text, len, at);
        struct block_end here = { at, line.next };
        bool closing = parse_closes(&line, open);
        if (closing && !quote)
            return here;
        if (closing && ends++ == 0)
            first = here;
        if (ends > 0 && (ends > ENDS_MAX || at - first.end > LOOK_MAX))
            break;
        quote = code ? string_after(&line, quote) : 0;
        at = line.next;
    }
    return first;
}

bool reply_next_block(const char *text, size_t len, size_t *at, struct reply_block *block)
{
    while (*at < len) {
        struct line line = line_at(text, len, *at);
        struct fence open;
        *at = line.next;
        if (!is_fence(&line, &open))
            continue;
        size_t start = *at;
        struct block_end found = find_end(text, len, start, &open);
        size_t end = found.end;
        *at = found.next;
        if (!parse_is_code(&open))
            continue;
        *block = (struct reply_block){ text + start, end - start };
        return true;
    }
    return false;
}

static bool starts_with(const char *text, size_t len, const char *word)
{
    size_t n = strlen(word);
    return len >= n && memcmp(text, word, n) == 0;
}

/* Returns the length up to the matching parenthesis, or -1. Parentheses within quotes count,
 * too: answers are prose, with more apostrophes than quoted parentheses. */
static long parse_balanced(const char *text, size_t len)
{
    int depth = 1;
    for (size_t i = 0; i < len; i++) {
        depth += text[i] == '(';
        depth -= text[i] == ')';
        if (depth == 0)
            return (long)i;
    }
    return -1;
}

static void parse_strip(const char **value, size_t *len)
{
    while (*len > 0 && strchr(" \t\r\n", **value)) {
        ++*value;
        --*len;
    }
    while (*len > 0 && strchr(" \t\r\n", (*value)[*len - 1]))
        --*len;
    static const size_t quotes[] = { 3, 1 };
    for (size_t i = 0; i < 2; i++) {
        size_t quote = quotes[i];
        if (*len < 2 * quote || !strchr("\"'", **value))
            continue;
        if (memcmp(*value, *value + *len - quote, quote) != 0)
            continue;
        if (quote == 3 && ((*value)[1] != **value || (*value)[2] != **value))
            continue;
        *value += quote;
        *len -= 2 * quote;
        return;
    }
}

/* Bounds the search: each unclosed FINAL( is scanned to the end of the text, and a reply with
 * many must not keep the host busy for minutes. */
enum { OPEN_FINALS_MAX = 64 };

enum reply_final reply_find_final(
    const char *text, size_t len, const char **value, size_t *value_len)
{
    enum reply_final found = FINAL_NONE;
    unsigned open_finals = 0;
    for (size_t at = 0; at < len && open_finals < OPEN_FINALS_MAX;) {
        struct line line = line_at(text, len, at);
        struct fence open;
        at = line.next;
        if (is_fence(&line, &open)) {
            at = find_end(text, len, at, &open).next;
            continue;
        }
        while (line.len > 0 && (*line.text == ' ' || *line.text == '\t')) {
            line.text++;
            line.len--;
        }
        bool variable = starts_with(line.text, line.len, "FINAL_VAR(");
        if (!variable && !starts_with(line.text, line.len, "FINAL("))
            continue;
        const char *inner = line.text + (variable ? 10 : 6);
        long n = parse_balanced(inner, (size_t)(text + len - inner));
        if (n < 0) {
            open_finals++;
            continue;
        }
        *value = inner;
        *value_len = (size_t)n;
        parse_strip(value, value_len);
        found = variable ? FINAL_VARIABLE : FINAL_TEXT;
        at = (size_t)(inner + n - text) + 1;
    }
    return found;
}
