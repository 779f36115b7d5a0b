/* Reading a submission from parts that a hostile guest may have sent. */
#include "../test.h"

#include "base/cleanup.h"
#include "session/submission.h"

enum { PARTS = 4 };

struct parts {
    const char *data[PARTS];
    size_t len[PARTS], count;
};

/* A blob of these parts, as a frame has it, and what the head says of them. `left` is what was not
 * taken of it. */
static int read_parts(const struct parts *input, const char *head, struct submission **out,
    struct buf *left, struct error *err)
{
    cleanup_json struct json_object *o = NULL;
    struct frame_parts parts;
    frame_parts_begin(left, input->len, input->count);
    for (size_t i = 0; i < input->count; i++)
        buf_append(left, input->data[i], input->len[i]);
    assert_int_equal(json_parse(head, strlen(head), &json_limits_small, &o, NULL), 0);
    assert_int_equal(frame_parts_open(left->data, left->len, PARTS, &parts, NULL), 0);
    return submission_read(o, &parts, &(struct frame){ .body = left }, out, err);
}

static int read_texts(const char *head, const char *outline, const char *one, const char *two,
    struct submission **out, struct error *err)
{
    cleanup_buf struct buf blob = { 0 };
    struct parts parts = { { "", outline, one, two }, { 0, strlen(outline) }, 2 };
    for (size_t i = 2; i < PARTS && parts.data[i]; i++, parts.count++)
        parts.len[i] = strlen(parts.data[i]);
    return read_parts(&parts, head, out, &blob, err);
}

static void what_has_no_texts_is_its_outline(void **state)
{
    struct submission *s;
    static const char json[] = "{\"a\": \"NaN\"}";
    assert_ok(read_texts("{\"submitted\": 1}", json, NULL, NULL, &s, err));
    size_t len = 0, outline_len = 0;
    assert_string_equal(submission_json(s, &len), json);
    assert_string_equal(submission_outline(s, &outline_len), json);
    assert_int_equal(len, strlen(json));
    assert_int_equal(outline_len, strlen(json));
    assert_null(submission_text(s, 0, &len));
    assert_int_equal(len, 0);
    submission_free(s);
}

static void nothing_may_be_submitted(void **state)
{
    struct submission *s;
    size_t len = 5;
    assert_ok(read_texts("{\"status\": \"ok\"}", "{}", NULL, NULL, &s, err));
    assert_null(s);
    assert_null(submission_json(s, &len));
    assert_int_equal(len, 0);
    assert_null(submission_outline(s, &len));
    assert_null(submission_text(s, 0, NULL));
    submission_free(s);
}

/* A text with what JSON writes otherwise, and an empty one, within lists and beside them. */
static void texts_replace_their_references(void **state)
{
    struct submission *s;
    size_t len;
    static const char one[] = "\"\\\n\t\x01\xC3\xA9";
    assert_ok(read_texts("{\"submitted\": 1, \"texts\": 2}",
        "{\"a\": NaN, \"b\": [1, NaN], \"c\": 2}", one, "", &s, err));
    assert_memory_equal(submission_text(s, 0, &len), one, strlen(one));
    assert_int_equal(len, strlen(one));
    assert_non_null(submission_text(s, 1, &len));
    assert_int_equal(len, 0);
    assert_null(submission_text(s, 2, &len));
    const char *json = submission_json(s, &len);
    assert_string_equal(
        json, "{\"a\": \"\\\"\\\\\\n\\u0009\\u0001\xC3\xA9\", \"b\": [1, \"\"], \"c\": 2}");
    assert_int_equal(len, strlen(json));
    assert_ptr_equal(submission_json(s, NULL), json);
    submission_free(s);
}

/* Where there are texts, the memory they came in is theirs from then on; else it is the frame's. */
static void the_memory_of_texts_is_taken_over(void **state)
{
    struct parts parts = { { "{\"a\": NaN}", "x\0y" }, { 10, 3 }, 2 };
    cleanup_buf struct buf blob = { 0 }, kept = { 0 };
    struct submission *s;
    size_t len;
    assert_ok(read_parts(&parts, "{\"submitted\": 0, \"texts\": 1}", &s, &blob, err));
    assert_null(blob.data);
    assert_memory_equal(submission_text(s, 0, &len), "x\0y", 3);
    assert_string_equal(submission_json(s, NULL), "{\"a\": \"x\\u0000y\"}");
    submission_free(s);
    parts = (struct parts){ { "{}" }, { 2 }, 1 };
    assert_ok(read_parts(&parts, "{\"submitted\": 0}", &s, &kept, err));
    assert_non_null(kept.data);
    submission_free(s);
}

