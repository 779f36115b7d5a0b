/* egress/redact.c: finds the forms of secrets, see redact.h. */
#include "egress/redact.h"

#include <ctype.h>
#include <openssl/crypto.h>
#include <stdlib.h>
#include <string.h>

#include "base/json/json.h"
#include "base/os/random.h"
#include "base/text.h"

enum { FORMS_MAX = 16 * SECRETS_MAX };

struct form {
    char *text;
    size_t len;
    uint64_t hash; /* of its first `window` bytes */
};

struct egress_forms {
    size_t count, window, longest;
    uint64_t base, top; /* base to the power of window - 1 */
    uint64_t seen[4];   /* by 8 bits of the hash: whether a form has it */
    struct form forms[FORMS_MAX];
};

/* ---- the forms of a secret ---- */

static uint64_t forms_hash(const struct egress_forms *f, const char *text)
{
    uint64_t hash = 0;
    for (size_t i = 0; i < f->window; i++)
        hash = hash * f->base + (unsigned char)text[i];
    return hash;
}

static unsigned forms_slot(uint64_t hash)
{
    return (unsigned)(hash >> 56);
}

static void forms_prepare(struct egress_forms *f)
{
    f->window = SIZE_MAX;
    f->longest = 0;
    memset(f->seen, 0, sizeof f->seen);
    for (size_t i = 0; i < f->count; i++) {
        f->window = f->forms[i].len < f->window ? f->forms[i].len : f->window;
        f->longest = f->forms[i].len > f->longest ? f->forms[i].len : f->longest;
    }
    f->top = 1;
    for (size_t i = 1; i < f->window; i++)
        f->top *= f->base;
    for (size_t i = 0; i < f->count; i++) {
        f->forms[i].hash = forms_hash(f, f->forms[i].text);
        unsigned slot = forms_slot(f->forms[i].hash);
        f->seen[slot / 64] |= 1ull << slot % 64;
    }
}

static bool forms_put(struct egress_forms *f, const char *text, size_t len)
{
    if (len < SECRET_LEAST)
        return true;
    for (size_t i = 0; i < f->count; i++)
        if (f->forms[i].len == len && memcmp(f->forms[i].text, text, len) == 0)
            return true;
    char *copy = f->count < FORMS_MAX ? text_copy(text, len) : NULL;
    if (copy)
        f->forms[f->count++] = (struct form){ .text = copy, .len = len };
    return copy;
}

static bool forms_put_buf(struct egress_forms *f, struct buf *text)
{
    bool put = !buf_failed(text) && forms_put(f, text->data, text->len);
    if (text->data)
        OPENSSL_cleanse(text->data, text->len);
    buf_clear(text);
    return put;
}

/* Behind 0, 1 and 2 other bytes, and before others: the digits that depend on the value alone. */
static bool forms_put_base64(struct egress_forms *f, const struct egress_secret *s)
{
    cleanup_buf struct buf plain = { 0 }, text = { 0 };
    bool put = true;
    for (size_t before = 0; put && before < 3; before++) {
        static const size_t skip[] = { 0, 2, 3 };
        buf_append(&plain, "\0\0", before);
        buf_append(&plain, s->value, s->len);
        json_append_base64(&text, plain.data, plain.len);
        put = !buf_failed(&plain) && !buf_failed(&text);
        size_t end = put ? plain.len * 8 / 6 : 0; /* whole digits */
        for (int url = 0; put && url < 2; url++) {
            put = forms_put(f, text.data + skip[before], end - skip[before]);
            for (size_t i = 0; i < text.len; i++)
                text.data[i] = text.data[i] == '+' ? '-' : text.data[i] == '/' ? '_' : text.data[i];
        }
        if (text.data)
            OPENSSL_cleanse(text.data, text.len);
        if (plain.data)
            OPENSSL_cleanse(plain.data, plain.len);
        buf_clear(&plain);
        buf_clear(&text);
    }
    return put;
}

static bool forms_put_hex(struct egress_forms *f, const struct egress_secret *s)
{
    cleanup_buf struct buf text = { 0 };
    bool put = true;
    for (int upper = 0; put && upper < 2; upper++) {
        for (size_t i = 0; i < s->len; i++)
            buf_printf(&text, upper ? "%02X" : "%02x", (unsigned)(unsigned char)s->value[i]);
        put = forms_put_buf(f, &text);
    }
    return put;
}

enum escape {
    ESCAPE_PERCENT,       /* all but the unreserved characters of a URI */
    ESCAPE_PERCENT_LOWER, /* with small letters */
    ESCAPE_PERCENT_SLASH, /* leaves slashes, as Python's quote() */
    ESCAPE_FORM,          /* a space as + */
    ESCAPE_JSON,
    ESCAPE_JSON_SLASH, /* slashes, too, as PHP does */
    ESCAPE_JSON_HTML,  /* and <, > and &, as Go does */
    ESCAPE_HTML,
    ESCAPE_HTML_NUMBERS, /* quotes as numbers, as Python does */
    ESCAPE_COUNT
};

