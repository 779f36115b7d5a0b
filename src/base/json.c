/* base/json.c: a strict scanner in front of json-c; see json.h.
 *
 * The scanner is a loop over tokens with one bit of state a level (array or object), kept in a
 * fixed stack, so that depth costs nothing and cannot overflow anything.
 */
#include "base/json.h"

#include <string.h>

#include "base/text.h"

const struct json_limits json_limits_small = { 4u << 20, 32, 200000 };
const struct json_limits json_limits_large = { 256u << 20, JSON_DEPTH_MAX, 4000000 };

struct scan {
    const char *p, *end, *start;
    const char *wrong; /* what is wrong, once something is */
};

static bool scan_fail(struct scan *s, const char *what)
{
    if (!s->wrong)
        s->wrong = what;
    return false;
}

static void scan_space(struct scan *s)
{
    while (s->p < s->end && (*s->p == ' ' || *s->p == '\t' || *s->p == '\n' || *s->p == '\r'))
        s->p++;
}

static int hex4(const char *p)
{
    int value = 0;
    for (int i = 0; i < 4; i++) {
        char c = p[i];
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0)
            return -1;
        value = value * 16 + digit;
    }
    return value;
}

/* After the 'u' of \uXXXX: surrogates must come in pairs, since a lone one is no text. */
static bool scan_unicode_escape(struct scan *s)
{
    int code = s->end - s->p >= 4 ? hex4(s->p) : -1;
    if (code < 0)
        return scan_fail(s, "a bad \\u escape");
    s->p += 4;
    if (code >= 0xDC00 && code <= 0xDFFF)
        return scan_fail(s, "a lone surrogate");
    if (code < 0xD800 || code > 0xDBFF)
        return true;
    bool escape = s->end - s->p >= 6 && s->p[0] == '\\' && s->p[1] == 'u';
    int low = escape ? hex4(s->p + 2) : -1;
    if (low < 0xDC00 || low > 0xDFFF)
        return scan_fail(s, "a lone surrogate");
    s->p += 6;
    return true;
}

static bool scan_string(struct scan *s)
{
    s->p++;
    while (s->p < s->end) {
        unsigned char c = (unsigned char)*s->p++;
        if (c == '"')
            return true;
        if (c < ' ')
            return scan_fail(s, "a control character in a string");
        if (c != '\\')
            continue;
        if (s->p >= s->end)
            break;
        c = (unsigned char)*s->p++;
        if (c == 'u') {
            if (!scan_unicode_escape(s))
                return false;
        } else if (!memchr("\"\\/bfnrt", c, 8)) {
            return scan_fail(s, "a bad escape");
        }
    }
    return scan_fail(s, "a string without end");
}

static size_t scan_digits(struct scan *s)
{
    const char *from = s->p;
    while (s->p < s->end && *s->p >= '0' && *s->p <= '9')
        s->p++;
    return (size_t)(s->p - from);
}

static bool scan_number(struct scan *s)
{
    const char *from = s->p;
    if (*s->p == '-')
        s->p++;
    const char *first = s->p;
    size_t digits = scan_digits(s);
    if (digits == 0 || (digits > 1 && *first == '0'))
        return scan_fail(s, "a bad number");
    if (s->p < s->end && *s->p == '.') {
        s->p++;
        if (scan_digits(s) == 0)
            return scan_fail(s, "a bad number");
    }
    if (s->p < s->end && (*s->p == 'e' || *s->p == 'E')) {
        s->p++;
        if (s->p < s->end && (*s->p == '+' || *s->p == '-'))
            s->p++;
        if (scan_digits(s) == 0)
            return scan_fail(s, "a bad number");
    }
    /* Python reads and writes integers of at most 4300 digits (CVE-2020-10735). */
    return s->p - from <= 4400 || scan_fail(s, "a number of over 4400 characters");
}

static bool scan_word(struct scan *s, const char *word)
{
    size_t n = strlen(word);
    if ((size_t)(s->end - s->p) < n || memcmp(s->p, word, n) != 0)
        return scan_fail(s, "no JSON value");
    s->p += n;
    return true;
}

