/* serve/e2b/ports.c: requests for servers that programs of a sandbox run.
 *
 * The sandbox is asked for a connection (droste/commands.h, "connect"), which it makes with its own
 * rights and limits, so that what can be reached is what its code can reach. Its bytes go through a
 * socket pair; at the other end is what speaks HTTP with other workers, too (relay.c), WebSockets
 * included. Each side is read only when the other has taken what was read before.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "serve/e2b/e2b.h"
#include "serve/http/relay.h"
#include "serve/http/upstream.h"
#include "serve/sandbox/sandbox.h"

enum { PORT_PIECE = 32 << 10 };

struct port {
    struct server *server;
    char id[SERVE_ID_SIZE];
    unsigned references; /* the open end's, and one for each reply that the sandbox owes */
    int fd;
    uv_poll_t *poll;    /* NULL: closed */
    uint64_t handle;    /* 0: not open yet, or given up */
    bool reads, writes; /* such a request is on its way */
    bool is_deaf;       /* the server takes nothing more */
    bool has_ended;     /* it has closed the connection */
    struct fifo out;    /* of the server, and not passed on yet */
};

static void port_unref(struct port *p)
{
    if (--p->references > 0)
        return;
    fifo_free(&p->out);
    free(p);
}

static bool port_ask(struct port *p, const droste_command_request *request, droste_command_fn *done)
{
    struct sandbox *sb = sandbox_find(p->server, p->id);
    if (!sb || droste_command_start(sb->session, request, done, p, NULL) < 0)
        return false;
    p->references++;
    return true;
}

/* ---- the end ---- */

static void port_on_left(void *arg, const droste_command_reply *reply, const droste_error *err)
{
    port_unref(arg);
}

static void port_leave(struct port *p, uint64_t handle)
{
    const droste_command_request request = { .op = "detach", .handle = handle };
    (void)port_ask(p, &request, port_on_left);
}

static void port_free_poll(uv_handle_t *poll)
{
    free(poll);
}

static void port_close(struct port *p)
{
    if (!p->poll)
        return;
    uv_poll_stop(p->poll);
    uv_close((uv_handle_t *)p->poll, port_free_poll);
    p->poll = NULL;
    close(p->fd);
    if (p->handle)
        port_leave(p, p->handle);
    port_unref(p);
}

/* After a reply. False: it is closed, and may be gone. */
static bool port_goes_on(struct port *p, const droste_error *err)
{
    if (err)
        port_close(p);
    bool is_open = p->poll != NULL;
    port_unref(p);
    return is_open;
}

/* ---- both directions ---- */

static void port_on_event(uv_poll_t *poll, int status, int events);
static void port_on_output(void *arg, const droste_command_reply *reply, const droste_error *err);

/* Waits for what is to be done next. */
static void port_watch(struct port *p)
{
    int events = UV_DISCONNECT;
    const droste_command_request more = {
        .op = "output", .handle = p->handle, .length = PORT_PIECE
    };
    bool is_empty = fifo_len(&p->out) == 0;
    if (p->has_ended && is_empty) {
        port_close(p);
        return;
    }
    if (p->handle && is_empty && !p->reads) {
        p->reads = port_ask(p, &more, port_on_output);
        if (!p->reads) {
            port_close(p);
            return;
        }
    }
    if (p->handle && !p->writes && !p->is_deaf)
        events |= UV_READABLE;
    if (!is_empty)
        events |= UV_WRITABLE;
    uv_poll_start(p->poll, events, port_on_event);
}

static void port_on_output(void *arg, const droste_command_reply *reply, const droste_error *err)
{
    struct port *p = arg;
    p->reads = false;
    if (!port_goes_on(p, err))
        return;
    p->has_ended = reply->ended;
    fifo_add(&p->out, reply->out, reply->out_len);
    if (!fifo_send(&p->out, p->fd, NULL))
        port_close(p);
    else
        port_watch(p);
}

