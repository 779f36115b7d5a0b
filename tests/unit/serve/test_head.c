/* Heads of requests, as a client sends them: what a proxy may read differently, and pages of other
 * sites, are refused before a handler runs. Each goes through libmicrohttpd over a socket pair. */
#include "../test.h"

#include <sys/socket.h>
#include <unistd.h>

#include "serve/http/request.h"

static struct {
    struct server server;
    struct client client;
    struct table_worker figures;
    enum head_trust trust;
    unsigned status; /* of the refusal; 200: it was accepted; 0: the library refused it */
    bool closes;
} seen;

/* What head.c needs of the other files. */
void request_refuse(struct request *r, unsigned status, const char *code, const char *format, ...)
{
    assert_int_equal(r->status, 0);
    r->status = status;
}

bool route_has_host(const char *host)
{
    return host && strcmp(host, "49983-abc.example.org") == 0;
}

static void *head_on_target(void *arg, const char *target, struct MHD_Connection *connection)
{
    struct request *r = calloc(1, sizeof *r);
    assert_non_null(r);
    r->connection = connection;
    r->target = strdup(target);
    r->target_at = target;
    r->client = &seen.client;
    head_look(r);
    return r;
}

static enum MHD_Result head_on_access(void *arg, struct MHD_Connection *connection,
    const char *path, const char *method, const char *version, const char *data, size_t *len,
    void **state)
{
    struct request *r = *state;
    r->server = &seen.server;
    if (r->begun)
        return MHD_NO;
    r->begun = true;
    seen.status = head_check(r, method, version, seen.trust) ? 200 : r->status;
    seen.closes = r->close_after;
    return MHD_NO;
}

static void head_on_completed(void *arg, struct MHD_Connection *connection, void **state,
    enum MHD_RequestTerminationCode code)
{
    struct request *r = *state;
    if (r)
        free(r->target);
    free(r);
    *state = NULL;
}

static unsigned head_status(enum head_trust trust, const char *head, size_t len)
{
    struct sockaddr address = { .sa_family = AF_UNIX };
    int ends[2];
    memset(&seen, 0, sizeof seen);
    seen.trust = trust;
    seen.server.figures = &seen.figures;
    struct MHD_Daemon *daemon = MHD_start_daemon(MHD_USE_EPOLL | MHD_USE_NO_LISTEN_SOCKET, 0, NULL,
        NULL, head_on_access, NULL, MHD_OPTION_URI_LOG_CALLBACK, head_on_target, NULL,
        MHD_OPTION_NOTIFY_COMPLETED, head_on_completed, NULL, MHD_OPTION_STRICT_FOR_CLIENT, 1,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)16384, MHD_OPTION_END);
    assert_non_null(daemon);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
    assert_int_equal(write(ends[0], head, len), len);
    shutdown(ends[0], SHUT_WR);
    assert_int_equal(MHD_add_connection(daemon, ends[1], &address, sizeof address), MHD_YES);
    for (int i = 0; i < 4; i++)
        MHD_run(daemon);
    MHD_stop_daemon(daemon);
    close(ends[0]);
    return seen.status;
}

#define STATUS(trust, text) head_status(trust, text, sizeof(text) - 1)
#define GET                 "GET /v1/sandboxes HTTP/1.1\r\nHost: localhost\r\n"
#define POST                "POST /v1/sandboxes HTTP/1.1\r\nHost: localhost\r\n"

static void ordinary_heads_are_accepted(void **state)
{
    assert_int_equal(STATUS(HEAD_LOOPBACK, GET "\r\n"), 200);
    assert_false(seen.closes);
    assert_int_equal(STATUS(HEAD_LOOPBACK, GET "X-Name: a\tb c\r\nEmpty:\r\n\r\n"), 200);
    assert_int_equal(STATUS(HEAD_LOOPBACK, POST "Content-Length: 2\r\n\r\n{}"), 200);
    assert_int_equal(STATUS(HEAD_LOOPBACK, "GET / HTTP/1.0\r\n\r\n"), 200);
    assert_int_equal(
        STATUS(HEAD_LOOPBACK, "GET /f?path=%2Fa%20b HTTP/1.1\r\nHost: [::1]:80\r\n\r\n"), 200);
    assert_int_equal(seen.figures.counters[COUNT_REFUSED_HEAD], 0);
}

/* Nothing that follows a body in chunks is read as a request. */
static void a_body_in_chunks_ends_the_connection(void **state)
{
    assert_int_equal(
        STATUS(HEAD_LOOPBACK, POST "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"), 200);
    assert_true(seen.closes);
    assert_int_equal(
        STATUS(HEAD_LOOPBACK, POST "Transfer-Encoding: Chunked\r\n\r\n0\r\n\r\n"), 200);
}

#define IS_REFUSED(status, text)                                                                   \
    do {                                                                                           \
        unsigned got_ = STATUS(HEAD_LOOPBACK, text);                                               \
        if (got_ != (status) && got_ != 0)                                                         \
            fail_msg("%s: %u, not %u", text, got_, (unsigned)(status));                            \
    } while (0)

