/* Limits per minute: no more is taken in any minute, and nobody waits without end. */
#include "base/rate.h"

#include "../test.h"

enum { START = 1000000000 };

static bool take(struct rate_window *w, int64_t at_ms, const char *holder, struct rate_amount limit,
    struct rate_amount least, struct rate_amount most, struct rate_slice *out)
{
    const struct rate_ask ask = { holder, limit, least, most };
    return rate_take(w, START + at_ms, START + at_ms + RATE_LEASE_MS, &ask, out);
}

static bool take_requests(struct rate_window *w, int64_t at_ms, const char *holder, int64_t limit,
    int64_t least, int64_t most, int64_t *got)
{
    struct rate_slice slice = { 0 };
    bool has_taken = take(w, at_ms, holder, (struct rate_amount){ limit, 0 },
        (struct rate_amount){ least, least }, (struct rate_amount){ most, most }, &slice);
    *got = slice.amount.requests;
    return has_taken;
}

/* Whatever is asked for when: what may be used in any minute is within the limit, and nearly all of
 * the limit is used over an hour. */
static void in_any_minute_no_more_than_the_limit_is_used(void **state)
{
    enum { ASKS = 36000, LIMIT = 500 };
    static int64_t at[ASKS], got[ASKS];
    struct rate_window w = { 0 };
    int64_t total = 0, sum = 0;
    unsigned seed = 7;
    for (int i = 0, first = 0; i < ASKS; i++) {
        seed = seed * 1103515245u + 12345u;
        at[i] = i * 100;
        take_requests(&w, at[i], seed & 0x10000 ? "a" : "b", LIMIT, 1 + (seed >> 20) % 9,
            10 + (seed >> 24), &got[i]);
        total += got[i];
        sum += got[i];
        /* the first is used at its end, the others at once */
        for (; at[first] + RATE_LEASE_MS + 60000 <= at[i]; first++)
            sum -= got[first];
        assert_in_range(sum, 0, LIMIT);
    }
    assert_true(total > 60 * LIMIT * 9 / 10);
}

static void what_is_returned_can_be_taken_and_what_was_used_more_counts(void **state)
{
    struct rate_window w = { 0 };
    struct rate_slice slice, other;
    const struct rate_amount limit = { 0, 1000 }, all = { 1, 1000 }, some = { 1, 100 };
    assert_true(take(&w, 0, "a", limit, some, all, &slice));
    assert_int_equal(slice.amount.tokens, 1000);
    assert_false(take(&w, 10, "a", limit, some, some, &other));
    rate_change(&w, &(struct rate_slice){ slice.second, { 0, -300 } });
    assert_true(take(&w, 20, "a", limit, some, all, &other));
    assert_int_equal(other.amount.tokens, 300);
    rate_change(&w, &(struct rate_slice){ slice.second, { 0, 500 } });
    assert_false(take(&w, 3000 + 60000, "a", limit, some, some, &other));
    assert_true(take(&w, 5000 + 60000, "a", limit, some, some, &other));
}

/* Without its turn, it would never find so much at once. */
static void small_requests_do_not_overtake_a_large_one_without_end(void **state)
{
    struct rate_window w = { 0 };
    int64_t got, at = 0;
    while (take_requests(&w, at, "small", 100, 1, 1, &got)) /* a second's rest after each */
        at += 500;
    bool is_served = false;
    for (; !is_served && at < 400000; at += 500) {
        take_requests(&w, at, "small", 100, 1, 1, &got);
        is_served = take_requests(&w, at, "large", 100, 60, 60, &got);
    }
    assert_true(is_served);
    assert_int_equal(got, 60);
}

static void one_that_asks_no_more_holds_nobody_up(void **state)
{
    struct rate_window w = { 0 };
    int64_t got;
    assert_true(take_requests(&w, 0, "a", 10, 6, 6, &got));
    assert_false(take_requests(&w, 0, "dead", 10, 5, 5, &got));
    assert_false(take_requests(&w, 100, "b", 10, 1, 1, &got));
    assert_true(take_requests(&w, 100 + RATE_NEXT_MS, "b", 10, 1, 1, &got));
}

static void more_than_the_limit_is_asked_for_as_the_whole_limit(void **state)
{
    struct rate_window w = { 0 };
    int64_t got;
    assert_true(take_requests(&w, 0, "a", 10, 50, 50, &got));
    assert_int_equal(got, 10);
    assert_false(take_requests(&w, 1, "a", 10, 50, 50, &got));
}

static void a_wait_is_as_long_as_something_is_in_the_way(void **state)
{
    struct rate_window w = { 0 };
    int64_t got;
    const struct rate_ask ask = { "a", { 10, 0 }, { 5, 5 }, { 5, 5 } };
    take_requests(&w, 0, "a", 10, 4, 4, &got);
    take_requests(&w, 20000, "a", 10, 6, 6, &got);
    int64_t wait = rate_wait_ms(&w, START + 30000, &ask);
    assert_false(take_requests(&w, 30000 + wait - 1, "a", 10, 5, 5, &got));
    assert_true(take_requests(&w, 30000 + wait, "a", 10, 5, 5, &got));
    w = (struct rate_window){ 0 };
    assert_int_equal(rate_wait_ms(&w, START, &ask), 0);
}

/* A clock that was hours ahead has written them. */
static void what_lies_in_the_future_counts_for_a_minute(void **state)
{
    struct rate_window w = { 0 };
    int64_t got;
    assert_true(take_requests(&w, 7200000, "a", 10, 10, 10, &got));
    assert_false(take_requests(&w, 0, "a", 10, 1, 1, &got));
    assert_false(take_requests(&w, 119000, "a", 10, 1, 1, &got));
    assert_true(take_requests(&w, 125000, "a", 10, 1, 1, &got));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(in_any_minute_no_more_than_the_limit_is_used),
        cmocka_unit_test(what_is_returned_can_be_taken_and_what_was_used_more_counts),
        cmocka_unit_test(small_requests_do_not_overtake_a_large_one_without_end),
        cmocka_unit_test(one_that_asks_no_more_holds_nobody_up),
        cmocka_unit_test(more_than_the_limit_is_asked_for_as_the_whole_limit),
        cmocka_unit_test(a_wait_is_as_long_as_something_is_in_the_way),
        cmocka_unit_test(what_lies_in_the_future_counts_for_a_minute),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
