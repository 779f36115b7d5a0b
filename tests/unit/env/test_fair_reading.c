/* Fair reading: which sandboxes are deferred, and how many are read in one iteration of the
 * loop. */
#include "../test.h"

#include "base/clock.h"
#include "env/common/fair_reading.h"

enum { SMALL = 100, LARGE = 65536, MANY = 20, MUCH = 2000000, LITTLE = 1000 };

struct fixture {
    struct loop *loop;
    struct fair_reading *fair_reading;
    struct fair_reader turn[MANY];
    unsigned came, order[MANY];
    unsigned heard, takes; /* nanoseconds that each takes for what it says */
    bool all_heard, slept;
};

static void came(void *arg, unsigned port)
{
    struct fixture *f = arg;
    f->order[f->came++] = port;
}

/* What it says keeps the host for a while. */
static void read_port(void *arg, unsigned port)
{
    struct fixture *f = arg;
    uint64_t begun = clock_ns();
    while (clock_ns() - begun < f->takes)
        ;
    f->order[f->heard++] = port;
    f->all_heard = f->heard == MANY;
}

static void has_slept(void *arg)
{
    ((struct fixture *)arg)->slept = true;
}

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    assert_ok(loop_open(&f->loop, err));
    assert_ok(fair_reading_open(f->loop, &f->fair_reading, err));
    for (unsigned i = 0; i < MANY; i++)
        f->turn[i] = (struct fair_reader){ .next = came, .read = read_port, .arg = f, .port = i };
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    fair_reading_close(f->fair_reading);
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
    assert_true(fair_reading_wait(f->fair_reading, &f->turn[3], SMALL));
    assert_true(f->turn[3].waits);
    wait_for_more(f);
    assert_int_equal(f->order[0], 3);
    assert_false(f->turn[3].waits);
}

static void large_pieces_wait_only_in_a_crowd(void **state)
{
    struct fixture *f = *state;
    assert_false(fair_reading_wait(f->fair_reading, &f->turn[0], LARGE));
    for (unsigned i = 1; i < 6; i++)
        assert_true(fair_reading_wait(f->fair_reading, &f->turn[i], SMALL));
    assert_true(fair_reading_wait(f->fair_reading, &f->turn[0], LARGE));
}

/* What the kernel has queued ends where it ends: the rest of it, right after a large piece, is no
 * sign that more is being written slowly. Another small one is. */
static void the_rest_of_a_large_piece_does_not_wait(void **state)
{
    struct fixture *f = *state;
    assert_false(fair_reading_wait(f->fair_reading, &f->turn[0], LARGE));
    assert_false(fair_reading_wait(f->fair_reading, &f->turn[0], SMALL));
    assert_true(fair_reading_wait(f->fair_reading, &f->turn[0], SMALL));
}

static void some_come_at_once_and_in_order(void **state)
{
    struct fixture *f = *state;
    for (unsigned i = 0; i < MANY; i++)
        fair_reading_wait(f->fair_reading, &f->turn[i], SMALL);
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
        fair_reading_wait(f->fair_reading, &f->turn[i], SMALL);
    fair_reading_leave(f->fair_reading, &f->turn[1]);
    fair_reading_leave(f->fair_reading, &f->turn[1]);
    while (f->came < 2)
        wait_for_more(f);
    assert_int_equal(f->order[1], 2);
    assert_false(f->turn[1].waits);
}

static void take(struct fixture *f, unsigned from, unsigned to, uint64_t ns)
{
    for (unsigned i = from; i < to; i++)
        fair_reading_add_use(f->fair_reading, &f->turn[i], ns, ns);
}

/* Among many sandboxes, one that used much of the host's time is deferred, and one that used little
 * is not. Among few, none is deferred. */
static void who_takes_much_comes_later_in_a_crowd(void **state)
{
    struct fixture *f = *state;
    take(f, 0, 4, MUCH);
    assert_false(fair_reading_put_off(f->fair_reading, &f->turn[0]));
    take(f, 4, MANY - 1, MUCH);
    take(f, MANY - 1, MANY, LITTLE);
    assert_true(fair_reading_put_off(f->fair_reading, &f->turn[0]));
    assert_true(fair_reading_put_off(f->fair_reading, &f->turn[0])); /* once */
    assert_false(fair_reading_put_off(f->fair_reading, &f->turn[MANY - 1]));
    uv_run(&f->loop->uv, UV_RUN_ONCE);
    assert_int_equal(f->heard, 1);
    assert_int_equal(f->order[0], 0);
    assert_false(f->turn[0].waits);
}

/* Between those that were put off the others are looked at: in one round of the loop only some are
 * heard, in their order, and then all. */
static void who_was_put_off_leaves_room_for_others(void **state)
{
    struct fixture *f = *state;
    unsigned rounds = 0;
    f->takes = 150000;
    take(f, 0, MANY, MUCH);
    for (unsigned i = 0; i < MANY; i++)
        assert_true(fair_reading_put_off(f->fair_reading, &f->turn[i]));
    while (f->heard < MANY) {
        unsigned before = f->heard;
        uv_run(&f->loop->uv, UV_RUN_NOWAIT);
        assert_in_range(f->heard - before, 0, 2);
        rounds++;
    }
    assert_true(rounds >= MANY / 2);
    for (unsigned i = 0; i < MANY; i++)
        assert_int_equal(f->order[i], i);
}

/* What the last of them says may be what somebody waits for: the loop does not sleep on it until
 * something else comes. */
