/* Schemas of tools, and arguments that a hostile guest may send. */
#include "../test.h"

#include "base/cleanup.h"
#include "broker/tool_schema.h"

static struct json_object *parse(const char *text)
{
    struct json_object *value = NULL;
    assert_ok(json_parse(text, strlen(text), &json_limits_small, &value, err));
    return value;
}

static void schema_is(const char *text, const char *complaint)
{
    struct error err = { 0 };
    cleanup_json struct json_object *schema = parse(text);
    int rc = tool_schema_check(schema, &err);
    if (!complaint && rc < 0)
        fail_msg("%s: %s", text, err.text);
    if (complaint && (rc != -ERROR_ARGUMENT || !strstr(err.text, complaint)))
        fail_msg("%s: %d, %s", text, rc, err.text);
}

/* NULL: they fit. */
static void arguments_are(const char *schema_text, const char *text, const char *complaint)
{
    struct error err = { 0 };
    cleanup_json struct json_object *schema = parse(schema_text), *arguments = parse(text);
    int rc = tool_schema_fits(schema, arguments, &err);
    if (!complaint && rc < 0)
        fail_msg("%s: %s", text, err.text);
    if (complaint && (rc != -ERROR_ARGUMENT || !strstr(err.text, complaint)))
        fail_msg("%s: %d, %s", text, rc, err.text);
}

static void a_schema_describes_an_object(void **state)
{
    schema_is("{}", NULL);
    schema_is("{\"type\": \"object\"}", NULL);
    schema_is("{\"type\": \"array\"}", "a JSON schema of an object");
    schema_is("[]", "a JSON schema of an object");
    schema_is("true", "a JSON schema of an object");
    schema_is("{\"properties\": []}", "`properties` must be an object");
    schema_is("{\"required\": \"a\"}", "`required` must be an array");
    schema_is("{\"properties\": {}, \"required\": []}", NULL);
}

static void each_parameter_has_known_types(void **state)
{
    schema_is("{\"properties\": {\"a\": {\"type\": \"integer\"}, \"b\": true, \"c\": {}}}", NULL);
    schema_is("{\"properties\": {\"a\": {\"type\": [\"integer\", \"null\"]}}}", NULL);
    schema_is("{\"properties\": {\"a\": {\"type\": \"int\"}}}", "'a' has an unknown type");
    schema_is("{\"properties\": {\"a\": {\"type\": [\"integer\", 1]}}}", "'a' has an unknown");
    schema_is("{\"properties\": {\"a\": {\"type\": []}}}", "'a' has an unknown type");
    schema_is("{\"properties\": {\"a\": {\"type\": 1}}}", "'a' has an unknown type");
    schema_is("{\"properties\": {\"a\": \"integer\"}}", "'a' is not a schema");
}

/* Keywords of other dialects are the tool's own matter. */
static void unknown_keywords_are_accepted(void **state)
{
    schema_is("{\"$defs\": 1, \"properties\": {\"a\": {\"format\": \"date\"}}}", NULL);
}

static const char search[] = "{\"properties\": {\"query\": {\"type\": \"string\"}, "
                             "\"limit\": {\"type\": [\"integer\", \"null\"]}, "
                             "\"order\": {\"enum\": [\"up\", 2, null]}, \"any\": true}, "
                             "\"required\": [\"query\"]}";

static void arguments_have_the_types_of_the_schema(void **state)
{
    arguments_are(search, "{\"query\": \"x\"}", NULL);
    arguments_are(search, "{\"query\": \"x\", \"limit\": null, \"any\": [{}]}", NULL);
    arguments_are(search, "{\"query\": 1}", "'query' must be of type string");
    arguments_are(search, "{\"query\": null}", "'query' must be of type string");
    arguments_are(search, "{\"query\": \"\", \"limit\": 1.5}", "'limit' must be of type [");
    arguments_are(search, "{\"query\": \"\", \"limit\": true}", "'limit' must be of type [");
}

