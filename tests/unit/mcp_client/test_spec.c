/* How a setting says where an MCP server is: words, objects, variables, and what a record keeps. */
#include "../test.h"

#include "base/cleanup.h"
#include "base/list.h"
#include "mcp_client/spec.h"

static void words_are_quoted_as_in_a_shell(void **state)
{
    struct mcp_spec spec;
    assert_ok(mcp_spec_parse("a=one 'two  2' \"th\\\"ree\" fo\\ ur '' e\"x\"'y'", &spec, err));
    const char *const expected[] = { "one", "two  2", "th\"ree", "fo ur", "", "exy" };
    assert_string_equal(spec.name, "a");
    assert_null(spec.url);
    assert_int_equal(spec.words.count, array_length(expected));
    for (size_t i = 0; i < array_length(expected); i++)
        assert_string_equal(spec.words.items[i], expected[i]);
    mcp_spec_free(&spec);
}

static void objects_are_those_of_agents(void **state)
{
    struct mcp_spec spec, copy;
    assert_ok(mcp_spec_parse("a= {\"command\":\"x\",\"args\":[\"-y\",\"b c\"],\"type\":\"stdio\","
                             "\"env\":{\"K\":\"v=1\"}}",
        &spec, err));
    assert_ok(mcp_spec_copy(&copy, &spec, err));
    mcp_spec_free(&spec);
    assert_int_equal(copy.words.count, 3);
    assert_string_equal(copy.words.items[2], "b c");
    assert_string_equal(copy.environment.items[0], "K=v=1");
    mcp_spec_free(&copy);
    assert_ok(
        mcp_spec_parse("a={\"url\":\"https://h/x\",\"headers\":{\"X-Key\":\"${K}\"}}", &spec, err));
    assert_string_equal(spec.url, "https://h/x");
    assert_string_equal(spec.headers.items[0], "X-Key: ${K}");
    mcp_spec_free(&spec);
}

static void what_cannot_be_meant_is_refused(void **state)
{
    static const char *const wrong[] = { "", "a", "=x", "a=", "a=   ", "a b=x", "1a=x", "if=x",
        "a='x", "a=\"x", "a=x\\", "a={", "a={\"command\":1}", "a={\"args\":[]}",
        "a={\"command\":\"x\",\"args\":[null]}", "a={\"command\":\"x\",\"args\":\"y\"}",
        "a={\"command\":\"x\",\"env\":{\"A=B\":\"c\"}}", "a={\"command\":\"x\",\"env\":{\"A\":1}}",
        "a={\"url\":\"http://h\",\"headers\":{\"A\":\"b\\r\\nC: d\"}}",
        "a={\"url\":\"http://h\",\"headers\":{\"A\":\"b\\u0000\"}}" };
    for (size_t i = 0; i < array_length(wrong); i++) {
        struct mcp_spec spec;
        struct error why = { 0 };
        if (mcp_spec_parse(wrong[i], &spec, &why) == 0)
            fail_msg("accepted: %s", wrong[i]);
    }
}

static void a_record_has_references_and_no_other_values(void **state)
{
    static const struct {
        const char *value, *expected;
    } cases[] = {
        { "a=prog --flag", "a=prog --flag" },
        { "a={\"command\":\"x\",\"env\":{\"A\":\"secret\",\"B\":\"${B}\",\"C\":\"${C:-secret}\"}}",
            "a={\"command\":\"x\",\"env\":{\"A\":null,\"B\":\"${B}\",\"C\":null}}" },
        { "a={\"url\":\"u\",\"headers\":{\"A\":\"Bearer ${T}\",\"B\":\"Bearer ${T}secret\"}}",
            "a={\"url\":\"u\",\"headers\":{\"A\":\"Bearer ${T}\",\"B\":null}}" },
        { "a={\"command\":\"secret", "a=" },
    };
    for (size_t i = 0; i < array_length(cases); i++) {
        cleanup_buf struct buf out = { 0 };
        mcp_spec_write_public(cases[i].value, &out);
        cleanup_buf struct buf plain = { 0 };
        for (size_t k = 0; k < out.len; k++)
            if (out.data[k] != ' ' || cases[i].value[2] != '{')
                buf_putc(&plain, out.data[k]);
        cleanup_buf struct buf expected = { 0 };
        for (const char *p = cases[i].expected; *p; p++)
            if (*p != ' ' || cases[i].value[2] != '{')
                buf_putc(&expected, *p);
        assert_string_equal(buf_text(&plain), buf_text(&expected));
    }
}

static void variables_are_expanded_once_and_missing_ones_named(void **state)
{
    cleanup_buf struct buf out = { 0 };
    setenv("DROSTE_TEST_A", "1${DROSTE_TEST_B}", 1);
    unsetenv("DROSTE_TEST_B");
    assert_ok(mcp_spec_expand("x${DROSTE_TEST_A}y${DROSTE_TEST_B:-z}${", &out, err));
    assert_string_equal(buf_text(&out), "x1${DROSTE_TEST_B}yz${");
    assert_fails(ERROR_CONFIG, mcp_spec_expand("${DROSTE_TEST_B}", &out, err));
}

static void a_program_gets_the_usual_variables_and_its_own(void **state)
{
    struct mcp_spec spec;
    struct list list = { 0 };
    setenv("OPENAI_API_KEY", "sk-1", 1);
    setenv("HOME", "/root", 1);
    assert_ok(
        mcp_spec_parse("a={\"command\":\"x\",\"env\":{\"HOME\":\"/h\",\"K\":\"v\"}}", &spec, err));
    assert_ok(mcp_spec_environment(&spec, &list, err));
    unsigned homes = 0, own = 0;
    for (size_t i = 0; i < list.count; i++) {
        assert_null(strstr(list.items[i], "sk-1"));
        homes += strncmp(list.items[i], "HOME=", 5) == 0;
        own += strcmp(list.items[i], "K=v") == 0 || strcmp(list.items[i], "HOME=/h") == 0;
    }
    assert_int_equal(homes, 1);
    assert_int_equal(own, 2);
    list_clear(&list);
    mcp_spec_free(&spec);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_are_quoted_as_in_a_shell),
        cmocka_unit_test(objects_are_those_of_agents),
        cmocka_unit_test(what_cannot_be_meant_is_refused),
        cmocka_unit_test(a_record_has_references_and_no_other_values),
        cmocka_unit_test(variables_are_expanded_once_and_missing_ones_named),
        cmocka_unit_test(a_program_gets_the_usual_variables_and_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
