/* The growing buffer: it returns what was appended, followed by a NUL, and a failure is
 * permanent. */
#include "../test.h"

#include "base/buf.h"

/* Pieces of every kind follow each other, NULs among them, and a NUL follows the last. */
static void pieces_follow_each_other(void **state)
{
    cleanup_buf struct buf b = { 0 };
    buf_puts(&b, "ab");
    buf_putc(&b, 'c');
    buf_append(&b, "\0d", 2);
    buf_printf(&b, "%d-%s", 7, "e");
    assert_int_equal(b.len, 8);
    assert_memory_equal(b.data, "abc\0d7-e", 9);
    assert_false(buf_failed(&b));
}

/* A buffer that nothing was put into reads as "", and bears every operation. */
static void an_empty_buffer_is_a_text(void **state)
{
    cleanup_buf struct buf b = { 0 };
    buf_append(&b, NULL, 0);
    buf_puts(&b, "");
    assert_string_equal(buf_text(&b), "");
    buf_consume(&b, 0);
    buf_consume(&b, 5);
    buf_clear(&b);
    assert_int_equal(b.len, 0);
    char *text = buf_steal(&b);
    assert_string_equal(text, "");
    free(text);
}

/* A million bytes one by one are all there, and took few allocations. */
static void growing_keeps_every_byte(void **state)
{
    enum { BYTES = 1000000 };
    cleanup_buf struct buf b = { 0 };
    int moves = 0;
    for (int i = 0; i < BYTES; i++) {
        size_t cap = b.cap;
        buf_putc(&b, (char)(i % 251));
        moves += b.cap != cap;
    }
    assert_int_equal(b.len, BYTES);
    for (int i = 0; i < BYTES; i++)
        if (b.data[i] != (char)(i % 251))
            fail_msg("byte %d is another", i);
    assert_in_range(moves, 1, 40);
}

/* Text that is longer than the room left is formatted whole. */
static void formatting_makes_room(void **state)
{
    cleanup_buf struct buf b = { 0 };
    char expected[5001];
    memset(expected, ' ', 5000);
    expected[4999] = 'x';
    expected[5000] = '\0';
    buf_printf(&b, "%5000s", "x");
    assert_string_equal(b.data, expected);
}

/* Bytes go from the front, and no more than there are. */
static void consuming_stops_at_the_end(void **state)
{
    cleanup_buf struct buf b = { 0 };
    buf_puts(&b, "abcdef");
    buf_consume(&b, 4);
    assert_string_equal(buf_text(&b), "ef");
    buf_consume(&b, 9);
    assert_int_equal(b.len, 0);
    assert_string_equal(buf_text(&b), "");
    buf_puts(&b, "g");
    assert_string_equal(buf_text(&b), "g");
}

/* What cannot be had fails at once, whatever was there stays, and later appends do nothing until
 * the buffer is cleared. */
static void failure_sticks_until_cleared(void **state)
{
    cleanup_buf struct buf b = { 0 };
    buf_puts(&b, "kept");
    assert_false(buf_reserve(&b, SIZE_MAX));
    assert_false(buf_reserve(&b, SIZE_MAX / 2));
    assert_true(buf_failed(&b));
    buf_puts(&b, "lost");
    buf_printf(&b, "%d", 1);
    assert_string_equal(buf_text(&b), "kept");
    buf_clear(&b);
    assert_false(buf_failed(&b));
    buf_puts(&b, "new");
    assert_string_equal(buf_text(&b), "new");
}

/* Stealing hands the bytes over and leaves an empty buffer; one that failed has none to give. */
static void stealing_hands_the_memory_over(void **state)
{
    cleanup_buf struct buf b = { 0 };
    buf_puts(&b, "mine");
    char *text = buf_steal(&b);
    assert_string_equal(text, "mine");
    assert_null(b.data);
    assert_int_equal(b.len, 0);
    free(text);
    buf_puts(&b, "half");
    buf_reserve(&b, SIZE_MAX);
    assert_null(buf_steal(&b));
    assert_false(buf_failed(&b));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_follow_each_other),
        cmocka_unit_test(an_empty_buffer_is_a_text),
        cmocka_unit_test(growing_keeps_every_byte),
        cmocka_unit_test(formatting_makes_room),
        cmocka_unit_test(consuming_stops_at_the_end),
        cmocka_unit_test(failure_sticks_until_cleared),
        cmocka_unit_test(stealing_hands_the_memory_over),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
