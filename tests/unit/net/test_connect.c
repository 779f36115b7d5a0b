/* Envelopes of Connect streams: the same messages and the same end however the bytes are split; an
 * invalid envelope ends the stream. */
#include "../test.h"

#include <arpa/inet.h>

#include "base/cleanup.h"
#include "net/connect.h"

struct heard {
    struct buf all; /* messages, a bar behind each */
    unsigned count, most;
};

static bool on_message(void *arg, const char *data, size_t len)
{
    struct heard *h = arg;
    buf_append(&h->all, data, len);
    buf_putc(&h->all, '|');
    return ++h->count < h->most;
}

static void put(struct buf *out, int flags, const char *data, size_t len)
{
    uint32_t size = htonl((uint32_t)len);
    buf_putc(out, (char)flags);
    buf_append(out, &size, sizeof size);
    buf_append(out, data, len);
}

static void put_text(struct buf *out, int flags, const char *text)
{
    put(out, flags, text, strlen(text));
}

/* At every split in two and byte by byte: three messages, one of them empty, and an end without an
 * error. */
static void is_the_same_at_every_split(void **state)
{
    cleanup_buf struct buf in = { 0 };
    put_text(&in, 0, "one");
    put_text(&in, 0, "");
    put_text(&in, 0, "three");
    put_text(&in, 2, "{}");
    for (size_t cut = 0; cut <= in.len; cut++) {
        struct connect_decoder d = { 0 };
        struct heard h = { .most = 100 };
        assert_ok(connect_feed(&d, in.data, cut, on_message, &h, err));
        assert_int_equal(d.ended, cut == in.len);
        assert_ok(connect_feed(&d, in.data + cut, in.len - cut, on_message, &h, err));
        assert_string_equal(buf_text(&h.all), "one||three|");
        assert_true(d.ended && d.result.code == CONNECT_OK);
        assert_int_equal(d.in.len, 0);
        buf_free(&h.all);
        buf_free(&d.in);
    }
    struct connect_decoder d = { 0 };
    struct heard h = { .most = 100 };
    for (size_t i = 0; i < in.len; i++)
        assert_ok(connect_feed(&d, in.data + i, 1, on_message, &h, err));
    assert_true(d.ended && h.count == 3);
    buf_free(&h.all);
    buf_free(&d.in);
}

/* The end says what went wrong, by one of the protocol's names; another name is an unknown error,
 * and no control character reaches people. */
static void says_how_it_ended(void **state)
{
    static const struct {
        const char *end;
        enum connect_code code;
        enum error_code error;
        const char *text;
    } cases[] = {
        { "{\"error\":{\"code\":\"unauthenticated\",\"message\":\"expired\"}}",
            CONNECT_UNAUTHENTICATED, ERROR_PERMISSION, "unauthenticated: expired" },
        { "{\"error\":{\"code\":\"not_found\"}}", CONNECT_NOT_FOUND, ERROR_LOST,
            "not_found: it gave no reason" },
        { "{\"error\":{\"code\":\"odd\",\"message\":\"a\\u001bb\"},\"metadata\":{}}",
            CONNECT_UNKNOWN, ERROR_ENVIRONMENT, "unknown: a\\x1bb" },
        { "{\"error\":{}}", CONNECT_UNKNOWN, ERROR_ENVIRONMENT, "unknown: it gave no reason" },
        { "{\"error\":{\"code\":\"\"}}", CONNECT_UNKNOWN, ERROR_ENVIRONMENT,
            "unknown: it gave no reason" },
        { "{\"error\":null}", CONNECT_OK, ERROR_NONE, "" },
    };
    for (size_t i = 0; i < array_length(cases); i++) {
        cleanup_buf struct buf in = { 0 };
        struct connect_decoder d = { 0 };
        put_text(&in, 2, cases[i].end);
        assert_ok(connect_feed(&d, in.data, in.len, on_message, NULL, err));
        assert_true(d.ended);
        assert_int_equal(d.result.code, cases[i].code);
        assert_int_equal(d.result.error.code, cases[i].error);
        assert_string_equal(d.result.error.text, cases[i].text);
        buf_free(&d.in);
    }
}

/* A message that is too large is refused before it comes; so are flags that nobody asked for, an
 * end that is not a JSON object, and what comes behind the end. */
static void refuses_what_is_none(void **state)
{
    static const char *const raw[] = { "\x00\x00\x40\x00\x01", "\x00\xff\xff\xff\xff" };
    static const struct {
        int flags;
        const char *data, *behind;
    } cases[] = { { 1, "x", NULL }, { 3, "{}", NULL }, { 0x80, "", NULL }, { 2, "", NULL },
        { 2, "{", NULL }, { 2, "{}", "more" } };
    struct heard h = { .most = 100 };
    for (size_t i = 0; i < array_length(raw); i++) {
        struct connect_decoder d = { 0 };
        assert_fails(ERROR_PROTOCOL, connect_feed(&d, raw[i], 5, on_message, &h, err));
        buf_free(&d.in);
    }
    for (size_t i = 0; i < array_length(cases); i++) {
        cleanup_buf struct buf in = { 0 };
        struct connect_decoder d = { 0 };
        put_text(&in, cases[i].flags, cases[i].data);
        if (cases[i].behind)
            put_text(&in, 0, cases[i].behind);
        assert_fails(ERROR_PROTOCOL, connect_feed(&d, in.data, in.len, on_message, &h, err));
        buf_free(&d.in);
    }
    assert_int_equal(h.count, 0);
}

/* Its twin: one of just the most that is allowed comes. */
static void takes_the_largest(void **state)
{
    cleanup_free char *large = calloc(1, CONNECT_MESSAGE_MAX);
    cleanup_buf struct buf in = { 0 };
    struct connect_decoder d = { 0 };
    struct heard h = { .most = 100 };
    put(&in, 0, large, CONNECT_MESSAGE_MAX);
    assert_ok(connect_feed(&d, in.data, in.len, on_message, &h, err));
    assert_int_equal(h.all.len, CONNECT_MESSAGE_MAX + 1);
    buf_free(&h.all);
    buf_free(&d.in);
}

/* A receiver that ends the stream gets no further messages. */
static void ends_within_a_message(void **state)
{
    cleanup_buf struct buf in = { 0 };
    struct connect_decoder d = { 0 };
    struct heard h = { .most = 1 };
    put_text(&in, 0, "one");
    put_text(&in, 0, "two");
    assert_int_equal(connect_feed(&d, in.data, in.len, on_message, &h, NULL), 1);
    assert_string_equal(buf_text(&h.all), "one|");
    buf_free(&h.all);
    buf_free(&d.in);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(is_the_same_at_every_split),
        cmocka_unit_test(says_how_it_ended),
        cmocka_unit_test(refuses_what_is_none),
        cmocka_unit_test(takes_the_largest),
        cmocka_unit_test(ends_within_a_message),
    };
    return cmocka_run_group_tests_name("connect", tests, NULL, NULL);
}
