/* Processes that compute for long give way, and have their priority back at the next operation. A
 * keeper here is a process whose child is the worker; a zygote has a session, with two keepers in it. */
#include "../test.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "env/local/cpu_priority.h"

enum { PATIENCE_S = 20 };

struct box {
    pid_t keeper, worker;
    struct cgroup *group;              /* NULL: none of its own */
    struct cpu_priority *cpu_priority; /* NULL: nobody watches it */
};

struct fixture {
    struct loop *loop;
    struct paces paces;
    pid_t zygotes[2];
    struct box boxes[4];
    /* of the first box: */
    pid_t keeper, worker;
    struct cpu_priority *cpu_priority;
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

static void be_a_keeper(int out, bool spins, bool forks)
{
    struct box box = { .keeper = getpid() };
    box.worker = fork();
    if (box.worker == 0)
        be_a_worker(spins, forks);
    (void)!write(out, &box, sizeof box);
    for (;;)
        pause();
}

static void start_zygote(struct fixture *f, int which, bool spins, bool forks)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    fflush(NULL);
    f->zygotes[which] = fork();
    if (f->zygotes[which] == 0) {
        setsid();
        for (int i = 0; i < 2; i++)
            if (fork() == 0)
                be_a_keeper(ends[1], spins, forks);
        for (;;)
            pause();
    }
    for (int i = 2 * which; i < 2 * which + 2; i++)
        assert_int_equal(read(ends[0], &f->boxes[i], sizeof f->boxes[i]), sizeof f->boxes[i]);
    close(ends[0]);
    close(ends[1]);
}

static struct cpu_priority *watch_box(struct fixture *f, int which)
{
    struct box *box = &f->boxes[which];
    assert_ok(
        cpu_priority_open(f->loop, box->keeper, box->group, &f->paces, &box->cpu_priority, err));
    return box->cpu_priority;
}

static void start(struct fixture *f, bool spins, bool forks)
{
    start_zygote(f, 0, spins, forks);
    f->keeper = f->boxes[0].keeper;
    f->worker = f->boxes[0].worker;
    f->cpu_priority = watch_box(f, 0);
}

static void end_zygote(pid_t *pid)
{
    if (*pid > 0) {
        kill(-*pid, SIGKILL);
        waitpid(*pid, NULL, 0);
    }
    *pid = 0;
}

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    assert_ok(loop_open(&f->loop, err));
    paces_init(&f->paces);
    f->paces.sandboxes = 2;
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    for (size_t i = 0; i < array_length(f->boxes); i++)
        cpu_priority_close(f->boxes[i].cpu_priority);
    for (size_t i = 0; i < array_length(f->zygotes); i++)
        end_zygote(&f->zygotes[i]);
    loop_close(f->loop);
    free(f);
    return 0;
}

static int nice_of(pid_t pid)
{
    return getpriority(PRIO_PROCESS, (id_t)pid);
}

static bool is_last(pid_t pid)
{
    return sched_getscheduler(pid) == SCHED_IDLE;
}

/* By either step: who is behind others on a full machine may never use enough for the second. */
static bool gives_way(pid_t pid)
{
    return is_last(pid) || nice_of(pid) > nice_of(0);
}

/* Turns the loop until it is so; false if it never is. */
static bool comes_to(struct fixture *f, bool (*is)(pid_t), pid_t pid, double seconds)
{
    uint64_t begin = clock_ns();
    while (!is(pid)) {
        if (clock_seconds_since(begin) > seconds)
            return false;
        loop_run_ready(f->loop);
        usleep(1000);
    }
    return true;
}

static bool comes_to_give_way(struct fixture *f, pid_t pid, double seconds)
{
    return comes_to(f, gives_way, pid, seconds);
}

static void assert_has_its_priority(pid_t pid)
{
    assert_int_equal(sched_getscheduler(pid), SCHED_OTHER);
    assert_int_equal(nice_of(pid), nice_of(0));
}

static void skip_who_may_not_lower_and_raise(const struct fixture *f)
{
    if (f->paces.by_policy)
        return;
    print_message("skipped: only root can take a priority back\n");
    skip();
}

