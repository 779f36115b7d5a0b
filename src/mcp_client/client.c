/* mcp_client/client.c: see client.h.
 *
 *     OFF ── a caller waits, or calls ─► STARTING ── handshake ──► ON ── listing ──► listed
 *      ▲                                     │                      │
 *      └──────────── lost, or too slow ──────┴──────────────────────┘
 *
 * The handshake begins with `initialize`, which most servers know; one that does not know it is
 * asked `server/discover`. (The other order would end servers that read nothing before
 * `initialize`.) A request that was made before the connection is on is sent then. When a
 * connection is lost, its requests fail: the server may have acted on them. Over HTTP, a server
 * that has forgotten the session has not, so such a request is sent once more.
 *
 * Callbacks may do anything, so the client holds itself while it is in use.
 */
#include "mcp_client/client.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/json/fields.h"
#include "base/json/rpc.h"
#include "base/text.h"
#include "mcp_client/spec.h"
#include "mcp_client/tool_list.h"
#include "mcp_client/transport.h"

#define STATELESS_VERSION "2026-07-28"

/* START_MS includes what a package runner downloads. A server may write this many lines that are
 * no messages, such as what it logs. */
enum { START_MS = 60000, BAD_MAX = 1000, WORDS_MAX = 1000 };

static const char *const stateful_versions[] = { "2025-11-25", "2025-06-18", "2025-03-26",
    "2024-11-05" };

enum mcp_client_state { MCP_CLIENT_OFF, MCP_CLIENT_STARTING, MCP_CLIENT_ON };

struct mcp_request {
    TAILQ_ENTRY(mcp_request) link;
    struct mcp_client *client;
    uint64_t id; /* 0: not sent yet */
    const char *method;
    char *tool;        /* NULL: none */
    struct buf params; /* members, without the braces */
    bool is_own;       /* part of the handshake, or a page of the list */
    bool is_again;     /* was sent to a session that was forgotten */
    bool is_over;      /* its connection is */
    mcp_reply_fn *fn;
    void *arg;
};
TAILQ_HEAD(mcp_request_list, mcp_request);

struct mcp_client {
    struct mcp_spec spec;
    struct mcp_client_options options;
    char *ca_file;
    enum mcp_client_state state;
    struct mcp_transport *transport; /* NULL: OFF */
    char version[16];
    bool stateless;
    struct timer *patience; /* of the handshake and the list */
    uint64_t next_id;
    unsigned bad; /* lines that were not messages */
    struct mcp_request_list requests;
    TAILQ_HEAD(, mcp_client_wait) waits;
    struct mcp_request *listing; /* a page of the list; NULL: none */
    struct tool_list tools, pages;
    bool listed;       /* `tools` is the server's list */
    bool listed_here;  /* in this connection */
    uint64_t stale_ns; /* when it is not current any more; 0: until the server says so */
    unsigned references;
};

/* ---- its life ---- */

struct mcp_client *mcp_client_hold(struct mcp_client *c)
{
    c->references++;
    return c;
}

static void request_free(struct mcp_request *q)
{
    TAILQ_REMOVE(&q->client->requests, q, link);
    if (q->client->listing == q)
        q->client->listing = NULL;
    buf_free(&q->params);
    free(q->tool);
    free(q);
}

void mcp_client_release(struct mcp_client *c)
{
    if (!c || --c->references > 0)
        return;
    struct mcp_request *q;
    while ((q = TAILQ_FIRST(&c->requests)))
        request_free(q);
    if (c->transport)
        c->transport->ops->close(c->transport);
    timer_free(c->patience);
    tool_list_free(&c->tools);
    tool_list_free(&c->pages);
    mcp_spec_free(&c->spec);
    free(c->ca_file);
    free(c);
}

/* ---- requests ---- */

/* The whole message. `id` 0: a notification. */
static int client_write(struct mcp_client *c, const char *method, uint64_t id,
    const struct buf *params, struct buf *out, struct error *err)
{
    buf_puts(out, "{\"jsonrpc\":\"2.0\"");
    if (id)
        buf_printf(out, ",\"id\":%llu", (unsigned long long)id);
    buf_printf(out, ",\"method\":\"%s\",\"params\":{", method);
    if (params)
        buf_append(out, params->data, params->len);
    if (c->stateless)
        buf_printf(out,
            "%s\"_meta\":{\"io.modelcontextprotocol/protocolVersion\":\"%s\","
            "\"io.modelcontextprotocol/clientCapabilities\":{},"
            "\"io.modelcontextprotocol/clientInfo\":{\"name\":\"droste\",\"version\":\"%s\"}}",
            params && params->len ? "," : "", STATELESS_VERSION, DROSTE_VERSION);
    buf_puts(out, "}}");
    return buf_failed(out) ? error_memory(err) : 0;
}

