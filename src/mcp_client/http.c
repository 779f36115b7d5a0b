/* mcp_client/http.c: an MCP server behind a URL, as streamable HTTP.
 *
 * Each message is a POST of its own. The answer to a request is one JSON text or an event stream,
 * which may have other messages before it. Up to 2025-11-25 a server may name a session, which the
 * later messages carry, and may speak unasked in the stream of a GET. A redirect is not followed:
 * the headers may have keys.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "base/json/json.h"
#include "base/text.h"
#include "mcp_client/spec.h"
#include "mcp_client/transport.h"
#include "net/http.h"
#include "net/sse.h"
#include "net/url.h"

enum { CONNECTIONS = 32, CONNECT_SECONDS = 10, SESSION_MAX = 1000, WORDS_SHOWN = 200 };

/* A POST, or the GET. */
struct exchange {
    TAILQ_ENTRY(exchange) link;
    struct mcp_http *http;
    struct http_transfer *transfer;
    uint64_t id; /* of the request; 0: nothing is answered */
    bool is_stream, is_stateless;
    bool is_busy, is_gone; /* it is in use, and freed after that */
    char *body;
    struct list headers;
    struct buf in; /* a body that is not a stream */
    struct sse sse;
};

struct mcp_http {
    struct mcp_transport base; /* first */
    struct loop *loop;
    char *name, *url_text, *ca_file;
    struct url url;
    struct list headers; /* of the user */
    char *session;       /* NULL: none */
    struct http *http;
    TAILQ_HEAD(, exchange) exchanges;
    unsigned depth;
    bool closed;
};

static struct mcp_http *mcp_http_of(struct mcp_transport *t)
{
    return (struct mcp_http *)(void *)t;
}

/* ---- the end ---- */

static void exchange_release(struct exchange *x)
{
    list_clear(&x->headers);
    buf_free(&x->in);
    sse_free(&x->sse);
    free(x->body);
    free(x);
}

static void exchange_free(struct exchange *x)
{
    TAILQ_REMOVE(&x->http->exchanges, x, link);
    if (x->transfer)
        http_cancel(x->transfer);
    x->is_gone = true;
    if (!x->is_busy)
        exchange_release(x);
}

static void mcp_http_free(struct mcp_http *h)
{
    struct exchange *x;
    while ((x = TAILQ_FIRST(&h->exchanges)))
        exchange_free(x);
    http_close(h->http);
    url_free(&h->url);
    list_clear(&h->headers);
    free(h->name);
    free(h->url_text);
    free(h->ca_file);
    free(h->session);
    free(h);
}

static void mcp_http_leave(struct mcp_http *h)
{
    if (--h->depth == 0 && h->closed)
        mcp_http_free(h);
}

static void mcp_http_lost(
    struct mcp_http *h, enum mcp_loss what, uint64_t id, const struct error *why)
{
    if (!h->closed)
        h->base.events->lost(h->base.arg, what, id, why);
}

/* ---- what arrives ---- */

static void exchange_head(void *arg, struct http_transfer *transfer)
{
    struct exchange *x = arg;
    struct mcp_http *h = x->http;
    const char *session = http_header(transfer, "mcp-session-id");
    x->is_stream = http_status(transfer) == 200 && http_is_type(transfer, "text/event-stream");
    if (!session || h->session || strlen(session) > SESSION_MAX || x->is_stateless)
        return;
    for (const char *p = session; *p; p++)
        if (*p < 0x21 || *p > 0x7e)
            return;
    h->session = strdup(session);
}

static void exchange_data(void *arg, const char *data, size_t len)
{
    struct exchange *x = arg;
    struct mcp_http *h = x->http;
    struct error err = { 0 };
    const char *end = data + len;
    uint64_t id = x->id;
    int rc = 0;
    if (!x->is_stream) {
        buf_append(&x->in, data, len);
        return;
    }
    h->depth++;
    x->is_busy = true;
    while (!x->is_gone && !h->closed && (rc = sse_next(&x->sse, &data, end, &err)) > 0)
        if (x->sse.data.len > 0)
            h->base.events->message(h->base.arg, x->sse.data.data, x->sse.data.len);
    x->is_busy = false;
    if (x->is_gone)
        exchange_release(x);
    else if (rc < 0)
        error_wrap(&err, "the MCP server '%.64s'", h->name);
    if (rc < 0)
        mcp_http_lost(h, id ? MCP_LOSS_REQUEST : MCP_LOSS_CONNECTION, id, &err);
    mcp_http_leave(h);
}

