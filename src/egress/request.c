/* egress/request.c: parses requests and answers, and writes them anew.
 *
 * A request that goes on has exactly one reading: the target alone decides where it goes, the Host
 * field is written from it, and the body has one framing. To the proxy itself, one request goes
 * over each connection, so bytes after it are never taken for another one. Within TLS that the
 * proxy has ended, the target is that of the tunnel, and requests may follow each other.
 */
#include "egress/request.h"

#include <openssl/crypto.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "egress/head.h"

void egress_target_clear(struct egress_target *target)
{
    free(steal(&target->path));
    if (target->head.data)
        OPENSSL_cleanse(target->head.data, target->head.len);
    buf_free(&target->head);
}

struct request_line {
    struct egress_span method, target;
    bool is_1_0;
};

static int request_refuse(const char **why, int status, const char *reason)
{
    *why = reason;
    return status;
}

/* METHOD SP TARGET SP VERSION, with single spaces. */
static int request_take_line(struct egress_span line, struct request_line *out, const char **why)
{
    const char *first = memchr(line.at, ' ', line.len);
    const char *last = memrchr(line.at, ' ', line.len);
    if (!first || first == last)
        return request_refuse(why, 400, "the request line is malformed");
    out->method = (struct egress_span){ line.at, (size_t)(first - line.at) };
    out->target = (struct egress_span){ first + 1, (size_t)(last - first) - 1 };
    struct egress_span version = { last + 1, line.len - (size_t)(last - line.at) - 1 };
    out->is_1_0 = version.len == 8 && memcmp(version.at, "HTTP/1.0", 8) == 0;
    if (!out->is_1_0 && (version.len != 8 || memcmp(version.at, "HTTP/1.1", 8) != 0))
        return request_refuse(why, 505, "the proxy speaks HTTP/1.1");
    if (!egress_span_is_token(out->method) || out->method.len >= EGRESS_METHOD_SIZE)
        return request_refuse(why, 400, "the method is malformed");
    for (size_t i = 0; i < out->target.len; i++)
        if (out->target.at[i] <= ' ' || out->target.at[i] >= 0x7f || out->target.at[i] == '#')
            return request_refuse(why, 400, "the target has a character that no URL has");
    return 0;
}

/* http://HOST[:PORT][/PATH][?QUERY] */
static int request_take_url(struct egress_span url, struct egress_target *out, const char **why)
{
    static const char scheme[] = "http://";
    enum { SCHEME = sizeof scheme - 1 };
    if (url.len > 8 && strncasecmp(url.at, "https://", 8) == 0)
        return request_refuse(why, 501, "https goes through a tunnel: use CONNECT");
    if (url.len < SCHEME || strncasecmp(url.at, scheme, SCHEME) != 0)
        return request_refuse(why, 400, "this is a proxy: the target is a whole URL");
    const char *authority = url.at + SCHEME, *end = url.at + url.len, *path = authority;
    while (path < end && *path != '/' && *path != '?')
        path++;
    out->port = 80;
    *why = egress_authority_parse(authority, (size_t)(path - authority), &out->host, &out->port);
    if (*why)
        return 400;
    out->path =
        text_printf("%s%.*s", path < end && *path == '/' ? "" : "/", (int)(end - path), path);
    return out->path ? 0 : request_refuse(why, 503, "out of memory");
}

/* /PATH[?QUERY], of the tunnel's host. */
static int request_take_path(struct egress_span path, const struct egress_scope *scope,
    struct egress_target *out, const char **why)
{
    out->is_tls = true;
    out->host = *scope->host;
    out->port = scope->port;
    if (path.len == 0 || path.at[0] != '/')
        return request_refuse(why, 400, "within a tunnel, the target is a path");
    out->path = text_copy(path.at, path.len);
    return out->path ? 0 : request_refuse(why, 503, "out of memory");
}

/* There is one Host, for the same server as the target. */
static int request_check_host(const struct egress_head *head, bool is_1_0,
    const struct egress_target *target, const char **why)
{
    bool several;
    struct egress_host host;
    unsigned port = target->port;
    const struct egress_field *field = egress_head_find(head, "host", &several);
    if (several || (!field && !is_1_0))
        return request_refuse(why, 400, "there must be one Host field");
    if (!field)
        return 0;
    /* Some clients leave out the port in the Host of a CONNECT. */
    if (!target->is_tunnel)
        port = target->is_tls ? 443 : 80;
    if (egress_authority_parse(field->value.at, field->value.len, &host, &port))
        return request_refuse(why, 400, "the Host field is malformed");
    if (port != target->port || strcmp(host.name, target->host.name) != 0)
        return request_refuse(why, 400, "the Host field and the target differ");
    return 0;
}

