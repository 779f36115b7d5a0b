/* The server's side of the Connect protocol: envelopes in and out, time limits, and streams that
 * end or are cut. */
#include "../test.h"

#include "base/cleanup.h"
#include "base/envelope.h"
#include "serve/e2b/connect.h"

static const char *headers[2][2]; /* of the request */
static struct buf sent;
static unsigned ends, cuts;

/* What connect.c needs of the other files. */
void request_refuse(struct request *r, unsigned status, const char *code, const char *format, ...)
{
    r->status = status;
    snprintf(r->name, sizeof r->name, "%s", code);
}

const char *request_header_of(struct request *r, const char *name)
{
    for (size_t i = 0; i < array_length(headers); i++)
        if (headers[i][0] && strcmp(headers[i][0], name) == 0)
            return headers[i][1];
    return NULL;
}

void request_stream(struct request *r, const char *type)
{
    assert_string_equal(type, "application/connect+json");
    r->streaming = true;
}

void request_push(struct request *r, const void *data, size_t len)
{
    assert_true(r->streaming);
    buf_append(&sent, data, len);
}

void request_end(struct request *r)
{
    ends++;
}

void request_cut(struct request *r)
{
    cuts++;
}

static int connect_setup(void **state)
{
    memset(headers, 0, sizeof headers);
    ends = cuts = 0;
    return 0;
}

static int connect_teardown(void **state)
{
    buf_free(&sent);
    return 0;
}

/* The next envelope that was sent, which is taken off. */
static void expect_sent(unsigned flags, const char *text)
{
    size_t size = 0;
    assert_ok(envelope_size(buf_text(&sent), sent.len, 1 << 20, &size, err));
    assert_true(size >= ENVELOPE_HEAD && size <= sent.len);
    assert_int_equal(sent.data[0], flags);
    assert_int_equal(size - ENVELOPE_HEAD, strlen(text));
    assert_memory_equal(sent.data + ENVELOPE_HEAD, text, strlen(text));
    sent.len -= size;
    memmove(sent.data, sent.data + size, sent.len);
}

static void take(struct request *r, const char *data, size_t len)
{
    *r = (struct request){ 0 };
    buf_append(&r->body, data, len);
    connect_take_message(r);
}

static void drop(struct request *r)
{
    json_object_put(r->json);
    buf_free(&r->body);
}

static void a_body_is_one_envelope(void **state)
{
    struct request r;
    take(&r, "\0\0\0\0\7{\"a\":1}", 12);
    assert_int_equal(r.status, 0);
    assert_int_equal(json_get_int(r.json, "a", 0), 1);
    drop(&r);
    take(&r, "\0\0\0\0\0", 5); /* no message is an empty one */
    assert_int_equal(r.status, 0);
    assert_int_equal(json_object_object_length(r.json), 0);
    drop(&r);
}

static void other_bodies_are_refused(void **state)
{
    static const struct {
        const char *data;
        size_t len;
        unsigned status;
        const char *code;
    } rows[] = {
        { "", 0, 400, "envelope" },
        { "\0\0\0\0", 4, 400, "envelope" },            /* a part of a head */
        { "\0\0\0\0\7{\"a\":1", 11, 400, "envelope" }, /* cut short */
        { "\0\0\0\0\2{}\0\0\0\0\2{}", 14, 400, "envelope" },
        { "\1\0\0\0\2{}", 7, 400, "envelope" }, /* compressed */
        { "\2\0\0\0\2{}", 7, 400, "envelope" }, /* the end of a stream */
        { "\0\0\0\0\2{]", 7, 400, "json" },
        { "\0\377\377\377\377{}", 7, 413, "too_large" },
    };
    for (size_t i = 0; i < array_length(rows); i++) {
        struct request r;
        take(&r, rows[i].data, rows[i].len);
        assert_int_equal(r.status, rows[i].status);
        assert_string_equal(r.name, rows[i].code);
        drop(&r);
    }
}

static void a_time_limit_is_ten_digits_at_most(void **state)
{
    static const struct {
        const char *text;
        uint64_t ms;
    } rows[] = { { NULL, 0 }, { "1500", 1500 }, { "9999999999", 9999999999 }, { "10000000000", 0 },
        { "1s", 0 }, { "", 0 }, { "-1", 0 }, { "+1", 0 }, { " 1", 0 }, { "0", 0 } };
    struct request r = { 0 };
    headers[0][0] = "Connect-Timeout-Ms";
    for (size_t i = 0; i < array_length(rows); i++) {
        headers[0][1] = rows[i].text;
        assert_int_equal(connect_timeout_ms(&r), rows[i].ms);
    }
}

