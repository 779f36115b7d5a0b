/* Budgets: exact to the call and the token. */
#include "../test.h"

#include <unistd.h>

#include "broker/budget.h"

static struct budget budget_of(struct budget_limits limits)
{
    struct budget b;
    budget_init(&b, &limits);
    return b;
}

static int hold_bytes(struct budget *b, size_t bytes, struct budget_hold *hold, struct error *err)
{
    struct budget_call call = { .model = "m", .prompt_bytes = bytes };
    return budget_hold(b, &call, hold, err);
}

static void settle(struct budget *b, struct budget_hold *hold, const struct lm_usage *usage)
{
    struct lm_reply reply = { .usage = *usage, .attempts = 1 };
    budget_settle(b, hold, &reply);
}

static void assert_same(const struct budget *a, const struct budget *b)
{
    assert_memory_equal(a, b, sizeof *a);
}

static void assert_same_spent(const struct spent *a, const struct spent *b)
{
    assert_int_equal(a->calls, b->calls);
    assert_int_equal(a->attempts, b->attempts);
    assert_int_equal(a->input_tokens, b->input_tokens);
    assert_int_equal(a->output_tokens, b->output_tokens);
    assert_int_equal(a->unpriced, b->unpriced);
    assert_true(a->cost == b->cost);
}

static void calls_are_reserved_up_to_the_limit(void **state)
{
    struct budget b = budget_of((struct budget_limits){ .calls = 3 });
    assert_ok(budget_reserve(&b, 2, err));
    assert_ok(budget_reserve(&b, 1, err));
    assert_fails(ERROR_BUDGET_CALLS, budget_reserve(&b, 1, err));
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
    assert_fails(ERROR_BUDGET_CALLS, budget_reserve(&none, 1, err));
    assert_ok(budget_reserve(&none, 0, err));
    assert_ok(budget_reserve(&any, INT64_MAX, err));
}

static void a_hold_counts_until_it_settles(void **state)
{
    struct budget b = budget_of((struct budget_limits){ .input_tokens = 100 });
    struct budget_hold first, second;
    struct lm_usage cheaper = { .input_tokens = 40, .output_tokens = 7 };
    assert_ok(hold_bytes(&b, 4 * 60, &first, err));
    assert_fails(ERROR_BUDGET_TOKENS, hold_bytes(&b, 4 * 41, &second, err));
    assert_int_equal(b.held_tokens, 60);
    settle(&b, &first, &cheaper);
    assert_int_equal(b.held_tokens, 0);
    assert_ok(hold_bytes(&b, 4 * 60, &second, err));
    assert_fails(ERROR_BUDGET_TOKENS, hold_bytes(&b, 4, &first, err));
    budget_free(&b);
}

static void a_refused_hold_leaves_everything_as_it_was(void **state)
{
    struct budget b = budget_of((struct budget_limits){ .input_tokens = 10 });
    struct budget before = b;
    struct budget_hold hold;
    assert_fails(ERROR_BUDGET_TOKENS, hold_bytes(&b, 4 * 11, &hold, err));
    assert_same(&b, &before);
    assert_int_equal(hold.tokens, 0);
}

static void a_released_hold_was_never_a_call(void **state)
{
    struct budget b = budget_of((struct budget_limits){ .input_tokens = 10 });
    struct budget before = b;
    struct budget_hold hold;
    assert_ok(hold_bytes(&b, 4 * 10, &hold, err));
    budget_release(&b, &hold);
    assert_int_equal(b.held_tokens, 0);
    budget_release(&b, &hold);
    assert_int_equal(b.held_tokens, 0);
    assert_int_equal(b.open, 0);
    assert_same_spent(&b.spent, &before.spent);
    budget_free(&b);
}

