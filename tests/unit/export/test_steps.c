/* Steps of a record as JSON, with values that come in any pieces and hold any bytes. */
#include "../test.h"

#include <unistd.h>

#include "base/cleanup.h"
#include "base/json/json.h"
#include "export/steps.h"

/* ---- the record: values are in memory, and come in pieces of this size ---- */

static size_t piece_size;
static int read_error;

int droste_record_read(droste_record *record, const droste_value *value, size_t max,
    droste_piece_fn *fn, void *arg, droste_error *err)
{
    const char *data = value->data;
    size_t len = value->len < max ? value->len : max;
    if (read_error) {
        *err = (droste_error){ .code = read_error, .text = "the file is damaged" };
        return -read_error;
    }
    for (size_t at = 0; at < len; at += piece_size)
        if (fn(arg, data + at, len - at < piece_size ? len - at : piece_size))
            break;
    return 0;
}

/* ---- the tests ---- */

static int steps_setup(void **state)
{
    piece_size = 1;
    read_error = 0;
    return 0;
}

static droste_value value_of(const char *data, size_t len)
{
    return (droste_value){ .data = data, .len = len };
}

/* The object of a cell whose output is this value. */
static struct json_object *cell_object(struct steps_out *o, const droste_record_cell *cell)
{
    struct json_object *found = NULL;
    buf_puts(&o->text, "{");
    steps_cell(o, cell);
    steps_close(o);
    found = json_tokener_parse(buf_text(&o->text));
    if (!found)
        fail_msg("not JSON: %s", buf_text(&o->text));
    return found;
}

static void prints_as(const char *data, size_t len, const char *expected)
{
    for (piece_size = 1; piece_size <= 7; piece_size++) {
        cleanup_steps struct steps_out o = { 0 };
        const droste_record_cell cell = { .standard_output = value_of(data, len) };
        cleanup_json struct json_object *object = cell_object(&o, &cell);
        assert_string_equal(json_get_string(object, "stdout", "missing"), expected);
    }
}

static void a_text_is_whole_however_it_is_split(void **state)
{
    static const char text[] = "a\"\\\n€ü𝄞";
    prints_as(text, strlen(text), text);
}

/* A guest writes any bytes, and stops within a character. */
static void bytes_that_are_not_utf8_are_replaced(void **state)
{
    prints_as("a\xff"
              "b",
        3,
        "a\xef\xbf\xbd"
        "b");
    cleanup_steps struct steps_out o = { 0 };
    const droste_record_cell cell = { .standard_output = value_of("a\xe2\x82", 3) };
    cleanup_json struct json_object *object = cell_object(&o, &cell);
    const char *shown = json_get_string(object, "stdout", "");
    assert_int_equal(strncmp(shown, "a\xef\xbf\xbd", 4), 0);
}

/* A character that the cut would split is left out, and the whole size is told. */
static void a_long_text_is_cut_between_characters(void **state)
{
    cleanup_steps struct steps_out o = { .most = 4 };
    const droste_record_cell cell = { .standard_output = value_of("ab€cd", 7),
        .code = value_of("abcd", 4) };
    cleanup_json struct json_object *object = cell_object(&o, &cell);
    assert_string_equal(json_get_string(object, "stdout", ""), "ab");
    assert_string_equal(json_get_string(object, "code", ""), "abcd");
    struct json_object *cut = json_get_typed(object, "cut", json_type_object);
    assert_int_equal(json_get_int(cut, "stdout", 0), 7);
    assert_int_equal(json_object_object_length(cut), 1);
}

static void json_is_copied_and_stays_on_its_line(void **state)
{
    cleanup_steps struct steps_out o = { 0 };
    const droste_record_cell cell = { .submit = value_of("{\"a\":\n[1, 2]}", 13) };
    cleanup_json struct json_object *object = cell_object(&o, &cell);
    struct json_object *submit = json_get_typed(object, "submit", json_type_object);
    assert_int_equal(json_length(json_get_typed(submit, "a", json_type_array)), 2);
    assert_null(strchr(buf_text(&o.text), '\n'));
    assert_null(json_object_object_get(object, "as_text"));
}

/* A damaged record must not end the object that it is copied into. */
static void what_is_not_json_becomes_a_text(void **state)
{
    static const char wrong[] = "{}},{\"id\":7";
    cleanup_steps struct steps_out o = { 0 };
    const droste_record_cell cell = { .id = 1, .submit = value_of(wrong, strlen(wrong)) };
    cleanup_json struct json_object *object = cell_object(&o, &cell);
    assert_string_equal(json_get_string(object, "submit", ""), wrong);
    assert_int_equal(json_get_int(object, "id", 0), 1);
    struct json_object *as_text = json_get_typed(object, "as_text", json_type_array);
    assert_int_equal(json_length(as_text), 1);
    assert_string_equal(json_object_get_string(json_object_array_get_idx(as_text, 0)), "submit");
}

static void a_step_without_an_end_has_its_members_as_null(void **state)
{
    cleanup_steps struct steps_out o = { 0 };
    const droste_record_cell cell = { .id = 1, .started_ms = 1000, .calls = 3, .seconds = 2 };
    cleanup_json struct json_object *object = cell_object(&o, &cell);
    struct json_object *found = NULL;
    assert_true(json_object_object_get_ex(object, "calls", &found));
    assert_null(found);
    assert_true(json_object_object_get_ex(object, "ended", &found));
    assert_null(found);
    assert_string_equal(json_get_string(object, "started", ""), "1970-01-01T00:00:01.000Z");
}

