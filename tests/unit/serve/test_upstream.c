/* Answers of another worker, in pieces of any size: framed by length, in chunks or not at all, and
 * broken ones. A connection is used again only after a whole answer. */
#include "../test.h"

#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "serve/server.h"
#include "serve/http/upstream.h"
#include "serve/workers.h"

static struct server server;
static int far_end = -1;
static unsigned connections;
static struct buf fields, body;
static unsigned status;
static int ended; /* 1: whole; -1: broken; 0: not yet */

/* What upstream.c needs of the other files. */
int worker_send_connection(struct server *s, unsigned worker, int fd)
{
    close_fd(&far_end);
    far_end = dup(fd);
    connections++;
    return worker == 9 ? -1 : 0; /* one that does not run */
}

static void on_field(void *arg, const char *name, const char *value)
{
    buf_printf(&fields, "%s=%s;", name, value);
}

static void on_head(void *arg)
{
    status = ((struct upstream *)arg)->status;
}

static void on_data(void *arg, const char *data, size_t len)
{
    buf_append(&body, data, len);
}

static void on_sent(void *arg)
{
}

static void on_end(void *arg, bool is_whole)
{
    ended = is_whole ? 1 : -1;
}

static int upstream_setup(void **state)
{
    memset(&server, 0, sizeof server);
    connections = 0;
    return uv_loop_init(&server.loop);
}

static int upstream_teardown(void **state)
{
    upstream_sweep(&server, 0, true);
    close_fd(&far_end);
    uv_run(&server.loop, UV_RUN_DEFAULT);
    return uv_loop_close(&server.loop);
}

static struct upstream *prepare(struct upstream *u)
{
    assert_non_null(u);
    u->arg = u;
    u->on_field = on_field;
    u->on_head = on_head;
    u->on_data = on_data;
    u->on_sent = on_sent;
    u->on_end = on_end;
    buf_clear(&fields);
    buf_clear(&body);
    status = 0;
    ended = 0;
    return u;
}

static struct upstream *begin(void)
{
    return prepare(upstream_open(&server, 1));
}

/* The worker answers in pieces of this size. */
static void answer(const char *text, size_t piece)
{
    for (size_t at = 0, len = strlen(text); at < len && ended >= 0; at += piece) {
        size_t n = len - at < piece ? len - at : piece;
        assert_int_equal(send(far_end, text + at, n, MSG_NOSIGNAL), n);
        uv_run(&server.loop, UV_RUN_NOWAIT);
    }
}

#define OK "HTTP/1.1 200 OK\r\n"

static void whole_answers_arrive_in_any_pieces(void **state)
{
    static const struct {
        const char *text;
        unsigned status;
        const char *fields, *body;
    } rows[] = {
        { OK "Content-Length: 5\r\nA: b\r\n\r\nhello", 200, "A=b;", "hello" },
        { OK "Content-Length: 0\r\n\r\n", 200, "", "" },
        { OK "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nA\r\n0123456789\r\n0\r\n\r\n", 200, "",
            "abc0123456789" },
        { "HTTP/1.1 204 No Content\r\nX:\t y\r\n\r\n", 204, "X=y;", "" },
        { "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 201 Created\r\ncontent-length: 2\r\n\r\n{}", 201,
            "", "{}" },
    };
    for (size_t i = 0; i < array_length(rows); i++)
        for (size_t piece = 1; piece < 200; piece = piece < 4 ? piece + 1 : piece * 7) {
            begin();
            answer(rows[i].text, piece);
            assert_int_equal(ended, 1);
            assert_int_equal(status, rows[i].status);
            assert_string_equal(buf_text(&fields), rows[i].fields);
            assert_string_equal(buf_text(&body), rows[i].body);
        }
    assert_int_equal(connections, 1);
}

