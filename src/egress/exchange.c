/* egress/exchange.c: requests of HTTP: one goes over each connection. */
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
    int status = egress_request_parse(c->in.data, end, &c->target, &why);
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
    if (n < len) /* another request: it gets no answer here */
        c->client.is_deaf = true;
    if (!connection_count(c, &c->sent, n))
        connection_fail(c, 429, c->why);
    else if (!side_send(&c->server, data, n))
        c->client.is_deaf = true; /* the server has answered early, perhaps */
}

static void exchange_take_body(struct connection *c, const char *data, size_t len)
{
    bool bad;
    size_t n = egress_body_take(&c->answer.body, data, len, &bad);
    if (!connection_count(c, &c->received, n) || !side_send(&c->client, data, n))
        c->phase = PHASE_CLOSED;
    else if (egress_body_has_ended(&c->answer.body))
        connection_last(c);
}

/* Takes heads from c->in: interim answers, and the one that counts. */
static void exchange_take_heads(struct connection *c)
{
    size_t end;
    while (!c->has_answer && (end = egress_head_end(c->in.data, c->in.len, c->scanned)) > 0) {
        cleanup_buf struct buf out = { 0 };
        if (!egress_answer_parse(c->in.data, end, c->target.method, &c->answer, &out)) {
            connection_fail(c, 502, "the server's answer is malformed");
            return;
        }
        buf_consume(&c->in, end);
        c->scanned = 0;
        c->has_answer = c->answer.status >= 200;
        c->status = c->answer.status;
        if (!connection_count(c, &c->received, end) || !side_send(&c->client, out.data, out.len)) {
            c->phase = PHASE_CLOSED;
            return;
        }
    }
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

void exchange_server_ended(struct connection *c)
{
    if (!c->has_answer)
        connection_fail(c, 502, "the server closed the connection without an answer");
    else if (c->answer.body.framing == BODY_UNTIL_CLOSE)
        connection_last(c);
    else
        c->phase = PHASE_CLOSED; /* the answer is cut: the client sees that, too */
}
