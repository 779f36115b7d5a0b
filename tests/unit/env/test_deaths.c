/* Local sandboxes and how they end: with their host, their zygote, by a kill, by themselves. */
#include "fixture.h"

#include <errno.h>
#include <signal.h>
#include <sys/wait.h>

static const char busy_code[] = "import os\n"
                                "if os.fork() == 0:\n"
                                "    os.setsid()\n"
                                "    if os.fork() == 0:\n"
                                "        os.write(1, b'up')\n"
                                "        while True: pass\n"
                                "    os._exit(0)\n"
                                "while True: pass";

/* The child's part: a host with a busy sandbox, which tells when it is up. */
static void be_a_host(enum isolation isolation, int tell)
{
    struct fixture *f;
    struct box b;
    setup((void **)&f);
    open_at(f, isolation, &b);
    exec_in(&b, busy_code);
    wait_until(f, b.out.len > 0);
    (void)!write(tell, "x", 1);
    for (;;)
        pause();
}

/* And no directory: the zygote sees the end and tidies up, where it has something to. */
static void a_killed_host_leaves_no_process_and_no_directory(void **state)
{
    char dir[] = "/tmp/droste-test-XXXXXX";
    assert_non_null(mkdtemp(dir));
    chmod(dir, 0777);
    setenv("TMPDIR", dir, 1);
    for (size_t i = 0; i < level_count(); i++) {
        struct process list[64];
        int ends[2];
        char byte;
        assert_int_equal(pipe(ends), 0);
        fflush(NULL);
        pid_t host = fork();
        if (host == 0)
            be_a_host(levels[i], ends[1]);
        close(ends[1]);
        assert_int_equal(read(ends[0], &byte, 1), 1);
        close(ends[0]);
        size_t count = descendants(host, list, array_length(list));
        assert_true(count >= 4); /* zygote, keeper, worker, the daemon */
        kill(host, SIGKILL);
        waitpid(host, NULL, 0);
        size_t left = count;
        for (int tries = 0; tries < 6000 && left > 0; tries++) {
            usleep(10000);
            left = 0;
            for (size_t j = 0; j < count; j++)
                left += is_left(&list[j]);
        }
        assert_int_equal(left, 0);
        assert_int_equal(count_entries(dir), 0);
    }
    unsetenv("TMPDIR");
    assert_int_equal(rmdir(dir), 0);
}

static void a_killed_zygote_ends_its_sandboxes_and_is_replaced(void **state)
{
    struct fixture *f = *state;
    for (size_t i = 0; i < level_count(); i++) {
        struct box b, next;
        open_working(f, levels[i], &b);
        kill(zygote_pid(), SIGKILL);
        wait_until(f, b.ended);
        assert_false(b.how.has_status);
        open_working(f, levels[i], &next);
        close_box(&next);
        close_box(&b);
        environment_close(f->env);
        assert_ok(environment_open("local", f->loop, NULL, &f->env, err));
        assert_int_equal(count_zombies(getpid()), 0);
    }
}

/* The process that will be the next sandbox's; 0: it is not there now. */
static pid_t find_standby(void)
{
    struct process list[64];
    size_t n = descendants(getpid(), list, array_length(list));
    for (size_t i = 0; i < n; i++)
        if (list[i].is_zygote)
            return list[i].pid;
    return 0;
}

static pid_t wait_for_standby(struct fixture *f)
{
    pid_t standby = 0;
    wait_until(f, (standby = find_standby()) != 0);
    return standby;
}

/* It serves once; one that is killed before it serves is replaced, and nothing is lost. */
static void a_standby_serves_once_and_is_replaced(void **state)
{
    struct fixture *f = *state;
    for (size_t i = 0; i < level_count(); i++) {
        struct box b;
        open_working(f, levels[i], &b);
        for (int n = 0; n < 6; n++) {
            pid_t standby = wait_for_standby(f);
            if (n % 2 == 1)
                kill(standby, SIGKILL);
            struct box next;
            open_working(f, levels[i], &next);
            wait_until(f, kill(standby, 0) < 0);
            close_box(&next);
        }
        close_box(&b);
        environment_close(f->env);
        assert_ok(environment_open("local", f->loop, NULL, &f->env, err));
    }
}

/* The hooks of `logging` hold its lock during a fork, and renew it in the child. */
static void a_standby_runs_the_fork_hooks_of_preloaded_modules(void **state)
{
    static const char *const preload[] = { "logging" };
    static const char code[] =
        "import logging, threading\n"
        "got = []\n"
        "t = threading.Thread(target=lambda: got.append(logging._lock.acquire(timeout=5)))\n"
        "t.start(); t.join(); print(got)\n";
    struct fixture *f = *state;
    struct sandbox_spec spec = spec_of(ISOLATION_FULL);
    spec.preload = preload;
    spec.preload_count = 1;
    struct box b = { 0 };
    for (int n = 0; n < 3; n++) {
        pid_t standby = n ? wait_for_standby(f) : 0;
        close_box(&b);
        assert_ok(open_box(f, &spec, &b, err));
        exec_in(&b, code);
        wait_until(f, b.results == 1 && b.out.len >= 7);
        assert_string_equal(buf_text(&b.out), "[True]\n");
        wait_until(f, !standby || kill(standby, 0) < 0);
    }
    close_box(&b);
}