static int request_take_framing(
    const struct egress_head *head, bool is_1_0, struct egress_body *body, const char **why)
{
    bool lengths, codings;
    const struct egress_field *length = egress_head_find(head, "content-length", &lengths);
    const struct egress_field *coding = egress_head_find(head, "transfer-encoding", &codings);
    *body = (struct egress_body){ .framing = BODY_NONE };
    if (lengths || codings || (length && coding))
        return request_refuse(why, 400, "the length of the body is ambiguous");
    if (coding && (is_1_0 || !egress_span_is(coding->value, "chunked")))
        return request_refuse(why, 400, "the transfer coding is not chunked");
    if (coding)
        body->framing = BODY_CHUNKED;
    if (length && !egress_span_number(length->value, &body->left))
        return request_refuse(why, 400, "the Content-Length is malformed");
    if (length)
        body->framing = BODY_LENGTH;
    return 0;
}

/* Fields that would change the meaning of others cannot be declared to belong to the hop. */
static int request_check_connection(const struct egress_head *head, const char **why)
{
    static const char *const ends[] = { "host", "content-length", "authorization", "cookie" };
    for (size_t i = 0; i < array_length(ends); i++)
        if (egress_head_lists(head, "connection", (struct egress_span){ ends[i], strlen(ends[i]) }))
            return request_refuse(why, 400, "the Connection field lists a field of the request");
    return 0;
}

static void head_put_field(struct buf *out, const struct egress_field *field)
{
    buf_append(out, field->name.at, field->name.len);
    buf_puts(out, ": ");
    buf_append(out, field->value.at, field->value.len);
    buf_puts(out, "\r\n");
}

/* Puts a bound secret in place of its placeholder. False: there is none in this field. */
static bool request_put_secret(const struct egress_scope *scope, struct egress_target *target,
    const struct egress_field *field)
{
    const struct egress_policy *policy = scope->grant->policy;
    cleanup_buf struct buf value = { 0 };
    for (size_t i = 0; i < egress_policy_secret_count(policy); i++) {
        const struct egress_secret *s = egress_policy_secret(policy, i);
        if (!egress_secret_is_bound(s, target->is_tls, &target->host, target->port) ||
            !egress_secret_put_field(s, scope->grant->placeholders[i], field, &value))
            continue;
        struct egress_field filled = { field->name, { buf_text(&value), value.len } };
        head_put_field(&target->head, &filled);
        target->head.failed = target->head.failed || buf_failed(&value);
        target->secrets |= 1u << i;
        if (value.data)
            OPENSSL_cleanse(value.data, value.len);
        return true;
    }
    return false;
}

/* The path with the secrets that are bound to its parameters. */
static void request_put_path(
    const struct egress_scope *scope, struct egress_target *target, struct buf *out)
{
    const struct egress_policy *policy = target->is_guarded ? scope->grant->policy : NULL;
    buf_puts(out, target->path);
    for (size_t i = 0; policy && i < egress_policy_secret_count(policy); i++) {
        const struct egress_secret *s = egress_policy_secret(policy, i);
        struct buf filled = { 0 };
        if (!egress_secret_is_bound(s, target->is_tls, &target->host, target->port) ||
            !egress_secret_put_query(
                s, scope->grant->placeholders[i], buf_text(out), out->len, &filled))
            continue;
        OPENSSL_cleanse(out->data, out->len);
        buf_free(out);
        *out = filled;
        target->secrets |= 1u << i;
    }
}

/* Where a secret is bound, answers must be readable, and in one piece: parts of one that come in
 * separate answers could not be found. */
static bool request_drops(const struct egress_target *target, const struct egress_field *field)
{
    static const char *const hiding[] = { "accept-encoding", "range", "if-range" };
    for (size_t i = 0; target->is_guarded && i < array_length(hiding); i++)
        if (egress_span_is(field->name, hiding[i]))
            return true;
    return egress_span_is(field->name, "host");
}

static void request_write(
    const struct egress_head *head, const struct egress_scope *scope, struct egress_target *target)
{
    struct buf *out = &target->head;
    cleanup_buf struct buf path = { 0 };
    bool v6 = target->host.is_address && strchr(target->host.name, ':');
    request_put_path(scope, target, &path);
    buf_printf(out, "%s ", target->method);
    buf_append(out, path.data, path.len);
    buf_printf(out, " HTTP/1.1\r\nHost: %s%s%s", v6 ? "[" : "", target->host.name, v6 ? "]" : "");
    out->failed = out->failed || buf_failed(&path);
    if (target->secrets)
        OPENSSL_cleanse(path.data, path.len);
    if (target->port != (target->is_tls ? 443 : 80))
        buf_printf(out, ":%u", target->port);
    buf_puts(out, "\r\n");
    for (size_t i = 0; i < head->count; i++) {
        const struct egress_field *field = &head->fields[i];
        if (egress_field_is_hop(head, field) || request_drops(target, field))
            continue;
        if (!target->is_guarded || !request_put_secret(scope, target, field))
            head_put_field(out, field);
    }
    if (target->is_guarded)
        buf_puts(out, "Accept-Encoding: identity\r\n");
    if (target->body.framing == BODY_CHUNKED)
        buf_puts(out, "Transfer-Encoding: chunked\r\n");
    buf_puts(out, target->keeps ? "\r\n" : "Connection: close\r\n\r\n");
}

