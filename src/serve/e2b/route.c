/* serve/e2b/route.c: which requests are those of E2B's clients, and what each one needs.
 *
 * A request for a sandbox has two headers, or a Host {port}-{id}.{domain}; a signed URL for a file
 * has neither, so its signature is tried with the token of each sandbox. Such requests carry the
 * sandbox's token instead of a key, and may have any Host if the token is right: a page of another
 * site, which could choose its Host (DNS rebinding), knows no token.
 */
#include <string.h>

#include "base/cleanup.h"
#include "serve/e2b/connect.h"
#include "serve/e2b/create.h"
#include "serve/e2b_schemas.h"
#include "serve/http/relay.h"
#include "serve/sandbox/sandbox.h"
#include "serve/access/identify.h"

/* ---- names of sandboxes ---- */

static bool edge_take_port(const char *text, size_t len, unsigned *port)
{
    *port = 0;
    for (size_t i = 0; i < len; i++) {
        if (text[i] < '0' || text[i] > '9' || i > 4)
            return false;
        *port = *port * 10 + (unsigned)(text[i] - '0');
    }
    return *port > 0 && *port < 65536;
}

static bool edge_take_id(const char *text, size_t len, char id[SERVE_ID_SIZE])
{
    if (len == 0 || len >= SERVE_ID_SIZE)
        return false;
    for (size_t i = 0; i < len; i++)
        if (!((text[i] >= 'a' && text[i] <= 'z') || (text[i] >= '0' && text[i] <= '9')))
            return false;
    memcpy(id, text, len);
    id[len] = '\0';
    return true;
}

static bool edge_take_host(const char *host, unsigned *port, char id[SERVE_ID_SIZE])
{
    size_t label = host ? strcspn(host, ".:") : 0, dash = host ? strcspn(host, "-.:") : 0;
    return dash < label && host[label] == '.' && edge_take_port(host, dash, port) &&
           edge_take_id(host + dash + 1, label - dash - 1, id);
}

bool e2b_host_is_sandbox(const char *host)
{
    unsigned port;
    char id[SERVE_ID_SIZE];
    return edge_take_host(host, &port, id);
}

static bool edge_claims_control(struct request *r, const char *path)
{
    static const char *const roots[] = { "/sandboxes", "/v2/", "/v3/", "/templates", "/snapshots",
        "/volumes", "/secrets", "/teams" };
    for (size_t i = 0; i < array_length(roots); i++) {
        size_t n = strlen(roots[i]);
        if (strncmp(path, roots[i], n) == 0 &&
            (roots[i][n - 1] == '/' || path[n] == '\0' || path[n] == '/'))
            return true;
    }
    return false;
}

/* Sets the request's id and port if it is for a sandbox. Older SDKs send the headers with requests
 * to the control plane, too, beside their key. */
static bool edge_find_sandbox(struct request *r, const char *path)
{
    const char *id = request_header_of(r, "E2b-Sandbox-Id");
    const char *port = request_header_of(r, "E2b-Sandbox-Port");
    if (r->port)
        return true;
    if (edge_take_host(request_header_of(r, "Host"), &r->port, r->id))
        return true;
    if ((!id && !port) || (request_header_of(r, "X-API-Key") && edge_claims_control(r, path)))
        return false;
    /* An id that cannot be one is that of no sandbox. */
    if (!port || !edge_take_port(port, strlen(port), &r->port) || !id ||
        !edge_take_id(id, strlen(id), r->id)) {
        r->id[0] = '\0';
        r->port = r->port ? r->port : 1;
    }
    return true;
}

static bool edge_is_signed_file(const char *path, struct request *r)
{
    return strcmp(path, "/files") == 0 && request_parameter(r, "signature");
}

static bool edge_claims_envd(struct request *r, const char *path)
{
    return edge_find_sandbox(r, path) ? r->port == E2B_PORT_ENVD : edge_is_signed_file(path, r);
}

static bool edge_claims_interpreter(struct request *r, const char *path)
{
    return edge_find_sandbox(r, path) && r->port == E2B_PORT_INTERPRETER;
}

static bool edge_claims_other(struct request *r, const char *path)
{
    return edge_find_sandbox(r, path);
}

/* ---- errors ---- */

static void control_refuse(struct request *r, unsigned status, const char *code, const char *text)
{
    if (!e2b_fork_refuse(r, status, text))
        e2b_refuse(r, status, NULL, text);
}