static void start_of_who_can_raise(struct fixture *f, bool spins, bool forks)
{
    skip_who_may_not_lower_and_raise(f);
    start(f, spins, forks);
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
    start_of_who_can_raise(f, true, false);
    assert_has_its_priority(f->worker);
    cpu_priority_begin(f->cpu_priority);
    assert_true(comes_to_give_way(f, f->worker, PATIENCE_S));
    cpu_priority_begin(f->cpu_priority);
    assert_has_its_priority(f->worker);
    assert_true(comes_to_give_way(f, f->worker, PATIENCE_S));
    cpu_priority_end(f->cpu_priority);
    assert_has_its_priority(f->worker);
}

/* Who was unlucky once is not in one row with those who compute for ever: the niceness is first, and the policy for who uses more. */
static void the_first_step_is_a_niceness(void **state)
{
    struct fixture *f = *state;
    start_of_who_can_raise(f, true, false);
    kill(f->boxes[1].worker, SIGSTOP); /* it would be before the other one */
    cpu_priority_begin(f->cpu_priority);
    uint64_t begin = clock_ns();
    while (!gives_way(f->worker) && clock_seconds_since(begin) < PATIENCE_S) {
        kill(f->worker, SIGCONT);
        usleep(1000);
        kill(f->worker, SIGSTOP); /* what it uses is used before it is looked at */
        loop_run_ready(f->loop);
    }
    assert_int_equal(nice_of(f->worker), 19);
    assert_false(comes_to(f, is_last, f->worker, 0.3));
    kill(f->worker, SIGCONT);
    assert_true(comes_to(f, is_last, f->worker, 4 * PATIENCE_S));
    cpu_priority_begin(f->cpu_priority);
    assert_has_its_priority(f->worker);
}

static bool has_nice(pid_t pid, const char *nice)
{
    const char *line = autogroup_of(pid);
    return line && strstr(line, nice);
}

static void start_in_shared_session(struct fixture *f)
{
    skip_who_may_not_lower_and_raise(f);
    if (!autogroup_of(getpid())) {
        print_message("skipped: this kernel has no autogroups\n");
        skip();
    }
    start(f, true, false);
}

/* The session of a zygote goes behind the host's while one of its sandboxes gives way, and not the host's own. */
static void the_shared_session_is_behind_as_long_as_anybody(void **state)
{
    struct fixture *f = *state;
    start_in_shared_session(f);
    struct cpu_priority *second = watch_box(f, 1);
    cpu_priority_begin(f->cpu_priority);
    cpu_priority_begin(second);
    assert_true(has_nice(f->keeper, "nice 0"));
    assert_true(comes_to_give_way(f, f->worker, PATIENCE_S));
    assert_true(comes_to_give_way(f, f->boxes[1].worker, PATIENCE_S));
    assert_true(has_nice(f->keeper, "nice 19"));
    assert_false(has_nice(getpid(), "nice 19"));
    cpu_priority_end(f->cpu_priority);
    assert_true(has_nice(f->keeper, "nice 19"));
    cpu_priority_end(second);
    assert_true(has_nice(f->keeper, "nice 0"));
}

/* Also where the last of it is closed while it gives way. */
static void sessions_of_two_zygotes_rise_each_with_its_own(void **state)
{
    struct fixture *f = *state;
    start_in_shared_session(f);
    start_zygote(f, 1, true, false);
    struct box *other = &f->boxes[2];
    watch_box(f, 2);
    cpu_priority_begin(f->cpu_priority);
    cpu_priority_begin(other->cpu_priority);
    assert_true(comes_to_give_way(f, f->worker, PATIENCE_S));
    assert_true(comes_to_give_way(f, other->worker, PATIENCE_S));
    cpu_priority_end(f->cpu_priority);
    assert_true(has_nice(f->keeper, "nice 0"));
    assert_true(has_nice(other->keeper, "nice 19"));
    cpu_priority_close(other->cpu_priority);
    other->cpu_priority = NULL;
    assert_true(has_nice(other->keeper, "nice 0"));
}

/* The file of the group for processors that a process is in; -1 where it cannot be read. */
static long weight_of(pid_t pid)
{
    static const char *const trees[] = { "/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct" };
    char path[64], line[256], file[400], number[32];
    snprintf(path, sizeof path, "/proc/%d/cgroup", (int)pid);
    FILE *groups = fopen(path, "re");
    long weight = -1;
    while (groups && fgets(line, sizeof line, groups)) {
        char *group = strstr(line, ":cpu");
        if (!group || !(group = strchr(group + 1, ':')))
            continue;
        group[strcspn(group, "\n")] = '\0';
        for (size_t i = 0; i < array_length(trees); i++) {
            snprintf(file, sizeof file, "%s%s/cpu.shares", trees[i], group + 1);
            FILE *shares = fopen(file, "re");
            if (shares && fgets(number, sizeof number, shares))
                weight = strtol(number, NULL, 10);
            if (shares)
                fclose(shares);
        }
    }
    if (groups)
        fclose(groups);
    return weight;
}

