/* A stream to a server: bytes arrive complete and in order in both directions, however slow the
 * other side is; a server that is missing, or disconnects, is reported once. The test itself is the
 * server. */
#include "../test.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "net/stream.h"

enum { TURNS = 2000, LARGE = 8 << 20 };

struct scene {
    struct loop *loop;
    struct stream *stream;
    char dir[32], path[64];
    int listener, connection;
    struct buf got;
    const char *upgrade;
    bool connected, close_at_bytes;
    unsigned closed;
    struct error why;
};

static void on_connected(void *arg)
{
    ((struct scene *)arg)->connected = true;
}

static void on_bytes(void *arg, const char *data, size_t len)
{
    struct scene *s = arg;
    assert_int_equal(s->closed, 0);
    buf_append(&s->got, data, len);
    if (s->close_at_bytes)
        stream_close(steal(&s->stream));
}

static void on_closed(void *arg, const struct error *why)
{
    struct scene *s = arg;
    s->closed++;
    s->why = *why;
}

static const struct stream_events events = { on_connected, on_bytes, on_closed };

static int scene_open(void **state)
{
    struct scene *s = calloc(1, sizeof *s);
    struct sockaddr_un at = { .sun_family = AF_UNIX };
    assert_non_null(s);
    s->connection = -1;
    snprintf(s->dir, sizeof s->dir, "/tmp/stream-XXXXXX");
    assert_non_null(mkdtemp(s->dir));
    snprintf(s->path, sizeof s->path, "%s/socket", s->dir);
    strcpy(at.sun_path, s->path);
    s->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(s->listener, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(s->listener, 8), 0);
    assert_ok(loop_open(&s->loop, err));
    *state = s;
    return 0;
}

static int scene_close(void **state)
{
    struct scene *s = *state;
    stream_close(s->stream);
    loop_close(s->loop);
    close_fd(&s->listener);
    close_fd(&s->connection);
    unlink(s->path);
    rmdir(s->dir);
    buf_free(&s->got);
    free(s);
    return 0;
}

static void open_stream(struct scene *s, const char *path)
{
    struct stream_options options = { .url = "http://localhost/",
        .connect_options.unix_path = path,
        .peer = "the server",
        .code = ERROR_ENVIRONMENT,
        .upgrade = s->upgrade };
    assert_ok(stream_open(s->loop, &options, &events, s, &s->stream, err));
}

static void send_text(struct scene *s, const char *text)
{
    struct iovec iov = { (void *)(uintptr_t)text, strlen(text) };
    assert_ok(stream_send(s->stream, &iov, 1, err));
}

static void turn_until(struct scene *s, const bool *done)
{
    for (int i = 0; i < TURNS && !*done; i++)
        loop_turn(s->loop, 10);
    assert_true(*done);
}

