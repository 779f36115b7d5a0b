/* The value in which nodes keep what they have taken of a limit per minute. */
#include "cluster/rates.h"

#include "../test.h"
#include "base/cleanup.h"

static void test_a_window_is_read_as_it_was_written(void **state)
{
    struct rate_window w = { .count = 2, .next = "0123456789abcdef", .next_until_ms = 77 };
    struct rate_window back;
    cleanup_buf struct buf text = { 0 };
    w.slices[0] = (struct rate_slice){ 100, { 3, 4000 } };
    w.slices[1] = (struct rate_slice){ 101, { 1, 0 } };
    w.wants = (struct rate_amount){ 5, 6 };
    rates_write(&w, &text);
    assert_true(rates_read(buf_text(&text), text.len, &back));
    assert_memory_equal(&back, &w, sizeof w);
}

static void test_what_is_no_window_is_refused(void **state)
{
    static const char *const texts[] = { "", "[]", "{}", "{\"slices\": {}}", "{\"slices\": [1]}",
        "{\"slices\": [{\"second\": 1, \"requests\": -1, \"tokens\": 0}]}",
        "{\"slices\": [{\"second\": -1, \"requests\": 1, \"tokens\": 0}]}",
        "{\"slices\": [{\"second\": 1, \"requests\": 1e30, \"tokens\": 0}]}",
        "{\"slices\": [], \"next\": {\"requests\": 1, \"tokens\": 1}}",
        "{\"slices\": [], \"next\": {\"holder\": \"0123456789abcdef0\", \"requests\": 1, "
        "\"tokens\": 1}}" };
    cleanup_buf struct buf many = { 0 };
    struct rate_window w;
    for (size_t i = 0; i < array_length(texts); i++)
        assert_false(rates_read(texts[i], strlen(texts[i]), &w));
    buf_puts(&many, "{\"slices\": [");
    for (int i = 0; i <= RATE_SLICES; i++)
        buf_printf(&many, "%s{\"second\": %d, \"requests\": 1, \"tokens\": 1}", i ? "," : "", i);
    buf_puts(&many, "]}");
    assert_false(rates_read(buf_text(&many), many.len, &w));
    assert_true(rates_read("{\"slices\": []}", 14, &w));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_window_is_read_as_it_was_written),
        cmocka_unit_test(test_what_is_no_window_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