static void settling_adds_up_to_the_token(void **state)
{
    struct budget b = budget_of((struct budget_limits){ 0 });
    for (int i = 1; i <= 100; i++) {
        struct budget_hold hold;
        struct lm_usage usage = { .input_tokens = i, .output_tokens = 2 * i, .estimated = i == 50 };
        assert_ok(hold_bytes(&b, (size_t)i * 1000, &hold, err));
        settle(&b, &hold, &usage);
        assert_int_equal(b.spent.estimated, i >= 50);
    }
    assert_int_equal(b.spent.calls, 100);
    assert_int_equal(b.spent.input_tokens, 5050);
    assert_int_equal(b.spent.output_tokens, 10100);
    assert_int_equal(b.held_tokens, 0);
    budget_free(&b);
}

static void output_is_limited_by_what_was_spent(void **state)
{
    struct budget b = budget_of((struct budget_limits){ .output_tokens = 10 });
    struct budget_hold hold;
    struct lm_usage nine = { .output_tokens = 9 }, one = { .output_tokens = 1 };
    assert_ok(hold_bytes(&b, 4, &hold, err));
    settle(&b, &hold, &nine);
    assert_ok(hold_bytes(&b, 4, &hold, err));
    settle(&b, &hold, &one);
    assert_fails(ERROR_BUDGET_TOKENS, hold_bytes(&b, 4, &hold, err));
    budget_free(&b);
}

static void the_total_counts_both_ways(void **state)
{
    struct budget b = budget_of((struct budget_limits){ .total_tokens = 100 });
    struct budget_hold hold;
    struct lm_usage usage = { .input_tokens = 50, .output_tokens = 40 };
    assert_ok(hold_bytes(&b, 4, &hold, err));
    settle(&b, &hold, &usage);
    assert_ok(hold_bytes(&b, 4 * 9, &hold, err));
    budget_release(&b, &hold);
    assert_fails(ERROR_BUDGET_TOKENS, hold_bytes(&b, 4 * 10, &hold, err));
    budget_free(&b);
}

static void after_the_time_nothing_is_reserved(void **state)
{
    struct budget b = budget_of((struct budget_limits){ .calls = 5, .seconds = 0.01 });
    usleep(20000);
    assert_true(budget_seconds_left(&b) == 0);
    assert_fails(ERROR_BUDGET_TIME, budget_reserve(&b, 1, err));
    assert_fails(ERROR_BUDGET_TIME, budget_reserve(&b, 0, err));
}

static void without_a_limit_there_is_time(void **state)
{
    struct budget b = budget_of((struct budget_limits){ .calls = 5 });
    assert_true(budget_seconds_left(&b) > 1e6);
    assert_ok(budget_reserve(&b, 1, err));
}

/* A place that was given back is there again; the limit holds for the rest. */
static void an_unused_reservation_is_released(void **state)
{
    struct budget b = budget_of((struct budget_limits){ .calls = 3 });
    assert_ok(budget_reserve(&b, 3, err));
    budget_unreserve(&b, 2);
    assert_fails(ERROR_BUDGET_CALLS, budget_reserve(&b, 3, err));
    assert_ok(budget_reserve(&b, 2, err));
}

/* The sums by model and by depth are the whole, and a run's account has what those below it
 * spent. */
