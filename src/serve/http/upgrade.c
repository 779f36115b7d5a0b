/* serve/http/upgrade.c: see upgrade.h.
 *
 * The library hands the client's socket over. It ends the connection, and then the request, when it
 * is told so; that happens in a turn of its own, because the library may be on the stack here.
 */
#include "serve/http/upgrade.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "serve/http/request.h"

enum { UPGRADE_READ = 16 << 10 };

static void upgrade_on_event(uv_poll_t *poll, int status, int events);

static void upgrade_watch(struct upgrade *u)
{
    int events = UV_DISCONNECT;
    if (!u->poll || u->is_over)
        return;
    if (!u->is_paused)
        events |= UV_READABLE;
    if (upgrade_unsent(u) > 0)
        events |= UV_WRITABLE;
    uv_poll_start(u->poll, events, upgrade_on_event);
}

/* ---- the end ---- */

static void upgrade_close_handle(struct upgrade *u)
{
    struct MHD_UpgradeResponseHandle *handle = u->handle;
    u->handle = NULL;
    MHD_upgrade_action(handle, MHD_UPGRADE_ACTION_CLOSE);
    server_wake(u->r->server);
}

static void upgrade_on_poll_closed(uv_handle_t *poll)
{
    struct upgrade *u = poll->data;
    free(poll);
    if (!u)
        return;
    u->poll = NULL;
    upgrade_close_handle(u);
}

void upgrade_drop(struct upgrade *u)
{
    u->is_over = true;
    if (!u->poll || uv_is_closing((uv_handle_t *)u->poll))
        return;
    uv_poll_stop(u->poll);
    uv_close((uv_handle_t *)u->poll, upgrade_on_poll_closed);
}

void upgrade_drop_now(struct upgrade *u)
{
    upgrade_drop(u);
    if (!u->handle)
        return;
    if (u->poll)
        u->poll->data = NULL;
    upgrade_close_handle(u);
}

void upgrade_end(struct upgrade *u)
{
    u->is_ending = true;
    if (upgrade_unsent(u) == 0 && u->poll)
        upgrade_drop(u);
}

void upgrade_free(struct upgrade *u)
{
    fifo_free(&u->out);
}

/* The client has left. */
static void upgrade_leave(struct upgrade *u)
{
    if (u->is_over)
        return;
    bool is_ending = u->is_ending;
    upgrade_drop(u);
    if (!is_ending)
        u->on_closed(u->arg);
}

/* ---- to the client ---- */

/* False: the client has left. */
static bool upgrade_flush(struct upgrade *u)
{
    uint64_t sent = 0;
    bool is_open = fifo_send(&u->out, u->fd, &sent);
    table_count(u->r->server->figures, COUNT_SENT, sent);
    return is_open;
}

void upgrade_send(struct upgrade *u, const void *data, size_t len)
{
    if (u->is_over || u->is_ending)
        return;
    fifo_add(&u->out, data, len);
    if (!u->poll)
        return; /* until it is open */
    if (!upgrade_flush(u))
        shutdown(u->fd, SHUT_RDWR); /* the loop sees it */
    upgrade_watch(u);
}

void upgrade_pause(struct upgrade *u, bool is_paused)
{
    if (u->is_paused == is_paused)
        return;
    u->is_paused = is_paused;
    upgrade_watch(u);
}

/* ---- from the client ---- */

static void upgrade_take(struct upgrade *u, const char *data, size_t len)
{
    table_count(u->r->server->figures, COUNT_RECEIVED, len);
    if (!u->is_ending)
        u->on_bytes(u->arg, data, len);
}

/* False: the client has left. */
static bool upgrade_read(struct upgrade *u)
{
    char data[UPGRADE_READ];
    ssize_t n = recv(u->fd, data, sizeof data, MSG_DONTWAIT);
    if (n < 0)
        return errno == EAGAIN || errno == EINTR;
    if (n > 0)
        upgrade_take(u, data, (size_t)n);
    return n > 0;
}

static void upgrade_on_event(uv_poll_t *poll, int status, int events)
{
    struct upgrade *u = poll->data;
    bool was_unsent = upgrade_unsent(u) > 0;
    if (was_unsent && !upgrade_flush(u)) {
        upgrade_leave(u);
        return;
    }
    if (was_unsent && upgrade_unsent(u) == 0) {
        if (u->is_ending) {
            upgrade_drop(u);
            return;
        }
        u->on_sent(u->arg);
    }
    bool reads = !u->is_paused || (events & UV_DISCONNECT) || status < 0;
    if (!u->is_over && reads && !upgrade_read(u))
        upgrade_leave(u);
    if (!u->is_over)
        upgrade_watch(u);
}

/* ---- the beginning ---- */

static void upgrade_on_open(void *arg, struct MHD_Connection *connection, void *state,
    const char *extra, size_t len, MHD_socket fd, struct MHD_UpgradeResponseHandle *handle)
{
    struct upgrade *u = arg;
    uv_poll_t *poll = calloc(1, sizeof *poll);
    const int on = 1;
    u->handle = handle;
    u->fd = fd;
    /* A second small message would wait for the client's delayed acknowledgement (40 ms); of a unix
     * socket it fails, which does not matter. */
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (!poll || uv_poll_init(&u->r->server->loop, poll, fd) < 0) {
        free(poll);
        u->is_over = true;
        u->on_closed(u->arg);
        upgrade_close_handle(u);
        return;
    }
    poll->data = u;
    u->poll = poll;
    if (u->is_over) { /* its owner ended it meanwhile */
        upgrade_drop(u);
        return;
    }
    if (len > 0)
        upgrade_take(u, extra, len);
    if (!u->is_over && !upgrade_flush(u))
        shutdown(u->fd, SHUT_RDWR);
    if (!u->is_over && u->is_ending && upgrade_unsent(u) == 0)
        upgrade_drop(u);
    upgrade_watch(u);
}

/* The request ends before its connection was handed over. */
static void upgrade_on_gone(struct request *r)
{
    struct upgrade *u = r->upgrade;
    if (u->is_over)
        return;
    u->is_over = true;
    u->on_closed(u->arg);
}

void upgrade_begin(struct request *r, struct upgrade *u)
{
    u->r = r;
    u->fd = -1;
    r->upgrade = u;
    request_upgrade(r, upgrade_on_open, u);
    r->on_gone = upgrade_on_gone;
}