/* In a group of their own sandboxes are behind the host together, whatever sessions they begin; and one may go ahead of
 * the others, as nobody outside feels it. */
static void in_a_group_sessions_are_nothing(void **state)
{
    struct fixture *f = *state;
    struct cpu_share *share = NULL;
    int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    skip_who_may_not_lower_and_raise(f);
    if (cpu_share_open(root, NULL, &share, NULL) < 0) {
        close(root);
        print_message("skipped: no control group for processors can be made here\n");
        skip();
    }
    close(root);
    paces_share(&f->paces, share, false);
    start(f, true, false);
    assert_ok(cpu_share_adopt(share, f->keeper, err));
    assert_ok(cpu_share_adopt(share, f->worker, err));
    assert_int_equal(weight_of(f->worker), 1024);
    cpu_priority_begin(f->cpu_priority);
    assert_true(comes_to_give_way(f, f->worker, PATIENCE_S));
    assert_int_equal(weight_of(f->worker), 15);
    assert_false(has_nice(f->keeper, "nice 19"));
    assert_true(f->paces.apart);
    cpu_priority_end(f->cpu_priority);
    assert_int_equal(weight_of(f->worker), 1024);
    end_zygote(&f->zygotes[0]);
    cpu_share_close(share);
}

static const char *read_group(const struct cgroups *groups, const char *name)
{
    static char text[32];
    char path[600];
    snprintf(path, sizeof path, "%s/sandbox-1/%s", cgroups_path(groups), name);
    FILE *f = fopen(path, "re");
    text[0] = '\0';
    if (f && fgets(text, sizeof text, f))
        text[strcspn(text, "\n")] = '\0';
    if (f)
        fclose(f);
    return text;
}

static bool group_comes_to(
    struct fixture *f, const struct cgroups *groups, const char *name, const char *value)
{
    uint64_t begin = clock_ns();
    while (strcmp(read_group(groups, name), value) != 0) {
        if (clock_seconds_since(begin) > PATIENCE_S)
            return false;
        loop_run_ready(f->loop);
        usleep(1000);
    }
    return true;
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

/* In version 2 each sandbox's own group is put behind and ahead, whoever its host is, and its processes are left alone (on a
 * machine that has it: scripts/check-vm). */
static void a_group_of_its_own_is_weighed(void **state)
{
    struct fixture *f = *state;
    struct cgroups *groups = NULL;
    struct cpu_share *share = NULL;
    struct jail_limits limits = { .memory = 64 << 20, .processes = 16 };
    int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (cgroups_open(f->loop, root, &groups, NULL) < 0) {
        close(root);
        print_message("skipped: needs cgroup v2 with memory and pids\n");
        skip();
    }
    assert_ok(cpu_share_open(root, groups, &share, err));
    close(root);
    assert_true(cpu_share_divides(share));
    paces_share(&f->paces, share, true);
    start_zygote(f, 0, true, false);
    struct box *box = &f->boxes[0];
    assert_ok(cgroup_new(groups, &limits, &box->group, err));
    move_into(groups, box->worker);
    watch_box(f, 0);
    assert_true(group_comes_to(f, groups, "cpu.idle", "1"));
    assert_has_its_priority(box->worker);
    cpu_priority_begin(box->cpu_priority);
    assert_string_equal(read_group(groups, "cpu.idle"), "0");
    assert_string_equal(read_group(groups, "cpu.weight"), "100");
    kill(box->worker, SIGSTOP); /* a short one */
    f->paces.behind++;          /* somebody else gives way */
    cpu_priority_begin(box->cpu_priority);
    assert_string_equal(read_group(groups, "cpu.weight"), "10000");
    f->paces.behind--;
    cpu_priority_close(box->cpu_priority);
    box->cpu_priority = NULL;
    end_zygote(&f->zygotes[0]);
    cgroup_free(box->group);
    cpu_share_close(share);
    cgroups_close(groups);
}

static bool session_comes_to(struct fixture *f, const char *nice)
{
    uint64_t begin = clock_ns();
    while (!has_nice(f->worker, nice)) {
        if (clock_seconds_since(begin) > PATIENCE_S)
            return false;
        loop_run_ready(f->loop);
        usleep(1000);
    }
    return true;
}

/* Where priorities cannot be raised again, the session that the sandbox has then is behind; and not for good, though
 * the kernel refuses to change it back at once. */
static void elsewhere_its_session_gives_way(void **state)
{
    struct fixture *f = *state;
    start(f, true, false);
    if (f->paces.by_policy || !autogroup_of(f->worker)) {
        print_message("skipped: for ordinary users, where the kernel has autogroups\n");
        skip();
    }
    assert_true(has_nice(f->worker, "nice 0"));
    cpu_priority_begin(f->cpu_priority);
    assert_true(session_comes_to(f, "nice 19"));
    assert_has_its_priority(f->worker);
    kill(f->worker, SIGSTOP); /* it has nothing to do now */
    cpu_priority_begin(f->cpu_priority);
    assert_true(session_comes_to(f, "nice 0"));
}

/* What a process with this limit, which has no capability, takes itself to be able to; -1: it may not have it. */
static int is_by_policy_with(rlim_t limit)
{
    enum { REFUSED = 2 };
    struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
    struct __user_cap_data_struct none[2] = { { 0 }, { 0 } };
    struct paces all;
    int status;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        if (setrlimit(RLIMIT_NICE, &(struct rlimit){ limit, limit }) < 0)
            _exit(REFUSED);
        syscall(SYS_capset, &header, none);
        paces_init(&all);
        _exit(all.by_policy);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status) == REFUSED ? -1 : WEXITSTATUS(status);
}

