/* serve/http/upstream.c: see upstream.h.
 *
 * A connection is used for one request at a time, and again for the next one to the same worker,
 * if that is soon: the other end closes one that is idle for a minute.
 */
#include "serve/http/upstream.h"

#include <ctype.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "serve/server.h"
#include "serve/workers.h"

enum { UPSTREAM_LINE_MAX = 4 << 10 };
enum { UPSTREAM_HEAD_MAX = 64 << 10, UPSTREAM_PIECE = 64 << 10, UPSTREAM_IDLE_SECONDS = 20 };

static void upstream_on_event(uv_poll_t *poll, int status, int events);

static void upstream_watch(struct upstream *u)
{
    int events = UV_DISCONNECT;
    if (!u->is_paused)
        events |= UV_READABLE;
    if (upstream_unsent(u) > 0)
        events |= UV_WRITABLE;
    uv_poll_start(u->poll, events, upstream_on_event);
}

static void upstream_on_closed(uv_handle_t *handle)
{
    free(handle);
}

void upstream_drop(struct upstream *u)
{
    if (u->link_open) {
        *u->link_open = u->next_open;
        if (u->next_open)
            u->next_open->link_open = u->link_open;
    }
    uv_poll_stop(u->poll);
    uv_close((uv_handle_t *)u->poll, upstream_on_closed);
    close(u->fd);
    fifo_free(&u->out);
    buf_free(&u->in);
    free(u);
}

static struct upstream *upstream_take_idle(struct server *s, unsigned worker)
{
    for (struct upstream **at = &s->idle_upstreams; *at; at = &(*at)->next)
        if ((*at)->worker == worker) {
            struct upstream *u = *at;
            *at = u->next;
            u->next = NULL;
            return u;
        }
    return NULL;
}

/* Takes the descriptor. */
static struct upstream *upstream_new(struct server *s, int fd)
{
    struct upstream *u = calloc(1, sizeof *u);
    uv_poll_t *poll = calloc(1, sizeof *poll);
    if (!u || !poll || uv_poll_init(&s->loop, poll, fd) < 0) {
        close(fd);
        free(u);
        free(poll);
        return NULL;
    }
    u->server = s;
    u->fd = fd;
    u->poll = poll;
    poll->data = u;
    return u;
}

static struct upstream *upstream_connect(struct server *s, unsigned worker)
{
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) < 0)
        return NULL;
    int unread = UPSTREAM_PIECE;
    (void)setsockopt(ends[1], SOL_SOCKET, SO_SNDBUF, &unread, sizeof unread);
    bool sent = worker_send_connection(s, worker, ends[1]) == 0;
    close(ends[1]);
    struct upstream *u = sent ? upstream_new(s, ends[0]) : (close(ends[0]), NULL);
    if (u)
        u->worker = worker;
    return u;
}

