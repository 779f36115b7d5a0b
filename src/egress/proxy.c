/* egress/proxy.c: listens in the sandbox's network, and shares the loop's time among connections.
 *
 * A connection moves at most 64 KiB in a turn of the loop, or 1 MiB if it is the only busy one.
 * While few connections are busy, that is all. If more than BUSY_FEW moved data within a
 * millisecond, the others wait for the next one, in which at most TURN_MOST of those that wait go
 * on: TURN_FEW at once, so that the loop serves what else has come between them. A handshake of TLS
 * takes as long as several pieces, and counts as such. Whatever the guests do, the loop therefore
 * spends a bounded part of each millisecond here.
 */
#include "egress/connection.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"

enum {
    BUSY_FEW = 4,
    TURN_MOST = 4,
    TURN_FEW = 2,
    CALM_MOST = 64,
    TURN_MS = 1,
    HANDSHAKE_BUSY = 2,
    HANDSHAKE_TURN = 4,
    SWEEP_MS = 250,
    ACCEPT_MOST = 4,      /* in a turn of the loop */
    DESCRIPTORS_SHARE = 8 /* of the process's limit: each connection has two */
};

/* ---- turns ---- */

static bool connection_shakes(const struct connection *c)
{
    return c->phase == PHASE_TLS || c->phase == PHASE_SECURE;
}

/* A few at once: between them, the loop serves what else has come. */
static void hub_give_turns(struct egress_hub *hub)
{
    for (unsigned i = 0; i < TURN_FEW && hub->turns > 0 && hub->first;) {
        struct connection *c = hub->first;
        unsigned costs = connection_shakes(c) ? HANDSHAKE_TURN : 1;
        i += costs;
        hub->turns -= costs < hub->turns ? costs : hub->turns;
        hub->first = c->next_turn;
        if (!hub->first)
            hub->last = &hub->first;
        c->waits = false;
        c->has_turn = true;
        hub->at_turn++;
        connection_resume(c);
    }
}

static void hub_end_turn(struct connection *c)
{
    struct egress_hub *hub = c->proxy->hub;
    c->has_turn = false;
    if (--hub->at_turn == 0)
        hub_give_turns(hub);
}

bool hub_puts_off(struct connection *c)
{
    struct egress_hub *hub = c->proxy->hub;
    uint64_t now = uv_now(&hub->loop->uv);
    if (hub->tick != now) {
        hub->tick = now;
        hub->busy = 0;
    }
    if (c->tick != now) {
        c->tick = now;
        hub->busy += connection_shakes(c) ? HANDSHAKE_BUSY : 1;
    }
    if (c->has_turn) {
        hub_end_turn(c);
        return false;
    }
    if (c->waits || (hub->busy <= BUSY_FEW && !hub->first))
        return c->waits;
    c->waits = true;
    c->next_turn = NULL;
    *hub->last = c;
    hub->last = &c->next_turn;
    timer_start(hub->turn, TURN_MS, 0);
    return true;
}

void hub_forget(struct connection *c)
{
    struct egress_hub *hub = c->proxy->hub;
    if (c->has_turn)
        hub_end_turn(c);
    for (struct connection **at = &hub->first; c->waits && *at; at = &(*at)->next_turn) {
        if (*at != c)
            continue;
        *at = c->next_turn;
        if (hub->last == &c->next_turn)
            hub->last = at;
        c->waits = false;
        return;
    }
}

/* The bound on connections is one on memory: each may have a whole piece that its client does not
 * take. */
bool hub_is_calm(struct egress_hub *hub)
{
    if (hub->busy > 1 || hub->open > CALM_MOST)
        return false;
    if (!hub->bulk)
        hub->bulk = malloc(EGRESS_BULK);
    return hub->bulk;
}

static void hub_take_turns(void *arg)
{
    struct egress_hub *hub = arg;
    hub->turns = TURN_MOST;
    hub_give_turns(hub);
    if (hub->first)
        timer_start(hub->turn, TURN_MS, 0);
}

