/* A program behind a process service, whose server is this test itself: its stream is cut behind
 * each byte, and the program is joined again and not started again; what is not an event ends it;
 * what it is to read comes in order.
 */
#include "../test.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "env/clouds/vm/provider.h"
#include "net/protobuf.h"

enum {
    TURNS = 4000,
    CONNECTIONS = 64
}; /* turns of 5 ms: an answer that does not come fails the test */

static const char head[] = "HTTP/1.1 200 OK\r\nContent-Type: application/connect+proto\r\n"
                           "Connection: close\r\n\r\n";

struct scene {
    struct loop *loop;
    struct rest *rest;
    struct process_service *process;
    int listener;
    struct peer {
        int fd;
        struct buf asked;
        bool answered, held;
    } peers[CONNECTIONS];
    unsigned peer_count, started, joined_by_name;
    struct buf stream, first; /* what Connect, and what the first Start is answered with */
    struct buf input;         /* of SendInput */
    unsigned refuse_inputs;
    bool expired; /* the token is, for inputs */
    bool holds;   /* inputs are taken and not answered */
    bool stays;   /* streams are not closed */
    unsigned joined, cuts, refused;
    struct buf heard;
    bool ended;
    struct error end;
};

/* ---- what the service says ---- */

static void put_envelope(struct buf *out, int flags, const struct buf *message)
{
    uint32_t size = htonl((uint32_t)message->len);
    buf_putc(out, (char)flags);
    buf_append(out, &size, sizeof size);
    buf_append(out, message->data, message->len);
}

/* An event: the field of its kind, and what is in it. */
static void put_event(struct buf *out, uint32_t kind, const struct buf *inner)
{
    cleanup_buf struct buf event = { 0 }, response = { 0 };
    protobuf_put_bytes(&event, kind, inner->data, inner->len);
    protobuf_put_bytes(&response, 1, event.data, event.len);
    put_envelope(out, 0, &response);
}

static void put_started(struct buf *out)
{
    cleanup_buf struct buf inner = { 0 };
    protobuf_put_number(&inner, 1, 4711);
    put_event(out, 1, &inner);
}

static void put_output(struct buf *out, uint32_t stream, const char *text)
{
    cleanup_buf struct buf inner = { 0 };
    protobuf_put_text(&inner, stream, text);
    put_event(out, 2, &inner);
}

static void put_life(struct buf *out)
{
    cleanup_buf struct buf end = { 0 }, last = { 0 }, nothing = { 0 };
    put_started(out);
    put_output(out, 1, "said");
    put_event(out, 4, &nothing);
    protobuf_put_text(&end, 3, "exit status 0");
    put_event(out, 3, &end);
    buf_puts(&last, "{}");
    put_envelope(out, 2, &last);
}

/* ---- what it is asked ---- */

static void answer(struct scene *s, struct peer *p, const char *data, size_t len)
{
    assert_int_equal(write(p->fd, data, len), (ssize_t)len);
    p->answered = true;
}

static void answer_stream(struct scene *s, struct peer *p, const struct buf *stream)
{
    answer(s, p, head, sizeof head - 1);
    if (stream->len)
        answer(s, p, stream->data, stream->len);
    if (!s->stays)
        close_fd(&p->fd);
}

/* The bytes of the input in a SendInput. */
static void take_input(struct scene *s, const char *body, size_t len)
{
    struct protobuf_reader r = { body, body + len };
    struct protobuf_field f;
    while (protobuf_next(&r, &f, NULL) == 1) {
        if (f.number != 2)
            continue;
        struct protobuf_reader inner = { f.data, f.data + f.len };
        while (protobuf_next(&inner, &f, NULL) == 1)
            buf_append(&s->input, f.data, f.len);
    }
}

static const char yes[] = "HTTP/1.1 200 OK\r\nContent-Type: application/proto\r\n"
                          "Content-Length: 0\r\n\r\n";

