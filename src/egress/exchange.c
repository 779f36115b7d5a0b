/* egress/exchange.c: requests of HTTP, their answers, and what is removed from these.
 *
 * One request goes over each connection, or, where TLS ends, one after the other.
 */
#include <openssl/crypto.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "egress/connection.h"
#include "egress/head.h"

static const struct {
    int status;
    const char *phrase;
    const char *error; /* RFC 9209 */
} exchange_statuses[] = {
    { 400, "Bad Request", "http_request_error" },
    { 403, "Forbidden by allow-net", "http_request_denied" },
    { 405, "Method Not Allowed", "http_request_error" },
    { 429, "Limit of network reached", "http_request_denied" },
    { 431, "Request Header Fields Too Large", "http_request_error" },
    { 501, "Not Implemented", "http_request_error" },
    { 502, "Bad Gateway", "destination_unavailable" },
    { 503, "Service Unavailable", "proxy_internal_error" },
    { 504, "Gateway Timeout", "connection_timeout" },
    { 505, "HTTP Version Not Supported", "http_request_error" },
};

void exchange_answer(struct connection *c, int status, const char *why)
{
    cleanup_buf struct buf out = { 0 };
    const char *phrase = "Error", *error = "proxy_internal_error";
    if (status == 200) {
        static const char established[] = "HTTP/1.1 200 Connection established\r\n\r\n";
        side_send(&c->client, established, sizeof established - 1);
        return;
    }
    if (c->has_answer) /* the client reads that of the server */
        return;
    for (size_t i = 0; i < array_length(exchange_statuses); i++)
        if (exchange_statuses[i].status == status) {
            phrase = exchange_statuses[i].phrase;
            error = exchange_statuses[i].error;
        }
    buf_printf(&out,
        "HTTP/1.1 %d %s\r\nContent-Type: text/plain\r\nContent-Length: %zu\r\n"
        "Proxy-Status: droste; error=%s\r\nConnection: close\r\n\r\ndroste: %s\n",
        status, phrase, strlen(why) + strlen("droste: \n"), error, why);
    side_send(&c->client, out.data, out.len);
}

void exchange_step(struct connection *c)
{
    const char *why = NULL;
    size_t end = egress_head_end(c->in.data, c->in.len, c->scanned);
    c->scanned = c->in.len;
    if (end > EGRESS_HEAD_MAX || (end == 0 && c->in.len >= EGRESS_HEAD_MAX)) {
        connection_refuse(c, 431, "the head is too long");
        return;
    }
    if (end == 0)
        return;
    const struct egress_scope scope = { c->is_tls ? &c->host : NULL, c->port, c->proxy->grant };
    int status = egress_request_parse(c->in.data, end, &scope, &c->target, &why);
    buf_consume(&c->in, end);
    if (status)
        connection_refuse(c, status, why);
    else
        connection_ask(c);
}

void exchange_begin(struct connection *c)
{
    cleanup_buf struct buf early = c->in;
    c->in = (struct buf){ 0 };
    c->scanned = 0;
    if (!connection_count(c, &c->sent, c->target.head.len) ||
        !side_send(&c->server, c->target.head.data, c->target.head.len)) {
        connection_fail(c, 502, c->why[0] ? c->why : "the server closed the connection");
        return;
    }
    OPENSSL_cleanse(c->target.head.data, c->target.head.len);
    buf_free(&c->target.head);
    if (early.len > 0)
        exchange_from_client(c, early.data, early.len);
}

void exchange_from_client(struct connection *c, const char *data, size_t len)
{
    bool bad;
    size_t n = egress_body_take(&c->target.body, data, len, &bad);
    if (bad) {
        /* The server may have the beginning of a body; it gets no end of it. */
        connection_fail(c, 400, "the body is not framed as its head says");
        return;
    }
    if (n < len) { /* another request: within TLS it is next, else it gets no answer here */
        c->client.is_deaf = true;
        if (c->target.keeps)
            buf_append(&c->behind, data + n, len - n);
    }
    if (!connection_count(c, &c->sent, n))
        connection_fail(c, 429, c->why);
    else if (!side_send(&c->server, data, n))
        c->client.is_deaf = true; /* the server has answered early, perhaps */
}

/* The answer has come. */
static void exchange_end(struct connection *c)
{
    bool keeps = c->target.keeps && c->answer.keeps && egress_body_has_ended(&c->target.body) &&
                 !buf_failed(&c->behind);
    if (keeps)
        connection_next(c);
    else
        connection_last(c);
}

static bool exchange_redacts(const struct connection *c)
{
    return c->target.is_guarded && c->answer.body.framing != BODY_NONE;
}

