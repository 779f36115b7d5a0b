/* The answer of a submission, with and without a schema, and of plain text. */
#include "../test.h"

#include "base/cleanup.h"
#include "session/answer.h"

static const char object[] = "{\"properties\":{\"answer\":{\"type\":\"integer\"}}}";
static const char list[] = "{\"type\":\"array\"}";

static struct schema *schema_of(const char *text)
{
    struct schema *s = NULL;
    if (text)
        assert_ok(schema_parse(text, strlen(text), &s, err));
    return s;
}

static void a_value_that_stands_alone_is_the_answer(void **state)
{
    static const struct {
        const char *schema, *submit, *answer;
    } cases[] = {
        { NULL, "{\"answer\": 5}", "5" },
        { NULL, "{ \"output\" : [1, 2] } ", "[1,2]" },
        { NULL, "{\"answer\": 1180591620717411303424}", "1180591620717411303424" },
        { NULL, "{\"answer\": \"a\\\"}\"}", "\"a\\\"}\"" },
        { NULL, "{\"answer\": 1, \"output\": 2}", "{\"answer\":1,\"output\":2}" },
        { NULL, "{\"answer\": {\"answer\": 1}}", "{\"answer\":1}" },
        { NULL, "{\"answers\": 1}", "{\"answers\":1}" },
        { NULL, "{\"value\": 1}", "{\"value\":1}" },
        { NULL, "{}", "{}" },
        { list, "{\"output\": []}", "[]" },
        { object, "{\"answer\": 5}", "{\"answer\":5}" },
        { NULL, "{\"answer\": \"a b\\\\\" , \"b\":\n1}", "{\"answer\":\"a b\\\\\",\"b\":1}" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct schema *s = schema_of(cases[i].schema);
        cleanup_free char *answer = answer_of(cases[i].submit, strlen(cases[i].submit), s);
        assert_string_equal(answer, cases[i].answer);
        schema_drop(s);
    }
}

static int check(const char *schema, const char *submit, struct error *err)
{
    struct schema *s = schema_of(schema);
    int rc = answer_check(s, submit, strlen(submit), err);
    schema_drop(s);
    return rc;
}

static void the_answer_is_what_must_fit(void **state)
{
    assert_ok(check(object, "{\"answer\": 5}", err));
    assert_fails(ERROR_ARGUMENT, check(object, "{\"answer\": \"5\"}", err));
    assert_ok(check(list, "{\"answer\": [5]}", err));
    assert_ok(check(list, "{\"output\": [5]}", err));
    assert_fails(ERROR_ARGUMENT, check(list, "{\"output\": 5}", err));
    assert_fails(ERROR_ARGUMENT, check(list, "{\"a\": [], \"b\": []}", err));
    assert_ok(check(list, "{\"output\": [1180591620717411303424]}", err));
}

static void words_are_json_or_a_string(void **state)
{
    static const struct {
        const char *schema, *words, *answer;
    } cases[] = {
        { NULL, "[1]", "\"[1]\"" },
        { list, "[1]", "[1]" },
        { list, " [1]\n", "[1]" },
        { list, "```json\n[1]\n```", "[1]" },
        { list, "Here it is:\n```\n[1]\n```\nThat is all.", "[1]" },
        { list, "one", NULL },
        { list, "```json\n[1]", NULL },
        { list, "```", NULL },
        { "{\"type\":\"string\"}", "one", "\"one\"" },
        { "{\"type\":\"string\"}", "\"one\"", "\"one\"" },
        { "{\"type\":\"string\"}", "42", "\"42\"" },
        { "{\"enum\":[42]}", "42", "42" },
        { "{\"enum\":[\"a\"]}", "b", NULL },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct schema *s = schema_of(cases[i].schema);
        cleanup_free char *answer = NULL;
        struct error err = { 0 };
        int rc = answer_from_words(s, cases[i].words, strlen(cases[i].words), &answer, &err);
        schema_drop(s);
        if (!cases[i].answer) {
            assert_true(rc < 0 && !answer && err.text[0]);
            continue;
        }
        assert_int_equal(rc, 0);
        assert_string_equal(answer, cases[i].answer);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_value_that_stands_alone_is_the_answer),
        cmocka_unit_test(the_answer_is_what_must_fit),
        cmocka_unit_test(words_are_json_or_a_string),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