static void each_status_has_a_name(void **state)
{
    assert_string_equal(connect_code(404), "not_found");
    assert_string_equal(connect_code(507), "resource_exhausted");
    assert_string_equal(connect_code(500), "internal");
    assert_string_equal(connect_code(418), "internal");
}

static void a_stream_has_its_messages_and_one_end(void **state)
{
    struct e2b_sandbox sandbox = { 0 };
    struct request r = { 0 };
    struct connect_stream c = { 0 };
    struct buf text = { 0 };
    connect_open(&c, &r, &sandbox);
    connect_push_event(&c, "start", json_object_new_object());
    buf_puts(&text, "{}");
    connect_push_text(&c, &text);
    connect_end(&c, "not_found", "no \"process\"");
    expect_sent(0, "{\"event\":{\"start\":{}}}");
    expect_sent(0, "{}");
    expect_sent(
        ENVELOPE_END, "{\"error\":{\"code\":\"not_found\",\"message\":\"no \\\"process\\\"\"}}");
    assert_int_equal(ends, 1);
    assert_null(sandbox.streams);
    connect_push_text(&c, &text); /* it has ended */
    connect_cut(&c);
    assert_int_equal(sent.len, 0);
    assert_int_equal(cuts, 0);
    buf_free(&text);
}

/* A message that could not be made cuts its stream: no client takes it for complete. */
static void a_message_that_failed_cuts_its_stream(void **state)
{
    struct e2b_sandbox sandbox = { 0 };
    struct request r = { 0 };
    struct connect_stream c = { 0 };
    connect_open(&c, &r, &sandbox);
    connect_push(&c, NULL);
    assert_int_equal(cuts, 1);
    assert_int_equal(sent.len, 0);
    assert_null(sandbox.streams);
}

static void streams_of_a_sandbox_come_and_go(void **state)
{
    struct e2b_sandbox sandbox = { 0 };
    struct request r = { 0 };
    struct connect_stream c[3] = { 0 };
    for (int i = 0; i < 3; i++)
        connect_open(&c[i], &r, &sandbox);
    connect_leave(&c[1]);
    connect_leave(&c[1]);
    connect_leave(&c[2]);
    assert_ptr_equal(sandbox.streams, &c[0]);
    assert_null(c[0].next);
    connect_leave(&c[0]);
    assert_null(sandbox.streams);
}

/* A silent stream gets a message at its client's interval, and ends at its client's deadline. */
static void silence_and_deadlines_are_swept(void **state)
{
    struct e2b_sandbox sandbox = { 0 };
    struct request r = { 0 };
    struct connect_stream c = { 0 };
    headers[0][0] = "Keepalive-Ping-Interval";
    headers[0][1] = "10";
    connect_open(&c, &r, &sandbox);
    assert_int_equal(c.interval_ns, 10000000000u);
    connect_sweep(&sandbox, c.spoken_ns + 10000000000u);
    assert_int_equal(sent.len, 0);
    connect_sweep(&sandbox, c.spoken_ns + 10000000001u);
    expect_sent(0, "{\"event\":{\"keepalive\":{}}}");
    c.deadline_ns = c.spoken_ns + 5;
    connect_sweep(&sandbox, c.deadline_ns);
    assert_int_equal(ends, 0);
    connect_sweep(&sandbox, c.deadline_ns + 1);
    assert_int_equal(ends, 1);
    headers[0][1] = "0"; /* out of bounds: the default */
    connect_open(&c, &r, &sandbox);
    assert_int_equal(c.interval_ns, 90000000000u);
    connect_leave(&c);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, connect_setup, connect_teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_body_is_one_envelope),
        TEST(other_bodies_are_refused),
        TEST(a_time_limit_is_ten_digits_at_most),
        TEST(each_status_has_a_name),
        TEST(a_stream_has_its_messages_and_one_end),
        TEST(a_message_that_failed_cuts_its_stream),
        TEST(streams_of_a_sandbox_come_and_go),
        TEST(silence_and_deadlines_are_swept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
