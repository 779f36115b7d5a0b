/* base/pattern.c: see pattern.h.
 *
 *   ECMA-262 ── translated, or refused ──► PCRE2's language ──► compiled ──► matched, with limits
 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "base/pattern.h"

#include <ctype.h>
#include <pcre2.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"

enum {
    PATTERN_MAX = 65536, /* bytes */
    MATCH_LIMIT = 1000000,
    DEPTH_LIMIT = 200000,
    HEAP_LIMIT_KIB = 32768,
    BYTES_PER_STEP =
        16, /* characters that count as a step: scanning them costs about as much as a callout */
};

#define DIGITS     "0123456789"
#define HEX_DIGITS DIGITS "abcdefABCDEF"

struct pattern {
    pcre2_code *code;
    bool refers_back;
};

/* ---- translating ---- */

/* White space and line terminators of ECMA-262 (12.2, 12.3), and their complement. */
#define SPACES                                                                                     \
    "\\t-\\r "                                                                                     \
    "\\u{a0}\\u{1680}\\u{2000}-\\u{200a}\\u{2028}\\u{2029}\\u{202f}\\u{205f}\\u{3000}\\u{feff}"
#define NO_SPACES                                                                                  \
    "\\u{0}-\\u{8}\\u{e}-\\u{1f}!-\\u{9f}\\u{a1}-\\u{167f}\\u{1681}-\\u{1fff}\\u{200b}-\\u{2027}"  \
    "\\u{202a}-\\u{202e}\\u{2030}-\\u{205e}\\u{2060}-\\u{2fff}\\u{3001}-\\u{fefe}\\u{ff00}-\\u{"   \
    "10ffff}"
#define NO_LINE_END "[^\\n\\r\\u{2028}\\u{2029}]"

/* A surrogate pair (22.2.1), which PCRE2 takes as one character only. */
static const char *translate_pair(const char *at, struct buf *out)
{
    unsigned high, low;
    int n = 0;
    if (sscanf(at, "\\u%4x\\u%4x%n", &high, &low, &n) < 2 || n != 12 || high >> 10 != 0x36 ||
        low >> 10 != 0x37)
        return at;
    buf_printf(out, "\\u{%x}", 0x10000 + ((high & 0x3FF) << 10 | (low & 0x3FF)));
    return at + n;
}

/* At a backslash; NULL if ECMA-262 has no such escape. */
static const char *translate_escape(const char *at, bool in_class, struct buf *out)
{
    const char *allowed = in_class ? "dDwWpPbtnvrfcxu0" : "dDwWpPbBtnvrfcxu0k123456789";
    const char *next = translate_pair(at, out);
    char c = at[1];
    if (next > at)
        return next;
    if (c == 's' || c == 'S')
        buf_printf(out, in_class ? "%s" : "[%s]", c == 's' ? SPACES : NO_SPACES);
    else if (c == 'v')
        buf_puts(out, "\\u{b}"); /* in PCRE2, \b in a class is a set */
    else if (c == '\0' || (!strchr(allowed, c) && !strchr("^$\\.*+?()[]{}|/-", c)))
        return NULL;
    else if (c == '0' ? isdigit((unsigned char)at[2]) : c == 'x' && strspn(at + 2, HEX_DIGITS) < 2)
        return NULL;
    else
        buf_printf(out, c == '0' ? "\\u{%c}" : "\\%c", c);
    const char *brace = at[2] == '{' && strchr("pPu", c) ? strchr(at, '}') : NULL;
    if (brace)
        buf_append(out, at + 2, (size_t)(brace - at) - 1);
    return brace ? brace + 1 : at + 2;
}

/* True at the start of a group that both languages have. */
static bool is_group(const char *at)
{
    static const char *const allowed[] = { "(?:", "(?=", "(?!", "(?<" };
    for (size_t i = 0; i < array_length(allowed); i++)
        if (strncmp(at, allowed[i], 3) == 0)
            return true;
    return at[1] != '?' && at[1] != '*';
}

/* Returns what follows {n}, {n,} or {n,m}; NULL if it is none of them. */
static const char *skip_count(const char *at)
{
    size_t digits = strspn(at + 1, DIGITS);
    const char *end = at + 1 + digits;
    if (*end == ',')
        end += 1 + strspn(end + 1, DIGITS);
    return digits > 0 && *end == '}' ? end + 1 : NULL;
}

/* Translates a character outside of classes; NULL with the reason in `why` if it is invalid. */
static const char *translate_plain(const char *at, struct buf *out, const char **why)
{
    const char *next = *at == '{' ? skip_count(at) : at + 1;
    *why = !next                         ? "a { that does not begin {n}, {n,} or {n,m}: write \\{"
           : *at == '}' || *at == ']'    ? "an unmatched } or ]: write \\} or \\]"
           : !is_group(at) && *at == '(' ? "a kind of group that ECMA-262 does not define, such "
                                           "as inline flags"
           : strchr("*+?{", *at) && *next == '+' ? "a quantifier directly after another quantifier"
                                                 : NULL;
    if (*why)
        return NULL;
    if (*at == '.')
        buf_puts(out, NO_LINE_END);
    else
        buf_append(out, at, (size_t)(next - at));
    return next;
}

