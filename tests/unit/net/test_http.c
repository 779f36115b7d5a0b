/* Requests over sockets, transfers and handles that are used again: nothing of the last request is
 * seen in the next, and a socket that nobody uses is looked at no more. The server is this test
 * itself. */
#include "../test.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "net/http.h"

enum { TURNS = 2000 }; /* of 10 ms at most: an answer that does not come fails the test */

struct scene {
    struct loop *loop;
    struct http *http;
    struct http_options options;
    int listener, connection, accepted;
    char url[64];
    struct buf asked, got;
    struct http_result result;
    unsigned heads;
    long head_status;
    bool done;
};

static int listen_locally(struct scene *s)
{
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t len = sizeof at;
    s->listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(s->listener, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(s->listener, 8), 0);
    assert_int_equal(getsockname(s->listener, (struct sockaddr *)&at, &len), 0);
    return ntohs(at.sin_port);
}

static int scene_open(void **state)
{
    struct scene *s = calloc(1, sizeof *s);
    assert_non_null(s);
    s->options = (struct http_options){ .host = "127.0.0.1",
        .peer = "the server",
        .codes = { ERROR_MODEL_CONNECT, ERROR_MODEL_CUT, ERROR_MODEL_STALL, ERROR_MODEL_REPLY },
        .connections = 4,
        .connect_timeout = 10,
        .response_limit = 4 }; /* for each, not for all */
    s->connection = -1;
    s->options.port = (unsigned)listen_locally(s);
    snprintf(s->url, sizeof s->url, "http://127.0.0.1:%u/", s->options.port);
    assert_ok(loop_open(&s->loop, err));
    assert_ok(http_open(s->loop, &s->options, &s->http, err));
    *state = s;
    return 0;
}

static int scene_close(void **state)
{
    struct scene *s = *state;
    http_close(s->http);
    loop_close(s->loop);
    close_fd(&s->listener);
    close_fd(&s->connection);
    buf_free(&s->asked);
    buf_free(&s->got);
    free(s);
    return 0;
}

static void on_head(void *arg, struct http_transfer *t)
{
    struct scene *s = arg;
    s->heads++;
    s->head_status = http_status(t);
}

static void on_data(void *arg, const char *data, size_t len)
{
    struct scene *s = arg;
    buf_append(&s->got, data, len);
}

static void on_done(void *arg, const struct http_result *result)
{
    struct scene *s = arg;
    s->result = *result;
    s->done = true;
}

static struct http_transfer *send_request(struct scene *s)
{
    static const struct http_handler handler = { on_head, on_data, on_done };
    struct http_request request = { .url = s->url, .body = "{}", .body_len = 2 };
    struct http_transfer *t = NULL;
    buf_free(&s->asked);
    buf_free(&s->got);
    s->done = false;
    s->heads = 0;
    assert_ok(http_send(s->http, &request, &handler, s, &t, err));
    return t;
}

/* The server's part: takes a connection, and what came over it. */
static void take_what_came(struct scene *s)
{
    char data[4096];
    if (s->connection < 0) {
        s->connection = accept4(s->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        s->accepted += s->connection >= 0;
    }
    ssize_t n = s->connection < 0 ? -1 : read(s->connection, data, sizeof data);
    if (n > 0)
        buf_append(&s->asked, data, (size_t)n);
}

static bool whole(const struct buf *asked)
{
    return asked->len > 2 && memmem(asked->data, asked->len, "\r\n\r\n{}", 6);
}

/* Turns the loop until the request was answered with `reply` and the answer has come. */
static void serve(struct scene *s, const char *reply, bool then_close)
{
    bool replied = false;
    for (int i = 0; i < TURNS && !s->done; i++) {
        loop_turn(s->loop, 10);
        if (replied)
            continue;
        take_what_came(s);
        if (!whole(&s->asked))
            continue;
        assert_int_equal(write(s->connection, reply, strlen(reply)), (ssize_t)strlen(reply));
        replied = true;
        if (then_close)
            close_fd(&s->connection);
    }
    assert_true(s->done);
}

static void wait_for_end(struct scene *s)
{
    for (int i = 0; i < TURNS && !s->done; i++)
        loop_turn(s->loop, 10);
    assert_true(s->done);
}

static const char good[] = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc";
static const char busy[] =
    "HTTP/1.1 429 No\r\nRetry-After: 7\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno";

/* Two requests one after the other go over one connection, and each has its own status and
 * bytes. */
static void a_connection_is_used_again(void **state)
{
    struct scene *s = *state;
    for (int i = 0; i < 2; i++) {
        send_request(s);
        serve(s, good, false);
        assert_int_equal(s->result.error.code, ERROR_NONE);
        assert_int_equal(s->result.status, 200);
        assert_int_equal(s->heads, 1);
        assert_int_equal(s->head_status, 200);
        assert_int_equal(s->got.len, 3);
        assert_memory_equal(s->got.data, "abc", 3);
    }
    assert_int_equal(s->accepted, 1);
}

/* The first URL is parsed once for all, and others go over the same handles: each is asked for as
 * itself. */
static void each_url_is_asked_for_as_itself(void **state)
{
    static const char *const paths[] = { "", "", "a", "", "b%20c?d=e", "a", "" };
    struct scene *s = *state;
    size_t len = strlen(s->url);
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        char line[64];
        snprintf(s->url + len, sizeof s->url - len, "%s", paths[i]);
        snprintf(line, sizeof line, "POST /%s HTTP/1.1\r\n", paths[i]);
        send_request(s);
        serve(s, good, false);
        assert_int_equal(s->result.error.code, ERROR_NONE);
        assert_true(s->asked.len > strlen(line));
        assert_memory_equal(s->asked.data, line, strlen(line));
    }
    assert_int_equal(s->accepted, 1);
}

