/* Processes that compute for long give way, and have their priority back at the next operation. A
 * keeper here is a process whose child is the worker. */
#include "../test.h"

#include <errno.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "env/pace.h"

enum { PATIENCE_S = 20 };

struct fixture {
    struct loop *loop;
    struct pace *pace;
    pid_t keeper, worker;
    struct paces paces;
};

static void spin(void)
{
    for (volatile unsigned n = 0;; n++)
        ;
}

/* The worker spins or sleeps, alone or with a child that spins. */
static void be_a_worker(bool spins, bool forks)
{
    if (forks && fork() == 0)
        spin();
    if (spins)
        spin();
    for (;;)
        pause();
}

static void start(struct fixture *f, bool spins, bool forks)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    fflush(NULL);
    f->keeper = fork();
    if (f->keeper == 0) {
        setsid(); /* as a zygote's */
        pid_t worker = fork();
        if (worker == 0)
            be_a_worker(spins, forks);
        (void)!write(ends[1], &worker, sizeof worker);
        for (;;)
            pause();
    }
    assert_int_equal(read(ends[0], &f->worker, sizeof f->worker), sizeof f->worker);
    close(ends[0]);
    close(ends[1]);
    assert_ok(pace_open(f->loop, f->keeper, &f->paces, &f->pace, err));
}

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    assert_ok(loop_open(&f->loop, err));
    f->paces.sandboxes = 2;
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    pace_close(f->pace);
    if (f->keeper > 0)
        kill(-f->keeper, SIGKILL);
    if (f->keeper > 0)
        waitpid(f->keeper, NULL, 0);
    loop_close(f->loop);
    free(f);
    return 0;
}

static int nice_of(pid_t pid)
{
    return getpriority(PRIO_PROCESS, (id_t)pid);
}

/* Turns the loop until the process gives way; false if it never does. */
static bool comes_to_give_way(struct fixture *f, pid_t pid, double seconds)
{
    uint64_t begin = clock_ns();
    while (sched_getscheduler(pid) != SCHED_IDLE) {
        if (clock_seconds_since(begin) > seconds)
            return false;
        loop_run_ready(f->loop);
        usleep(1000);
    }
    return true;
}

static void assert_has_its_priority(pid_t pid)
{
    assert_int_equal(sched_getscheduler(pid), SCHED_OTHER);
    assert_int_equal(nice_of(pid), nice_of(0));
}

static bool may_not_lower_and_raise(void)
{
    if (pace_is_by_policy())
        return false;
    print_message("skipped: only root can take a priority back\n");
    return true;
}

/* What /proc/PID/autogroup says; NULL where there are none. */
static const char *autogroup_of(pid_t pid)
{
    static char text[64];
    char path[48];
    snprintf(path, sizeof path, "/proc/%d/autogroup", (int)pid);
    FILE *f = fopen(path, "re");
    char *line = f ? fgets(text, sizeof text, f) : NULL;
    if (f)
        fclose(f);
    return line;
}

static void who_spins_gives_way_until_the_next_operation(void **state)
{
    struct fixture *f = *state;
    if (may_not_lower_and_raise())
        skip();
    start(f, true, false);
    assert_has_its_priority(f->worker);
    pace_begin(f->pace);
    assert_true(comes_to_give_way(f, f->worker, PATIENCE_S));
    pace_begin(f->pace);
    assert_has_its_priority(f->worker);
    assert_true(comes_to_give_way(f, f->worker, PATIENCE_S));
    pace_end(f->pace);
    assert_has_its_priority(f->worker);
}

/* The session of all sandboxes goes behind the host's while one of them gives way, and not the host's own. */
static void the_shared_session_is_behind_as_long_as_anybody(void **state)
{
    struct fixture *f = *state;
    if (may_not_lower_and_raise())
        skip();
    start(f, true, false);
    if (!autogroup_of(f->keeper)) {
        print_message("skipped: this kernel has no autogroups\n");
        skip();
    }
    pace_begin(f->pace);
    assert_non_null(strstr(autogroup_of(f->keeper), "nice 0"));
    assert_true(comes_to_give_way(f, f->worker, PATIENCE_S));
    assert_non_null(strstr(autogroup_of(f->keeper), "nice 19"));
    assert_null(strstr(autogroup_of(getpid()), "nice 19"));
    assert_int_equal(f->paces.behind, 1);
    f->paces.behind++; /* another sandbox */
    pace_begin(f->pace);
    assert_non_null(strstr(autogroup_of(f->keeper), "nice 19"));
    f->paces.behind--;
    assert_true(comes_to_give_way(f, f->worker, PATIENCE_S));
    pace_end(f->pace);
    assert_non_null(strstr(autogroup_of(f->keeper), "nice 0"));
    assert_int_equal(f->paces.behind, 0);
}

static bool session_comes_to(struct fixture *f, const char *nice)
{
    uint64_t begin = clock_ns();
    while (!strstr(autogroup_of(f->worker), nice)) {
        if (clock_seconds_since(begin) > PATIENCE_S)
            return false;
        loop_run_ready(f->loop);
        usleep(1000);
    }
    return true;
}

