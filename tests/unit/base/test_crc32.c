/* The CRC-32, against what zlib's crc32 gives. */
#include "../test.h"

#include "base/crc32.h"

static uint32_t sum_of(const void *data, size_t len)
{
    struct crc32_table table;
    crc32_table_make(&table);
    return crc32_add(&table, 0, data, len);
}

static void sums_are_those_of_zlib(void **state)
{
    assert_int_equal(sum_of("", 0), 0);
    assert_int_equal(sum_of("a", 1), 0xe8b7be43);
    assert_int_equal(sum_of("123456789", 9), 0xcbf43926);
    assert_int_equal(sum_of("The quick brown fox jumps over the lazy dog", 43), 0x414fa339);
}

/* Wherever the bytes are divided, also within the eight that are taken at a time. */
static void parts_give_the_sum_of_the_whole(void **state)
{
    char data[100];
    struct crc32_table table;
    crc32_table_make(&table);
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (char)(i * 37);
    uint32_t whole = crc32_add(&table, 0, data, sizeof data);
    for (size_t i = 0; i <= sizeof data; i++) {
        uint32_t first = crc32_add(&table, 0, data, i);
        assert_int_equal(crc32_add(&table, first, data + i, sizeof data - i), whole);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_are_those_of_zlib),
        cmocka_unit_test(parts_give_the_sum_of_the_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