static void spending_is_reported_by_model_depth_and_run(void **state)
{
    static const char *const models[] = { "a", "b" };
    struct budget b = budget_of((struct budget_limits){ 0 });
    struct account root = { 0 }, child = { .up = &root }, other = { .up = &root };
    struct account *const accounts[] = { &root, &child, &other };
    struct spent by_model = { 0 }, by_depth = { 0 };
    for (int i = 0; i < 30; i++) {
        struct budget_hold hold;
        struct budget_call call = {
            .model = models[i % 2], .depth = (unsigned)i % 5, .account = accounts[i % 3]
        };
        struct lm_reply reply = { .usage = { .input_tokens = i, .output_tokens = 1 },
            .cost = i == 7 ? -1 : 0.5,
            .attempts = 2 };
        assert_ok(budget_hold(&b, &call, &hold, err));
        assert_int_equal(b.open, call.depth > 0);
        budget_settle(&b, &hold, &reply);
        budget_settle(&b, &hold, &reply); /* it is over: nothing is counted twice */
    }
    for (size_t i = 0; i < b.model_count; i++) {
        by_model.calls += b.models[i].spent.calls;
        by_model.input_tokens += b.models[i].spent.input_tokens;
    }
    for (size_t i = 0; i < BUDGET_DEPTH_MAX + 2; i++) {
        by_depth.calls += b.depths[i].calls;
        by_depth.input_tokens += b.depths[i].input_tokens;
    }
    assert_int_equal(b.model_count, 2);
    assert_int_equal(b.spent.calls, 30);
    assert_int_equal(b.spent.attempts, 60);
    assert_int_equal(b.spent.input_tokens, 435);
    assert_int_equal(by_model.calls, 30);
    assert_int_equal(by_model.input_tokens, 435);
    assert_int_equal(by_depth.calls, 30);
    assert_int_equal(by_depth.input_tokens, 435);
    assert_int_equal(b.depths[4].calls, 6);
    assert_same_spent(&root.spent, &b.spent);
    assert_int_equal(child.spent.calls, 10);
    assert_true(spent_cost(&b.spent) < 0);
    assert_true(spent_cost(&other.spent) == 5);
    budget_free(&b);
}

/* A guest names what it likes: the table of models stays small, and nothing is lost. */
static void models_are_counted_separately_up_to_a_number(void **state)
{
    struct budget b = budget_of((struct budget_limits){ 0 });
    int64_t calls = 0;
    for (int i = 0; i < 3 * BUDGET_MODELS_MAX; i++) {
        char name[400];
        struct budget_hold hold;
        struct budget_call call = { .model = name };
        struct lm_reply reply = { .attempts = 1 };
        snprintf(name, sizeof name, "%d%0*d", i, i % 2 ? 300 : 1, 0);
        assert_ok(budget_hold(&b, &call, &hold, err));
        budget_settle(&b, &hold, &reply);
        snprintf(name, sizeof name, "%d%0*d", 0, 1, 0);
        assert_ok(budget_hold(&b, &call, &hold, err));
        budget_settle(&b, &hold, &reply);
    }
    for (size_t i = 0; i < b.model_count; i++)
        calls += b.models[i].spent.calls;
    assert_int_equal(b.model_count, BUDGET_MODELS_MAX);
    assert_string_equal(b.models[BUDGET_MODELS_MAX - 1].name, "(other models)");
    assert_int_equal(calls, 6 * BUDGET_MODELS_MAX);
    assert_int_equal(b.models[0].spent.calls, 3 * BUDGET_MODELS_MAX + 1);
    budget_free(&b);
}

/* A limit that could not be kept is refused before anything is paid. */
static void money_is_not_limited_without_a_price(void **state)
{
    struct budget b = budget_of((struct budget_limits){ .cost = 1 });
    struct budget any = budget_of((struct budget_limits){ 0 });
    struct budget_hold hold;
    assert_fails(ERROR_CONFIG, hold_bytes(&b, 4, &hold, err));
    assert_int_equal(b.model_count, 0);
    assert_ok(hold_bytes(&any, 4, &hold, err));
    budget_free(&any);
}

static void note(void *arg)
{
    ++*(int *)arg;
}

/* What one part spends or holds is not there for another; a refusal is told once, leaves both as
 * they were, and names the larger budget. */
