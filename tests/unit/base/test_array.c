/* base/array.h: an array keeps its elements, however often it grows. */
#include "../test.h"

#include "base/array.h"
#include "base/cleanup.h"

static void keeps_what_is_in_it(void **state)
{
    size_t room = 0;
    int *numbers = NULL;
    for (size_t i = 0; i < 1000; i++) {
        int *grown = array_grow(numbers, i, &room, sizeof *grown);
        assert_non_null(grown);
        assert_true(room > i);
        numbers = grown;
        numbers[i] = (int)i;
    }
    for (int i = 0; i < 1000; i++)
        assert_int_equal(numbers[i], i);
    free(numbers);
}

static void stays_where_it_is_while_there_is_room(void **state)
{
    size_t room = 0;
    cleanup_free char *text = array_grow(NULL, 0, &room, 1);
    size_t first = room;
    assert_non_null(text);
    for (size_t i = 0; i < first; i++)
        assert_ptr_equal(array_grow(text, i, &room, 1), text);
    assert_int_equal(room, first);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keeps_what_is_in_it),
        cmocka_unit_test(stays_where_it_is_while_there_is_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