static void arguments_are_of_the_enumeration(void **state)
{
    arguments_are(search, "{\"query\": \"\", \"order\": \"up\"}", NULL);
    arguments_are(search, "{\"query\": \"\", \"order\": null}", NULL);
    arguments_are(search, "{\"query\": \"\", \"order\": 2}", NULL);
    arguments_are(search, "{\"query\": \"\", \"order\": \"2\"}", "'order' must be one of [");
    arguments_are("{\"properties\": {\"a\": {\"enum\": []}}}", "{\"a\": 1}", "must be one of [");
}

static void missing_and_unknown_arguments_are_named(void **state)
{
    arguments_are(search, "{}", "'query' is missing");
    arguments_are(search, "{\"query\": \"\", \"extra\": 1}", "no parameter 'extra'");
    arguments_are("{\"required\": [\"a\", \"a\", 3]}", "{\"a\": 1, \"3\": 0}", NULL);
    arguments_are("{\"required\": [\"a\"]}", "{\"b\": 1}", "'a' is missing");
}

/* Only `true` opens a schema that names parameters; one that names none is open. */
static void additional_arguments_must_be_allowed(void **state)
{
    arguments_are("{}", "{\"a\": 1}", NULL);
    arguments_are("{\"properties\": {}}", "{\"a\": 1}", "no parameter 'a'");
    arguments_are("{\"properties\": {}, \"additionalProperties\": true}", "{\"a\": 1}", NULL);
    arguments_are("{\"properties\": {}, \"additionalProperties\": false}", "{\"a\": 1}", "'a'");
    arguments_are("{\"properties\": {}, \"additionalProperties\": {}}", "{\"a\": 1}", "'a'");
}

static void is_plain(const char *text, const char *complaint)
{
    struct error err = { 0 };
    cleanup_json struct json_object *arguments = parse(text);
    int rc = tool_arguments_are_plain(text, strlen(text), arguments, &err);
    if (!complaint && rc < 0)
        fail_msg("%s: %s", text, err.text);
    if (complaint && (rc != -ERROR_ARGUMENT || !strstr(err.text, complaint)))
        fail_msg("%s: %d, %s", text, rc, err.text);
}

/* Parsers disagree about which of two equal names counts, however they are spelled. */
static void a_name_stands_once(void **state)
{
    is_plain("{}", NULL);
    is_plain("{\"a\": 1, \"b\": {\"a\": 1, \"c\": [\"a\", {\"a\": 2}]}}", NULL);
    is_plain("{\"a\": 1, \"a\": 2}", "given twice");
    is_plain("{\"a\": 1, \"\\u0061\": 2}", "given twice");
    is_plain("{\"a\": \"\\\"}: \", \"b\": \": {\"}", NULL);
    is_plain("{\"a\\\"\": 1, \"a\\\\\": 2}", NULL);
}

/* A name with a zero byte ends there for a program in C. */
static void a_name_has_no_zero_byte(void **state)
{
    is_plain("{\"a\\u0000b\": 1}", "zero byte");
    is_plain("{\"a\": \"\\u0000\", \"b\": [\"\\u0000\"]}", NULL);
    is_plain("{\"a\\\\u0000\": 1}", NULL); /* a backslash, and letters */
    is_plain("{\"a\": {\"\\u0000\": 1}}", NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_schema_describes_an_object),
        cmocka_unit_test(each_parameter_has_known_types),
        cmocka_unit_test(unknown_keywords_are_accepted),
        cmocka_unit_test(arguments_have_the_types_of_the_schema),
        cmocka_unit_test(arguments_are_of_the_enumeration),
        cmocka_unit_test(missing_and_unknown_arguments_are_named),
        cmocka_unit_test(additional_arguments_must_be_allowed),
        cmocka_unit_test(a_name_stands_once),
        cmocka_unit_test(a_name_has_no_zero_byte),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
