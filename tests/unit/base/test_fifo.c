/* Bytes go out of a fifo in the order in which they came. */
#include "../test.h"

#include "base/fifo.h"

/* Many pieces of odd sizes: what is in it is always what came and has not gone. */
static void bytes_come_out_in_their_order(void **state)
{
    struct fifo f = { 0 };
    unsigned char next_in = 0, next_out = 0;
    size_t inside = 0;
    for (unsigned round = 0; round < 5000; round++) {
        unsigned char piece[97];
        size_t len = round * 31 % sizeof piece, gone = round * 17 % 101;
        for (size_t i = 0; i < len; i++)
            piece[i] = next_in++;
        fifo_add(&f, piece, len);
        inside += len;
        assert_int_equal(fifo_len(&f), inside);
        for (size_t i = 0; i < inside; i++)
            assert_int_equal((unsigned char)fifo_data(&f)[i], (unsigned char)(next_out + i));
        gone = gone < inside ? gone : inside;
        fifo_drop(&f, gone);
        next_out = (unsigned char)(next_out + gone);
        inside -= gone;
    }
    assert_false(fifo_failed(&f));
    fifo_free(&f);
}

/* More than there is: then it is empty, and takes bytes again. */
static void an_empty_one_can_be_used_again(void **state)
{
    struct fifo f = { 0 };
    fifo_drop(&f, 1);
    assert_int_equal(fifo_len(&f), 0);
    fifo_add(&f, "abc", 3);
    fifo_drop(&f, 10);
    assert_int_equal(fifo_len(&f), 0);
    fifo_add(&f, "d", 1);
    assert_int_equal(fifo_len(&f), 1);
    assert_int_equal(fifo_data(&f)[0], 'd');
    fifo_free(&f);
}

/* What a large value took is not kept. */
static void memory_is_released(void **state)
{
    enum { LARGE = 8 << 20 };
    struct fifo f = { 0 };
    char *data = calloc(1, LARGE);
    fifo_add(&f, data, LARGE);
    fifo_drop(&f, LARGE - 1);
    assert_true(f.bytes.cap >= LARGE);
    fifo_drop(&f, 1);
    assert_true(f.bytes.cap < LARGE / 8);
    free(data);
    fifo_free(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_come_out_in_their_order),
        cmocka_unit_test(an_empty_one_can_be_used_again),
        cmocka_unit_test(memory_is_released),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
