/* mcp/peer.c: connections: messages, versions, and the table of methods. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "mcp/run.h"
#include "mcp/session.h"

static const char stateless_version[] = MCP_STATELESS_VERSION;
/* With `initialize`, the newest first. */
static const char *const versions[] = { "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05" };

static const char instructions[] =
    "Droste runs Python in sandboxes whose variables persist. Load large files with load_context: "
    "the text stays in a variable of the session, and you look at it with run_python (slices, "
    "regular expressions, pandas) instead of reading it whole. `ask` answers a question about "
    "files that are far longer than a model's context window. Sandboxes have no network unless the "
    "operator allows it.";

bool mcp_version_is_stateful(const char *version)
{
    for (size_t i = 0; i < array_length(versions); i++)
        if (strcmp(versions[i], version) == 0)
            return true;
    return false;
}

enum { STATEFUL = 1, STATELESS = 2, BOTH = STATEFUL | STATELESS, CACHED = 4, ASKS = 8 };

static void method_initialize(struct mcp_call *c);
static void method_discover(struct mcp_call *c);
static void method_ping(struct mcp_call *c);

static const struct method {
    const char *name;
    int flags; /* ASKS: may be answered with questions */
    void (*handle)(struct mcp_call *c);
} methods[] = {
    { "initialize", STATEFUL, method_initialize },
    { "ping", STATEFUL, method_ping },
    { "logging/setLevel", STATEFUL, mcp_log_set_level },
    { "resources/subscribe", STATEFUL, mcp_resources_subscribe },
    { "resources/unsubscribe", STATEFUL, mcp_resources_unsubscribe },
    { "server/discover", STATELESS, method_discover },
    { "subscriptions/listen", STATELESS, mcp_subscriptions_listen },
    { "tools/list", BOTH | CACHED, mcp_tools_list },
    { "tools/call", BOTH | ASKS, mcp_tools_call },
    { "resources/list", BOTH | CACHED, mcp_resources_list },
    { "resources/templates/list", BOTH | CACHED, mcp_resources_templates },
    { "resources/read", BOTH | CACHED | ASKS, mcp_resources_read },
    { "prompts/list", BOTH | CACHED, mcp_prompts_list },
    { "prompts/get", BOTH | ASKS, mcp_prompts_get },
    { "completion/complete", BOTH, mcp_complete },
};

static struct json_object *server_info(void)
{
    struct json_object *o = json_object_new_object();
    if (o && json_put_text(o, "name", "droste") && json_put_text(o, "title", "Droste") &&
        json_put_text(o, "version", droste_version()))
        return o;
    json_object_put(o);
    return NULL;
}

/* Adds what both kinds of handshake tell. */
static bool server_describe(const struct mcp_server *server, struct json_object *o)
{
    const char *changes =
        server->extension && server->extension->lists_change ? "{\"listChanged\":true}" : "{}";
    cleanup_free char *can = text_printf(
        "{\"tools\":%s,\"prompts\":%s,\"resources\":{\"subscribe\":true,\"listChanged\":true},"
        "\"completions\":{},\"logging\":{}}",
        changes, changes);
    return can && mcp_put_written(o, "capabilities", can) &&
           json_put_text(o, "instructions", instructions);
}

static void method_initialize(struct mcp_call *c)
{
    const char *asked = json_get_string(c->params, "protocolVersion", NULL);
    if (!asked) {
        mcp_call_fail(c, RPC_PARAMS, "initialize needs `protocolVersion`");
        return;
    }
    const char *agreed = mcp_version_is_stateful(asked) ? asked : versions[0];
    struct json_object *can = json_get_typed(c->params, "capabilities", json_type_object);
    struct json_object *o = json_object_new_object();
    if (o &&
        !(json_put_text(o, "protocolVersion", agreed) && server_describe(c->peer->mcp->server, o) &&
            json_put(o, "serverInfo", server_info()))) {
        json_object_put(o);
        o = NULL;
    }
    if (o) {
        snprintf(c->peer->version, sizeof c->peer->version, "%s", agreed);
        json_object_put(c->peer->capabilities);
        c->peer->capabilities = can ? json_object_get(can) : NULL;
    }
    mcp_call_answer(c, o);
}