/* Each ends its sandbox: no honest guest sends it. */
static void what_does_not_hold_together_is_refused(void **state)
{
    static const struct {
        const char *head, *outline, *one, *two;
    } wrong[] = {
        { "{\"submitted\": 2}", "{}", NULL, NULL },
        { "{\"submitted\": 99}", "{}", NULL, NULL },
        { "{\"submitted\": 1, \"texts\": 2}", "{\"a\": NaN, \"b\": NaN}", "x", NULL },
        { "{\"submitted\": 1, \"texts\": 9223372036854775807}", "{\"a\": NaN}", "x", NULL },
        { "{\"submitted\": 1, \"texts\": -1}", "{}", "x", NULL },
        { "{\"submitted\": 1, \"texts\": 1}", "{\"a\": NaN, \"b\": NaN}", "x", NULL },
        { "{\"submitted\": 1, \"texts\": 2}", "{\"a\": NaN}", "x", "y" },
        { "{\"submitted\": 1, \"texts\": 1}", "{\"a\": \"NaN\"}", "x", NULL },
        { "{\"submitted\": 1, \"texts\": 1}", "{\"a\": NaN}", "\xFF", NULL },
        { "{\"submitted\": 1, \"texts\": 1}", "{\"a\": NaN}", "\xC3", "\xA9" },
    };
    for (size_t i = 0; i < array_length(wrong); i++) {
        struct submission *s;
        assert_fails(ERROR_PROTOCOL,
            read_texts(wrong[i].head, wrong[i].outline, wrong[i].one, wrong[i].two, &s, err));
        assert_null(s);
    }
}

/* Each is the cell's own error: its code may submit such a thing, or the guest's. */
static void what_is_no_object_is_the_cells_error(void **state)
{
    static const char *const wrong[] = { "[NaN]", "NaN", "{\"a\": NaN", "{NaN: 1}", "",
        "{\"a\":NaNs}" };
    for (size_t i = 0; i < array_length(wrong); i++) {
        struct submission *s;
        assert_fails(ERROR_ARGUMENT,
            read_texts("{\"submitted\": 1, \"texts\": 1}", wrong[i], "x", NULL, &s, err));
        assert_null(s);
    }
    struct submission *s;
    assert_fails(ERROR_ARGUMENT, read_texts("{\"submitted\": 1}", "{\"a\": NaN}", NULL, NULL, &s,
                                     err)); /* without texts it is not JSON */
}

/* Quoted, 50 MiB of control characters are 300: as JSON that is too much, as it would be had the
 * guest quoted them. Of other characters it is not. */
static void what_is_too_large_as_json_is_refused(void **state)
{
    enum { SIZE = 50 << 20 };
    cleanup_free char *text = malloc(SIZE);
    for (int control = 0; control < 2; control++) {
        cleanup_buf struct buf blob = { 0 };
        struct submission *s;
        memset(text, control ? 1 : 'a', SIZE);
        struct parts parts = { { "{\"a\": NaN}", text }, { 10, SIZE }, 2 };
        int rc = read_parts(&parts, "{\"submitted\": 0, \"texts\": 1}", &s, &blob, NULL);
        assert_int_equal(rc, control ? -(int)ERROR_ARGUMENT : 0);
        submission_free(s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_has_no_texts_is_its_outline),
        cmocka_unit_test(nothing_may_be_submitted),
        cmocka_unit_test(texts_replace_their_references),
        cmocka_unit_test(the_memory_of_texts_is_taken_over),
        cmocka_unit_test(what_does_not_hold_together_is_refused),
        cmocka_unit_test(what_is_no_object_is_the_cells_error),
        cmocka_unit_test(what_is_too_large_as_json_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