static int client_send(struct mcp_client *c, const char *method, uint64_t id, const char *tool,
    const struct buf *params, struct error *err)
{
    cleanup_buf struct buf text = { 0 };
    int rc = client_write(c, method, id, params, &text, err);
    const struct mcp_outgoing m = { .text = text.data,
        .len = text.len,
        .id = id,
        .method = method,
        .name = tool,
        .version = c->version[0] ? c->version : NULL,
        .stateless = c->stateless };
    return rc < 0 ? rc : c->transport->ops->send(c->transport, &m, err);
}

/* Ends a request. Takes the result. */
static void request_done(struct mcp_request *q, struct json_object *result, const struct error *why)
{
    mcp_reply_fn *fn = q->fn;
    void *arg = q->arg;
    request_free(q);
    fn(arg, result, why);
}

static void request_send(struct mcp_request *q)
{
    struct mcp_client *c = q->client;
    struct error err = { 0 };
    q->id = ++c->next_id;
    if (client_send(c, q->method, q->id, q->tool, &q->params, &err) < 0)
        request_done(q, NULL, &err);
}

static struct mcp_request *request_new(
    struct mcp_client *c, const char *method, mcp_reply_fn *fn, void *arg)
{
    struct mcp_request *q = calloc(1, sizeof *q);
    if (!q)
        return NULL;
    *q = (struct mcp_request){ .client = c, .method = method, .fn = fn, .arg = arg };
    TAILQ_INSERT_TAIL(&c->requests, q, link);
    return q;
}

static struct mcp_request *client_find(struct mcp_client *c, uint64_t id)
{
    struct mcp_request *q;
    TAILQ_FOREACH(q, &c->requests, link)
    if (q->id == id)
        return q;
    return NULL;
}

/* ---- the end of a connection ---- */

static struct mcp_request *client_first_over(struct mcp_client *c)
{
    struct mcp_request *q;
    TAILQ_FOREACH(q, &c->requests, link)
    if (q->is_over)
        return q;
    return NULL;
}

static void client_tell_waits(struct mcp_client *c, const struct error *why)
{
    struct mcp_client_wait *w;
    while ((w = TAILQ_FIRST(&c->waits))) {
        TAILQ_REMOVE(&c->waits, w, link);
        w->waits = false;
        w->done(w->arg, why);
    }
}

/* Ends the connection and its requests, but for one that is kept for the next connection; the
 * waits, too, unless there is one. */
static void client_off(struct mcp_client *c, const struct error *why, struct mcp_request *kept)
{
    struct mcp_transport *t = steal(&c->transport);
    struct mcp_request *q, *next;
    mcp_client_hold(c);
    c->state = MCP_CLIENT_OFF;
    c->version[0] = '\0';
    c->stateless = c->listed_here = false;
    c->bad = 0;
    timer_stop(c->patience);
    tool_list_free(&c->pages);
    if (t)
        t->ops->close(t);
    for (q = TAILQ_FIRST(&c->requests); q; q = next) {
        next = TAILQ_NEXT(q, link);
        if (q->is_own)
            request_free(q);
        else if (q == kept)
            q->id = 0;
        else
            q->is_over = true;
    }
    while ((q = client_first_over(c))) /* a caller may make another call */
        request_done(q, NULL, why);
    mcp_client_release(c);
}

static void client_fail(struct mcp_client *c, const struct error *why)
{
    mcp_client_hold(c);
    client_off(c, why, NULL);
    if (c->state == MCP_CLIENT_OFF)
        client_tell_waits(c, why);
    mcp_client_release(c);
}

static void client_too_slow(void *arg)
{
    struct mcp_client *c = arg;
    struct error err = { 0 };
    error_set(&err, ERROR_LOST, "the MCP server '%.64s' did not answer within %d s of its start",
        c->spec.name, START_MS / 1000);
    client_fail(c, &err);
}

/* ---- the list of functions ---- */

static void client_list_page(struct mcp_client *c, const char *cursor);

