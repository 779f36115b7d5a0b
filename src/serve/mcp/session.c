/* serve/mcp/session.c: sessions of MCP by id, and the users of requests that have none. */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/hash.h"
#include "serve/mcp/mcp.h"

/* Sessions of a worker, and of one account in it. One that has no sandbox costs a few hundred
 * bytes. */
enum { HTTP_MAX = 16384, HTTP_ACCOUNT_MAX = 8192 };

static struct mcp_http **http_bucket(struct mcp_service *service, const char *id)
{
    return &service->by_id[hash_word(HASH_WORD, id) % MCP_BUCKETS];
}

struct mcp_http *mcp_http_find(struct mcp_service *service, const char *id)
{
    struct mcp_http *h = *http_bucket(service, id);
    while (h && strcmp(h->id, id) != 0)
        h = h->next_by_id;
    return h;
}

static bool http_has_room(const struct mcp_service *service, const struct account *account)
{
    size_t own = 0;
    for (const struct mcp_http *h = service->sessions; h; h = h->next)
        own += h->party.account == account;
    return service->count < HTTP_MAX && own < HTTP_ACCOUNT_MAX;
}

struct mcp_http *mcp_http_new(struct mcp_service *service, struct account *account)
{
    struct server *s = service->server;
    struct mcp_http *h = http_has_room(service, account) ? calloc(1, sizeof *h) : NULL;
    if (!h)
        return NULL;
    h->party = (struct mcp_party){ s, account };
    h->service = service;
    h->mcp = mcp_new(service->core, &h->party);
    h->peer = h->mcp ? mcp_connect(h->mcp, mcp_stream_on_message, h) : NULL;
    if (!h->peer || server_make_id(s, h->id) < 0) {
        mcp_free(h->mcp);
        free(h);
        return NULL;
    }
    h->used_ns = clock_ns();
    struct mcp_http **bucket = http_bucket(service, h->id);
    h->next_by_id = *bucket;
    *bucket = h;
    h->next = service->sessions;
    h->link = &service->sessions;
    if (h->next)
        h->next->link = &h->next;
    service->sessions = h;
    service->count++;
    return h;
}

void mcp_http_end(struct mcp_http *h)
{
    struct mcp_service *service = h->service;
    struct mcp_http **at = http_bucket(service, h->id);
    while (*at != h)
        at = &(*at)->next_by_id;
    *at = h->next_by_id;
    *h->link = h->next;
    if (h->next)
        h->next->link = h->link;
    service->count--;
    mcp_free(h->mcp);
    while (h->streams) {
        struct mcp_stream *st = h->streams;
        struct request *r = st->r;
        if (r) {
            r->state = NULL;
            r->on_gone = NULL;
            if (st->is_sse)
                request_end(r);
            else
                request_refuse(r, 404, "session", "the session has ended");
        }
        mcp_stream_free(st);
    }
    free(h);
}

struct mcp_user *mcp_user_of(struct mcp_service *service, struct account *account)
{
    struct mcp_user *u = service->users;
    while (u && u->party.account != account)
        u = u->next;
    if (u || !(u = calloc(1, sizeof *u)))
        return u;
    u->party = (struct mcp_party){ service->server, account };
    u->mcp = mcp_new(service->core, &u->party);
    u->peer = u->mcp ? mcp_connect(u->mcp, mcp_stream_on_message, NULL) : NULL;
    if (!u->peer) {
        mcp_free(u->mcp);
        free(u);
        return NULL;
    }
    u->next = service->users;
    service->users = u;
    return u;
}

/* ---- the service ---- */

int mcp_service_open(struct server *s, struct error *err)
{
    const struct mcp_options options = { .paths = s->options->paths,
        .max_sessions = s->options->max_sandboxes,
        .host = &serve_mcp_host,
        .extension = s->options->mcp_extension };
    struct mcp_service *service = calloc(1, sizeof *service);
    if (!service)
        return error_memory(err);
    service->server = s;
    int rc = mcp_server_new(s->d, &options, &service->core, err);
    if (rc < 0)
        free(service);
    else
        s->mcp = service;
    return rc;
}

void mcp_service_close(struct server *s)
{
    struct mcp_service *service = steal(&s->mcp);
    if (!service)
        return;
    while (service->sessions)
        mcp_http_end(service->sessions);
    while (service->users) {
        struct mcp_user *u = service->users;
        service->users = u->next;
        mcp_free(u->mcp);
        for (struct client *c = s->clients; c; c = c->next) {
            struct request *r = c->request;
            if (!r || r->routes != &mcp_routes || !r->state || r->is_relayed)
                continue;
            struct mcp_stream *st = r->state;
            if (st->user != u)
                continue;
            r->state = NULL;
            r->on_gone = NULL;
            mcp_stream_free(st);
        }
        free(u);
    }
    mcp_server_free(service->core);
    free(service);
}

void mcp_service_flush(struct server *s)
{
    if (s->mcp)
        mcp_flush(s->mcp->core);
}

static bool http_is_over(const struct mcp_http *h, uint64_t now_ns)
{
    if (h->party.account->is_revoked)
        return true;
    for (const struct mcp_stream *st = h->streams; st; st = st->next)
        if (st->r)
            return false;
    double idle = now_ns > h->used_ns ? (double)(now_ns - h->used_ns) / 1e9 : 0;
    return mcp_pending(h->peer) == 0 && idle > h->party.server->options->idle_seconds;
}

void mcp_service_sweep(struct server *s, uint64_t now_ns)
{
    struct mcp_http *next;
    for (struct mcp_http *h = s->mcp->sessions; h; h = next) {
        next = h->next;
        mcp_streams_sweep(h, now_ns);
        if (http_is_over(h, now_ns))
            mcp_http_end(h);
    }
    for (struct client *c = s->clients; c; c = c->next)
        if (c->request && c->request->routes == &mcp_routes && c->request->state &&
            !c->request->is_relayed && !((struct mcp_stream *)c->request->state)->session)
            mcp_stream_keep_alive(c->request->state, now_ns);
    mcp_sweep(s->mcp->core, now_ns);
}

void mcp_service_drain(struct server *s)
{
    for (struct mcp_user *u = s->mcp->users; u; u = u->next)
        mcp_end_subscriptions(u->peer);
    for (struct mcp_http *h = s->mcp->sessions; h; h = h->next)
        for (struct mcp_stream *st = h->streams; st; st = st->next)
            if (st->is_listening && st->r)
                request_end(st->r);
}
