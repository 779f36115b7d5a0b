/* The delay before a retry. */
#include "../test.h"

#include <math.h>

#include "net/retry.h"

enum { SAMPLES = 1000 };

/* Between a half and the whole of 0.5 s, 1 s, 2 s… up to 30 s, and not always the same. */
static void pauses_double_and_are_spread(void **state)
{
    for (unsigned tries = 1; tries <= 40; tries++) {
        double most = fmin(0.5 * pow(2, tries - 1), 30), least = INFINITY, longest = 0;
        for (int i = 0; i < SAMPLES; i++) {
            double pause = retry_pause_seconds(tries, 0, INFINITY);
            least = fmin(least, pause);
            longest = fmax(longest, pause);
        }
        assert_true(least >= most / 2 && longest <= most);
        assert_true(longest - least > most / 4);
    }
}

/* A server's pause is never shortened below a minute, and never lengthened by more than a tenth. */
static void a_pause_that_was_asked_for_is_kept(void **state)
{
    for (int i = 0; i < SAMPLES; i++) {
        double short_one = retry_pause_seconds(5, 2, INFINITY);
        double long_one = retry_pause_seconds(1, 3600, INFINITY);
        assert_true(short_one >= 2 && short_one <= 2.2);
        assert_true(long_one >= 60 && long_one <= 66);
    }
    assert_true(retry_asked_seconds(7) == 7 && retry_asked_seconds(3600) == 60);
}

static void a_pause_past_the_deadline_is_not_begun(void **state)
{
    assert_true(retry_pause_seconds(1, 0, 0.2) < 0);
    assert_true(retry_pause_seconds(1, 5, 4.9) < 0);
    assert_true(retry_pause_seconds(1, 0, -1) < 0);
    assert_true(retry_pause_seconds(1, 0, 0.6) > 0);
    assert_true(retry_pause_seconds(1, 5, 5.6) > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pauses_double_and_are_spread),
        cmocka_unit_test(a_pause_that_was_asked_for_is_kept),
        cmocka_unit_test(a_pause_past_the_deadline_is_not_begun),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
