/* Schemas: for each keyword a matching value and a failing one with its error; refused schemas; and
 * bounded time. */
#include "../test.h"

#include "base/buf.h"
#include "base/json/schema.h"

static struct schema *schema_of(const char *text)
{
    struct schema *s = NULL;
    assert_ok(schema_parse(text, strlen(text), &s, err));
    return s;
}

/* What is wrong with the value; "" if nothing is. */
static const char *complaint(const char *schema, const char *value)
{
    static struct error why;
    struct schema *s = schema_of(schema);
    cleanup_json struct json_object *o = NULL;
    assert_ok(json_parse(value, strlen(value), &json_limits_large, &o, err));
    why = (struct error){ 0 };
    int rc = schema_check(s, o, &why);
    assert_int_equal(rc, -(int)why.code);
    schema_drop(s);
    return why.text;
}

static void each_keyword_tells_what_fits_from_what_does_not(void **state)
{
    static const struct {
        const char *schema, *fits, *not, *why;
    } cases[] = {
        { "{\"type\":\"string\"}", "\"a\"", "1", "expected a string, not an integer" },
        { "{\"type\":\"integer\"}", "1.0", "1.5", "expected an integer, not a number" },
        { "{\"type\":\"integer\"}", "-9223372036854775808", "true", "not true or false" },
        { "{\"type\":\"number\"}", "1.5", "\"1\"", "expected a number, not a string" },
        { "{\"type\":[\"null\",\"array\"]}", "null", "{}",
            "expected null or a list, not an object" },
        { "{\"const\":{\"a\":[1]}}", "{\"a\":[1.0]}", "{\"a\":[2]}", "expected {\"a\":[1]}" },
        { "{\"enum\":[\"a\",2]}", "2.0", "\"b\"", "expected one of \"a\", 2, not \"b\"" },
        { "{\"required\":[\"a\",\"b\"]}", "{\"a\":1,\"b\":2}", "{\"c\":1}", "lacks 'a', 'b'" },
        { "{\"properties\":{\"a\":{\"type\":\"null\"}}}", "{\"b\":1}", "{\"a\":1}",
            "at /a: expected null" },
        { "{\"additionalProperties\":false,\"properties\":{\"a\":true}}", "{\"a\":1}", "{\"b\":1}",
            "has the unknown member 'b'" },
        { "{\"additionalProperties\":{\"type\":\"null\"},\"patternProperties\":{\"^x\":true}}",
            "{\"x1\":1,\"b\":null}", "{\"b\":1}", "at /b: expected null" },
        { "{\"patternProperties\":{\"^n\":{\"type\":\"null\"}}}", "{\"m\":1}", "{\"n~/\":1}",
            "at /n~0~1: expected null" },
        { "{\"propertyNames\":{\"maxLength\":1}}", "{\"a\":1}", "{\"ab\":1}",
            "at most 1 characters" },
        { "{\"minProperties\":1}", "{\"a\":1}", "{}", "expected at least 1 properties, not 0" },
        { "{\"maxProperties\":1}", "{\"a\":1}", "{\"a\":1,\"b\":1}",
            "at most 1 properties, not 2" },
        { "{\"items\":{\"type\":\"null\"}}", "[null]", "[null,1]", "at /1: expected null" },
        { "{\"prefixItems\":[{\"type\":\"null\"}],\"items\":false}", "[null]", "[null,1]",
            "has 2 items, more than the 1 allowed" },
        { "{\"prefixItems\":[true,{\"type\":\"null\"}]}", "[1,null,3]", "[1,2]",
            "at /1: expected null" },
        { "{\"minItems\":2}", "[1,2]", "[1]", "at least 2 items, not 1" },
        { "{\"maxItems\":1}", "[1]", "[1,2]", "at most 1 items, not 2" },
        { "{\"uniqueItems\":true}", "[1,\"1\",true]", "[{\"a\":1},2,{\"a\":1.0}]",
            "items 0 and 2 are equal" },
        { "{\"uniqueItems\":false}", "[1,1]", NULL, NULL },
        { "{\"minimum\":1}", "1", "0.9", "of at least 1, not 0.9" },
        { "{\"maximum\":1}", "1.0", "2", "of at most 1, not 2" },
        { "{\"maximum\":18446744073709551614}", "18446744073709551614", "18446744073709551615",
            "at most" },
        { "{\"exclusiveMinimum\":1}", "1.1", "1", "above 1, not 1" },
        { "{\"exclusiveMaximum\":1}", "0", "1", "below 1, not 1" },
        { "{\"multipleOf\":0.1}", "0.3", "0.35", "a multiple of 0.1" },
        { "{\"minLength\":2}", "\"\xC3\xA9\xC3\xA9\"", "\"\xC3\xA9\"",
            "at least 2 characters, not 1" },
        { "{\"maxLength\":1}", "\"\xF0\x9F\x99\x82\"", "\"ab\"", "at most 1 characters, not 2" },
        { "{\"pattern\":\"^\\\\d+$\"}", "\"12\"", "\"1a\"", "matches the pattern ^\\d+$" },
        { "{\"allOf\":[{\"minimum\":1},{\"maximum\":2}]}", "2", "3", "of at most 2" },
        { "{\"anyOf\":[{\"type\":\"null\"},{\"minimum\":1}]}", "null", "0",
            "expected null, not an integer" },
        { "{\"anyOf\":[{\"type\":\"null\"},{\"properties\":{\"a\":{\"type\":\"null\"}}}]}", "{}",
            "{\"a\":1}", "at /a: expected null" },
        { "{\"oneOf\":[{\"minimum\":1},{\"maximum\":2}]}", "3", "2",
            "matches 2 alternatives of oneOf" },
        { "{\"not\":{\"type\":\"null\"}}", "1", "null", "the schema that `not` forbids" },
        { "{\"$ref\":\"#/$defs/a~1b%25\",\"$defs\":{\"a/b%\":{\"type\":\"null\"}}}", "null", "1",
            "expected null" },
        { "{\"properties\":{\"next\":{\"$ref\":\"#\"}},\"required\":[\"n\"]}",
            "{\"n\":1,\"next\":{\"n\":2}}", "{\"n\":1,\"next\":{}}", "at /next: lacks 'n'" },
        { "{\"definitions\":{\"a\":false},\"properties\":{\"x\":{\"$ref\":\"#/definitions/a\"}}}",
            "{}", "{\"x\":1}", "at /x: no value is allowed here" },
        { "true", "1", NULL, NULL },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *why = complaint(cases[i].schema, cases[i].fits);
        if (why[0])
            fail_msg("%s of %s: %s", cases[i].schema, cases[i].fits, why);
        if (!cases[i].not )
            continue;
        why = complaint(cases[i].schema, cases[i].not );
        if (!why[0] || !strstr(why, cases[i].why))
            fail_msg("%s of %s: '%s'", cases[i].schema, cases[i].not, why);
    }
}

