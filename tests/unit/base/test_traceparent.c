/* The field traceparent of W3C Trace Context. */
#include "../test.h"

#include "base/traceparent.h"

static const char good[] = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

static void a_field_is_read_and_written(void **state)
{
    struct traceparent t;
    char again[TRACEPARENT_SIZE];
    assert_true(traceparent_parse(good, &t));
    assert_string_equal(t.trace, "0af7651916cd43dd8448eb211c80319c");
    assert_string_equal(t.span, "b7ad6b7169203331");
    assert_string_equal(t.flags, "01");
    traceparent_write(&t, t.span, again);
    assert_string_equal(again, good);
}

/* Each byte that is changed to one that it cannot be, and each shorter text. */
static void what_is_no_field_is_refused(void **state)
{
    struct traceparent t;
    char text[TRACEPARENT_SIZE];
    for (size_t i = 0; i < sizeof good - 1; i++) {
        memcpy(text, good, sizeof good);
        text[i] = 'G';
        assert_false(traceparent_parse(text, &t));
        text[i] = '\0';
        assert_false(traceparent_parse(text, &t));
    }
    assert_false(traceparent_parse(NULL, &t));
    assert_false(traceparent_parse("", &t));
}

static void a_later_version_may_have_more(void **state)
{
    struct traceparent t;
    char text[TRACEPARENT_SIZE + 8];
    snprintf(text, sizeof text, "01%s-more", good + 2);
    assert_true(traceparent_parse(text, &t));
    assert_string_equal(t.flags, "01");
    snprintf(text, sizeof text, "01%smore", good + 2);
    assert_false(traceparent_parse(text, &t));
    snprintf(text, sizeof text, "00%s-more", good + 2);
    assert_false(traceparent_parse(text, &t));
    snprintf(text, sizeof text, "ff%s", good + 2);
    assert_false(traceparent_parse(text, &t));
}

static void zeros_are_no_ids(void **state)
{
    struct traceparent t;
    assert_false(traceparent_parse("00-00000000000000000000000000000000-b7ad6b7169203331-01", &t));
    assert_false(traceparent_parse("00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01", &t));
    assert_true(traceparent_parse("00-0af7651916cd43dd8448eb211c80319c-0000000000000001-00", &t));
}

/* Calls of one batch differ in the key's end. */
static void a_key_gives_a_span(void **state)
{
    assert_string_equal(
        traceparent_call_span("0123456789abcdef0123456789ABCDEF"), "0123456789ABCDEF");
    assert_null(traceparent_call_span("short"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_field_is_read_and_written),
        cmocka_unit_test(what_is_no_field_is_refused),
        cmocka_unit_test(a_later_version_may_have_more),
        cmocka_unit_test(zeros_are_no_ids),
        cmocka_unit_test(a_key_gives_a_span),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
