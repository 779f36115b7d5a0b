/* Sampling parameters: the providers' names for them, and what is refused before a model is
 * called. */
#include "../test.h"

#include <stdarg.h>

#include "base/cleanup.h"
#include "base/json/json.h"
#include "lm/sampling.h"

static int parse(const char *const *words, enum sampling_names names, double *temperature,
    struct buf *members, struct error *err)
{
    struct list pairs = { 0 };
    struct sampling s;
    for (size_t i = 0; words[i]; i++)
        assert_int_equal(list_add(&pairs, words[i], err), 0);
    int rc = sampling_parse(&pairs, names, "this provider", &s, err);
    *temperature = s.temperature;
    buf_puts(members, buf_text(&s.members));
    sampling_free(&s);
    list_clear(&pairs);
    return rc;
}

/* The members that such settings give; they are JSON. */
static void assert_members(enum sampling_names names, const char *expected, ...)
{
    const char *words[8] = { NULL };
    cleanup_buf struct buf members = { 0 }, object = { 0 };
    double temperature;
    va_list list;
    va_start(list, expected);
    for (size_t i = 0; i < 7 && (words[i] = va_arg(list, const char *)); i++)
        continue;
    va_end(list);
    assert_ok(parse(words, names, &temperature, &members, err));
    assert_string_equal(buf_text(&members), expected);
    buf_printf(&object, "{\"a\":1%s}", buf_text(&members));
    assert_ok(json_check(object.data, object.len, &json_limits_small, err));
}

static int parse_one(const char *word, enum sampling_names names, struct error *err)
{
    cleanup_buf struct buf members = { 0 };
    double temperature;
    return parse((const char *[]){ word, NULL }, names, &temperature, &members, err);
}

/* Nothing given is nothing sent, and no temperature. */
static void nothing_is_the_providers_default(void **state)
{
    struct sampling s;
    assert_ok(sampling_parse(NULL, SAMPLING_OPENAI, "OpenAI", &s, err));
    assert_true(s.temperature < 0);
    assert_int_equal(s.members.len, 0);
    sampling_free(&s);
}

/* Each dialect has its own names. */
static void each_dialect_has_its_names(void **state)
{
    assert_members(SAMPLING_OPENAI, ",\"top_p\":0.5,\"seed\":7", "top_p=0.5", "seed=7", NULL);
    assert_members(
        SAMPLING_ANTHROPIC, ",\"top_p\":0.5,\"top_k\":40", "top_p=0.5", "top_k=40", NULL);
    assert_members(SAMPLING_GEMINI, ",\"topP\":0.5,\"presencePenalty\":1", "top_p=0.5",
        "presence_penalty=1", NULL);
    assert_members(SAMPLING_OPENAI, ",\"min_p\":0.1", "min_p=0.1", NULL);
}

/* A value is JSON, else a text; '=' may be in it. */
static void a_value_is_json_or_text(void **state)
{
    assert_members(SAMPLING_OPENAI,
        ",\"a\":true,\"b\":{\"x\":[1]},\"c\":\"a=\\\"b\\\"\",\"d\":\"\"", "a=true", "b={\"x\":[1]}",
        "c=a=\"b\"", "d=", NULL);
}

/* Where a provider takes a list, a single text becomes one, also if it begins like a list. */
static void a_single_text_becomes_a_list(void **state)
{
    assert_members(SAMPLING_OPENAI, ",\"stop\":\"END\"", "stop=END", NULL);
    assert_members(SAMPLING_ANTHROPIC, ",\"stop_sequences\":[\"END\"]", "stop=END", NULL);
    assert_members(SAMPLING_GEMINI, ",\"stopSequences\":[\"a\",\"b\"]", "stop=[\"a\",\"b\"]", NULL);
    assert_members(SAMPLING_ANTHROPIC, ",\"stop_sequences\":[\"[END\"]", "stop=[END", NULL);
}

/* Of one parameter the last setting counts: no member is sent twice. */
static void the_last_of_several_counts(void **state)
{
    cleanup_buf struct buf members = { 0 };
    double temperature = 0;
    assert_members(
        SAMPLING_OPENAI, ",\"top_k\":1,\"top_p\":0.9", "top_p=0.5", "top_k=1", "top_p=0.9", NULL);
    assert_ok(parse((const char *[]){ "temperature=1", "temperature=0.25", NULL }, SAMPLING_GEMINI,
        &temperature, &members, err));
    assert_true(temperature == 0.25);
    assert_int_equal(members.len, 0);
}

/* A temperature is a number of at least 0, in every dialect. */
static void a_temperature_is_a_number(void **state)
{
    static const char *const bad[] = { "temperature=", "temperature=-1", "temperature=hot",
        "temperature=0.2x", "temperature=101", "temperature=nan", "temperature=inf",
        "temperature= 1" };
    assert_ok(parse_one("temperature=0", SAMPLING_ANTHROPIC, err));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_fails_saying(
            ERROR_CONFIG, "write a number", parse_one(bad[i], SAMPLING_ANTHROPIC, err));
}

/* What requests set themselves is refused, with the setting that does it; a parameter that the
 * provider lacks is not dropped. */
static void what_cannot_be_sent_is_refused(void **state)
{
    assert_fails_saying(ERROR_CONFIG, "use the setting max-tokens",
        parse_one("max_tokens=5", SAMPLING_OPENAI, err));
    assert_fails_saying(
        ERROR_CONFIG, "use the setting stream", parse_one("stream=true", SAMPLING_GEMINI, err));
    assert_fails_saying(ERROR_CONFIG, "this provider has no parameter 'seed'",
        parse_one("seed=1", SAMPLING_ANTHROPIC, err));
    assert_fails_saying(
        ERROR_CONFIG, "has no parameter 'min_p'", parse_one("min_p=1", SAMPLING_GEMINI, err));
}

/* A value that is not UTF-8 would make the request no JSON. */
static void a_value_is_utf8(void **state)
{
    assert_ok(parse_one("stop=\xC3\xA9", SAMPLING_OPENAI, err));
    assert_fails_saying(
        ERROR_CONFIG, "'stop' is not UTF-8", parse_one("stop=\xC3", SAMPLING_OPENAI, err));
}

/* A name must be one: nothing can be written into the request beside it. */
static void a_name_is_letters_digits_and_underscores(void **state)
{
    static const char *const bad[] = { "", "=1", "top_p", "a\"b=1", "a b=1", "a,b=1",
        "\xC3\xA9=1" };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_fails_saying(
            ERROR_CONFIG, "write NAME=VALUE", parse_one(bad[i], SAMPLING_OPENAI, err));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_the_providers_default),
        cmocka_unit_test(each_dialect_has_its_names),
        cmocka_unit_test(a_value_is_json_or_text),
        cmocka_unit_test(a_single_text_becomes_a_list),
        cmocka_unit_test(the_last_of_several_counts),
        cmocka_unit_test(a_temperature_is_a_number),
        cmocka_unit_test(what_cannot_be_sent_is_refused),
        cmocka_unit_test(a_value_is_utf8),
        cmocka_unit_test(a_name_is_letters_digits_and_underscores),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
