/* base/text.c: validating, repairing and escaping text.
 *
 * A state machine reads UTF-8 with one step for each byte. A state is a shift amount: a byte's
 * table entry holds the next state in the six bits at that position, so a step is a load and a
 * shift, and text outside of ASCII takes a cycle or two for each byte.
 */
#include "base/text.h"

#include <stdarg.h>
#include <limits.h>
#include <locale.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    BAD = 0,   /* absorbing: an invalid sequence */
    WHOLE = 6, /* between characters */
    ONE = 12,  /* this many bytes must follow */
    TWO = 18,
    THREE = 24,
    /* After these the second byte is restricted: overlong forms, surrogates, beyond U+10FFFF. */
    AFTER_E0 = 30,
    AFTER_ED = 36,
    AFTER_F0 = 42,
    AFTER_F4 = 48,
    STATE = 63, /* the bits of a state */

    BLOCK = 64, /* bytes that are checked together */
};

#define STEP(from, to) ((uint64_t)(to) << (from))
#define FOLLOWING      (STEP(ONE, WHOLE) | STEP(TWO, ONE) | STEP(THREE, TWO))

static const uint64_t steps[256] = {
    [0x00 ... 0x7F] = STEP(WHOLE, WHOLE),
    [0x80 ... 0x8F] = FOLLOWING | STEP(AFTER_ED, ONE) | STEP(AFTER_F4, TWO),
    [0x90 ... 0x9F] = FOLLOWING | STEP(AFTER_ED, ONE) | STEP(AFTER_F0, TWO),
    [0xA0 ... 0xBF] = FOLLOWING | STEP(AFTER_E0, ONE) | STEP(AFTER_F0, TWO),
    [0xC2 ... 0xDF] = STEP(WHOLE, ONE),
    [0xE0] = STEP(WHOLE, AFTER_E0),
    [0xE1 ... 0xEC] = STEP(WHOLE, TWO),
    [0xED] = STEP(WHOLE, AFTER_ED),
    [0xEE ... 0xEF] = STEP(WHOLE, TWO),
    [0xF0] = STEP(WHOLE, AFTER_F0),
    [0xF1 ... 0xF3] = STEP(WHOLE, THREE),
    [0xF4] = STEP(WHOLE, AFTER_F4),
};

/* The length of the well-formed sequence at p; 0 if it is malformed, with its length in *skip. */
static size_t utf8_step(const unsigned char *p, size_t left, size_t *skip)
{
    uint64_t state = WHOLE;
    for (size_t i = 0; i < left; i++) {
        *skip = i > 0 ? i : 1;
        state = steps[p[i]] >> (state & STATE);
        if ((state & STATE) == WHOLE)
            return i + 1;
        if ((state & STATE) == BAD)
            return 0;
    }
    *skip = left;
    return 0;
}

static bool block_is_ascii(const unsigned char *p)
{
    uint64_t words[BLOCK / 8], all = 0;
    memcpy(words, p, BLOCK);
    for (size_t i = 0; i < BLOCK / 8; i++)
        all |= words[i];
    return (all & 0x8080808080808080u) == 0;
}

/* The number of leading bytes that are well-formed. */
static size_t utf8_run(const unsigned char *p, size_t len)
{
    uint64_t state = WHOLE;
    size_t i = 0, whole = 0, step, skip;
    while (i < len && (state & STATE) != BAD) {
        if ((state & STATE) == WHOLE) {
            while (len - i >= BLOCK && block_is_ascii(p + i))
                i += BLOCK;
            whole = i;
        }
        size_t end = len - i > BLOCK ? i + BLOCK : len;
        for (; i < end; i++)
            state = steps[p[i]] >> (state & STATE);
    }
    if ((state & STATE) == WHOLE)
        return len;
    while ((step = utf8_step(p + whole, len - whole, &skip)) > 0)
        whole += step;
    return whole;
}

bool text_is_utf8(const char *data, size_t len, size_t *bad)
{
    size_t good = utf8_run((const unsigned char *)data, len);
    if (good < len && bad)
        *bad = good;
    return good == len;
}

void text_append_utf8(struct buf *out, const char *data, size_t len)
{
    const unsigned char *p = (const unsigned char *)data;
    size_t good, skip;
    while ((good = utf8_run(p, len)) < len) {
        utf8_step(p + good, len - good, &skip);
        buf_append(out, p, good);
        buf_append(out, "\xEF\xBF\xBD", 3);
        p += good + skip;
        len -= good + skip;
    }
    buf_append(out, p, len);
}

/* The code point of an invisible character that changes the direction of text (Unicode's
 * Bidi_Control) or ends a line; 0 for all others. */
