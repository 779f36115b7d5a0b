/* net/stream.c: uses CURLOPT_CONNECT_ONLY, with libcurl's multi handle to connect, and
 * curl_easy_send and curl_easy_recv afterwards.
 *
 * The easy handle stays in its multi handle, because libcurl closes such a connection when it is
 * removed.
 */
#include "net/stream.h"

#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "net/sockets.h"

enum {
    READ_SIZE = 65536,
    READS = 8, /* per turn, for fairness */
    HEAD_MAX = 16384,
};

struct stream {
    struct loop *loop;
    struct stream_events events;
    void *arg;
    enum error_code code;
    char *peer, *upgrade;
    int (*agree)(void *arg, unsigned status, const char *head, struct error *err);
    CURLM *multi;
    CURL *easy;
    struct timer *timer;
    struct sockets *sockets; /* while connecting */
    struct watch *watch;     /* once connected */
    bool connected;          /* the socket is connected */
    bool open;               /* the server has also accepted */
    bool paused;
    struct buf head; /* the response's head so far */
    bool over;       /* `closed` was or will be called */
    bool lost;       /* a send failed: reading reveals the reason */
    struct buf out;  /* waiting data, from out_at */
    size_t out_at;
    unsigned depth; /* our frames on the stack; the last one frees it */
    bool closing;
    char words[CURL_ERROR_SIZE];
};

static void stream_free(struct stream *s)
{
    watch_free(steal(&s->watch));
    if (s->easy && s->multi)
        curl_multi_remove_handle(s->multi, s->easy);
    curl_easy_cleanup(s->easy);
    if (s->multi)
        curl_multi_cleanup(s->multi);
    sockets_free(s->sockets);
    timer_free(s->timer);
    buf_free(&s->out);
    buf_free(&s->head);
    free(s->peer);
    free(s->upgrade);
    free(s);
    curl_global_cleanup();
}

static void stream_enter(struct stream *s)
{
    s->depth++;
}

static void stream_leave(struct stream *s)
{
    if (--s->depth == 0 && s->closing)
        stream_free(s);
}

static void stream_tell_closed(struct stream *s, const struct error *why)
{
    if (s->over)
        return;
    s->over = true;
    watch_free(steal(&s->watch));
    timer_stop(s->timer);
    s->events.closed(s->arg, why);
}

/* CURLE_OK if the other side closed it. */
static void stream_end(struct stream *s, CURLcode curl)
{
    struct error why = { 0 };
    const char *words = s->words[0] ? s->words : curl_easy_strerror(curl);
    if (curl == CURLE_PEER_FAILED_VERIFICATION)
        error_set(&why, s->code, "%.80s: its certificate is not trusted (%.90s)", s->peer, words);
    else if (curl != CURLE_OK)
        error_set(&why, s->code, "%.80s: %.140s", s->peer, words);
    else if (!s->open)
        error_set(&why, s->code, "%.80s: the connection was ended before an answer", s->peer);
    stream_tell_closed(s, &why);
}

/* ---- connected ---- */

static void stream_watch_for(struct stream *s)
{
    if (s->watch)
        watch_events(
            s->watch, (s->paused ? 0 : UV_READABLE) |
                          (s->open && s->out.len > s->out_at && !s->lost ? UV_WRITABLE : 0));
}

/* Returns the bytes sent; 0: none now. Reading reveals a lost connection. */
static size_t stream_send_some(struct stream *s, const char *data, size_t len)
{
    size_t all = 0;
    while (all < len && !s->lost) {
        size_t n = 0;
        CURLcode curl = curl_easy_send(s->easy, data + all, len - all, &n);
        if (curl == CURLE_AGAIN)
            break;
        s->lost = curl != CURLE_OK;
        all += n;
    }
    return all;
}

static void stream_flush(struct stream *s)
{
    s->out_at += stream_send_some(s, s->out.data + s->out_at, s->out.len - s->out_at);
    if (s->out_at == s->out.len || s->lost) {
        buf_free(&s->out);
        s->out_at = 0;
    } else if (s->out_at > s->out.len / 2) {
        buf_consume(&s->out, s->out_at);
        s->out_at = 0;
    }
}

static int has_agreed(struct stream *s, unsigned status, struct error *err)
{
    const char *head = buf_text(&s->head), *tail = strstr(head, "\r\n\r\n");
    if (s->agree)
        return s->agree(s->arg, status, head, err);
    if (status == 101 || status == 200)
        return 0;
    return error_set(err, s->code, "%.80s: %.*s: %.120s", s->peer, (int)strcspn(head, "\r\n"), head,
        tail ? tail + 4 : "");
}