/* The loop has not run since, so the environment does not know yet that its zygote is dead. */
static void an_open_right_after_the_zygotes_death_works(void **state)
{
    struct fixture *f = *state;
    struct box b, next;
    open_working(f, ISOLATION_FULL, &b);
    pid_t zygote = zygote_pid();
    kill(zygote, SIGKILL);
    for (struct process p; read_process(zygote, &p) && p.state != 'Z';)
        usleep(100);
    open_working(f, ISOLATION_FULL, &next);
    close_box(&next);
    close_box(&b);
}

/* More often than there is room for kinds of zygotes. */
static void dead_zygotes_do_not_pile_up(void **state)
{
    struct fixture *f = *state;
    for (int i = 0; i < 20; i++) {
        struct box b;
        open_working(f, ISOLATION_PROCESS, &b);
        kill(zygote_pid(), SIGKILL);
        wait_until(f, b.ended);
        close_box(&b);
    }
    /* The last, and one whose end the loop had not seen yet when the last was asked for. */
    assert_in_range(count_zombies(getpid()), 0, 2);
}

static void a_kill_is_reported_and_leaves_no_process(void **state)
{
    struct fixture *f = *state;
    for (size_t i = 0; i < level_count(); i++) {
        struct box b;
        open_at(f, levels[i], &b);
        exec_in(&b, busy_code);
        wait_until(f, b.out.len > 0);
        pid_t zygote = zygote_pid();
        assert_true(count_sandboxed(zygote) >= 3);
        b.ops->kill(b.sandbox);
        wait_until(f, b.ended);
        assert_false(b.how.has_status);
        wait_until(f, count_sandboxed(zygote) == 0);
        close_box(&b);
        environment_close(f->env);
        assert_ok(environment_open("local", f->loop, NULL, &f->env, err));
    }
}

static void the_end_of_a_worker_is_reported(void **state)
{
    struct fixture *f = *state;
    for (size_t i = 0; i < level_count(); i++) {
        struct box b;
        open_at(f, levels[i], &b);
        exec_in(&b, "sum(range(10**6)); x = b'x' * (8 << 20); import os; os._exit(9)");
        wait_until(f, b.ended);
        assert_true(b.how.has_status);
        assert_true(WIFEXITED(b.how.wait_status));
        assert_int_equal(WEXITSTATUS(b.how.wait_status), 9);
        struct sandbox_usage usage;
        b.ops->usage(b.sandbox, &usage);
        assert_true(usage.memory_peak > 8 << 20);
        assert_true(usage.cpu_seconds > 0);
        close_box(&b);
    }
}

/* The keeper and the guest are the same user there, and only Landlock is between them (ABI 6). It
 * may be given up before the host knows of it. */
static void a_guest_that_stops_its_keeper_is_killed_all_the_same(void **state)
{
    struct fixture *f = *state;
    const char *expected = landlock_abi() >= LANDLOCK_SCOPE_ABI ? "no" : "up";
    struct box b;
    for (int i = 0; i < 20; i++) {
        open_at(f, ISOLATION_PROCESS, &b);
        exec_in(&b, "import os, signal\n"
                    "try: os.kill(os.getppid(), signal.SIGSTOP)\n"
                    "except PermissionError: os.write(1, b'no')\n"
                    "else: os.write(1, b'up')\n"
                    "while True: pass");
        wait_until(f, b.out.len > 0);
        assert_string_equal(buf_text(&b.out), expected);
        pid_t zygote = zygote_pid();
        close_box(&b);
        wait_until(f, count_sandboxed(zygote) == 0);
    }
}

/* The cell is in the channel already when the sandbox is given up; nothing else would end it. */
static void a_sandbox_closed_before_it_started_does_not_run_on(void **state)
{
    struct fixture *f = *state;
    for (size_t i = 0; i < level_count(); i++) {
        struct box warm;
        open_working(f, levels[i], &warm);
        close_box(&warm);
        pid_t zygote = zygote_pid();
        for (int n = 0; n < 50; n++) {
            struct box b;
            open_at(f, levels[i], &b);
            exec_in(&b, "while True: pass");
            usleep(n % 5 * 4000); /* it may have begun, and the loop not have heard of it */
            close_box(&b);
        }
        wait_until(f, count_sandboxed(zygote) == 0);
        /* and once more, so that the last of them surely is not still on its way */
        open_working(f, levels[i], &warm);
        close_box(&warm);
        wait_until(f, count_sandboxed(zygote) == 0);
        environment_close(f->env);
        assert_ok(environment_open("local", f->loop, NULL, &f->env, err));
    }
}
int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_killed_host_leaves_no_process_and_no_directory),
        T(a_killed_zygote_ends_its_sandboxes_and_is_replaced),
        T(an_open_right_after_the_zygotes_death_works),
        T(a_standby_serves_once_and_is_replaced),
        T(a_standby_runs_the_fork_hooks_of_preloaded_modules),
        T(dead_zygotes_do_not_pile_up),
        T(a_kill_is_reported_and_leaves_no_process),
        T(the_end_of_a_worker_is_reported),
        T(a_guest_that_stops_its_keeper_is_killed_all_the_same),
        T(a_sandbox_closed_before_it_started_does_not_run_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
