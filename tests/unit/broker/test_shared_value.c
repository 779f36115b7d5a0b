/* Values for child runs: stored once, and with a file only while it is used. */
#include "../test.h"

#include <dirent.h>

#include "broker/shared_value.h"

static unsigned count_descriptors(void)
{
    unsigned count = 0;
    DIR *dir = opendir("/proc/self/fd");
    assert_non_null(dir);
    while (readdir(dir))
        count++;
    closedir(dir);
    return count;
}

static void users_share_one_context(void **state)
{
    struct shared_value *value = shared_value_new(VALUE_JSON, "[1]", 3);
    const struct context *first = NULL, *second = NULL;
    assert_ok(shared_value_use(value, &first, err));
    assert_ok(shared_value_use(value, &second, err));
    assert_ptr_equal(first, second);
    assert_int_equal(first->kind, VALUE_JSON);
    assert_int_equal(first->len, 3);
    shared_value_rest(value);
    shared_value_rest(value);
    shared_value_drop(value);
}

/* A guest that gives many values takes no descriptors of the host's; what is used takes one. */
static void a_value_has_a_file_only_while_it_is_used(void **state)
{
    unsigned before = count_descriptors();
    struct shared_value *value[100];
    const struct context *context = NULL;
    for (size_t i = 0; i < 100; i++)
        value[i] = shared_value_new(VALUE_TEXT, "text", 4);
    assert_int_equal(count_descriptors(), before);
    assert_ok(shared_value_use(value[7], &context, err));
    assert_int_equal(count_descriptors(), before + 1);
    shared_value_rest(value[7]);
    assert_int_equal(count_descriptors(), before);
    for (size_t i = 0; i < 100; i++)
        shared_value_drop(value[i]);
}

static void the_last_holder_ends_it(void **state)
{
    struct shared_value *value = shared_value_new(VALUE_BYTES, "\0x", 2);
    const struct context *context = NULL;
    size_t len = 0;
    assert_ptr_equal(shared_value_hold(value), value);
    shared_value_drop(value);
    assert_memory_equal(shared_value_bytes(value, &len), "\0x", 2);
    assert_int_equal(len, 2);
    assert_ok(shared_value_use(value, &context, err));
    assert_int_equal(context->kind, VALUE_BYTES);
    shared_value_rest(value);
    shared_value_drop(value);
    shared_value_drop(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(users_share_one_context),
        cmocka_unit_test(a_value_has_a_file_only_while_it_is_used),
        cmocka_unit_test(the_last_holder_ends_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
