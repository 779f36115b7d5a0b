/* UTF-8, and untrusted text. */
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

/* A code point as the tables of the standard write it; its length. */
static size_t encode(unsigned c, unsigned char out[4])
{
    if (c < 0x80) {
        out[0] = (unsigned char)c;
        return 1;
    }
    size_t len = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const unsigned char marks[] = { 0, 0, 0xC0, 0xE0, 0xF0 };
    for (size_t i = len; i-- > 1; c >>= 6)
        out[i] = (unsigned char)(0x80 | (c & 0x3F));
    out[0] = (unsigned char)(marks[len] | c);
    return len;
}

static bool is_utf8(const unsigned char *bytes, size_t len)
{
    return text_is_utf8((const char *)bytes, len, NULL);
}

static void each_code_point_but_surrogates_is_well_formed(void **state)
{
    for (unsigned c = 0; c < 0x120000; c++) {
        unsigned char bytes[4];
        size_t len = encode(c, bytes);
        bool good = (c < 0xD800 || c > 0xDFFF) && c < 0x110000;
        if (is_utf8(bytes, len) != good || (len > 1 && is_utf8(bytes, len - 1)))
            fail_msg("U+%X", c);
    }
}

/* As many sequences of a first byte that is not ASCII are well-formed as there are code points: so
 * no other is. */
static void nothing_else_is_well_formed(void **state)
{
    static const unsigned char second[] = { 0x00, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0,
        0xFF };
    size_t two = 0, three = 0;
    for (unsigned n = 0x80 << 16; n < 0x1000000; n++) {
        unsigned char bytes[] = { (unsigned char)(n >> 16), (unsigned char)(n >> 8),
            (unsigned char)n };
        two += bytes[2] == 0 && is_utf8(bytes, 2);
        three += bytes[1] >= 0x80 && bytes[2] >= 0x80 && is_utf8(bytes, 3);
    }
    assert_int_equal(two, 0x800 - 0x80);
    assert_int_equal(three, 0x10000 - 0x800 - 0x800);
    for (unsigned first = 0xF0; first <= 0xFF; first++)
        for (size_t i = 0; i < sizeof second; i++) {
            unsigned char bytes[] = { (unsigned char)first, second[i], 0x80, 0xBF };
            bool continues = (second[i] & 0xC0) == 0x80;
            unsigned c = (first & 7) << 18 | (second[i] & 0x3Fu) << 12 | 0x3F;
            bool good = continues && first < 0xF8 && c >= 0x10000 && c < 0x110000;
            assert_int_equal(is_utf8(bytes, 4), good);
        }
}

/* Text is looked at in blocks; what lies across their borders is seen as what lies within. */
static void characters_across_block_borders_are_recognised(void **state)
{
    static const char *const pieces[] = { "\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\x98\x80" };
    char text[200];
    for (size_t at = 0; at < sizeof text - 4; at++)
        for (size_t i = 0; i < 3; i++) {
            size_t bad = 0, len = strlen(pieces[i]);
            memset(text, 'a', sizeof text);
            memcpy(text + at, pieces[i], len);
            assert_true(text_is_utf8(text, sizeof text, NULL));
            assert_false(text_is_utf8(text, at + len - 1, &bad));
            assert_int_equal(bad, at);
            text[at + len - 1] = 'a';
            assert_false(text_is_utf8(text, sizeof text, &bad));
            assert_int_equal(bad, at);
        }
}

static void malformed_bytes_among_many_are_replaced_one_by_one(void **state)
{
    cleanup_buf struct buf in = { 0 }, expected = { 0 };
    for (int i = 0; i < 300; i++) {
        buf_puts(&in, i % 7 ? "\xC3\xA9" : "ab\xFF\xE2\x82");
        buf_puts(&expected, i % 7 ? "\xC3\xA9" : "ab\xEF\xBF\xBD\xEF\xBF\xBD");
    }
    assert_decodes(in.data, in.len, expected.data);
}

static void text_cannot_act_on_a_terminal(void **state)
{
    static const char in[] = "a\x1b[2J\r\tb\n\x7f\xC2\x9B\xE2\x80\xAE";
    cleanup_buf struct buf out = { 0 };
    text_append_visible(&out, in, sizeof in - 1);
    assert_string_equal(buf_text(&out), "a\\x1b[2J\\x0d\tb\n\\x7f\\x9b\\u202e");
}

/* What does so and JSON does not escape: as a reader of JSON reads it. All that changes the
 * direction of text. */
static void json_cannot_act_on_a_terminal_and_stays_json(void **state)
{
    static const char in[] =
        "\"\x7f\xC2\x9B\xD8\x9C\xE2\x80\x8F\xE2\x80\xA8\xE2\x80\xAE\xE2\x81\xA9"
        "\xE2\x80\xA6\xC3\xA9\"";
    cleanup_buf struct buf out = { 0 };
    text_append_visible_json(&out, in, sizeof in - 1);
    assert_string_equal(buf_text(&out),
        "\"\\u007f\\u009b\\u061c\\u200f\\u2028\\u202e\\u2069\xE2\x80\xA6\xC3\xA9\"");
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

/* A comma before every third digit from the right; none behind a sign. */
static void digits_are_in_groups(void **state)
{
    static const struct {
        int64_t number;
        const char *text;
    } all[] = { { 0, "0" }, { 999, "999" }, { 1000, "1,000" }, { 1234567, "1,234,567" },
        { -999, "-999" }, { -1000, "-1,000" }, { INT64_MIN, "-9,223,372,036,854,775,808" } };
    for (size_t i = 0; i < array_length(all); i++) {
        cleanup_buf struct buf out = { 0 };
        text_append_grouped(&out, all[i].number);
        assert_string_equal(buf_text(&out), all[i].text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(last_names_are_found),
        cmocka_unit_test(digits_are_in_groups),
        cmocka_unit_test(malformed_bytes_become_replacement_characters),
        cmocka_unit_test(the_first_bad_byte_is_named),
        cmocka_unit_test(each_code_point_but_surrogates_is_well_formed),
        cmocka_unit_test(nothing_else_is_well_formed),
        cmocka_unit_test(characters_across_block_borders_are_recognised),
        cmocka_unit_test(malformed_bytes_among_many_are_replaced_one_by_one),
        cmocka_unit_test(text_cannot_act_on_a_terminal),
        cmocka_unit_test(json_cannot_act_on_a_terminal_and_stays_json),
        cmocka_unit_test(cuts_never_split_a_character),
        cmocka_unit_test(names_are_a_small_charset),
        cmocka_unit_test(identifiers_are_what_python_can_have),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
