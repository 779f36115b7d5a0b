/* serve/stop.c: see stop.h. */
#include "serve/stop.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "serve/e2b/e2b.h"
#include "serve/http/idempotency.h"
#include "serve/http/nodes.h"
#include "serve/http/tls.h"
#include "serve/http/tls_link.h"
#include "serve/http/upgrade.h"
#include "serve/http/upstream.h"
#include "serve/jupyter/jupyter.h"
#include "serve/mcp/mcp.h"
#include "serve/native/batches.h"
#include "serve/native/runs.h"
#include "serve/native/templates.h"
#include "serve/notify.h"
#include "serve/openai/openai.h"
#include "serve/queue/queue.h"
#include "serve/sandbox/commits.h"
#include "serve/sandbox/leaving.h"
#include "serve/sandbox/owners.h"
#include "serve/sandbox/sandbox.h"

/* For the commits of a node's volumes, beside what --drain has left: with its 30 s, this is less
 * than the 45 s that service managers are told to wait. */
enum { STOP_COMMIT_SECONDS = 10 };

/* ---- the drain ---- */

/* Other nodes get chunks until the end; stop_excludes refuses everything else. */
static void stop_listening(struct server *s)
{
    if (owners_transfers(s))
        return;
    int fd = s->tls ? -1 : MHD_quiesce_daemon(s->daemon);
    if (fd >= 0)
        close(fd);
    tls_listen_stop(s);
    s->listener.fd = -1;
}

void stop_drain(struct server *s)
{
    if (s->draining) {
        s->is_hurried = s->stopping;
        s->stopping = true;
        return;
    }
    s->draining = true;
    s->drain_ns = clock_ns();
    if (!s->links)
        notify_manager("STOPPING=1");
    stop_listening(s);
    mcp_service_drain(s);
    for (struct client *c = s->clients; c; c = c->next)
        if (c->request && c->request->upgrade && c->request->upgrade->on_drain)
            c->request->upgrade->on_drain(c->request->upgrade->arg);
}

bool stop_excludes(const struct request *r)
{
    const struct server *s = r->server;
    bool is_late = s->stopping || (s->draining && !r->client->used);
    return is_late && !r->client->is_worker && r->routes != &commit_routes;
}

bool stop_is_due(struct server *s)
{
    bool is_idle = s->requests == 0 && !s->runs && !s->batches;
    if (s->draining && (is_idle || clock_seconds_since(s->drain_ns) > s->options->drain_seconds))
        s->stopping = true;
    return s->stopping;
}

/* ---- the end ---- */

static void stop_close_handle(uv_handle_t *handle, void *arg)
{
    if (!uv_is_closing(handle))
        uv_close(handle, NULL);
}

static void stop_work(struct server *s)
{
    mcp_service_close(s);
    jupyter_close(s);
    batches_close(s);
    if (s->queue)
        queue_runs_close(s->queue);
    runs_close(s);
    while (s->sandboxes)
        sandbox_close(s->sandboxes);
    templates_close(s);
    e2b_snapshots_close(s);
}

/* libmicrohttpd ends only when no connection is suspended. */
static void stop_requests(struct server *s)
{
    for (struct client *c = s->clients; c; c = c->next)
        if (c->request && c->request->upgrade) {
            upgrade_drop_now(c->request->upgrade);
        } else if (c->request) {
            c->request->gone = true;
            request_resume(c->request);
        }
    MHD_run(s->daemon);
    if (s->relay_daemon)
        MHD_run(s->relay_daemon);
}

static void stop_commit(struct server *s)
{
    double most = s->options->drain_seconds + STOP_COMMIT_SECONDS;
    if (!s->stopping || !s->owners)
        return;
    stop_work(s);
    stop_requests(s);
    leaving_start(s);
    while (!leaving_is_over(s) && !s->is_hurried && clock_seconds_since(s->drain_ns) < most)
        uv_run(&s->loop, UV_RUN_ONCE);
}

void stop_close(struct server *s)
{
    stop_commit(s);
    s->closing = true;
    nodes_leave(s);
    if (s->daemon) {
        stop_work(s);
        stop_requests(s);
        MHD_stop_daemon(s->daemon);
        if (s->relay_daemon)
            MHD_stop_daemon(s->relay_daemon);
        tls_links_close(s);
    } else {
        close_fd(&s->listener.fd);
    }
    if (s->listening)
        listen_remove(&s->listener, s->options->listen);
    mcp_service_close(s);
    jupyter_close(s);
    queue_close(s);
    owners_close(s);
    leaving_close(s);
    upstream_sweep(s, clock_ns(), true); /* connections that are kept */
    nodes_close(s);
    tls_close();
    for (size_t i = 0; s->schemas && route_at(i); i++)
        schema_drop(s->schemas[i]);
    free(s->schemas);
    droste_free(s->parser);
    accounts_close(&s->accounts);
    openai_close(s);
    idempotency_close(s);
    close_fd(&s->audit_fd);
    close_fd(&s->traces_fd);
    table_close(s->table);
    uv_walk(&s->loop, stop_close_handle, NULL);
    uv_run(&s->loop, UV_RUN_DEFAULT);
    uv_loop_close(&s->loop);
    owners_free(s);
    free(s->tls);
    free(s->queue);
}