static bool scan_scalar(struct scan *s)
{
    switch (*s->p) {
    case '"':
        return scan_string(s);
    case 't':
        return scan_word(s, "true");
    case 'f':
        return scan_word(s, "false");
    case 'n':
        return scan_word(s, "null");
    default:
        if (*s->p != '-' && (*s->p < '0' || *s->p > '9'))
            return scan_fail(s, "no JSON value");
        return scan_number(s);
    }
}

/* A key and its colon; leaves the scanner at the value. */
static bool scan_key(struct scan *s)
{
    if (s->p >= s->end || *s->p != '"')
        return scan_fail(s, "no key in an object");
    if (!scan_string(s))
        return false;
    scan_space(s);
    if (s->p >= s->end || *s->p != ':')
        return scan_fail(s, "no ':' after a key");
    s->p++;
    scan_space(s);
    return true;
}

/* After a value: closes what ends here and moves to the next value. Sets *depth; false at an
 * error; at depth 0 the text's value is complete. */
static bool scan_after_value(struct scan *s, const char *stack, unsigned *depth)
{
    while (*depth > 0) {
        scan_space(s);
        if (s->p >= s->end)
            return scan_fail(s, "an array or object without end");
        char open = stack[*depth - 1], c = *s->p++;
        if (c == (open == '[' ? ']' : '}')) {
            --*depth;
            continue;
        }
        if (c != ',')
            return scan_fail(s, "no ',' between values");
        scan_space(s);
        return open == '[' || scan_key(s);
    }
    return true;
}

static bool scan_value(struct scan *s, const struct json_limits *limits)
{
    char stack[JSON_DEPTH_MAX];
    unsigned depth = 0;
    size_t nodes = 0;
    do {
        scan_space(s);
        if (s->p >= s->end)
            return scan_fail(s, "nothing where a value should be");
        if (++nodes > limits->nodes)
            return scan_fail(s, "too many values");
        char c = *s->p;
        if (c == '[' || c == '{') {
            if (depth >= limits->depth || depth >= JSON_DEPTH_MAX)
                return scan_fail(s, "too deep a nesting");
            stack[depth++] = c;
            s->p++;
            scan_space(s);
            bool empty = s->p < s->end && *s->p == (c == '[' ? ']' : '}');
            if (!empty) {
                if (c == '{' && !scan_key(s))
                    return false;
                continue;
            }
        } else if (!scan_scalar(s)) {
            return false;
        }
        if (!scan_after_value(s, stack, &depth))
            return false;
    } while (depth > 0);
    scan_space(s);
    return s->p == s->end || scan_fail(s, "something after the value");
}

int json_check(const char *text, size_t len, const struct json_limits *limits, struct error *err)
{
    struct scan s = { text, text + len, text, NULL };
    size_t bad = 0;
    if (len > limits->bytes)
        return error_set(
            err, ERROR_PROTOCOL, "JSON of %zu bytes, over the limit of %zu", len, limits->bytes);
    if (!text_is_utf8(text, len, &bad))
        return error_set(err, ERROR_PROTOCOL, "JSON is not UTF-8 at byte %zu", bad);
    if (!scan_value(&s, limits))
        return error_set(
            err, ERROR_PROTOCOL, "JSON is wrong at byte %zu: %s", (size_t)(s.p - s.start), s.wrong);
    return 0;
}

int json_parse(const char *text, size_t len, const struct json_limits *limits,
    struct json_object **out, struct error *err)
{
    *out = NULL;
    int rc = json_check(text, len, limits, err);
    if (rc < 0)
        return rc;
    if (len > INT32_MAX)
        return error_set(err, ERROR_PROTOCOL, "JSON of %zu bytes is too large to build", len);
    struct json_tokener *tok = json_tokener_new_ex(JSON_DEPTH_MAX + 1);
    if (!tok)
        return error_memory(err);
    json_tokener_set_flags(tok, JSON_TOKENER_STRICT | JSON_TOKENER_ALLOW_TRAILING_CHARS);
    *out = json_tokener_parse_ex(tok, text, (int)len);
    enum json_tokener_error why = json_tokener_get_error(tok);
    if (why == json_tokener_continue && !*out) {
        /* A number at the very end: json-c wants to see what follows it. */
        *out = json_tokener_parse_ex(tok, "\n", 1);
        why = json_tokener_get_error(tok);
    }
    json_tokener_free(tok);
    if (why != json_tokener_success)
        return error_set(
            err, ERROR_PROTOCOL, "JSON cannot be read: %s", json_tokener_error_desc(why));
    return 0;
}

