/* serve/loop.c: the loop: libmicrohttpd and the library in one libuv loop, and its limits.
 *
 * Both have a descriptor to watch. libmicrohttpd calls server_on_access several times for each
 * request: with the head, with each piece of the body, and with its end; again after a request
 * was resumed. Time limits are checked four times a second.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/os/random.h"
#include "base/text.h"
#include "serve/sandbox/calls.h"
#include "serve/jupyter/jupyter.h"
#include "serve/mcp/mcp.h"
#include "serve/notify.h"
#include "serve/openai/containers.h"
#include "serve/openai/openai.h"
#include "serve/http/nodes.h"
#include "serve/http/relay.h"
#include "serve/native/approvals.h"
#include "serve/native/batches.h"
#include "serve/native/recipes.h"
#include "serve/native/runs.h"
#include "serve/queue/queue.h"
#include "serve/sandbox/owners.h"
#include "serve/sandbox/sandbox.h"
#include "serve/native/templates.h"
#include "serve/http/tls.h"
#include "serve/http/tls_link.h"
#include "serve/http/upgrade.h"
#include "serve/http/upstream.h"
#include "serve/stop.h"
#include "serve/workers.h"
#include "serve/log.h"
#include "serve/e2b/e2b.h"
#include "serve/http/idempotency.h"
#include "serve/access/identify.h"

/* Memory for the head of a request, of each connection. */
enum { SERVER_HEAD_MAX = 16 << 10 };
/* A kept connection without a request, and one that moves nothing, end after so many seconds. */
enum { SERVER_KEEP_SECONDS = 60 };
/* A body arrives at this rate at least, after some seconds. */
enum { SERVER_BODY_RATE = 1024, SERVER_BODY_SECONDS = 20 };
enum { SERVER_BODIES_MAX = 128 << 20 };
enum { SERVER_SWEEP_MS = 250 };
enum { SERVER_CLUSTER_SECONDS = 10 };

/* ---- the head and the body ---- */

static void *server_on_target(void *arg, const char *target, struct MHD_Connection *connection)
{
    struct request *r = calloc(1, sizeof *r);
    if (!r)
        return NULL;
    r->server = arg;
    r->connection = connection;
    r->target = strdup(target);
    r->target_at = target;
    head_look(r);
    return r;
}

/* A client's own id, if it is a word; otherwise one of ours. */
static void server_name_request(struct request *r)
{
    const char *theirs = request_header_of(r, "X-Request-Id");
    if (theirs && text_is_name(theirs))
        snprintf(r->request_id, sizeof r->request_id, "%s", theirs);
    else
        snprintf(r->request_id, sizeof r->request_id, "%s-%llx", r->server->id_prefix,
            (unsigned long long)++r->server->request_count);
}

/* True if another worker answers it, or it was refused. */
static bool server_relay(struct request *r)
{
    unsigned node = nodes_route(r);
    if (node)
        relay_begin_node(r, node);
    if (node || r->reply)
        return true;
    unsigned worker = relay_worker_of(r);
    if (!r->reply && worker != r->server->worker)
        relay_begin(r, worker);
    return r->reply || r->is_relayed;
}

/* A protocol that identifies clients by their sandbox does that where the sandbox is. */
static bool server_relay_unidentified(struct request *r)
{
    return r->routes && r->routes->identify && (r->id[0] || r->routes->is_elsewhere) &&
           server_relay(r);
}

static size_t server_body_max(const struct request *r)
{
    return r->route && r->route->body_max ? r->route->body_max : SERVE_BODY_MAX;
}