static void client_listed(struct mcp_client *c, struct json_object *page)
{
    int64_t ttl_ms = json_get_int(page, "ttlMs", 0);
    tool_list_free(&c->tools);
    c->tools = c->pages;
    c->pages = (struct tool_list){ 0 };
    c->listed = c->listed_here = true;
    c->stale_ns = 0;
    if (c->stateless && ttl_ms >= 0 && ttl_ms < INT64_C(86400000))
        c->stale_ns = clock_ns() + (uint64_t)ttl_ms * 1000000;
    timer_stop(c->patience);
    if (c->tools.skipped[0] && c->options.notice) {
        cleanup_free char *text =
            text_printf("the MCP server '%.64s': %s", c->spec.name, c->tools.skipped);
        if (text)
            c->options.notice(c->options.arg, text);
    }
    client_tell_waits(c, NULL);
}

static void client_take_page(void *arg, struct json_object *result, const struct error *why)
{
    struct mcp_client *c = arg;
    struct error err = { 0 };
    if (why) {
        client_fail(c, why);
        return;
    }
    int more = tool_list_take(&c->pages, result, &err);
    if (more < 0) {
        error_wrap(&err, "the MCP server '%.64s'", c->spec.name);
        client_fail(c, &err);
    } else if (more) {
        client_list_page(c, json_get_string(result, "nextCursor", NULL));
    } else {
        client_listed(c, result);
    }
    json_object_put(result);
}

/* `cursor` NULL: from the beginning. */
static void client_list_page(struct mcp_client *c, const char *cursor)
{
    struct mcp_request *q = request_new(c, "tools/list", client_take_page, c);
    struct error err = { 0 };
    if (!cursor)
        tool_list_free(&c->pages);
    if (q && cursor)
        field_text(&q->params, "cursor", cursor, strlen(cursor));
    if (!q || buf_failed(&q->params)) {
        error_memory(&err);
        client_fail(c, &err);
        return;
    }
    q->is_own = true;
    c->listing = q;
    timer_start(c->patience, START_MS, 0);
    request_send(q);
}

/* ---- the handshake ---- */

static void client_send_waiting(struct mcp_client *c)
{
    struct mcp_request *q = TAILQ_FIRST(&c->requests), *next;
    while (c->state == MCP_CLIENT_ON && q) {
        next = TAILQ_NEXT(q, link);
        bool waits = q->id == 0;
        if (waits)
            request_send(q);
        q = waits ? TAILQ_FIRST(&c->requests) : next; /* the caller may have changed the list */
    }
}

static void client_on(struct mcp_client *c)
{
    struct error err = { 0 };
    c->state = MCP_CLIENT_ON;
    int rc = c->stateless ? 0 : client_send(c, "notifications/initialized", 0, NULL, NULL, &err);
    if (rc < 0) {
        client_fail(c, &err);
        return;
    }
    if (!c->stateless && c->transport->ops->listen)
        c->transport->ops->listen(c->transport, c->version);
    client_list_page(c, NULL);
    client_send_waiting(c);
}

static void client_handshake(struct mcp_client *c, const char *method, mcp_reply_fn *fn)
{
    struct mcp_request *q = request_new(c, method, fn, c);
    struct error err = { 0 };
    if (q && !c->stateless)
        buf_printf(&q->params,
            "\"protocolVersion\":\"%s\",\"capabilities\":{},\"clientInfo\":{\"name\":\"droste\","
            "\"version\":\"%s\"}",
            stateful_versions[0], DROSTE_VERSION);
    if (!q || buf_failed(&q->params)) {
        error_memory(&err);
        client_fail(c, &err);
        return;
    }
    q->is_own = true;
    request_send(q);
}

static void client_discovered(void *arg, struct json_object *result, const struct error *why)
{
    struct mcp_client *c = arg;
    struct error err = { 0 };
    struct json_object *list = json_get_typed(result, "supportedVersions", json_type_array);
    bool found = false;
    for (size_t i = 0; i < json_length(list); i++) {
        const char *version = json_object_get_string(json_object_array_get_idx(list, i));
        found |= version && strcmp(version, STATELESS_VERSION) == 0;
    }
    if (found) {
        client_on(c);
    } else {
        if (why)
            err = *why;
        else
            error_set(&err, ERROR_PROTOCOL,
                "the MCP server '%.64s' speaks none of the revisions 2024-11-05 to " STATELESS_VERSION,
                c->spec.name);
        client_fail(c, &err);
    }
    json_object_put(result);
}