static void serve_one(struct scene *s, struct peer *p, const char *body, size_t len)
{
    static const char no[] = "HTTP/1.1 401 Unauthorized\r\nContent-Type: application/json\r\n"
                             "Content-Length: 26\r\n\r\n{\"code\":\"unauthenticated\"}";
    static const char busy[] = "HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n";
    const char *line = buf_text(&p->asked);
    if (strstr(line, "/Start ")) {
        answer_stream(s, p, s->started++ == 0 ? &s->first : &s->stream);
    } else if (strstr(line, "/Connect ")) {
        s->joined_by_name++;
        answer_stream(s, p, &s->stream);
    } else if (s->refuse_inputs > 0) {
        s->refuse_inputs--;
        answer(s, p, busy, sizeof busy - 1);
    } else if (s->expired) {
        answer(s, p, no, sizeof no - 1);
    } else {
        take_input(s, body, len);
        if (!s->holds)
            answer(s, p, yes, sizeof yes - 1);
        p->held = s->holds;
    }
    buf_clear(&p->asked);
}

static void serve_peer(struct scene *s, struct peer *p)
{
    char data[65536];
    ssize_t n = p->fd < 0 ? -1 : read(p->fd, data, sizeof data);
    if (n == 0)
        close_fd(&p->fd);
    if (n > 0)
        buf_append(&p->asked, data, (size_t)n);
    const char *text = buf_text(&p->asked), *body = strstr(text, "\r\n\r\n");
    const char *length = strstr(text, "Content-Length: ");
    if (p->fd < 0 || !body || !length)
        return;
    size_t want = strtoul(length + 16, NULL, 10), got = p->asked.len - (size_t)(body + 4 - text);
    if (got >= want)
        serve_one(s, p, body + 4, want);
}

static void turn(struct scene *s)
{
    loop_turn(s->loop, 5);
    int fd = accept4(s->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0) {
        assert_true(s->peer_count < CONNECTIONS);
        s->peers[s->peer_count++].fd = fd;
    }
    for (unsigned i = 0; i < s->peer_count; i++)
        serve_peer(s, &s->peers[i]);
}

/* ---- what is told ---- */

static void on_joined(void *arg)
{
    ((struct scene *)arg)->joined++;
}

static void on_cut(void *arg)
{
    ((struct scene *)arg)->cuts++;
}

static void on_bytes(void *arg, const char *data, size_t len)
{
    buf_append(&((struct scene *)arg)->heard, data, len);
}

static void on_refused(void *arg)
{
    ((struct scene *)arg)->refused++;
}

static void on_doubtful(void *arg, const struct connect_result *why)
{
}

static void on_ended(void *arg, const struct error *why)
{
    struct scene *s = arg;
    s->ended = true;
    s->end = *why;
}

static void scene_open(struct scene *s, const struct process_dialect *dialect)
{
    static const struct process_events events = { on_joined, on_cut, on_bytes, on_refused,
        on_doubtful, on_ended };
    static const char *const words[] = { "python3", "-c", "pass", NULL };
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t len = sizeof at;
    char url[64];
    const char *headers[] = { CONNECT_HEADER };
    s->listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(s->listener, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(s->listener, 64), 0);
    assert_int_equal(getsockname(s->listener, (struct sockaddr *)&at, &len), 0);
    snprintf(url, sizeof url, "http://127.0.0.1:%u", ntohs(at.sin_port));
    struct rest_options options = { .base_url = url,
        .name = "the service",
        .key_variable = "NOTHING",
        .headers = headers,
        .header_count = 1 };
    assert_ok(loop_open(&s->loop, err));
    assert_ok(rest_open(s->loop, &options, &s->rest, err));
    assert_ok(process_service_open(s->loop, s->rest, dialect, words, &events, s, &s->process, err));
}

static void scene_close(struct scene *s)
{
    process_service_close(s->process);
    rest_close(s->rest);
    loop_close(s->loop);
    close_fd(&s->listener);
    for (unsigned i = 0; i < s->peer_count; i++) {
        close_fd(&s->peers[i].fd);
        buf_free(&s->peers[i].asked);
    }
    buf_free(&s->stream);
    buf_free(&s->first);
    buf_free(&s->input);
    buf_free(&s->heard);
}

static void wait_for_end(struct scene *s)
{
    for (int i = 0; i < TURNS && !s->ended; i++)
        turn(s);
    assert_true(s->ended);
}

/* A stream that is cut behind each of its bytes: once the program's number was told, it is joined
 * by name and never started again; before that, it is started again where the service knows the
 * key, and asked for by name where it does not. */
