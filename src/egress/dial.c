/* egress/dial.c: resolves the host of a request and connects to it.
 *
 * The name is resolved once. Its addresses are checked here, and only those that were checked are
 * connected to, so a name that has another address the next time gains nothing.
 */
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "egress/connection.h"

enum { RESOLVING_MOST = 2 };          /* of a sandbox: libuv has few threads for names */
#define DIAL_ATTEMPT_NS 5000000000ull /* if there is another address */

struct lookup {
    uv_getaddrinfo_t uv; /* first: the request outlives a connection that is closed meanwhile */
    struct connection *connection; /* then NULL */
};

static void dial_next(struct connection *c);
static void dial_writable(struct connection *c);

/* Keeps the addresses that may be connected to. */
static void dial_take_address(struct connection *c, const struct egress_address *address)
{
    const char *what = egress_address_refusal(address);
    char text[EGRESS_ADDRESS_SIZE];
    bool listed = egress_policy_lists(c->proxy->policy, address, c->target.port);
    if (!what && !listed && egress_address_is_own(address))
        what = "an address of this machine";
    if (what && !listed) {
        egress_address_print(address, text);
        snprintf(c->why, sizeof c->why, "%.80s has %s (%s), which no rule lists",
            c->target.host.name, what, text);
        return;
    }
    if (c->dial.count < DIAL_ADDRESSES_MAX)
        c->dial.addresses[c->dial.count++] = *address;
}

static void dial_addresses_known(struct connection *c)
{
    if (c->dial.count > 0)
        dial_next(c);
    else
        connection_refuse(c, 403, c->why[0] ? c->why : "the host has no address");
}

static void dial_resolve(struct connection *c);

/* One that has waited for others' names may ask for its own. */
static void dial_resolve_waiting(struct egress *proxy)
{
    for (struct connection *c = proxy->connections; c; c = c->next) {
        if (!c->dial.waits)
            continue;
        c->dial.waits = false;
        dial_resolve(c);
        if (c->phase != PHASE_DIAL)
            connection_settle(c);
        return;
    }
}

static void dial_on_resolved(uv_getaddrinfo_t *request, int status, struct addrinfo *list)
{
    struct lookup *lookup = (struct lookup *)request;
    struct connection *c = lookup->connection;
    for (const struct addrinfo *at = list; c && at; at = at->ai_next) {
        struct egress_address address;
        if (egress_address_from(at->ai_addr, &address))
            dial_take_address(c, &address);
    }
    uv_freeaddrinfo(list);
    free(lookup);
    if (!c)
        return;
    c->dial.lookup = NULL;
    c->proxy->resolving--;
    dial_resolve_waiting(c->proxy);
    if (status < 0)
        connection_fail(c, 502, "the name was not found");
    else
        dial_addresses_known(c);
    connection_settle(c);
}

static void dial_resolve(struct connection *c)
{
    static const struct addrinfo hints = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM };
    struct lookup *lookup = calloc(1, sizeof *lookup);
    if (!lookup || uv_getaddrinfo(&c->proxy->hub->loop->uv, &lookup->uv, dial_on_resolved,
                       c->target.host.name, NULL, &hints) < 0) {
        free(lookup);
        connection_fail(c, 503, "no name can be resolved now");
        return;
    }
    lookup->connection = c;
    c->dial.lookup = lookup;
    c->proxy->resolving++;
}

void dial_begin(struct connection *c)
{
    if (c->target.host.is_address) {
        dial_take_address(c, &c->target.host.address);
        dial_addresses_known(c);
    } else if (c->proxy->resolving >= RESOLVING_MOST) {
        c->dial.waits = true;
    } else {
        dial_resolve(c);
    }
}

static void dial_drop_socket(struct connection *c)
{
    watch_free(c->server.watch);
    c->server.watch = NULL;
    c->server.events = 0;
    close_fd(&c->server.fd);
}

static void dial_on_event(void *arg, int status, int events)
{
    dial_writable(arg);
    connection_settle(arg);
}

/* True: it is connected, or will be. */
static bool dial_try(struct connection *c, const struct egress_address *address)
{
    struct sockaddr_storage to;
    char text[EGRESS_ADDRESS_SIZE];
    socklen_t len = egress_address_to(address, c->target.port, &to);
    int on = 1;
    c->server.fd = socket(to.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (c->server.fd < 0)
        return false;
    setsockopt(c->server.fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    egress_address_print(address, text);
    snprintf(c->address, sizeof c->address, strchr(text, ':') ? "[%s]:%u" : "%s:%u", text,
        c->target.port);
    c->dial.attempt_ns = clock_ns();
    if (connect(c->server.fd, (const struct sockaddr *)&to, len) < 0 && errno != EINPROGRESS)
        return false;
    c->server.watch = watch_new(c->proxy->hub->loop, c->server.fd, dial_on_event, c);
    c->server.events = UV_WRITABLE;
    return c->server.watch && watch_events(c->server.watch, UV_WRITABLE) == 0;
}

static void dial_next(struct connection *c)
{
    while (c->dial.at < c->dial.count) {
        if (dial_try(c, &c->dial.addresses[c->dial.at++]))
            return;
        dial_drop_socket(c);
    }
    connection_fail(c, 502, "the server refused the connection, or cannot be reached");
}

/* The attempt has ended, one way or the other. */
static void dial_writable(struct connection *c)
{
    int failure = 0;
    socklen_t len = sizeof failure;
    getsockopt(c->server.fd, SOL_SOCKET, SO_ERROR, &failure, &len);
    if (failure) {
        dial_drop_socket(c);
        dial_next(c);
        return;
    }
    watch_free(c->server.watch);
    c->server.watch = NULL;
    c->server.events = 0;
    connection_dialled(c);
}

void dial_check_time(struct connection *c)
{
    if (c->server.fd < 0 || c->dial.at >= c->dial.count ||
        clock_ns() - c->dial.attempt_ns < DIAL_ATTEMPT_NS)
        return;
    dial_drop_socket(c);
    dial_next(c);
    connection_settle(c);
}

void dial_cancel(struct connection *c)
{
    c->dial.waits = false;
    if (!c->dial.lookup)
        return;
    c->dial.lookup->connection = NULL;
    uv_cancel((uv_req_t *)&c->dial.lookup->uv);
    c->dial.lookup = NULL;
    c->proxy->resolving--;
    dial_resolve_waiting(c->proxy);
}
