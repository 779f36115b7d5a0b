/* egress/secret.c: parses secrets, and puts their values into requests. */
#include "egress/secret.h"

#include <openssl/crypto.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/cleanup.h"
#include "base/json/json.h"
#include "base/text.h"

static int secret_refuse(const char *text, const char *why, struct error *err)
{
    return error_set(err, ERROR_ARGUMENT,
        "secret '%.200s': %s; write NAME[=SOURCE] for HOST[:PORT] [PLACE], as in "
        "'OPENAI_API_KEY for api.openai.com'",
        text, why);
}

/* ---- parsing ---- */

/* The last " for " separates them: a command may contain the word, a destination does not. */
static const char *secret_find_for(const char *text)
{
    const char *found = NULL;
    for (const char *at = text; (at = strstr(at, " for ")); at++)
        found = at;
    return found;
}

static const char *secret_take_destination(struct egress_secret *s, const char *text, size_t len)
{
    static const char plain[] = "http://", secure[] = "https://";
    s->is_tls = strncmp(text, plain, sizeof plain - 1) != 0;
    size_t scheme = !s->is_tls                                      ? sizeof plain - 1
                    : strncmp(text, secure, sizeof secure - 1) == 0 ? sizeof secure - 1
                                                                    : 0;
    if (scheme > len)
        return "the destination has no host";
    s->port = s->is_tls ? 443 : 80;
    return egress_authority_parse(text + scheme, len - scheme, &s->host, &s->port);
}

/* FIELD: TEXT, in which {} stands for the secret. */
static const char *secret_take_header(struct egress_secret *s, const char *text)
{
    const char *colon = strchr(text, ':'), *hole = colon ? strstr(colon, "{}") : NULL;
    if (!hole || strstr(hole + 2, "{}"))
        return "a header is FIELD: TEXT, with {} once for the secret";
    struct egress_span name = { text, (size_t)(colon - text) };
    static const char *const fixed[] = { "host", "connection", "content-length",
        "transfer-encoding", "accept-encoding", "range", "te", "upgrade", "proxy-authorization" };
    if (!egress_span_is_token(name))
        return "the name of the header is malformed";
    for (size_t i = 0; i < array_length(fixed); i++)
        if (egress_span_is(name, fixed[i]))
            return "the proxy writes this header itself";
    colon += 1 + strspn(colon + 1, " ");
    for (const char *at = colon; *at; at++)
        if (*at < ' ' || *at > '~')
            return "the header has a control character";
    s->key = text_copy(name.at, name.len);
    s->before = text_copy(colon, (size_t)(hole - colon));
    s->behind = strdup(hole + 2);
    return s->key && s->before && s->behind ? NULL : "out of memory";
}

/* The argument of a place; NULL: it is another place. */
static const char *place_argument(const char *text, const char *word)
{
    size_t len = strlen(word);
    if (strncmp(text, word, len) != 0 || (text[len] && text[len] != ' '))
        return NULL;
    return text + len + strspn(text + len, " ");
}

static const char *secret_take_place(struct egress_secret *s, const char *text)
{
    const char *argument;
    s->place = PLACE_HEADER;
    if (!*text)
        return secret_take_header(s, "Authorization: Bearer {}");
    if ((argument = place_argument(text, "header")))
        return secret_take_header(s, argument);
    if ((argument = place_argument(text, "basic"))) {
        s->place = PLACE_BASIC;
        s->key = *argument ? strdup(argument) : NULL;
        return strpbrk(argument, ": ") ? "a user has no colon and no space"
               : *argument && !s->key  ? "out of memory"
                                       : NULL;
    }
    if ((argument = place_argument(text, "query"))) {
        s->place = PLACE_QUERY;
        s->key = strdup(argument);
        struct egress_span name = { argument, strlen(argument) };
        return !egress_span_is_token(name) ? "query needs the name of a parameter"
               : !s->key                   ? "out of memory"
                                           : NULL;
    }
    return "a place is 'header FIELD: TEXT', 'basic [USER]' or 'query NAME'";
}

static const char *secret_take_source(struct egress_secret *s, const char *text, size_t len)
{
    static const char *const kinds[] = { "@", "!", "env:", "fd:" };
    const char *equals = memchr(text, '=', len);
    size_t name = equals ? (size_t)(equals - text) : len;
    bool known = !equals;
    s->name = text_copy(text, name);
    s->source = equals ? text_copy(equals + 1, len - name - 1) : strdup("");
    if (!s->name || !s->source)
        return "out of memory";
    if (!text_is_identifier(s->name))
        return "NAME is a variable, of letters, digits and underscores";
    for (size_t i = 0; i < array_length(kinds); i++)
        known = known || (strncmp(s->source, kinds[i], strlen(kinds[i])) == 0 &&
                             s->source[strlen(kinds[i])]);
    /* A command line and a process list are not places for a value. */
    return known ? NULL : "SOURCE is @FILE, fd:N, env:VARIABLE or !COMMAND, never the value itself";
}