static void envd_refuse(struct request *r, unsigned status, const char *code, const char *text)
{
    if (strncmp(r->route ? r->route->path : "", "/process.", 9) != 0 &&
        strncmp(r->route ? r->route->path : "", "/filesystem.", 12) != 0) {
        e2b_refuse(r, status, NULL, text);
        return;
    }
    struct json_object *o = json_object_new_object();
    if (!o || !json_put_text(o, "code", connect_code(status)) ||
        !json_put_text(o, "message", text)) {
        json_object_put(o);
        o = NULL;
    }
    request_reply_json(r, status, o);
}

static void interpreter_refuse(
    struct request *r, unsigned status, const char *code, const char *text)
{
    request_reply(r, status, "text/plain; charset=utf-8", text, strlen(text));
}

/* ---- tokens ---- */

/* In a time that does not depend on where they differ. */
static bool token_is(const char *given, const char *token)
{
    size_t len = strlen(token);
    unsigned differ = !given || strlen(given) != len || len == 0;
    for (size_t i = 0; !differ && i < len; i++)
        differ |= (unsigned)(given[i] ^ token[i]);
    return differ == 0;
}

static bool control_identify(struct request *r)
{
    if (request_header_of(r, "X-API-Key"))
        return account_identify(r);
    request_refuse(r, 401, "unauthorized", "send an API key in the header X-API-Key");
    return false;
}

/* A request without a sandbox's name but with a signature: the sandbox whose token made it. */
static struct sandbox *edge_find_signed(struct request *r)
{
    for (struct sandbox *sb = r->server->sandboxes; sb; sb = sb->next)
        if (sb->e2b && !sb->e2b->paused && e2b_signature_fits(r, sb->e2b->token)) {
            memcpy(r->id, sb->id, sizeof sb->id);
            r->port = E2B_PORT_ENVD;
            return sb;
        }
    return NULL;
}

static bool edge_is_elsewhere(struct request *r)
{
    return !r->port && !edge_find_signed(r);
}

static bool edge_has_token(struct request *r, const struct e2b_sandbox *e)
{
    return token_is(request_header_of(r, "X-Access-Token"), e->token);
}

/* Or needs none. */
static bool edge_has_traffic_token(struct request *r, const struct e2b_sandbox *e)
{
    return e->traffic_token[0] == '\0' ||
           token_is(request_header_of(r, "E2b-Traffic-Access-Token"), e->traffic_token);
}

/* A paused sandbox that is to resume by itself does so for a request that may reach it. */
static bool edge_wake(struct request *r, struct e2b_sandbox *e)
{
    if (!e->paused)
        return true;
    if (!e->auto_resume) {
        e2b_refuse_gone(r);
        return false;
    }
    bool is_program = r->port != E2B_PORT_ENVD && r->port != E2B_PORT_INTERPRETER;
    if (!edge_has_token(r, e) && !(is_program && edge_has_traffic_token(r, e))) {
        e2b_refuse(r, 403, r->id, "the sandbox is paused, and the token is not its own");
        return false;
    }
    e2b_sandbox_resume(e);
    return true;
}

static struct e2b_sandbox *edge_sandbox(struct request *r)
{
    struct sandbox *sb = r->id[0] ? sandbox_find(r->server, r->id) : NULL;
    if (!r->port)
        sb = edge_find_signed(r);
    if (!r->port && relay_on_node(r))
        return NULL;
    if (!r->port) {
        e2b_refuse(r, 401, NULL, "the signature fits no sandbox");
        return NULL;
    }
    if (!sb || !sb->e2b || !droste_session_is_alive(sb->session)) {
        e2b_refuse_gone(r);
        return NULL;
    }
    if (!edge_wake(r, sb->e2b))
        return NULL;
    r->account = sb->owner;
    return sb->e2b;
}

/* With a Host of another site, each request needs the token. */
static bool edge_host_is_ours(struct request *r)
{
    return r->server->trust != HEAD_LOOPBACK || !e2b_host_is_sandbox(request_header_of(r, "Host"));
}

static bool edge_check_traffic(struct request *r, const struct e2b_sandbox *e)
{
    if (edge_has_traffic_token(r, e))
        return true;
    e2b_refuse(r, 403, r->id, "the traffic access token is missing or wrong");
    return false;
}

static bool envd_identify(struct request *r)
{
    struct e2b_sandbox *e = edge_sandbox(r);
    if (!e)
        return false;
    if (edge_has_token(r, e) || (r->route && strcmp(r->route->path, "/health") == 0))
        return true;
    if (r->route && strcmp(r->route->path, "/files") == 0)
        return e2b_signature_check(r, e->token);
    request_refuse(r, 401, "unauthorized", "the access token is missing or wrong");
    return false;
}

