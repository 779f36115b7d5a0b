/* serve/mcp/route.c: the path /mcp: which worker answers, headers, and sessions. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/json/rpc.h"
#include "base/text.h"
#include "serve/mcp/mcp.h"
#include "serve/http/relay.h"

#define SESSION_FIELD "Mcp-Session-Id"
#define VERSION_FIELD "MCP-Protocol-Version"

/* A field without white space behind it, which libmicrohttpd leaves there. False: there is none, or
 * it does not fit. */
static bool mcp_field(struct request *r, const char *name, char *out, size_t size)
{
    const char *value = request_header_of(r, name);
    size_t len = value ? strlen(value) : 0;
    while (len > 0 && (value[len - 1] == ' ' || value[len - 1] == '\t'))
        len--;
    if (!value || len >= size)
        return false;
    memcpy(out, value, len);
    out[len] = '\0';
    return true;
}

static bool route_is_stateless(struct request *r)
{
    char version[64];
    bool has = request_header_of(r, VERSION_FIELD) != NULL;
    return has && !(mcp_field(r, VERSION_FIELD, version, sizeof version) &&
                      mcp_version_is_stateful(version));
}

/* A session's id names its worker. */
static bool mcp_claims(struct request *r, const char *path)
{
    if (strcmp(path, "/mcp") != 0)
        return false;
    if (route_is_stateless(r) || !mcp_field(r, SESSION_FIELD, r->id, sizeof r->id))
        r->id[0] = '\0';
    return true;
}

/* Requests of 2026-07-28 come to the worker of their account; others begin a session. */
static unsigned mcp_place(struct request *r)
{
    if (route_is_stateless(r))
        return relay_place_by(r->server, r->account->key.id);
    return relay_place(r->server);
}

static int refusal_code(unsigned status, const char *code)
{
    if (strcmp(code, "session") == 0)
        return RPC_NO_SESSION;
    return status >= 500 ? RPC_INTERNAL : RPC_REQUEST;
}

/* The errors of HTTP, in the form of the protocol. */
static void mcp_refuse(struct request *r, unsigned status, const char *code, const char *text)
{
    cleanup_json struct json_object *o = rpc_error(NULL, refusal_code(status, code), text, NULL);
    size_t len = 0;
    const char *json = o ? json_text(o, &len) : NULL;
    if (json)
        request_reply(r, status, "application/json", json, len);
    else
        request_reply(r, status, NULL, NULL, 0);
}

/* Whether a list of media types has one of these, with any parameters. */
static bool accept_has(const char *accept, const char *type)
{
    size_t n = strlen(type);
    for (const char *at = accept; *at; at += strcspn(at, ","), at += *at == ',') {
        at += strspn(at, " \t");
        if (strncasecmp(at, type, n) == 0 && strchr(";, \t", at[n]))
            return true;
    }
    return false;
}

static bool mcp_check_accept(struct request *r, bool needs_json)
{
    const char *accept = request_header_of(r, "Accept");
    if (!accept || accept_has(accept, "*/*"))
        return true;
    if (accept_has(accept, "text/event-stream") &&
        (!needs_json || accept_has(accept, "application/json") ||
            accept_has(accept, "application/*")))
        return true;
    request_refuse(r, 406, "accept", "accept both application/json and text/event-stream");
    return false;
}

static bool mcp_check_type(struct request *r)
{
    const char *type = request_header_of(r, MHD_HTTP_HEADER_CONTENT_TYPE);
    if (type && accept_has(type, "application/json"))
        return true;
    request_refuse(r, 415, "media_type", "send one message as application/json");
    return false;
}

/* The session that the request names, of its account; NULL: the request was refused. */
static struct mcp_http *mcp_session_of_request(struct request *r)
{
    const char *id = request_header_of(r, SESSION_FIELD);
    struct mcp_http *h = r->id[0] ? mcp_http_find(r->server->mcp, r->id) : NULL;
    if (h && h->party.account != r->account)
        h = NULL;
    if (!id)
        request_refuse(r, 400, "argument",
            "send " SESSION_FIELD
            ", which the answer to initialize had, or a request of " MCP_STATELESS_VERSION);
    else if (!h)
        request_refuse(r, 404, "session", "there is no such session; it may have ended");
    if (h)
        h->used_ns = clock_ns();
    return h;
}