static void server_begin(
    struct request *r, const char *path, const char *method, const char *version)
{
    struct server *s = r->server;
    const union MHD_ConnectionInfo *socket =
        MHD_get_connection_info(r->connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    const char *allowed = NULL;
    r->begun = true;
    s->requests++;
    snprintf(r->method, sizeof r->method, "%s", method);
    r->began_ns = clock_ns();
    r->client = socket->socket_context;
    r->client->request = r;
    if (!nodes_check_ticket(r))
        return;
    if (!head_check(r, method, version, r->client->is_relay ? HEAD_ANY : s->trust))
        return;
    server_name_request(r);
    route_find(r, method, path, &allowed);
    if (stop_excludes(r)) {
        request_refuse(r, 503, "draining", "the server is stopping; use another one");
        return;
    }
    r->client->used = true;
    trace_begin(r);
    if (server_relay_unidentified(r))
        return;
    bool is_public = r->route && route_scopes(r->route) == SCOPE_NONE;
    if (!is_public &&
        !(r->routes && r->routes->identify ? r->routes->identify : account_identify)(r))
        return;
    if (!r->route && allowed) {
        request_refuse(r, 405, "method", "this path has no method %s", method);
        cleanup_buf struct buf methods = { 0 };
        route_methods(r->routes, path, &methods);
        request_header(r, MHD_HTTP_HEADER_ALLOW, buf_text(&methods));
        return;
    }
    if (!r->route) {
        request_refuse(r, 404, "not_found", "there is no such path; GET /openapi.json has all");
        return;
    }
    if (!is_public && !account_check_scope(r))
        return;
    const char *length = request_header_of(r, MHD_HTTP_HEADER_CONTENT_LENGTH);
    const size_t most = server_body_max(r);
    if (r->route->body != BODY_STREAM && length && strtoull(length, NULL, 10) > most)
        request_refuse(r, 413, "too_large", "the body is larger than %zu MiB; files have no limit",
            most >> 20);
    else if (!server_relay(r) && r->route->body == BODY_STREAM)
        r->route->handle(r);
}

static void server_take_piece(struct request *r, const char *data, size_t len)
{
    struct server *s = r->server;
    r->received += len;
    table_count(s->figures, COUNT_RECEIVED, len);
    if (r->reply)
        return; /* the rest of a refused body */
    if (r->on_piece) {
        r->on_piece(r, data, len);
        return;
    }
    size_t most = server_body_max(r);
    if (r->body.len + len > most || s->body_bytes + len > SERVER_BODIES_MAX) {
        bool full = r->body.len + len <= most;
        /* A length that was announced, and is bounded, is read to its end, so that the client sees
         * the answer. */
        r->close_after = !full || !request_header_of(r, MHD_HTTP_HEADER_CONTENT_LENGTH);
        if (full) {
            request_refuse(r, 503, "busy", "too many bodies at once; try again");
            request_header(r, MHD_HTTP_HEADER_RETRY_AFTER, "1");
            s->body_bytes -= r->body.len;
            buf_free(&r->body);
        } else {
            request_refuse(r, 413, "too_large", "the body is larger than %zu MiB", most >> 20);
        }
        return;
    }
    buf_append(&r->body, data, len);
    s->body_bytes += len;
}

static bool server_parse_body(struct request *r)
{
    struct error why = { 0 };
    const struct schema *schema = route_schema(r->server, r->route);
    if (r->body.len > 0 &&
        json_parse(buf_text(&r->body), r->body.len, &json_limits_large, &r->json, &why) < 0) {
        request_refuse(r, 400, "json", "the body is not valid JSON: %s", why.text);
        return false;
    }
    if (!r->json && r->body.len > 0 && r->routes->is_documented) {
        request_refuse(r, 400, "schema", "the body is null; it is an object");
        return false;
    }
    if (!r->json)
        r->json = json_object_new_object();
    if (schema && schema_check(schema, r->json, &why) < 0) {
        request_refuse(r, 400, "schema", "the body does not fit its schema: %s", why.text);
        return false;
    }
    return r->json != NULL;
}

static void server_complete(struct request *r)
{
    r->complete = true;
    if (r->reply)
        return;
    if (r->is_relayed || r->route->body == BODY_STREAM) { /* a relayed one may have no route */
        if (r->on_complete)
            r->on_complete(r);
        return;
    }
    if (buf_failed(&r->body))
        r->gone = true;
    else if ((r->route->body != BODY_JSON || server_parse_body(r)) &&
             (!r->route->creates || idempotency_begin(r)))
        r->route->handle(r);
}

static enum MHD_Result server_on_access(void *arg, struct MHD_Connection *connection,
    const char *path, const char *method, const char *version, const char *data, size_t *len,
    void **state)
{
    struct request *r = *state;
    if (!r || !r->target || r->gone)
        return MHD_NO;
    if (!r->begun) {
        server_begin(r, path, method, version);
        /* A refused request is answered without its body, and its connection ends. */
        if (r->reply)
            return MHD_queue_response(connection, r->status, r->reply);
        return r->gone ? MHD_NO : MHD_YES;
    }
    if (*len > 0 && r->suspended)
        return MHD_YES; /* of a chunk, the library gives what it has read also then; it keeps it */
    if (*len > 0) {
        size_t n = *len;
        *len = 0;
        server_take_piece(r, data, n);
        return r->gone || (r->reply && r->close_after) ? MHD_NO : MHD_YES;
    }
    if (!r->complete)
        server_complete(r);
    if (r->gone)
        return MHD_NO;
    if (r->reply)
        return MHD_queue_response(connection, r->status, r->reply);
    request_suspend(r);
    return MHD_YES;
}

static void server_on_completed(void *arg, struct MHD_Connection *connection, void **state,
    enum MHD_RequestTerminationCode code)
{
    struct request *r = *state;
    if (!r)
        return;
    if (r->client)
        r->client->since_ns = clock_ns();
    if (r->status >= 200 && !r->client->is_relay) { /* which the other worker counts */
        enum table_counter class = r->status < 400   ? COUNT_REQUESTS_2XX
                                   : r->status < 500 ? COUNT_REQUESTS_4XX
                                                     : COUNT_REQUESTS_5XX;
        table_count(r->server->figures, class, 1);
        table_time(r->server->figures, TIME_REQUEST, clock_ns() - r->began_ns);
    }
    request_free(r);
    *state = NULL;
}

/* ---- connections ---- */

static void server_name_client(struct client *c, struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    const struct sockaddr *address = info ? info->client_addr : NULL;
    c->is_relay = c->is_worker = address && worker_is_relay(address);
    char host[INET6_ADDRSTRLEN] = "";
    if (!address || (address->sa_family != AF_INET && address->sa_family != AF_INET6)) {
        strcpy(c->address, "unix");
        return;
    }
    const struct sockaddr_in *four = (const struct sockaddr_in *)(const void *)address;
    const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)(const void *)address;
    bool is_six = address->sa_family == AF_INET6;
    inet_ntop(address->sa_family, is_six ? (const void *)&six->sin6_addr : &four->sin_addr, host,
        sizeof host);
    snprintf(c->address, sizeof c->address, "%s:%u", host,
        (unsigned)ntohs(is_six ? six->sin6_port : four->sin_port));
}

