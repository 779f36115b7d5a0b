/* The value of a ledger: what is spent and held stays within the limit; nothing counts twice. */
#include "cluster/ledger.h"

#include "../test.h"
#include "base/cleanup.h"

static struct ledger_value read_back(const struct ledger_value *v)
{
    cleanup_buf struct buf text = { 0 };
    struct ledger_value out;
    ledger_write(v, &text);
    assert_true(ledger_read(buf_text(&text), text.len, &out));
    return out;
}

static void test_holds_and_spending_never_exceed_the_limit(void **state)
{
    struct ledger_value v = { 0 };
    assert_int_equal(ledger_take(&v, "a", 100, 60)->nano, 60);
    assert_null(ledger_take(&v, "b", 100, 60)); /* a may give some back */
    assert_true(ledger_end(&v, "a", 30));
    assert_int_equal(ledger_take(&v, "b", 100, 60)->nano, 60);
    assert_int_equal(ledger_take(&v, "c", 100, 0)->nano, 10); /* all that is left */
    assert_null(ledger_take(&v, "d", 100, 0));
    assert_true(ledger_end(&v, "c", 10));
    assert_true(ledger_end(&v, "b", UINT64_MAX)); /* all that it held */
    assert_int_equal(v.spent, 100);
    assert_int_equal(v.held, 0);
    assert_null(ledger_take(&v, "e", 100, 1));
    ledger_free(&v);
}

static void test_what_is_left_is_held_when_nothing_can_come_back(void **state)
{
    struct ledger_value v = { .spent = 70 };
    assert_int_equal(ledger_take(&v, "a", 100, 60)->nano, 30);
    ledger_free(&v);
}

static void test_a_process_has_what_it_has_spent_and_may_still_spend_for_a_day(void **state)
{
    struct ledger_value v = { .day = 100 };
    uint64_t spent, open;
    assert_true(ledger_put(&v, "p", 40, 30));
    assert_true(ledger_put(&v, "p", 50, 10));
    assert_true(ledger_put(&v, "q", 20, 0));
    struct ledger_value read = read_back(&v);
    ledger_get(&read, "p", &spent, &open);
    assert_int_equal(spent, 50);
    assert_int_equal(open, 10);
    assert_int_equal(read.held, 80);
    assert_null(ledger_take(&read, "a", 100, 30)); /* p may give some back */
    assert_true(ledger_put(&read, "p", 55, 0));
    assert_int_equal(ledger_take(&read, "a", 100, 30)->nano, 25); /* nobody may */
    ledger_begin_day(&read, 101);
    assert_int_equal(read.held, 25); /* of the run */
    ledger_free(&read);
    ledger_free(&v);
}

static void test_taking_or_ending_twice_is_the_same_as_once(void **state)
{
    struct ledger_value v = { 0 };
    ledger_take(&v, "a", 100, 60);
    assert_int_equal(ledger_take(&v, "a", 100, 10)->nano, 60);
    assert_int_equal(v.held, 60);
    assert_true(ledger_end(&v, "a", 20));
    assert_false(ledger_end(&v, "a", 20));
    assert_int_equal(v.spent, 20);
    ledger_free(&v);
}

static void test_another_day_begins_with_the_holds_of_the_one_before(void **state)
{
    struct ledger_value v = { .day = 100, .spent = 50 };
    ledger_take(&v, "a", 100, 20);
    ledger_begin_day(&v, 99); /* a clock that is behind */
    assert_int_equal(v.spent, 50);
    ledger_begin_day(&v, 101);
    assert_int_equal(v.spent, 0);
    assert_int_equal(v.held, 20);
    ledger_begin_day(&v, 103); /* its node does not end it any more */
    assert_int_equal(v.held, 0);
    ledger_free(&v);
}

static void test_a_value_is_read_as_it_was_written(void **state)
{
    struct ledger_value v = { .day = 20000, .spent = 7 };
    ledger_take(&v, "run-1", 100, 20);
    ledger_take(&v, "run-2", 100, 30);
    struct ledger_value back = read_back(&v);
    assert_int_equal(back.day, 20000);
    assert_int_equal(back.spent, 7);
    assert_int_equal(back.held, 50);
    assert_int_equal(ledger_take(&back, "run-2", 100, 1)->nano, 30);
    ledger_free(&back);
    ledger_free(&v);
}

static void test_what_is_no_ledger_is_refused(void **state)
{
    static const char *const texts[] = { "", "[]", "{}",
        "{\"day\": 1, \"spent\": -1, \"holds\": []}", "{\"day\": 1, \"spent\": 1, \"holds\": {}}",
        "{\"day\": 1, \"spent\": 1, \"holds\": [1]}",
        "{\"day\": 1, \"spent\": 1, \"holds\": [{\"holder\": \"a\", \"nano\": -5}]}",
        "{\"day\": 1, \"spent\": 1, \"holds\": [{\"holder\": \"a\", \"nano\": 1e30}]}",
        "{\"day\": 1, \"spent\": 1, \"holds\": [{\"holder\": \"a\", \"nano\": 1},"
        " {\"holder\": \"a\", \"nano\": 1}]}" };
    struct ledger_value v;
    for (size_t i = 0; i < array_length(texts); i++)
        assert_false(ledger_read(texts[i], strlen(texts[i]), &v));
    const char *good = "{\"day\": 1, \"spent\": 1, \"holds\": []}";
    assert_true(ledger_read(good, strlen(good), &v));
    ledger_free(&v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_holds_and_spending_never_exceed_the_limit),
        cmocka_unit_test(test_what_is_left_is_held_when_nothing_can_come_back),
        cmocka_unit_test(test_a_process_has_what_it_has_spent_and_may_still_spend_for_a_day),
        cmocka_unit_test(test_taking_or_ending_twice_is_the_same_as_once),
        cmocka_unit_test(test_another_day_begins_with_the_holds_of_the_one_before),
        cmocka_unit_test(test_a_value_is_read_as_it_was_written),
        cmocka_unit_test(test_what_is_no_ledger_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