static void method_discover(struct mcp_call *c)
{
    struct json_object *o = json_object_new_object(), *list = json_object_new_array();
    bool ok =
        o && list && json_object_array_add(list, json_object_new_string(stateless_version)) == 0;
    if (ok)
        ok = json_put(o, "supportedVersions", steal(&list)) &&
             server_describe(c->peer->mcp->server, o) &&
             json_put(o, "ttlMs", json_object_new_int(3600000)) &&
             json_put_text(o, "cacheScope", "public");
    json_object_put(list);
    if (!ok) {
        json_object_put(o);
        o = NULL;
    }
    mcp_call_answer(c, o);
}

static void method_ping(struct mcp_call *c)
{
    mcp_call_answer(c, json_object_new_object());
}

/* ---- messages ---- */

static bool id_is(struct json_object *a, struct json_object *b)
{
    return a && b && json_object_equal(a, b);
}

static void peer_cancel(struct mcp_peer *peer, struct json_object *params)
{
    struct json_object *id = NULL;
    if (!params || !json_object_object_get_ex(params, "requestId", &id))
        return;
    for (struct mcp_call *c = peer->calls; c; c = c->next)
        if (id_is(c->id, id)) {
            mcp_call_cancel(c);
            return;
        }
}

static void call_refuse_version(struct mcp_call *c, const char *version)
{
    struct json_object *data = json_object_new_object(), *list = json_object_new_array();
    if (data && list) {
        json_object_array_add(list, json_object_new_string(stateless_version));
        json_put(data, "supported", steal(&list));
        json_put_text(data, "requested", version);
    }
    json_object_put(list);
    mcp_call_fail_with(c, RPC_VERSION, data, "this version of the protocol is not supported");
}

/* What the transport says of the message must be what it is. False: it was refused. */
static bool call_check_envelope(
    struct mcp_call *c, const struct mcp_envelope *envelope, const char *version)
{
    static const char *const named[] = { "tools/call", "prompts/get", "resources/read" };
    const char *name = NULL;
    for (size_t i = 0; i < array_length(named); i++)
        if (strcmp(c->method, named[i]) == 0)
            name = json_get_string(c->params, i == 2 ? "uri" : "name", NULL);
    const struct {
        const char *what, *says, *is;
    } rows[] = { { "version", envelope->version, version },
        { "method", envelope->method, c->method }, { "name", envelope->name, name } };
    for (size_t i = 0; i < array_length(rows); i++) {
        bool agrees = rows[i].is ? rows[i].says && strcmp(rows[i].says, rows[i].is) == 0
                                 : i == 2; /* other methods need no name */
        if (agrees)
            continue;
        mcp_call_fail(c, RPC_HEADER, "the %s of the message is not what came with it: '%.200s'",
            rows[i].what, rows[i].says ? rows[i].says : "");
        return false;
    }
    return true;
}

/* The version of a request's own. False: it was refused. */
static bool call_check_version(struct mcp_call *c, const struct mcp_envelope *envelope)
{
    struct json_object *meta = json_get_typed(c->params, "_meta", json_type_object);
    const char *version = json_get_string(meta, META "protocolVersion", NULL);
    const char *outer = envelope && envelope->is_checked ? envelope->version : NULL;
    c->is_stateless = version || (outer && strcmp(outer, stateless_version) == 0);
    c->capabilities = c->peer->capabilities;
    if (!c->is_stateless && (!outer || mcp_version_is_stateful(outer)))
        return true;
    if (!version) {
        if (c->is_stateless)
            mcp_call_fail(c, RPC_PARAMS, "`_meta` needs `" META "protocolVersion`");
        else
            call_refuse_version(c, outer);
        return false;
    }
    if (envelope && envelope->is_checked && !call_check_envelope(c, envelope, version))
        return false;
    if (strcmp(version, stateless_version) != 0) {
        call_refuse_version(c, version);
        return false;
    }
    c->capabilities = json_get_typed(meta, META "clientCapabilities", json_type_object);
    c->log_level = json_get_string(meta, META "logLevel", NULL);
    if (c->capabilities)
        return true;
    mcp_call_fail(c, RPC_PARAMS, "`_meta` needs `" META "clientCapabilities`, an object");
    return false;
}

