/* egress/connection.c: the phases of a connection, and its two sockets.
 *
 * A side is read only if the other one has taken everything that was read before, so a connection
 * holds at most two pieces. What is read in PHASE_GREETING and PHASE_SOCKS is a head of bounded
 * size.
 */
#include "egress/connection.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "egress/head.h"

#define SECONDS_NS 1000000000ull
enum { HEAD_SECONDS = 15, DIAL_SECONDS = 20, LAST_SECONDS = 10, LINGER_SECONDS = 2 };

static void connection_on_client(void *arg, int status, int events);
static void connection_on_server(void *arg, int status, int events);

/* ---- reports ---- */

static void connection_describe(const struct connection *c, struct egress_request *out)
{
    *out = (struct egress_request){ .number = c->number,
        .method = c->target.method,
        .host = c->target.host.name,
        .port = c->target.port,
        .path = c->target.path,
        .address = c->address[0] ? c->address : NULL,
        .why = c->why[0] ? c->why : NULL,
        .status = c->status,
        .sent = c->sent,
        .received = c->received,
        .started_ms = c->began_ms,
        .seconds = clock_seconds_since(c->began_ns) };
}

/* False: it must not go on. */
static bool connection_tell(const struct connection *c, bool is_refused, bool has_ended)
{
    struct egress *proxy = c->proxy;
    struct egress_request told;
    if (!proxy->arg || !proxy->events->request)
        return true;
    connection_describe(c, &told);
    told.is_refused = is_refused;
    told.has_ended = has_ended;
    return proxy->events->request(proxy->arg, &told);
}

/* The request has ended, if there was one. */
static void connection_report_end(struct connection *c)
{
    if (!c->number)
        return;
    (void)connection_tell(c, false, true);
    c->number = 0;
}

/* ---- sockets ---- */

static void side_close(struct side *side)
{
    watch_free(side->watch);
    side->watch = NULL;
    close_fd(&side->fd);
    fifo_free(&side->out);
}