static int translate(const char *at, struct buf *out, struct error *err)
{
    const char *why = NULL, *begin = NULL; /* `begin` is where the class begins */
    while (at && *at) {
        if (*at == '\\') {
            const char *escape = at;
            at = translate_escape(at, begin, out);
            if (!at)
                return error_set(err, ERROR_ARGUMENT, "ECMA-262 has no escape %.2s", escape);
        } else if (!begin) {
            begin = *at == '[' ? at + 1 + (at[1] == '^') : NULL;
            at = translate_plain(at, out, &why);
            if (begin > at)
                buf_putc(out, *at++);
        } else {
            if (*at == '[')
                buf_putc(out, '\\'); /* [: does not begin a named class */
            begin = *at == ']' ? NULL : begin;
            buf_putc(out, *at++);
        }
    }
    return why               ? error_set(err, ERROR_ARGUMENT, "it has %s", why)
           : buf_failed(out) ? error_memory(err)
                             : 0;
}

/* ---- compiling ---- */

static int compile(struct pattern *p, const struct buf *text, struct error *err)
{
    int code;
    size_t at;
    uint32_t back = 0;
    pcre2_compile_context *context = pcre2_compile_context_create(NULL);
    if (!context)
        return error_memory(err);
    pcre2_set_compile_extra_options(context, PCRE2_EXTRA_ALT_BSUX);
    pcre2_set_max_pattern_length(context, PATTERN_MAX);
    p->code = pcre2_compile((PCRE2_SPTR)buf_text(text), text->len,
        PCRE2_UTF | PCRE2_DOLLAR_ENDONLY | PCRE2_ALT_BSUX | PCRE2_ALLOW_EMPTY_CLASS |
            PCRE2_MATCH_UNSET_BACKREF | PCRE2_NEVER_UCP | PCRE2_NEVER_BACKSLASH_C |
            PCRE2_AUTO_CALLOUT,
        &code, &at, context);
    pcre2_compile_context_free(context);
    if (!p->code) {
        PCRE2_UCHAR why[160];
        pcre2_get_error_message(code, why, sizeof why);
        return error_set(
            err, ERROR_ARGUMENT, "%s (before '%.20s')", (char *)why, buf_text(text) + at);
    }
    pcre2_pattern_info(p->code, PCRE2_INFO_BACKREFMAX, &back);
    p->refers_back = back > 0;
    return 0;
}

int pattern_compile(const char *text, size_t len, struct pattern **out, struct error *err)
{
    cleanup_buf struct buf translated = { 0 };
    struct pattern *p = calloc(1, sizeof *p);
    if (!p)
        return error_memory(err);
    int rc = strlen(text) == len ? translate(text, &translated, err)
                                 : error_set(err, ERROR_ARGUMENT,
                                       "it contains a zero byte: write "
                                       "\\0");
    if (rc == 0)
        rc = compile(p, &translated, err);
    if (rc < 0) {
        pattern_free(p);
        return rc;
    }
    *out = p;
    return 0;
}

void pattern_free(struct pattern *p)
{
    if (!p)
        return;
    pcre2_code_free(p->code);
    free(p);
}

/* ---- matching ---- */

struct work {
    uint64_t left;
    size_t at;   /* position of the last callout */
    size_t back; /* bytes that a back reference may compare at each position */
};

static int count_step(pcre2_callout_block *callout, void *arg)
{
    struct work *w = arg;
    size_t at = callout->current_position, moved = at > w->at ? at - w->at : w->at - at;
    uint64_t cost = 1 + (moved + w->back) / BYTES_PER_STEP;
    w->at = at;
    if (w->left < cost)
        return PCRE2_ERROR_CALLOUT;
    w->left -= cost;
    return 0;
}

static int explain(int rc, struct error *err)
{
    PCRE2_UCHAR why[160];
    switch (rc) {
    case PCRE2_ERROR_NOMEMORY:
        return error_memory(err);
    case PCRE2_ERROR_CALLOUT:
    case PCRE2_ERROR_MATCHLIMIT:
    case PCRE2_ERROR_DEPTHLIMIT:
    case PCRE2_ERROR_HEAPLIMIT:
        return error_set(err, ERROR_ARGUMENT,
            "matching a text of this length against the pattern takes too long: the match was "
            "stopped at its limit of %s",
            rc == PCRE2_ERROR_HEAPLIMIT || rc == PCRE2_ERROR_DEPTHLIMIT ? "memory" : "steps");
    default:
        pcre2_get_error_message(rc, why, sizeof why);
        return error_set(err, ERROR_ARGUMENT, "matching a pattern: %s", (char *)why);
    }
}

int pattern_search(
    const struct pattern *p, const char *text, size_t len, uint64_t *work, struct error *err)
{
    struct work w = { .left = *work, .back = p->refers_back ? len : 0 };
    pcre2_match_context *context = pcre2_match_context_create(NULL);
    pcre2_match_data *data = pcre2_match_data_create(1, NULL);
    int rc = PCRE2_ERROR_NOMEMORY;
    if (context && data) {
        pcre2_set_match_limit(context, MATCH_LIMIT);
        pcre2_set_depth_limit(context, DEPTH_LIMIT);
        pcre2_set_heap_limit(context, HEAP_LIMIT_KIB);
        pcre2_set_callout(context, count_step, &w);
        rc = pcre2_match(p->code, (PCRE2_SPTR)text, len, 0, 0, data, context);
    }
    pcre2_match_data_free(data);
    pcre2_match_context_free(context);
    *work = w.left;
    if (rc == PCRE2_ERROR_NOMATCH)
        return 0;
    return rc >= 0 ? 1 : explain(rc, err); /* 0: more groups than the match data has room for */
}