int egress_hub_open(struct loop *loop, struct egress_hub **out, struct error *err)
{
    struct egress_hub *hub = calloc(1, sizeof *hub);
    struct rlimit limit;
    if (!hub)
        return error_memory(err);
    hub->loop = loop;
    hub->last = &hub->first;
    hub->turn = timer_new(loop, hub_take_turns, hub);
    getrlimit(RLIMIT_NOFILE, &limit);
    hub->open_most =
        (unsigned)((limit.rlim_cur > 1 << 20 ? 1 << 20 : limit.rlim_cur) / DESCRIPTORS_SHARE);
    if (!hub->turn) {
        free(hub);
        return error_memory(err);
    }
    *out = hub;
    return 0;
}

void egress_hub_close(struct egress_hub *hub)
{
    if (!hub)
        return;
    dial_forget_hub(hub);
    timer_free(hub->turn);
    free(hub->bulk);
    free(hub);
}

/* ---- one proxy ---- */

static bool proxy_has_room(const struct egress *proxy)
{
    return proxy->count < EGRESS_CONNECTIONS_MAX && proxy->hub->open < proxy->hub->open_most;
}

static void proxy_listen(struct egress *proxy)
{
    bool listens = proxy_has_room(proxy);
    if (listens == proxy->listens)
        return;
    proxy->listens = listens;
    watch_events(proxy->watch, listens ? UV_READABLE : 0);
}

void proxy_accept_again(struct egress *proxy)
{
    for (struct egress *at = proxy->hub->proxies; at; at = at->next)
        if (!at->listens)
            proxy_listen(at);
}

static void proxy_on_connection(void *arg, int status, int events)
{
    struct egress *proxy = arg;
    for (int i = 0; i < ACCEPT_MOST && proxy_has_room(proxy); i++) {
        int fd = accept4(proxy->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0)
            break;
        if (!connection_open(proxy, fd))
            close(fd);
    }
    timer_start(proxy->sweep, SWEEP_MS, SWEEP_MS);
    proxy_listen(proxy);
}

static void proxy_sweep(void *arg)
{
    struct egress *proxy = arg;
    uint64_t now = clock_ns();
    for (struct connection *c = proxy->connections, *next; c; c = next) {
        next = c->next;
        if (now >= c->until_ns)
            connection_expire(c);
        else if (c->phase == PHASE_DIAL)
            dial_check_time(c);
    }
    if (!proxy->connections)
        timer_stop(proxy->sweep);
}

/* The keeper made it; this is a check of our own code. */
static bool proxy_is_listener(int fd)
{
    int listens = 0;
    socklen_t len = sizeof listens;
    return fd >= 0 && getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &len) == 0 && listens &&
           fcntl(fd, F_SETFL, O_NONBLOCK) == 0;
}

int egress_open(struct egress_hub *hub, struct egress_grant *grant, int listener,
    const struct egress_events *events, void *arg, struct egress **out, struct error *err)
{
    struct egress *proxy = calloc(1, sizeof *proxy);
    if (!proxy || !proxy_is_listener(listener)) {
        close_fd(&listener);
        free(proxy);
        return proxy ? error_set(err, ERROR_ENVIRONMENT, "the sandbox's network has no listener")
                     : error_memory(err);
    }
    *proxy = (struct egress){ .hub = hub,
        .grant = egress_grant_hold(grant),
        .policy = grant->policy,
        .events = events,
        .arg = arg,
        .listener = listener,
        .next = hub->proxies };
    hub->proxies = proxy;
    proxy->watch = watch_new(hub->loop, listener, proxy_on_connection, proxy);
    proxy->sweep = timer_new(hub->loop, proxy_sweep, proxy);
    if (!proxy->watch || !proxy->sweep) {
        egress_close(proxy);
        return error_memory(err);
    }
    watch_background(proxy->watch, true);
    proxy_listen(proxy);
    *out = proxy;
    return 0;
}

void egress_close(struct egress *proxy)
{
    if (!proxy)
        return;
    struct egress **at = &proxy->hub->proxies;
    while (*at != proxy)
        at = &(*at)->next;
    *at = proxy->next;
    while (proxy->connections)
        connection_close(proxy->connections);
    dial_forget_sandbox(proxy);
    watch_free(proxy->watch);
    timer_free(proxy->sweep);
    close_fd(&proxy->listener);
    egress_grant_release(proxy->grant);
    free(proxy);
}
