/* cli/terminal/highlight.c: see highlight.h. Keywords, strings, numbers and comments are all that
 * is told apart; that takes a screen of code, and a library for it would be larger than the
 * command.
 */
#include "cli/terminal/highlight.h"

#include <ctype.h>
#include <string.h>

#include "base/text.h"

enum token { TOKEN_PLAIN, TOKEN_KEYWORD, TOKEN_STRING, TOKEN_NUMBER, TOKEN_COMMENT };

static const char *const token_colours[] = {
    [TOKEN_PLAIN] = "",
    [TOKEN_KEYWORD] = "\x1b[35m",
    [TOKEN_STRING] = "\x1b[32m",
    [TOKEN_NUMBER] = "\x1b[36m",
    [TOKEN_COMMENT] = "\x1b[2m",
};

static void put_token(struct buf *out, enum token token, const char *text, size_t len)
{
    buf_puts(out, token_colours[token]);
    text_append_visible(out, text, len);
    buf_puts(out, token == TOKEN_PLAIN ? "" : "\x1b[0m");
}

static bool is_triple(const char *text, size_t len, char quote)
{
    return len >= 3 && text[0] == quote && text[1] == quote && text[2] == quote;
}

/* The length of a string's rest, with its closing quotes if they are on this line. */
static size_t string_rest(
    struct highlight *h, const char *text, size_t len, char quote, bool triple)
{
    for (size_t i = 0; i < len; i++) {
        if (text[i] == '\\')
            i++;
        else if (triple && is_triple(text + i, len - i, quote)) {
            h->quote = 0;
            return i + 3;
        } else if (!triple && text[i] == quote)
            return i + 1;
    }
    h->quote = triple ? quote : 0;
    return len;
}

static bool is_word(unsigned char c)
{
    return isalnum(c) || c == '_' || c >= 0x80;
}

static size_t word_length(const char *text, size_t len)
{
    size_t n = 0;
    while (n < len && is_word((unsigned char)text[n]))
        n++;
    return n;
}

static bool is_keyword(const char *text, size_t len)
{
    char word[16];
    if (len >= sizeof word)
        return false;
    memcpy(word, text, len);
    word[len] = '\0';
    return text_is_keyword(word);
}

/* The token at the beginning of the text, and its length. */
static enum token next_token(struct highlight *h, const char *text, size_t len, size_t *length)
{
    unsigned char c = (unsigned char)text[0];
    if (c == '#') {
        *length = len;
        return TOKEN_COMMENT;
    }
    if (c == '"' || c == '\'') {
        bool triple = is_triple(text, len, text[0]);
        size_t open = triple ? 3 : 1;
        *length = open + string_rest(h, text + open, len - open, text[0], triple);
        return TOKEN_STRING;
    }
    *length = is_word(c) ? word_length(text, len) : 1;
    if (isdigit(c))
        return TOKEN_NUMBER;
    return is_word(c) && is_keyword(text, *length) ? TOKEN_KEYWORD : TOKEN_PLAIN;
}

void highlight_line(struct highlight *h, struct buf *out, const char *line, size_t len)
{
    size_t at = 0, n;
    if (h->quote) {
        at = string_rest(h, line, len, h->quote, true);
        put_token(out, TOKEN_STRING, line, at);
    }
    for (; at < len; at += n) {
        enum token token = next_token(h, line + at, len - at, &n);
        put_token(out, token, line + at, n);
    }
}