/* A server may answer and close without having read everything. */
static void port_on_written(void *arg, const droste_command_reply *reply, const droste_error *err)
{
    struct port *p = arg;
    bool is_lost = err && err->code == DROSTE_ERROR_LOST;
    p->writes = false;
    p->is_deaf = p->is_deaf || err;
    if (port_goes_on(p, is_lost ? err : NULL))
        port_watch(p);
}

/* False: the other end is closed. */
static bool port_read(struct port *p)
{
    char data[PORT_PIECE];
    ssize_t n = recv(p->fd, data, sizeof data, 0);
    if (n <= 0)
        return n < 0 && (errno == EAGAIN || errno == EINTR);
    const droste_command_request request = {
        .op = "input", .handle = p->handle, .data = data, .len = (size_t)n
    };
    p->writes = port_ask(p, &request, port_on_written);
    return p->writes;
}

static void port_on_event(uv_poll_t *poll, int status, int events)
{
    struct port *p = poll->data;
    bool is_open = !(events & UV_DISCONNECT) && status == 0;
    if (is_open && (events & UV_WRITABLE))
        is_open = fifo_send(&p->out, p->fd, NULL);
    if (is_open && (events & UV_READABLE) && !p->writes)
        is_open = port_read(p);
    if (is_open)
        port_watch(p);
    else
        port_close(p);
}

/* ---- a request ---- */

static void port_on_opened(void *arg, const droste_command_reply *reply, const droste_error *err)
{
    struct port *p = arg;
    if (!err && p->poll)
        p->handle = reply->handle;
    else if (!err)
        port_leave(p, reply->handle);
    if (port_goes_on(p, err))
        port_watch(p);
}

/* Takes the descriptor. False: there is no connection, or no memory. */
static bool port_open(struct request *r, int fd)
{
    const droste_command_request request = { .op = "connect", .port = r->port };
    struct port *p = calloc(1, sizeof *p);
    uv_poll_t *poll = p ? calloc(1, sizeof *poll) : NULL;
    if (!poll || uv_poll_init(&r->server->loop, poll, fd) < 0) {
        close(fd);
        free(poll);
        free(p);
        return false;
    }
    *p = (struct port){ .server = r->server, .references = 1, .fd = fd, .poll = poll };
    memcpy(p->id, r->id, sizeof p->id);
    poll->data = p;
    if (port_ask(p, &request, port_on_opened)) {
        port_watch(p);
        return true;
    }
    port_close(p);
    return false;
}

static void port_refuse(struct request *r)
{
    struct json_object *o = json_object_new_object();
    if (o && json_put(o, "code", json_object_new_int(502)) &&
        json_put_text(o, "message", "The sandbox is running but port is not open") &&
        json_put_text(o, "sandboxId", r->id) &&
        json_put(o, "port", json_object_new_int((int)r->port))) {
        request_reply_json(r, 502, o);
        request_header(r, "Should-Retry", "false");
        return;
    }
    json_object_put(o);
    request_refuse(r, 502, "port", "out of memory");
}

/* The Host that the sandbox was created to be given; NULL: the client's. */
static char *port_host(const struct e2b_sandbox *e, unsigned port)
{
    static const char place[] = "${PORT}";
    const char *mask = json_get_string(e->network, "maskRequestHost", NULL);
    const char *at = mask ? strstr(mask, place) : NULL;
    if (!at)
        return mask ? strdup(mask) : NULL;
    return text_printf("%.*s%u%s", (int)(at - mask), mask, port, at + strlen(place));
}

void e2b_handle_port(struct request *r)
{
    struct e2b_sandbox *e = e2b_running_of(r);
    int ends[2];
    if (!e)
        return;
    if (!e->has_loopback ||
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) < 0) {
        port_refuse(r);
        return;
    }
    cleanup_free char *host = port_host(e, r->port);
    struct upstream *u = upstream_over(r->server, ends[0]);
    if (!u) {
        close(ends[1]);
        port_refuse(r);
    } else if (!port_open(r, ends[1])) {
        upstream_drop(u);
        port_refuse(r);
    } else {
        relay_through(r, u, host, port_refuse);
    }
}
