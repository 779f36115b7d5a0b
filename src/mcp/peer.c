/* mcp/peer.c: connections: messages, versions, and the table of methods. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "mcp/call.h"
#include "mcp/session.h"
#include "mcp/run.h"

#define META "io.modelcontextprotocol/"

static const char stateless_version[] = "2026-07-28";
/* With `initialize`, the newest first. */
static const char *const versions[] = { "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05" };

static const char instructions[] =
    "Droste runs Python in sandboxes whose variables persist. Load large files with load_context: "
    "the text stays in a variable of the session, and you look at it with run_python (slices, "
    "regular expressions, pandas) instead of reading it whole. `ask` answers a question about "
    "files that are far longer than a model's context window. Sandboxes have no network unless the "
    "operator allows it.";

enum { STATEFUL = 1, STATELESS = 2, BOTH = STATEFUL | STATELESS, CACHED = 4 };

static void method_initialize(struct mcp_call *c);
static void method_discover(struct mcp_call *c);
static void method_ping(struct mcp_call *c);

static const struct method {
    const char *name;
    int flags;
    void (*handle)(struct mcp_call *c);
} methods[] = {
    { "initialize", STATEFUL, method_initialize },
    { "ping", STATEFUL, method_ping },
    { "server/discover", STATELESS, method_discover },
    { "tools/list", BOTH | CACHED, mcp_tools_list },
    { "tools/call", BOTH, mcp_tools_call },
    { "resources/list", BOTH | CACHED, mcp_resources_list },
    { "resources/templates/list", BOTH | CACHED, mcp_resources_templates },
    { "resources/read", BOTH | CACHED, mcp_resources_read },
    { "prompts/list", BOTH | CACHED, mcp_prompts_list },
    { "prompts/get", BOTH, mcp_prompts_get },
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
static bool server_describe(struct json_object *o)
{
    static const char capabilities[] = "{\"tools\":{},\"resources\":{},\"prompts\":{}}";
    struct json_object *can = NULL;
    if (json_parse(capabilities, sizeof capabilities - 1, &json_limits_small, &can, NULL) < 0)
        return false;
    return json_put(o, "capabilities", can) && json_put(o, "serverInfo", server_info()) &&
           json_put_text(o, "instructions", instructions);
}

static void method_initialize(struct mcp_call *c)
{
    const char *asked = json_get_string(c->params, "protocolVersion", NULL);
    if (!asked) {
        mcp_call_fail(c, RPC_PARAMS, "initialize needs `protocolVersion`");
        return;
    }
    const char *agreed = versions[0];
    for (size_t i = 0; i < array_length(versions); i++)
        if (strcmp(asked, versions[i]) == 0)
            agreed = versions[i];
    snprintf(c->peer->version, sizeof c->peer->version, "%s", agreed);
    struct json_object *o = json_object_new_object();
    if (o && !(json_put_text(o, "protocolVersion", agreed) && server_describe(o))) {
        json_object_put(o);
        o = NULL;
    }
    mcp_call_answer(c, o);
}

static void method_discover(struct mcp_call *c)
{
    struct json_object *o = json_object_new_object(), *list = json_object_new_array();
    bool ok =
        o && list && json_object_array_add(list, json_object_new_string(stateless_version)) == 0;
    if (ok)
        ok = json_put(o, "supportedVersions", list) && server_describe(o) &&
             json_put(o, "ttlMs", json_object_new_int(3600000)) &&
             json_put_text(o, "cacheScope", "public");
    else
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
        if (id_is(c->id, id) && c->cancel) {
            c->cancel(c);
            return;
        }
}

/* The version of a request's own. False: it was refused. */
static bool call_check_meta(struct mcp_call *c, struct json_object *meta)
{
    const char *version = json_get_string(meta, META "protocolVersion", NULL);
    struct json_object *found;
    c->is_stateless = version != NULL;
    if (!version)
        return true;
    if (strcmp(version, stateless_version) != 0) {
        struct json_object *data = json_object_new_object(), *list = json_object_new_array();
        if (data && list) {
            json_object_array_add(list, json_object_new_string(stateless_version));
            json_put(data, "supported", list);
            json_put_text(data, "requested", version);
        }
        mcp_call_fail_with(c, RPC_VERSION, data, "this version of the protocol is not supported");
        return false;
    }
    if (!json_object_object_get_ex(meta, META "clientCapabilities", &found) ||
        !json_object_is_type(found, json_type_object)) {
        mcp_call_fail(c, RPC_PARAMS, "`_meta` needs `" META "clientCapabilities`, an object");
        return false;
    }
    return true;
}

static void call_dispatch(struct mcp_call *c, const char *name)
{
    struct json_object *meta = json_get_typed(c->params, "_meta", json_type_object);
    if (meta) {
        if (!call_check_meta(c, meta))
            return;
        if (json_object_object_get_ex(meta, "progressToken", &c->progress_token) &&
            !json_object_is_type(c->progress_token, json_type_string) &&
            !json_object_is_type(c->progress_token, json_type_int))
            c->progress_token = NULL;
    }
    for (size_t i = 0; i < array_length(methods); i++) {
        if (strcmp(methods[i].name, name) != 0 ||
            !(methods[i].flags & (c->is_stateless ? STATELESS : STATEFUL)))
            continue;
        if (!c->is_stateless && !c->peer->version[0] && methods[i].handle != method_initialize &&
            methods[i].handle != method_ping)
            mcp_call_fail(c, RPC_REQUEST,
                "send `initialize` first, or a request with a version in "
                "`_meta`");
        else {
            c->is_cached = methods[i].flags & CACHED;
            methods[i].handle(c);
        }
        return;
    }
    mcp_call_fail(c, RPC_METHOD, "there is no method '%s'", name);
}

static bool id_is_valid(struct json_object *id)
{
    return json_object_is_type(id, json_type_string) || json_object_is_type(id, json_type_int);
}

static bool peer_has(const struct mcp_peer *peer, struct json_object *id)
{
    for (const struct mcp_call *c = peer->calls; c; c = c->next)
        if (id_is(c->id, id))
            return true;
    return false;
}

/* Takes a message that is an object. */
static void peer_accept(struct mcp_peer *peer, struct mcp_call *c)
{
    struct json_object *o = c->message, *id = NULL, *params = NULL, *method = NULL;
    bool has_id = json_object_object_get_ex(o, "id", &id);
    bool has_params = json_object_object_get_ex(o, "params", &params);
    const char *version = json_get_string(o, "jsonrpc", "");
    const char *name = json_get_string(o, "method", NULL);
    if (has_id && id_is_valid(id) && !peer_has(peer, id))
        c->id = id;
    if (strcmp(version, "2.0") != 0 || (has_id && !id_is_valid(id))) {
        mcp_call_fail(c, RPC_REQUEST,
            "expected a JSON-RPC 2.0 message with an id that is a string or "
            "an integer");
        return;
    }
    if (!json_object_object_get_ex(o, "method", &method)) {
        mcp_call_drop(c); /* an answer: this server asks nothing */
        return;
    }
    if (!name) {
        mcp_call_fail(c, RPC_REQUEST, "`method` is not a string");
        return;
    }
    if (has_params && !json_object_is_type(params, json_type_object)) {
        mcp_call_fail(c, RPC_PARAMS, "`params` is not an object");
        return;
    }
    c->params = params;
    if (has_id && !c->id) {
        mcp_call_fail(c, RPC_REQUEST, "a request with this id is under way");
        return;
    }
    if (has_id) {
        call_dispatch(c, name);
        return;
    }
    if (strcmp(name, "notifications/cancelled") == 0)
        peer_cancel(peer, params);
    mcp_call_drop(c);
}

void mcp_receive(struct mcp_peer *peer, const char *text, size_t len)
{
    struct mcp_call *c = calloc(1, sizeof *c);
    struct error err;
    if (!c)
        return;
    c->peer = peer;
    c->next = peer->calls;
    peer->calls = c;
    int rc = text_is_utf8(text, len, NULL)
                 ? json_parse(text, len, &json_limits_large, &c->message, &err)
                 : error_set(&err, ERROR_PROTOCOL, "it is not UTF-8");
    if (rc < 0)
        mcp_call_fail(c, RPC_PARSE, "the message is not JSON: %s", err.text);
    else if (!json_object_is_type(c->message, json_type_object))
        mcp_call_fail(c, RPC_REQUEST, "expected one JSON-RPC message, an object");
    else
        peer_accept(peer, c);
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

static void peer_send_nothing(void *arg, const char *json, size_t len)
{
    (void)arg;
    (void)json;
    (void)len;
}

void mcp_disconnect(struct mcp_peer *peer)
{
    if (!peer)
        return;
    peer->send = peer_send_nothing;
    while (peer->calls) {
        struct mcp_call *c = peer->calls;
        if (c->cancel)
            c->cancel(c);
        if (peer->calls == c)
            mcp_call_drop(c);
    }
    for (struct mcp_peer **at = &peer->mcp->peers; *at; at = &(*at)->next)
        if (*at == peer) {
            *at = peer->next;
            break;
        }
    free(peer);
}

size_t mcp_pending(const struct mcp_peer *peer)
{
    size_t n = 0;
    for (const struct mcp_call *c = peer->calls; c; c = c->next)
        n++;
    return n;
}

int mcp_new(droste *d, const struct mcp_options *options, struct mcp **out, struct error *err)
{
    size_t count = 0;
    while (options->paths && options->paths[count])
        count++;
    struct mcp *mcp = calloc(1, sizeof *mcp);
    char **paths = calloc(count + 1, sizeof *paths);
    *out = NULL;
    if (!mcp || !paths) {
        free(mcp);
        free(paths);
        return error_memory(err);
    }
    mcp->d = d;
    mcp->paths = paths;
    mcp->max_sessions = options->max_sessions;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < count; i++)
        if (!(paths[i] = realpath(options->paths[i], NULL)))
            rc = error_set_errno(err, ERROR_NOT_FOUND, "the path '%s'", options->paths[i]);
    if (rc == 0)
        rc = mcp_tools_prepare(mcp, err);
    if (rc < 0)
        mcp_free(mcp);
    else
        *out = mcp;
    return rc;
}

void mcp_free(struct mcp *mcp)
{
    if (!mcp)
        return;
    while (mcp->peers)
        mcp_disconnect(mcp->peers);
    mcp_runs_free(mcp);
    mcp_sessions_free(mcp);
    mcp_tools_free(mcp);
    for (char **path = mcp->paths; *path; path++)
        free(*path);
    free(mcp->paths);
    free(mcp);
}