static struct json_object *member(struct json_object *o, const char *key, enum json_type type)
{
    struct json_object *v = NULL;
    if (!o || !json_object_is_type(o, json_type_object) || !json_object_object_get_ex(o, key, &v))
        return NULL;
    return json_object_is_type(v, type) ? v : NULL;
}

const char *json_get_string(struct json_object *o, const char *key, const char *fallback)
{
    struct json_object *v = member(o, key, json_type_string);
    return v ? json_object_get_string(v) : fallback;
}

int64_t json_get_int(struct json_object *o, const char *key, int64_t fallback)
{
    struct json_object *v = member(o, key, json_type_int);
    return v ? json_object_get_int64(v) : fallback;
}

double json_get_double(struct json_object *o, const char *key, double fallback)
{
    struct json_object *v = member(o, key, json_type_double);
    if (!v)
        v = member(o, key, json_type_int);
    return v ? json_object_get_double(v) : fallback;
}

bool json_get_bool(struct json_object *o, const char *key, bool fallback)
{
    struct json_object *v = member(o, key, json_type_boolean);
    return v ? json_object_get_boolean(v) : fallback;
}

struct json_object *json_get_typed(struct json_object *o, const char *key, enum json_type type)
{
    return member(o, key, type);
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

void json_append_string(struct buf *out, const char *text, size_t len)
{
    size_t start = 0;
    buf_putc(out, '"');
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c >= ' ' && c != '"' && c != '\\')
            continue;
        buf_append(out, text + start, i - start);
        start = i + 1;
        if (c == '"' || c == '\\')
            buf_printf(out, "\\%c", c);
        else if (c == '\n')
            buf_puts(out, "\\n");
        else
            buf_printf(out, "\\u%04x", c);
    }
    buf_append(out, text + start, len - start);
    buf_putc(out, '"');
}

/* Of a digit; 64 and more: it is none. */
static unsigned base64_value(unsigned char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : 64;
}

char *json_base64_bytes(const char *text, size_t len, size_t *out_len)
{
    size_t padding = 0, n = 0;
    if (len % 4 != 0)
        return NULL;
    while (padding < 2 && padding < len && text[len - 1 - padding] == '=')
        padding++;
    unsigned char *out = malloc(len / 4 * 3 + 1);
    unsigned bits = 0, bad = 0;
    for (size_t i = 0; out && i < len; i++) {
        unsigned value = i < len - padding ? base64_value((unsigned char)text[i]) : 0;
        bad |= value & 64;
        bits = bits << 6 | (value & 63);
        if (i % 4 != 3)
            continue;
        out[n++] = (unsigned char)(bits >> 16);
        out[n++] = (unsigned char)(bits >> 8);
        out[n++] = (unsigned char)bits;
    }
    if (!out || bad) {
        free(out);
        return NULL;
    }
    *out_len = n - padding;
    return (char *)out;
}

void json_append_base64(struct buf *out, const void *data, size_t len)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const unsigned char *p = data;
    if (len > SIZE_MAX / 2 || !buf_reserve(out, len / 3 * 4 + 4))
        return;
    for (size_t i = 0; i < len; i += 3) {
        size_t n = len - i < 3 ? len - i : 3;
        unsigned bits =
            (unsigned)p[i] << 16 | (n > 1 ? (unsigned)p[i + 1] << 8 : 0) | (n > 2 ? p[i + 2] : 0);
        char four[4] = { digits[bits >> 18], digits[bits >> 12 & 63],
            n > 1 ? digits[bits >> 6 & 63] : '=', n > 2 ? digits[bits & 63] : '=' };
        buf_append(out, four, sizeof four);
    }
}