/* Whether the body is an answer of the protocol, which says more than the status does. */
static bool exchange_has_answer(const struct exchange *x)
{
    cleanup_json struct json_object *o = NULL;
    struct json_object *id = NULL, *error = NULL;
    if (json_parse(buf_text(&x->in), x->in.len, &json_limits_large, &o, NULL) < 0 ||
        !json_object_is_type(o, json_type_object))
        return false;
    json_object_object_get_ex(o, "id", &id);
    json_object_object_get_ex(o, "error", &error);
    return json_object_is_type(id, json_type_int) && json_object_get_uint64(id) == x->id && error;
}

/* Explains a status of 300 and more. */
static void exchange_refused(struct exchange *x, long status, struct error *out)
{
    static const char moved[] = ": it has moved; enter the URL at which it is now";
    static const char locked[] = ": it wants an authorization, which `headers` of mcp-server give";
    cleanup_buf struct buf seen = { 0 };
    text_append_visible(&seen, buf_text(&x->in), x->in.len < WORDS_SHOWN ? x->in.len : WORDS_SHOWN);
    const char *advice = status < 400 ? moved : status == 401 || status == 403 ? locked : "";
    error_set(out, status == 404 || status == 405 || status == 400 ? ERROR_ARGUMENT : ERROR_LOST,
        "the MCP server '%.64s' (%.200s) answered with HTTP status %ld%s%s%s", x->http->name,
        x->http->url.peer, status, advice, seen.len ? ": " : "", buf_text(&seen));
}

static void exchange_done(void *arg, const struct http_result *result)
{
    struct exchange *x = arg;
    struct mcp_http *h = x->http;
    struct error err = result->error;
    uint64_t id = x->id;
    bool forgotten = result->status == 404 && h->session && !x->is_stateless;
    bool unsent = result->unsent;
    if (err.code != ERROR_NONE)
        error_wrap(&err, "the MCP server '%.64s'", h->name);
    x->transfer = NULL;
    h->depth++;
    cleanup_buf struct buf in = x->in;
    bool answered = err.code == ERROR_NONE && !x->is_stream && id &&
                    (result->status < 300 || (!forgotten && exchange_has_answer(x)));
    if (err.code == ERROR_NONE && result->status >= 300 && !answered)
        exchange_refused(x, result->status, &err);
    else if (err.code == ERROR_NONE && !answered)
        error_set(
            &err, ERROR_LOST, "the MCP server '%.64s' ended its stream without an answer", h->name);
    x->in = (struct buf){ 0 };
    exchange_free(x);
    if (answered && in.len > 0)
        h->base.events->message(h->base.arg, in.data, in.len);
    if (answered && in.len == 0)
        error_set(&err, ERROR_PROTOCOL, "the MCP server '%.64s' answered a request with nothing",
            h->name);
    /* Without effect if the request was answered: it is not there any more. */
    if (id && err.code != ERROR_NONE)
        mcp_http_lost(h,
            forgotten ? MCP_LOSS_SESSION
            : unsent  ? MCP_LOSS_CONNECTION
                      : MCP_LOSS_REQUEST,
            id, &err);
    mcp_http_leave(h);
}

static const struct http_handler exchange_handler = { exchange_head, exchange_data, exchange_done };

/* ---- what is sent ---- */

static int exchange_add_header(
    struct exchange *x, const char *name, const char *value, struct error *err)
{
    return list_take(&x->headers, text_printf("%s: %s", name, value), err);
}

/* A name that is not plain text travels as base64 (2026-07-28). */
static int exchange_add_name(struct exchange *x, const char *value, struct error *err)
{
    bool is_plain = value[0] != ' ' && value[0] != '=';
    for (const char *p = value; *p; p++)
        is_plain = is_plain && *p >= 0x20 && *p <= 0x7e && (*p != ' ' || p[1]);
    if (is_plain)
        return exchange_add_header(x, "Mcp-Name", value, err);
    cleanup_buf struct buf text = { 0 };
    buf_puts(&text, "=?base64?");
    json_append_base64(&text, value, strlen(value));
    buf_puts(&text, "?=");
    return buf_failed(&text) ? error_memory(err)
                             : exchange_add_header(x, "Mcp-Name", buf_text(&text), err);
}

static int exchange_add_headers(struct exchange *x, const struct mcp_outgoing *m, struct error *err)
{
    const struct mcp_http *h = x->http;
    int rc = m->text ? exchange_add_header(x, "Content-Type", "application/json", err) : 0;
    if (rc == 0)
        rc = exchange_add_header(x, "Accept",
            m->text ? "application/json, text/event-stream" : "text/event-stream", err);
    if (rc == 0 && m->version)
        rc = exchange_add_header(x, "MCP-Protocol-Version", m->version, err);
    if (rc == 0 && h->session && !m->stateless)
        rc = exchange_add_header(x, "Mcp-Session-Id", h->session, err);
    if (rc == 0 && m->stateless && m->method)
        rc = exchange_add_header(x, "Mcp-Method", m->method, err);
    if (rc == 0 && m->stateless && m->name)
        rc = exchange_add_name(x, m->name, err);
    for (size_t i = 0; rc == 0 && i < h->headers.count; i++) {
        cleanup_buf struct buf value = { 0 };
        rc = mcp_spec_expand(h->headers.items[i], &value, err);
        if (rc == 0 && buf_text(&value)[strcspn(buf_text(&value), "\r\n")])
            rc = error_set(err, ERROR_CONFIG, "a header of the MCP server has a line end");
        if (rc == 0)
            rc = list_add(&x->headers, buf_text(&value), err);
    }
    return rc;
}