static void client_initialized(void *arg, struct json_object *result, const struct error *why)
{
    struct mcp_client *c = arg;
    const char *version = json_get_string(result, "protocolVersion", "");
    bool known = false;
    for (size_t i = 0; i < array_length(stateful_versions); i++)
        known |= strcmp(version, stateful_versions[i]) == 0;
    if (known) {
        snprintf(c->version, sizeof c->version, "%s", version);
        client_on(c);
    } else if (c->transport && (!why || why->code != ERROR_LOST)) {
        c->stateless = true;
        snprintf(c->version, sizeof c->version, "%s", STATELESS_VERSION);
        client_handshake(c, "server/discover", client_discovered);
    } else {
        client_fail(c, why);
    }
    json_object_put(result);
}

static const struct mcp_transport_events client_events;

static void client_start(struct mcp_client *c)
{
    struct error err = { 0 };
    const struct mcp_client_options *o = &c->options;
    int rc =
        c->spec.url
            ? mcp_http_open(o->loop, &c->spec, c->ca_file, &client_events, c, &c->transport, &err)
            : mcp_stdio_open(o->loop, &c->spec, &client_events, c, &c->transport, &err);
    if (rc < 0) {
        error_wrap(&err, "mcp-server '%.64s'", c->spec.name);
        if (err.code != ERROR_MEMORY)
            err.code = ERROR_LOST;
        client_fail(c, &err);
        return;
    }
    c->state = MCP_CLIENT_STARTING;
    timer_start(c->patience, START_MS, 0);
    client_handshake(c, "initialize", client_initialized);
}

/* ---- what arrives ---- */

/* The server's own error, as far as it is a text. */
static void client_take_error(
    const struct mcp_client *c, struct json_object *error, struct error *out)
{
    cleanup_buf struct buf seen = { 0 };
    const char *text = json_get_string(error, "message", "it gave no reason");
    text_append_visible(&seen, text, strlen(text));
    size_t n = text_utf8_floor(buf_text(&seen), seen.len, WORDS_MAX);
    error_set(out, ERROR_ARGUMENT, "the MCP server '%.64s' refused: %.*s (error %lld)",
        c->spec.name, (int)n, buf_text(&seen), (long long)json_get_int(error, "code", 0));
}

static void client_take_answer(struct mcp_client *c, const struct rpc_message *m)
{
    struct error err = { 0 };
    struct mcp_request *q = json_object_is_type(m->id, json_type_int)
                                ? client_find(c, json_object_get_uint64(m->id))
                                : NULL;
    if (!q || q->id == 0)
        return; /* it was cancelled, or never asked */
    if (m->error)
        client_take_error(c, m->error, &err);
    else if (!json_object_is_type(m->result, json_type_object))
        error_set(&err, ERROR_PROTOCOL,
            "the MCP server '%.64s' answered %s with a result that is not an object", c->spec.name,
            q->method);
    if (err.code != ERROR_NONE)
        request_done(q, NULL, &err);
    else
        request_done(q, json_object_get(m->result), NULL);
}

/* Answers a request of the server's, which may only ask whether the client is there. */
static void client_take_call(struct mcp_client *c, const struct rpc_message *m)
{
    struct error err = { 0 };
    bool is_ping = strcmp(m->method, "ping") == 0;
    struct json_object *id = json_object_get(m->id);
    cleanup_json struct json_object *answer =
        is_ping ? rpc_result(id, json_object_new_object())
                : rpc_error(id, RPC_METHOD, "this client answers no requests but ping", NULL);
    size_t len;
    const char *text = answer ? json_text(answer, &len) : NULL;
    if (!text)
        return;
    const struct mcp_outgoing out = {
        .text = text, .len = len, .version = c->version[0] ? c->version : NULL
    };
    if (c->transport->ops->send(c->transport, &out, &err) < 0)
        client_fail(c, &err);
}

static void client_message(void *arg, const char *text, size_t len)
{
    struct mcp_client *c = arg;
    struct rpc_message m;
    struct error err = { 0 };
    int code;
    mcp_client_hold(c);
    if (rpc_read(text, len, &m, &code, &err) < 0) {
        if (++c->bad > BAD_MAX) {
            error_wrap(&err, "the MCP server '%.64s' writes what is not MCP", c->spec.name);
            client_fail(c, &err);
        }
    } else if (m.kind == RPC_ANSWER) {
        client_take_answer(c, &m);
    } else if (m.kind == RPC_CALL) {
        client_take_call(c, &m);
    } else if (strcmp(m.method, "notifications/tools/list_changed") == 0) {
        c->listed = false;
    }
    json_object_put(m.tree);
    mcp_client_release(c);
}

