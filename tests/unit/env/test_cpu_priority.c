/* Processes that compute for long get a low priority, and have it back at the next operation. A
 * keeper here is a process whose child is the worker, as in guest/zygote/zygote.c. */
#include "../test.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "env/local/cpu_priority.h"

enum { PATIENCE_S = 60 };

struct fixture {
    struct loop *loop;
    pid_t keeper, worker;
    struct cpu_priorities all;
    struct cpu_priority *priority;
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

static void *spin_in_a_thread(void *arg)
{
    *(_Atomic pid_t *)arg = (pid_t)syscall(SYS_gettid);
    spin();
    return NULL;
}

/* Its main thread waits; *tid is that of the other one. */
static void start_a_worker_with_a_thread(struct fixture *f, _Atomic pid_t *tid)
{
    fflush(NULL);
    f->keeper = fork();
    if (f->keeper == 0) {
        pthread_t thread;
        setsid();
        if (fork() == 0 && pthread_create(&thread, NULL, spin_in_a_thread, tid) != 0)
            _exit(1);
        for (;;)
            pause();
    }
    while (*tid == 0)
        usleep(1000);
}

static void start_processes(struct fixture *f, bool spins, bool forks)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    fflush(NULL);
    f->keeper = fork();
    if (f->keeper == 0) {
        setsid();
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
}

static void watch(struct fixture *f, struct cgroup *weighed)
{
    assert_ok(cpu_priority_open(f->loop, f->keeper, weighed, &f->all, &f->priority, err));
}

static void start(struct fixture *f, bool spins, bool forks)
{
    start_processes(f, spins, forks);
    watch(f, NULL);
}

static void start_where_priority_can_be_raised(struct fixture *f, bool spins, bool forks)
{
    if (!cpu_priority_can_raise()) {
        print_message("skipped: this user cannot take a priority back\n");
        skip();
    }
    start(f, spins, forks);
}

static void end_processes(struct fixture *f)
{
    if (f->keeper > 0) {
        kill(-f->keeper, SIGKILL);
        waitpid(f->keeper, NULL, 0);
    }
    f->keeper = 0;
}

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    assert_ok(loop_open(&f->loop, err));
    f->all.sandboxes = 2;
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    cpu_priority_close(f->priority);
    end_processes(f);
    loop_close(f->loop);
    free(f);
    return 0;
}

static bool is_lowered(pid_t pid)
{
    return sched_getscheduler(pid) == SCHED_IDLE;
}

/* Turns the loop until it is lowered; false if it never is. */
static bool becomes_lowered(struct fixture *f, pid_t pid, double seconds)
{
    uint64_t begin = clock_ns();
    while (!is_lowered(pid)) {
        if (clock_seconds_since(begin) > seconds)
            return false;
        loop_turn(f->loop, 0);
        usleep(1000);
    }
    return true;
}

/* Also in a cell that the sandbox was sent before it stood, and again in the next operation. */
static void a_worker_that_spins_is_lowered_until_the_next_operation(void **state)
{
    struct fixture *f = *state;
    start_where_priority_can_be_raised(f, true, false);
    for (int i = 0; i < 3; i++) {
        assert_false(is_lowered(f->worker));
        assert_true(becomes_lowered(f, f->worker, PATIENCE_S));
        cpu_priority_begin(f->priority);
    }
}

static void a_worker_that_sleeps_keeps_its_priority(void **state)
{
    struct fixture *f = *state;
    start_where_priority_can_be_raised(f, false, false);
    assert_false(becomes_lowered(f, f->worker, 0.5));
}

/* Turns the loop until the next look is further away than any of an operation; false if it never
 * is. */
static bool becomes_rare(struct fixture *f, double seconds)
{
    enum { LONGEST_OF_AN_OPERATION_MS = 1280 };
    uint64_t begin = clock_ns();
    while (uv_backend_timeout(&f->loop->uv) <= LONGEST_OF_AN_OPERATION_MS) {
        if (clock_seconds_since(begin) > seconds)
            return false;
        loop_turn(f->loop, 0);
        usleep(1000);
    }
    return true;
}

/* A server may hold thousands; one whose operation goes on may compute at any moment. */
static void a_worker_that_sleeps_is_looked_at_rarely_between_operations(void **state)
{
    struct fixture *f = *state;
    start_where_priority_can_be_raised(f, false, false);
    assert_false(becomes_rare(f, 1.8));
    cpu_priority_settle(f->priority);
    assert_true(becomes_rare(f, PATIENCE_S));
    cpu_priority_begin(f->priority);
    assert_false(becomes_rare(f, 0.1));
}