/* A field that may be =?base64?…?= (free); NULL: it is absent, or not what it says. */
static char *mcp_decode_field(struct request *r, const char *name)
{
    static const char prefix[] = "=?base64?", suffix[] = "?=";
    char value[16 << 10]; /* as much as a whole head */
    size_t n = 0;
    if (!mcp_field(r, name, value, sizeof value))
        return NULL;
    size_t len = strlen(value);
    if (len < sizeof prefix + sizeof suffix - 2 ||
        strncasecmp(value, prefix, sizeof prefix - 1) != 0 || strcmp(value + len - 2, suffix) != 0)
        return text_copy(value, len);
    char *text =
        json_base64_bytes(value + sizeof prefix - 1, len - (sizeof prefix + sizeof suffix - 2), &n);
    if (text && memchr(text, '\0', n)) {
        free(text);
        return NULL;
    }
    char *copy = text ? text_copy(text, n) : NULL;
    free(text);
    return copy;
}

/* Gives the message to src/mcp; the request is answered now or later. */
static void mcp_take(struct request *r, struct mcp_peer *peer, struct mcp_stream *st)
{
    cleanup_free char *name = mcp_decode_field(r, "Mcp-Name");
    char version[64], method[128];
    bool has_version = mcp_field(r, VERSION_FIELD, version, sizeof version);
    bool has_method = mcp_field(r, "Mcp-Method", method, sizeof method);
    struct mcp_envelope envelope = { .stream = st,
        .is_checked = true,
        .is_shared = !st->session,
        .version = has_version ? version : NULL,
        .method = has_method ? method : NULL,
        .name = name };
    mcp_receive(peer, &envelope, buf_text(&r->body), r->body.len);
    if (r->state == st)
        snprintf(r->about, sizeof r->about, "%s", envelope.about);
}

/* What is not a request is acknowledged without a body. */
static void mcp_acknowledge(struct request *r, struct mcp_stream *st)
{
    r->state = NULL;
    r->on_gone = NULL;
    mcp_stream_free(st);
    request_reply(r, 202, NULL, NULL, 0);
}

static void mcp_post_stateless(struct request *r)
{
    struct mcp_service *service = r->server->mcp;
    struct mcp_user *user = mcp_user_of(service, r->account);
    if (!user) {
        request_refuse_memory(r);
        return;
    }
    struct mcp_stream *st = mcp_stream_new(r, service, NULL, user);
    if (!st)
        return;
    mcp_take(r, user->peer, st);
    if (!r->reply && r->state == st && !mcp_has(user->peer, st))
        mcp_acknowledge(r, st);
}

static void mcp_post_session(struct request *r, struct mcp_http *h)
{
    struct mcp_stream *st = mcp_stream_new(r, h->service, h, NULL);
    if (!st)
        return;
    mcp_take(r, h->peer, st);
    if (r->reply || r->state != st)
        return;
    if (!mcp_has(h->peer, st))
        mcp_acknowledge(r, st);
    else if (strcmp(mcp_version(h->peer), "2025-11-25") == 0)
        mcp_stream_begin(st); /* so that the client can come back for the answer */
}

/* A message without a session may begin one. */
static void mcp_post_first(struct request *r)
{
    struct mcp_http *h = mcp_http_new(r->server->mcp, r->account);
    if (!h) {
        request_refuse(r, 429, "sessions", "there are too many sessions; end some");
        request_header(r, MHD_HTTP_HEADER_RETRY_AFTER, "1");
        return;
    }
    struct mcp_stream *st = mcp_stream_new(r, h->service, h, NULL);
    if (st)
        mcp_take(r, h->peer, st);
    if (st && !r->reply && r->state == st) { /* a notification: nothing to answer in a session */
        r->state = NULL;
        r->on_gone = NULL;
        mcp_stream_free(st);
        (void)mcp_session_of_request(r);
    }
    if (mcp_version(h->peer)[0])
        return;
    r->state = NULL;
    mcp_http_end(h);
}