static void client_lost(void *arg, enum mcp_loss what, uint64_t id, const struct error *why)
{
    struct mcp_client *c = arg;
    struct mcp_request *q = id ? client_find(c, id) : NULL;
    mcp_client_hold(c);
    bool may_repeat = q && !q->is_again && c->listed_here;
    if (what == MCP_LOSS_REQUEST) {
        if (q)
            request_done(q, NULL, why);
    } else if (what == MCP_LOSS_SESSION && may_repeat) {
        q->is_again = true;
        client_off(c, why, q->is_own ? NULL : q);
        if (c->state == MCP_CLIENT_OFF)
            client_start(c);
    } else {
        client_fail(c, why);
    }
    mcp_client_release(c);
}

static const struct mcp_transport_events client_events = { client_message, client_lost };

/* ---- for users ---- */

int mcp_client_new(const struct mcp_spec *spec, const struct mcp_client_options *options,
    struct mcp_client **out, struct error *err)
{
    struct mcp_client *c = calloc(1, sizeof *c);
    if (!c)
        return error_memory(err);
    c->references = 1;
    c->options = *options;
    TAILQ_INIT(&c->requests);
    TAILQ_INIT(&c->waits);
    c->patience = timer_new(options->loop, client_too_slow, c);
    c->ca_file = options->ca_file ? strdup(options->ca_file) : NULL;
    int rc = mcp_spec_copy(&c->spec, spec, err);
    if (rc == 0 && (!c->patience || (options->ca_file && !c->ca_file)))
        rc = error_memory(err);
    if (rc < 0)
        mcp_client_release(c);
    else
        *out = c;
    return rc;
}

bool mcp_client_is_ready(const struct mcp_client *c)
{
    return c->listed && (c->stale_ns == 0 || clock_ns() < c->stale_ns);
}

void mcp_client_wait_for(struct mcp_client *c, struct mcp_client_wait *wait)
{
    TAILQ_INSERT_TAIL(&c->waits, wait, link);
    wait->waits = true;
    if (c->state == MCP_CLIENT_OFF)
        client_start(c);
    else if (c->state == MCP_CLIENT_ON && !c->listing)
        client_list_page(c, NULL);
}

void mcp_client_stop_waiting(struct mcp_client *c, struct mcp_client_wait *wait)
{
    if (wait->waits)
        TAILQ_REMOVE(&c->waits, wait, link);
    wait->waits = false;
}

const struct mcp_tool *mcp_client_tools(const struct mcp_client *c, size_t *count)
{
    *count = c->tools.count;
    return c->tools.items;
}

const char *mcp_client_name(const struct mcp_client *c)
{
    return c->spec.name;
}

int mcp_client_call(struct mcp_client *c, const char *tool, const char *arguments, size_t len,
    mcp_reply_fn *fn, void *arg, struct mcp_request **out, struct error *err)
{
    struct mcp_request *q = request_new(c, "tools/call", fn, arg);
    if (!q)
        return error_memory(err);
    q->tool = strdup(tool);
    field_text(&q->params, "name", tool, strlen(tool));
    buf_puts(&q->params, ",\"arguments\":");
    buf_append(&q->params, arguments, len);
    if (!q->tool || buf_failed(&q->params)) {
        request_free(q);
        return error_memory(err);
    }
    *out = q;
    if (c->state == MCP_CLIENT_ON)
        request_send(q);
    else if (c->state == MCP_CLIENT_OFF)
        client_start(c);
    return 0;
}

void mcp_client_cancel(struct mcp_request *q)
{
    struct mcp_client *c = q->client;
    cleanup_buf struct buf params = { 0 };
    uint64_t id = q->id;
    request_free(q);
    if (!id || !c->transport)
        return;
    if (c->transport->ops->forget)
        c->transport->ops->forget(c->transport, id);
    buf_printf(&params, "\"requestId\":%llu,\"reason\":\"the caller has stopped waiting\"",
        (unsigned long long)id);
    if (!c->stateless || !c->transport->ops->forget)
        (void)client_send(c, "notifications/cancelled", 0, NULL, &params, NULL);
}
