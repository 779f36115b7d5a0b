/* json_span.h finds the same values in a text as a parser. */
#include "../test.h"

#include "base/cleanup.h"
#include "base/json/span.h"

static const char *const names[] = { "error", "choices", "usage", "text", "n", "" };
enum { NAMES = sizeof names / sizeof *names };

static void same(struct json_span span, struct json_object *tree);

static void same_string(struct json_span span, struct json_object *tree)
{
    cleanup_buf struct buf text = { 0 };
    json_span_append(&text, span);
    assert_int_equal(text.len, json_object_get_string_len(tree));
    assert_memory_equal(buf_text(&text), json_object_get_string(tree), text.len);
}

static void same_array(struct json_span span, struct json_object *tree)
{
    struct json_span element = json_span_first(span);
    for (size_t i = 0; i < json_length(tree); i++, element = json_span_next(element, span)) {
        assert_non_null(element.from);
        same(element, json_object_array_get_idx(tree, i));
    }
    assert_null(element.from);
}

static void same_object(struct json_span span, struct json_object *tree)
{
    struct json_span found[NAMES];
    json_span_members(span, names, found, NAMES);
    for (size_t i = 0; i < NAMES; i++) {
        struct json_object *member = NULL;
        bool there = json_object_object_get_ex(tree, names[i], &member);
        assert_int_equal(there, found[i].from != NULL);
        if (there)
            same(found[i], member);
    }
}

/* Everything that the walk finds by the names. */
static void same(struct json_span span, struct json_object *tree)
{
    assert_int_equal(json_span_is(span, 'n'), tree == NULL);
    assert_int_equal(json_span_is(span, '"'), json_object_is_type(tree, json_type_string));
    assert_int_equal(json_span_is(span, '['), json_object_is_type(tree, json_type_array));
    assert_int_equal(json_span_is(span, '{'), json_object_is_type(tree, json_type_object));
    bool whole = json_object_is_type(tree, json_type_int);
    assert_int_equal(json_span_int(span, -7), whole ? json_object_get_int64(tree) : -7);
    if (json_object_is_type(tree, json_type_string))
        same_string(span, tree);
    if (json_object_is_type(tree, json_type_array))
        same_array(span, tree);
    if (json_object_is_type(tree, json_type_object))
        same_object(span, tree);
}

/* True if the text is JSON, and then it was compared. The copy ends where the text does, so that a
 * step too far is seen. */
static bool compare(const char *text, size_t len)
{
    cleanup_json struct json_object *tree = NULL;
    cleanup_free char *copy = malloc(len ? len : 1);
    assert_non_null(copy);
    memcpy(copy, text, len);
    if (json_parse(copy, len, &json_limits_large, &tree, NULL) < 0)
        return false;
    same(json_span_of(copy, len), tree);
    return true;
}

static void finds_what_the_tree_has(void **state)
{
    static const char *const texts[] = { "null", " true ", "-12", "1.5", "\"\"", "[]", "{}",
        " [ ] ", "[1,\"]\",[2,[]],{\"n\":\"}\"},null]", "{\"text\":\"a\\\"b\\\\\",\"n\":1}",
        "{\"text\":\"\\u00e9\\ud83d\\ude00\\n\\/\"}", "{\"n\":1,\"n\":2}", "{\"n\":[1],\"n\":null}",
        "{\"t\\u0065xt\":\"escaped\",\"\":{}}", "{\"text\" : \"a\" , \"n\" :\t[ 1 , 2 ]\r\n}",
        "{\"n\":9223372036854775807}", "{\"n\":9223372036854775808}",
        "{\"n\":18446744073709551615}", "{\"n\":18446744073709551616}",
        "{\"n\":-9223372036854775808}", "{\"n\":-9223372036854775809}",
        "{\"n\":123456789012345678901234567890}", "{\"n\":1e3}", "{\"n\":-0}", "{\"n\":\"1\"}",
        "{\"choices\":[{\"text\":\"\\\\\"}],\"usage\":{\"n\":3},\"error\":null}" };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (!compare(texts[i], strlen(texts[i])))
            fail_msg("%s is not JSON", texts[i]);
}

/* Each byte of a reply in turn becomes each of those that mean something. */
static void finds_it_in_what_is_odd_too(void **state)
{
    static const char reply[] =
        "{\"error\":null,\"choices\":[{\"n\":0,\"text\":\"a\\\\\\\"b\\u0041\"},{}],"
        "\"usage\":{\"n\":10,\"text\":[true,-2.5e1]},\"\":\"\"}";
    static const char bytes[] = "{}[]\",:\\ 0n-e";
    char text[sizeof reply];
    size_t compared = 0;
    for (size_t i = 0; i < sizeof reply - 1; i++)
        for (size_t k = 0; k < sizeof bytes - 1; k++) {
            memcpy(text, reply, sizeof reply);
            text[i] = bytes[k];
            compared += compare(text, sizeof reply - 1);
        }
    assert_true(compared > 200);
}

static void finds_nothing_in_what_is_no_object(void **state)
{
    static const char *const texts[] = { "null", "3", "\"text\"", "[]", "[{\"text\":1}]" };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        assert_null(json_span_member(json_span_of(texts[i], strlen(texts[i])), "text").from);
    assert_null(json_span_member((struct json_span){ NULL, NULL }, "text").from);
    assert_null(json_span_first((struct json_span){ NULL, NULL }).from);
    assert_int_equal(json_span_int((struct json_span){ NULL, NULL }, 5), 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_what_the_tree_has),
        cmocka_unit_test(finds_it_in_what_is_odd_too),
        cmocka_unit_test(finds_nothing_in_what_is_no_object),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