static void handle_mcp_post(struct request *r)
{
    if (!mcp_check_accept(r, true) || !mcp_check_type(r))
        return;
    if (route_is_stateless(r)) {
        mcp_post_stateless(r);
        return;
    }
    if (!request_header_of(r, SESSION_FIELD)) {
        mcp_post_first(r);
        return;
    }
    struct mcp_http *h = mcp_session_of_request(r);
    if (h)
        mcp_post_session(r, h);
}

/* Last-Event-ID: the stream and the number of the last event that the client has. */
static void mcp_resume(struct request *r, struct mcp_http *h, const char *last)
{
    unsigned stream = 0, number = 0;
    int end = 0;
    bool ok = sscanf(last, "%9u-%9u%n", &stream, &number, &end) == 2 && last[end] == '\0';
    struct mcp_stream *st = h->streams;
    while (ok && st && st->number != stream)
        st = st->next;
    if (!ok || !st || number > st->last)
        request_refuse(r, 400, "argument", "the events behind this Last-Event-ID are not kept");
    else
        mcp_stream_attach(st, r, number);
}

static void handle_mcp_get(struct request *r)
{
    if (route_is_stateless(r)) {
        request_refuse(r, 405, "method", "requests of " MCP_STATELESS_VERSION " are POST");
        request_header(r, MHD_HTTP_HEADER_ALLOW, "POST");
        return;
    }
    struct mcp_http *h = mcp_check_accept(r, false) ? mcp_session_of_request(r) : NULL;
    const char *last = request_header_of(r, "Last-Event-ID");
    if (!h)
        return;
    if (r->server->draining) {
        request_refuse(r, 503, "draining", "the server is stopping; use another one");
        return;
    }
    if (last) {
        mcp_resume(r, h, last);
        return;
    }
    for (struct mcp_stream *st = h->streams; st; st = st->next)
        if (st->is_listening && !st->r) { /* messages may wait there */
            mcp_stream_attach(st, r, st->sent);
            return;
        }
    struct mcp_stream *st = mcp_http_may_listen(h) ? mcp_stream_new(r, h->service, h, NULL) : NULL;
    if (!st) {
        request_refuse(r, 429, "streams", "the session has too many streams");
        return;
    }
    st->is_listening = true;
    mcp_stream_begin(st);
}

static void handle_mcp_delete(struct request *r)
{
    if (route_is_stateless(r)) {
        request_refuse(r, 405, "method", "requests of " MCP_STATELESS_VERSION " are POST");
        request_header(r, MHD_HTTP_HEADER_ALLOW, "POST");
        return;
    }
    struct mcp_http *h = mcp_session_of_request(r);
    if (!h)
        return;
    mcp_http_end(h);
    request_reply(r, 204, NULL, NULL, 0);
}

static const struct route mcp_rows[] = {
    { "POST", "/mcp", BODY_BYTES, NULL, NULL, 200, "application/json", NULL,
        "a message of the Model Context Protocol", handle_mcp_post, SCOPE_SANDBOXES },
    { "GET", "/mcp", BODY_NONE, NULL, NULL, 200, "text/event-stream", NULL,
        "messages of a session that belong to no request, or that a cut stream still has",
        handle_mcp_get, SCOPE_SANDBOXES },
    { "DELETE", "/mcp", BODY_NONE, NULL, NULL, 204, NULL, NULL, "end a session", handle_mcp_delete,
        SCOPE_SANDBOXES },
};

const struct routes mcp_routes = { .rows = mcp_rows,
    .count = array_length(mcp_rows),
    .claims = mcp_claims,
    .place = mcp_place,
    .knows_lost = true,
    .refuse = mcp_refuse };
