/* serve/http/tls_link.c: see tls_link.h.
 *
 * For each client there is a socket pair. libmicrohttpd has one end, as if it were the client's
 * socket; GnuTLS stands between the other end and the client. So everything behind it is the same
 * with and without TLS: checks of heads, suspended requests, and WebSockets, which stall where
 * libmicrohttpd itself forwards between TLS and a socket pair (release 0.9.75).
 *
 * No direction reads while what it has read before cannot be written. Limits and deadlines are
 * libmicrohttpd's, which knows a connection before its handshake.
 */
#include "serve/http/tls_link.h"

#include "serve/http/tls.h"

#ifdef DROSTE_TLS

#include <errno.h>
#include <gnutls/gnutls.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fifo.h"

enum { LINK_PIECE = 16 << 10 }; /* a record of TLS */
/* How long a client may take to close what the server has ended: an answer that was not read yet
 * would be lost if the socket were closed with unread data. */
#define LINK_LINGER_NS 2000000000ull

enum { LINK_CLIENT, LINK_PLAIN, LINK_ENDS };

struct tls_link {
    struct server *server;
    gnutls_session_t session;
    int fds[LINK_ENDS];
    uv_poll_t polls[LINK_ENDS];
    unsigned handles; /* that are open */
    struct fifo in;   /* for libmicrohttpd, whose socket is full */
    bool is_open;     /* after the handshake */
    bool is_unsent;   /* GnuTLS has a record that the client's socket did not take */
    bool in_ended, out_ended, is_over;
    uint64_t ended_ns;
    struct tls_link *next, **link;
};

struct tls_listener {
    uv_poll_t poll;
    gnutls_certificate_credentials_t credentials;
    gnutls_priority_t priorities;
    bool has_poll, is_full;
    struct tls_link *links;
    size_t count; /* of them */
};

/* ---- the end ---- */

static void link_on_closed(uv_handle_t *handle)
{
    struct tls_link *l = handle->data;
    if (--l->handles == 0)
        free(l);
}

static void link_drop(struct tls_link *l)
{
    if (l->is_over)
        return;
    l->is_over = true;
    l->server->tls->count--;
    *l->link = l->next;
    if (l->next)
        l->next->link = l->link;
    gnutls_deinit(l->session);
    fifo_free(&l->in);
    for (unsigned i = l->handles; i > 0; i--)
        uv_close((uv_handle_t *)&l->polls[i - 1], link_on_closed);
    for (int i = 0; i < LINK_ENDS; i++)
        close(l->fds[i]);
    if (l->handles == 0)
        free(l);
}

/* ---- bytes ---- */

static bool link_must_wait(ssize_t n)
{
    return n == GNUTLS_E_AGAIN || n == GNUTLS_E_INTERRUPTED;
}