/* What an operation left running. */
static void a_worker_that_spins_between_operations_is_lowered(void **state)
{
    struct fixture *f = *state;
    start_where_priority_can_be_raised(f, true, false);
    cpu_priority_settle(f->priority);
    assert_true(becomes_lowered(f, f->worker, PATIENCE_S));
}

static void the_only_sandbox_keeps_its_priority(void **state)
{
    struct fixture *f = *state;
    start_where_priority_can_be_raised(f, true, false);
    f->all.sandboxes = 1;
    assert_false(becomes_lowered(f, f->worker, 0.5));
    f->all.sandboxes = 2;
    assert_true(becomes_lowered(f, f->worker, PATIENCE_S));
}

/* Beside others in a group of their own it goes ahead, until it computes for long; the operation
 * after that one begins as the first did. */
static void after_a_short_operation_the_worker_goes_ahead(void **state)
{
    struct fixture *f = *state;
    for (int apart = 0; apart < 2; apart++) {
        f->all.apart = apart;
        start_where_priority_can_be_raised(f, true, false);
        int usual = getpriority(PRIO_PROCESS, (id_t)f->keeper);
        cpu_priority_begin(f->priority);
        assert_int_equal(getpriority(PRIO_PROCESS, (id_t)f->worker), usual);
        cpu_priority_begin(f->priority);
        assert_int_equal(getpriority(PRIO_PROCESS, (id_t)f->worker), apart ? -20 : usual);
        assert_true(becomes_lowered(f, f->worker, PATIENCE_S));
        cpu_priority_begin(f->priority);
        assert_false(is_lowered(f->worker));
        assert_int_equal(getpriority(PRIO_PROCESS, (id_t)f->worker), usual);
        cpu_priority_close(f->priority);
        f->priority = NULL;
        end_processes(f);
    }
}

static void a_thread_that_spins_is_lowered(void **state)
{
    struct fixture *f = *state;
    _Atomic pid_t *tid =
        mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(tid != MAP_FAILED);
    if (!cpu_priority_can_raise()) {
        print_message("skipped: this user cannot take a priority back\n");
        skip();
    }
    start_a_worker_with_a_thread(f, tid);
    watch(f, NULL);
    assert_true(becomes_lowered(f, *tid, PATIENCE_S));
    munmap((void *)tid, 4096);
}

/* The worker did nothing; what it left running stays behind the next operation. */
static void a_child_that_spins_is_lowered_and_stays_so(void **state)
{
    struct fixture *f = *state;
    char path[64];
    int child = 0;
    start_where_priority_can_be_raised(f, false, true);
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)f->worker, (int)f->worker);
    while (child == 0) {
        FILE *children = fopen(path, "re");
        assert_non_null(children);
        if (fscanf(children, "%d", &child) != 1)
            child = 0;
        fclose(children);
    }
    assert_true(becomes_lowered(f, child, PATIENCE_S));
    cpu_priority_begin(f->priority);
    assert_false(is_lowered(f->worker));
    assert_true(is_lowered(child));
}