/* The response to the upgrade, in pieces of any size; what follows it belongs to the user. */
static void take_head(struct stream *s, const char *data, size_t len)
{
    struct error why = { 0 };
    unsigned status = 0;
    buf_append(&s->head, data, len);
    const char *head = buf_text(&s->head), *tail = strstr(head, "\r\n\r\n");
    if (!tail && s->head.len < HEAD_MAX && !buf_failed(&s->head))
        return;
    if (!tail || sscanf(head, "HTTP/1.%*1[01] %3u", &status) != 1)
        status = 0;
    if (has_agreed(s, status, &why) < 0) {
        stream_tell_closed(s, &why);
        return;
    }
    cleanup_buf struct buf first = s->head;
    s->head = (struct buf){ 0 };
    buf_consume(&first, (size_t)(tail - head) + 4);
    s->open = true;
    s->events.connected(s->arg);
    if (!s->closing && !s->over && first.len > 0)
        s->events.bytes(s->arg, first.data, first.len);
    if (!s->closing && !s->over)
        stream_flush(s);
}

static void read_some(struct stream *s)
{
    char data[READ_SIZE];
    for (int i = 0; i < READS && !s->closing && !s->over && !s->paused; i++) {
        size_t n = 0;
        CURLcode curl = curl_easy_recv(s->easy, data, sizeof data, &n);
        if (curl == CURLE_AGAIN)
            return;
        if (curl != CURLE_OK || n == 0)
            stream_end(s, curl);
        else if (s->open)
            s->events.bytes(s->arg, data, n);
        else
            take_head(s, data, n);
    }
    /* TLS may have buffered bytes that the socket no longer shows. */
    if (!s->closing && !s->over && !s->paused)
        timer_start(s->timer, 0, 0);
}

static void connection_ready(void *arg, int status, int events)
{
    struct stream *s = arg;
    stream_enter(s);
    if (events & UV_WRITABLE)
        stream_flush(s);
    if (status < 0 || (events & UV_READABLE))
        read_some(s);
    if (!s->closing)
        stream_watch_for(s);
    stream_leave(s);
}

/* ---- connecting ---- */

static void stream_begin(struct stream *s)
{
    curl_socket_t fd = CURL_SOCKET_BAD;
    timer_stop(s->timer);
    if (curl_easy_getinfo(s->easy, CURLINFO_ACTIVESOCKET, &fd) != CURLE_OK ||
        fd == CURL_SOCKET_BAD) {
        stream_end(s, CURLE_COULDNT_CONNECT);
        return;
    }
    sockets_forget(s->sockets, fd);
    s->watch = watch_new(s->loop, fd, connection_ready, s);
    if (!s->watch) {
        stream_end(s, CURLE_OUT_OF_MEMORY);
        return;
    }
    s->connected = true;
    if (s->upgrade) {
        /* A new socket's buffer has room for all of it. */
        s->lost = stream_send_some(s, s->upgrade, strlen(s->upgrade)) < strlen(s->upgrade);
        stream_watch_for(s);
        return;
    }
    s->open = true;
    s->events.connected(s->arg);
    if (s->closing || s->over)
        return;
    stream_flush(s);
    stream_watch_for(s);
}

static void stream_act(struct stream *s, curl_socket_t fd, int events)
{
    int running, left;
    CURLMsg *m;
    stream_enter(s);
    curl_multi_socket_action(s->multi, fd, events, &running);
    while (
        !s->closing && !s->over && !s->connected && (m = curl_multi_info_read(s->multi, &left))) {
        if (m->data.result == CURLE_OK)
            stream_begin(s);
        else
            stream_end(s, m->data.result);
    }
    stream_leave(s);
}

static void stream_socket_ready(void *arg, int fd, int events)
{
    stream_act(arg, fd, events);
}

static int stream_on_socket(CURL *easy, curl_socket_t fd, int what, void *arg, void *unused)
{
    struct stream *s = arg;
    return s->connected ? 0 : sockets_want(s->sockets, fd, what);
}

static int stream_on_close(void *arg, curl_socket_t fd)
{
    struct stream *s = arg;
    watch_free(steal(&s->watch));
    sockets_forget(s->sockets, fd);
    return close(fd);
}

