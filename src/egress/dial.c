/* egress/dial.c: resolves the host of a request and connects to it.
 *
 * The name is resolved once. Its addresses are checked here, and only those that were checked are
 * connected to, so a name that has another address the next time gains nothing. A rule names a
 * host completely, so the host's search list is not used: `api.example.com` must not become
 * `api.example.com.corp.example`.
 *
 * A lookup cannot be cancelled. Each one has a thread of its own, so that silent name servers do
 * not occupy libuv's pool, and counts until this thread has ended, also when its connection or
 * its sandbox is gone. Names beyond the two limits wait.
 */
#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <resolv.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/job.h"
#include "egress/connection.h"

enum { LOOKUPS_OF_SANDBOX_MAX = 2, LOOKUPS_MAX = 16 };
#define DIAL_ATTEMPT_NS 5000000000ull /* if there is another address */

/* The name of a connection; NULL stands for a hub, a sandbox or a connection that is gone. */
struct lookup {
    struct lookup *next;
    struct egress_hub *hub;
    const struct egress *proxy;
    struct connection *connection;
    struct addrinfo *addresses;
    int status;
    char name[];
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

/* ---- names ---- */

/* In its thread, whose state of the resolver nothing else uses. */
static void lookup_run(void *arg)
{
    static const struct addrinfo hints = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM };
    struct lookup *lookup = arg;
    res_init();
    _res.options &= ~(unsigned long)(RES_DEFNAMES | RES_DNSRCH);
    lookup->status = getaddrinfo(lookup->name, NULL, &hints, &lookup->addresses);
}

static bool lookup_fits(const struct egress *proxy)
{
    unsigned all = 0, own = 0;
    for (const struct lookup *at = proxy->hub->lookups; at; at = at->next) {
        all++;
        own += at->proxy == proxy;
    }
    return all < LOOKUPS_MAX && own < LOOKUPS_OF_SANDBOX_MAX;
}

static void lookup_remove(struct lookup *lookup)
{
    struct lookup **at = &lookup->hub->lookups;
    while (*at != lookup)
        at = &(*at)->next;
    *at = lookup->next;
}

static void dial_resolve(struct connection *c);

static bool dial_resolve_waiting_of(struct egress *proxy)
{
    struct connection *c = lookup_fits(proxy) ? proxy->connections : NULL;
    while (c && !c->dial.waits)
        c = c->next;
    if (!c)
        return false;
    c->dial.waits = false;
    dial_resolve(c);
    if (c->phase != PHASE_DIAL)
        connection_settle(c);
    return true;
}

/* The sandbox goes to the end of the list, so that another one is next. */
static void dial_resolve_waiting(struct egress_hub *hub)
{
    for (struct egress **at = &hub->proxies; *at; at = &(*at)->next) {
        struct egress *proxy = *at;
        if (!dial_resolve_waiting_of(proxy))
            continue;
        while (*at != proxy)
            at = &(*at)->next;
        *at = proxy->next;
        while (*at)
            at = &(*at)->next;
        *at = proxy;
        proxy->next = NULL;
        return;
    }
}

static void lookup_ended(void *arg)
{
    struct lookup *lookup = arg;
    struct connection *c = lookup->connection;
    bool found = lookup->status == 0;
    for (const struct addrinfo *at = lookup->addresses; c && at; at = at->ai_next) {
        struct egress_address address;
        if (egress_address_from(at->ai_addr, &address))
            dial_take_address(c, &address);
    }
    if (lookup->addresses)
        freeaddrinfo(lookup->addresses);
    if (lookup->hub) {
        lookup_remove(lookup);
        dial_resolve_waiting(lookup->hub);
    }
    free(lookup);
    if (!c)
        return;
    c->dial.lookup = NULL;
    if (found)
        dial_addresses_known(c);
    else
        connection_fail(c, 502, "the name was not found");
    connection_settle(c);
}

static void dial_resolve(struct connection *c)
{
    struct egress_hub *hub = c->proxy->hub;
    const char *name = c->target.host.name;
    struct lookup *lookup = calloc(1, sizeof *lookup + strlen(name) + 1);
    if (!lookup) {
        connection_fail(c, 503, "no name can be resolved now");
        return;
    }
    *lookup =
        (struct lookup){ .next = hub->lookups, .hub = hub, .proxy = c->proxy, .connection = c };
    strcpy(lookup->name, name);
    if (job_start(hub->loop, lookup_run, lookup_ended, lookup, NULL) < 0) {
        free(lookup);
        connection_fail(c, 503, "no name can be resolved now");
        return;
    }
    hub->lookups = lookup;
    c->dial.lookup = lookup;
}

void dial_forget_sandbox(const struct egress *proxy)
{
    for (struct lookup *at = proxy->hub->lookups; at; at = at->next)
        if (at->proxy == proxy)
            at->proxy = NULL;
}

void dial_forget_hub(struct egress_hub *hub)
{
    for (struct lookup *at = hub->lookups; at; at = at->next)
        at->hub = NULL;
}

void dial_begin(struct connection *c)
{
    if (c->target.host.is_address) {
        dial_take_address(c, &c->target.host.address);
        dial_addresses_known(c);
    } else if (lookup_fits(c->proxy)) {
        dial_resolve(c);
    } else {
        c->dial.waits = true;
    }
}

/* ---- connections ---- */

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
    if (c->dial.lookup)
        c->dial.lookup->connection = NULL;
    c->dial.lookup = NULL;
}