static void parts_share_a_larger_budget(void **state)
{
    int warnings = 0;
    struct budget all = budget_of((struct budget_limits){ .calls = -1, .all_calls = 3 });
    struct budget a = budget_of((struct budget_limits){ .calls = 9 });
    struct budget b = budget_of((struct budget_limits){ .calls = 9 });
    struct budget_hold holds[4];
    struct lm_usage usage = { .input_tokens = 10, .output_tokens = 1 };
    struct error why = { 0 };
    all.name = "the batch";
    all.on_refused = note;
    all.arg = &warnings;
    a.up = b.up = &all;
    assert_ok(hold_bytes(&a, 40, &holds[0], err));
    assert_ok(hold_bytes(&b, 40, &holds[1], err));
    assert_int_equal(all.held_tokens, 20);
    settle(&a, &holds[0], &usage);
    assert_int_equal(all.spent.calls, 1);
    assert_int_equal(all.spent.input_tokens, 10);
    assert_int_equal(all.held_tokens, 10);
    assert_ok(hold_bytes(&a, 40, &holds[2], err));
    struct budget before = a;
    assert_int_equal(warnings, 0);
    assert_int_equal(hold_bytes(&a, 40, &holds[3], &why), -(int)ERROR_BUDGET_CALLS);
    assert_string_equal(why.text, "the batch: call limit exceeded: 3 made or in progress + 1 > 3");
    assert_same(&a, &before);
    assert_fails(ERROR_BUDGET_CALLS, hold_bytes(&b, 40, &holds[3], err));
    assert_int_equal(warnings, 1);
    budget_release(&a, &holds[2]);
    budget_release(&b, &holds[1]);
    assert_int_equal(all.held_calls, 0);
    assert_int_equal(all.held_tokens, 0);
    assert_ok(hold_bytes(&b, 40, &holds[3], err));
    budget_release(&b, &holds[3]);
    budget_free(&a);
    budget_free(&b);
}

/* A part's own limit is its own: the larger budget is not told of it. */
static void a_part_has_limits_of_its_own(void **state)
{
    int warnings = 0;
    struct budget all = budget_of((struct budget_limits){ .calls = -1, .total_tokens = 1000 });
    struct budget a = budget_of((struct budget_limits){ .calls = 9, .total_tokens = 5 });
    struct budget_hold hold;
    all.name = "the batch";
    all.on_refused = note;
    all.arg = &warnings;
    a.up = &all;
    assert_fails(ERROR_BUDGET_TOKENS, hold_bytes(&a, 40, &hold, err));
    assert_int_equal(warnings, 0);
    assert_int_equal(all.held_tokens, 0);
    assert_ok(hold_bytes(&a, 4, &hold, err));
    budget_release(&a, &hold);
    budget_free(&a);
}

/* A call of an earlier life counts for its model, depth and account as one that is settled, and
 * leaves what is held and reserved alone. */
static void a_recalled_call_counts_as_a_settled_one(void **state)
{
    struct budget_limits limits = { .calls = -1 };
    struct budget b, c;
    struct account root = { 0 }, below = { .up = &root };
    struct budget_hold hold;
    const struct budget_call call = { .model = "m", .depth = 2, .account = &below };
    const struct lm_reply reply = {
        .usage = { .input_tokens = 3, .output_tokens = 4 }, .cost = 0.5, .attempts = 2
    };
    budget_init(&b, &limits);
    budget_init(&c, &limits);
    assert_ok(budget_recall(&b, "m", 2, &below, &reply, err));
    assert_int_equal(root.spent.input_tokens, 3);
    assert_int_equal(below.spent.attempts, 2);
    assert_ok(budget_hold(&c, &call, &hold, err));
    budget_settle(&c, &hold, &reply);
    assert_memory_equal(&b.spent, &c.spent, sizeof b.spent);
    assert_memory_equal(b.depths, c.depths, sizeof b.depths);
    assert_int_equal(b.model_count, 1);
    assert_memory_equal(&b.models[0].spent, &c.models[0].spent, sizeof b.spent);
    assert_int_equal(b.open, 0);
    assert_int_equal(b.guest_calls, 0);
    budget_free(&b);
    budget_free(&c);
}