/* Root without the capability, as in a container, cannot, whatever its number. */
static void priorities_are_for_those_who_can_raise_them(void **state)
{
    struct fixture *f = *state;
    rlim_t enough = (rlim_t)(20 - nice_of(0));
    assert_int_equal(is_by_policy_with(0), false);
    if (geteuid() == 0)
        assert_true(f->paces.by_policy);
    if (is_by_policy_with(enough) < 0) {
        print_message("skipped: larger limits need CAP_SYS_RESOURCE\n");
        skip();
    }
    assert_int_equal(is_by_policy_with(enough - 1), false);
    assert_int_equal(is_by_policy_with(enough), true);
    assert_int_equal(is_by_policy_with(RLIM_INFINITY), true);
}

/* The first two boxes: one that spins until it gives way, and one whose worker is stopped after no time at all. */
static struct box *start_of_who_gives_way_and_another(struct fixture *f)
{
    start_of_who_can_raise(f, true, false);
    if (!f->paces.apart) {
        print_message("skipped: sessions have no shares of their own here\n");
        skip();
    }
    struct box *other = &f->boxes[1];
    kill(other->worker, SIGSTOP);
    watch_box(f, 1);
    cpu_priority_begin(f->cpu_priority);
    assert_true(comes_to_give_way(f, f->worker, PATIENCE_S));
    return other;
}

/* By one short operation; that it was made tells nothing. */
static void who_was_short_goes_ahead_while_somebody_gives_way(void **state)
{
    struct fixture *f = *state;
    struct box *other = start_of_who_gives_way_and_another(f);
    cpu_priority_begin(other->cpu_priority);
    assert_has_its_priority(other->worker);
    cpu_priority_begin(other->cpu_priority);
    assert_int_equal(nice_of(other->worker), -20);
    kill(other->worker, SIGCONT); /* now it is long, and loses it */
    assert_true(comes_to_give_way(f, other->worker, PATIENCE_S));
    cpu_priority_begin(other->cpu_priority);
    assert_has_its_priority(other->worker);
}

static void beside_nobody_who_gives_way_all_are_alike(void **state)
{
    struct fixture *f = *state;
    start_of_who_can_raise(f, false, false);
    for (int i = 0; i < 3; i++)
        cpu_priority_begin(f->cpu_priority);
    assert_has_its_priority(f->worker);
}

/* Where niceness is the machine's, a sandbox never has more of it than its host. */
static void without_shares_for_sessions_nobody_goes_ahead(void **state)
{
    struct fixture *f = *state;
    struct box *other = start_of_who_gives_way_and_another(f);
    f->paces.apart = false;
    for (int i = 0; i < 3; i++)
        cpu_priority_begin(other->cpu_priority);
    assert_has_its_priority(other->worker);
}