static bool side_flush(struct side *side)
{
    while (fifo_len(&side->out) > 0) {
        ssize_t n = send(side->fd, fifo_data(&side->out), fifo_len(&side->out), MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno == EAGAIN;
        fifo_drop(&side->out, (size_t)n);
    }
    return true;
}

bool side_send(struct side *side, const void *data, size_t len)
{
    ssize_t n = 0;
    if (fifo_len(&side->out) == 0 && len > 0) {
        n = send(side->fd, data, len, MSG_NOSIGNAL);
        if (n < 0 && errno != EAGAIN && errno != EINTR)
            return false;
        n = n < 0 ? 0 : n;
    }
    fifo_add(&side->out, (const char *)data + n, len - (size_t)n);
    return !fifo_failed(&side->out);
}

static void side_watch(struct side *side, bool reads)
{
    bool writes = fifo_len(&side->out) > 0;
    int events = (reads ? UV_READABLE : 0) | (writes ? UV_WRITABLE : 0);
    if (!side->watch || events == side->events)
        return;
    side->events = events;
    watch_events(side->watch, events);
}

static bool connection_reads_client(const struct connection *c)
{
    if (c->waits || c->client.has_ended || c->client.is_deaf)
        return false;
    return c->phase != PHASE_LAST && fifo_len(&c->server.out) == 0;
}

static bool connection_reads_server(const struct connection *c)
{
    bool passes = c->phase == PHASE_EXCHANGE || c->phase == PHASE_TUNNEL;
    return passes && !c->waits && !c->server.has_ended && fifo_len(&c->client.out) == 0;
}

static void connection_watch(struct connection *c)
{
    side_watch(&c->client, connection_reads_client(c));
    if (c->phase != PHASE_DIAL)
        side_watch(&c->server, connection_reads_server(c));
}

/* ---- beginning and end ---- */

bool connection_open(struct egress *proxy, int fd)
{
    struct connection *c = calloc(1, sizeof *c);
    struct watch *watch = c ? watch_new(proxy->hub->loop, fd, connection_on_client, c) : NULL;
    int on = 1;
    if (!watch) {
        free(c);
        return false;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    c->proxy = proxy;
    c->client = (struct side){ .fd = fd, .watch = watch };
    c->server.fd = -1;
    c->until_ns = clock_ns() + HEAD_SECONDS * SECONDS_NS;
    c->next = proxy->connections;
    c->slot = &proxy->connections;
    if (c->next)
        c->next->slot = &c->next;
    proxy->connections = c;
    proxy->count++;
    proxy->hub->open++;
    connection_watch(c);
    return true;
}

void connection_close(struct connection *c)
{
    struct egress *proxy = c->proxy;
    c->phase = PHASE_CLOSED;
    hub_forget(c);
    dial_cancel(c);
    connection_report_end(c);
    side_close(&c->client);
    side_close(&c->server);
    egress_target_clear(&c->target);
    buf_free(&c->in);
    *c->slot = c->next;
    if (c->next)
        c->next->slot = c->slot;
    proxy->count--;
    proxy->hub->open--;
    free(c);
    proxy_accept_again(proxy);
}

/* Nothing more comes for the client than what waits. */
void connection_last(struct connection *c)
{
    side_close(&c->server);
    connection_report_end(c);
    c->phase = PHASE_LAST;
    c->until_ns = clock_ns() + LAST_SECONDS * SECONDS_NS;
}

/* ---- the decision ---- */

static void connection_set_why(struct connection *c, const char *why)
{
    if (why != c->why)
        snprintf(c->why, sizeof c->why, "%s", why ? why : "");
}

/* Answers for the server, in the protocol of the request. */
static void connection_answer(struct connection *c, int status)
{
    if (c->is_socks)
        socks_answer(c, status);
    else
        exchange_answer(c, status, c->why);
}

/* False: a limit of the sandbox is reached, which is reported once. */
static bool connection_is_within_limits(struct connection *c)
{
    struct egress *proxy = c->proxy;
    const struct egress_limits *limits = egress_policy_limits(proxy->policy);
    bool many = limits->requests && proxy->requests > limits->requests;
    bool much = limits->bytes && proxy->bytes >= limits->bytes;
    if (!many && !much)
        return true;
    connection_set_why(c, many ? "the sandbox has made as many requests as it may"
                               : "the sandbox has moved as many bytes as it may");
    c->status = 429;
    if (!proxy->told_limit)
        (void)connection_tell(c, true, true);
    proxy->told_limit = true;
    c->number = 0;
    connection_answer(c, 429);
    connection_last(c);
    return false;
}

/* Counts it. False: a limit is reached, and it was answered. */
static bool connection_begin_request(struct connection *c)
{
    c->began_ns = clock_ns();
    c->began_ms = clock_wall_ms();
    c->number = ++c->proxy->requests;
    return connection_is_within_limits(c);
}

void connection_refuse(struct connection *c, int status, const char *why)
{
    if (!c->number && !connection_begin_request(c)) /* malformed: it is counted, too */
        return;
    c->status = status;
    connection_set_why(c, why);
    (void)connection_tell(c, true, true);
    c->number = 0;
    connection_answer(c, status);
    connection_last(c);
}

void connection_fail(struct connection *c, int status, const char *why)
{
    connection_set_why(c, why);
    c->status = status;
    connection_answer(c, status);
    connection_last(c);
}

static bool connection_is_permitted(struct connection *c)
{
    struct egress *proxy = c->proxy;
    const struct egress_target *t = &c->target;
    if (t->is_tunnel)
        return egress_policy_allows_tunnel(proxy->policy, &t->host, t->port);
    return egress_policy_allows_request(proxy->policy, &t->host, t->port, t->method, t->path);
}

void connection_ask(struct connection *c)
{
    const struct egress_limits *limits = egress_policy_limits(c->proxy->policy);
    char why[EGRESS_WHY_SIZE];
    if (!connection_begin_request(c))
        return;
    if (!connection_is_permitted(c)) {
        snprintf(why, sizeof why, "%.128s:%u is not allowed by --allow-net", c->target.host.name,
            c->target.port);
        connection_refuse(c, 403, why);
        return;
    }
    if (!connection_tell(c, false, false)) {
        c->number = 0;
        connection_fail(c, 503, "the request cannot be recorded");
        return;
    }
    double most =
        limits->seconds > 0 && limits->seconds < DIAL_SECONDS ? limits->seconds : DIAL_SECONDS;
    c->phase = PHASE_DIAL;
    c->until_ns = c->began_ns + (uint64_t)(most * 1e9);
    dial_begin(c);
}

void connection_dialled(struct connection *c)
{
    double seconds = egress_policy_limits(c->proxy->policy)->seconds;
    c->server.watch = watch_new(c->proxy->hub->loop, c->server.fd, connection_on_server, c);
    if (!c->server.watch) {
        c->phase = PHASE_CLOSED;
        return;
    }
    c->client.is_deaf = false;
    c->until_ns = seconds > 0 ? c->began_ns + (uint64_t)(seconds * 1e9) : UINT64_MAX;
    if (c->target.is_tunnel) {
        c->phase = PHASE_TUNNEL;
        c->status = 200;
        connection_answer(c, 200);
        if (c->in.len > 0 && !(side_send(&c->server, c->in.data, c->in.len) &&
                                 connection_count(c, &c->sent, c->in.len))) {
            c->phase = PHASE_CLOSED;
            return;
        }
        buf_clear(&c->in);
    } else {
        c->phase = PHASE_EXCHANGE;
        exchange_begin(c);
    }
}

bool connection_count(struct connection *c, uint64_t *which, size_t n)
{
    struct egress *proxy = c->proxy;
    uint64_t most = egress_policy_limits(proxy->policy)->bytes;
    *which += n;
    proxy->bytes += n;
    if (most == 0 || proxy->bytes <= most)
        return true;
    connection_set_why(c, "the sandbox has moved as many bytes as it may");
    return false;
}

void connection_expire(struct connection *c)
{
    if (c->phase == PHASE_DIAL) {
        dial_cancel(c);
        connection_fail(c, 504, "the server did not answer in time");
    } else {
        if (c->number)
            connection_set_why(c, "it has taken as long as a request may");
        c->phase = PHASE_CLOSED;
    }
    connection_settle(c);
}

/* ---- moving bytes ---- */

/* One end has closed, and what it sent was passed on: tells the other end. False: both have. */
static bool tunnel_pass_end(struct side *from, struct side *to)
{
    if (from->has_ended && !to->is_shut && fifo_len(&to->out) == 0) {
        shutdown(to->fd, SHUT_WR);
        to->is_shut = true;
    }
    return !(from->is_shut && to->is_shut);
}

static void connection_take(struct connection *c, bool from_client, const char *data, size_t len)
{
    struct side *to = from_client ? &c->server : &c->client;
    if (c->phase == PHASE_EXCHANGE && from_client)
        exchange_from_client(c, data, len);
    else if (c->phase == PHASE_EXCHANGE)
        exchange_from_server(c, data, len);
    else if (!connection_count(c, from_client ? &c->sent : &c->received, len) ||
             !side_send(to, data, len))
        c->phase = PHASE_CLOSED;
}

/* Bytes of a head: bounded, because a complete one is taken at once. */
static void connection_take_head(struct connection *c, const char *data, size_t len)
{
    buf_append(&c->in, data, len);
    if (buf_failed(&c->in)) {
        c->phase = PHASE_CLOSED;
        return;
    }
    if (c->phase == PHASE_GREETING && c->in.data[0] == 5)
        c->is_socks = true;
    if (c->is_socks)
        socks_step(c);
    else
        exchange_step(c);
}

static void connection_client_ended(struct connection *c)
{
    c->client.has_ended = true;
    /* Whatever it was waiting for, it is not there any more; only tunnels have half an end. */
    if (c->phase != PHASE_TUNNEL)
        c->phase = PHASE_CLOSED;
}

/* While a connection is dialled, or its request is complete, only the client's end matters. */
static void connection_peek(struct connection *c)
{
    char next;
    ssize_t n = recv(c->client.fd, &next, 1, MSG_PEEK);
    if (n > 0)
        c->client.is_deaf = true;
    else if (n == 0 || (errno != EAGAIN && errno != EINTR))
        c->phase = PHASE_CLOSED;
}

static void connection_read_client(struct connection *c)
{
    char data[EGRESS_PIECE];
    bool head = c->phase == PHASE_GREETING || c->phase == PHASE_SOCKS;
    if (c->phase == PHASE_DIAL ||
        (c->phase == PHASE_EXCHANGE && egress_body_has_ended(&c->target.body))) {
        connection_peek(c);
        return;
    }
    ssize_t n = recv(c->client.fd, data, head ? EGRESS_HEAD_MAX : sizeof data, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0)
        connection_client_ended(c);
    else if (head)
        connection_take_head(c, data, (size_t)n);
    else if (c->phase != PHASE_LINGER) /* which discards it */
        connection_take(c, true, data, (size_t)n);
}

static void connection_read_server(struct connection *c)
{
    char data[EGRESS_PIECE];
    ssize_t n = recv(c->server.fd, data, sizeof data, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n > 0) {
        connection_take(c, false, data, (size_t)n);
        return;
    }
    c->server.has_ended = true;
    if (c->phase == PHASE_EXCHANGE)
        exchange_server_ended(c);
    else if (n < 0)
        c->phase = PHASE_CLOSED;
}

void connection_settle(struct connection *c)
{
    if (c->phase == PHASE_TUNNEL) {
        bool goes_on = tunnel_pass_end(&c->client, &c->server);
        goes_on = tunnel_pass_end(&c->server, &c->client) && goes_on;
        if (!goes_on)
            c->phase = PHASE_CLOSED;
    }
    if (c->phase == PHASE_LAST && fifo_len(&c->client.out) == 0) {
        shutdown(c->client.fd, SHUT_WR);
        c->client.is_deaf = false;
        c->phase = c->client.has_ended ? PHASE_CLOSED : PHASE_LINGER;
        c->until_ns = clock_ns() + LINGER_SECONDS * SECONDS_NS;
    }
    if (c->phase == PHASE_CLOSED)
        connection_close(c);
    else
        connection_watch(c);
}

void connection_resume(struct connection *c)
{
    connection_watch(c);
}

static void connection_on_client(void *arg, int status, int events)
{
    struct connection *c = arg;
    if (status < 0 || (events & UV_WRITABLE && !side_flush(&c->client)))
        c->phase = PHASE_CLOSED;
    else if (events & UV_READABLE && connection_reads_client(c) && !hub_puts_off(c))
        connection_read_client(c);
    connection_settle(c);
}

static void connection_on_server(void *arg, int status, int events)
{
    struct connection *c = arg;
    if (status < 0 || (events & UV_WRITABLE && !side_flush(&c->server)))
        c->phase = PHASE_CLOSED;
    else if (events & UV_READABLE && connection_reads_server(c) && !hub_puts_off(c))
        connection_read_server(c);
    connection_settle(c);
}