static void is_cut_behind_each_byte(const struct process_dialect *dialect)
{
    cleanup_buf struct buf life = { 0 }, started = { 0 };
    put_life(&life);
    put_started(&started);
    for (size_t cut = 0; cut < life.len; cut++) {
        struct scene s = { 0 };
        put_life(&s.stream);
        buf_append(&s.first, life.data, cut);
        scene_open(&s, dialect);
        wait_for_end(&s);
        assert_int_equal(s.end.code, ERROR_NONE);
        bool was_joined = cut >= started.len || !dialect->keyed;
        bool over = s.joined_by_name == 0 && s.started == 1; /* its last event had come */
        if (!over) {
            assert_int_equal(s.started, was_joined ? 1 : 2);
            assert_int_equal(s.joined_by_name, was_joined ? 1 : 0);
        }
        assert_int_equal(s.joined, cut >= started.len && !over ? 2 : 1);
        assert_non_null(strstr(buf_text(&s.heard), "said"));
        scene_close(&s);
    }
}

static void is_cut_behind_each_byte_at_e2b(void **state)
{
    is_cut_behind_each_byte(&e2b_process);
}

static void is_cut_behind_each_byte_at_prime(void **state)
{
    is_cut_behind_each_byte(&prime_process);
}

/* An envelope in which there is no message ends it with ERROR_PROTOCOL; it is not tried again. */
static void ends_with_what_is_no_event(void **state)
{
    static const char *const bad[] = { "\x0a\x05"
                                       "x",
        "\x08", "\x0a\x03\x12\x05\x0a" };
    for (size_t i = 0; i < array_length(bad); i++) {
        cleanup_buf struct buf message = { 0 };
        struct scene s = { 0 };
        put_started(&s.first);
        buf_puts(&message, bad[i]);
        put_envelope(&s.first, 0, &message);
        scene_open(&s, &prime_process);
        wait_for_end(&s);
        assert_int_equal(s.end.code, ERROR_PROTOCOL);
        assert_int_equal(s.started + s.joined_by_name, 1);
        scene_close(&s);
    }
}

/* What the program says on its standard error is heard until it has said something on the other
 * stream. */
static void hears_complaints_until_it_speaks(void **state)
{
    struct scene s = { 0 };
    cleanup_buf struct buf nothing = { 0 };
    put_started(&s.first);
    put_output(&s.first, 2, "why not ");
    put_output(&s.first, 1, "but now");
    put_output(&s.first, 2, "nobody hears this");
    put_event(&s.first, 3, &nothing);
    scene_open(&s, &e2b_process);
    wait_for_end(&s);
    assert_string_equal(buf_text(&s.heard), "why not but now");
    scene_close(&s);
}

/* A program that cannot be started says so at once, and is not tried again for a minute. */
static void says_what_cannot_be_started(void **state)
{
    struct scene s = { 0 };
    cleanup_buf struct buf end = { 0 };
    buf_puts(&end, "{\"error\":{\"code\":\"invalid_argument\",\"message\":\"no python3 here\"}}");
    put_envelope(&s.first, 2, &end);
    scene_open(&s, &e2b_process);
    wait_for_end(&s);
    assert_int_equal(s.end.code, ERROR_ENVIRONMENT);
    assert_string_equal(s.end.text, "invalid_argument: no python3 here");
    assert_int_equal(s.started, 1);
    scene_close(&s);
}

/* A token that is refused is told once, and nothing is asked until there is another. */
static void waits_for_another_token(void **state)
{
    struct scene s = { 0 };
    cleanup_buf struct buf end = { 0 };
    buf_puts(&end, "{\"error\":{\"code\":\"unauthenticated\",\"message\":\"expired\"}}");
    put_envelope(&s.first, 2, &end);
    put_life(&s.stream);
    scene_open(&s, &prime_process);
    for (int i = 0; i < TURNS && s.refused == 0; i++)
        turn(&s);
    for (int i = 0; i < 100; i++)
        turn(&s);
    assert_int_equal(s.refused, 1);
    assert_int_equal(s.started, 1);
    process_service_renewed(s.process);
    wait_for_end(&s);
    assert_int_equal(s.started, 2);
    scene_close(&s);
}

/* What it is to read comes whole and in order, also where the service is busy at first, and what
 * was said in one turn of the loop goes together. */