static int stream_on_timer(CURLM *multi, long timeout_ms, void *arg)
{
    struct stream *s = arg;
    if (s->connected)
        return 0;
    if (timeout_ms < 0)
        timer_stop(s->timer);
    else
        timer_start(s->timer, (uint64_t)timeout_ms, 0);
    return 0;
}

static void stream_timer_due(void *arg)
{
    struct stream *s = arg;
    if (s->connected)
        connection_ready(s, 0, UV_READABLE);
    else
        stream_act(s, CURL_SOCKET_TIMEOUT, 0);
}

/* ---- the user's ---- */

static bool stream_set_up(struct stream *s, const struct stream_options *o)
{
    CURL *e = s->easy;
    curl_multi_setopt(s->multi, CURLMOPT_SOCKETFUNCTION, stream_on_socket);
    curl_multi_setopt(s->multi, CURLMOPT_SOCKETDATA, s);
    curl_multi_setopt(s->multi, CURLMOPT_TIMERFUNCTION, stream_on_timer);
    curl_multi_setopt(s->multi, CURLMOPT_TIMERDATA, s);
    curl_easy_setopt(e, CURLOPT_CONNECT_ONLY, 1L);
    curl_easy_setopt(e, CURLOPT_ERRORBUFFER, s->words);
    curl_easy_setopt(e, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(e, CURLOPT_TCP_KEEPALIVE, 1L);
    curl_easy_setopt(e, CURLOPT_TCP_NODELAY, 1L);
    curl_easy_setopt(e, CURLOPT_CLOSESOCKETFUNCTION, stream_on_close);
    curl_easy_setopt(e, CURLOPT_CLOSESOCKETDATA, s);
    /* Upgrades exist only in HTTP/1.1. */
    curl_easy_setopt(e, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    if (o->connect_timeout > 0)
        curl_easy_setopt(e, CURLOPT_CONNECTTIMEOUT_MS, (long)(o->connect_timeout * 1000));
    connect_options_apply(e, &o->connect_options);
    return curl_easy_setopt(e, CURLOPT_PROTOCOLS_STR, "http,https") == CURLE_OK &&
           curl_easy_setopt(e, CURLOPT_URL, o->url) == CURLE_OK &&
           curl_multi_add_handle(s->multi, e) == CURLM_OK;
}

int stream_open(struct loop *loop, const struct stream_options *options,
    const struct stream_events *events, void *arg, struct stream **out, struct error *err)
{
    int rc = connect_options_check(&options->connect_options, err);
    if (rc < 0)
        return rc;
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        return error_set(err, ERROR_IO, "libcurl could not be initialised");
    struct stream *s = calloc(1, sizeof *s);
    if (!s) {
        curl_global_cleanup();
        return error_memory(err);
    }
    *s = (struct stream){ .loop = loop, .events = *events, .arg = arg, .code = options->code };
    s->agree = options->agree;
    s->peer = strdup(options->peer);
    s->upgrade = options->upgrade ? strdup(options->upgrade) : NULL;
    s->multi = curl_multi_init();
    s->easy = curl_easy_init();
    s->timer = timer_new(loop, stream_timer_due, s);
    s->sockets = sockets_new(loop, stream_socket_ready, s);
    if (!s->peer || !s->multi || !s->easy || !s->timer || !s->sockets ||
        (options->upgrade && !s->upgrade) || !stream_set_up(s, options)) {
        stream_free(s);
        return error_memory(err);
    }
    *out = s;
    return 0;
}

int stream_send(struct stream *s, const struct iovec *iov, int count, struct error *err)
{
    if (s->over || s->lost)
        return 0;
    for (int i = 0; i < count; i++) {
        const char *data = iov[i].iov_base;
        size_t len = iov[i].iov_len, sent = 0;
        if (s->open && s->out.len == s->out_at)
            sent = stream_send_some(s, data, len);
        if (sent < len && !s->lost)
            buf_append(&s->out, data + sent, len - sent);
        if (buf_failed(&s->out))
            return error_memory(err);
    }
    stream_watch_for(s);
    return 0;
}

size_t stream_waiting(const struct stream *s)
{
    return s->out.len - s->out_at;
}

void stream_pause(struct stream *s, bool paused)
{
    bool again = s->paused && !paused;
    s->paused = paused;
    stream_watch_for(s);
    if (again && s->connected && !s->over)
        timer_start(s->timer, 0, 0);
}

void stream_close(struct stream *s)
{
    if (!s)
        return;
    stream_enter(s);
    s->closing = true;
    stream_leave(s);
}
