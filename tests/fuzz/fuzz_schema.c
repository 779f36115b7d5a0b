/* A schema and a value, with a zero byte between them. What is wrong with either is said on a line;
 * a schema that is read is written so that it can be read again and means the same.
 */
#include "fuzz.h"

#include "base/json/schema.h"

static int check(const struct schema *s, struct json_object *value)
{
    struct error err = { 0 };
    int rc = schema_check(s, value, &err);
    if (rc < 0)
        expect_error(rc, &err);
    return rc;
}

static void check_twice(const struct schema *s, const char *text, size_t len)
{
    cleanup_json struct json_object *value = NULL;
    struct schema *again = NULL;
    const char *written = schema_text(s);
    expect(schema_parse(written, strlen(written), &again, NULL) == 0);
    if (json_parse(text, len, &json_limits_small, &value, NULL) == 0)
        expect(check(s, value) == check(again, value));
    schema_drop(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input in = { data, size };
    const uint8_t *zero = memchr(data, 0, size);
    struct schema *s = NULL;
    struct error err = { 0 };
    size_t len, value_len, names;
    char *text = input_piece(&in, zero ? (size_t)(zero - data) : size, &len);
    input_byte(&in);
    char *value = input_piece(&in, in.left, &value_len);
    int rc = schema_parse(text, len, &s, &err);
    if (rc < 0) {
        expect_error(rc, &err);
    } else {
        schema_names(s, &names);
        check_twice(s, value, value_len);
        schema_drop(s);
    }
    free(text);
    free(value);
    return 0;
}