/* Sends contents whose secrets are removed, in chunks if the answer has them. */
static bool exchange_send_content(struct connection *c, const struct buf *content)
{
    cleanup_buf struct buf framed = { 0 };
    if (buf_failed(content))
        return false;
    if (content->len == 0 || c->answer.body.framing != BODY_CHUNKED)
        return side_send(&c->client, content->data, content->len);
    buf_printf(&framed, "%zx\r\n", content->len);
    buf_append(&framed, content->data, content->len);
    buf_puts(&framed, "\r\n");
    return !buf_failed(&framed) && side_send(&c->client, framed.data, framed.len);
}

static bool exchange_end_redacted(struct connection *c)
{
    static const char last_chunk[] = "0\r\n\r\n";
    cleanup_buf struct buf content = { 0 };
    egress_redact_end(&c->redactor, &content);
    return exchange_send_content(c, &content) &&
           (c->answer.body.framing != BODY_CHUNKED ||
               side_send(&c->client, last_chunk, sizeof last_chunk - 1));
}

static bool exchange_send_redacted(struct connection *c, const char *data, size_t len, size_t *n)
{
    cleanup_buf struct buf content = { 0 };
    const struct egress_forms *forms = egress_policy_forms(c->proxy->policy);
    bool bad = false;
    *n = 0;
    while (*n < len && !bad && !egress_body_has_ended(&c->answer.body)) {
        const char *at;
        size_t at_len;
        *n += egress_body_next(&c->answer.body, data + *n, len - *n, &at, &at_len, &bad);
        egress_redact(forms, &c->redactor, at, at_len, &content);
    }
    return !bad && exchange_send_content(c, &content) &&
           (!egress_body_has_ended(&c->answer.body) || exchange_end_redacted(c));
}

static void exchange_take_body(struct connection *c, const char *data, size_t len)
{
    bool bad = false, sent;
    size_t n;
    if (exchange_redacts(c)) {
        sent = exchange_send_redacted(c, data, len, &n);
    } else {
        n = egress_body_take(&c->answer.body, data, len, &bad);
        sent = !bad && side_send(&c->client, data, n);
    }
    if (!connection_count(c, &c->received, n) || !sent)
        c->phase = PHASE_CLOSED;
    else if (egress_body_has_ended(&c->answer.body))
        exchange_end(c);
}

/* A head of the server's: passes it on. False: the connection has ended. */
static bool exchange_take_head(struct connection *c, size_t end)
{
    cleanup_buf struct buf out = { 0 };
    if (!egress_answer_parse(c->in.data, end, &c->target, &c->answer, &out)) {
        connection_fail(c, 502, "the server's answer is malformed");
        return false;
    }
    if (exchange_redacts(c) && c->answer.is_coded) {
        connection_fail(
            c, 502, "the server's answer is compressed, so a secret in it could not be found");
        return false;
    }
    if (c->target.is_guarded)
        egress_redact_all(egress_policy_forms(c->proxy->policy), out.data, out.len);
    buf_consume(&c->in, end);
    c->scanned = 0;
    c->has_answer = c->answer.status >= 200;
    c->status = c->answer.status;
    if (connection_count(c, &c->received, end) && side_send(&c->client, out.data, out.len))
        return true;
    c->phase = PHASE_CLOSED;
    return false;
}

/* Takes heads from c->in: interim answers, and the one that counts. */
static void exchange_take_heads(struct connection *c)
{
    size_t end;
    while (!c->has_answer && (end = egress_head_end(c->in.data, c->in.len, c->scanned)) > 0)
        if (!exchange_take_head(c, end))
            return;
    if (c->has_answer) {
        cleanup_buf struct buf rest = c->in;
        c->in = (struct buf){ 0 };
        exchange_take_body(c, rest.data, rest.len);
        return;
    }
    c->scanned = c->in.len;
    if (c->in.len > EGRESS_HEAD_MAX)
        connection_fail(c, 502, "the head of the server's answer is too long");
}

void exchange_from_server(struct connection *c, const char *data, size_t len)
{
    if (c->has_answer) {
        exchange_take_body(c, data, len);
        return;
    }
    buf_append(&c->in, data, len);
    if (buf_failed(&c->in))
        c->phase = PHASE_CLOSED;
    else
        exchange_take_heads(c);
}

void exchange_server_ended(struct connection *c, bool broke)
{
    c->is_cut = broke; /* many servers end TLS without saying so */
    if (!c->has_answer && c->is_reused)
        c->phase = PHASE_CLOSED; /* as the server did, between two requests: clients try again */
    else if (!c->has_answer)
        connection_fail(c, 502, "the server closed the connection without an answer");
    else if (c->answer.body.framing != BODY_UNTIL_CLOSE)
        c->phase = PHASE_CLOSED; /* the answer is cut: the client sees that, too */
    else if (exchange_redacts(c) && !exchange_end_redacted(c))
        c->phase = PHASE_CLOSED;
    else
        connection_last(c);
}
