/* JSON from strangers: byte 0 picks the limits, the rest is the text. What json_check lets through
 * is built, within the limits, as json-c's own reader builds it, and what is written of that is let
 * through again.
 */
#include "fuzz.h"

#include "base/json/json.h"

static const struct json_limits limits_tiny = { 200, 3, 10 };

static const struct json_limits *const limits[] = { &json_limits_small, &json_limits_large,
    &limits_tiny };

/* Values and keys; `depth` is what the limits leave for arrays and objects. */
static size_t count_nodes(struct json_object *o, unsigned depth)
{
    size_t nodes = 1;
    if (json_object_is_type(o, json_type_array)) {
        expect(depth > 0);
        for (size_t i = 0; i < json_object_array_length(o); i++)
            nodes += count_nodes(json_object_array_get_idx(o, i), depth - 1);
    } else if (json_object_is_type(o, json_type_object)) {
        expect(depth > 0);
        json_object_object_foreach(o, key, value)
        {
            expect(text_is_utf8(key, strlen(key), NULL));
            nodes += count_nodes(value, depth - 1);
        }
    } else if (json_object_is_type(o, json_type_string)) {
        expect(
            text_is_utf8(json_object_get_string(o), (size_t)json_object_get_string_len(o), NULL));
    }
    return nodes;
}

static void look_up(struct json_object *o)
{
    json_get_string(o, "a", NULL);
    json_get_int(o, "a", 0);
    json_get_double(o, "a", 0);
    json_get_bool(o, "a", false);
    json_get_typed(o, "a", json_type_object);
    json_get_typed(o, "a", json_type_array);
}

/* json-c's reader knows no integers of more than 64 bits, and loses some characters that are
 * written as two surrogates. */
static bool json_c_errs(const char *text, size_t len)
{
    size_t digits = 0;
    for (size_t i = 0; i < len; i++) {
        digits = text[i] >= '0' && text[i] <= '9' ? digits + 1 : 0;
        bool surrogate = len - i >= 3 && text[i] == '\\' && text[i + 1] == 'u' &&
                         (text[i + 2] == 'd' || text[i + 2] == 'D');
        if (digits >= 19 || surrogate)
            return true;
    }
    return false;
}

static void compare(const char *text, size_t len, struct json_object *ours)
{
    struct json_tokener *tok = json_tokener_new_ex(JSON_DEPTH_MAX + 1);
    cleanup_json struct json_object *theirs = json_tokener_parse_ex(tok, text, (int)len);
    if (json_tokener_get_error(tok) == json_tokener_continue)
        theirs = json_tokener_parse_ex(tok, "\n", 1); /* a number's end */
    expect(json_tokener_get_error(tok) == json_tokener_success);
    expect(json_object_equal(ours, theirs));
    json_tokener_free(tok);
}

static void try_text(const char *text, size_t len, const struct json_limits *limit)
{
    cleanup_json struct json_object *o = NULL;
    struct error check_err = { 0 }, parse_err = { 0 };
    int check = json_check(text, len, limit, &check_err);
    int parse = json_parse(text, len, limit, &o, &parse_err);
    expect(check == parse);
    if (check < 0) {
        expect(!o);
        expect_error(check, &check_err);
        expect_error(parse, &parse_err);
        return;
    }
    expect(len <= limit->bytes);
    expect(count_nodes(o, limit->depth) <= limit->nodes);
    if (!json_c_errs(text, len))
        compare(text, len, o);
    look_up(o);
    size_t written_len;
    const char *written = json_text(o, &written_len);
    expect(written && json_check(written, written_len, &json_limits_large, NULL) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input in = { data, size };
    const struct json_limits *limit = limits[input_byte(&in) % 3];
    size_t len;
    char *text = input_piece(&in, in.left, &len);
    try_text(text, len, limit);
    free(text);
    return 0;
}
