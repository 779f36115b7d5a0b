/* Requests to a service: what is tried again and what is not, what errors say, and what they never
 * say. The server is this test itself: it answers the requests in turn by a list. */
#include "../test.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "net/rest.h"
#include "net/url.h"

enum { TURNS = 2000 }; /* of 10 ms at most: an answer that does not come fails the test */
#define SECRET "canary-123456"

struct scene {
    struct loop *loop;
    struct rest *rest;
    int listener, connection;
    char url[64];
    const char *const
        *answers;       /* for each request in turn, NULL behind the last; "" cuts the connection */
    unsigned asked;     /* requests that came whole */
    struct buf in, all; /* of this request; of all of them */
    struct error error;
    long status;
    struct buf body, pieces;
    struct rest_request *request;
    char header[64]; /* that was told */
    bool done, cancel_in_piece;
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

static struct rest_options options_of(const struct scene *s)
{
    static const char *const headers[] = { "Authorization: Bearer " SECRET };
    return (struct rest_options){ .base_url = s->url,
        .name = "Moon",
        .key_variable = "MOON_API_KEY",
        .secret = SECRET,
        .headers = headers,
        .header_count = 1,
        .answer_limit = 100 };
}

static int scene_open(void **state)
{
    struct scene *s = calloc(1, sizeof *s);
    assert_non_null(s);
    s->connection = -1;
    snprintf(s->url, sizeof s->url, "http://127.0.0.1:%d/api/", listen_locally(s));
    struct rest_options options = options_of(s);
    assert_ok(loop_open(&s->loop, err));
    assert_ok(rest_open(s->loop, &options, &s->rest, err));
    *state = s;
    return 0;
}

static int scene_close(void **state)
{
    struct scene *s = *state;
    rest_close(s->rest);
    loop_close(s->loop);
    close_fd(&s->listener);
    close_fd(&s->connection);
    buf_free(&s->in);
    buf_free(&s->all);
    buf_free(&s->body);
    buf_free(&s->pieces);
    free(s);
    return 0;
}

static void done(void *arg, const struct rest_answer *answer)
{
    struct scene *s = arg;
    s->error = answer->error;
    s->status = answer->status;
    buf_clear(&s->body);
    snprintf(s->header, sizeof s->header, "%s", answer->header ? answer->header : "none");
    if (answer->body)
        buf_puts(&s->body, json_text(answer->body, NULL));
    s->done = true;
}

static void piece(void *arg, const char *data, size_t len)
{
    struct scene *s = arg;
    buf_append(&s->pieces, data, len);
    if (!s->cancel_in_piece)
        return;
    rest_cancel(s->request);
    s->done = true;
}

/* True once a request has come whole: its head, and as much of a body as that says. */
static bool whole(const struct buf *in)
{
    const char *end = in->len ? memmem(in->data, in->len, "\r\n\r\n", 4) : NULL;
    const char *length = in->len ? strstr(buf_text(in), "Content-Length: ") : NULL;
    size_t body = length ? strtoul(length + 16, NULL, 10) : 0;
    return end && in->len >= (size_t)(end + 4 - in->data) + body;
}

static void serve_one(struct scene *s)
{
    char data[4096];
    int newer = accept4(s->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (newer >= 0) {
        close_fd(&s->connection);
        s->connection = newer;
    }
    ssize_t n = s->connection < 0 ? -1 : read(s->connection, data, sizeof data);
    if (n > 0)
        buf_append(&s->in, data, (size_t)n);
    if (n == 0)
        close_fd(&s->connection);
    if (!whole(&s->in))
        return;
    buf_append(&s->all, s->in.data, s->in.len);
    buf_clear(&s->in);
    const char *answer = s->answers[s->asked];
    assert_non_null(answer); /* a request too many */
    s->asked++;
    if (answer[0])
        assert_int_equal(write(s->connection, answer, strlen(answer)), (ssize_t)strlen(answer));
    else
        close_fd(&s->connection);
}

static void ask(struct scene *s, const char *const *answers, struct rest_ask what)
{
    what.done = done;
    what.arg = s;
    what.path = what.path ? what.path : "/things";
    s->answers = answers;
    s->asked = 0;
    s->done = false;
    buf_clear(&s->pieces);
    buf_clear(&s->all);
    assert_ok(rest_send(s->rest, &what, &s->request, err));
    for (int i = 0; i < TURNS && !s->done; i++) {
        loop_turn(s->loop, 10);
        if (!s->done)
            serve_one(s);
    }
    assert_true(s->done);
}

#define ANSWER(status, body, length)                                                               \
    "HTTP/1.1 " status "\r\nContent-Length: " length "\r\n\r\n" body
static const char fine[] = ANSWER("200 OK", "{\"id\":\"a\"}", "10");
static const char busy[] = ANSWER("429 Too Many Requests", "{}", "2");
static const char broken[] = ANSWER("503 Service Unavailable", "{}", "2");
static const struct rest_ask get = { .method = "GET", .again = true };
static const struct rest_ask post = { .method = "POST" };

static void an_answer_is_delivered(void **state)
{
    struct scene *s = *state;
    cleanup_json struct json_object *body = json_object_new_object();
    json_put_text(body, "name", "x");
    ask(s, (const char *const[]){ fine, NULL },
        (struct rest_ask){ .method = "POST", .body = body });
    assert_int_equal(s->error.code, ERROR_NONE);
    assert_int_equal(s->status, 200);
    assert_non_null(strstr(buf_text(&s->body), "\"a\""));
    /* The base URL's path stays, and the request has the secret, its type and its body. */
    assert_non_null(strstr(buf_text(&s->all), "POST /api/things HTTP/1.1\r\n"));
    assert_non_null(strstr(buf_text(&s->all), "Authorization: Bearer " SECRET "\r\n"));
    assert_non_null(strstr(buf_text(&s->all), "Content-Type: application/json\r\n"));
    assert_non_null(strstr(buf_text(&s->all), "\"name\""));
}

/* The one of its headers that was asked for, whatever its case; of the last answer, where it was
 * tried again. */
static void a_header_of_the_answer_is_delivered(void **state)
{
    static const char paged[] = ANSWER("200 OK\r\nX-Next-Token: page 2", "{}", "2");
    static const char wrong[] = ANSWER("503 Busy\r\nX-Next-Token: none of it", "{}", "2");
    struct scene *s = *state;
    struct rest_ask what = get;
    what.tell_header = "x-next-token";
    ask(s, (const char *const[]){ wrong, paged, NULL }, what);
    assert_string_equal(s->header, "page 2");
    ask(s, (const char *const[]){ fine, NULL }, what);
    assert_string_equal(s->header, "none");
    ask(s, (const char *const[]){ paged, NULL }, get); /* nobody asked */
    assert_string_equal(s->header, "none");
}

static void what_may_pass_is_tried_again(void **state)
{
    struct scene *s = *state;
    ask(s, (const char *const[]){ busy, fine, NULL }, post);
    assert_int_equal(s->asked, 2);
    assert_int_equal(s->error.code, ERROR_NONE);
    ask(s, (const char *const[]){ broken, "", fine, NULL }, get);
    assert_int_equal(s->asked, 3);
    assert_int_equal(s->error.code, ERROR_NONE);
}

/* One try: not even a service that is busy, or that cut a new connection, is asked again. (libcurl
 * repeats a request itself where an old connection turns out to be closed.) */
static void a_service_with_one_try_is_asked_once(void **state)
{
    struct scene *s = *state;
    struct rest_options options = options_of(s);
    rest_close(s->rest);
    options.tries = 1;
    assert_ok(rest_open(s->loop, &options, &s->rest, err));
    ask(s, (const char *const[]){ "", NULL }, get);
    assert_int_equal(s->asked, 1);
    assert_int_equal(s->error.code, ERROR_LOST);
    ask(s, (const char *const[]){ busy, NULL }, get);
    assert_int_equal(s->asked, 1);
    assert_int_equal(s->status, 429);
}

/* Where there is a socket, it takes the requests; the URL's host is only named in them. */
static void requests_go_to_a_unix_socket(void **state)
{
    struct scene *s = *state;
    struct sockaddr_un at = { .sun_family = AF_UNIX };
    struct rest_options options = options_of(s);
    snprintf(at.sun_path, sizeof at.sun_path, "/tmp/droste-test-rest-%d.sock", (int)getpid());
    unlink(at.sun_path);
    close_fd(&s->listener);
    s->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(s->listener, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(s->listener, 8), 0);
    rest_close(s->rest);
    options.base_url = "http://moon";
    options.unix_path = at.sun_path;
    assert_ok(rest_open(s->loop, &options, &s->rest, err));
    ask(s, (const char *const[]){ fine, NULL }, get);
    unlink(at.sun_path);
    assert_int_equal(s->error.code, ERROR_NONE);
    assert_non_null(strstr(buf_text(&s->all), "Host: moon\r\n"));
}

/* Twice done would be two of them. */
static void what_may_have_been_done_is_not(void **state)
{
    struct scene *s = *state;
    ask(s, (const char *const[]){ broken, NULL }, post);
    assert_int_equal(s->asked, 1);
    assert_int_equal(s->error.code, ERROR_ENVIRONMENT);
    assert_int_equal(s->status, 503);
    ask(s, (const char *const[]){ "", NULL }, post);
    assert_int_equal(s->asked, 1);
    assert_int_equal(s->error.code, ERROR_LOST);
}

static void each_refusal_is_of_its_kind(void **state)
{
    static const struct {
        const char *answer;
        enum error_code code;
        const char *message;
    } rows[] = {
        { ANSWER("401 Unauthorized", "{\"message\":\"no\"}", "16"), ERROR_PERMISSION,
            "check MOON_API_KEY: no" },
        { ANSWER("402 Payment", "{\"detail\":\"pay\"}", "16"), ERROR_PERMISSION,
            "refused the request (402): pay" },
        { ANSWER("404 Not Found", "{\"error\":{\"message\":\"gone\"}}", "28"), ERROR_NOT_FOUND,
            "Moon: gone" },
        { ANSWER("400 Bad", "{\"message\":[\"one\",\"two\"]}", "25"), ERROR_ENVIRONMENT,
            "answered with status 400: one" },
        { ANSWER("409 Conflict", "{\"detail\":[{\"msg\":\"taken\"}]}", "28"), ERROR_ENVIRONMENT,
            "answered with status 409: taken" },
        { ANSWER("500 Oh", "plain\nwords", "11"), ERROR_ENVIRONMENT,
            "answered with status 500: plain words" },
        { ANSWER("500 Oh", "", "0"), ERROR_ENVIRONMENT, "gave no reason" },
        { ANSWER("500 Oh", "your key " SECRET "!", "23"), ERROR_ENVIRONMENT,
            "your key *************!" },
        { ANSWER("500 Oh", "\x1b[31mred", "8"), ERROR_ENVIRONMENT,
            "answered with status 500: \\x1b[31mred" },
    };
    struct scene *s = *state;
    for (size_t i = 0; i < array_length(rows); i++) {
        ask(s, (const char *const[]){ rows[i].answer, NULL }, post);
        assert_int_equal(s->error.code, rows[i].code);
        if (!strstr(s->error.text, rows[i].message))
            fail_msg("'%s' is not in '%s'", rows[i].message, s->error.text);
        assert_null(strstr(s->error.text, SECRET));
    }
}

static void an_answer_that_is_too_large_is_an_error(void **state)
{
    static const char large[] = ANSWER("200 OK",
        "0123456789012345678901234567890123456789012345678901234567890123456789"
        "0123456789012345678901234567890",
        "101");
    struct scene *s = *state;
    ask(s, (const char *const[]){ large, NULL }, get);
    assert_int_equal(s->error.code, ERROR_ENVIRONMENT);
    assert_non_null(strstr(s->error.text, "more than 100 bytes"));
    /* The twin: in pieces there is no such bound. */
    struct rest_ask stream = get;
    stream.piece = piece;
    ask(s, (const char *const[]){ large, NULL }, stream);
    assert_int_equal(s->error.code, ERROR_NONE);
    assert_int_equal(s->pieces.len, 101);
}

static void a_stream_can_be_ended_from_within(void **state)
{
    struct scene *s = *state;
    struct rest_ask stream = get;
    stream.piece = piece;
    s->cancel_in_piece = true;
    ask(s, (const char *const[]){ fine, NULL }, stream);
    assert_int_equal(s->pieces.len, 10);
    assert_int_equal(s->status, 0); /* `done` was not told */
}

static void a_server_that_never_answers_is_reported(void **state)
{
    struct scene *s = *state;
    struct rest_ask hurried = get;
    hurried.seconds = 0.2;
    ask(s, (const char *const[]){ "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", NULL }, hurried);
    assert_int_equal(s->error.code, ERROR_TIMEOUT);
    assert_non_null(strstr(s->error.text, "Moon did not answer within 0.2 s"));
}

/* A pause that would end behind the deadline is not begun. */
static void a_pause_that_is_too_long_is_an_error(void **state)
{
    static const char wait[] =
        "HTTP/1.1 429 Too Many\r\nRetry-After: 3600\r\nContent-Length: 2\r\n\r\n{}";
    struct scene *s = *state;
    struct rest_ask patient = post;
    patient.seconds = 60;
    ask(s, (const char *const[]){ wait, NULL }, patient);
    assert_int_equal(s->asked, 1);
    assert_int_equal(s->status, 429);
}

static void a_token_can_be_renewed(void **state)
{
    struct scene *s = *state;
    assert_ok(rest_renew(s->rest, "second-token", "Authorization: Bearer second-token", err));
    ask(s, (const char *const[]){ ANSWER("500 Oh", "second-token", "12"), NULL }, post);
    assert_non_null(strstr(buf_text(&s->all), "Authorization: Bearer second-token\r\n"));
    assert_null(strstr(buf_text(&s->all), SECRET));
    assert_null(strstr(s->error.text, "second-token"));
    assert_fails(ERROR_ARGUMENT, rest_renew(s->rest, "x", "X-Other: x", err));
}

static void what_cannot_be_is_refused_at_once(void **state)
{
    struct scene *s = *state;
    struct rest *rest = NULL;
    struct rest_options options = options_of(s);
    options.base_url = "ftp://x";
    assert_fails(ERROR_CONFIG, rest_open(s->loop, &options, &rest, err));
    options.base_url = "https://me:pw@x";
    assert_fails(ERROR_CONFIG, rest_open(s->loop, &options, &rest, err));
    options = options_of(s);
    options.secret = "two\nlines";
    assert_fails(ERROR_CONFIG, rest_open(s->loop, &options, &rest, err));
}

static void texts_are_escaped_for_paths(void **state)
{
    cleanup_buf struct buf out = { 0 };
    url_escape(&out, "a/b c\xc3\xa9-._~");
    assert_string_equal(buf_text(&out), "a%2Fb%20c%C3%A9-._~");
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, scene_open, scene_close)
    const struct CMUnitTest tests[] = {
        TEST(an_answer_is_delivered),
        TEST(a_header_of_the_answer_is_delivered),
        TEST(what_may_pass_is_tried_again),
        TEST(a_service_with_one_try_is_asked_once),
        TEST(requests_go_to_a_unix_socket),
        TEST(what_may_have_been_done_is_not),
        TEST(each_refusal_is_of_its_kind),
        TEST(an_answer_that_is_too_large_is_an_error),
        TEST(a_stream_can_be_ended_from_within),
        TEST(a_server_that_never_answers_is_reported),
        TEST(a_pause_that_is_too_long_is_an_error),
        TEST(a_token_can_be_renewed),
        TEST(what_cannot_be_is_refused_at_once),
        cmocka_unit_test(texts_are_escaped_for_paths),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
