/* The pool of prepared sandboxes: when it makes them, of which kind, and for how long. */
#include "../test.h"
#include "wait.h"

#include "env/local/pool.h"

enum { MADE_MAX = 8 };

/* Sandboxes and zygotes are only compared. */
static char sandboxes[MADE_MAX], zygotes[2];

static struct {
    struct loop *loop;
    struct pool *pool;
    int made, closed;
    const struct zygote *of[MADE_MAX];
    const struct sandbox_events *events[MADE_MAX];
    void *arg[MADE_MAX];
} all;

static struct zygote *zygote_of(int n)
{
    return (struct zygote *)(void *)&zygotes[n];
}

static int make_one(void *arg, struct zygote *z, const struct jail_limits *limits,
    const struct sandbox_events *events, void *events_arg, struct sandbox **out, struct error *err)
{
    assert_in_range(all.made, 0, MADE_MAX - 1);
    all.of[all.made] = z;
    all.events[all.made] = events;
    all.arg[all.made] = events_arg;
    *out = (struct sandbox *)(void *)&sandboxes[all.made++];
    return 0;
}

static void close_one(struct sandbox *s)
{
    all.closed++;
}

static int setup(void **state)
{
    memset(&all, 0, sizeof all);
    assert_ok(loop_open(&all.loop, err));
    assert_ok(pool_open(all.loop, make_one, close_one, NULL, &all.pool, err));
    return 0;
}

static int teardown(void **state)
{
    pool_close(all.pool);
    loop_close(all.loop);
    return 0;
}

/* Its callers are in the middle of a start: what they have to do comes first. */
static void members_are_made_by_the_loop_alone(void **state)
{
    pool_keep(all.pool, zygote_of(0), &jail_default_limits, 2);
    assert_null(pool_take(all.pool, zygote_of(0), &jail_default_limits));
    assert_int_equal(all.made, 0);
    wait_until(&all, all.made == 2);
    assert_non_null(pool_take(all.pool, zygote_of(0), &jail_default_limits));
    pool_keep(all.pool, zygote_of(0), &jail_default_limits, 2);
    assert_int_equal(all.made, 2);
    wait_until(&all, all.made == 3);
}

/* Between two members, the loop serves those that have been waiting. */
static void one_member_is_made_at_a_time(void **state)
{
    pool_keep(all.pool, zygote_of(0), &jail_default_limits, MADE_MAX);
    for (int before = 0; all.made < MADE_MAX; before = all.made) {
        loop_turn(all.loop, 1);
        assert_in_range(all.made - before, 0, 1);
    }
}

static void members_are_of_one_kind(void **state)
{
    struct jail_limits others = jail_default_limits;
    others.processes++;
    pool_keep(all.pool, zygote_of(0), &jail_default_limits, 1);
    wait_until(&all, all.made == 1);
    assert_null(pool_take(all.pool, zygote_of(1), &jail_default_limits));
    assert_null(pool_take(all.pool, zygote_of(0), &others));
    pool_keep(all.pool, zygote_of(1), &jail_default_limits, 1);
    assert_int_equal(all.closed, 1);
    wait_until(&all, all.made == 2);
    assert_ptr_equal(all.of[1], zygote_of(1));
}

/* The zygote may be dead: the next start says so. */
static void a_member_that_ends_is_not_replaced(void **state)
{
    const struct sandbox_exit how = { .has_status = true };
    pool_keep(all.pool, zygote_of(0), &jail_default_limits, 1);
    wait_until(&all, all.made == 1);
    all.events[0]->ended(all.arg[0], &how);
    assert_int_equal(all.closed, 1);
    assert_null(pool_take(all.pool, zygote_of(0), &jail_default_limits));
    for (int i = 0; i < 10; i++)
        loop_turn(all.loop, 1);
    assert_int_equal(all.made, 1);
}

/* Another one may get its address. */
static void nothing_is_left_of_a_zygote_that_is_freed(void **state)
{
    pool_keep(all.pool, zygote_of(0), &jail_default_limits, 1);
    wait_until(&all, all.made == 1);
    pool_keep(all.pool, zygote_of(0), &jail_default_limits, 2);
    pool_forget(all.pool, zygote_of(0));
    assert_int_equal(all.closed, 1);
    assert_null(pool_take(all.pool, zygote_of(0), &jail_default_limits));
    for (int i = 0; i < 10; i++)
        loop_turn(all.loop, 1);
    assert_int_equal(all.made, 1);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(members_are_made_by_the_loop_alone),
        T(one_member_is_made_at_a_time),
        T(members_are_of_one_kind),
        T(a_member_that_ends_is_not_replaced),
        T(nothing_is_left_of_a_zygote_that_is_freed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
