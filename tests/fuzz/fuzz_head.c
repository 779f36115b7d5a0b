/* The head of a request: byte 0 chooses which hosts are trusted; the rest is what a client sends,
 * up to 16 KiB, to libmicrohttpd over a socket pair. What head_check lets through must be one head
 * as RFC 9112 frames it.
 */
#include "fuzz.h"

#include <microhttpd.h>
#include <sys/socket.h>

#include "serve/http/request.h"

struct seen {
    struct server server;
    struct client client;
    struct table_worker figures;
    const uint8_t *sent;
    size_t len;
    enum head_trust trust;
};

/* What head.c needs of the other files. */
void request_refuse(struct request *r, unsigned status, const char *code, const char *format, ...)
{
    expect(!r->status && status >= 400 && code[0] && format[0]);
    r->status = status;
}

const char *request_header_of(struct request *r, const char *name)
{
    return MHD_lookup_connection_value(r->connection, MHD_HEADER_KIND, name);
}

bool route_has_host(const char *host)
{
    return host && strchr(host, '-') != NULL;
}

static void *on_target(void *arg, const char *target, struct MHD_Connection *connection)
{
    struct request *r = calloc(1, sizeof *r);
    expect(r);
    r->connection = connection;
    r->target = strdup(target);
    r->target_at = target;
    head_look(r);
    return r;
}

static const char *line_end(const char *at, const char *end)
{
    const char *line = memmem(at, (size_t)(end - at), "\r\n", 2);
    expect(line);
    return line;
}

/* A head that was accepted, and behind which another request may be read: fields with a colon
 * behind a token, no bare line feed, no NUL, no folding. Empty lines may precede it (RFC 9112,
 * 2.2); libmicrohttpd takes lines that begin with a NUL for such, which head.c cannot see. */
static void check_accepted(const struct seen *seen)
{
    const char *at = (const char *)seen->sent, *end = at + seen->len;
    for (; at < end && (at[0] == '\r' || at[0] == '\n' || at[0] == '\0'); at++)
        if (at[0] == '\0' && !(at = memchr(at, '\n', (size_t)(end - at))))
            return;
    const char *line = line_end(at, end);
    expect(!memchr(at, '\n', (size_t)(line - at)));
    for (at = line + 2; (line = line_end(at, end)) > at; at = line + 2) {
        const char *colon = memchr(at, ':', (size_t)(line - at));
        expect(colon && colon > at && at[0] != ' ' && at[0] != '\t');
        expect(!memchr(at, '\0', (size_t)(line - at)));
        expect(!memchr(at, '\n', (size_t)(line - at)));
        expect(colon[-1] != ' ' && colon[-1] != '\t');
    }
}

static enum MHD_Result on_access(void *arg, struct MHD_Connection *connection, const char *path,
    const char *method, const char *version, const char *data, size_t *len, void **state)
{
    struct seen *seen = arg;
    struct request *r = *state;
    r->server = &seen->server;
    r->client = &seen->client;
    if (!r->begun) {
        r->begun = true;
        bool fine = head_check(r, method, version, seen->trust);
        expect(fine == (r->status == 0));
        if (fine && !r->close_after)
            check_accepted(seen);
    }
    return MHD_NO; /* one head of each connection */
}

static void on_completed(void *arg, struct MHD_Connection *connection, void **state,
    enum MHD_RequestTerminationCode code)
{
    struct request *r = *state;
    if (r)
        free(r->target);
    free(r);
    *state = NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input in = { data, size };
    struct sockaddr address = { .sa_family = AF_UNIX };
    int ends[2];
    struct seen seen = { .trust = (enum head_trust)(input_byte(&in) % 3) };
    seen.server.figures = &seen.figures;
    seen.sent = in.p;
    seen.len = in.left < 16384 ? in.left : 16384;
    struct MHD_Daemon *daemon = MHD_start_daemon(MHD_USE_EPOLL | MHD_USE_NO_LISTEN_SOCKET, 0, NULL,
        NULL, on_access, &seen, MHD_OPTION_URI_LOG_CALLBACK, on_target, &seen,
        MHD_OPTION_NOTIFY_COMPLETED, on_completed, &seen, MHD_OPTION_STRICT_FOR_CLIENT, 1,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)16384, MHD_OPTION_END);
    expect(daemon);
    expect(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0);
    expect(write(ends[0], seen.sent, seen.len) == (ssize_t)seen.len);
    shutdown(ends[0], SHUT_WR);
    expect(MHD_add_connection(daemon, ends[1], &address, sizeof address) == MHD_YES);
    for (int i = 0; i < 4; i++)
        MHD_run(daemon);
    MHD_stop_daemon(daemon);
    close(ends[0]);
    return 0;
}