/* A server that answers and closes is asked again over a new connection. */
static void a_server_that_closes_is_asked_again(void **state)
{
    struct scene *s = *state;
    for (int i = 0; i < 4; i++) {
        send_request(s);
        serve(s, busy, true);
        assert_int_equal(s->result.error.code, ERROR_NONE);
        assert_int_equal(s->result.status, 429);
        assert_true(s->result.retry_after == 7);
    }
    assert_int_equal(s->accepted, 4);
}

/* A cancelled request's connection is closed while its answer may still come. The next one's
 * descriptor has its number, which the loop must not take for the old one. */
static void an_abandoned_connection_is_forgotten(void **state)
{
    struct scene *s = *state;
    for (int i = 0; i < 4; i++) {
        struct http_transfer *t = send_request(s);
        for (int j = 0; j < TURNS && !whole(&s->asked); j++) {
            loop_turn(s->loop, 10);
            take_what_came(s);
        }
        http_cancel(t);
        loop_turn(s->loop, 0);
        close_fd(&s->connection);
    }
    send_request(s);
    serve(s, good, false);
    assert_int_equal(s->result.status, 200);
    assert_int_equal(s->accepted, 5);
}

/* After an answer with a status and a pause, a request that cannot even be sent has neither; it is
 * as unsent as the first one of its handle would be. */
static void a_failure_tells_nothing_of_the_answer_before_it(void **state)
{
    struct scene *s = *state;
    send_request(s);
    serve(s, busy, true);
    close_fd(&s->listener);
    send_request(s);
    assert_int_equal(s->heads, 0);
    wait_for_end(s);
    assert_int_equal(s->result.error.code, ERROR_MODEL_CONNECT);
    assert_int_equal(s->result.status, 0);
    assert_true(s->result.retry_after == 0);
    assert_true(s->result.unsent);
    assert_int_equal(s->heads, 0);
    assert_int_equal(s->got.len, 0);
}

/* The handle is not read before the request can have left: until then it has the previous request's
 * answer. */
static void before_it_leaves_a_request_has_no_status(void **state)
{
    struct scene *s = *state;
    send_request(s);
    serve(s, busy, true);
    struct http_transfer *t = send_request(s);
    assert_int_equal(http_status(t), 0);
    assert_false(http_sent(t));
    http_cancel(t);
}

/* A host that was held up for longer than a stall may last reads what has arrived meanwhile. What
 * does not arrive is a stall. */
static void what_arrived_while_the_host_was_held_up_is_no_stall(void **state)
{
    static const char begun[] = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\na";
    struct scene *s = *state;
    http_close(s->http);
    s->options.first_timeout = s->options.stall_timeout = 0.2;
    assert_ok(http_open(s->loop, &s->options, &s->http, err));
    for (int is_whole = 1; is_whole >= 0; is_whole--) {
        send_request(s);
        for (int i = 0; i < TURNS && !whole(&s->asked); i++) {
            loop_turn(s->loop, 10);
            take_what_came(s);
        }
        const char *reply = is_whole ? good : begun;
        assert_int_equal(write(s->connection, reply, strlen(reply)), (ssize_t)strlen(reply));
        usleep(250000);
        wait_for_end(s);
        assert_int_equal(s->result.error.code, is_whole ? ERROR_NONE : ERROR_MODEL_STALL);
    }
}

static void never(void *arg)
{
    fail_msg("the timer came");
}

/* An idle connection that the server closes is heard of once: a descriptor that is readable for
 * ever would keep the loop from sleeping. */
static void an_idle_connection_that_ends_is_heard_once(void **state)
{
    struct scene *s = *state;
    send_request(s);
    serve(s, good, false);
    struct timer *timer =
        timer_new(s->loop, never, NULL); /* without it there is nothing to run for */
    timer_start(timer, 1000000, 0);
    loop_turn(s->loop, 0);
    uint64_t before = s->loop->fired;
    close_fd(&s->connection);
    for (int i = 0; i < 50; i++)
        loop_turn(s->loop, 0);
    assert_int_equal(s->loop->fired - before, 1);
    timer_free(timer);
    /* And the next request finds a new one. */
    send_request(s);
    serve(s, good, false);
    assert_int_equal(s->result.status, 200);
    assert_int_equal(s->accepted, 2);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, scene_open, scene_close)
    const struct CMUnitTest tests[] = {
        T(a_connection_is_used_again),
        T(each_url_is_asked_for_as_itself),
        T(a_server_that_closes_is_asked_again),
        T(an_abandoned_connection_is_forgotten),
        T(a_failure_tells_nothing_of_the_answer_before_it),
        T(before_it_leaves_a_request_has_no_status),
        T(what_arrived_while_the_host_was_held_up_is_no_stall),
        T(an_idle_connection_that_ends_is_heard_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
