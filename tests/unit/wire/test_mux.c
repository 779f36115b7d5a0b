/* The messages of a supervisor, against what a hostile one may send. */
#include "../test.h"

#include "wire/mux.h"

/* What came out: each message written down, pieces of one under one header. */
struct taken {
    struct buf text;
    unsigned count;
};

static int take(void *arg, const struct mux_message *m, struct error *err)
{
    struct taken *t = arg;
    t->count++;
    buf_printf(&t->text, "<%u.%u %u ", m->kind, m->stream, m->worker);
    buf_append(&t->text, m->data, m->len);
    buf_putc(&t->text, '>');
    return 0;
}

static void add(struct buf *out, uint8_t kind, uint8_t stream, uint32_t worker, uint32_t len)
{
    unsigned char header[MUX_HEADER_SIZE];
    mux_write_header(header, kind, worker, len);
    header[1] = stream;
    buf_append(out, header, sizeof header);
}

static void a_header_has_the_documented_bytes(void **state)
{
    static const unsigned char expected[] = { 2, 0, 0, 0, 4, 3, 2, 1, 8, 7, 6, 5 };
    unsigned char header[MUX_HEADER_SIZE];
    mux_write_header(header, MUX_BYTES, 0x01020304, 0x05060708);
    assert_memory_equal(header, expected, sizeof expected);
}

/* In pieces of every size: what is short comes whole, bytes and output come as they come, and none
 * is lost. */
static void messages_come_out_of_any_pieces(void **state)
{
    cleanup_buf struct buf stream = { 0 };
    add(&stream, MUX_HELLO, 0, 0, 2);
    buf_puts(&stream, "{}");
    add(&stream, MUX_BYTES, 0, 7, 3);
    buf_puts(&stream, "abc");
    add(&stream, MUX_OUTPUT, 2, 7, 2);
    buf_puts(&stream, "de");
    add(&stream, MUX_BYTES, 0, 7, 0);
    add(&stream, MUX_EXIT, 0, 7, 4);
    buf_puts(&stream, "null");
    for (size_t piece = 1; piece <= stream.len; piece++) {
        struct mux_decoder d = { 0 };
        struct taken t = { 0 };
        for (size_t at = 0; at < stream.len; at += piece) {
            size_t len = stream.len - at < piece ? stream.len - at : piece;
            assert_ok(mux_feed(&d, stream.data + at, len, take, &t, err));
        }
        assert_non_null(strstr(buf_text(&t.text), "<17.0 0 {}>"));
        assert_non_null(strstr(buf_text(&t.text), "<19.0 7 null>"));
        if (piece == 1)
            assert_string_equal(t.text.data,
                "<17.0 0 {}><2.0 7 a><2.0 7 b><2.0 7 c><18.2 7 d><18.2 7 e><19.0 7 null>");
        if (piece == stream.len)
            assert_string_equal(t.text.data, "<17.0 0 {}><2.0 7 abc><18.2 7 de><19.0 7 null>");
        buf_free(&t.text);
        mux_decoder_free(&d);
    }
}

static int feed_header(
    uint8_t kind, uint8_t stream, uint32_t worker, uint32_t len, struct error *err)
{
    cleanup_buf struct buf bytes = { 0 };
    struct mux_decoder d = { 0 };
    struct taken t = { 0 };
    add(&bytes, kind, stream, worker, len);
    int rc = mux_feed(&d, bytes.data, bytes.len, take, &t, err);
    buf_free(&t.text);
    mux_decoder_free(&d);
    return rc;
}

/* Refused with the header, before anything of the payload is kept. */
static void messages_that_make_no_sense_are_refused(void **state)
{
    assert_ok(feed_header(MUX_HELLO, 0, 0, MUX_JSON_MAX, err));
    assert_fails(ERROR_PROTOCOL, feed_header(MUX_HELLO, 0, 0, MUX_JSON_MAX + 1, err));
    assert_fails(ERROR_PROTOCOL, feed_header(MUX_HELLO, 0, 1, 2, err));
    assert_ok(feed_header(MUX_OUTPUT, 1, 1, 1, err));
    assert_fails(ERROR_PROTOCOL, feed_header(MUX_OUTPUT, 0, 1, 1, err));
    assert_fails(ERROR_PROTOCOL, feed_header(MUX_OUTPUT, 3, 1, 1, err));
    assert_ok(feed_header(MUX_BYTES, 0, 1, MUX_PIECE_MAX, err));
    assert_fails(ERROR_PROTOCOL, feed_header(MUX_BYTES, 0, 1, UINT32_MAX, err));
    assert_fails(ERROR_PROTOCOL, feed_header(MUX_BYTES, 0, 0, 1, err));
    assert_ok(feed_header(MUX_EXIT, 0, 1, 100, err));
    assert_fails(ERROR_PROTOCOL, feed_header(MUX_START, 0, 1, 2, err));
    assert_fails(ERROR_PROTOCOL, feed_header(0, 0, 0, 0, err));
    assert_fails(ERROR_PROTOCOL, feed_header(255, 0, 1, 0, err));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_header_has_the_documented_bytes),
        cmocka_unit_test(messages_come_out_of_any_pieces),
        cmocka_unit_test(messages_that_make_no_sense_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