static void escape_percent(struct buf *out, char c, enum escape how)
{
    bool plain = isalnum((unsigned char)c) || strchr("-._~", c);
    if (plain || (how == ESCAPE_PERCENT_SLASH && c == '/'))
        buf_putc(out, c);
    else if (how == ESCAPE_FORM && c == ' ')
        buf_putc(out, '+');
    else
        buf_printf(out, how == ESCAPE_PERCENT_LOWER ? "%%%02x" : "%%%02X", (unsigned)c);
}

static void escape_json(struct buf *out, char c, enum escape how)
{
    if (c == '"' || c == '\\' || (c == '/' && how == ESCAPE_JSON_SLASH))
        buf_putc(out, '\\');
    if (how == ESCAPE_JSON_HTML && strchr("<>&", c))
        buf_printf(out, "\\u%04x", (unsigned)c);
    else
        buf_putc(out, c);
}

static void escape_html(struct buf *out, char c, enum escape how)
{
    bool numbers = how == ESCAPE_HTML_NUMBERS;
    const char *name = c == '<'    ? "&lt;"
                       : c == '>'  ? "&gt;"
                       : c == '&'  ? "&amp;"
                       : c == '"'  ? (numbers ? "&#34;" : "&quot;")
                       : c == '\'' ? (numbers ? "&#39;" : "&#x27;")
                                   : NULL;
    if (name)
        buf_puts(out, name);
    else
        buf_putc(out, c);
}

static bool forms_put_escaped(struct egress_forms *f, const struct egress_secret *s)
{
    cleanup_buf struct buf text = { 0 };
    bool put = true;
    for (enum escape how = 0; put && how < ESCAPE_COUNT; how++) {
        for (size_t i = 0; i < s->len; i++)
            if (how < ESCAPE_JSON)
                escape_percent(&text, s->value[i], how);
            else if (how < ESCAPE_HTML)
                escape_json(&text, s->value[i], how);
            else
                escape_html(&text, s->value[i], how);
        put = forms_put_buf(f, &text);
    }
    return put;
}

int egress_forms_add(
    struct egress_forms **forms, const struct egress_secret *secret, struct error *err)
{
    struct egress_forms *f = *forms ? *forms : calloc(1, sizeof *f);
    if (!f)
        return error_memory(err);
    *forms = f;
    if (f->base == 0 && random_bytes(&f->base, sizeof f->base, err) < 0)
        return -(int)ERROR_IO;
    f->base |= 1; /* odd: no power of it is 0 */
    if (!forms_put(f, secret->value, secret->len) || !forms_put_base64(f, secret) ||
        !forms_put_hex(f, secret) || !forms_put_escaped(f, secret))
        return error_memory(err);
    forms_prepare(f);
    return 0;
}

void egress_forms_free(struct egress_forms *forms)
{
    for (size_t i = 0; forms && i < forms->count; i++) {
        OPENSSL_cleanse(forms->forms[i].text, forms->forms[i].len);
        free(forms->forms[i].text);
    }
    free(forms);
}

/* ---- the search ---- */

/* The hash of the bytes at `at` is that of a form's beginning: overwrites the form if it is there,
 * and returns its length. The comparison takes as long whether it fails early or late. */
static size_t forms_check(const struct egress_forms *f, uint64_t hash, char *at, size_t left)
{
    size_t found = 0;
    for (size_t i = 0; i < f->count; i++)
        if (f->forms[i].hash == hash && f->forms[i].len <= left &&
            CRYPTO_memcmp(at, f->forms[i].text, f->forms[i].len) == 0 && f->forms[i].len > found)
            found = f->forms[i].len;
    memset(at, '*', found);
    return found;
}

void egress_redact_all(const struct egress_forms *f, char *data, size_t len)
{
    if (!f || len < f->window)
        return;
    uint64_t hash = forms_hash(f, data);
    for (size_t i = 0;;) {
        unsigned slot = forms_slot(hash);
        size_t found = 0;
        if (f->seen[slot / 64] >> slot % 64 & 1)
            found = forms_check(f, hash, data + i, len - i);
        if (i + (found ? found : 1) + f->window > len)
            return;
        if (found) {
            i += found;
            hash = forms_hash(f, data + i);
            continue;
        }
        hash =
            (hash - f->top * (unsigned char)data[i]) * f->base + (unsigned char)data[i + f->window];
        i++;
    }
}

void egress_redact(const struct egress_forms *f, struct egress_redactor *r, const char *data,
    size_t len, struct buf *out)
{
    struct buf *b = &r->waiting;
    buf_append(b, data, len);
    if (buf_failed(b)) {
        out->failed = true;
        return;
    }
    egress_redact_all(f, b->data, b->len);
    const char *line = b->len ? memrchr(b->data, '\n', b->len) : NULL;
    size_t n = b->len >= f->longest ? b->len - f->longest + 1 : 0;
    size_t lines = line ? (size_t)(line - b->data) + 1 : 0;
    n = lines > n ? lines : n;
    buf_append(out, b->data, n);
    buf_consume(b, n);
}

void egress_redact_end(struct egress_redactor *r, struct buf *out)
{
    buf_append(out, r->waiting.data, r->waiting.len);
    egress_redactor_free(r);
}

void egress_redactor_free(struct egress_redactor *r)
{
    buf_free(&r->waiting);
}
