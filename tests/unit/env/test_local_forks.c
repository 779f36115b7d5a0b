/* Forks of local sandboxes, and when their first sandbox may end. */
#include "fixture.h"

#include <signal.h>

static void fork_box(struct box *parent, struct box *b)
{
    unsigned char header[FRAME_HEADER_SIZE];
    struct frame frame = { .type = FRAME_FORK, .flags = FRAME_FD, .id = 1 };
    struct iovec iov = { header, sizeof header };
    frame_write_header(header, &frame);
    *b = (struct box){ .ops = parent->ops,
        .decoder = { .rules = rules, .rule_count = array_length(rules) } };
    assert_ok(parent->ops->fork(parent->sandbox, &iov, 1, &events, b, &b->sandbox, err));
}

static bool has_standby(pid_t zygote)
{
    struct process list[64];
    size_t n = descendants(zygote, list, array_length(list));
    for (size_t i = 0; i < n; i++)
        if (list[i].is_zygote)
            return true;
    return false;
}

/* A standby serves, and the zygote only forwards its answer, so a session can fork and end before
 * the host knows its keeper. */
static void a_fork_outlives_a_session_whose_zygote_answers_late(void **state)
{
    struct fixture *f = *state;
    for (size_t i = 0; i < level_count(); i++) {
        struct box first, parent, fork;
        open_working(f, levels[i], &first);
        close_box(&first);
        pid_t zygote = zygote_pid();
        wait_until(f, has_standby(zygote));
        assert_int_equal(kill(zygote, SIGSTOP), 0);
        open_at(f, levels[i], &parent);
        fork_box(&parent, &fork);
        wait_until(f, fork.ready || parent.ops->unread(parent.sandbox) > 0);
        if (!fork.ready)
            assert_int_equal(kill(zygote, SIGCONT), 0);
        wait_until(f, fork.ready);
        close_box(&parent);
        for (int cell = 1; cell <= 3; cell++) {
            exec_in(&fork, "import time; time.sleep(0.01)");
            wait_until(f, fork.ended || fork.results == (unsigned)cell);
        }
        assert_int_equal(kill(zygote, SIGCONT), 0);
        assert_false(fork.ended);
        close_box(&fork);
        environment_close(f->env);
        assert_ok(environment_open("local", f->loop, NULL, &f->env, err));
    }
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(a_fork_outlives_a_session_whose_zygote_answers_late),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