/* Once for all of them, and no more than while they are that many: also where one is closed while it gives way. */
static void while_all_processors_are_taken_the_host_sleeps_at_once(void **state)
{
    struct fixture *f = *state;
    start_of_who_can_raise(f, true, false);
    struct box *other = &f->boxes[1];
    kill(other->worker, SIGSTOP);
    f->paces.processors = 2;
    watch_box(f, 1);
    assert_true(comes_to_give_way(f, f->worker, PATIENCE_S));
    assert_int_equal(f->loop->far, 0);
    kill(other->worker, SIGCONT);
    assert_true(comes_to_give_way(f, other->worker, PATIENCE_S));
    assert_true(comes_to(f, is_last, f->worker, 4 * PATIENCE_S));
    assert_int_equal(f->loop->far, 1);
    cpu_priority_begin(f->cpu_priority);
    assert_int_equal(f->loop->far, 0);
    assert_true(comes_to_give_way(f, f->worker, PATIENCE_S));
    assert_int_equal(f->loop->far, 1);
    cpu_priority_close(other->cpu_priority);
    other->cpu_priority = NULL;
    assert_int_equal(f->loop->far, 0);
}

static void who_waits_does_not(void **state)
{
    struct fixture *f = *state;
    start_of_who_can_raise(f, false, false);
    cpu_priority_begin(f->cpu_priority);
    assert_false(comes_to_give_way(f, f->worker, 0.5));
}

static void the_only_sandbox_gives_way_to_nobody(void **state)
{
    struct fixture *f = *state;
    start_of_who_can_raise(f, true, false);
    f->paces.sandboxes = 1;
    cpu_priority_begin(f->cpu_priority);
    assert_false(comes_to_give_way(f, f->worker, 0.5));
    f->paces.sandboxes = 2;
    assert_true(comes_to_give_way(f, f->worker, PATIENCE_S));
}

static void a_child_that_spins_gives_way_and_stays_behind(void **state)
{
    struct fixture *f = *state;
    char path[64];
    int child = 0;
    start_of_who_can_raise(f, false, true);
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)f->worker, (int)f->worker);
    while (child == 0) {
        FILE *children = fopen(path, "re");
        assert_non_null(children);
        if (fscanf(children, "%d", &child) != 1)
            child = 0;
        fclose(children);
    }
    cpu_priority_begin(f->cpu_priority);
    assert_true(comes_to_give_way(f, child, PATIENCE_S));
    cpu_priority_begin(f->cpu_priority);
    assert_has_its_priority(f->worker);
    assert_true(gives_way(child));
}

/* Turns until what it is busy has grown; false if it never does. */
static bool becomes_busier(struct fixture *f, double seconds)
{
    uint64_t begin = clock_ns(), busy = cpu_priority_busy_ns(f->cpu_priority);
    while (cpu_priority_busy_ns(f->cpu_priority) <= busy) {
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
    end_zygote(&f->zygotes[0]);
    while (cpu_priority_busy_ns(f->cpu_priority) != 0) { /* until init has taken it away */
        assert_true(clock_seconds_since(begin) < 2 * PATIENCE_S);
        usleep(1000);
    }
    assert_int_equal(cpu_priority_busy_ns(NULL), 0);
}

static void a_sandbox_that_is_gone_is_nobodys(void **state)
{
    struct fixture *f = *state;
    start(f, true, false);
    end_zygote(&f->zygotes[0]);
    cpu_priority_begin(f->cpu_priority);
    comes_to_give_way(f, 0, 0.1);
    cpu_priority_end(f->cpu_priority);
    assert_has_its_priority(0);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(who_spins_gives_way_until_the_next_operation),
        T(the_first_step_is_a_niceness),
        T(the_shared_session_is_behind_as_long_as_anybody),
        T(sessions_of_two_zygotes_rise_each_with_its_own),
        T(in_a_group_sessions_are_nothing),
        T(a_group_of_its_own_is_weighed),
        T(elsewhere_its_session_gives_way),
        T(priorities_are_for_those_who_can_raise_them),
        T(who_was_short_goes_ahead_while_somebody_gives_way),
        T(beside_nobody_who_gives_way_all_are_alike),
        T(without_shares_for_sessions_nobody_goes_ahead),
        T(while_all_processors_are_taken_the_host_sleeps_at_once),
        T(who_waits_does_not),
        T(the_only_sandbox_gives_way_to_nobody),
        T(a_child_that_spins_gives_way_and_stays_behind),
        T(who_computes_is_busy),
        T(who_sleeps_is_not_busy),
        T(a_sandbox_that_is_gone_is_nobodys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