/* What has no room is refused and takes none; what is given back has room again. */
static void the_record_has_room_up_to_the_limit(void **state)
{
    struct budget b = budget_of((struct budget_limits){ .record_bytes = 100 });
    struct error why = { 0 };
    assert_ok(budget_reserve_record(&b, 60, err));
    assert_true(budget_reserve_record(&b, 41, &why) < 0);
    assert_int_equal(why.code, ERROR_BUDGET_RECORD);
    assert_string_equal(why.text, "record size exceeded: 60 + 41 > 100 bytes (max-record-size)");
    assert_int_equal(b.record_bytes, 60);
    assert_ok(budget_reserve_record(&b, 40, err));
    budget_unreserve_record(&b, 40);
    assert_ok(budget_reserve_record(&b, 40, err));
    assert_fails(ERROR_BUDGET_RECORD, budget_reserve_record(&b, 1, err));
}

/* What code asks leaves a sixteenth to the steps of the runs. */
static void requests_leave_room_in_the_record(void **state)
{
    struct budget b = budget_of((struct budget_limits){ .record_bytes = 160 });
    struct error why = { 0 };
    assert_ok(budget_reserve_request(&b, 149, err));
    assert_true(budget_reserve_request(&b, 2, &why) < 0);
    assert_string_equal(
        why.text, "record size exceeded: 149 + 2 > 150 bytes (15/16 of max-record-size)");
    assert_ok(budget_reserve_request(&b, 1, err));
    assert_ok(budget_reserve_record(&b, 10, err));
    assert_fails(ERROR_BUDGET_RECORD, budget_reserve_record(&b, 1, err));
}

/* The rest stays for the steps of the runs. */
static void results_have_a_quarter_of_the_record(void **state)
{
    struct budget b = budget_of((struct budget_limits){ .record_bytes = 160 });
    assert_true(budget_reserve_result(&b, 30));
    assert_false(budget_reserve_result(&b, 11));
    assert_true(budget_reserve_result(&b, 10));
    assert_int_equal(b.record_bytes, 40);
    budget_count_record(&b, 120);
    assert_true(budget_reserve_result(&b, 0));
    b.result_bytes = 0;
    assert_false(budget_reserve_result(&b, 1)); /* the record itself is full */
    budget_free(&b);
    b = budget_of((struct budget_limits){ 0 });
    assert_true(budget_reserve_result(&b, 1u << 30));
    budget_free(&b);
}

/* A reply is counted whatever its size; then not even an empty request has room. */
static void what_is_recorded_anyway_leaves_less_room(void **state)
{
    struct budget b = budget_of((struct budget_limits){ .record_bytes = 100 });
    budget_count_record(&b, 99);
    assert_ok(budget_reserve_record(&b, 1, err));
    assert_ok(budget_reserve_record(&b, 0, err));
    budget_count_record(&b, 1000);
    assert_fails(ERROR_BUDGET_RECORD, budget_reserve_record(&b, 0, err));
}

static void without_a_limit_the_record_has_room(void **state)
{
    struct budget b = budget_of((struct budget_limits){ 0 });
    assert_ok(budget_reserve_record(&b, SIZE_MAX / 4, err));
    assert_ok(budget_reserve_request(&b, 1, err));
    assert_ok(budget_reserve_record(&b, 1, err));
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
        cmocka_unit_test(an_unused_reservation_is_released),
        cmocka_unit_test(spending_is_reported_by_model_depth_and_run),
        cmocka_unit_test(models_are_counted_separately_up_to_a_number),
        cmocka_unit_test(money_is_not_limited_without_a_price),
        cmocka_unit_test(parts_share_a_larger_budget),
        cmocka_unit_test(a_part_has_limits_of_its_own),
        cmocka_unit_test(a_recalled_call_counts_as_a_settled_one),
        cmocka_unit_test(the_record_has_room_up_to_the_limit),
        cmocka_unit_test(requests_leave_room_in_the_record),
        cmocka_unit_test(results_have_a_quarter_of_the_record),
        cmocka_unit_test(what_is_recorded_anyway_leaves_less_room),
        cmocka_unit_test(without_a_limit_the_record_has_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