/* Where priorities cannot be raised again, the sandbox's own session is behind; and not for good, though the
 * kernel refuses to change it back at once. */
static void elsewhere_its_session_gives_way(void **state)
{
    struct fixture *f = *state;
    start(f, true, false);
    if (pace_is_by_policy() || !autogroup_of(f->worker)) {
        print_message("skipped: for ordinary users, where the kernel has autogroups\n");
        skip();
    }
    assert_non_null(strstr(autogroup_of(f->worker), "nice 0"));
    pace_begin(f->pace);
    assert_true(session_comes_to(f, "nice 19"));
    assert_has_its_priority(f->worker);
    kill(f->worker, SIGSTOP); /* it has nothing to do now */
    pace_begin(f->pace);
    assert_true(session_comes_to(f, "nice 0"));
}

/* Whoever has neither the capability nor the limit takes nothing back, and lowers nothing that it cannot. */
static void priorities_are_for_those_who_can_raise_them(void **state)
{
    struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
    struct __user_cap_data_struct none[2] = { { 0 }, { 0 } };
    (void)state;
    struct rlimit limit;
    getrlimit(RLIMIT_NICE, &limit);
    bool by_limit = limit.rlim_cur >= 20;
    if (geteuid() == 0)
        assert_true(pace_is_by_policy());
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        syscall(SYS_capset, &header, none);
        _exit(pace_is_by_policy() == by_limit ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static void who_waits_does_not(void **state)
{
    struct fixture *f = *state;
    if (may_not_lower_and_raise())
        skip();
    start(f, false, false);
    pace_begin(f->pace);
    assert_false(comes_to_give_way(f, f->worker, 0.5));
}

static void the_only_sandbox_gives_way_to_nobody(void **state)
{
    struct fixture *f = *state;
    if (may_not_lower_and_raise())
        skip();
    start(f, true, false);
    f->paces.sandboxes = 1;
    pace_begin(f->pace);
    assert_false(comes_to_give_way(f, f->worker, 0.5));
    f->paces.sandboxes = 2;
    assert_true(comes_to_give_way(f, f->worker, PATIENCE_S));
}

static void a_child_that_spins_gives_way_and_stays_behind(void **state)
{
    struct fixture *f = *state;
    char path[64];
    int child = 0;
    if (may_not_lower_and_raise())
        skip();
    start(f, false, true);
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)f->worker, (int)f->worker);
    while (child == 0) {
        FILE *children = fopen(path, "re");
        assert_non_null(children);
        if (fscanf(children, "%d", &child) != 1)
            child = 0;
        fclose(children);
    }
    pace_begin(f->pace);
    assert_true(comes_to_give_way(f, child, PATIENCE_S));
    pace_begin(f->pace);
    assert_has_its_priority(f->worker);
    assert_int_equal(sched_getscheduler(child), SCHED_IDLE);
}

/* Turns until what it is busy has grown; false if it never does. */
static bool becomes_busier(struct fixture *f, double seconds)
{
    uint64_t begin = clock_ns(), busy = pace_busy_ns(f->pace);
    while (pace_busy_ns(f->pace) <= busy) {
        if (clock_seconds_since(begin) > seconds)
            return false;
        usleep(1000);
    }
    return true;
}

/* Of a child that computes too, whether it has a processor or waits for one. */
static void who_computes_is_busy(void **state)
{
    struct fixture *f = *state;
    start(f, false, true);
    assert_true(becomes_busier(f, PATIENCE_S));
    assert_true(becomes_busier(f, PATIENCE_S));
}

/* Once it sleeps: nothing of it runs that could make it more. Nor is what is gone, or never was. */
static void who_sleeps_is_not_busy(void **state)
{
    struct fixture *f = *state;
    uint64_t begin = clock_ns();
    start(f, false, false);
    while (becomes_busier(f, 0.2))
        assert_true(clock_seconds_since(begin) < PATIENCE_S);
    kill(-f->keeper, SIGKILL);
    waitpid(f->keeper, NULL, 0);
    f->keeper = 0;
    assert_int_equal(pace_busy_ns(f->pace), 0);
    assert_int_equal(pace_busy_ns(NULL), 0);
}

static void a_sandbox_that_is_gone_is_nobodys(void **state)
{
    struct fixture *f = *state;
    start(f, true, false);
    kill(-f->keeper, SIGKILL);
    waitpid(f->keeper, NULL, 0);
    f->keeper = 0;
    pace_begin(f->pace);
    comes_to_give_way(f, 0, 0.1);
    pace_end(f->pace);
    assert_has_its_priority(0);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(who_spins_gives_way_until_the_next_operation),
        T(the_shared_session_is_behind_as_long_as_anybody),
        T(elsewhere_its_session_gives_way),
        cmocka_unit_test(priorities_are_for_those_who_can_raise_them),
        T(who_waits_does_not),
        T(the_only_sandbox_gives_way_to_nobody),
        T(a_child_that_spins_gives_way_and_stays_behind),
        T(who_computes_is_busy),
        T(who_sleeps_is_not_busy),
        T(a_sandbox_that_is_gone_is_nobodys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
