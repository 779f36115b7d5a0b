/* Grading answers by each of the built-in graders. */
#include "../test.h"

#include "base/cleanup.h"
#include "batch/grade.h"

static bool passes(const char *grader, const char *expected, const char *answer)
{
    struct grader g;
    cleanup_json struct json_object *e = NULL, *a = NULL;
    assert_ok(grader_parse(grader, &g, err));
    assert_ok(json_parse(expected, strlen(expected), &json_limits_small, &e, err));
    assert_ok(json_parse(answer, strlen(answer), &json_limits_small, &a, err));
    assert_ok(grader_check_expected(&g, e, err));
    return grade_answer(&g, e, a);
}

static void exact_is_the_same_text_but_for_case_and_space(void **state)
{
    assert_true(passes("exact", "\"New York\"", "\" new\\n york \""));
    assert_true(passes("exact", "\"\\u00c9cole\"", "\"\\u00e9COLE\\u00a0\""));
    assert_true(passes("exact", "\"\\ud83d\\ude00 x\"", "\"\\ud83d\\ude00  X\""));
    assert_false(passes("exact", "\"New York\"", "\"New York City\""));
    assert_false(passes("exact", "\"New York\"", "\"NewYork\""));
}

static void exact_compares_numbers_as_numbers(void **state)
{
    assert_true(passes("exact", "42", "42.0"));
    assert_true(passes("exact", "42", "\"42\""));
    assert_false(passes("exact", "42", "42.1"));
    assert_false(passes("exact", "42", "\"42.0\""));
    assert_true(passes("exact", "true", "true"));
    assert_false(passes("exact", "true", "false"));
}

static void what_stands_alone_is_the_answer(void **state)
{
    assert_true(passes("exact", "\"x\"", "[\"X\"]"));
    assert_true(passes("exact", "3", "{\"n\": 3}"));
    assert_false(passes("exact", "\"x\"", "[\"x\", \"y\"]"));
}

static void of_a_list_one_will_do(void **state)
{
    assert_true(passes("exact", "[\"a\", \"b\"]", "\"B\""));
    assert_false(passes("exact", "[\"a\", \"b\"]", "\"c\""));
    assert_true(passes("numeric", "[1, \"2\"]", "2"));
}

static void contains_looks_for_the_text(void **state)
{
    assert_true(passes("contains", "\"blue whale\"", "\"It is the Blue\\nWhale.\""));
    assert_true(passes("contains", "17", "\"in 1917\""));
    assert_false(passes("contains", "\"blue whale\"", "\"a whale, blue\""));
}

static void numbers_are_read_as_people_write_them(void **state)
{
    assert_true(passes("numeric", "1234567.5", "\"$1,234,567.50\""));
    assert_true(passes("numeric", "1234", "\"1_234\""));
    assert_true(passes("numeric", "-3", "\"it fell by \\u22123 degrees\""));
    assert_true(passes("numeric", "-3", "\"-3\""));
    assert_true(passes("numeric", "-3", "\"-$3\""));
    assert_true(passes("numeric", "20", "\"10-20\"")); /* no minus: a range */
    assert_true(passes("numeric", "1500", "\"1.5e3\""));
    assert_true(passes("numeric", "0.5", "\".5\""));
    assert_false(passes("numeric", "12", "\"1,2\"")); /* no group of three: two numbers */
    assert_false(passes("numeric", "4", "\"gpt4\""));
    assert_false(passes("numeric", "4", "\"four\""));
    assert_false(passes("numeric", "4", "null"));
}

static void the_last_number_counts(void **state)
{
    assert_true(passes("numeric", "7", "\"3 apples and 4 pears are 7 fruits\""));
    assert_false(passes("numeric", "3", "\"3 apples and 4 pears\""));
}

static void a_percentage_may_be_a_fraction_or_a_number(void **state)
{
    assert_true(passes("numeric", "0.125", "\"12.5 %\""));
    assert_true(passes("numeric", "12.5", "\"12.5%\""));
    assert_true(passes("numeric", "\"12.5%\"", "0.125"));
    assert_false(passes("numeric", "0.125", "12.5"));
    assert_false(passes("numeric", "\"12.5%\"", "\"0.125%\""));
}

static void tolerance_is_absolute_or_a_part(void **state)
{
    assert_true(passes("numeric", "0.3", "0.30000000000000004"));
    assert_false(passes("numeric", "100", "100.5"));
    assert_true(passes("numeric:0.5", "100", "100.5"));
    assert_false(passes("numeric:0.5", "100", "100.6"));
    assert_true(passes("numeric:1%", "100", "101"));
    assert_false(passes("numeric:1%", "100", "101.1"));
    assert_true(passes("numeric:0", "2", "2.0"));
}

static void what_is_no_grader_is_refused(void **state)
{
    static const char *const words[] = { "", "exactly", "exact:1", "numeric:", "numeric:x",
        "numeric:-1", "numeric:1%%", "numeric:inf", "program", "program:", "contains:x" };
    struct grader g;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        assert_fails(ERROR_ARGUMENT, grader_parse(words[i], &g, err));
    assert_ok(grader_parse("program:./g", &g, err));
    assert_string_equal(g.program, "./g");
}

/* A file of tasks may come from a stranger. */
static void a_task_names_no_program(void **state)
{
    struct grader program, g;
    assert_ok(grader_parse("program:./g", &program, err));
    assert_fails(ERROR_ARGUMENT, grader_of_task("program:/bin/sh", &program, &g, err));
    assert_fails(ERROR_ARGUMENT, grader_of_task("program", NULL, &g, err));
    assert_ok(grader_of_task("program", &program, &g, err));
    assert_string_equal(g.program, "./g");
    assert_ok(grader_of_task("numeric:1%", NULL, &g, err));
}

static void what_cannot_be_compared_with_is_refused(void **state)
{
    static const char *const numbers[] = { "\"none\"", "null", "[]", "[[1]]", "{\"n\":1}",
        "[1,\"x\"]" };
    struct grader g;
    assert_ok(grader_parse("numeric", &g, err));
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        cleanup_json struct json_object *e = NULL;
        assert_ok(json_parse(numbers[i], strlen(numbers[i]), &json_limits_small, &e, err));
        assert_fails(ERROR_ARGUMENT, grader_check_expected(&g, e, err));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exact_is_the_same_text_but_for_case_and_space),
        cmocka_unit_test(exact_compares_numbers_as_numbers),
        cmocka_unit_test(what_stands_alone_is_the_answer),
        cmocka_unit_test(of_a_list_one_will_do),
        cmocka_unit_test(contains_looks_for_the_text),
        cmocka_unit_test(numbers_are_read_as_people_write_them),
        cmocka_unit_test(the_last_number_counts),
        cmocka_unit_test(a_percentage_may_be_a_fraction_or_a_number),
        cmocka_unit_test(tolerance_is_absolute_or_a_part),
        cmocka_unit_test(what_is_no_grader_is_refused),
        cmocka_unit_test(a_task_names_no_program),
        cmocka_unit_test(what_cannot_be_compared_with_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