static struct upstream *upstream_connect_node(
    struct server *s, unsigned key, const struct sockaddr *address, socklen_t len)
{
    int on = 1;
    int fd = socket(address->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return NULL;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (connect(fd, address, len) < 0 && errno != EINPROGRESS) {
        close(fd);
        return NULL;
    }
    struct upstream *u = upstream_new(s, fd);
    if (!u)
        return NULL;
    u->worker = key;
    u->next_open = s->node_upstreams;
    u->link_open = &s->node_upstreams;
    if (u->next_open)
        u->next_open->link_open = &u->next_open;
    s->node_upstreams = u;
    return u;
}

static struct upstream *upstream_begin(struct upstream *u)
{
    if (!u)
        return NULL;
    u->state = UPSTREAM_HEAD;
    u->is_last = u->has_length = u->has_chunks = u->is_paused = false;
    u->is_head = u->may_upgrade = false;
    u->left = 0;
    upstream_watch(u);
    return u;
}

struct upstream *upstream_open(struct server *s, unsigned worker)
{
    struct upstream *u = upstream_take_idle(s, worker);
    return upstream_begin(u ? u : upstream_connect(s, worker));
}

struct upstream *upstream_open_node(
    struct server *s, unsigned key, const struct sockaddr *address, socklen_t len)
{
    struct upstream *u = upstream_take_idle(s, key);
    return upstream_begin(u ? u : upstream_connect_node(s, key, address, len));
}

struct upstream *upstream_over(struct server *s, int fd)
{
    struct upstream *u = upstream_new(s, fd);
    if (!u)
        return NULL;
    u->is_foreign = u->is_last = true;
    upstream_watch(u);
    return u;
}

static void upstream_finish(struct upstream *u, bool is_whole)
{
    u->on_end(u->arg, is_whole);
    bool reusable = is_whole && !u->is_last && upstream_unsent(u) == 0 && u->in.len == u->in_at &&
                    !u->server->closing;
    if (reusable) {
        uv_poll_start(u->poll, UV_DISCONNECT | UV_READABLE, upstream_on_event);
        u->on_end = NULL;
        u->state = UPSTREAM_DONE;
        u->idle_ns = clock_ns();
        u->next = u->server->idle_upstreams;
        u->server->idle_upstreams = u;
        buf_clear(&u->in);
        u->in_at = 0;
    } else {
        upstream_drop(u);
    }
}

void upstream_sweep(struct server *s, uint64_t now_ns, bool all)
{
    for (struct upstream **at = &s->idle_upstreams; *at;) {
        struct upstream *u = *at;
        if (all || (double)(now_ns - u->idle_ns) / 1e9 > UPSTREAM_IDLE_SECONDS) {
            *at = u->next;
            upstream_drop(u);
        } else {
            at = &u->next;
        }
    }
}

/* ---- the request ---- */

void upstream_send(struct upstream *u, const void *data, size_t len)
{
    fifo_add(&u->out, data, len);
    if (!fifo_send(&u->out, u->fd, NULL))
        shutdown(u->fd, SHUT_RDWR); /* the loop sees it */
    upstream_watch(u);
}

void upstream_pause(struct upstream *u, bool is_paused)
{
    if (u->is_paused == is_paused)
        return;
    u->is_paused = is_paused;
    upstream_watch(u);
}

/* ---- the answer ---- */

static bool upstream_take_field(struct upstream *u, char *line)
{
    char *colon = strchr(line, ':');
    if (!colon)
        return false;
    *colon = '\0';
    const char *value = colon + 1 + strspn(colon + 1, " \t");
    if (strcasecmp(line, "Content-Length") == 0) {
        char *end = NULL;
        unsigned long long length = strtoull(value, &end, 10);
        if (value[0] < '0' || value[0] > '9' || *end != '\0' ||
            (u->has_length && u->left != length))
            return false;
        u->has_length = true;
        u->left = length;
    } else if (strcasecmp(line, "Connection") == 0) {
        u->is_last = u->is_last || strcasecmp(value, "close") == 0;
    } else if (strcasecmp(line, "Transfer-Encoding") == 0) {
        u->has_chunks = true;
        return strcasecmp(value, "chunked") == 0;
    } else if (u->status >= 200 || u->status == 101) {
        u->on_field(u->arg, line, value);
    }
    return true;
}

/* Without a length and chunks, a server ends its body with the connection (RFC 9112, 6.3). */
static void upstream_begin_body(struct upstream *u)
{
    bool has_body = !u->is_head && u->status != 204 && u->status != 304 && u->status != 101;
    if (!has_body) {
        u->has_length = true;
        u->left = 0;
    }
    u->state = u->status == 101                  ? UPSTREAM_UPGRADED
               : u->has_length                   ? u->left > 0 ? UPSTREAM_LENGTH : UPSTREAM_DONE
               : u->is_foreign && !u->has_chunks ? UPSTREAM_REST
                                                 : UPSTREAM_CHUNK;
}

/* 1: the head was taken; 0: more is needed; -1: it is broken. */
static int upstream_take_head(struct upstream *u)
{
    char *head = u->in.data + u->in_at;
    char *end = memmem(head, u->in.len - u->in_at, "\r\n\r\n", 4);
    if (!end)
        return u->in.len - u->in_at > UPSTREAM_HEAD_MAX ? -1 : 0;
    *end = '\0';
    u->in_at = (size_t)(end + 4 - u->in.data);
    char *line = strstr(head, "\r\n");
    bool is_http =
        strncmp(head, "HTTP/1.1 ", 9) == 0 || (u->is_foreign && strncmp(head, "HTTP/1.0 ", 9) == 0);
    u->status = is_http ? (unsigned)strtoul(head + 9, NULL, 10) : 0;
    if (u->status < 100 || u->status > 599 || (u->status == 101 && !u->may_upgrade))
        return -1;
    while (line) {
        char *next = strstr(line + 2, "\r\n");
        if (next)
            *next = '\0';
        if (!upstream_take_field(u, line + 2))
            return -1;
        line = next;
    }
    if (u->has_chunks && u->has_length)
        return -1;                             /* two lengths */
    if (u->status < 200 && u->status != 101) { /* another head follows */
        u->has_length = u->has_chunks = false;
        return 1;
    }
    upstream_begin_body(u);
    u->on_head(u->arg);
    return 1;
}

/* A line that ends with CR LF: the size of a chunk, the end of one, or of the body. */
static int upstream_take_line(struct upstream *u)
{
    char *line = u->in.data + u->in_at;
    char *end = memmem(line, u->in.len - u->in_at, "\r\n", 2);
    if (!end)
        return u->in.len - u->in_at > UPSTREAM_LINE_MAX ? -1 : 0;
    u->in_at = (size_t)(end + 2 - u->in.data);
    if (u->state == UPSTREAM_CHUNK) {
        u->left = strtoull(line, NULL, 16);
        u->state = u->left > 0 ? UPSTREAM_DATA : UPSTREAM_LAST;
        return isxdigit((unsigned char)*line) ? 1 : -1;
    }
    bool is_empty = end == line;
    if (u->state == UPSTREAM_LAST && !is_empty)
        return u->is_foreign ? 1 : -1; /* a trailer, which nothing needs */
    u->state = u->state == UPSTREAM_DATA_END ? UPSTREAM_CHUNK : UPSTREAM_DONE;
    return is_empty ? 1 : -1;
}

static int upstream_take_data(struct upstream *u)
{
    size_t n = u->in.len - u->in_at;
    if (n > u->left)
        n = (size_t)u->left;
    if (n == 0)
        return 0;
    const char *data = u->in.data + u->in_at;
    u->in_at += n;
    u->left -= n;
    if (u->left == 0)
        u->state = u->state == UPSTREAM_LENGTH ? UPSTREAM_DONE : UPSTREAM_DATA_END;
    u->on_data(u->arg, data, n);
    return 1;
}

/* There are bytes until the end. */
static int upstream_take_bytes(struct upstream *u)
{
    size_t n = u->in.len - u->in_at;
    const char *data = u->in.data + u->in_at;
    u->in_at += n;
    if (n > 0)
        u->on_data(u->arg, data, n);
    return 0;
}

static int upstream_take(struct upstream *u)
{
    if (u->state == UPSTREAM_HEAD)
        return upstream_take_head(u);
    if (u->state == UPSTREAM_UPGRADED || u->state == UPSTREAM_REST)
        return upstream_take_bytes(u);
    if (u->state == UPSTREAM_LENGTH || u->state == UPSTREAM_DATA)
        return upstream_take_data(u);
    return u->state == UPSTREAM_DONE ? 0 : upstream_take_line(u);
}

/* 1: more may come; 0: the other end has closed. */
static int upstream_read(struct upstream *u)
{
    if (!buf_reserve(&u->in, UPSTREAM_PIECE))
        return 0;
    ssize_t n = recv(u->fd, u->in.data + u->in.len, UPSTREAM_PIECE, 0);
    if (n < 0)
        return errno == EAGAIN || errno == EINTR;
    u->in.len += (size_t)n;
    u->in.data[u->in.len] = '\0';
    return n > 0;
}

static void upstream_forget_idle(struct upstream *u)
{
    struct upstream **at = &u->server->idle_upstreams;
    while (*at != u)
        at = &(*at)->next;
    *at = u->next;
    upstream_drop(u);
}

void upstream_lose(struct server *s, unsigned key)
{
    struct upstream *u = s->node_upstreams;
    while (u) {
        if (u->worker != key) {
            u = u->next_open;
            continue;
        }
        if (u->on_end)
            upstream_finish(u, false);
        else
            upstream_forget_idle(u);
        u = s->node_upstreams; /* its end may have ended others */
    }
}

static void upstream_on_event(uv_poll_t *poll, int status, int events)
{
    struct upstream *u = poll->data;
    int rc = 1;
    if (!u->on_end) { /* idle */
        upstream_forget_idle(u);
        return;
    }
    bool sends = upstream_unsent(u) > 0;
    /* If the other end has closed, what it had answered before can still be read. */
    if (sends && fifo_send(&u->out, u->fd, NULL) && upstream_unsent(u) == 0)
        u->on_sent(u->arg);
    int more = u->is_paused && !(events & UV_DISCONNECT) ? 1 : upstream_read(u);
    while (rc > 0 && u->state != UPSTREAM_DONE)
        rc = upstream_take(u);
    if (u->state == UPSTREAM_DONE || rc < 0 || more == 0) {
        upstream_finish(u, u->state == UPSTREAM_DONE || u->state == UPSTREAM_REST);
        return;
    }
    buf_consume(&u->in, u->in_at);
    u->in_at = 0;
    upstream_watch(u);
}
