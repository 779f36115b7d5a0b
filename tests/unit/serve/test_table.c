/* The table that workers share: limits of keys and of the server, and what a death leaves. */
#include "../test.h"

#include <math.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "serve/table.h"

enum { SECOND = 1000000000 };

static struct table *table_made(unsigned workers)
{
    struct table *t = NULL;
    assert_ok(table_new(workers, &t, NULL, err));
    return t;
}

static void an_account_keeps_its_row(void **state)
{
    struct table *t = table_made(1);
    int a = table_account(t, "aaaa"), b = table_account(t, "bbbb");
    assert_int_not_equal(a, b);
    assert_int_equal(table_account(t, "aaaa"), a);
    char id[KEY_ID_SIZE];
    for (int i = 2; i < TABLE_ACCOUNTS; i++) {
        snprintf(id, sizeof id, "k%d", i);
        assert_int_equal(table_account(t, id), i);
    }
    assert_int_equal(table_account(t, "one more"), -1);
    assert_int_equal(table_account(t, "bbbb"), b);
    table_close(t);
}

/* A key's sandboxes count in all workers together, and so do those of the server. */
static void sandboxes_are_limited_over_all_workers(void **state)
{
    struct table *t = table_made(2);
    const struct key_limits two = { .sandboxes = 2 }, none = { 0 };
    int a = table_account(t, "a"), b = table_account(t, "b");
    double wait = 0;
    assert_int_equal(table_reserve(t, 0, a, &two, 3, 1, &wait), TABLE_RESERVED);
    assert_int_equal(table_reserve(t, 1, a, &two, 3, 1, &wait), TABLE_RESERVED);
    assert_int_equal(table_reserve(t, 1, a, &two, 3, 1, &wait), TABLE_SANDBOXES);
    assert_int_equal(table_reserve(t, 1, b, &none, 3, 1, &wait), TABLE_RESERVED);
    assert_int_equal(table_reserve(t, 0, b, &none, 3, 1, &wait), TABLE_FULL);
    assert_int_equal(table_account_sandboxes(t, a), 2);
    assert_int_equal(table_sandboxes(t), 3);
    table_release(t, 0, a);
    assert_int_equal(table_reserve(t, 0, a, &two, 3, 1, &wait), TABLE_RESERVED);
    table_close(t);
}

/* A second's worth of starts is saved up, and the answer says when the next one is there. */
static void starts_are_limited_by_rate(void **state)
{
    struct table *t = table_made(1);
    const struct key_limits four = { .starts = 4 }, slow = { .starts = 0.5 };
    int a = table_account(t, "a"), b = table_account(t, "b");
    uint64_t now = 5 * (uint64_t)SECOND;
    double wait = 0;
    for (int i = 0; i < 4; i++)
        assert_int_equal(table_reserve(t, 0, a, &four, 99, now, &wait), TABLE_RESERVED);
    assert_int_equal(table_reserve(t, 0, a, &four, 99, now, &wait), TABLE_RATE);
    assert_true(fabs(wait - 0.25) < 1e-9);
    now += SECOND / 4;
    assert_int_equal(table_reserve(t, 0, a, &four, 99, now, &wait), TABLE_RESERVED);
    now += 3600 * (uint64_t)SECOND; /* no more than a second's worth */
    for (int i = 0; i < 4; i++)
        assert_int_equal(table_reserve(t, 0, a, &four, 99, now, &wait), TABLE_RESERVED);
    assert_int_equal(table_reserve(t, 0, a, &four, 99, now, &wait), TABLE_RATE);

    assert_int_equal(table_reserve(t, 0, b, &slow, 99, now, &wait), TABLE_RESERVED);
    assert_int_equal(table_reserve(t, 0, b, &slow, 99, now, &wait), TABLE_RATE);
    assert_true(fabs(wait - 2) < 1e-9);
    table_close(t);
}

/* What is refused for another reason uses up no start. */
static void a_full_server_takes_no_start(void **state)
{
    struct table *t = table_made(1);
    const struct key_limits one = { .starts = 1 };
    int a = table_account(t, "a");
    double wait = 0;
    assert_int_equal(table_reserve(t, 0, a, &one, 0, SECOND, &wait), TABLE_FULL);
    assert_int_equal(table_reserve(t, 0, a, &one, 1, SECOND, &wait), TABLE_RESERVED);
    table_close(t);
}