static int request_take_target(const struct request_line *line, const struct egress_scope *scope,
    struct egress_target *target, const char **why)
{
    memcpy(target->method, line->method.at, line->method.len);
    target->is_tunnel = strcmp(target->method, "CONNECT") == 0;
    if (scope->host && target->is_tunnel) {
        target->is_tunnel = false;
        return request_refuse(why, 405, "there is no tunnel within a tunnel");
    }
    if (scope->host)
        return request_take_path(line->target, scope, target, why);
    if (!target->is_tunnel)
        return request_take_url(line->target, target, why);
    *why = egress_authority_parse(line->target.at, line->target.len, &target->host, &target->port);
    return *why ? 400 : 0;
}

int egress_request_parse(const char *data, size_t len, const struct egress_scope *scope,
    struct egress_target *target, const char **why)
{
    static const struct egress_span close_word = { "close", 5 };
    struct egress_head head;
    struct request_line line = { .is_1_0 = false };
    *target = (struct egress_target){ .is_tls = scope->host, .port = scope->port };
    if (scope->host)
        target->host = *scope->host;
    if (!egress_head_parse(data, len, &head)) {
        /* The preface of HTTP/2 is such a head, too. */
        return request_refuse(why, 400, "the head is malformed");
    }
    int status = request_take_line(head.line, &line, why);
    if (status == 0)
        status = request_take_target(&line, scope, target, why);
    if (status == 0)
        status = request_check_host(&head, line.is_1_0, target, why);
    if (status == 0)
        status = request_check_connection(&head, why);
    if (status == 0)
        status = request_take_framing(&head, line.is_1_0, &target->body, why);
    if (status == 0 && target->is_tunnel && target->body.framing != BODY_NONE)
        status = request_refuse(why, 400, "a CONNECT has no body");
    if (status == 0 && strcmp(target->method, "TRACE") == 0)
        status = request_refuse(why, 405, "TRACE would return the request");
    if (status || target->is_tunnel)
        return status;
    target->keeps =
        target->is_tls && !line.is_1_0 && !egress_head_lists(&head, "connection", close_word);
    target->is_guarded = scope->grant && egress_policy_guards(scope->grant->policy, target->is_tls,
                                             &target->host, target->port);
    request_write(&head, scope, target);
    return buf_failed(&target->head) ? request_refuse(why, 503, "out of memory") : 0;
}

/* ---- answers ---- */

/* "HTTP/1.1 200 OK": the status, or 0. */
static int answer_status(struct egress_span line)
{
    uint64_t status;
    struct egress_span digits = { line.at + 9, 3 };
    if (line.len < 12 || memcmp(line.at, "HTTP/1.", 7) != 0 || line.at[8] != ' ' ||
        (line.at[7] != '0' && line.at[7] != '1') || (line.len > 12 && line.at[12] != ' ') ||
        !egress_span_number(digits, &status) || status < 100)
        return 0;
    return (int)status;
}

static bool answer_take_framing(
    const struct egress_head *head, const char *method, struct egress_answer *answer)
{
    bool lengths, codings;
    const struct egress_field *length = egress_head_find(head, "content-length", &lengths);
    const struct egress_field *coding = egress_head_find(head, "transfer-encoding", &codings);
    answer->body = (struct egress_body){ .framing = BODY_UNTIL_CLOSE, .is_lenient = true };
    if (lengths || codings || (length && coding))
        return false;
    if (length && !egress_span_number(length->value, &answer->body.left))
        return false;
    if (length)
        answer->body.framing = BODY_LENGTH;
    if (coding && egress_span_is(coding->value, "chunked"))
        answer->body.framing = BODY_CHUNKED;
    else if (coding)
        answer->is_coded = true;
    if (strcmp(method, "HEAD") == 0 || answer->status < 200 || answer->status == 204 ||
        answer->status == 304)
        answer->body.framing = BODY_NONE;
    return true;
}

bool egress_answer_parse(const char *data, size_t len, const struct egress_target *target,
    struct egress_answer *answer, struct buf *out)
{
    static const struct egress_span close_word = { "close", 5 };
    struct egress_head head;
    *answer = (struct egress_answer){ 0 };
    if (!egress_head_parse(data, len, &head))
        return false;
    answer->status = answer_status(head.line);
    if (answer->status == 0 || answer->status == 101 ||
        !answer_take_framing(&head, target->method, answer))
        return false;
    answer->keeps = head.line.at[7] == '1' && answer->body.framing != BODY_UNTIL_CLOSE &&
                    !egress_head_lists(&head, "connection", close_word);
    buf_append(out, head.line.at, head.line.len);
    buf_puts(out, "\r\n");
    for (size_t i = 0; i < head.count; i++) {
        const struct egress_field *field = &head.fields[i];
        if (egress_span_is(field->name, "content-encoding") &&
            !egress_span_is(field->value, "identity"))
            answer->is_coded = true;
        if (egress_span_is(field->name, "transfer-encoding") || !egress_field_is_hop(&head, field))
            head_put_field(out, field);
    }
    bool last = answer->status >= 200 && !(target->keeps && answer->keeps);
    buf_puts(out, last ? "Connection: close\r\n\r\n" : "\r\n");
    return !buf_failed(out);
}
