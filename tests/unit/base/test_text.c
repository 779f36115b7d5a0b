/* UTF-8 and text from strangers. */
#include "../test.h"

#include "base/cleanup.h"
#include "base/text.h"

static void assert_decodes(const char *in, size_t len, const char *expected)
{
    cleanup_buf struct buf out = { 0 };
    text_append_utf8(&out, in, len);
    assert_string_equal(buf_text(&out), expected);
    assert_true(text_is_utf8(buf_text(&out), out.len, NULL));
}

static void malformed_bytes_become_replacement_characters(void **state)
{
    assert_decodes("abc", 3, "abc");
    assert_decodes("a\xff"
                   "b",
        3,
        "a\xEF\xBF\xBD"
        "b");
    assert_decodes("\xE2\x82", 2, "\xEF\xBF\xBD");                             /* cut short */
    assert_decodes("\xC0\xAF", 2, "\xEF\xBF\xBD\xEF\xBF\xBD");                 /* overlong '/' */
    assert_decodes("\xED\xA0\x80", 3, "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"); /* surrogate */
    assert_decodes("\xF0\x9F\x98\x80", 4, "\xF0\x9F\x98\x80");
}

static void the_first_bad_byte_is_named(void **state)
{
    size_t bad = 0;
    assert_true(text_is_utf8("abcdefgh\xC3\xA9", 10, &bad));
    assert_false(text_is_utf8("abcdefgh\xC3(", 10, &bad));
    assert_int_equal(bad, 8);
}

static void text_cannot_act_on_a_terminal(void **state)
{
    static const char in[] = "a\x1b[2J\r\tb\n\x7f\xC2\x9B\xE2\x80\xAE";
    cleanup_buf struct buf out = { 0 };
    text_append_visible(&out, in, sizeof in - 1);
    assert_string_equal(buf_text(&out), "a\\x1b[2J\\x0d\tb\n\\x7f\\x9b\\u202e");
}

static void cuts_never_split_a_character(void **state)
{
    static const char in[] = "a\xE2\x82\xAC"
                             "b";
    assert_int_equal(text_utf8_floor(in, 5, 1), 1);
    assert_int_equal(text_utf8_floor(in, 5, 2), 1);
    assert_int_equal(text_utf8_floor(in, 5, 3), 1);
    assert_int_equal(text_utf8_floor(in, 5, 4), 4);
    assert_int_equal(text_utf8_floor(in, 5, 9), 5);
}

static void names_are_a_small_charset(void **state)
{
    assert_true(text_is_name("my-data_1.x"));
    static const char *const bad[] = { "", "../x", ".x", "-x", "a b", "a/b", "%n", ";rm",
        "\xD0\xB0" };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(text_is_name(bad[i]));
    char longest[66];
    memset(longest, 'a', sizeof longest);
    longest[65] = '\0';
    assert_false(text_is_name(longest));
    longest[64] = '\0';
    assert_true(text_is_name(longest));
}

static void identifiers_are_what_python_can_have(void **state)
{
    static const char *const good[] = { "a", "_", "a1", "context_0", "Klass", "match", "print" };
    static const char *const bad[] = { "", "1a", "a-b", "a b", "a.b", "class", "None", "\xC3\xA9",
        "a=" };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_true(text_is_identifier(good[i]));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(text_is_identifier(bad[i]));
    char longest[66];
    memset(longest, 'a', 65);
    longest[65] = '\0';
    assert_false(text_is_identifier(longest));
    longest[64] = '\0';
    assert_true(text_is_identifier(longest));
}

/* The last name of a path, whatever slashes are behind it; none of what has none. */
static void last_names_are_found(void **state)
{
    static const char *const all[][2] = { { "a", "a" }, { "/a/b", "b" }, { "a/b//", "b" },
        { "/", "" }, { "", "" }, { "a/.", "." } };
    for (size_t i = 0; i < array_length(all); i++) {
        size_t len;
        const char *name = text_last_name(all[i][0], &len);
        assert_int_equal(len, strlen(all[i][1]));
        assert_memory_equal(name, all[i][1], len);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(last_names_are_found),
        cmocka_unit_test(malformed_bytes_become_replacement_characters),
        cmocka_unit_test(the_first_bad_byte_is_named),
        cmocka_unit_test(text_cannot_act_on_a_terminal),
        cmocka_unit_test(cuts_never_split_a_character),
        cmocka_unit_test(names_are_a_small_charset),
        cmocka_unit_test(identifiers_are_what_python_can_have),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