/* A keyword speaks of one kind of value; it says nothing of others. */
static void keywords_let_other_kinds_of_values_pass(void **state)
{
    static const char schema[] =
        "{\"required\":[\"a\"],\"minItems\":2,\"minLength\":2,\"minimum\":2,\"pattern\":\"x\"}";
    static const char *const fit[] = { "null", "true", "{\"a\":1}", "[1,2]", "\"ax\"", "2" };
    for (size_t i = 0; i < sizeof fit / sizeof *fit; i++)
        assert_string_equal(complaint(schema, fit[i]), "");
}

static void what_only_describes_changes_nothing(void **state)
{
    static const char schema[] =
        "{\"$schema\":\"https://json-schema.org/draft/2020-12/schema\",\"$id\":\"x\",\"title\":1,"
        "\"description\":2,\"default\":3,\"examples\":4,\"format\":\"email\",\"x-mine\":5,"
        "\"readOnly\":true,\"$comment\":6,\"type\":\"string\"}";
    assert_string_equal(complaint(schema, "\"no address\""), "");
    assert_string_not_equal(complaint(schema, "1"), "");
}

static void what_would_change_the_outcome_is_refused_by_name(void **state)
{
    static const struct {
        const char *schema, *why;
    } cases[] = {
        { "{\"if\":{}}", "'if' is not supported" },
        { "{\"properties\":{\"a\":{\"contains\":{}}}}", "'contains' is not supported" },
        { "{\"unevaluatedProperties\":false}", "'unevaluatedProperties'" },
        { "{\"requird\":[]}", "'requird'" },
        { "{\"items\":[{}]}", "'items' must be a schema" },
        { "{\"type\":\"str\"}", "'type' must be" },
        { "{\"type\":[]}", "'type' must be" },
        { "{\"enum\":1}", "'enum' must be" },
        { "{\"required\":true}", "'required' must be" },
        { "{\"properties\":[]}", "'properties' must be" },
        { "{\"anyOf\":[]}", "'anyOf' must be" },
        { "{\"minLength\":-1}", "'minLength' must be" },
        { "{\"minimum\":\"1\"}", "'minimum' must be" },
        { "{\"exclusiveMinimum\":true}", "'exclusiveMinimum' must be" },
        { "{\"multipleOf\":0}", "'multipleOf' must be" },
        { "{\"uniqueItems\":1}", "'uniqueItems' must be" },
        { "{\"pattern\":\"(?i)x\"}",
            "(?i)x: it has a kind of group that ECMA-262 does not define" },
        { "{\"$ref\":\"https://x/y\"}", "'$ref' must be" },
        { "{\"$ref\":\"#name\"}", "'$ref' must be" },
        { "{\"$ref\":\"#/$defs/b\",\"$defs\":{\"a\":{}}}", "does not lead to a schema" },
        { "{\"$ref\":\"#/enum/0\",\"enum\":[{\"requird\":1}]}", "does not lead to a schema" },
        { "{\"$schema\":\"http://json-schema.org/draft-04/schema#\"}",
            "'$schema' must be draft 2020-12" },
        { "{\"properties\":{\"a\":{\"$id\":\"x\"}}}", "'$id' must be" },
        { "[]", "a schema" },
        { "{", "the schema: JSON is invalid" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct schema *s = NULL;
        struct error err = { 0 };
        int rc = schema_parse(cases[i].schema, strlen(cases[i].schema), &s, &err);
        if (rc != -(int)ERROR_ARGUMENT || !strstr(err.text, cases[i].why))
            fail_msg("%s gave %d: %s", cases[i].schema, rc, err.text);
    }
}

static void names_are_the_properties_of_an_object(void **state)
{
    static const struct {
        const char *schema, *names;
    } cases[] = {
        { "{\"type\":\"object\",\"properties\":{\"b\":{},\"a\":{}}}", "b a " },
        { "{\"properties\":{\"b\":{}}}", "b " },
        { "{\"$ref\":\"#/$defs/x\",\"$defs\":{\"x\":{\"properties\":{\"c\":{}}}}}", "c " },
        { "{\"type\":\"object\"}", "" },
        { "{\"type\":[\"object\",\"null\"],\"properties\":{\"b\":{}}}", "" },
        { "{\"type\":\"array\"}", "" },
        { "true", "" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct schema *s = schema_of(cases[i].schema);
        cleanup_buf struct buf found = { 0 };
        size_t count = 0;
        const char *const *names = schema_names(s, &count);
        for (size_t k = 0; k < count; k++)
            buf_printf(&found, "%s ", names[k]);
        assert_string_equal(buf_text(&found), cases[i].names);
        schema_drop(s);
    }
}

static void no_check_goes_on_for_ever(void **state)
{
    assert_string_equal(
        complaint("{\"$ref\":\"#\"}", "1"), "the schema refers to itself endlessly");
    assert_string_equal(
        complaint("{\"not\":{\"$ref\":\"#\"}}", "1"), "the schema refers to itself endlessly");
    /* Each level doubles the work. */
    assert_string_equal(
        complaint("{\"$ref\":\"#/$defs/a\",\"$defs\":{\"a\":{\"anyOf\":[{\"allOf\":["
                  "{\"$ref\":\"#/$defs/b\"},false]},{\"$ref\":\"#/$defs/b\"}]},\"b\":{\"anyOf\":"
                  "[{\"items\":{\"$ref\":\"#/$defs/a\"}},{\"items\":{\"$ref\":\"#/$defs/a\"}}],"
                  "\"type\":\"array\"}}}",
            "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]"),
        "checking the value against the schema takes too long");
}

static void many_equal_items_do_not_keep_the_host(void **state)
{
    struct buf list = { 0 };
    buf_putc(&list, '[');
    for (int i = 0; i < 20000; i++)
        buf_printf(&list, "%s%d", i ? "," : "", i);
    buf_putc(&list, ']');
    assert_string_equal(complaint("{\"uniqueItems\":true}", buf_text(&list)),
        "checking the value against the schema takes too long");
    assert_string_equal(complaint("{\"uniqueItems\":false}", buf_text(&list)), "");
    buf_free(&list);
}

/* Where a match was stopped, it is not known whether the value fits, whatever is around the
 * pattern: a keyword `not` does not make a fit of it. */
static void a_match_that_was_stopped_is_no_mismatch(void **state)
{
    static const char *const schemas[] = { "{\"pattern\":\"^(a+)+$\"}",
        "{\"not\":{\"pattern\":\"^(a+)+$\"}}", "{\"anyOf\":[{\"pattern\":\"^(a+)+$\"},true]}" };
    const char *value = "\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab\"";
    for (size_t i = 0; i < sizeof schemas / sizeof *schemas; i++)
        assert_non_null(strstr(complaint(schemas[i], value), "stopped at its limit of steps"));
    assert_string_equal(complaint(schemas[0], "\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\""), "");
    assert_string_equal(complaint(schemas[1], "\"baaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\""), "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_keyword_tells_what_fits_from_what_does_not),
        cmocka_unit_test(keywords_let_other_kinds_of_values_pass),
        cmocka_unit_test(what_only_describes_changes_nothing),
        cmocka_unit_test(a_match_that_was_stopped_is_no_mismatch),
        cmocka_unit_test(what_would_change_the_outcome_is_refused_by_name),
        cmocka_unit_test(names_are_the_properties_of_an_object),
        cmocka_unit_test(no_check_goes_on_for_ever),
        cmocka_unit_test(many_equal_items_do_not_keep_the_host),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