static unsigned direction_control(const unsigned char *p, size_t step)
{
    if (step == 2 && p[0] == 0xD8 && p[1] == 0x9C)
        return 0x061C;
    if (step != 3 || p[0] != 0xE2 || (p[1] != 0x80 && p[1] != 0x81))
        return 0;
    unsigned number = 0x2000u | (p[1] & 0x01u) << 6 | (p[2] & 0x3Fu);
    bool marks = number == 0x200E || number == 0x200F;
    return marks || (number >= 0x2028 && number <= 0x202E) || (number >= 0x2066 && number <= 0x2069)
               ? number
               : 0;
}

/* With `json`, writes JSON's escapes. */
static void append_visible(struct buf *out, const char *data, size_t len, bool json)
{
    const char *const escape = json ? "\\u00" : "\\x";
    const unsigned char *p = (const unsigned char *)data;
    size_t i = 0, skip;
    while (i < len) {
        size_t step = utf8_step(p + i, len - i, &skip);
        if (step == 0) {
            buf_append(out, "\xEF\xBF\xBD", 3);
            i += skip;
            continue;
        }
        bool c1 = step == 2 && p[i] == 0xC2 && p[i + 1] < 0xA0;
        if (step == 1 && (p[i] == 0x7F || (p[i] < ' ' && p[i] != '\n' && p[i] != '\t')))
            buf_printf(out, "%s%02x", escape, p[i]);
        else if (c1)
            buf_printf(out, "%s%02x", escape, p[i + 1]);
        else if (direction_control(p + i, step))
            buf_printf(out, "\\u%04x", direction_control(p + i, step));
        else
            buf_append(out, data + i, step);
        i += step;
    }
}

void text_append_visible(struct buf *out, const char *data, size_t len)
{
    append_visible(out, data, len, false);
}

void text_append_visible_json(struct buf *out, const char *data, size_t len)
{
    append_visible(out, data, len, true);
}

size_t text_last_line(const char *data, size_t *len)
{
    while (*len > 0 && strchr(" \r\n\t", data[*len - 1]))
        (*len)--;
    const char *newline = *len > 0 ? memrchr(data, '\n', *len) : NULL;
    return newline ? (size_t)(newline + 1 - data) : 0;
}

void text_append_last_line(struct buf *out, const char *data, size_t len)
{
    cleanup_buf struct buf line = { 0 };
    size_t from = text_last_line(data, &len);
    if (from == len)
        return;
    buf_puts(out, ": ");
    text_append_utf8(&line, data + from, len - from);
    text_append_visible(out, buf_text(&line), line.len);
    out->failed |= buf_failed(&line);
}

void text_append_html(struct buf *out, const char *data, size_t len)
{
    for (size_t i = 0; i < len; i++)
        switch (data[i]) {
        case '&':
            buf_puts(out, "&amp;");
            break;
        case '<':
            buf_puts(out, "&lt;");
            break;
        case '>':
            buf_puts(out, "&gt;");
            break;
        case '"':
            buf_puts(out, "&quot;");
            break;
        default:
            buf_putc(out, data[i]);
        }
}

const char *text_plural(int64_t count)
{
    return count == 1 ? "" : "s";
}

size_t text_utf8_floor(const char *data, size_t len, size_t n)
{
    if (n >= len)
        return len;
    size_t back = 0;
    while (n > 0 && back < 3 && ((unsigned char)data[n] & 0xC0) == 0x80) {
        n--;
        back++;
    }
    return n;
}

size_t text_utf8_whole(const char *data, size_t len)
{
    for (size_t back = 1; back <= 3 && back <= len; back++) {
        unsigned char c = (unsigned char)data[len - back];
        if ((c & 0xC0) == 0x80)
            continue;
        size_t needed = c >= 0xF0 ? 4 : c >= 0xE0 ? 3 : c >= 0xC0 ? 2 : 1;
        return needed > back ? len - back : len;
    }
    return len;
}

void text_append_piece(struct buf *out, struct text_rest *rest, const char *data, size_t len)
{
    struct buf text = { 0 };
    buf_append(&text, rest->data, rest->len);
    buf_append(&text, data, len);
    size_t whole = text_utf8_whole(buf_text(&text), text.len);
    rest->len = text.len - whole;
    memcpy(rest->data, buf_text(&text) + whole, rest->len);
    text_append_utf8(out, buf_text(&text), whole);
    out->failed |= buf_failed(&text);
    buf_free(&text);
}

void text_append_rest(struct buf *out, struct text_rest *rest)
{
    text_append_utf8(out, rest->data, rest->len);
    rest->len = 0;
}

bool text_is_name(const char *text)
{
    size_t n = strlen(text);
    if (n == 0 || n > 64 || text[0] == '-' || text[0] == '.')
        return false;
    return strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-") == n;
}