static bool interpreter_identify(struct request *r)
{
    struct e2b_sandbox *e = edge_sandbox(r);
    if (!e || !edge_check_traffic(r, e))
        return false;
    bool needs_token =
        !edge_host_is_ours(r) || (r->route && strcmp(r->route->path, "/execute") == 0);
    if (!needs_token || edge_has_token(r, e))
        return true;
    request_refuse(r, 401, "unauthorized", "the access token is missing or wrong");
    return false;
}

/* Ports of programs in the sandbox: its id is the permission, unless it has a traffic token. */
static bool port_identify(struct request *r)
{
    struct e2b_sandbox *e = edge_sandbox(r);
    return e && edge_check_traffic(r, e);
}

/* ---- routes ---- */

static void e2b_handle_refused(struct request *r)
{
    if (strstr(r->route->path, "{id}") && !sandbox_of(r))
        return;
    request_refuse(r, r->route->status, "unsupported", "%s", r->route->summary);
}

#define ROUTE(method, path, body, schema, handle)                                                  \
    {                                                                                              \
        method, path, body, schema, NULL, 200, NULL, NULL, NULL, handle, 0                         \
    }
#define CREATES(path, schema, handle)                                                              \
    {                                                                                              \
        "POST", path, BODY_JSON, schema, NULL, 201, NULL, NULL, NULL, handle, 0, true              \
    }
/* What is not supported, and why. */
#define REFUSED(method, path, why)                                                                 \
    {                                                                                              \
        method, path, BODY_JSON, NULL, NULL, 400, NULL, NULL, why, e2b_handle_refused, 0           \
    }

#define TEMPLATES                                                                                  \
    "templates cannot be built here: a sandbox has the programs of the server's machine; use "     \
    "'base' or 'code-interpreter-v1', or a snapshot"
#define VOLUMES "volumes of E2B's API are not supported here; write files in the sandbox"
#define SECRETS "secrets of E2B's API are not supported here; give variables with the sandbox"

static const struct route control_rows[] = {
    CREATES("/sandboxes", CREATE, e2b_handle_create),
    CREATES("/v2/sandboxes", CREATE, e2b_handle_create),
    ROUTE("GET", "/sandboxes", BODY_NONE, NULL, e2b_handle_list),
    ROUTE("GET", "/v2/sandboxes", BODY_NONE, NULL, e2b_handle_list),
    ROUTE("GET", "/sandboxes/metrics", BODY_NONE, NULL, e2b_handle_metrics_of_all),
    ROUTE("GET", "/sandboxes/{id}", BODY_NONE, NULL, e2b_handle_get),
    ROUTE("DELETE", "/sandboxes/{id}", BODY_NONE, NULL, e2b_handle_kill),
    ROUTE("POST", "/sandboxes/{id}/timeout", BODY_JSON, TIMEOUT, e2b_handle_timeout),
    ROUTE("POST", "/sandboxes/{id}/refreshes", BODY_JSON, NULL, e2b_handle_refresh),
    ROUTE("POST", "/sandboxes/{id}/connect", BODY_JSON, TIMEOUT, e2b_handle_connect),
    ROUTE("POST", "/v2/sandboxes/{id}/connect", BODY_JSON, NULL, e2b_handle_connect),
    ROUTE("POST", "/sandboxes/{id}/resume", BODY_JSON, NULL, e2b_handle_resume),
    ROUTE("POST", "/sandboxes/{id}/pause", BODY_JSON, NULL, e2b_handle_pause),
    ROUTE("GET", "/sandboxes/{id}/logs", BODY_NONE, NULL, e2b_handle_logs),
    ROUTE("GET", "/v2/sandboxes/{id}/logs", BODY_NONE, NULL, e2b_handle_logs),
    ROUTE("GET", "/sandboxes/{id}/metrics", BODY_NONE, NULL, e2b_handle_metrics),
    ROUTE("PUT", "/sandboxes/{id}/network", BODY_JSON, NETWORK, e2b_handle_network),
    CREATES("/sandboxes/{id}/fork", FORK, e2b_handle_fork),
    CREATES("/sandboxes/{id}/snapshots", SNAPSHOT, e2b_handle_snapshot),
    ROUTE("GET", "/snapshots", BODY_NONE, NULL, e2b_handle_snapshots),
    ROUTE("DELETE", "/templates/{name}", BODY_NONE, NULL, e2b_handle_template_delete),
    REFUSED("POST", "/secrets", SECRETS),
    REFUSED("GET", "/secrets", SECRETS),
    ROUTE("GET", "/templates/aliases/{name}", BODY_NONE, NULL, e2b_handle_alias),
    REFUSED("POST", "/templates", TEMPLATES),
    REFUSED("POST", "/v2/templates", TEMPLATES),
    REFUSED("POST", "/v3/templates", TEMPLATES),
    REFUSED("POST", "/templates/tags", TEMPLATES),
    REFUSED("GET", "/volumes", VOLUMES),
    REFUSED("POST", "/volumes", VOLUMES),
    REFUSED("GET", "/volumes/{name}", VOLUMES),
    REFUSED("DELETE", "/volumes/{name}", VOLUMES),
};