static void call_take_progress_token(struct mcp_call *c)
{
    struct json_object *meta = json_get_typed(c->params, "_meta", json_type_object);
    if (meta && json_object_object_get_ex(meta, "progressToken", &c->progress_token) &&
        !json_object_is_type(c->progress_token, json_type_string) &&
        !json_object_is_type(c->progress_token, json_type_int))
        c->progress_token = NULL;
}

static void call_tell_about(const struct mcp_call *c, struct mcp_envelope *envelope)
{
    const char *name = json_get_string(c->params, "name", "");
    snprintf(envelope->about, sizeof envelope->about, "%s%s%s", c->method,
        text_is_name(name) ? " " : "", text_is_name(name) ? name : "");
}

static void call_dispatch(struct mcp_call *c, struct mcp_envelope *envelope)
{
    const struct method *method = NULL;
    c->is_refusal = true;
    if (!call_check_version(c, envelope))
        return;
    for (size_t i = 0; i < array_length(methods) && !method; i++)
        if (strcmp(methods[i].name, c->method) == 0 &&
            (methods[i].flags & (c->is_stateless ? STATELESS : STATEFUL)))
            method = &methods[i];
    if (!method) {
        mcp_call_fail(c, RPC_METHOD, "there is no method '%s'", c->method);
        return;
    }
    if (!c->is_stateless && !c->peer->version[0] && method->handle != method_initialize &&
        method->handle != method_ping) {
        mcp_call_fail(
            c, RPC_REQUEST, "send `initialize` first, or a request with a version in `_meta`");
        return;
    }
    if (envelope)
        call_tell_about(c, envelope);
    c->is_refusal = false;
    c->is_cached = method->flags & CACHED;
    call_take_progress_token(c);
    if (c->is_stateless && (method->flags & ASKS) && mcp_call_resume(c))
        return;
    method->handle(c);
}

static bool peer_has(const struct mcp_peer *peer, struct json_object *id)
{
    for (const struct mcp_call *c = peer->calls; c; c = c->next)
        if (id_is(c->id, id))
            return true;
    return false;
}

static void peer_take_note(struct mcp_peer *peer, const struct rpc_message *m)
{
    if (strcmp(m->method, "notifications/cancelled") == 0)
        peer_cancel(peer, m->params);
    if (strcmp(m->method, "notifications/roots/list_changed") == 0) {
        json_object_put(peer->roots);
        peer->roots = NULL;
    }
}

static struct mcp_call *call_new(struct mcp_peer *peer, const struct mcp_envelope *envelope)
{
    struct mcp_call *c = calloc(1, sizeof *c);
    if (!c)
        return NULL;
    c->peer = peer;
    c->serial = ++peer->mcp->server->call_count;
    c->stream = envelope ? envelope->stream : NULL;
    c->is_stateless = envelope && envelope->is_shared;
    c->next = peer->calls;
    peer->calls = c;
    return c;
}

void mcp_receive(struct mcp_peer *peer, struct mcp_envelope *envelope, const char *text, size_t len)
{
    struct rpc_message m;
    struct error err;
    int code = 0;
    int rc = rpc_read(text, len, &m, &code, &err);
    if (rc == 0 && m.kind != RPC_CALL) {
        if (m.kind == RPC_NOTE && !(envelope && envelope->is_shared))
            peer_take_note(peer, &m);
        else if (m.kind == RPC_ANSWER)
            mcp_peer_take_answer(peer, &m);
        json_object_put(m.tree);
        return;
    }
    struct mcp_call *c = call_new(peer, envelope);
    if (!c) {
        json_object_put(m.tree);
        return;
    }
    c->message = m.tree;
    c->params = m.params;
    c->method = m.method;
    c->is_refusal = true;
    /* Clients of 2026-07-28 that share a connection choose their ids alone. */
    bool is_double = m.id && !(envelope && envelope->is_shared) && peer_has(peer, m.id);
    c->id = is_double ? NULL : m.id;
    if (rc < 0)
        mcp_call_fail(c, code, "%s", err.text);
    else if (is_double)
        mcp_call_fail(c, RPC_REQUEST, "a request with this id is under way");
    else
        call_dispatch(c, envelope);
}