static int mcp_http_begin(
    struct mcp_http *h, const char *method, const struct mcp_outgoing *m, struct error *err)
{
    struct exchange *x = calloc(1, sizeof *x);
    if (!x)
        return error_memory(err);
    x->http = h;
    x->id = m->id;
    x->is_stateless = m->stateless;
    x->sse = (struct sse){ .limit = MCP_MESSAGE_MAX, .code = ERROR_PROTOCOL };
    TAILQ_INSERT_TAIL(&h->exchanges, x, link);
    x->body = m->text ? text_copy(m->text, m->len) : NULL;
    int rc = m->text && !x->body ? error_memory(err) : exchange_add_headers(x, m, err);
    const struct http_request request = { .method = method,
        .url = h->url_text,
        .headers = (const char *const *)x->headers.items,
        .header_count = x->headers.count,
        .body = x->body,
        .body_len = x->body ? m->len : 0,
        .once = true }; /* a call that a cut connection had is not repeated */
    if (rc == 0)
        rc = http_send(h->http, &request, &exchange_handler, x, &x->transfer, err);
    if (rc < 0)
        exchange_free(x);
    return rc;
}

static int mcp_http_send(struct mcp_transport *t, const struct mcp_outgoing *m, struct error *err)
{
    return mcp_http_begin(mcp_http_of(t), "POST", m, err);
}

static void mcp_http_listen(struct mcp_transport *t, const char *version)
{
    const struct mcp_outgoing nothing = { .version = version };
    (void)mcp_http_begin(mcp_http_of(t), "GET", &nothing, NULL);
}

static void mcp_http_forget(struct mcp_transport *t, uint64_t id)
{
    struct mcp_http *h = mcp_http_of(t);
    struct exchange *x;
    TAILQ_FOREACH(x, &h->exchanges, link)
    if (x->id == id) {
        exchange_free(x);
        return;
    }
}

static void mcp_http_close(struct mcp_transport *t)
{
    struct mcp_http *h = mcp_http_of(t);
    h->closed = true;
    h->depth++;
    mcp_http_leave(h);
}

static const struct mcp_transport_ops mcp_http_ops = { .send = mcp_http_send,
    .forget = mcp_http_forget,
    .listen = mcp_http_listen,
    .close = mcp_http_close };

static int mcp_http_set_up(
    struct mcp_http *h, const struct mcp_spec *spec, const char *ca_file, struct error *err)
{
    cleanup_buf struct buf url = { 0 };
    int rc = mcp_spec_expand(spec->url, &url, err);
    if (rc == 0)
        rc = url_parse(buf_text(&url), "`headers`", &h->url, err);
    if (rc == 0)
        rc = list_add_all(&h->headers, &spec->headers, err);
    h->name = strdup(spec->name);
    h->url_text = strdup(buf_text(&url));
    h->ca_file = ca_file ? strdup(ca_file) : NULL;
    if (rc == 0 && (!h->name || !h->url_text || (ca_file && !h->ca_file)))
        rc = error_memory(err);
    const struct http_options options = { .host = h->url.host,
        .port = h->url.port,
        .connect_options.ca_file = h->ca_file,
        .peer = h->url.peer,
        .codes = { ERROR_LOST, ERROR_LOST, ERROR_LOST, ERROR_PROTOCOL },
        .connections = CONNECTIONS,
        .connect_timeout = CONNECT_SECONDS,
        .response_limit = MCP_MESSAGE_MAX };
    return rc < 0 ? rc : http_open(h->loop, &options, &h->http, err);
}

int mcp_http_open(struct loop *loop, const struct mcp_spec *spec, const char *ca_file,
    const struct mcp_transport_events *events, void *arg, struct mcp_transport **out,
    struct error *err)
{
    struct mcp_http *h = calloc(1, sizeof *h);
    if (!h)
        return error_memory(err);
    h->base = (struct mcp_transport){ &mcp_http_ops, events, arg };
    h->loop = loop;
    TAILQ_INIT(&h->exchanges);
    int rc = mcp_http_set_up(h, spec, ca_file, err);
    if (rc < 0)
        mcp_http_free(h);
    else
        *out = &h->base;
    return rc;
}
