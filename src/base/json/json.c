/* base/json/json.c: accessors for json-c trees, and writing JSON; parse.c reads it. */
#include "base/json/json.h"

#include <endian.h>
#include <math.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct json_object *json_member(struct json_object *o, const char *key, enum json_type type)
{
    struct json_object *v = NULL;
    if (!o || !json_object_is_type(o, json_type_object) || !json_object_object_get_ex(o, key, &v))
        return NULL;
    return json_object_is_type(v, type) ? v : NULL;
}

const char *json_get_string(struct json_object *o, const char *key, const char *fallback)
{
    struct json_object *v = json_member(o, key, json_type_string);
    return v ? json_object_get_string(v) : fallback;
}

int64_t json_get_int(struct json_object *o, const char *key, int64_t fallback)
{
    struct json_object *v = json_member(o, key, json_type_int);
    return v ? json_object_get_int64(v) : fallback;
}

double json_get_double(struct json_object *o, const char *key, double fallback)
{
    struct json_object *v = json_member(o, key, json_type_double);
    if (!v)
        v = json_member(o, key, json_type_int);
    return v ? json_object_get_double(v) : fallback;
}

bool json_get_bool(struct json_object *o, const char *key, bool fallback)
{
    struct json_object *v = json_member(o, key, json_type_boolean);
    return v ? json_object_get_boolean(v) : fallback;
}

struct json_object *json_get_typed(struct json_object *o, const char *key, enum json_type type)
{
    return json_member(o, key, type);
}

bool json_put(struct json_object *o, const char *key, struct json_object *child)
{
    if (json_object_object_add(o, key, child) == 0)
        return true;
    json_object_put(child);
    return false;
}

static bool put_made(struct json_object *o, const char *key, struct json_object *child)
{
    return child && json_put(o, key, child);
}

size_t json_length(struct json_object *array)
{
    return json_object_is_type(array, json_type_array) ? json_object_array_length(array) : 0;
}

bool json_put_string(struct json_object *o, const char *key, const char *value, size_t len)
{
    return len <= INT32_MAX && put_made(o, key, json_object_new_string_len(value, (int)len));
}

bool json_put_text(struct json_object *o, const char *key, const char *value)
{
    return value ? json_put_string(o, key, value, strlen(value)) : json_put(o, key, NULL);
}

const char *json_text(struct json_object *o, size_t *len)
{
    size_t n = 0;
    const char *text = json_object_to_json_string_length(
        o, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE, &n);
    if (len)
        *len = text ? n : 0;
    return text;
}

/* Marks the bytes of a word that are below `limit`, at most 128. Only the lowest mark is
 * reliable: a byte below the limit borrows from its neighbour. */
static uint64_t any_below(uint64_t word, unsigned limit)
{
    const uint64_t ones = 0x0101010101010101u;
    return (word - ones * limit) & ~word & (ones * 0x80);
}

size_t json_plain_run(const char *text, size_t len)
{
    const uint64_t ones = 0x0101010101010101u;
    size_t i = 0;
    for (uint64_t word; len - i >= sizeof word; i += sizeof word) {
        memcpy(&word, text + i, sizeof word);
        word = le64toh(word); /* the first byte becomes the lowest */
        uint64_t others = any_below(word, ' ') | any_below(word ^ ones * '"', 1) |
                          any_below(word ^ ones * '\\', 1);
        if (others)
            return i + (size_t)__builtin_ctzll(others) / 8;
    }
    while (i < len && (unsigned char)text[i] >= ' ' && text[i] != '"' && text[i] != '\\')
        i++;
    return i;
}

static void append_escape(struct buf *out, char c)
{
    char escape[] = { '\\', c };
    if (c == '\n')
        escape[1] = 'n';
    else if (c != '"' && c != '\\') {
        buf_printf(out, "\\u%04x", (unsigned char)c);
        return;
    }
    buf_append(out, escape, sizeof escape);
}

void json_append_string(struct buf *out, const char *text, size_t len)
{
    size_t n;
    buf_putc(out, '"');
    while ((n = json_plain_run(text, len)) < len) {
        buf_append(out, text, n);
        append_escape(out, text[n]);
        text += n + 1;
        len -= n + 1;
    }
    buf_append(out, text, len);
    buf_putc(out, '"');
}

/* Counts the bytes of a block that need two and six bytes; without branches, so that the
 * compiler vectorises it. */
static size_t count_escapes(const unsigned char *p, size_t len)
{
    unsigned char two = 0, six = 0;
    for (size_t i = 0; i < len; i++) {
        unsigned char newline = p[i] == '\n';
        two = (unsigned char)(two + (newline | (p[i] == '"') | (p[i] == '\\')));
        six = (unsigned char)(six + ((p[i] < ' ') & !newline));
    }
    return two + (size_t)six * 5;
}

size_t json_string_length(const char *text, size_t len)
{
    enum { BLOCK = 128 }; /* a uint8_t must not overflow */
    const unsigned char *p = (const unsigned char *)text;
    size_t n = len + 2;
    for (; len >= BLOCK; p += BLOCK, len -= BLOCK)
        n += count_escapes(p, BLOCK);
    return n + count_escapes(p, len);
}

void json_append_number(struct buf *out, double value)
{
    char text[40];
    snprintf(text, sizeof text, "%.15g", value);
    for (char *p = text; *p; p++)
        if (*p == ',')
            *p = '.';
    buf_puts(out, text);
}

void json_append_seconds(struct buf *out, double seconds)
{
    json_append_number(out, round(seconds * 1e6) / 1e6);
}

enum { BASE64_PIECE = 3 << 20 }; /* EVP counts in int */

/* EVP_DecodeBlock accepts '=' anywhere, as zeros, and skips white space at the ends; the length
 * reveals both. */
char *json_base64_bytes(const char *text, size_t len, size_t *out_len)
{
    size_t padding = 0, n = 0;
    if (len % 4 != 0)
        return NULL;
    while (padding < 2 && padding < len && text[len - 1 - padding] == '=')
        padding++;
    if (memchr(text, '=', len - padding))
        return NULL;
    unsigned char *out = malloc(len / 4 * 3 + 1);
    for (size_t at = 0, part; out && at < len; at += part, n += part / 4 * 3) {
        part = len - at < BASE64_PIECE ? len - at : BASE64_PIECE;
        int got = EVP_DecodeBlock(out + n, (const unsigned char *)text + at, (int)part);
        if (got != (int)(part / 4 * 3)) {
            free(out);
            return NULL;
        }
    }
    *out_len = n - padding;
    return (char *)out;
}

void json_append_base64(struct buf *out, const void *data, size_t len)
{
    const unsigned char *from = data;
    for (size_t part; len > 0; from += part, len -= part) {
        part = len < BASE64_PIECE ? len : BASE64_PIECE;
        if (!buf_reserve(out, (part + 2) / 3 * 4 + 1))
            return;
        out->len += (size_t)EVP_EncodeBlock((unsigned char *)out->data + out->len, from, (int)part);
    }
}