/* A server in a sandbox may speak HTTP/1.0, end a body with the connection, and send trailers. */
static void a_foreign_servers_answers_end_as_it_likes(void **state)
{
    static const struct {
        const char *text, *body;
        int ended;
        bool is_head;
    } rows[] = {
        { "HTTP/1.0 200 OK\r\n\r\nto the end", "to the end", 1, false },
        { OK "Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nT: v\r\n\r\n", "a", 1, false },
        { OK "Content-Length: 9\r\n\r\n", "", 1, true },
        { OK "Content-Length: 9\r\n\r\nhalf", "half", -1, false },
        { OK "Content-Length: +9\r\n\r\n", "", -1, false },
        { OK "Content-Length: 1\r\nContent-Length: 2\r\n\r\nab", "", -1, false },
        { OK "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "", -1, false },
        { OK "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", "", -1, false },
        { "HTTP/1.1 101 X\r\n\r\nbytes", "", -1, false },
        { "HTTP/1.1 99 X\r\n\r\n", "", -1, false },
    };
    for (size_t i = 0; i < array_length(rows); i++) {
        int ends[2];
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
        close_fd(&far_end);
        far_end = ends[1];
        struct upstream *u = prepare(upstream_over(&server, ends[0]));
        u->is_head = rows[i].is_head;
        answer(rows[i].text, 3);
        close_fd(&far_end);
        uv_run(&server.loop, UV_RUN_NOWAIT);
        assert_int_equal(ended, rows[i].ended);
        assert_string_equal(buf_text(&body), rows[i].body);
    }
    assert_null(server.idle_upstreams);
}

static void broken_answers_end_at_once(void **state)
{
    static const char *const rows[] = { "HTTP/1.0 200 OK\r\n\r\n", "nonsense\r\n\r\n",
        OK "no colon\r\n\r\n", OK "\r\n\r\nabc\r\n", OK "A: b\r\n\r\n2\r\nabc\r\n" };
    for (size_t i = 0; i < array_length(rows); i++) {
        begin();
        answer(rows[i], strlen(rows[i]));
        assert_int_equal(ended, -1);
    }
    assert_int_equal(connections, array_length(rows)); /* none was used again */
}

/* A worker that ends in the middle of an answer is not taken for its end. */
static void a_cut_answer_is_not_whole(void **state)
{
    static const char *const rows[] = { "", "HTTP/1.1 200", OK "Content-Length: 5\r\n\r\nhel",
        OK "\r\n3\r\nabc\r\n" };
    for (size_t i = 0; i < array_length(rows); i++) {
        begin();
        answer(rows[i], 1000);
        assert_int_equal(ended, 0);
        close_fd(&far_end);
        uv_run(&server.loop, UV_RUN_NOWAIT);
        assert_int_equal(ended, -1);
    }
}

static void a_head_without_an_end_is_refused(void **state)
{
    char line[1024];
    begin();
    memset(line, 'a', sizeof line - 1);
    line[sizeof line - 1] = '\0';
    for (int i = 0; i < 70 && !ended; i++)
        answer(line, sizeof line);
    assert_int_equal(ended, -1);
}

static void close_ends_the_connection_after_its_answer(void **state)
{
    begin();
    answer(OK "Content-Length: 0\r\nConnection: close\r\n\r\n", 100);
    assert_int_equal(ended, 1);
    assert_null(server.idle_upstreams);
    assert_string_equal(buf_text(&fields), "");
    begin();
    assert_int_equal(connections, 2);
    answer(OK "Content-Length: 1\r\n\r\nab", 100); /* more than its answer */
    assert_int_equal(ended, 1);
    assert_null(server.idle_upstreams);
}

/* After 101 the bytes are no longer HTTP's, up to the end of the connection. */
static void an_upgrade_is_bytes_until_the_end(void **state)
{
    begin()->may_upgrade = true;
    answer("HTTP/1.1 101 Switching Protocols\r\n\r\n0\r\n\r\n\x81", 3);
    assert_int_equal(status, 101);
    assert_int_equal(ended, 0);
    assert_string_equal(buf_text(&body), "0\r\n\r\n\x81");
    close_fd(&far_end);
    uv_run(&server.loop, UV_RUN_NOWAIT);
    assert_int_not_equal(ended, 0);
}

/* Nothing is read while the client is slow. */
static void a_paused_answer_waits(void **state)
{
    struct upstream *u = begin();
    upstream_pause(u, true);
    answer(OK "Content-Length: 2\r\n\r\nok", 100);
    assert_int_equal(status, 0);
    upstream_pause(u, false);
    uv_run(&server.loop, UV_RUN_NOWAIT);
    assert_int_equal(ended, 1);
}

static void an_idle_connection_that_closes_is_forgotten(void **state)
{
    begin();
    answer(OK "Content-Length: 0\r\n\r\n", 100);
    assert_non_null(server.idle_upstreams);
    upstream_sweep(&server, clock_ns(), false);
    assert_non_null(server.idle_upstreams);
    close_fd(&far_end);
    uv_run(&server.loop, UV_RUN_NOWAIT);
    assert_null(server.idle_upstreams);
    begin();
    answer(OK "Content-Length: 0\r\n\r\n", 100);
    upstream_sweep(&server, clock_ns() + 21 * (uint64_t)1000000000, false);
    assert_null(server.idle_upstreams);
}

static void a_worker_that_does_not_run_has_none(void **state)
{
    assert_null(upstream_open(&server, 9));
}

static int upstream_free_texts(void **state)
{
    buf_free(&fields);
    buf_free(&body);
    return 0;
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, upstream_setup, upstream_teardown)
    const struct CMUnitTest tests[] = {
        TEST(whole_answers_arrive_in_any_pieces),
        TEST(a_foreign_servers_answers_end_as_it_likes),
        TEST(broken_answers_end_at_once),
        TEST(a_cut_answer_is_not_whole),
        TEST(a_head_without_an_end_is_refused),
        TEST(close_ends_the_connection_after_its_answer),
        TEST(an_upgrade_is_bytes_until_the_end),
        TEST(a_paused_answer_waits),
        TEST(an_idle_connection_that_closes_is_forgotten),
        TEST(a_worker_that_does_not_run_has_none),
    };
    return cmocka_run_group_tests(tests, NULL, upstream_free_texts);
}
