/* The JSON scanner: it accepts what RFC 8259 allows, and refuses everything else with its
 * position. */
#include "../test.h"

#include <locale.h>

#include "base/cleanup.h"
#include "base/json/json.h"

static void accepts_what_the_standard_allows(void **state)
{
    static const char *const good[] = { "null", " true ", "-0", "0", "10", "1.5e-3", "\"\"",
        "\"\\u00e9\\ud83d\\ude00\\n\"", "[]", "{}", "[1,[2,{\"a\":[]}],\"x\"]",
        "{\"a\":1,\"b\":{\"c\":null}}", "\t[ 1 , 2 ]\n" };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        struct json_object *o = NULL;
        assert_ok(json_parse(good[i], strlen(good[i]), &json_limits_small, &o, err));
        json_object_put(o);
    }
}

static void refuses_what_it_does_not(void **state)
{
    static const char *const bad[] = { "", " ", "nul", "NaN", "Infinity", "-", "01", "1.", "1e",
        "+1", ".5", "'a'", "\"a", "\"\\x\"", "\"\\ud800\"", "\"\\udc00\"", "\"\\ud800\\u0041\"",
        "[1,]", "[1 2]", "[", "]", "{\"a\"}", "{\"a\":}", "{a:1}", "{\"a\":1,}", "[1] x",
        "\xEF\xBB\xBF[]", "\"\x01\"", "\"\xff\"", "/* */1", "[1}", "{\"a\":1]" };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct error err = { 0 };
        if (json_check(bad[i], strlen(bad[i]), &json_limits_small, &err) != -ERROR_PROTOCOL)
            fail_msg("accepted: %s", bad[i]);
    }
}

/* Whatever stands wherever in a string: what is not itself there is found at each place, beside
 * each neighbour. */
static void each_byte_of_a_string_is_looked_at(void **state)
{
    static const char neighbours[] = { ' ', '!', '#', '[', ']', 'a', 0x7f };
    for (unsigned c = 0; c < 0x80; c++) {
        for (size_t at = 0; at < 20; at++) {
            struct json_object *o = NULL;
            char text[24];
            memset(text, neighbours[at % sizeof neighbours], sizeof text);
            text[0] = text[22] = '"';
            text[1 + at] = (char)c;
            int rc = json_parse(text, 23, &json_limits_small, &o, NULL);
            assert_int_equal(rc == 0, c >= ' ' && c != '"' && c != '\\');
            if (rc == 0)
                assert_memory_equal(json_object_get_string(o), text + 1, 21);
            json_object_put(o);
        }
    }
}

static void depth_is_bounded_on_both_sides(void **state)
{
    char text[2 * 64 + 1] = { 0 };
    struct json_limits limits = { 1000, 64, 1000 };
    memset(text, '[', 64);
    memset(text + 64, ']', 64);
    assert_ok(json_check(text, 128, &limits, err));
    limits.depth = 63;
    assert_fails(ERROR_PROTOCOL, json_check(text, 128, &limits, err));
}

static void nodes_and_bytes_are_bounded(void **state)
{
    struct json_limits limits = { 9, 8, 4 };
    assert_ok(json_check("[1,2,3]", 7, &limits, err));
    assert_fails(ERROR_PROTOCOL, json_check("[1,2,3,4]", 9, &limits, err));
    limits = (struct json_limits){ 6, 8, 4 };
    assert_fails(ERROR_PROTOCOL, json_check("[1,2,3]", 7, &limits, err));
}

static void long_numbers_are_refused(void **state)
{
    char digits[5001];
    memset(digits, '7', 5000);
    assert_ok(json_check(digits, 4000, &json_limits_small, err));
    assert_fails(ERROR_PROTOCOL, json_check(digits, 5000, &json_limits_small, err));
}

/* Another reader, json-c's own, says what a text means. */
static void builds_what_another_reader_builds(void **state)
{
    static const char *const texts[] = { "null", "true", "[false,null,[],{}]", "-0", "-0.0", "1E5",
        "9223372036854775807", "-9223372036854775808", "18446744073709551615", "0.1", "1e999",
        "\"\"", "\"a\\u0000b\"", "\"\\b\\f\\n\\r\\t\\\"\\\\\\/\"",
        "\"\\u0041\\u00e9\\u20AC\\ud83d\\ude00\\uDBFF\\uDFFFz\"", "\"\xC3\xA9 \\u00e9\"",
        "{\"a\":1,\"b\":{\"a\":[1,{\"c\":null}]},\"a\":[2]}", "{\"\":1,\"\\u00e9\\n\":2}",
        "[[[1],2],[3,[4,5,6,7,8,9]],{\"x\":[],\"y\":{}}]" };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        cleanup_json struct json_object *ours = NULL;
        cleanup_json struct json_object *theirs = json_tokener_parse(texts[i]);
        assert_ok(json_parse(texts[i], strlen(texts[i]), &json_limits_small, &ours, err));
        if (!json_object_equal(ours, theirs))
            fail_msg("%s was built as %s", texts[i], json_text(ours, NULL));
        assert_string_equal(json_text(ours, NULL), json_text(theirs, NULL));
    }
}

