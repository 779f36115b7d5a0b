/* Forks and checkpoints of sessions, through the public interface. */
#include "../test.h"

#include "droste.h"

static droste *d;
static droste_error error;
static droste_session *session;

#define API_ERROR error
#include "assert_fine.h"

static int open_with(const char *checkpoint)
{
    assert_fine(droste_new(&d, &error));
    assert_fine(droste_set(d, "checkpoint", checkpoint, &error));
    assert_fine(droste_session_open(d, &session, &error));
    return 0;
}

static int setup(void **state)
{
    return open_with("no");
}

static int setup_auto(void **state)
{
    return open_with("auto");
}

static int teardown(void **state)
{
    droste_session_close(session);
    droste_free(d);
    return 0;
}

/* Runs a cell; returns the repr of its last expression, or its status. */
static const char *run(droste_session *s, const char *code)
{
    static char text[64];
    droste_result *r = NULL;
    assert_fine(droste_session_exec(s, code, strlen(code), DROSTE_ECHO, &r, &error));
    const char *echo = droste_result_echo(r);
    snprintf(text, sizeof text, "%s", echo && echo[0] ? echo : droste_result_status(r));
    droste_result_free(r);
    return text;
}

static unsigned keep(void)
{
    unsigned id = 0;
    assert_fine(droste_session_checkpoint(session, &id, &error));
    assert_true(id > 0);
    return id;
}

static void a_session_goes_back_as_often_as_it_likes(void **state)
{
    run(session, "x = 1");
    unsigned first = keep();
    run(session, "x = 2");
    unsigned second = keep();
    for (int i = 0; i < 2; i++) {
        run(session, "x = 99");
        assert_fine(droste_session_rollback(session, first, &error));
        assert_string_equal(run(session, "x"), "1");
        assert_fine(droste_session_rollback(session, second, &error));
        assert_string_equal(run(session, "x"), "2");
    }
}

/* A checkpoint outlives the session's process. */
static void a_dead_session_continues_from_a_checkpoint(void **state)
{
    run(session, "x = 7");
    unsigned id = keep();
    assert_string_equal(run(session, "import os; os._exit(1)"), "killed");
    assert_false(droste_session_is_alive(session));
    assert_fine(droste_session_rollback(session, id, &error));
    assert_true(droste_session_is_alive(session));
    assert_string_equal(run(session, "x"), "7");
}

static void another_session_begins_at_a_checkpoint(void **state)
{
    droste_session *other = NULL;
    run(session, "x = [1]");
    unsigned id = keep();
    run(session, "x.append(2)");
    assert_fine(droste_session_at(session, id, &other, &error));
    assert_string_equal(run(other, "x.append(3); x"), "[1, 3]");
    assert_string_equal(run(session, "x"), "[1, 2]");
    droste_session_close(other);
}

static void checkpoints_form_a_tree(void **state)
{
    droste_checkpoint all[4];
    unsigned root = keep();
    run(session, "1");
    unsigned left = keep();
    assert_fine(droste_session_rollback(session, root, &error));
    unsigned right = keep();
    assert_int_equal(droste_session_checkpoints(session, all, 4), 3);
    assert_int_equal(all[0].id, root);
    assert_int_equal(all[0].parent, 0);
    assert_int_equal(all[1].id, left);
    assert_int_equal(all[1].parent, root);
    assert_int_equal(all[2].id, right);
    assert_int_equal(all[2].parent, root);
    assert_true(all[2].current && !all[1].current && !all[0].current);
    assert_fine(droste_session_forget(session, left, &error));
    assert_int_equal(droste_session_checkpoints(session, all, 1), 2);
    assert_int_equal(all[0].id, root);
}

