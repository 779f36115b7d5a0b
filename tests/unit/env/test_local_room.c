/* Local sandboxes where there is no room for more, and many of them at once. */
#include "fixture.h"

#include <sys/resource.h>

enum { BOXES_MAX = 21 };

/* Leaves room for a few sandboxes. Returns the old limit. */
static rlim_t leave_few_descriptors(void)
{
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    rlim_t old = limit.rlim_cur;
    limit.rlim_cur = count_entries("/proc/self/fd") + 40;
    setrlimit(RLIMIT_NOFILE, &limit);
    return old;
}

static void set_descriptors(rlim_t count)
{
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = count;
    setrlimit(RLIMIT_NOFILE, &limit);
}

/* Opens sandboxes until there is no room; the last one waits or failed. */
static int fill_up(struct fixture *f, struct box *boxes, double start_wait, struct error *error)
{
    struct sandbox_spec spec = spec_of(ISOLATION_FULL);
    spec.start_wait = start_wait;
    for (int i = 0; i < BOXES_MAX - 1; i++) {
        if (open_box(f, &spec, &boxes[i], error) < 0 || boxes[i].ops->waits(boxes[i].sandbox))
            return i;
        exec_in(&boxes[i], "x = 1");
        wait_until(f, boxes[i].results == 1 || boxes[i].ended);
        assert_false(boxes[i].ended);
    }
    fail();
    return -1;
}

/* Before descriptors run out, the error says how many sandboxes fit and what to raise. */
static void the_limit_of_descriptors_is_named(void **state)
{
    struct fixture *f = *state;
    struct box boxes[BOXES_MAX], one;
    struct error error = { 0 };
    open_working(f, ISOLATION_FULL, &one);
    rlim_t old = leave_few_descriptors();
    int count = fill_up(f, boxes, 0, &error);
    assert_in_range(count, 1, BOXES_MAX - 1);
    assert_int_equal(error.code, ERROR_ENVIRONMENT);
    assert_non_null(strstr(error.text, "no room for another sandbox"));
    assert_non_null(strstr(error.text, "ulimit -n"));
    set_descriptors(old);
    open_working(f, ISOLATION_FULL, &boxes[count]);
    for (int i = 0; i <= count; i++)
        close_box(&boxes[i]);
    close_box(&one);
}

/* What was sent to it in the meantime arrives. */
static void a_sandbox_waits_until_another_is_closed(void **state)
{
    struct fixture *f = *state;
    struct box boxes[BOXES_MAX], one;
    struct error error = { 0 };
    open_working(f, ISOLATION_FULL, &one);
    rlim_t old = leave_few_descriptors();
    int last = fill_up(f, boxes, 1000, &error);
    assert_in_range(last, 1, BOXES_MAX - 1);
    exec_in(&boxes[last], "x = 1");
    for (int i = 0; i < 10; i++)
        loop_turn(f->loop, 1);
    assert_true(boxes[last].ops->waits(boxes[last].sandbox));
    close_box(&one);
    wait_until(f, boxes[last].results == 1 || boxes[last].ended);
    assert_false(boxes[last].ended);
    assert_false(boxes[last].ops->waits(boxes[last].sandbox));
    for (int i = 0; i <= last; i++)
        close_box(&boxes[i]);
    set_descriptors(old);
}

static void the_wait_for_room_ends_in_time_or_by_a_kill(void **state)
{
    struct fixture *f = *state;
    struct box boxes[BOXES_MAX], killed, one;
    struct error error = { 0 };
    struct sandbox_spec spec = spec_of(ISOLATION_FULL);
    open_working(f, ISOLATION_FULL, &one);
    rlim_t old = leave_few_descriptors();
    int last = fill_up(f, boxes, 0.05, &error);
    spec.start_wait = 1000;
    assert_ok(open_box(f, &spec, &killed, err));
    killed.ops->kill(killed.sandbox);
    wait_until(f, killed.ended && boxes[last].ended);
    assert_int_equal(killed.how.error.code, ERROR_CANCELLED);
    assert_int_equal(boxes[last].how.error.code, ERROR_ENVIRONMENT);
    assert_non_null(strstr(boxes[last].how.error.text, "start-wait"));
    assert_ok(open_box(f, &spec, &boxes[last + 1], err));
    close_box(&boxes[last + 1]); /* while it waits */
    close_box(&killed);
    for (int i = 0; i <= last; i++)
        close_box(&boxes[i]);
    close_box(&one);
    set_descriptors(old);
}

/* As what many sandboxes have sent: small blocks that are free again, all but the one behind the
 * others, for whose sake the allocator keeps their room. */
static void *leave_holes(void)
{
    enum { BLOCKS = 16 << 10, SIZE = 1000 };
    static char *volatile blocks[BLOCKS];
    int last = 0;
    for (int i = 0; i < BLOCKS; i++) {
        blocks[i] = calloc(1, SIZE);
        if (blocks[i] > blocks[last])
            last = i;
    }
    for (int i = 0; i < BLOCKS; i++)
        if (i != last)
            free(blocks[i]);
    return blocks[last];
}

/* Asked for in one go, without the loop running in between: neither side may wait for the other.
 * When half of them have gone, what the host has room for and does not use goes too. */
static void many_sandboxes_can_be_asked_for_at_once(void **state)
{
    enum { MANY = 200 }; /* a few dozen requests fill the socket */
    struct fixture *f = *state;
    static struct box boxes[MANY];
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    rlim_t old = limit.rlim_cur;
    limit.rlim_cur = limit.rlim_max < 8192 ? limit.rlim_max : 8192;
    if (limit.rlim_cur < 10 * MANY) {
        print_message("skipped: needs %d descriptors\n", 10 * MANY);
        skip();
    }
    setrlimit(RLIMIT_NOFILE, &limit);
    for (int i = 0; i < MANY; i++) {
        open_at(f, ISOLATION_FULL, &boxes[i]);
        exec_in(&boxes[i], "x = 1");
    }
    for (int i = 0; i < MANY; i++) {
        wait_until(f, boxes[i].results == 1 || boxes[i].ended);
        assert_false(boxes[i].ended);
    }
    void *last = leave_holes();
    size_t resident = resident_bytes();
    for (int i = 0; i < MANY; i++)
        close_box(&boxes[i]);
#ifndef __SANITIZE_ADDRESS__ /* which keeps freed memory */
    assert_true(resident_bytes() + (8u << 20) < resident);
#else
    (void)resident;
#endif
    free(last);
    limit.rlim_cur = old;
    setrlimit(RLIMIT_NOFILE, &limit);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(the_limit_of_descriptors_is_named),
        T(a_sandbox_waits_until_another_is_closed),
        T(the_wait_for_room_ends_in_time_or_by_a_kill),
        T(many_sandboxes_can_be_asked_for_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
