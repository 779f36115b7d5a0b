/* A WebSocket to a server, which is this test itself: the handshake is checked, messages go both
 * ways however the connection cuts them, pings are answered, and how it ended is told once. */
#include "../test.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/hash.h"
#include "base/json/json.h"
#include "net/websocket.h"

enum { TURNS = 2000 };

struct scene {
    struct loop *loop;
    struct websocket *ws;
    char dir[32], path[64];
    int listener, connection;
    struct buf got, texts, request;
    bool connected, closes_at_bytes;
    unsigned closed;
    struct websocket_end end;
    char reason[128];
};

static void on_connected(void *arg)
{
    ((struct scene *)arg)->connected = true;
}

static void on_bytes(void *arg, const char *data, size_t len)
{
    struct scene *s = arg;
    buf_append(&s->got, data, len);
    if (s->closes_at_bytes)
        websocket_close(steal(&s->ws));
}

static void on_text(void *arg, const char *data, size_t len)
{
    buf_append(&((struct scene *)arg)->texts, data, len);
}

static void on_closed(void *arg, const struct websocket_end *end)
{
    struct scene *s = arg;
    s->closed++;
    s->end = *end;
    snprintf(s->reason, sizeof s->reason, "%s", end->reason);
}

static int scene_open(void **state)
{
    struct scene *s = calloc(1, sizeof *s);
    struct sockaddr_un at = { .sun_family = AF_UNIX };
    assert_non_null(s);
    s->connection = -1;
    snprintf(s->dir, sizeof s->dir, "/tmp/websocket-XXXXXX");
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
    websocket_close(s->ws);
    loop_close(s->loop);
    close_fd(&s->listener);
    close_fd(&s->connection);
    unlink(s->path);
    rmdir(s->dir);
    buf_free(&s->got);
    buf_free(&s->texts);
    buf_free(&s->request);
    free(s);
    return 0;
}

static void turn(struct scene *s)
{
    loop_turn(s->loop, 10);
}