static void server_on_connection(void *arg, struct MHD_Connection *connection, void **context,
    enum MHD_ConnectionNotificationCode code)
{
    struct server *s = arg;
    struct client *c = *context;
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        c = calloc(1, sizeof *c);
        if (!c)
            return;
        c->server = s;
        c->fd = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
        c->since_ns = clock_ns();
        s->figures->gauges[GAUGE_CONNECTIONS]++;
        server_name_client(c, connection);
        c->next = s->clients;
        c->link = &s->clients;
        if (c->next)
            c->next->link = &c->next;
        s->clients = c;
        *context = c;
        return;
    }
    if (!c)
        return;
    *c->link = c->next;
    if (c->next)
        c->next->link = c->link;
    s->figures->gauges[GAUGE_CONNECTIONS]--;
    free(c);
    *context = NULL;
    server_wake(s); /* at the limit of connections, the library listens again in its next turn */
}

/* The library is now and then not told that a client has left in the middle of a body: it waits for
 * an edge of the connection (epoll) that came with the last bytes. */
static bool server_client_has_left(const struct client *c)
{
    char byte;
    return recv(c->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

/* Bytes that trickle in keep a connection from being idle, so that heads and bodies have deadlines
 * of their own. */
static bool server_client_is_late(const struct client *c, uint64_t now)
{
    const struct server *s = c->server;
    const struct request *r = c->request;
    double waited = (double)(now - c->since_ns) / 1e9;
    if (c->is_relay) /* the other worker has the deadlines */
        return !r && s->draining;
    if (!r)
        return waited > (c->used ? SERVER_KEEP_SECONDS : s->options->request_seconds) ||
               (s->draining && c->used);
    if (r->complete || r->suspended || r->reply || (r->route && r->route->is_paced))
        return false;
    if (server_client_has_left(c))
        return true;
    double body = (double)(now - r->began_ns) / 1e9;
    return body > SERVER_BODY_SECONDS + (double)r->received / SERVER_BODY_RATE;
}

/* ---- the loop ---- */

static void server_on_http_timer(uv_timer_t *timer);

static void server_turn(struct server *s)
{
    MHD_UNSIGNED_LONG_LONG wait = 0, soonest = UINT64_MAX;
    s->woken = false;
    MHD_run(s->daemon);
    if (s->relay_daemon)
        MHD_run(s->relay_daemon);
    if (MHD_get_timeout(s->daemon, &wait) == MHD_YES)
        soonest = wait;
    if (s->relay_daemon && MHD_get_timeout(s->relay_daemon, &wait) == MHD_YES && wait < soonest)
        soonest = wait;
    if (s->woken || soonest < UINT64_MAX)
        uv_timer_start(&s->http_timer, server_on_http_timer, s->woken ? 0 : soonest, 0);
    else
        uv_timer_stop(&s->http_timer);
}

static void server_on_http_timer(uv_timer_t *timer)
{
    server_turn(timer->data);
}

static void server_on_http(uv_poll_t *poll, int status, int events)
{
    server_turn(poll->data);
}

static void server_on_mailbox(uv_poll_t *poll, int status, int events)
{
    struct server *s = poll->data;
    struct sockaddr address;
    int fd;
    worker_relay_address(&address);
    while ((fd = worker_receive_connection(s->links->mailbox)) >= 0)
        MHD_add_connection(
            s->relay_daemon, fd, &address, sizeof address); /* closes it if it fails */
    server_wake(s);
}

static void server_on_droste(uv_poll_t *poll, int status, int events)
{
    struct server *s = poll->data;
    droste_dispatch(s->d, NULL);
}

/* After calls of the library, before waiting (droste.h). */
static void server_on_prepare(uv_prepare_t *prepare)
{
    struct server *s = prepare->data;
    if (!s->stopping) {
        admission_serve(s, clock_ns());
        runs_serve(s);
    }
    mcp_service_flush(s);
    droste_dispatch(s->d, NULL);
    mcp_service_flush(s);
}

static void server_on_signal(uv_signal_t *signal, int number)
{
    stop_drain(signal->data);
}

/* Keys are read again when their file has changed, certificates at SIGHUP. */
static void server_reload(struct server *s, bool force)
{
    struct error err = { 0 };
    int rc = accounts_reload(&s->accounts, force, &err);
    if (rc < 0)
        log_event(s, LOG_ERROR, "the keys stay as they were: %s", err.text);
    else if (rc > 0)
        log_event(s, LOG_INFO, "read %zu keys", s->accounts.keys.count);
    const struct serve_options *o = s->options;
    if (force && o->certificate && tls_load(o->certificate, o->certificate_key, &err) < 0)
        log_event(s, LOG_ERROR, "the certificate stays as it was: %s", err.text);
}

static void server_on_hangup(uv_signal_t *signal, int number)
{
    server_reload(signal->data, true);
}

/* What stop.c has ended is not there any more. */
static void server_sweep_work(struct server *s, uint64_t now)
{
    idempotency_sweep(s, now);
    sandboxes_sweep(s, now);
    batches_sweep(s, now);
    runs_sweep(s);
    templates_sweep(s);
    e2b_snapshots_sweep(s);
    mcp_service_sweep(s, now);
    containers_sweep(s, now);
}

static void server_on_sweep(uv_timer_t *timer)
{
    struct server *s = timer->data;
    uint64_t now = clock_ns(), due = s->swept_ns + SERVER_SWEEP_MS * 1000000u;
    if (s->swept_ns)
        table_time(s->figures, TIME_LOOP, now > due ? now - due : 0);
    s->swept_ns = now;
    server_reload(s, false);
    nodes_sweep(s);
    owners_sweep(s);
    upstream_sweep(s, now, s->draining);
    tls_sweep(s, now);
    if (!s->stopping)
        server_sweep_work(s, now);
    for (struct client *c = s->clients; c; c = c->next) {
        struct upgrade *u = c->request ? c->request->upgrade : NULL;
        if (c->request)
            request_watch(c->request);
        if (server_client_is_late(c, now))
            shutdown(c->fd, SHUT_RDWR);
        else if (u && u->on_tick)
            u->on_tick(u->arg, now);
    }
    if (stop_is_due(s))
        uv_stop(&s->loop);
}

/* ---- the beginning ---- */

static struct MHD_Daemon *server_start_daemon(
    struct server *s, unsigned flags, struct MHD_OptionItem *more, struct error *err)
{
    struct MHD_Daemon *daemon =
        MHD_start_daemon(flags | MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_ALLOW_UPGRADE, 0,
            NULL, NULL, server_on_access, s, MHD_OPTION_URI_LOG_CALLBACK, server_on_target, s,
            MHD_OPTION_NOTIFY_COMPLETED, server_on_completed, s, MHD_OPTION_NOTIFY_CONNECTION,
            server_on_connection, s, MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_CONNECTION_LIMIT,
            (unsigned)s->options->max_connections, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
            (size_t)SERVER_HEAD_MAX, MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)SERVER_KEEP_SECONDS,
            MHD_OPTION_ARRAY, more, MHD_OPTION_END);
    if (!daemon)
        error_set_errno(err, ERROR_IO, "starting the HTTP server for %s", s->options->listen);
    return daemon;
}

static int server_start_http(struct server *s, struct error *err)
{
    const struct serve_options *o = s->options;
    bool has_keys = accounts_need_keys(&s->accounts);
    struct MHD_OptionItem none[] = { { MHD_OPTION_END, 0, NULL } };
    if (s->links)
        s->listener =
            (struct listener){ s->links->listen_fd, listen_is_file(s->links->listen_fd), true };
    else if (listen_open(o->listen, has_keys, &s->listener, err) < 0)
        return -1;
    s->listening = !s->links; /* the file is the parent's */
    s->trust = s->listener.is_file ? HEAD_ANY : has_keys ? HEAD_ORIGIN : HEAD_LOOPBACK;
    struct MHD_OptionItem options[] = {
        { MHD_OPTION_LISTEN_SOCKET, s->listener.fd, NULL },
        none[0],
    };
    s->daemon = o->certificate ? server_start_daemon(s, MHD_USE_NO_LISTEN_SOCKET, none, err)
                               : server_start_daemon(s, 0, options, err);
    if (s->daemon && s->links)
        s->relay_daemon = server_start_daemon(s, MHD_USE_NO_LISTEN_SOCKET, none, err);
    return s->daemon && (s->relay_daemon || !s->links) ? 0 : -ERROR_IO;
}

static int server_watch(struct server *s, struct error *err)
{
    droste_error why;
    int fd = droste_fd(s->d, &why);
    if (fd < 0)
        return error_set(err, ERROR_IO, "%s", why.text);
    int http = MHD_get_daemon_info(s->daemon, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd;
    if (uv_poll_init(&s->loop, &s->http_poll, http) < 0 ||
        uv_poll_init(&s->loop, &s->droste_poll, fd) < 0)
        return error_set(err, ERROR_IO, "watching the server's descriptors");
    if (s->links && uv_poll_init(&s->loop, &s->mailbox_poll, s->links->mailbox) < 0)
        return error_set(err, ERROR_IO, "watching the worker's mailbox");
    if (s->links) {
        s->mailbox_poll.data = s;
        uv_poll_start(&s->mailbox_poll, UV_READABLE, server_on_mailbox);
    }
    uv_prepare_init(&s->loop, &s->prepare);
    uv_timer_init(&s->loop, &s->http_timer);
    uv_timer_init(&s->loop, &s->sweep_timer);
    uv_signal_init(&s->loop, &s->term);
    uv_signal_init(&s->loop, &s->interrupt);
    uv_signal_init(&s->loop, &s->hangup);
    s->http_poll.data = s->droste_poll.data = s->prepare.data = s;
    s->http_timer.data = s->sweep_timer.data = s->term.data = s->interrupt.data = s;
    s->hangup.data = s;
    s->on_http_timer = server_on_http_timer;
    if (s->relay_daemon) {
        http = MHD_get_daemon_info(s->relay_daemon, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd;
        if (uv_poll_init(&s->loop, &s->relay_poll, http) < 0)
            return error_set(err, ERROR_IO, "watching the connections of workers");
        s->relay_poll.data = s;
        uv_poll_start(&s->relay_poll, UV_READABLE, server_on_http);
    }
    uv_poll_start(&s->droste_poll, UV_READABLE, server_on_droste);
    uv_prepare_start(&s->prepare, server_on_prepare);
    uv_timer_start(&s->sweep_timer, server_on_sweep, SERVER_SWEEP_MS, SERVER_SWEEP_MS);
    uv_signal_start(&s->term, server_on_signal, SIGTERM);
    uv_signal_start(&s->interrupt, server_on_signal, SIGINT);
    uv_signal_start(&s->hangup, server_on_hangup, SIGHUP);
    return 0;
}

static bool server_has_queue(const struct server *s)
{
    return queue_is_ready(s->queue);
}

/* Until the streams of the cluster are there and its volumes are known, requests wait in the
 * socket. Servers of NATS that have no leader must not keep a node from its own sandboxes. */
static void server_await(struct server *s, bool (*is_there)(const struct server *s), uint64_t began)
{
    while (!is_there(s) && !s->draining && clock_seconds_since(began) < SERVER_CLUSTER_SECONDS)
        uv_run(&s->loop, UV_RUN_ONCE);
}

static int server_open_cluster(struct server *s, struct error *err)
{
    uint64_t began = clock_ns();
    if (!s->nodes)
        return 0;
    int rc = queue_open(s, err);
    if (rc == 0)
        server_await(s, server_has_queue, began);
    if (rc == 0)
        rc = owners_open(s, err);
    if (rc == 0)
        rc = recipes_open(s, err);
    if (rc == 0)
        server_await(s, owners_are_known, began);
    return rc;
}

static int server_accept(struct server *s, struct error *err)
{
    uv_poll_start(&s->http_poll, UV_READABLE, server_on_http);
    server_wake(s);
    return s->options->certificate ? tls_listen(s, err) : 0;
}

static int server_parse_schemas(struct server *s, struct error *err)
{
    size_t count = 0;
    while (route_at(count))
        count++;
    s->schemas = calloc(count, sizeof *s->schemas);
    if (!s->schemas)
        return error_memory(err);
    for (size_t i = 0; i < count; i++) {
        const char *text = route_at(i)->schema;
        if (text && schema_parse(text, strlen(text), &s->schemas[i], err) < 0)
            return error_wrap(err, "the schema of %s", route_at(i)->path);
    }
    return 0;
}

/* Executes the template of the settings before requests are accepted, which cannot wait for it. */
static int server_make_template(droste *d, struct error *err)
{
    droste_error why;
    int rc = droste_template_make(d, &why);
    return rc < 0 ? error_set(err, (enum error_code)why.code, "%s", why.text) : 0;
}

static int server_open_table(struct server *s, struct error *err)
{
    int rc = s->links ? table_map(s->links->table_fd, &s->table, err)
                      : table_new(1, &s->table, NULL, err);
    if (rc < 0)
        return rc;
    s->worker = s->links ? s->links->index : 0;
    s->figures = &s->table->worker[s->worker];
    if (!s->links) {
        s->figures->pid = getpid();
        s->figures->generation = 1;
    }
    return 0;
}

static int serve_as(
    droste *d, const struct serve_options *options, struct worker_links *links, struct error *err)
{
    struct server s = { .d = d,
        .options = options,
        .listener.fd = -1,
        .audit_fd = -1,
        .traces_fd = -1,
        .node_lock = -1,
        .links = links };
    cleanup_free char *address = NULL;
    if (uv_loop_init(&s.loop) < 0)
        return error_memory(err);
    int rc = random_hex(s.id_prefix, sizeof s.id_prefix - 1, err);
    if (rc == 0)
        rc = server_open_table(&s, err);
    if (rc == 0 && options->audit_log)
        rc = log_open_file(options->audit_log, "audit log", &s.audit_fd, err);
    if (rc == 0 && options->traces)
        rc = log_open_file(options->traces, "file of traces", &s.traces_fd, err);
    if (rc == 0)
        rc = accounts_open(&s.accounts, s.table, options->keys, err);
    if (rc == 0)
        rc = server_parse_schemas(&s, err);
    if (rc == 0 && options->certificate)
        rc = tls_load(options->certificate, options->certificate_key, err);
    if (rc == 0)
        rc = openai_open(&s, err);
    if (rc == 0)
        rc = mcp_service_open(&s, err);
    if (rc == 0)
        rc = jupyter_open(&s, err);
    if (rc == 0)
        rc = server_make_template(d, err);
    calls_open(&s);
    approvals_open(&s);
    if (rc == 0)
        rc = nodes_join(&s, err);
    if (rc == 0)
        rc = server_start_http(&s, err);
    if (rc == 0)
        rc = server_watch(&s, err);
    if (rc == 0)
        rc = server_open_cluster(&s, err);
    if (rc == 0)
        rc = listen_address(s.listener.fd, options->certificate != NULL, &address, err);
    if (rc == 0)
        rc = server_accept(&s, err);
    if (rc == 0) {
        nodes_announce(&s, address);
        s.figures->is_ready = true;
        if (!links) {
            notify_manager("READY=1");
            options->ready(options->arg, address);
        }
        uv_run(&s.loop, UV_RUN_DEFAULT);
    }
    stop_close(&s);
    return rc;
}

int serve_run(droste *d, const struct serve_options *options, struct error *err)
{
    struct worker_links links;
    const char *text = getenv(WORKER_VARIABLE);
    if (text && worker_inherit(text, &links, err) < 0)
        return -1;
    if (!text && options->workers > 1)
        return workers_run(options, err);
    return serve_as(d, options, text ? &links : NULL, err);
}
