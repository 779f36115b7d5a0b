/* The wire format of protocol buffers: written messages can be read again, and reading untrusted
 * bytes stays within bounds. */
#include "../test.h"

#include "base/cleanup.h"
#include "net/protobuf.h"

static struct protobuf_reader reader(const struct buf *b)
{
    return (struct protobuf_reader){ b->data, b->data + b->len };
}

/* Numbers of all sizes, bytes, texts and messages in messages come out as they went in, in their
 * order. */
static void reads_what_it_writes(void **state)
{
    static const uint64_t numbers[] = { 0, 1, 127, 128, 300, UINT32_MAX, UINT64_MAX };
    cleanup_buf struct buf out = { 0 };
    struct protobuf_field f;
    for (size_t i = 0; i < array_length(numbers); i++)
        protobuf_put_number(&out, (uint32_t)i + 1, numbers[i]);
    protobuf_put_bytes(&out, 100, "a\0b", 3);
    protobuf_put_text(&out, UINT32_MAX >> 3, "text");
    struct protobuf_reader r = reader(&out);
    for (size_t i = 0; i < array_length(numbers); i++) {
        struct error e = { 0 };
        assert_int_equal(protobuf_next(&r, &f, &e), 1);
        assert_int_equal(f.number, i + 1);
        assert_false(f.is_bytes);
        assert_true(f.value == numbers[i]);
    }
    assert_int_equal(protobuf_next(&r, &f, NULL), 1);
    assert_true(f.is_bytes && f.number == 100 && f.len == 3 && memcmp(f.data, "a\0b", 3) == 0);
    assert_int_equal(protobuf_next(&r, &f, NULL), 1);
    assert_true(f.number == UINT32_MAX >> 3 && f.len == 4 && memcmp(f.data, "text", 4) == 0);
    assert_int_equal(protobuf_next(&r, &f, NULL), 0);
    assert_int_equal(protobuf_next(&r, &f, NULL), 0);
}

/* Numbers of fixed width are little-endian. */
static void reads_numbers_of_fixed_width(void **state)
{
    static const char data[] = "\x0d\x01\x02\x03\x04\x11\x01\x00\x00\x00\x00\x00\x00\x80";
    struct protobuf_reader r = { data, data + sizeof data - 1 };
    struct protobuf_field f;
    assert_int_equal(protobuf_next(&r, &f, NULL), 1);
    assert_true(f.number == 1 && f.value == 0x04030201);
    assert_int_equal(protobuf_next(&r, &f, NULL), 1);
    assert_true(f.number == 2 && f.value == 0x8000000000000001);
}

/* Each way in which a message can be none. */
static void refuses_what_is_no_message(void **state)
{
    static const struct {
        const char *data;
        size_t len;
    } bad[] = {
        { "\x08", 1 },                                              /* no number */
        { "\x08\x80", 2 },                                          /* half of one */
        { "\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", 11 },     /* more than 64 bits */
        { "\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 12 }, /* too long */
        { "\x12\x03"
          "ab",
            4 },                                                /* a length beyond the end */
        { "\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 11 }, /* far beyond */
        { "\x0b", 1 },
        { "\x0c", 1 },
        { "\x0e", 1 },
        { "\x0f", 1 },                             /* types that are none, or none any more */
        { "\x00\x01", 2 },                         /* field 0 */
        { "\x80\x80\x80\x80\x80\x80\x01\x01", 8 }, /* a number of a field beyond all */
        { "\x0d\x01\x02\x03", 4 },                 /* half of a fixed one */
        { "\x09\x01\x02\x03\x04\x05\x06\x07", 8 },
    };
    for (size_t i = 0; i < array_length(bad); i++) {
        cleanup_free char *own = malloc(bad[i].len);
        assert_non_null(own);
        memcpy(own, bad[i].data, bad[i].len);
        struct protobuf_reader r = { own, own + bad[i].len };
        struct protobuf_field f;
        assert_fails(ERROR_PROTOCOL, protobuf_next(&r, &f, err));
    }
}

/* What is cut anywhere is either shorter or refused, and nothing behind the cut is looked at. */
static void is_cut_anywhere(void **state)
{
    cleanup_buf struct buf out = { 0 };
    protobuf_put_number(&out, 1, 1u << 30);
    protobuf_put_bytes(&out, 2, "some bytes", 10);
    protobuf_put_number(&out, 3, 7);
    for (size_t len = 0; len < out.len; len++) {
        cleanup_free char *own = malloc(len ? len : 1);
        assert_non_null(own);
        memcpy(own, out.data, len);
        struct protobuf_reader r = { own, own + len };
        struct protobuf_field f;
        struct error e = { 0 };
        int rc, seen = 0;
        while ((rc = protobuf_next(&r, &f, &e)) == 1)
            seen++;
        assert_true(seen < 3 && (rc == 0 || rc == -(int)ERROR_PROTOCOL));
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_what_it_writes),
        cmocka_unit_test(reads_numbers_of_fixed_width),
        cmocka_unit_test(refuses_what_is_no_message),
        cmocka_unit_test(is_cut_anywhere),
    };
    return cmocka_run_group_tests_name("protobuf", tests, NULL, NULL);
}