/* Opens it, and reads the whole request. */
static void ask(struct scene *s)
{
    static const struct websocket_events events = { on_connected, on_bytes, on_text, on_closed };
    static const char *const headers[] = { "Authorization: Bearer word" };
    struct websocket_options options = { .url = "http://some.where:81/a/path?query=1",
        .connect_options.unix_path = s->path,
        .peer = "the server",
        .code = ERROR_LOST,
        .headers = headers,
        .header_count = 1,
        .message_max = 100000 };
    char data[4096];
    assert_ok(websocket_open(s->loop, &options, &events, s, &s->ws, err));
    for (int i = 0; i < TURNS && !strstr(buf_text(&s->request), "\r\n\r\n"); i++) {
        turn(s);
        if (s->connection < 0)
            s->connection = accept4(s->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        ssize_t n = s->connection < 0 ? 0 : read(s->connection, data, sizeof data);
        if (n > 0)
            buf_append(&s->request, data, (size_t)n);
    }
    assert_non_null(strstr(buf_text(&s->request), "\r\n\r\n"));
}

static void say(struct scene *s, const char *data, size_t len)
{
    assert_int_equal(write(s->connection, data, len), (ssize_t)len);
}

static void say_text(struct scene *s, const char *text)
{
    say(s, text, strlen(text));
}

/* The answer that belongs to the request, with these lines more. */
static void answer(const struct scene *s, const char *more, struct buf *out)
{
    unsigned char digest[HASH_SHA1_SIZE];
    cleanup_buf struct buf key = { 0 };
    const char *at = strstr(buf_text(&s->request), "Sec-WebSocket-Key: ");
    assert_non_null(at);
    at += strlen("Sec-WebSocket-Key: ");
    buf_append(&key, at, strcspn(at, "\r"));
    assert_int_equal(key.len, 24);
    buf_puts(&key, "258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
    assert_ok(hash_sha1(key.data, key.len, digest, err));
    buf_puts(out, "HTTP/1.1 101 Switching Protocols\r\nupgrade: WebSocket\r\n"
                  "Connection: keep-alive, upgrade\r\nSec-WebSocket-Accept: ");
    json_append_base64(out, digest, sizeof digest);
    buf_printf(out, "\r\n%s\r\n", more);
}

static void turn_until(struct scene *s, const bool *done)
{
    for (int i = 0; i < TURNS && !*done; i++)
        turn(s);
    assert_true(*done);
}

static void wait_closed(struct scene *s)
{
    for (int i = 0; i < TURNS && !s->closed; i++)
        turn(s);
    assert_int_equal(s->closed, 1);
}

static void connect_it(struct scene *s)
{
    cleanup_buf struct buf out = { 0 };
    ask(s);
    answer(s, "", &out);
    say(s, out.data, out.len);
    turn_until(s, &s->connected);
}

/* So many bytes of the client's. */
static void hear(struct scene *s, char *data, size_t len)
{
    for (size_t got = 0; got < len;) {
        ssize_t n = read(s->connection, data + got, len - got);
        if (n > 0)
            got += (size_t)n;
        else
            turn(s);
    }
}

/* A frame of the client's, of at most 125 bytes: its first byte, and its payload without the
 * mask. */
static unsigned char hear_frame(struct scene *s, char *text)
{
    char head[6];
    hear(s, head, sizeof head);
    size_t len = (unsigned char)head[1] & 0x7f;
    assert_int_equal((unsigned char)head[1] & 0x80, 0x80);
    hear(s, text, len);
    for (size_t i = 0; i < len; i++)
        text[i] ^= head[2 + i % 4];
    text[len] = '\0';
    return (unsigned char)head[0];
}

/* The key of RFC 6455, section 1.3, and what an answer to it has. */
static void test_the_answer_of_the_standard(void **state)
{
    static const char text[] = "dGhlIHNhbXBsZSBub25jZQ=="
                               "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
    unsigned char digest[HASH_SHA1_SIZE];
    cleanup_buf struct buf out = { 0 };
    assert_ok(hash_sha1(text, sizeof text - 1, digest, err));
    json_append_base64(&out, digest, sizeof digest);
    assert_string_equal(buf_text(&out), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
}

/* The request has what the standard and its user ask for, and the path alone. */
static void test_the_request(void **state)
{
    struct scene *s = *state;
    ask(s);
    const char *text = buf_text(&s->request);
    assert_ptr_equal(strstr(text, "GET /a/path?query=1 HTTP/1.1\r\n"), text);
    assert_non_null(strstr(text, "\r\nHost: some.where:81\r\n"));
    assert_non_null(strstr(text, "\r\nSec-WebSocket-Version: 13\r\n"));
    assert_non_null(strstr(text, "\r\nAuthorization: Bearer word\r\n"));
}

/* Messages come whatever the cuts: here the answer and the frames go a byte at a time. */
static void test_messages_come_a_byte_at_a_time(void **state)
{
    struct scene *s = *state;
    cleanup_buf struct buf out = { 0 };
    ask(s);
    answer(s, "", &out);
    buf_append(&out, "\x82\x03one\x01\x02tw\x80\x01o\x82\x05three", 19);
    for (size_t i = 0; i < out.len; i++) {
        say(s, out.data + i, 1);
        turn(s);
    }
    for (int i = 0; i < TURNS && s->got.len < 8; i++)
        turn(s);
    assert_true(s->connected);
    assert_string_equal(buf_text(&s->got), "onethree");
    assert_string_equal(buf_text(&s->texts), "two");
}

/* What is sent arrives as one masked message; a ping is answered with its words. */
static void test_messages_go_and_pings_are_answered(void **state)
{
    struct scene *s = *state;
    char text[200];
    connect_it(s);
    struct iovec iov[] = { { (void *)(uintptr_t) "to", 2 }, { (void *)(uintptr_t) "gether", 6 } };
    assert_ok(websocket_send(s->ws, iov, 2, err));
    assert_int_equal(hear_frame(s, text), 0x82);
    assert_string_equal(text, "together");
    assert_true(websocket_heard(s->ws));
    assert_false(websocket_heard(s->ws));
    say(s, "\x89\x04ping", 6);
    assert_int_equal(hear_frame(s, text), 0x8a);
    assert_string_equal(text, "ping");
    assert_true(websocket_heard(s->ws));
    websocket_ping(s->ws);
    assert_int_equal(hear_frame(s, text), 0x89);
}

/* Its close frame is answered, and told with status and words. */
static void test_a_close_is_reported(void **state)
{
    struct scene *s = *state;
    char text[200];
    connect_it(s);
    say(s, "\x88\x0f\x03\xf0slow consumer", 17);
    wait_closed(s);
    assert_int_equal(hear_frame(s, text), 0x88);
    assert_memory_equal(text, "\x03\xf0", 3);
    assert_int_equal(s->end.status, 1008);
    assert_string_equal(s->reason, "slow consumer");
    assert_int_equal(s->end.error.code, ERROR_NONE);
}

/* A connection that ends without a close frame is lost. */
static void test_an_end_without_a_word_is_a_loss(void **state)
{
    struct scene *s = *state;
    connect_it(s);
    say(s, "\x82\x03on", 4);
    close_fd(&s->connection);
    wait_closed(s);
    assert_int_equal(s->end.status, 0);
    assert_int_equal(s->end.error.code, ERROR_LOST);
    assert_string_equal(buf_text(&s->got), "on");
}

/* What breaks the rules is told the server by its status, and the user as an error. */
static void test_a_wrong_frame_ends_it(void **state)
{
    struct scene *s = *state;
    char text[200];
    connect_it(s);
    say(s, "\x81\x02\xc3\x28", 4); /* a text that is none */
    wait_closed(s);
    assert_int_equal(hear_frame(s, text), 0x88);
    assert_memory_equal(text, "\x03\xef", 3); /* 1007 */
    assert_int_equal(s->end.error.code, ERROR_PROTOCOL);
    assert_int_equal(s->texts.len, 0);
}

/* Within an event it can be closed; what came behind is not told any more, and the server hears
 * goodbye. */
static void test_it_can_be_closed_from_within(void **state)
{
    struct scene *s = *state;
    char text[200];
    connect_it(s);
    s->closes_at_bytes = true;
    say(s, "\x82\x03one\x82\x03two", 10);
    for (int i = 0; i < TURNS && s->ws; i++)
        turn(s);
    assert_null(s->ws);
    assert_string_equal(buf_text(&s->got), "one");
    assert_int_equal(hear_frame(s, text), 0x88);
    assert_int_equal(s->closed, 0);
}

/* A server that says no has its status and its words told. */
static void test_a_refusal_is_reported(void **state)
{
    struct scene *s = *state;
    ask(s);
    say_text(s, "HTTP/1.1 404 Not Found\r\nContent-Length: 14\r\n\r\nno such thing.");
    wait_closed(s);
    assert_false(s->connected);
    assert_int_equal(s->end.http, 404);
    assert_int_equal(s->end.error.code, ERROR_LOST);
    assert_non_null(strstr(s->end.error.text, "404 Not Found: no such thing."));
}

/* These answers are none to this request. */
static void test_a_wrong_answer_is_refused(void **state)
{
    static const char *const more[] = { "Sec-WebSocket-Extensions: permessage-deflate\r\n",
        "Sec-WebSocket-Protocol: chat\r\n" };
    static const char *const whole[] = {
        "HTTP/1.1 101 Yes\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
        "HTTP/1.1 101 Yes\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n",
        "HTTP/1.1 101 Yes\r\nUpgrade: tcp\r\nConnection: Upgrade\r\n\r\n",
        "HTTP/1.1 101 Yes\r\nUpgrade: websocket\r\nConnection: close\r\n\r\n",
    };
    struct scene *s = *state;
    for (size_t i = 0; i < array_length(more) + array_length(whole); i++) {
        cleanup_buf struct buf out = { 0 };
        buf_clear(&s->request);
        close_fd(&s->connection);
        s->closed = 0;
        ask(s);
        if (i < array_length(more))
            answer(s, more[i], &out);
        else
            buf_puts(&out, whole[i - array_length(more)]);
        say(s, out.data, out.len);
        wait_closed(s);
        assert_false(s->connected);
        assert_int_equal(s->end.error.code, ERROR_PROTOCOL);
        websocket_close(steal(&s->ws));
    }
}

/* A header that would become two is not sent. */
static void test_a_header_is_one_line(void **state)
{
    struct scene *s = *state;
    static const struct websocket_events events = { on_connected, on_bytes, on_text, on_closed };
    static const char *const headers[] = { "A: b\r\nC: d" };
    struct websocket_options options = {
        .url = "http://x/", .peer = "x", .code = ERROR_LOST, .headers = headers, .header_count = 1
    };
    assert_fails(ERROR_ARGUMENT, websocket_open(s->loop, &options, &events, s, &s->ws, err));
}

#define scene_test(f) cmocka_unit_test_setup_teardown(f, scene_open, scene_close)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_answer_of_the_standard),
        scene_test(test_the_request),
        scene_test(test_messages_come_a_byte_at_a_time),
        scene_test(test_messages_go_and_pings_are_answered),
        scene_test(test_a_close_is_reported),
        scene_test(test_an_end_without_a_word_is_a_loss),
        scene_test(test_a_wrong_frame_ends_it),
        scene_test(test_it_can_be_closed_from_within),
        scene_test(test_a_refusal_is_reported),
        scene_test(test_a_wrong_answer_is_refused),
        scene_test(test_a_header_is_one_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