/* json-c's reader loses the first of these. */
static void pairs_of_surrogates_are_one_character(void **state)
{
    static const char text[] = "\"\\ud836\\udccc\\ud83d\\ude00\\ud800\\udc00\\udbff\\udfff\"";
    cleanup_json struct json_object *o = NULL;
    assert_ok(json_parse(text, strlen(text), &json_limits_small, &o, err));
    assert_string_equal(json_object_get_string(o),
        "\xF0\x9D\xA3\x8C\xF0\x9F\x98\x80\xF0\x90\x80\x80\xF4\x8F\xBF\xBF");
}

/* json-c's reader makes another number of them. */
static void integers_of_any_length_keep_their_digits(void **state)
{
    static const char *const texts[] = { "18446744073709551616", "-9223372036854775809",
        "[123456789012345678901234567890]" };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        cleanup_json struct json_object *o = NULL;
        assert_ok(json_parse(texts[i], strlen(texts[i]), &json_limits_small, &o, err));
        assert_string_equal(json_text(o, NULL), texts[i]);
    }
}

static void strings_are_written_so_that_they_read_back(void **state)
{
    static const char text[] = "a\"b\\c\n\x01\xC3\xA9";
    cleanup_buf struct buf out = { 0 };
    cleanup_json struct json_object *o = NULL;
    json_append_string(&out, text, strlen(text));
    assert_ok(json_parse(out.data, out.len, &json_limits_small, &o, err));
    assert_string_equal(json_object_get_string(o), text);
}

/* The vectors of RFC 4648, section 10, and a byte of each kind of bits. */
/* Strings are written and counted in blocks: each character at each place of one, and after the
 * last. */
static void the_predicted_length_of_a_string_is_right(void **state)
{
    char text[300];
    for (unsigned c = 0; c < 0x80; c++)
        for (size_t len = 1; len < sizeof text; len += 29) {
            cleanup_buf struct buf out = { 0 };
            cleanup_json struct json_object *back = NULL;
            memset(text, 'a', len);
            text[len - 1] = text[len / 2] = (char)c;
            json_append_string(&out, text, len);
            assert_int_equal(json_string_length(text, len), out.len);
            assert_ok(json_parse(out.data, out.len, &json_limits_small, &back, err));
            assert_int_equal(json_object_get_string_len(back), len);
            assert_memory_equal(json_object_get_string(back), text, len);
        }
    memset(text, '\x01', sizeof text);
    assert_int_equal(json_string_length(text, sizeof text), 2 + 6 * sizeof text);
}

/* A hole stands for a value: where one may not be, it is as wrong as elsewhere. Those that nobody
 * asked for are counted. */
static void holes_are_found_where_values_may_be(void **state)
{
    static const char outline[] = "{\"a\": NaN, \"NaN\": [\"NaN\",NaN]}";
    static const char *const wrong[] = { "{NaN: 1}", "NaNN", "[Na]", "[NaN NaN]", "[nan]", "[-NaN]",
        "[\"NaN]" };
    size_t at[3] = { 0 }, count = 0;
    assert_ok(json_check_outline(outline, strlen(outline), &json_limits_small, at, 3, &count, err));
    assert_int_equal(count, 2);
    assert_memory_equal(outline + at[0], "NaN, ", 5);
    assert_memory_equal(outline + at[1], "NaN]}", 5);
    at[1] = 77;
    assert_ok(json_check_outline(outline, strlen(outline), &json_limits_small, at, 1, &count, err));
    assert_int_equal(count, 2);
    assert_int_equal(at[1], 77);
    assert_fails(ERROR_PROTOCOL, json_check(outline, strlen(outline), &json_limits_small, err));
    for (size_t i = 0; i < array_length(wrong); i++)
        assert_fails(ERROR_PROTOCOL,
            json_check_outline(wrong[i], strlen(wrong[i]), &json_limits_small, at, 3, &count, err));
}

