/* WebSocket frames: what the other side says means the same however its bytes are cut; what RFC
 * 6455 forbids is refused with the status that it names; what is sent can be read back, and only a
 * client's is masked. */
#include "../test.h"

#include <stdlib.h>

#include "base/cleanup.h"
#include "base/websocket_frame.h"

/* All that came, as text: each message and control frame as its kind, its bytes and a full stop. */
struct seen {
    struct buf text, message;
    bool stops;
};

static bool see(void *arg, enum websocket_opcode kind, bool end, const char *data, size_t len)
{
    struct seen *seen = arg;
    if (kind >= WEBSOCKET_CLOSE) {
        buf_printf(&seen->text, "%d:%.*s.", kind, (int)len, data);
        return !seen->stops;
    }
    buf_append(&seen->message, data, len);
    if (end) {
        buf_printf(&seen->text, "%d:%s.", kind, buf_text(&seen->message));
        buf_clear(&seen->message);
    }
    return !seen->stops;
}

static void seen_free(struct seen *seen)
{
    buf_free(&seen->text);
    buf_free(&seen->message);
}

/* A ping stands between the parts of a message; messages, parts and a pong without bytes. */
static const char stream[] =
    "\x82\x03one\x01\x02tw\x89\x02hi\x80\x01o\x82\0\x81\x05three\x02\0\x80\0"
    "\x8a\0\x88\x06\x03\xe8"
    "done";
static const char meant[] = "2:one.9:hi.1:two.2:.1:three.2:.10:.8:\x03\xe8"
                            "done.";

/* The frames of `stream` as a client sends them, each with a mask of its own. */
static void mask_frames(struct buf *out)
{
    unsigned char mask[WEBSOCKET_MASK_SIZE] = { 0xa5, 0, 0x7f, 0x80 };
    const char *end = stream + sizeof stream - 1;
    for (const char *at = stream; at < end; at += 2 + at[1]) {
        mask[1]++;
        buf_putc(out, at[0]);
        buf_putc(out, (char)(at[1] | 0x80));
        buf_append(out, mask, sizeof mask);
        for (int i = 0; i < at[1]; i++)
            buf_putc(out, (char)(at[2 + i] ^ mask[i & 3]));
    }
}

/* Cut at any two places: the same comes out, and nothing after the close frame. */
static void check_cuts(const char *data, size_t len, bool from_client)
{
    for (size_t one = 0; one <= len; one++) {
        for (size_t two = one; two <= len; two++) {
            struct websocket_decoder d = { .message_max = 1000, .from_client = from_client };
            struct seen seen = { 0 };
            enum websocket_status status;
            size_t cuts[] = { 0, one, two, len };
            for (int i = 0; i < 3; i++)
                assert_ok(websocket_decode(
                    &d, data + cuts[i], cuts[i + 1] - cuts[i], see, &seen, &status, err));
            assert_ok(websocket_decode(&d, "\x82\x01x", 3, see, &seen, &status, err));
            assert_string_equal(buf_text(&seen.text), meant);
            seen_free(&seen);
        }
    }
}

static void test_any_cut_means_the_same(void **state)
{
    cleanup_buf struct buf masked = { 0 };
    check_cuts(stream, sizeof stream - 1, false);
    mask_frames(&masked);
    check_cuts(masked.data, masked.len, true);
}

/* A receiver that stops gets nothing more, not even from the same bytes. */
static void test_it_stops_on_request(void **state)
{
    struct websocket_decoder d = { .message_max = 1000 };
    struct seen seen = { .stops = true };
    enum websocket_status status;
    assert_ok(websocket_decode(&d, stream, sizeof stream - 1, see, &seen, &status, err));
    assert_string_equal(buf_text(&seen.text), "2:one.");
    seen_free(&seen);
}

