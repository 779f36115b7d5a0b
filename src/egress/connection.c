/* egress/connection.c: the phases of a connection, and its two sockets.
 *
 * A side is read only if the other one has taken everything that was read before, so a connection
 * holds at most two pieces. What is read in PHASE_GREETING and PHASE_SOCKS is a head of bounded
 * size.
 *
 * Where TLS ends, CONNECT is answered at once, and each request within it is decided about, dialled
 * and recorded like one of plain HTTP; the server's connection is kept for the next one.
 */
#include "egress/connection.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "egress/head.h"

#define SECONDS_NS 1000000000ull
enum {
    HEAD_SECONDS = 15,
    ASK_SECONDS = 60,
    DIAL_SECONDS = 20,
    LAST_SECONDS = 10,
    LINGER_SECONDS = 2
};

static void connection_shake(struct connection *c, const struct buf *early);
static void connection_pass(struct connection *c);
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

/* Before the program has decided, its end is that of a refused request. */
static void connection_abandon(struct connection *c)
{
    if (!c->question)
        return;
    question_forget(c);
    snprintf(c->why, sizeof c->why, "the connection was closed before it was decided");
    (void)connection_tell(c, true, true);
    c->number = 0;
}

/* ---- sockets ---- */

static void side_close(struct side *side)
{
    watch_free(side->watch);
    egress_tls_free(side->tls);
    close_fd(&side->fd);
    fifo_free(&side->out);
    *side = (struct side){ .fd = -1 };
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

static bool side_send_raw(struct side *side, const void *data, size_t len)
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

/* Sends what TLS has to say. */
static bool side_send_records(struct side *side)
{
    char *data;
    size_t len = egress_tls_peek(side->tls, &data);
    bool sent = side_send_raw(side, data, len);
    egress_tls_sent(side->tls);
    return sent;
}

bool side_send(struct side *side, const void *data, size_t len)
{
    if (!side->tls)
        return side_send_raw(side, data, len);
    return egress_tls_write(side->tls, data, len) && side_send_records(side);
}

/* Takes ciphertext, and returns what recv(2) would of the text in it. */
static ssize_t side_decrypt(struct side *side, const void *data, size_t len, void *out, size_t size)
{
    struct egress_tls *tls = side->tls;
    if (!egress_tls_feed(tls, data, len)) {
        errno = ENOMEM;
        return -1;
    }
    bool fine = egress_tls_is_up(tls) || egress_tls_shake(tls);
    ssize_t n = fine && egress_tls_is_up(tls) ? egress_tls_read(tls, out, size) : 0;
    fine = side_send_records(side) && fine && n >= 0;
    if (n > 0 || (fine && egress_tls_has_ended(tls)))
        return n;
    errno = fine ? EAGAIN : EPROTO;
    return -1;
}

/* As recv(2). Whatever comes of TLS fits, with the record that was incomplete before. */
static ssize_t side_receive(struct side *side, void *out, size_t size)
{
    char data[EGRESS_PIECE];
    if (!side->tls)
        return recv(side->fd, out, size, 0);
    size_t most = size > EGRESS_TLS_RECORD ? size - EGRESS_TLS_RECORD : 1;
    ssize_t n = recv(side->fd, data, most < sizeof data ? most : sizeof data, 0);
    if (n > 0)
        return side_decrypt(side, data, (size_t)n, out, size);
    /* Without its own end, TLS may have been cut. */
    if (n == 0 && !egress_tls_has_ended(side->tls)) {
        errno = EPROTO;
        return -1;
    }
    return n;
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
    bool passes = c->phase == PHASE_EXCHANGE || c->phase == PHASE_TUNNEL ||
                  c->phase == PHASE_SECURE || (c->phase == PHASE_GREETING && c->is_tls);
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
    connection_abandon(c);
    connection_report_end(c);
    if (c->is_tls && c->began_ns == 0)
        proxy->requests++; /* a handshake costs as much as a request */
    side_close(&c->client);
    side_close(&c->server);
    egress_target_clear(&c->target);
    egress_redactor_free(&c->redactor);
    buf_free(&c->in);
    buf_free(&c->behind);
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
    if (c->client.tls && !c->is_cut) {
        egress_tls_end(c->client.tls);
        side_send_records(&c->client);
    }
    c->phase = PHASE_LAST;
    c->until_ns = clock_ns() + LAST_SECONDS * SECONDS_NS;
}

void connection_next(struct connection *c)
{
    connection_report_end(c);
    egress_target_clear(&c->target);
    egress_redactor_free(&c->redactor);
    buf_free(&c->in);
    c->in = c->behind;
    c->behind = (struct buf){ 0 };
    c->scanned = 0;
    c->answer = (struct egress_answer){ 0 };
    c->has_answer = false;
    c->is_reused = true;
    c->why[0] = '\0';
    c->status = 0;
    c->sent = c->received = 0;
    c->client.is_deaf = false;
    c->phase = PHASE_GREETING;
    c->until_ns = clock_ns() + HEAD_SECONDS * SECONDS_NS;
    if (c->in.len > 0)
        exchange_step(c);
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
    return egress_policy_allows_request(
        proxy->policy, t->is_tls, &t->host, t->port, t->method, t->path);
}

/* The tunnel is one whose requests the proxy must read: plays the server in it. */
static void connection_end_tls(struct connection *c)
{
    c->host = c->target.host;
    c->port = c->target.port;
    c->client.is_deaf = false;
    connection_answer(c, 200);
    c->is_socks = false;
    c->is_tls = true;
    c->phase = PHASE_TLS;
    c->until_ns = clock_ns() + HEAD_SECONDS * SECONDS_NS;
    c->client.tls = egress_tls_accept(c->proxy->grant->authority, &c->host);
    if (!c->client.tls)
        c->phase = PHASE_CLOSED;
    cleanup_buf struct buf early = c->in;
    c->in = (struct buf){ 0 };
    c->scanned = 0;
    if (c->phase == PHASE_TLS && early.len > 0)
        connection_shake(c, &early);
}

/* When so many seconds have passed, or those that the request may take. */
static uint64_t connection_until(const struct connection *c, double most)
{
    double seconds = egress_policy_limits(c->proxy->policy)->seconds;
    most = seconds > 0 && seconds < most ? seconds : most;
    return clock_ns() + (uint64_t)(most * 1e9);
}

/* It is permitted: records it, and dials. */
static void connection_begin(struct connection *c)
{
    if (!connection_tell(c, false, false)) {
        c->number = 0;
        connection_fail(c, 503, "the request cannot be recorded");
        return;
    }
    c->phase = PHASE_DIAL;
    c->until_ns = connection_until(c, DIAL_SECONDS);
    c->dial = (struct dial){ 0 };
    if (c->server.fd < 0)
        dial_begin(c);
    else
        connection_pass(c);
}

/* Goes on if the program has decided. */
static void connection_take_decision(struct connection *c)
{
    bool allow;
    if (!question_is_decided(c, &allow))
        return;
    if (c->until_ns == UINT64_MAX)
        c->began_ns = clock_ns(); /* the wait for an approval is none of its time */
    if (allow)
        connection_begin(c);
    else
        connection_refuse(c, 403, c->why);
}

void connection_decided(struct connection *c)
{
    connection_take_decision(c);
    connection_settle(c);
}

/* True: it needs an approval, for which it waits as long as that takes. */
static bool connection_approve(struct connection *c)
{
    const struct egress_target *t = &c->target;
    bool whole;
    if (!egress_policy_needs_approval(c->proxy->policy, t->is_tunnel, t->is_tls, &t->host, t->port,
            t->method, t->path, &whole))
        return false;
    c->phase = PHASE_ASK;
    c->until_ns = UINT64_MAX;
    if (question_approve(c, whole))
        connection_take_decision(c);
    else
        connection_refuse(c, 403, "it needs an approval, and nothing here can ask for one");
    return true;
}

void connection_ask(struct connection *c)
{
    const struct egress_limits *limits = egress_policy_limits(c->proxy->policy);
    char why[EGRESS_WHY_SIZE];
    bool more = limits->requests == 0 || c->proxy->requests < limits->requests;
    if (c->target.is_tunnel && more &&
        egress_policy_ends_tls(c->proxy->policy, &c->target.host, c->target.port)) {
        connection_end_tls(c);
        return;
    }
    if (!connection_begin_request(c))
        return;
    if (!connection_is_permitted(c)) {
        snprintf(why, sizeof why,
            c->is_tls ? "%.8s %.128s:%u%.64s is not allowed by --allow-net"
                      : "%.0s%.128s:%u%.0s is not allowed by --allow-net",
            c->target.method, c->target.host.name, c->target.port,
            c->target.path ? c->target.path : "");
        connection_refuse(c, 403, why);
        return;
    }
    if (connection_approve(c))
        return;
    if (!egress_policy_asks(c->proxy->policy)) {
        connection_begin(c);
        return;
    }
    c->phase = PHASE_ASK;
    c->until_ns = connection_until(c, ASK_SECONDS);
    if (question_ask(c))
        connection_take_decision(c);
    else
        connection_refuse(c, 503, "out of memory");
}

/* The server is there: the request goes to it. */
static void connection_pass(struct connection *c)
{
    double seconds = egress_policy_limits(c->proxy->policy)->seconds;
    c->client.is_deaf = false;
    c->until_ns = seconds > 0 ? c->began_ns + (uint64_t)(seconds * 1e9) : UINT64_MAX;
    c->phase = PHASE_EXCHANGE;
    exchange_begin(c);
}

static void connection_secure(struct connection *c)
{
    c->phase = PHASE_SECURE;
    c->is_reused = false;
    c->server.tls = egress_tls_connect(egress_policy_trusted(c->proxy->policy), &c->host);
    if (!c->server.tls || !egress_tls_shake(c->server.tls) || !side_send_records(&c->server))
        connection_fail(c, 502, "the server closed the connection");
}

/* Bytes of the handshake, and maybe of what follows it, have come from the server. */
static void connection_secured(struct connection *c, ssize_t n)
{
    char why[EGRESS_WHY_SIZE], detail[160];
    if (egress_tls_is_up(c->server.tls) && (n > 0 || errno == EAGAIN)) {
        connection_pass(c);
        return;
    }
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    egress_tls_why(c->server.tls, detail, sizeof detail);
    snprintf(why, sizeof why, "TLS with the server failed: %s",
        detail[0] ? detail : "it closed the connection");
    connection_fail(c, 502, why);
}

void connection_dialled(struct connection *c)
{
    double seconds = egress_policy_limits(c->proxy->policy)->seconds;
    c->server.watch = watch_new(c->proxy->hub->loop, c->server.fd, connection_on_server, c);
    if (!c->server.watch) {
        c->phase = PHASE_CLOSED;
        return;
    }
    if (c->is_tls) {
        connection_secure(c);
    } else if (c->target.is_tunnel) {
        c->client.is_deaf = false;
        c->until_ns = seconds > 0 ? c->began_ns + (uint64_t)(seconds * 1e9) : UINT64_MAX;
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
        connection_pass(c);
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
    if (c->phase == PHASE_ASK) {
        question_forget(c);
        connection_refuse(c, 403, "the program did not decide in time");
    } else if (c->phase == PHASE_DIAL || c->phase == PHASE_SECURE) {
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
    if (c->phase == PHASE_GREETING && !c->is_tls && c->in.data[0] == 5)
        c->is_socks = true;
    if (c->is_socks)
        socks_step(c);
    else
        exchange_step(c);
}

/* The guest's handshake has failed: it knows that from TLS, and the record from this. */
static void connection_refuse_tls(struct connection *c)
{
    char detail[160];
    egress_tls_why(c->client.tls, detail, sizeof detail);
    c->number = ++c->proxy->requests;
    c->began_ns = clock_ns();
    c->began_ms = clock_wall_ms();
    c->status = 400;
    snprintf(c->why, sizeof c->why,
        "rules or secrets of this destination need TLS that trusts the session's certificates: %s",
        detail[0] ? detail : "the connection was closed");
    (void)connection_tell(c, true, true);
    c->number = 0;
    connection_last(c);
}

/* Bytes of the guest's handshake, and of what follows it. */
static void connection_take_tls(struct connection *c, const char *data, ssize_t n)
{
    if (n < 0 && errno != EAGAIN && errno != EINTR) {
        connection_refuse_tls(c);
        return;
    }
    if (!egress_tls_is_up(c->client.tls))
        return;
    egress_target_clear(&c->target);
    c->phase = PHASE_GREETING;
    if (n > 0)
        connection_take_head(c, data, (size_t)n);
}

/* The client's first bytes came together with its CONNECT. */
static void connection_shake(struct connection *c, const struct buf *early)
{
    char data[EGRESS_PIECE + EGRESS_TLS_RECORD];
    ssize_t n = side_decrypt(&c->client, early->data, early->len, data, sizeof data);
    connection_take_tls(c, data, n);
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
    char data[EGRESS_PIECE + EGRESS_TLS_RECORD];
    bool head = c->phase == PHASE_GREETING || c->phase == PHASE_SOCKS;
    if (c->phase == PHASE_ASK || c->phase == PHASE_DIAL || c->phase == PHASE_SECURE ||
        (c->phase == PHASE_EXCHANGE && egress_body_has_ended(&c->target.body))) {
        connection_peek(c);
        return;
    }
    ssize_t n = side_receive(&c->client, data, head && !c->is_tls ? EGRESS_HEAD_MAX : sizeof data);
    if (c->phase == PHASE_TLS && n != 0) {
        connection_take_tls(c, data, n);
        return;
    }
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0)
        connection_client_ended(c);
    else if (head)
        connection_take_head(c, data, (size_t)n);
    else if (c->phase != PHASE_LINGER) /* which discards it */
        connection_take(c, true, data, (size_t)n);
}

/* Where to read a server's data to, and how much at most. A large transfer that is alone moves up
 * to EGRESS_BULK in a turn, which takes half the time for each byte: fewer calls, and fewer
 * changes between this process and the two others. (Through a pipe, splice(2) copies nothing, but
 * handles pages of 4 KiB one by one, and took as long as without this.) */
static char *connection_room(struct connection *c, char *piece, size_t *size)
{
    struct egress_hub *hub = c->proxy->hub;
    if (!c->is_large || c->server.tls || !hub_is_calm(hub))
        return piece;
    *size = EGRESS_BULK;
    return hub->bulk;
}

static void connection_read_server(struct connection *c)
{
    char piece[EGRESS_PIECE + EGRESS_TLS_RECORD];
    size_t size = sizeof piece;
    char *data = connection_room(c, piece, &size);
    ssize_t n = side_receive(&c->server, data, size);
    c->is_large = n >= EGRESS_PIECE;
    if (c->phase == PHASE_SECURE) {
        connection_secured(c, n);
        return;
    }
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (c->phase == PHASE_GREETING) { /* it has nothing to say now, unless that it ends */
        side_close(&c->server);
        return;
    }
    if (n > 0) {
        connection_take(c, false, data, (size_t)n);
        return;
    }
    c->server.has_ended = true;
    if (c->phase == PHASE_EXCHANGE)
        exchange_server_ended(c, n < 0);
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
