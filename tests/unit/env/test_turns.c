/* Who waits for its turn, and how many come at once. */
#include "../test.h"

#include "env/turns.h"

enum { SMALL = 100, LARGE = 65536, MANY = 20 };

struct fixture {
    struct loop *loop;
    struct turns *turns;
    struct turn turn[MANY];
    unsigned came, order[MANY];
};

static void came(void *arg, unsigned port)
{
    struct fixture *f = arg;
    f->order[f->came++] = port;
}

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    assert_ok(loop_open(&f->loop, err));
    assert_ok(turns_open(f->loop, &f->turns, err));
    for (unsigned i = 0; i < MANY; i++)
        f->turn[i] = (struct turn){ .next = came, .arg = f, .port = i };
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    turns_close(f->turns);
    loop_close(f->loop);
    free(f);
    return 0;
}

/* Turns the loop until somebody's turn has come. */
static void wait_for_more(struct fixture *f)
{
    unsigned before = f->came;
    while (f->came == before)
        uv_run(&f->loop->uv, UV_RUN_ONCE);
}

static void a_small_piece_waits_and_its_turn_comes(void **state)
{
    struct fixture *f = *state;
    assert_true(turns_wait(f->turns, &f->turn[3], SMALL));
    assert_true(f->turn[3].waits);
    wait_for_more(f);
    assert_int_equal(f->order[0], 3);
    assert_false(f->turn[3].waits);
}

static void large_pieces_wait_only_in_a_crowd(void **state)
{
    struct fixture *f = *state;
    assert_false(turns_wait(f->turns, &f->turn[0], LARGE));
    for (unsigned i = 1; i < 6; i++)
        assert_true(turns_wait(f->turns, &f->turn[i], SMALL));
    assert_true(turns_wait(f->turns, &f->turn[0], LARGE));
}

static void some_come_at_once_and_in_order(void **state)
{
    struct fixture *f = *state;
    for (unsigned i = 0; i < MANY; i++)
        turns_wait(f->turns, &f->turn[i], SMALL);
    wait_for_more(f);
    assert_true(f->came > 1 && f->came < MANY);
    while (f->came < MANY)
        wait_for_more(f);
    for (unsigned i = 0; i < MANY; i++)
        assert_int_equal(f->order[i], i);
}

static void who_left_is_not_called(void **state)
{
    struct fixture *f = *state;
    for (unsigned i = 0; i < 3; i++)
        turns_wait(f->turns, &f->turn[i], SMALL);
    turns_leave(f->turns, &f->turn[1]);
    turns_leave(f->turns, &f->turn[1]);
    while (f->came < 2)
        wait_for_more(f);
    assert_int_equal(f->order[1], 2);
    assert_false(f->turn[1].waits);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(a_small_piece_waits_and_its_turn_comes),
        T(large_pieces_wait_only_in_a_crowd),
        T(some_come_at_once_and_in_order),
        T(who_left_is_not_called),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