/* Each of these ends it, in one piece and byte by byte. */
static void test_what_is_forbidden_is_refused(void **state)
{
    static const struct {
        const char *bytes;
        size_t len;
        enum websocket_status status;
        bool from_client;
    } rows[] = {
        { "\xc2\x01x", 3, WEBSOCKET_WRONG },                     /* a reserved bit */
        { "\xa2\x01x", 3, WEBSOCKET_WRONG },                     /* another */
        { "\x92\x01x", 3, WEBSOCKET_WRONG },                     /* the third */
        { "\x83\x01x", 3, WEBSOCKET_WRONG },                     /* no kind of data */
        { "\x8b\x01x", 3, WEBSOCKET_WRONG },                     /* no kind of control */
        { "\x82\x81mask", 6, WEBSOCKET_WRONG },                  /* masked by the server */
        { "\x80\x01x", 3, WEBSOCKET_WRONG },                     /* goes on with nothing */
        { "\x02\x01x\x82\x01y", 6, WEBSOCKET_WRONG },            /* begins within another */
        { "\x09\x01x", 3, WEBSOCKET_WRONG },                     /* a part of a ping */
        { "\x89\x7e\x00\x7e", 4, WEBSOCKET_WRONG },              /* a ping of 126 bytes */
        { "\x82\x7e\x00\x7d", 4, WEBSOCKET_WRONG },              /* 125 in two bytes */
        { "\x82\x7f\0\0\0\0\0\0\xff\xff", 10, WEBSOCKET_WRONG }, /* 65535 in eight */
        { "\x82\x7f\0\0\0\0\0\1\0\0", 10, WEBSOCKET_TOO_LARGE },
        { "\x82\x7f\xff\xff\xff\xff\xff\xff\xff\xff", 10, WEBSOCKET_TOO_LARGE },
        { "\x82\x7e\x03\xe9", 4, WEBSOCKET_TOO_LARGE },          /* 1001 of 1000 bytes */
        { "\x02\x01x\x80\x7e\x03\xe8", 7, WEBSOCKET_TOO_LARGE }, /* in two parts */
        { "\x82\x01x", 3, WEBSOCKET_WRONG, true },               /* of a client, and not masked */
        { "\x89\x00", 2, WEBSOCKET_WRONG, true },                /* nor is its ping */
        { "\x82\xfe\x03\xe9mask", 8, WEBSOCKET_TOO_LARGE, true },
        { "\x82\xfe\x00\x7dmask", 8, WEBSOCKET_WRONG, true },
    };
    for (size_t i = 0; i < array_length(rows); i++) {
        for (size_t step = 1; step <= rows[i].len; step += rows[i].len - 1) {
            struct websocket_decoder d = { .message_max = 1000,
                .from_client = rows[i].from_client };
            struct seen seen = { 0 };
            struct error err = { 0 };
            enum websocket_status status = 0;
            int rc = 0;
            for (size_t at = 0; at < rows[i].len && rc == 0; at += step)
                rc = websocket_decode(&d, rows[i].bytes + at, step, see, &seen, &status, &err);
            if (rc != -(int)ERROR_PROTOCOL || status != rows[i].status)
                fail_msg("row %zu, %zu bytes at a time: %d, %u", i, step, rc, status);
            assert_int_equal(seen.text.len, 0);
            seen_free(&seen);
        }
    }
}

/* The largest that is allowed comes. */
static void test_a_message_of_the_limit_comes(void **state)
{
    struct websocket_decoder d = { .message_max = 4 };
    struct seen seen = { 0 };
    enum websocket_status status;
    assert_ok(websocket_decode(&d,
        "\x02\x02"
        "ab\x80\x02"
        "cd\x82\x04more",
        14, see, &seen, &status, err));
    assert_string_equal(buf_text(&seen.text), "2:abcd.2:more.");
    seen_free(&seen);
}