static void no_port_sleeps_on_received_bytes(void **state)
{
    struct fixture *f = *state;
    struct timer *later = timer_new(f->loop, has_slept, f);
    take(f, 0, MANY, MUCH);
    for (unsigned i = 0; i < MANY; i++)
        assert_true(fair_reading_put_off(f->fair_reading, &f->turn[i]));
    timer_start(later, 5000, 0);
    assert_ok(loop_run_until(f->loop, &f->all_heard, err));
    assert_false(f->slept);
    timer_free(later);
}

/* A port whose message took the host long rests four times as long, while another one is heard; it
 * does not keep that one waiting, and its own messages are heard one after the other. */
static void who_took_long_rests_while_others_are_heard(void **state)
{
    enum { LONG = 40000000 };
    struct fixture *f = *state;
    int other = 0;
    struct fair_reader light = { .next = came, .read = read_port, .arg = &other };
    uint64_t begun = clock_ns();
    fair_reading_add_use(f->fair_reading, &light, LITTLE, LITTLE);
    fair_reading_add_use(f->fair_reading, &f->turn[0], LONG, LONG);
    fair_reading_add_use(f->fair_reading, &f->turn[1], LONG, LONG);
    assert_true(fair_reading_put_off(f->fair_reading, &f->turn[0]));
    assert_true(fair_reading_put_off(f->fair_reading, &f->turn[1]));
    for (unsigned messages = 0; messages < 100; messages++)
        assert_false(fair_reading_put_off(f->fair_reading, &light));
    while (f->heard < 2) {
        uv_run(&f->loop->uv, UV_RUN_ONCE);
    }
    assert_int_equal(f->order[0], 0);
    assert_int_equal(f->order[1], 1);
    assert_true(clock_ns() - begun >= 4 * (uint64_t)LONG);
    fair_reading_begin(f->fair_reading, &f->turn[0]);
    fair_reading_add_use(f->fair_reading, &f->turn[1], LONG, LONG);
    assert_false(
        fair_reading_put_off(f->fair_reading, &f->turn[0])); /* it was given something new to do */
    assert_true(fair_reading_put_off(f->fair_reading, &f->turn[1]));
    fair_reading_leave(f->fair_reading, &f->turn[1]);
    assert_false(f->turn[1].waits);
}

/* What the host spends on answers, later, counts as what it spent on the message. One port rests 16
 * times as long, so that another one keeps most of the host's time. */
static void answers_that_took_long_are_charged_to_who_asked(void **state)
{
    enum { LONG = 20000000 };
    struct fixture *f = *state;
    int other = 0;
    uint64_t begun = clock_ns();
    struct fair_reader light = { .next = came, .read = read_port, .arg = &other };
    fair_reading_add_use(f->fair_reading, &light, LITTLE, LITTLE);
    fair_reading_charge(f->fair_reading, &f->turn[0], LITTLE);
    assert_false(fair_reading_put_off(f->fair_reading, &f->turn[0])); /* these did not */
    fair_reading_charge(f->fair_reading, &f->turn[0], LONG);
    assert_false(fair_reading_put_off(f->fair_reading, &light));
    assert_true(fair_reading_put_off(f->fair_reading, &f->turn[0]));
    while (f->heard < 1)
        uv_run(&f->loop->uv, UV_RUN_ONCE);
    assert_true(clock_ns() - begun >= 15 * (uint64_t)LONG);
}

/* The host is not idle for nobody. Its own other ports are nobody to it. */
static void who_is_alone_does_not_rest(void **state)
{
    struct fixture *f = *state;
    fair_reading_add_use(f->fair_reading, &f->turn[1], LITTLE, LITTLE);
    fair_reading_add_use(f->fair_reading, &f->turn[0], (uint64_t)50 * MUCH, (uint64_t)50 * MUCH);
    assert_false(fair_reading_put_off(f->fair_reading, &f->turn[0]));
}

/* With the next thing to do all begin anew, and so do those that come after one which is gone. */
static void what_was_taken_is_forgotten_with_the_next_operation(void **state)
{
    struct fixture *f = *state;
    take(f, 0, 6, MUCH);
    assert_true(fair_reading_put_off(f->fair_reading, &f->turn[0]));
    fair_reading_leave(f->fair_reading, &f->turn[0]);
    fair_reading_begin(f->fair_reading, &f->turn[0]);
    assert_false(fair_reading_put_off(f->fair_reading, &f->turn[0]));
    assert_true(fair_reading_put_off(f->fair_reading, &f->turn[1]));
    fair_reading_leave(f->fair_reading, &f->turn[1]);
    fair_reading_begin(f->fair_reading, &f->turn[5]);
    assert_false(fair_reading_put_off(f->fair_reading, &f->turn[1])); /* four are not a crowd */
    uv_run(&f->loop->uv, UV_RUN_NOWAIT);
    assert_int_equal(f->heard, 0);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(a_small_piece_waits_and_its_turn_comes),
        T(large_pieces_wait_only_in_a_crowd),
        T(the_rest_of_a_large_piece_does_not_wait),
        T(some_come_at_once_and_in_order),
        T(who_left_is_not_called),
        T(who_takes_much_comes_later_in_a_crowd),
        T(who_was_put_off_leaves_room_for_others),
        T(no_port_sleeps_on_received_bytes),
        T(who_took_long_rests_while_others_are_heard),
        T(answers_that_took_long_are_charged_to_who_asked),
        T(who_is_alone_does_not_rest),
        T(what_was_taken_is_forgotten_with_the_next_operation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