static bool link_shakes_hands(struct tls_link *l)
{
    char byte;
    int rc = gnutls_handshake(l->session);
    l->is_open = rc == GNUTLS_E_SUCCESS;
    if (l->is_open)
        return true;
    /* the other end closes when the handshake takes too long */
    if (gnutls_error_is_fatal(rc) ||
        recv(l->fds[LINK_PLAIN], &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0)
        link_drop(l);
    return false;
}

/* From the client. What libmicrohttpd does not read any more is discarded. */
static void link_take_in(struct tls_link *l)
{
    char data[LINK_PIECE];
    ssize_t n;
    while (!l->in_ended) {
        if (!fifo_send(&l->in, l->fds[LINK_PLAIN], NULL))
            fifo_drop(&l->in, fifo_len(&l->in));
        if (fifo_failed(&l->in)) {
            link_drop(l);
            return;
        }
        if (fifo_len(&l->in) > 0)
            return;
        n = gnutls_record_recv(l->session, data, sizeof data);
        if (n > 0) {
            fifo_add(&l->in, data, (size_t)n);
        } else if (n == 0 || n == GNUTLS_E_PREMATURE_TERMINATION) {
            l->in_ended = true;
            shutdown(l->fds[LINK_PLAIN], SHUT_WR);
        } else if (link_must_wait(n)) {
            return;
        } else if (gnutls_error_is_fatal((int)n)) {
            link_drop(l);
            return;
        }
    }
}

/* To the client. */
static void link_take_out(struct tls_link *l)
{
    char data[LINK_PIECE];
    ssize_t n = 0;
    while (!l->out_ended) {
        if (l->is_unsent)
            n = gnutls_record_send(l->session, NULL, 0); /* the same record again */
        l->is_unsent = l->is_unsent && link_must_wait(n);
        if (l->is_unsent)
            return;
        n = n < 0 ? 0 : recv(l->fds[LINK_PLAIN], data, sizeof data, MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (n > 0) {
            n = gnutls_record_send(l->session, data, (size_t)n);
            l->is_unsent = link_must_wait(n);
            if (n > 0 || l->is_unsent)
                continue;
        }
        l->out_ended = true;
        l->ended_ns = clock_ns();
        gnutls_bye(l->session, GNUTLS_SHUT_WR);
        shutdown(l->fds[LINK_CLIENT], SHUT_WR);
    }
}

/* ---- the loop ---- */

static void link_on_event(uv_poll_t *poll, int status, int events);

static void link_watch(struct tls_link *l)
{
    bool writes = !l->is_open && gnutls_record_get_direction(l->session) == 1;
    bool is_stuck = fifo_len(&l->in) > 0;
    const int events[LINK_ENDS] = {
        (l->in_ended || is_stuck || writes ? 0 : UV_READABLE) |
            (writes || l->is_unsent ? UV_WRITABLE : 0),
        (l->is_unsent || l->out_ended ? 0 : UV_READABLE) | (is_stuck ? UV_WRITABLE : 0),
    };
    for (int i = 0; i < LINK_ENDS; i++)
        if (events[i])
            uv_poll_start(&l->polls[i], events[i], link_on_event);
        else
            uv_poll_stop(&l->polls[i]);
}

static void link_go_on(struct tls_link *l)
{
    if (!l->is_open && !link_shakes_hands(l)) {
        if (!l->is_over)
            link_watch(l);
        return;
    }
    link_take_in(l);
    if (!l->is_over)
        link_take_out(l);
    if (!l->is_over && l->in_ended && l->out_ended)
        link_drop(l);
    if (!l->is_over)
        link_watch(l);
}

static void link_on_event(uv_poll_t *poll, int status, int events)
{
    struct tls_link *l = poll->data;
    if (status < 0 && poll == &l->polls[LINK_CLIENT])
        link_drop(l);
    else
        link_go_on(l);
}

/* ---- the beginning ---- */

static bool link_begin_session(struct tls_link *l, const struct tls_listener *t)
{
    if (gnutls_init(&l->session, GNUTLS_SERVER | GNUTLS_NONBLOCK | GNUTLS_NO_SIGNAL) < 0)
        return false;
    gnutls_transport_set_int(l->session, l->fds[LINK_CLIENT]);
    if (gnutls_priority_set(l->session, t->priorities) == 0 &&
        gnutls_credentials_set(l->session, GNUTLS_CRD_CERTIFICATE, t->credentials) == 0)
        return true;
    gnutls_deinit(l->session);
    return false;
}

/* Takes both descriptors. */
static void link_begin(struct server *s, int client, int plain)
{
    struct tls_link *l = calloc(1, sizeof *l);
    if (l)
        *l = (struct tls_link){ .server = s, .fds = { client, plain }, .link = &s->tls->links };
    if (!l || !link_begin_session(l, s->tls)) {
        close(client);
        close(plain);
        free(l);
        return;
    }
    l->next = s->tls->links;
    if (l->next)
        l->next->link = &l->next;
    s->tls->links = l;
    s->tls->count++;
    for (int rc = 0; l->handles < LINK_ENDS; l->handles++) {
        rc = uv_poll_init(&s->loop, &l->polls[l->handles], l->fds[l->handles]);
        if (rc < 0) {
            link_drop(l);
            return;
        }
        l->polls[l->handles].data = l;
    }
    link_go_on(l);
}

static void listener_on_event(uv_poll_t *poll, int status, int events)
{
    struct server *s = poll->data;
    const int on = 1;
    while (s->tls->count < s->options->max_connections) {
        struct sockaddr_storage address;
        socklen_t len = sizeof address;
        int ends[2], client = accept4(s->listener.fd, (struct sockaddr *)&address, &len,
                         SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (client < 0 && (errno == EAGAIN || errno == ECONNABORTED || errno == EINTR))
            return;
        if (client < 0)
            break; /* no descriptors: until the next sweep */
        (void)setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) < 0) {
            close(client);
            break;
        }
        MHD_add_connection(s->daemon, ends[1], (struct sockaddr *)&address, len); /* or closes it */
        link_begin(s, client, ends[0]);
        server_wake(s);
    }
    s->tls->is_full = true;
    uv_poll_stop(poll);
}

int tls_listen(struct server *s, struct error *err)
{
    struct tls_listener *t = s->tls = calloc(1, sizeof *t);
    if (!t)
        return error_memory(err);
    int rc = tls_credentials(&t->credentials);
    if (rc == 0)
        rc = gnutls_priority_init(&t->priorities, TLS_PRIORITIES, NULL);
    if (rc < 0)
        return error_set(err, ERROR_IO, "preparing TLS: %s", gnutls_strerror(rc));
    rc = uv_poll_init(&s->loop, &t->poll, s->listener.fd);
    if (rc < 0)
        return error_set(err, ERROR_IO, "watching the listening socket: %s", uv_strerror(rc));
    t->has_poll = true;
    t->poll.data = s;
    uv_poll_start(&t->poll, UV_READABLE, listener_on_event);
    return 0;
}

void tls_listen_stop(struct server *s)
{
    if (!s->tls || !s->tls->has_poll)
        return;
    s->tls->has_poll = false;
    uv_close((uv_handle_t *)&s->tls->poll, NULL);
    close_fd(&s->listener.fd);
}

void tls_sweep(struct server *s, uint64_t now_ns)
{
    struct tls_link *next;
    if (!s->tls)
        return;
    if (s->tls->is_full && s->tls->has_poll)
        uv_poll_start(&s->tls->poll, UV_READABLE, listener_on_event);
    s->tls->is_full = false;
    for (struct tls_link *l = s->tls->links; l; l = next) {
        next = l->next;
        if (l->out_ended && now_ns > l->ended_ns + LINK_LINGER_NS)
            link_drop(l);
    }
}

void tls_links_close(struct server *s)
{
    if (!s->tls)
        return;
    tls_listen_stop(s);
    while (s->tls->links) {
        struct tls_link *l = s->tls->links;
        if (l->is_open)
            link_take_out(l); /* the last answers */
        link_drop(l);
    }
    if (s->tls->credentials)
        gnutls_certificate_free_credentials(s->tls->credentials);
    if (s->tls->priorities)
        gnutls_priority_deinit(s->tls->priorities);
}

#else

int tls_listen(struct server *s, struct error *err)
{
    return tls_load(NULL, NULL, err);
}

void tls_listen_stop(struct server *s)
{
}

void tls_sweep(struct server *s, uint64_t now_ns)
{
}

void tls_links_close(struct server *s)
{
}

#endif
