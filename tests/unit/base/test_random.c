/* Random bytes, and names generated from them. */
#include "../test.h"

#include <ctype.h>

#include "base/os/random.h"

/* More than getrandom(2) gives in one go (above 256 bytes a signal may cut it short) is whole. */
static void all_bytes_are_random(void **state)
{
    static unsigned char bytes[1 << 20];
    size_t counts[256] = { 0 };
    struct error err = { 0 };
    assert_int_equal(random_bytes(bytes, sizeof bytes, &err), 0);
    for (size_t i = 0; i < sizeof bytes; i++)
        counts[bytes[i]]++;
    for (int i = 0; i < 256; i++)
        assert_in_range(counts[i], 3500, 4700); /* 4096, and nine times the deviation */
    assert_int_not_equal(memcmp(bytes, bytes + sizeof bytes / 2, sizeof bytes / 2), 0);
}

static void digits_are_as_many_as_asked_for(void **state)
{
    struct error err = { 0 };
    for (size_t n = 0; n <= RANDOM_HEX_MAX; n += 2) {
        char text[RANDOM_HEX_MAX + 2];
        memset(text, '#', sizeof text);
        assert_int_equal(random_hex(text, n, &err), 0);
        assert_int_equal(strlen(text), n);
        assert_int_equal(strspn(text, "0123456789abcdef"), n);
        assert_int_equal(text[n + 1], '#');
    }
}

/* RFC 9562, 5.4: version 4, variant 10. */
static void names_have_the_form_of_a_uuid(void **state)
{
    static const char form[] = "xxxxxxxx-xxxx-4xxx-vxxx-xxxxxxxxxxxx";
    char before[UUID_SIZE] = "";
    struct error err = { 0 };
    for (int i = 0; i < 1000; i++) {
        char id[UUID_SIZE];
        assert_int_equal(random_uuid(id, &err), 0);
        assert_int_equal(strlen(id), UUID_SIZE - 1);
        for (size_t at = 0; form[at]; at++)
            if (form[at] == 'x')
                assert_true(isxdigit((unsigned char)id[at]));
            else if (form[at] == 'v')
                assert_non_null(strchr("89ab", id[at]));
            else
                assert_int_equal(id[at], form[at]);
        assert_string_not_equal(id, before);
        memcpy(before, id, sizeof id);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_bytes_are_random),
        cmocka_unit_test(digits_are_as_many_as_asked_for),
        cmocka_unit_test(names_have_the_form_of_a_uuid),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