/* ---- connections ---- */

struct mcp_peer *mcp_connect(struct mcp *mcp, mcp_send_fn *send, void *arg)
{
    struct mcp_peer *peer = calloc(1, sizeof *peer);
    if (!peer)
        return NULL;
    peer->mcp = mcp;
    peer->send = send;
    peer->arg = arg;
    peer->next = mcp->peers;
    mcp->peers = peer;
    return peer;
}

static void peer_send_nothing(void *arg, const struct mcp_message *message)
{
    (void)arg;
    (void)message;
}

void mcp_disconnect(struct mcp_peer *peer)
{
    if (!peer)
        return;
    peer->send = peer_send_nothing;
    while (peer->calls)
        mcp_call_cancel(peer->calls);
    for (struct mcp_peer **at = &peer->mcp->peers; *at; at = &(*at)->next)
        if (*at == peer) {
            *at = peer->next;
            break;
        }
    mcp_subscriptions_free(peer);
    json_object_put(peer->capabilities);
    json_object_put(peer->roots);
    free(peer);
}

void mcp_cancel(struct mcp_peer *peer, void *stream)
{
    for (struct mcp_call *c = peer->calls; c; c = c->next)
        if (c->stream == stream) {
            c->stream = NULL;
            mcp_call_cancel(c);
            return;
        }
}

bool mcp_has(const struct mcp_peer *peer, const void *stream)
{
    for (const struct mcp_call *c = peer->calls; c; c = c->next)
        if (c->stream == stream)
            return true;
    return false;
}

const char *mcp_version(const struct mcp_peer *peer)
{
    return peer->version;
}

size_t mcp_pending(const struct mcp_peer *peer)
{
    size_t n = 0;
    for (const struct mcp_call *c = peer->calls; c; c = c->next)
        n++;
    return n;
}

/* ---- users ---- */

struct mcp *mcp_new(struct mcp_server *server, void *user)
{
    struct mcp *mcp = calloc(1, sizeof *mcp);
    if (!mcp)
        return NULL;
    mcp->server = server;
    mcp->user = user;
    mcp->next = server->users;
    server->users = mcp;
    return mcp;
}

void mcp_free(struct mcp *mcp)
{
    if (!mcp)
        return;
    while (mcp->peers)
        mcp_disconnect(mcp->peers);
    mcp_runs_free(mcp);
    mcp_sessions_free(mcp);
    for (struct mcp **at = &mcp->server->users; *at; at = &(*at)->next)
        if (*at == mcp) {
            *at = mcp->next;
            break;
        }
    free(mcp);
}

int mcp_server_new(
    droste *d, const struct mcp_options *options, struct mcp_server **out, struct error *err)
{
    size_t count = 0;
    while (options->paths && options->paths[count])
        count++;
    struct mcp_server *server = calloc(1, sizeof *server);
    char **paths = calloc(count + 1, sizeof *paths);
    *out = NULL;
    if (!server || !paths) {
        free(server);
        free(paths);
        return error_memory(err);
    }
    server->d = d;
    server->paths = paths;
    server->max_sessions = options->max_sessions;
    server->host = options->host ? options->host : &mcp_own_host;
    server->extension = options->extension;
    server->roots_bound = options->roots_bound;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < count; i++)
        if (!(paths[i] = realpath(options->paths[i], NULL)))
            rc = error_set_errno(err, ERROR_NOT_FOUND, "the path '%s'", options->paths[i]);
    if (rc == 0)
        rc = mcp_tools_prepare(server, err);
    if (rc == 0)
        mcp_runs_prepare(server);
    if (rc < 0)
        mcp_server_free(server);
    else
        *out = server;
    return rc;
}

void mcp_server_free(struct mcp_server *server)
{
    if (!server)
        return;
    while (server->users)
        mcp_free(server->users);
    mcp_tools_free(server);
    for (char **path = server->paths; *path; path++)
        free(*path);
    free(server->paths);
    free(server);
}
