/* base/text.c: see text.h. One decoder step (`utf8_step`) serves every function here. */
#include "base/text.h"

#include <stdarg.h>
#include <locale.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Length of the well-formed sequence at p, or 0 with *skip the length of the ill-formed part. */
static size_t utf8_step(const unsigned char *p, size_t left, size_t *skip)
{
    unsigned char c = p[0], low = 0x80, high = 0xBF;
    size_t need;
    *skip = 1;
    if (c < 0x80)
        return 1;
    if (c >= 0xC2 && c <= 0xDF) {
        need = 1;
    } else if (c >= 0xE0 && c <= 0xEF) {
        need = 2;
        if (c == 0xE0)
            low = 0xA0;
        if (c == 0xED)
            high = 0x9F; /* surrogates */
    } else if (c >= 0xF0 && c <= 0xF4) {
        need = 3;
        if (c == 0xF0)
            low = 0x90;
        if (c == 0xF4)
            high = 0x8F;
    } else {
        return 0;
    }
    for (size_t i = 1; i <= need; i++) {
        if (i >= left || p[i] < low || p[i] > high)
            return 0;
        *skip = i + 1;
        low = 0x80;
        high = 0xBF;
    }
    return need + 1;
}

/* Number of leading ASCII bytes, eight at a time. */
static size_t ascii_run(const unsigned char *p, size_t left)
{
    size_t i = 0;
    for (; i + 8 <= left; i += 8) {
        uint64_t word;
        memcpy(&word, p + i, 8);
        if (word & 0x8080808080808080u)
            break;
    }
    while (i < left && p[i] < 0x80)
        i++;
    return i;
}

bool text_is_utf8(const char *data, size_t len, size_t *bad)
{
    const unsigned char *p = (const unsigned char *)data;
    size_t i = 0, skip;
    while (i < len) {
        i += ascii_run(p + i, len - i);
        if (i >= len)
            break;
        size_t step = utf8_step(p + i, len - i, &skip);
        if (step == 0) {
            if (bad)
                *bad = i;
            return false;
        }
        i += step;
    }
    return true;
}

void text_append_utf8(struct buf *out, const char *data, size_t len)
{
    const unsigned char *p = (const unsigned char *)data;
    size_t i = 0, skip, start = 0;
    while (i < len) {
        i += ascii_run(p + i, len - i);
        if (i >= len)
            break;
        size_t step = utf8_step(p + i, len - i, &skip);
        if (step) {
            i += step;
            continue;
        }
        buf_append(out, data + start, i - start);
        buf_append(out, "\xEF\xBF\xBD", 3);
        i += skip;
        start = i;
    }
    buf_append(out, data + start, len - start);
}

static bool is_bidi_control(const unsigned char *p, size_t step)
{
    if (step != 3 || p[0] != 0xE2)
        return false;
    return (p[1] == 0x80 && p[2] >= 0xAA && p[2] <= 0xAE) ||
           (p[1] == 0x81 && p[2] >= 0xA6 && p[2] <= 0xA9);
}

void text_append_visible(struct buf *out, const char *data, size_t len)
{
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
            buf_printf(out, "\\x%02x", p[i]);
        else if (c1)
            buf_printf(out, "\\x%02x", p[i + 1]);
        else if (is_bidi_control(p + i, step))
            buf_printf(out, "\\u20%02x", ((p[i + 1] & 0x01) << 6) | (p[i + 2] & 0x3F));
        else
            buf_append(out, data + i, step);
        i += step;
    }
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

double text_to_double(const char *text, char **end)
{
    locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    double number = plain ? strtod_l(text, end, plain) : strtod(text, end);
    if (plain)
        freelocale(plain);
    return number;
}