static void is_fed_in_order(void **state)
{
    struct scene s = { .refuse_inputs = 2, .stays = true };
    cleanup_buf struct buf all = { 0 };
    put_started(&s.first);
    scene_open(&s, &e2b_process);
    for (int i = 0; i < TURNS && s.joined == 0; i++)
        turn(&s);
    assert_int_equal(s.joined, 1);
    for (int i = 0; i < 1000; i++) {
        char text[16];
        int n = snprintf(text, sizeof text, "%d,", i);
        struct iovec iov = { text, (size_t)n };
        buf_append(&all, text, (size_t)n);
        process_service_write(s.process, &iov, 1);
    }
    for (int i = 0; i < TURNS && s.input.len < all.len; i++)
        turn(&s);
    assert_string_equal(buf_text(&s.input), buf_text(&all));
    scene_close(&s);
}

/* A program that was started and reads. */
static void open_reader(struct scene *s)
{
    s->stays = true;
    put_started(&s->first);
    scene_open(s, &prime_process);
    for (int i = 0; i < TURNS && s->joined == 0; i++)
        turn(s);
    assert_int_equal(s->joined, 1);
}

static void say(struct scene *s, const char *text)
{
    struct iovec iov = { (void *)(uintptr_t)text, strlen(text) };
    process_service_write(s->process, &iov, 1);
}

static void wait_for_input(struct scene *s, size_t len)
{
    for (int i = 0; i < TURNS && s->input.len < len; i++)
        turn(s);
    assert_int_equal(s->input.len, len);
}

/* Many turns, in which no input comes. */
static void hear_nothing(struct scene *s)
{
    size_t len = s->input.len;
    for (int i = 0; i < 50; i++)
        turn(s);
    assert_int_equal(s->input.len, len);
}

static void release(struct scene *s)
{
    s->holds = false;
    for (unsigned i = 0; i < s->peer_count; i++)
        if (s->peers[i].held) {
            s->peers[i].held = false;
            answer(s, &s->peers[i], yes, sizeof yes - 1);
        }
}

/* Four inputs do not wait for each other's answers, a fifth waits for the first's. */
static void sends_more_before_the_answer(void **state)
{
    static const char *const texts[] = { "a", "b", "c", "d" };
    struct scene s = { .holds = true };
    open_reader(&s);
    for (size_t i = 0; i < array_length(texts); i++) {
        say(&s, texts[i]);
        wait_for_input(&s, i + 1);
    }
    say(&s, "e");
    hear_nothing(&s);
    release(&s);
    wait_for_input(&s, 5);
    assert_string_equal(buf_text(&s.input), "abcde");
    scene_close(&s);
}

/* Behind a long one nothing goes until it was taken: it would be overtaken. */
static void sends_nothing_behind_a_long_one(void **state)
{
    static char text[20001];
    struct scene s = { .holds = true };
    memset(text, 'x', sizeof text - 1);
    open_reader(&s);
    say(&s, text);
    wait_for_input(&s, sizeof text - 1);
    say(&s, "b");
    hear_nothing(&s);
    release(&s);
    wait_for_input(&s, sizeof text);
    assert_string_equal(buf_text(&s.input) + sizeof text - 1, "b");
    scene_close(&s);
}

/* What was refused with its token is sent once there is another; what was taken meanwhile is not
 * sent again. */
static void sends_again_what_was_refused(void **state)
{
    struct scene s = { .expired = true };
    open_reader(&s);
    say(&s, "a");
    for (int i = 0; i < TURNS && s.refused == 0; i++)
        turn(&s);
    assert_int_equal(s.refused, 1);
    say(&s, "b");
    hear_nothing(&s);
    s.expired = false;
    process_service_renewed(s.process);
    wait_for_input(&s, 2);
    assert_string_equal(buf_text(&s.input), "ab");
    scene_close(&s);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(is_cut_behind_each_byte_at_e2b),
        cmocka_unit_test(is_cut_behind_each_byte_at_prime),
        cmocka_unit_test(ends_with_what_is_no_event),
        cmocka_unit_test(hears_complaints_until_it_speaks),
        cmocka_unit_test(says_what_cannot_be_started),
        cmocka_unit_test(waits_for_another_token),
        cmocka_unit_test(is_fed_in_order),
        cmocka_unit_test(sends_more_before_the_answer),
        cmocka_unit_test(sends_nothing_behind_a_long_one),
        cmocka_unit_test(sends_again_what_was_refused),
    };
    return cmocka_run_group_tests_name("process_service", tests, NULL, NULL);
}