/* What could not be taken back is not done. */
static void without_the_right_to_raise_it_the_priority_is_left_alone(void **state)
{
    struct fixture *f = *state;
    struct rlimit none = { 0 };
    int status;
    start_processes(f, true, false);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        if (setrlimit(RLIMIT_NICE, &none) < 0 || (geteuid() == 0 && setuid(65534) < 0))
            _exit(2);
        if (cpu_priority_can_raise() ||
            cpu_priority_open(f->loop, f->keeper, NULL, &f->all, &f->priority, NULL) < 0)
            _exit(3);
        _exit(becomes_lowered(f, f->worker, 0.5) ? 4 : 0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static long read_weight(const struct cgroups *groups)
{
    char path[600];
    long weight = -1;
    snprintf(path, sizeof path, "%s/sandbox-1/cpu.weight", cgroups_path(groups));
    FILE *f = fopen(path, "re");
    if (f && fscanf(f, "%ld", &weight) != 1)
        weight = -1;
    if (f)
        fclose(f);
    return weight;
}

static void move_into(const struct cgroups *groups, pid_t pid)
{
    char path[600];
    snprintf(path, sizeof path, "%s/sandbox-1/cgroup.procs", cgroups_path(groups));
    FILE *f = fopen(path, "we");
    assert_non_null(f);
    fprintf(f, "%d", (int)pid);
    assert_int_equal(fclose(f), 0);
}

/* With version 2, also for an ordinary user's host; the processes are left alone (on a machine that
 * has it: scripts/check-vm). */
static void a_cgroup_is_lowered_as_a_whole(void **state)
{
    struct fixture *f = *state;
    struct cgroups *groups = NULL;
    struct cgroup *group = NULL;
    struct jail_limits limits = { .memory = 64 << 20, .processes = 16 };
    cleanup_fd int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (cgroups_open(f->loop, root, &groups, NULL) < 0) {
        print_message("skipped: needs cgroup v2 with memory and pids\n");
        skip();
    }
    assert_true(cgroups_have_weights(groups));
    start_processes(f, true, false);
    assert_ok(cgroup_new(groups, &limits, &group, err));
    move_into(groups, f->worker);
    watch(f, group);
    uint64_t begin = clock_ns();
    while (read_weight(groups) != 1) {
        assert_true(clock_seconds_since(begin) < PATIENCE_S);
        loop_turn(f->loop, 0);
        usleep(1000);
    }
    assert_false(is_lowered(f->worker));
    cpu_priority_begin(f->priority);
    assert_int_equal(read_weight(groups), 100);
    cpu_priority_close(f->priority);
    f->priority = NULL;
    end_processes(f);
    cgroup_free(group);
    cgroups_close(groups);
}

/* Turns until it has been busier; false if it never is. */
static bool becomes_busier(struct fixture *f, double seconds)
{
    uint64_t begin = clock_ns(), busy = cpu_priority_busy_ns(f->priority);
    while (cpu_priority_busy_ns(f->priority) <= busy) {
        if (clock_seconds_since(begin) > seconds)
            return false;
        usleep(1000);
    }
    return true;
}

/* Of a child that computes too, whether it has a processor or waits for one. */
static void a_sandbox_that_computes_is_busy(void **state)
{
    struct fixture *f = *state;
    start(f, false, true);
    assert_true(becomes_busier(f, PATIENCE_S));
    assert_true(becomes_busier(f, PATIENCE_S));
}

/* Once it sleeps. Nor is one that is gone, or never was. */
static void a_sandbox_that_sleeps_is_not_busy(void **state)
{
    struct fixture *f = *state;
    uint64_t begin = clock_ns();
    start(f, false, false);
    while (becomes_busier(f, 0.2))
        assert_true(clock_seconds_since(begin) < PATIENCE_S);
    end_processes(f);
    while (cpu_priority_busy_ns(f->priority) != 0) { /* until init has reaped the worker */
        assert_true(clock_seconds_since(begin) < 2 * PATIENCE_S);
        usleep(1000);
    }
    assert_int_equal(cpu_priority_busy_ns(NULL), 0);
}

/* A fork inherits the policy, which only its own watch takes back. */
static void a_fork_of_a_lowered_sandbox_is_raised(void **state)
{
    struct fixture *f = *state;
    static const struct sched_param none = { 0 };
    if (!cpu_priority_can_raise()) {
        print_message("skipped: this user cannot take a priority back\n");
        skip();
    }
    start_processes(f, false, false);
    assert_int_equal(sched_setscheduler(f->keeper, SCHED_IDLE, &none), 0);
    assert_int_equal(sched_setscheduler(f->worker, SCHED_IDLE, &none), 0);
    watch(f, NULL);
    assert_false(is_lowered(f->keeper));
    assert_false(is_lowered(f->worker));
    /* A worker that started a moment later. */
    assert_int_equal(sched_setscheduler(f->worker, SCHED_IDLE, &none), 0);
    cpu_priority_begin(f->priority);
    assert_false(is_lowered(f->worker));
}

/* Its guests give way to all others, too: they are not raised above it. */
static void guests_of_an_idle_host_stay_idle(void **state)
{
    struct fixture *f = *state;
    static const struct sched_param none = { 0 };
    if (!cpu_priority_can_raise()) {
        print_message("skipped: this user cannot take a priority back\n");
        skip();
    }
    assert_int_equal(sched_setscheduler(0, SCHED_IDLE, &none), 0);
    start_processes(f, false, false);
    watch(f, NULL);
    cpu_priority_begin(f->priority);
    assert_int_equal(sched_setscheduler(0, SCHED_OTHER, &none), 0);
    assert_true(is_lowered(f->keeper));
    assert_true(is_lowered(f->worker));
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(a_worker_that_spins_is_lowered_until_the_next_operation),
        T(a_worker_that_sleeps_keeps_its_priority),
        T(a_worker_that_sleeps_is_looked_at_rarely_between_operations),
        T(a_worker_that_spins_between_operations_is_lowered),
        T(after_a_short_operation_the_worker_goes_ahead),
        T(a_thread_that_spins_is_lowered),
        T(the_only_sandbox_keeps_its_priority),
        T(a_fork_of_a_lowered_sandbox_is_raised),
        T(guests_of_an_idle_host_stay_idle),
        T(a_child_that_spins_is_lowered_and_stays_so),
        T(without_the_right_to_raise_it_the_priority_is_left_alone),
        T(a_cgroup_is_lowered_as_a_whole),
        T(a_sandbox_that_computes_is_busy),
        T(a_sandbox_that_sleeps_is_not_busy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
