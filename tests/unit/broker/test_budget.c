/* What may be spent: exact to the call and the token. */
#include "../test.h"

#include <unistd.h>

#include "broker/budget.h"

static struct budget budget_of(struct budget_limits limits)
{
    struct budget b;
    budget_init(&b, &limits);
    return b;
}

static void assert_same(const struct budget *a, const struct budget *b)
{
    assert_memory_equal(a, b, sizeof *a);
}

static void calls_are_reserved_up_to_the_limit(void **state)
{
    struct budget b = budget_of((struct budget_limits){ .calls = 3 });
    assert_ok(budget_reserve(&b, 2, err));
    assert_ok(budget_reserve(&b, 1, err));
    assert_fails(ERROR_BUDGET, budget_reserve(&b, 1, err));
    assert_int_equal(b.guest_calls, 3);
}

/* What does not fit is refused whole and leaves the budget as it was: a smaller one still fits. */
static void refuses_whole_what_does_not_fit(void **state)
{
    struct budget b = budget_of((struct budget_limits){ .calls = 3 });
    assert_ok(budget_reserve(&b, 1, err));
    struct budget before = b;
    struct error why = { 0 };
    assert_true(budget_reserve(&b, 3, &why) < 0);
    assert_same(&b, &before);
    assert_string_equal(why.text, "LLM call limit exceeded: 1 + 3 > 3. Use Python code for "
                                  "aggregation instead of making more "
                                  "LLM calls.");
    assert_ok(budget_reserve(&b, 2, err));
}

static void zero_calls_allow_none_and_less_is_no_limit(void **state)
{
    struct budget none = budget_of((struct budget_limits){ .calls = 0 });
    struct budget any = budget_of((struct budget_limits){ .calls = -1 });
    assert_fails(ERROR_BUDGET, budget_reserve(&none, 1, err));
    assert_ok(budget_reserve(&none, 0, err));
    assert_ok(budget_reserve(&any, INT64_MAX, err));
}

static void a_hold_counts_until_it_settles(void **state)
{
    struct budget b = budget_of((struct budget_limits){ .input_tokens = 100 });
    struct budget_hold first, second;
    struct lm_usage cheaper = { .input_tokens = 40, .output_tokens = 7 };
    assert_ok(budget_hold(&b, 4 * 60, &first, err));
    assert_fails(ERROR_BUDGET, budget_hold(&b, 4 * 41, &second, err));
    assert_int_equal(b.held_tokens, 60);
    budget_settle(&b, &first, &cheaper);
    assert_int_equal(b.held_tokens, 0);
    assert_ok(budget_hold(&b, 4 * 60, &second, err));
    assert_fails(ERROR_BUDGET, budget_hold(&b, 4, &first, err));
}

static void a_refused_hold_leaves_everything_as_it_was(void **state)
{
    struct budget b = budget_of((struct budget_limits){ .input_tokens = 10 });
    struct budget before = b;
    struct budget_hold hold;
    assert_fails(ERROR_BUDGET, budget_hold(&b, 4 * 11, &hold, err));
    assert_same(&b, &before);
    assert_int_equal(hold.tokens, 0);
}

static void a_released_hold_was_never_a_call(void **state)
{
    struct budget b = budget_of((struct budget_limits){ .input_tokens = 10 });
    struct budget before = b;
    struct budget_hold hold;
    assert_ok(budget_hold(&b, 4 * 10, &hold, err));
    budget_release(&b, &hold);
    assert_same(&b, &before);
    budget_release(&b, &hold);
    assert_same(&b, &before);
}

static void settling_adds_up_to_the_token(void **state)
{
    struct budget b = budget_of((struct budget_limits){ 0 });
    for (int i = 1; i <= 100; i++) {
        struct budget_hold hold;
        struct lm_usage usage = { .input_tokens = i, .output_tokens = 2 * i, .estimated = i == 50 };
        assert_ok(budget_hold(&b, (size_t)i * 1000, &hold, err));
        budget_settle(&b, &hold, &usage);
        assert_int_equal(b.estimated, i >= 50);
    }
    assert_int_equal(b.calls, 100);
    assert_int_equal(b.input_tokens, 5050);
    assert_int_equal(b.output_tokens, 10100);
    assert_int_equal(b.held_tokens, 0);
}

static void output_is_limited_by_what_was_spent(void **state)
{
    struct budget b = budget_of((struct budget_limits){ .output_tokens = 10 });
    struct budget_hold hold;
    struct lm_usage nine = { .output_tokens = 9 }, one = { .output_tokens = 1 };
    assert_ok(budget_hold(&b, 4, &hold, err));
    budget_settle(&b, &hold, &nine);
    assert_ok(budget_hold(&b, 4, &hold, err));
    budget_settle(&b, &hold, &one);
    assert_fails(ERROR_BUDGET, budget_hold(&b, 4, &hold, err));
}

static void the_total_counts_both_ways(void **state)
{
    struct budget b = budget_of((struct budget_limits){ .total_tokens = 100 });
    struct budget_hold hold;
    struct lm_usage usage = { .input_tokens = 50, .output_tokens = 40 };
    assert_ok(budget_hold(&b, 4, &hold, err));
    budget_settle(&b, &hold, &usage);
    assert_ok(budget_hold(&b, 4 * 9, &hold, err));
    budget_release(&b, &hold);
    assert_fails(ERROR_BUDGET, budget_hold(&b, 4 * 10, &hold, err));
}

static void after_the_time_nothing_is_reserved(void **state)
{
    struct budget b = budget_of((struct budget_limits){ .calls = 5, .seconds = 0.01 });
    usleep(20000);
    assert_true(budget_seconds_left(&b) == 0);
    assert_fails(ERROR_BUDGET, budget_reserve(&b, 1, err));
    assert_fails(ERROR_BUDGET, budget_reserve(&b, 0, err));
}

static void without_a_limit_there_is_time(void **state)
{
    struct budget b = budget_of((struct budget_limits){ .calls = 5 });
    assert_true(budget_seconds_left(&b) > 1e6);
    assert_ok(budget_reserve(&b, 1, err));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_are_reserved_up_to_the_limit),
        cmocka_unit_test(refuses_whole_what_does_not_fit),
        cmocka_unit_test(zero_calls_allow_none_and_less_is_no_limit),
        cmocka_unit_test(a_hold_counts_until_it_settles),
        cmocka_unit_test(a_refused_hold_leaves_everything_as_it_was),
        cmocka_unit_test(a_released_hold_was_never_a_call),
        cmocka_unit_test(settling_adds_up_to_the_token),
        cmocka_unit_test(output_is_limited_by_what_was_spent),
        cmocka_unit_test(the_total_counts_both_ways),
        cmocka_unit_test(after_the_time_nothing_is_reserved),
        cmocka_unit_test(without_a_limit_there_is_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
