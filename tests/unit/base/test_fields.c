/* The members of JSON objects that commands print. */
#include "../test.h"

#include <math.h>

#include "base/cleanup.h"
#include "base/json/fields.h"
#include "base/json/json.h"

static void assert_text(const struct buf *out, const char *expected)
{
    struct json_object *o = NULL;
    assert_string_equal(buf_text(out), expected);
    assert_ok(json_parse(buf_text(out), out->len, &json_limits_large, &o, err));
    json_object_put(o);
}

/* Commas stand between members and elements, and nowhere else, at any depth. */
static void commas_stand_between(void **state)
{
    cleanup_buf struct buf out = { 0 };
    field_open(&out, NULL, '{');
    field_open(&out, "none", '[');
    field_close(&out, ']');
    field_open(&out, "two", '[');
    field_int(&out, NULL, 1);
    field_int(&out, NULL, -2);
    field_close(&out, ']');
    field_open(&out, "o", '{');
    field_bool(&out, "yes", true);
    field_close(&out, '}');
    field_bool(&out, "no", false);
    field_close(&out, '}');
    assert_text(&out, "{\"none\":[],\"two\":[1,-2],\"o\":{\"yes\":true},\"no\":false}");
}

/* Texts are escaped, what is not UTF-8 is replaced, zero bytes are kept, and NULL is null. */
static void any_text_is_a_string(void **state)
{
    cleanup_buf struct buf out = { 0 };
    field_open(&out, NULL, '[');
    field_string(&out, NULL, NULL);
    field_string(&out, NULL, "");
    field_string(&out, NULL, "a\"b\\\n");
    field_text(&out, NULL, "a\0b", 3);
    field_text(&out, NULL, "\xFF.", 2);
    field_string(&out, NULL, "[");
    field_string(&out, NULL, "after");
    field_close(&out, ']');
    assert_text(
        &out, "[null,\"\",\"a\\\"b\\\\\\n\",\"a\\u0000b\",\"\xEF\xBF\xBD.\",\"[\",\"after\"]");
}

/* Numbers keep their sign and size. */
static void numbers_are_whole(void **state)
{
    cleanup_buf struct buf out = { 0 };
    field_open(&out, NULL, '{');
    field_int(&out, "most", INT64_MAX);
    field_int(&out, "least", INT64_MIN);
    field_real(&out, "cost", 0.0000015);
    field_close(&out, '}');
    assert_text(
        &out, "{\"most\":9223372036854775807,\"least\":-9223372036854775808,\"cost\":0.000002}");
}

/* A time is UTC with milliseconds, whatever the time zone; none is null. */
static void times_are_utc(void **state)
{
    cleanup_buf struct buf out = { 0 };
    setenv("TZ", "Asia/Tokyo", 1);
    field_open(&out, NULL, '[');
    field_time(&out, NULL, 0);
    field_time(&out, NULL, 1);
    field_time(&out, NULL, 1763666112345);
    field_close(&out, ']');
    assert_text(&out, "[null,\"1970-01-01T00:00:00.001Z\",\"2025-11-20T19:15:12.345Z\"]");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(commas_stand_between),
        cmocka_unit_test(any_text_is_a_string),
        cmocka_unit_test(numbers_are_whole),
        cmocka_unit_test(times_are_utc),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