static void what_is_no_checkpoint_is_named(void **state)
{
    droste_session *other = NULL;
    unsigned id = keep();
    assert_fine(droste_session_forget(session, id, &error));
    assert_int_equal(droste_session_rollback(session, id, &error), -DROSTE_ERROR_NOT_FOUND);
    assert_int_equal(droste_session_forget(session, id, &error), -DROSTE_ERROR_NOT_FOUND);
    assert_int_equal(droste_session_at(session, 99, &other, &error), -DROSTE_ERROR_NOT_FOUND);
    assert_non_null(strstr(error.text, "no checkpoint 99"));
    assert_null(other);
    assert_string_equal(run(session, "1"), "1");
}

static void more_memory_than_allowed_is_refused(void **state)
{
    unsigned id = 0;
    droste_session_close(session);
    assert_fine(droste_set(d, "checkpoint-memory", "16M", &error));
    assert_fine(droste_session_open(d, &session, &error));
    keep();
    run(session, "x = bytearray(b'1') * (64 << 20)");
    keep(); /* its pages are still the session's, too */
    run(session, "x[::4096] = bytes(len(x[::4096]))");
    assert_int_equal(droste_session_checkpoint(session, &id, &error), -DROSTE_ERROR_ARGUMENT);
    assert_non_null(strstr(error.text, "checkpoint-memory"));
}

/* A fork cannot have the threads of its session; when they are gone, it can. */
static void threads_are_refused_by_name(void **state)
{
    droste_session *fork = NULL;
    unsigned id = 0;
    run(session, "import threading\ne = threading.Event()\n"
                 "t = threading.Thread(target=e.wait, name='sleeper')\nt.start()");
    assert_int_equal(droste_session_fork(session, &fork, &error), -DROSTE_ERROR_ARGUMENT);
    assert_non_null(strstr(error.text, "sleeper"));
    assert_int_equal(droste_session_checkpoint(session, &id, &error), -DROSTE_ERROR_ARGUMENT);
    run(session, "e.set(); t.join()");
    assert_fine(droste_session_fork(session, &fork, &error));
    assert_string_equal(run(fork, "t.is_alive()"), "False");
    droste_session_close(fork);
}

/* Either may end first, and forks have forks. */
static void forks_live_without_their_session(void **state)
{
    droste_session *fork = NULL, *below = NULL;
    run(session, "x = 1");
    assert_fine(droste_session_fork(session, &fork, &error));
    assert_fine(droste_session_fork(fork, &below, &error));
    assert_string_equal(run(fork, "x += 1; x"), "2");
    droste_session_close(fork);
    droste_session_close(session);
    session = NULL;
    assert_string_equal(run(below, "x += 10; x"), "11");
    droste_session_close(below);
}

/* With checkpoint = auto, what kills a cell undoes it, and only it. */
static void a_killed_cell_is_undone(void **state)
{
    static const char code[] = "x = 9\nimport os\nos._exit(1)";
    droste_result *r = NULL;
    run(session, "x = 5");
    assert_fine(droste_session_exec(session, code, sizeof code - 1, 0, &r, &error));
    assert_string_equal(droste_result_status(r), "killed");
    assert_int_equal(droste_result_rolled_back(r), 1);
    assert_true(droste_result_alive(r));
    droste_result_free(r);
    assert_string_equal(run(session, "x"), "5");
    assert_fine(droste_session_exec(session, "1/0", 3, 0, &r, &error));
    assert_int_equal(droste_result_rolled_back(r), -1);
    droste_result_free(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_session_goes_back_as_often_as_it_likes, setup, teardown),
        cmocka_unit_test_setup_teardown(
            a_dead_session_continues_from_a_checkpoint, setup, teardown),
        cmocka_unit_test_setup_teardown(another_session_begins_at_a_checkpoint, setup, teardown),
        cmocka_unit_test_setup_teardown(checkpoints_form_a_tree, setup, teardown),
        cmocka_unit_test_setup_teardown(what_is_no_checkpoint_is_named, setup, teardown),
        cmocka_unit_test_setup_teardown(more_memory_than_allowed_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(threads_are_refused_by_name, setup, teardown),
        cmocka_unit_test_setup_teardown(forks_live_without_their_session, setup, teardown),
        cmocka_unit_test_setup_teardown(a_killed_cell_is_undone, setup_auto, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