/* A close frame has a status that exists, and words that are text; or nothing. */
static void test_a_close_frame_is_read(void **state)
{
    static const struct {
        const char *bytes;
        size_t len;
        unsigned status; /* 0: refused */
    } rows[] = {
        { "", 0, 1005 }, { "\x03", 1, 0 }, { "\x03\xe8", 2, 1000 }, { "\x03\xe7", 2, 0 }, /* 999 */
        { "\x03\xec", 2, 0 }, /* 1004, 1005 and 1006 are never sent */
        { "\x03\xed", 2, 0 }, { "\x03\xee", 2, 0 }, { "\x03\xf0wh\xc3\xa4t", 7, 1008 },
        { "\x03\xf0\xff", 3, 0 },                      /* no UTF-8 */
        { "\x0b\xb8", 2, 3000 }, { "\x13\x88", 2, 0 }, /* 5000 */
    };
    for (size_t i = 0; i < array_length(rows); i++) {
        struct error err = { 0 };
        unsigned status;
        const char *reason;
        size_t len;
        int rc = websocket_read_close(rows[i].bytes, rows[i].len, &status, &reason, &len, &err);
        if ((rc == 0) != (rows[i].status != 0) || (rc == 0 && status != rows[i].status))
            fail_msg("row %zu: %d, %u", i, rc, status);
        if (rc == 0 && rows[i].len > 2)
            assert_memory_equal(reason, rows[i].bytes + 2, len);
    }
}

/* A frame of ours, of a length in each of the three forms, is masked, whole, and reads back as it
 * was. */
static void test_what_is_sent_is_masked(void **state)
{
    static const size_t lengths[] = { 0, 1, 125, 126, 65535, 65536 },
                        headers[] = { 2, 2, 2, 4, 4, 10 };
    static const unsigned char mask[4] = { 1, 0x80, 0x33, 0xfe };
    for (size_t i = 0; i < array_length(lengths); i++) {
        size_t len = lengths[i], at = headers[i];
        cleanup_free char *data = malloc(len + 1);
        cleanup_buf struct buf out = { 0 };
        for (size_t k = 0; k < len; k++)
            data[k] = (char)(k * 31);
        struct iovec iov[] = { { data, len / 3 }, { data + len / 3, len - len / 3 } };
        websocket_encode(&out, WEBSOCKET_BINARY, mask, iov, 2);
        assert_int_equal(out.len, at + 4 + len);
        assert_int_equal((unsigned char)out.data[0], 0x82);
        assert_int_equal((unsigned char)out.data[1], 0x80 | (at == 2 ? len : at == 4 ? 126 : 127));
        assert_memory_equal(out.data + at, mask, 4);
        for (size_t k = 0; k < len; k++)
            assert_int_equal((char)(out.data[at + 4 + k] ^ mask[k & 3]), data[k]);
    }
}

/* A server's frame has the same bytes without a mask; each side reads the other's, also what is
 * longer than the piece that is unmasked at once. */
static void test_each_side_reads_the_others(void **state)
{
    static const unsigned char mask[4] = { 9, 8, 7, 0x86 };
    static char data[10001];
    memset(data, 'x', sizeof data - 1);
    for (int i = 0; i < 2; i++) {
        cleanup_buf struct buf out = { 0 };
        struct websocket_decoder d = { .message_max = sizeof data, .from_client = i };
        struct seen seen = { 0 };
        enum websocket_status status;
        struct iovec iov = { data, sizeof data - 1 };
        websocket_encode(&out, WEBSOCKET_TEXT, i ? mask : NULL, &iov, 1);
        assert_int_equal(out.len, 4 + 4 * i + 10000);
        assert_ok(websocket_decode(&d, out.data, out.len, see, &seen, &status, err));
        assert_int_equal(seen.text.len, 10003);
        assert_memory_equal(buf_text(&seen.text), "1:xxx", 5);
        assert_null(strpbrk(buf_text(&seen.text) + 2, "\x01\x7f"));
        seen_free(&seen);
    }
}

/* The example of RFC 6455, section 1.3. */
static void test_the_answer_to_a_key(void **state)
{
    cleanup_buf struct buf out = { 0 };
    assert_ok(websocket_accept("dGhlIHNhbXBsZSBub25jZQ==", &out, err));
    assert_string_equal(buf_text(&out), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_cut_means_the_same),
        cmocka_unit_test(test_it_stops_on_request),
        cmocka_unit_test(test_what_is_forbidden_is_refused),
        cmocka_unit_test(test_a_message_of_the_limit_comes),
        cmocka_unit_test(test_a_close_frame_is_read),
        cmocka_unit_test(test_what_is_sent_is_masked),
        cmocka_unit_test(test_each_side_reads_the_others),
        cmocka_unit_test(test_the_answer_to_a_key),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