static void a_step_that_ended_has_its_members(void **state)
{
    cleanup_steps struct steps_out o = { 0 };
    const droste_record_cell cell = { .id = 1, .ended_ms = 1000, .calls = 3, .seconds = 2 };
    cleanup_json struct json_object *object = cell_object(&o, &cell);
    assert_int_equal(json_get_int(object, "calls", 0), 3);
}

/* Bytes are in base64, whose groups do not end where pieces do. */
static void bytes_are_base64_however_they_are_split(void **state)
{
    const droste_record_media media[] = {
        { 0, "image/png", "bytes", value_of("\0\1\2\3\4\5\6", 7) },
        { 0, "text/plain", "text", value_of("fig", 3) },
        { 1, "application/json", "json", value_of("[1]", 3) },
    };
    const droste_record_cell cell = { .media = media, .media_count = array_length(media) };
    for (piece_size = 1; piece_size <= 8; piece_size++) {
        cleanup_steps struct steps_out o = { 0 };
        cleanup_json struct json_object *object = cell_object(&o, &cell);
        struct json_object *results = json_get_typed(object, "results", json_type_array);
        struct json_object *first = json_object_array_get_idx(results, 0);
        assert_int_equal(json_length(results), 2);
        assert_string_equal(json_get_string(first, "image/png", ""), "AAECAwQFBg==");
        assert_string_equal(json_get_string(first, "text/plain", ""), "fig");
    }
}

/* An image is whole or absent. */
static void an_image_is_not_cut_but_left_out(void **state)
{
    static const char bytes[100];
    const droste_record_media media[] = { { 0, "image/png", "bytes", value_of(bytes, 65) },
        { 1, "image/png", "bytes", value_of(bytes, 64) } };
    const droste_record_cell cell = { .media = media, .media_count = array_length(media) };
    cleanup_steps struct steps_out o = { .most = 4 };
    cleanup_json struct json_object *object = cell_object(&o, &cell);
    struct json_object *results = json_get_typed(object, "results", json_type_array);
    assert_null(json_object_object_get(json_object_array_get_idx(results, 0), "image/png"));
    assert_non_null(json_object_object_get(json_object_array_get_idx(results, 1), "image/png"));
    struct json_object *cut = json_get_typed(object, "cut", json_type_object);
    assert_int_equal(json_get_int(cut, "results.0.image/png", 0), 65);
}

/* In a page, a record cannot end the script that it is in. */
static void a_page_has_no_markup_of_a_record(void **state)
{
    static const char text[] = "</script><b>";
    for (int in_page = 0; in_page <= 1; in_page++) {
        cleanup_steps struct steps_out o = { .in_page = in_page, .file = tmpfile() };
        droste_error why = { 0 };
        char written[4096] = "";
        const droste_record_cell cell = { .code = value_of(text, strlen(text)) };
        assert_non_null(o.file);
        buf_puts(&o.text, "{");
        steps_cell(&o, &cell);
        steps_close(&o);
        assert_int_equal(steps_flush(&o, &why), 0);
        rewind(o.file);
        assert_true(fread(written, 1, sizeof written - 1, o.file) > 0);
        assert_true((strchr(written, '<') != NULL) == !in_page);
        cleanup_json struct json_object *object = json_tokener_parse(written);
        assert_string_equal(json_get_string(object, "code", ""), text);
        fclose(o.file);
    }
}

/* The first failure is the one that is told. */
static void a_damaged_value_is_an_error(void **state)
{
    cleanup_steps struct steps_out o = { 0 };
    droste_error why = { 0 };
    read_error = DROSTE_ERROR_IO;
    const droste_record_cell cell = { .code = value_of("a", 1) };
    cleanup_json struct json_object *object = cell_object(&o, &cell);
    assert_non_null(object);
    assert_int_equal(steps_flush(&o, &why), -DROSTE_ERROR_IO);
    assert_string_equal(why.text, "the file is damaged");
}

static void a_full_disk_is_an_error(void **state)
{
    cleanup_steps struct steps_out o = { .file = fopen("/dev/full", "w") };
    droste_error why = { 0 };
    assert_non_null(o.file);
    setvbuf(o.file, NULL, _IONBF, 0);
    buf_puts(&o.text, "{}");
    assert_int_equal(steps_flush(&o, &why), -DROSTE_ERROR_IO);
    fclose(o.file);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup(name, steps_setup)
    const struct CMUnitTest tests[] = {
        TEST(a_text_is_whole_however_it_is_split),
        TEST(bytes_that_are_not_utf8_are_replaced),
        TEST(a_long_text_is_cut_between_characters),
        TEST(json_is_copied_and_stays_on_its_line),
        TEST(what_is_not_json_becomes_a_text),
        TEST(a_step_without_an_end_has_its_members_as_null),
        TEST(a_step_that_ended_has_its_members),
        TEST(bytes_are_base64_however_they_are_split),
        TEST(an_image_is_not_cut_but_left_out),
        TEST(a_page_has_no_markup_of_a_record),
        TEST(a_damaged_value_is_an_error),
        TEST(a_full_disk_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