static void bytes_are_written_as_base64(void **state)
{
    static const char *const vectors[][2] = { { "", "" }, { "f", "Zg==" }, { "fo", "Zm8=" },
        { "foo", "Zm9v" }, { "foob", "Zm9vYg==" }, { "fooba", "Zm9vYmE=" },
        { "foobar", "Zm9vYmFy" }, { "\xFB\xEF\xFF\x01", "++//AQ==" } };
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++) {
        cleanup_buf struct buf out = { 0 };
        json_append_base64(&out, vectors[i][0], strlen(vectors[i][0]));
        assert_string_equal(buf_text(&out), vectors[i][1]);
    }
}

static void base64_gives_the_bytes_back(void **state)
{
    (void)state;
    char bytes[256];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (char)i;
    for (size_t len = 0; len < sizeof bytes; len++) {
        cleanup_buf struct buf text = { 0 };
        size_t n = 1;
        json_append_base64(&text, bytes, len);
        cleanup_free char *back = json_base64_bytes(text.data ? text.data : "", text.len, &n);
        assert_non_null(back);
        assert_int_equal(n, len);
        assert_memory_equal(back, bytes, len);
    }
}

static void what_is_no_base64_gives_nothing(void **state)
{
    (void)state;
    static const char *const wrong[] = { "A", "AB", "ABC", "ABCDE", "AB C", "ABC\n",
        "A===", "====", "AB=C", "=ABC", "ABC-", "ABC_", "\xff\xff\xff\xff", " ABC", "    ABCD",
        "ABCD    ", "ABCDEFG\n", "ABCD\r\n\r\n", "ABCD----", "AB==ABCD" };
    for (size_t i = 0; i < array_length(wrong); i++) {
        size_t n = 0;
        assert_null(json_base64_bytes(wrong[i], strlen(wrong[i]), &n));
    }
}

/* Also where the program speaks a language in which one and a half is 1,5, if the machine has
 * one. */
static void numbers_are_written_as_json_has_them(void **state)
{
    static const char *const names[] = { "de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8", "C" };
    cleanup_buf struct buf out = { 0 };
    for (size_t i = 0; i < array_length(names) && !setlocale(LC_NUMERIC, names[i]); i++)
        continue;
    json_append_number(&out, 1.5);
    buf_putc(&out, ' ');
    json_append_number(&out, -1e300);
    buf_putc(&out, ' ');
    json_append_seconds(&out, 0.12345678);
    buf_putc(&out, ' ');
    json_append_seconds(&out, 2);
    setlocale(LC_NUMERIC, "C");
    assert_string_equal(buf_text(&out), "1.5 -1e+300 0.123457 2");
}

/* The length of what is not an array is 0, so that nobody has to look before. */
static void only_arrays_have_a_length(void **state)
{
    cleanup_json struct json_object *o = NULL;
    static const char text[] = "{\"list\": [1, 2, 3], \"none\": [], \"text\": \"abc\"}";
    assert_int_equal(json_parse(text, strlen(text), &json_limits_small, &o, NULL), 0);
    assert_int_equal(json_length(json_object_object_get(o, "list")), 3);
    assert_int_equal(json_length(json_object_object_get(o, "none")), 0);
    assert_int_equal(json_length(json_object_object_get(o, "text")), 0);
    assert_int_equal(json_length(o), 0);
    assert_int_equal(json_length(NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_are_written_as_json_has_them),
        cmocka_unit_test(only_arrays_have_a_length),
        cmocka_unit_test(accepts_what_the_standard_allows),
        cmocka_unit_test(refuses_what_it_does_not),
        cmocka_unit_test(each_byte_of_a_string_is_looked_at),
        cmocka_unit_test(depth_is_bounded_on_both_sides),
        cmocka_unit_test(nodes_and_bytes_are_bounded),
        cmocka_unit_test(long_numbers_are_refused),
        cmocka_unit_test(builds_what_another_reader_builds),
        cmocka_unit_test(pairs_of_surrogates_are_one_character),
        cmocka_unit_test(integers_of_any_length_keep_their_digits),
        cmocka_unit_test(strings_are_written_so_that_they_read_back),
        cmocka_unit_test(the_predicted_length_of_a_string_is_right),
        cmocka_unit_test(holes_are_found_where_values_may_be),
        cmocka_unit_test(bytes_are_written_as_base64),
        cmocka_unit_test(base64_gives_the_bytes_back),
        cmocka_unit_test(what_is_no_base64_gives_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