static void a_dead_worker_leaves_nothing_counted(void **state)
{
    struct table *t = table_made(2);
    const struct key_limits none = { 0 };
    int a = table_account(t, "a");
    double wait = 0;
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(table_reserve(t, i, a, &none, 9, 1, &wait), TABLE_RESERVED);
    t->worker[1].gauges[GAUGE_WAITING] = 3;
    t->worker[1].next_start = 7;
    table_forget(t, 1);
    assert_int_equal(table_account_sandboxes(t, a), 1);
    assert_int_equal(table_sandboxes(t), 1);
    assert_int_equal(t->worker[1].gauges[GAUGE_WAITING], 0);
    assert_int_equal(t->worker[1].next_start, 0);
    table_close(t);
}

/* A worker that is killed while it holds the lock stops no other. */
static void the_lock_survives_its_holder(void **state)
{
    struct table *t = table_made(1);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        pthread_mutex_lock(&t->lock);
        raise(SIGKILL);
    }
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(table_account(t, "a"), 0);
    assert_int_equal(table_account(t, "b"), 1);
    table_close(t);
}

static void a_table_is_the_same_by_its_descriptor(void **state)
{
    struct table *t = NULL, *other = NULL;
    cleanup_fd int fd = -1;
    assert_ok(table_new(1, &t, &fd, err));
    assert_ok(table_map(fd, &other, err));
    assert_int_equal(table_account(t, "a"), 0);
    assert_int_equal(table_account(other, "b"), 1);
    assert_string_equal(t->accounts[1].id, "b");
    table_close(other);
    table_close(t);
}

static void times_are_in_the_bucket_of_their_bound(void **state)
{
    struct table *t = table_made(1);
    table_time(&t->worker[0], TIME_CELL, 200000); /* a bound belongs to its bucket */
    table_time(&t->worker[0], TIME_CELL, 200001);
    table_time(&t->worker[0], TIME_CELL, 301 * (uint64_t)SECOND);
    struct table_histogram_row *row = &t->worker[0].times[TIME_CELL];
    assert_int_equal(row->buckets[0], 1);
    assert_int_equal(row->buckets[1], 1);
    assert_int_equal(row->buckets[TABLE_BUCKETS - 1], 1);
    assert_int_equal(row->sum_ns, 400001 + 301 * (uint64_t)SECOND);
    for (size_t i = 1; i < TABLE_BUCKETS; i++)
        assert_true(table_bound(i) > table_bound(i - 1));
    assert_true(isinf(table_bound(TABLE_BUCKETS - 1)));
    table_close(t);
}

static void a_key_is_charged_for_its_models(void **state)
{
    struct table *t = table_made(1);
    struct table_account *a = &t->accounts[table_account(t, "a")];
    table_spend(a, 100, 20, 0.25);
    table_spend(a, 1, 2, -1); /* its price is not known */
    assert_int_equal(a->input_tokens, 101);
    assert_int_equal(a->output_tokens, 22);
    assert_int_equal(a->cost_nanodollars, 250000000);
    table_close(t);
}

/* A row is that of the run that was seen last. */
static void a_client_waits_for_a_run_of_another_worker(void **state)
{
    struct table *t = table_made(2);
    assert_int_equal(table_attended(t, "run"), 0);
    table_attend(t, "run", 5);
    assert_int_equal(table_attended(t, "run"), 5);
    assert_int_equal(table_attended(t, "another"), 0);
    char id[16];
    for (int i = 0; i < 100 * TABLE_ATTENDED; i++) {
        snprintf(id, sizeof id, "%d", i);
        table_attend(t, id, 6);
    }
    assert_int_equal(table_attended(t, "run"), 0);
    assert_int_equal(table_attended(t, id), 6);
    table_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_account_keeps_its_row),
        cmocka_unit_test(sandboxes_are_limited_over_all_workers),
        cmocka_unit_test(starts_are_limited_by_rate),
        cmocka_unit_test(a_full_server_takes_no_start),
        cmocka_unit_test(a_dead_worker_leaves_nothing_counted),
        cmocka_unit_test(the_lock_survives_its_holder),
        cmocka_unit_test(a_table_is_the_same_by_its_descriptor),
        cmocka_unit_test(times_are_in_the_bucket_of_their_bound),
        cmocka_unit_test(a_key_is_charged_for_its_models),
        cmocka_unit_test(a_client_waits_for_a_run_of_another_worker),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