int egress_secret_parse(const char *text, struct egress_secret *out, struct error *err)
{
    const char *separator = secret_find_for(text), *wrong;
    *out = (struct egress_secret){ 0 };
    if (!separator) {
        /* It may be a value: it is not shown. */
        return secret_refuse("…", "it names no destination", err);
    }
    const char *destination = separator + strlen(" for ");
    size_t len = strcspn(destination, " ");
    const char *place = destination + len + strspn(destination + len, " ");
    wrong = secret_take_source(out, text, (size_t)(separator - text));
    if (!wrong)
        wrong = secret_take_destination(out, destination, len);
    if (!wrong)
        wrong = secret_take_place(out, place);
    if (!wrong)
        return 0;
    egress_secret_clear(out);
    return secret_refuse(separator + 1, wrong, err);
}

int egress_secret_set(
    struct egress_secret *secret, const char *value, size_t len, struct error *err)
{
    while (len > 0 && (value[len - 1] == '\n' || value[len - 1] == '\r'))
        len--;
    if (len < SECRET_LEAST || len > SECRET_MOST)
        return error_set(err, ERROR_CONFIG, "secret %s: its value has %zu bytes, not %d to %d",
            secret->name, len, SECRET_LEAST, SECRET_MOST);
    for (size_t i = 0; i < len; i++)
        if (value[i] < ' ' || value[i] > '~')
            return error_set(err, ERROR_CONFIG,
                "secret %s: its value has a byte that is not printable ASCII", secret->name);
    secret->value = text_copy(value, len);
    secret->len = len;
    return secret->value ? 0 : error_memory(err);
}

void egress_secret_clear(struct egress_secret *secret)
{
    if (secret->value)
        OPENSSL_cleanse(secret->value, secret->len);
    free(secret->value);
    free(secret->name);
    free(secret->source);
    free(secret->key);
    free(secret->before);
    free(secret->behind);
    *secret = (struct egress_secret){ 0 };
}

bool egress_secret_is_bound(
    const struct egress_secret *secret, bool is_tls, const struct egress_host *host, unsigned port)
{
    return secret->is_tls == is_tls && secret->port == port &&
           strcmp(secret->host.name, host->name) == 0;
}

/* ---- putting it into requests ---- */

static bool secret_put_basic(const struct egress_secret *s, const char *placeholder,
    struct egress_span value, struct buf *out)
{
    static const char scheme[] = "Basic ";
    enum { SCHEME = sizeof scheme - 1 };
    size_t len = 0, tail = strlen(placeholder);
    if (value.len <= SCHEME || strncasecmp(value.at, scheme, SCHEME) != 0)
        return false;
    cleanup_free char *plain = json_base64_bytes(value.at + SCHEME, value.len - SCHEME, &len);
    const char *colon = plain ? memchr(plain, ':', len) : NULL;
    size_t user = colon ? (size_t)(colon - plain) : 0;
    if (!colon || len - user - 1 != tail || memcmp(colon + 1, placeholder, tail) != 0)
        return false;
    if (s->key && (strlen(s->key) != user || memcmp(s->key, plain, user) != 0))
        return false;
    cleanup_buf struct buf pair = { 0 };
    buf_append(&pair, plain, user + 1);
    buf_append(&pair, s->value, s->len);
    buf_puts(out, scheme);
    json_append_base64(out, pair.data, pair.len);
    if (pair.data)
        OPENSSL_cleanse(pair.data, pair.len);
    return true;
}

bool egress_secret_put_field(const struct egress_secret *secret, const char *placeholder,
    const struct egress_field *field, struct buf *out)
{
    struct egress_span value = field->value;
    if (secret->place == PLACE_BASIC)
        return egress_span_is(field->name, "authorization") &&
               secret_put_basic(secret, placeholder, value, out);
    if (secret->place != PLACE_HEADER || !egress_span_is(field->name, secret->key))
        return false;
    size_t before = strlen(secret->before), behind = strlen(secret->behind),
           middle = strlen(placeholder);
    if (value.len != before + middle + behind ||
        strncasecmp(value.at, secret->before, before) != 0 ||
        memcmp(value.at + before, placeholder, middle) != 0 ||
        memcmp(value.at + before + middle, secret->behind, behind) != 0)
        return false;
    buf_append(out, value.at, before);
    buf_append(out, secret->value, secret->len);
    buf_append(out, secret->behind, behind);
    return true;
}

static void secret_put_percent(struct buf *out, const char *value, size_t len)
{
    static const char plain[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~";
    for (size_t i = 0; i < len; i++)
        if (strchr(plain, value[i]))
            buf_putc(out, value[i]);
        else
            buf_printf(out, "%%%02X", (unsigned)(unsigned char)value[i]);
}

bool egress_secret_put_query(const struct egress_secret *secret, const char *placeholder,
    const char *path, size_t len, struct buf *out)
{
    const char *query = memchr(path, '?', len), *end = path + len;
    if (secret->place != PLACE_QUERY || !query)
        return false;
    size_t key = strlen(secret->key), value = strlen(placeholder);
    for (const char *at = query; at && at < end; at = memchr(at + 1, '&', (size_t)(end - at - 1))) {
        const char *name = at + 1, *next = memchr(name, '&', (size_t)(end - name));
        size_t left = (size_t)((next ? next : end) - name);
        if (left != key + 1 + value || memcmp(name, secret->key, key) != 0 || name[key] != '=' ||
            memcmp(name + key + 1, placeholder, value) != 0)
            continue;
        buf_append(out, path, (size_t)(name - path) + key + 1);
        secret_put_percent(out, secret->value, secret->len);
        buf_append(out, name + left, (size_t)(end - name) - left);
        return true;
    }
    return false;
}