static void connect_stream(struct scene *s)
{
    open_stream(s, s->path);
    turn_until(s, &s->connected);
    s->connection = accept4(s->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    assert_true(s->connection >= 0);
}

static void wait_closed(struct scene *s)
{
    for (int i = 0; i < TURNS && !s->closed; i++)
        loop_turn(s->loop, 10);
    assert_int_equal(s->closed, 1);
}

/* What is sent before there is a connection goes when there is one, and in order. */
static void test_bytes_go_both_ways(void **state)
{
    struct scene *s = *state;
    char data[16] = "";
    open_stream(s, s->path);
    send_text(s, "one ");
    turn_until(s, &s->connected);
    s->connection = accept4(s->listener, NULL, NULL, SOCK_CLOEXEC);
    send_text(s, "two");
    assert_int_equal(recv(s->connection, data, 7, MSG_WAITALL), 7);
    assert_string_equal(data, "one two");
    assert_int_equal(write(s->connection, "three", 5), 5);
    for (int i = 0; i < TURNS && s->got.len < 5; i++)
        loop_turn(s->loop, 10);
    assert_string_equal(buf_text(&s->got), "three");
}

/* A server that reads slowly gets all of it; meanwhile it waits here, and is counted. */
static void test_what_is_not_taken_waits(void **state)
{
    struct scene *s = *state;
    cleanup_free char *large = malloc(LARGE);
    char data[65536];
    size_t got = 0;
    for (size_t i = 0; i < LARGE; i++)
        large[i] = (char)(i * 7 + i / 251);
    connect_stream(s);
    assert_ok(stream_send(s->stream, &(struct iovec){ large, LARGE }, 1, err));
    assert_true(stream_waiting(s->stream) > 0);
    for (int i = 0; i < 100 * TURNS && got < LARGE; i++) {
        ssize_t n = read(s->connection, data, sizeof data);
        if (n > 0) {
            assert_memory_equal(data, large + got, (size_t)n);
            got += (size_t)n;
        } else {
            loop_turn(s->loop, 10);
        }
    }
    assert_int_equal(got, LARGE);
    assert_int_equal(stream_waiting(s->stream), 0);
}

/* A paused one reads nothing, and all of it afterwards. */
static void test_a_paused_stream_does_not_read(void **state)
{
    struct scene *s = *state;
    connect_stream(s);
    stream_pause(s->stream, true);
    assert_int_equal(write(s->connection, "held", 4), 4);
    for (int i = 0; i < 5; i++)
        loop_turn(s->loop, 5);
    assert_int_equal(s->got.len, 0);
    stream_pause(s->stream, false);
    for (int i = 0; i < TURNS && s->got.len < 4; i++)
        loop_turn(s->loop, 10);
    assert_string_equal(buf_text(&s->got), "held");
}

static void test_an_orderly_end_follows_the_bytes(void **state)
{
    struct scene *s = *state;
    connect_stream(s);
    assert_int_equal(write(s->connection, "last", 4), 4);
    close_fd(&s->connection);
    wait_closed(s);
    assert_string_equal(buf_text(&s->got), "last");
    assert_int_equal(s->why.code, ERROR_NONE);
    send_text(s, "x"); /* nobody's, and no harm */
}

static void test_who_is_not_there_is_an_error(void **state)
{
    struct scene *s = *state;
    open_stream(s, "/nonexistent/socket");
    wait_closed(s);
    assert_int_equal(s->why.code, ERROR_ENVIRONMENT);
    assert_non_null(strstr(s->why.text, "the server"));
    assert_false(s->connected);
}

static void test_it_may_be_closed_by_its_own_events(void **state)
{
    struct scene *s = *state;
    connect_stream(s);
    s->close_at_bytes = true;
    assert_int_equal(write(s->connection, "x", 1), 1);
    for (int i = 0; i < TURNS && s->stream; i++)
        loop_turn(s->loop, 10);
    assert_null(s->stream);
    assert_int_equal(s->closed, 0);
}

/* The server's side of an upgrade, which comes in these pieces. */
static void answer_upgrade(struct scene *s, const char *const *pieces)
{
    char asked[64] = "";
    s->upgrade = "POST /attach HTTP/1.1\r\nHost: localhost\r\n\r\n";
    open_stream(s, s->path);
    send_text(s, "mine");
    for (int i = 0; i < TURNS && s->connection < 0; i++) {
        loop_turn(s->loop, 10);
        s->connection = accept4(s->listener, NULL, NULL, SOCK_CLOEXEC);
    }
    for (int i = 0; i < 20; i++)
        loop_turn(s->loop, 1);
    size_t n = strlen(s->upgrade);
    assert_int_equal(recv(s->connection, asked, n, MSG_WAITALL), n);
    assert_string_equal(asked, s->upgrade);
    for (; *pieces; pieces++) {
        assert_int_equal(write(s->connection, *pieces, strlen(*pieces)), strlen(*pieces));
        loop_turn(s->loop, 10);
    }
}

/* However the answer is cut, what is behind its head is the first of the stream, and what was to be
 * sent goes only now. */
static void test_an_upgrade_that_is_agreed_to(void **state)
{
    static const char *const pieces[] = { "HTTP/1.1 101 UPGRADED\r\nUpgra", "de: tcp\r\n\r",
        "\nfirst", NULL };
    struct scene *s = *state;
    char data[8] = "";
    answer_upgrade(s, pieces);
    turn_until(s, &s->connected);
    for (int i = 0; i < TURNS && s->got.len < 5; i++)
        loop_turn(s->loop, 10);
    assert_string_equal(buf_text(&s->got), "first");
    assert_int_equal(recv(s->connection, data, 4, MSG_WAITALL), 4);
    assert_string_equal(data, "mine");
}

static void test_an_upgrade_that_is_refused(void **state)
{
    static const char *const pieces[] = { "HTTP/1.1 404 Not Found\r\n\r\nno such container", NULL };
    struct scene *s = *state;
    answer_upgrade(s, pieces);
    wait_closed(s);
    assert_false(s->connected);
    assert_non_null(strstr(s->why.text, "404 Not Found: no such container"));
}

static void test_a_head_without_an_end_is_refused(void **state)
{
    static const char *const pieces[] = { "HTTP/1.1 101 ", NULL };
    struct scene *s = *state;
    char more[4096];
    memset(more, 'x', sizeof more);
    answer_upgrade(s, pieces);
    for (int i = 0; i < 5 && !s->closed; i++) {
        assert_int_equal(send(s->connection, more, sizeof more, MSG_NOSIGNAL), sizeof more);
        loop_turn(s->loop, 10);
    }
    wait_closed(s);
    assert_int_equal(s->why.code, ERROR_ENVIRONMENT);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, scene_open, scene_close)
    const struct CMUnitTest tests[] = {
        TEST(bytes_go_both_ways),
        TEST(what_is_not_taken_waits),
        TEST(a_paused_stream_does_not_read),
        TEST(an_orderly_end_follows_the_bytes),
        TEST(who_is_not_there_is_an_error),
        TEST(it_may_be_closed_by_its_own_events),
        TEST(an_upgrade_that_is_agreed_to),
        TEST(an_upgrade_that_is_refused),
        TEST(a_head_without_an_end_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