static const struct route envd_rows[] = {
    ROUTE("GET", "/files", BODY_NONE, NULL, e2b_handle_file_read),
    ROUTE("POST", "/files", BODY_STREAM, NULL, e2b_handle_file_write),
    ROUTE("POST", "/filesystem.Filesystem/Stat", BODY_JSON, NULL, e2b_handle_stat),
    ROUTE("POST", "/filesystem.Filesystem/MakeDir", BODY_JSON, NULL, e2b_handle_make_directory),
    ROUTE("POST", "/filesystem.Filesystem/Move", BODY_JSON, NULL, e2b_handle_move),
    ROUTE("POST", "/filesystem.Filesystem/ListDir", BODY_JSON, NULL, e2b_handle_list_directory),
    ROUTE("POST", "/filesystem.Filesystem/Remove", BODY_JSON, NULL, e2b_handle_remove),
    ROUTE("POST", "/filesystem.Filesystem/WatchDir", BODY_BYTES, NULL, e2b_handle_watch),
    ROUTE(
        "POST", "/filesystem.Filesystem/CreateWatcher", BODY_JSON, NULL, e2b_handle_watcher_create),
    ROUTE("POST", "/filesystem.Filesystem/GetWatcherEvents", BODY_JSON, NULL,
        e2b_handle_watcher_events),
    ROUTE(
        "POST", "/filesystem.Filesystem/RemoveWatcher", BODY_JSON, NULL, e2b_handle_watcher_remove),
    { "POST", "/process.Process/StreamInput", BODY_STREAM, NULL, NULL, 200, NULL, NULL, NULL,
        e2b_handle_process_stream_input, 0, .is_paced = true },
    ROUTE("POST", "/process.Process/Start", BODY_BYTES, NULL, e2b_handle_process_start),
    ROUTE("POST", "/process.Process/Connect", BODY_BYTES, NULL, e2b_handle_process_connect),
    ROUTE("POST", "/process.Process/List", BODY_JSON, NULL, e2b_handle_process_list),
    ROUTE("POST", "/process.Process/SendInput", BODY_JSON, NULL, e2b_handle_process_input),
    ROUTE("POST", "/process.Process/CloseStdin", BODY_JSON, NULL, e2b_handle_process_close),
    ROUTE("POST", "/process.Process/SendSignal", BODY_JSON, NULL, e2b_handle_process_signal),
    ROUTE("POST", "/process.Process/Update", BODY_JSON, NULL, e2b_handle_process_update),
    ROUTE("GET", "/health", BODY_NONE, NULL, e2b_handle_envd_health),
};

static const struct route interpreter_rows[] = {
    ROUTE("GET", "/health", BODY_NONE, NULL, e2b_handle_interpreter_health),
    ROUTE("POST", "/execute", BODY_JSON, EXECUTE, e2b_handle_execute),
    ROUTE("GET", "/contexts", BODY_NONE, NULL, e2b_handle_contexts),
    ROUTE("POST", "/contexts", BODY_JSON, CONTEXT, e2b_handle_context_create),
    ROUTE("DELETE", "/contexts/{name}", BODY_NONE, NULL, e2b_handle_context_remove),
    ROUTE("POST", "/contexts/{name}/restart", BODY_JSON, NULL, e2b_handle_context_restart),
};

const struct routes e2b_envd_routes = { .rows = envd_rows,
    .count = array_length(envd_rows),
    .claims = edge_claims_envd,
    .identify = envd_identify,
    .is_elsewhere = edge_is_elsewhere,
    .refuse = envd_refuse };

const struct routes e2b_interpreter_routes = { .rows = interpreter_rows,
    .count = array_length(interpreter_rows),
    .claims = edge_claims_interpreter,
    .identify = interpreter_identify,
    .refuse = interpreter_refuse };

static const struct route port_row = { "*", "/*", BODY_STREAM, NULL, NULL, 200, NULL, NULL, NULL,
    e2b_handle_port, 0, .is_paced = true };

const struct routes e2b_port_routes = { .any = &port_row,
    .claims = edge_claims_other,
    .identify = port_identify,
    .refuse = control_refuse };

const struct routes e2b_control_routes = { .rows = control_rows,
    .count = array_length(control_rows),
    .claims = edge_claims_control,
    .has_host = e2b_host_is_sandbox,
    .identify = control_identify,
    .refuse = control_refuse };
