/* The beginning and the end of a stream: exact limits, whole characters, exact counts. */
#include "../test.h"

#include "base/text.h"
#include "session/capture.h"

#include <inttypes.h>

/* Adds the bytes in pieces of `step` and takes what was captured. The caller frees. */
static uint64_t capture_all(
    size_t limit, const char *data, size_t len, size_t step, struct buf *out)
{
    struct capture c = { .limit = limit };
    for (size_t at = 0; at < len; at += step)
        capture_add(&c, data + at, len - at < step ? len - at : step);
    return capture_take(&c, out);
}

/* What capture_take must give for ASCII. */
static void expected_text(size_t limit, const char *data, size_t len, struct buf *out)
{
    size_t half = limit / 2;
    if (len <= 2 * half) {
        buf_append(out, data, len);
        return;
    }
    buf_append(out, data, half);
    buf_printf(out, "\n... [%zu bytes left out] ...\n", len - 2 * half);
    buf_append(out, data + len - half, half);
}

static void fill(char *data, size_t len)
{
    for (size_t i = 0; i < len; i++)
        data[i] = (char)('a' + i % 23);
}

/* Around the limit and around the trimming of the tail, in pieces of every size. */
static void the_cut_is_exact_at_every_length(void **state)
{
    char data[64];
    fill(data, sizeof data);
    for (size_t limit = 0; limit <= 12; limit++)
        for (size_t len = 0; len <= sizeof data; len++)
            for (size_t step = 1; step <= 16; step++) {
                struct buf out = { 0 }, expected = { 0 };
                uint64_t left_out = capture_all(limit, data, len, step, &out);
                expected_text(limit, data, len, &expected);
                if (strcmp(buf_text(&out), buf_text(&expected)) != 0)
                    fail_msg("limit %zu, %zu bytes by %zu: '%s', not '%s'", limit, len, step,
                        buf_text(&out), buf_text(&expected));
                assert_int_equal(left_out, len > limit / 2 * 2 ? len - limit / 2 * 2 : 0);
                buf_free(&out);
                buf_free(&expected);
            }
}

/* Wherever the cut falls in a text of one- to four-byte characters, no broken one comes out, and
 * what is kept and what is said to be left out make up the whole. */
static void characters_are_never_cut_apart(void **state)
{
    static const char text[] = "a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80z\xF0\x9F\x98\x80\xE2\x82\xAC"
                               "\xC3\xA9"
                               "b\xF0\x9F\x98\x80\xF0\x9F\x98\x80\xE2\x82\xAC\xE2\x82\xAC\xC3\xA9";
    size_t len = sizeof text - 1;
    unsigned cut = 0;
    for (size_t limit = 2; limit < len; limit++)
        for (size_t step = 1; step <= 9; step++) {
            struct buf out = { 0 }, line = { 0 };
            uint64_t left_out = capture_all(limit, text, len, step, &out);
            assert_true(text_is_utf8(buf_text(&out), out.len, NULL));
            assert_null(strstr(buf_text(&out), "\xEF\xBF\xBD"));
            if (left_out > 0) {
                buf_printf(&line, "\n... [%" PRIu64 " bytes left out] ...\n", left_out);
                char *middle = strstr(buf_text(&out), buf_text(&line));
                assert_non_null(middle);
                size_t head = (size_t)(middle - out.data), tail = out.len - head - line.len;
                assert_int_equal(head + tail + left_out, len);
                assert_memory_equal(out.data, text, head);
                assert_memory_equal(out.data + out.len - tail, text + len - tail, tail);
                cut++;
            }
            buf_free(&out);
            buf_free(&line);
        }
    assert_true(cut > 100);
}

/* What was broken when it was written is replaced, not passed on. */
static void broken_bytes_become_replacement_characters(void **state)
{
    struct buf out = { 0 };
    assert_int_equal(capture_all(1000,
                         "a\xFF"
                         "b\xC3",
                         4, 4, &out),
        0);
    assert_string_equal(buf_text(&out), "a\xEF\xBF\xBD"
                                        "b\xEF\xBF\xBD");
    buf_free(&out);
}

static void continuation_bytes_alone_do_not_eat_the_tail(void **state)
{
    char data[1000];
    struct buf out = { 0 };
    memset(data, 0x80, sizeof data);
    uint64_t left_out = capture_all(100, data, sizeof data, 7, &out);
    assert_in_range(left_out, 900, 903);
    assert_true(text_is_utf8(buf_text(&out), out.len, NULL));
    buf_free(&out);
}

static void taking_starts_anew(void **state)
{
    struct capture c = { .limit = 10 };
    struct buf out = { 0 };
    capture_add(&c, "0123456789abcdef", 16);
    assert_int_equal(capture_take(&c, &out), 6);
    buf_clear(&out);
    capture_add(&c, "x", 1);
    assert_int_equal(capture_take(&c, &out), 0);
    assert_string_equal(buf_text(&out), "x");
    buf_free(&out);
}

static void nothing_gives_nothing(void **state)
{
    struct capture c = { .limit = 10 };
    struct buf out = { 0 };
    assert_int_equal(capture_take(&c, &out), 0);
    assert_string_equal(buf_text(&out), "");
    assert_int_equal(out.len, 0);
    buf_free(&out);
}

/* A flood of any length needs no more memory than the limit, and what the buffers grow by. */
static void a_flood_needs_bounded_memory(void **state)
{
    struct capture c = { .limit = 1000 };
    struct buf out = { 0 };
    char piece[777];
    fill(piece, sizeof piece);
    for (int i = 0; i < 20000; i++) {
        capture_add(&c, piece, sizeof piece);
        assert_true(c.head.len + c.tail.len <= c.limit);
        assert_true(c.head.cap + c.tail.cap <= 2 * c.limit);
    }
    assert_int_equal(capture_take(&c, &out), 20000 * sizeof piece - 1000);
    buf_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_cut_is_exact_at_every_length),
        cmocka_unit_test(characters_are_never_cut_apart),
        cmocka_unit_test(broken_bytes_become_replacement_characters),
        cmocka_unit_test(continuation_bytes_alone_do_not_eat_the_tail),
        cmocka_unit_test(taking_starts_anew),
        cmocka_unit_test(nothing_gives_nothing),
        cmocka_unit_test(a_flood_needs_bounded_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