const char *text_last_name(const char *path, size_t *len)
{
    size_t end = strlen(path);
    while (end > 0 && path[end - 1] == '/')
        end--;
    size_t at = end;
    while (at > 0 && path[at - 1] != '/')
        at--;
    *len = end - at;
    return path + at;
}

bool text_is_keyword(const char *text)
{
    static const char *const keywords[] = { "False", "None", "True", "and", "as", "assert", "async",
        "await", "break", "class", "continue", "def", "del", "elif", "else", "except", "finally",
        "for", "from", "global", "if", "import", "in", "is", "lambda", "nonlocal", "not", "or",
        "pass", "raise", "return", "try", "while", "with", "yield" };
    for (size_t i = 0; i < sizeof keywords / sizeof *keywords; i++)
        if (strcmp(keywords[i], text) == 0)
            return true;
    return false;
}

bool text_is_identifier(const char *text)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz0123456789";
    size_t len = strlen(text);
    bool digit = text[0] >= '0' && text[0] <= '9';
    return len > 0 && len <= 64 && !digit && text[strspn(text, letters)] == '\0' &&
           !text_is_keyword(text);
}

void text_append_identifier(struct buf *out, const char *name)
{
    cleanup_buf struct buf plain = { 0 };
    if ((name[0] >= '0' && name[0] <= '9') || name[0] == '_' || name[0] == '\0')
        buf_puts(&plain, "f");
    for (const char *p = name; *p && plain.len < 60; p++) {
        bool is_letter = (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z');
        buf_putc(&plain, is_letter || (*p >= '0' && *p <= '9') ? *p : '_');
    }
    if (text_is_keyword(buf_text(&plain)))
        buf_putc(&plain, '_');
    buf_append(out, buf_text(&plain), plain.len);
    out->failed |= plain.failed;
}

const char *text_below(const char *path, const char *directory)
{
    size_t n = strlen(directory);
    if (strncmp(path, directory, n) != 0 || (path[n] != '/' && path[n] != '\0'))
        return NULL;
    return path + n + strspn(path + n, "/");
}

bool text_leads_down(const char *path, size_t len)
{
    for (const char *at = path, *end = path + len, *next; at <= end; at = next + 1) {
        next = at < end ? memchr(at, '/', (size_t)(end - at)) : NULL;
        next = next ? next : end;
        size_t n = (size_t)(next - at);
        if (n == 0 || n > NAME_MAX || (n == 1 && at[0] == '.') ||
            (n == 2 && at[0] == '.' && at[1] == '.'))
            return false;
    }
    return !memchr(path, '\0', len);
}

uint64_t text_number_after(const char *text, const char *key)
{
    size_t len = strlen(key);
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, key, len) == 0)
            return strtoull(line + len, NULL, 10);
    }
    return 0;
}

char *text_copy(const char *data, size_t n)
{
    char *copy = malloc(n + 1);
    if (!copy)
        return NULL;
    memcpy(copy, data, n);
    copy[n] = '\0';
    return copy;
}

char *text_printf(const char *format, ...)
{
    cleanup_buf struct buf out = { 0 };
    va_list args;
    va_start(args, format);
    buf_vprintf(&out, format, args);
    va_end(args);
    return buf_steal(&out);
}

size_t text_utf8_length(const char *data, size_t len)
{
    size_t n = 0;
    for (size_t i = 0; i < len; i++)
        n += ((unsigned char)data[i] & 0xC0) != 0x80;
    return n;
}

void text_hex(const void *data, size_t len, char *out)
{
    static const char digits[] = "0123456789abcdef";
    const unsigned char *p = data;
    for (size_t i = 0; i < len; i++) {
        *out++ = digits[p[i] >> 4];
        *out++ = digits[p[i] & 15];
    }
    *out = '\0';
}

void text_append_grouped(struct buf *out, int64_t number)
{
    char digits[24];
    int len = snprintf(digits, sizeof digits, "%lld", (long long)number);
    int first = number < 0 ? 1 : 0; /* behind the sign */
    for (int i = 0; i < len; i++) {
        if (i > first && (len - i) % 3 == 0)
            buf_putc(out, ',');
        buf_putc(out, digits[i]);
    }
}

double text_to_double(const char *text, char **end)
{
    locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    double number = plain ? strtod_l(text, end, plain) : strtod(text, end);
    if (plain)
        freelocale(plain);
    return number;
}

void text_mask(char *text, size_t len, const char *secret)
{
    size_t n = strlen(secret);
    char *end = text + len, *p = text;
    if (n < TEXT_SECRET_LEAST || len < n)
        return;
    while ((p = memmem(p, (size_t)(end - p), secret, n))) {
        memset(p, '*', n);
        p += n;
    }
}