static void what_a_proxy_may_read_differently_is_refused(void **state)
{
    IS_REFUSED(400, GET "A: 1\n\r\n"); /* a bare line feed */
    IS_REFUSED(400, GET "A: 1\r\n folded\r\n\r\n");
    IS_REFUSED(400, GET "A : 1\r\n\r\n"); /* a space before the colon */
    IS_REFUSED(400, GET "A(: 1\r\n\r\n");
    IS_REFUSED(400, GET "A: 1\0002\r\n\r\n");
    IS_REFUSED(400, GET "A: \001\r\n\r\n");
    IS_REFUSED(400, GET "Host: localhost\r\n\r\n");    /* two of them */
    IS_REFUSED(400, "GET / HTTP/1.1\r\nA: 1\r\n\r\n"); /* none */
    IS_REFUSED(400, POST "Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}");
    IS_REFUSED(400, POST "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}");
    IS_REFUSED(400, POST "Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n");
    IS_REFUSED(400, "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n");
    IS_REFUSED(400, "GET  / HTTP/1.1\r\nHost: localhost\r\n\r\n"); /* two spaces */
    IS_REFUSED(400, "GET /a%00b HTTP/1.1\r\nHost: localhost\r\n\r\n");
    IS_REFUSED(400, "GET /a#b HTTP/1.1\r\nHost: localhost\r\n\r\n");
    IS_REFUSED(400, "GET http://localhost/ HTTP/1.1\r\nHost: localhost\r\n\r\n");
    IS_REFUSED(501, POST "Transfer-Encoding: gzip\r\n\r\n0\r\n\r\n");
    IS_REFUSED(501, POST "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n");
}

/* The refusals above are head.c's and not the library's where the library accepts. */
static void a_refusal_closes_and_is_counted(void **state)
{
    assert_int_equal(STATUS(HEAD_LOOPBACK, GET "Host: localhost\r\n\r\n"), 400);
    assert_true(seen.closes);
    assert_int_equal(seen.figures.counters[COUNT_REFUSED_HEAD], 1);
}

#define FROM(host, origin) "GET / HTTP/1.1\r\nHost: " host "\r\nOrigin: " origin "\r\n\r\n"
#define HOST(host)         "GET / HTTP/1.1\r\nHost: " host "\r\n\r\n"

static void without_keys_only_pages_of_this_machine_are_served(void **state)
{
    assert_int_equal(STATUS(HEAD_LOOPBACK, HOST("127.0.0.1:8080")), 200);
    assert_int_equal(STATUS(HEAD_LOOPBACK, HOST("LOCALHOST")), 200);
    assert_int_equal(STATUS(HEAD_LOOPBACK, FROM("localhost:80", "http://localhost:80")), 200);
    assert_int_equal(STATUS(HEAD_LOOPBACK, HOST("49983-abc.example.org")), 200); /* by its token */
    assert_int_equal(STATUS(HEAD_LOOPBACK, HOST("evil.example")), 403);
    assert_int_equal(STATUS(HEAD_LOOPBACK, HOST("localhost.evil.example")), 403);
    assert_int_equal(STATUS(HEAD_LOOPBACK, HOST("localhost:80@evil.example")), 403);
    assert_int_equal(STATUS(HEAD_LOOPBACK, FROM("localhost", "http://evil.example")), 403);
    assert_int_equal(STATUS(HEAD_LOOPBACK, FROM("localhost:80", "http://localhost:3000")), 403);
    assert_int_equal(STATUS(HEAD_LOOPBACK, FROM("localhost", "null")), 403);
    assert_int_equal(STATUS(HEAD_LOOPBACK, FROM("localhost", "ftp://localhost")), 403);
    assert_int_equal(seen.figures.counters[COUNT_REFUSED_SITE], 1);
}

static void with_keys_only_its_own_pages_are_served(void **state)
{
    assert_int_equal(STATUS(HEAD_ORIGIN, HOST("box.example:8443")), 200);
    assert_int_equal(
        STATUS(HEAD_ORIGIN, FROM("box.example:8443", "https://box.example:8443")), 200);
    assert_int_equal(STATUS(HEAD_ORIGIN, FROM("box.example:8443", "https://box.example")), 403);
    assert_int_equal(STATUS(HEAD_ORIGIN, FROM("box.example", "http://localhost")), 403);
    assert_int_equal(STATUS(HEAD_ANY, FROM("box.example", "http://evil.example")), 200);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ordinary_heads_are_accepted),
        cmocka_unit_test(a_body_in_chunks_ends_the_connection),
        cmocka_unit_test(what_a_proxy_may_read_differently_is_refused),
        cmocka_unit_test(a_refusal_closes_and_is_counted),
        cmocka_unit_test(without_keys_only_pages_of_this_machine_are_served),
        cmocka_unit_test(with_keys_only_its_own_pages_are_served),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
