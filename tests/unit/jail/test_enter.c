/* Executing plans, each in its own child process, because most operations cannot be undone. */
#include "../test.h"

#include "base/cleanup.h"
#include "base/os/tree.h"
#include "jail/jail.h"
#include "jail/landlock.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>

enum { OPS_MAX = 8 };

/* A plan written by hand. */
struct hand {
    struct jail_plan head;
    struct jail_op ops[OPS_MAX];
    char text[512];
    size_t used;
};

/* The plan's texts stand after its last operation, so it is put together anew. */
struct block {
    struct jail_plan plan;
    char rest[sizeof(struct jail_op) * OPS_MAX + 512];
};

static void add(
    struct hand *h, enum jail_op_kind kind, const char *t0, const char *t1, uint64_t a, uint64_t b)
{
    struct jail_op *op = &h->ops[h->head.count++];
    const char *texts[2] = { t0, t1 };
    *op = (struct jail_op){ .kind = (uint16_t)kind, .stage = JAIL_WORKER, .a = a, .b = b };
    if (h->used == 0)
        h->used = 1;
    for (int i = 0; i < 2; i++) {
        if (!texts[i])
            continue;
        op->text[i] = (uint32_t)h->used;
        h->used += (size_t)snprintf(h->text + h->used, sizeof h->text - h->used, "%s", texts[i]);
        h->used++;
    }
}

/* What the child found, in memory that both see. */
struct report {
    int rc, sys;
    uint32_t failed;
    bool checked;
};

typedef bool check_fn(void);

/* Carries the plan out in a child and then asks `check` there. */
static struct report run(const struct hand *h, check_fn *check)
{
    struct block block = { .plan = h->head };
    size_t ops = h->head.count * sizeof(struct jail_op);
    struct report report = { 0 };
    int ends[2];
    memcpy(block.plan.ops, h->ops, ops);
    memcpy((char *)block.plan.ops + ops, h->text, sizeof h->text);
    assert_int_equal(pipe(ends), 0);
    pid_t pid = fork();
    if (pid == 0) {
        report.rc = jail_enter(&block.plan, JAIL_WORKER, &report.failed);
        report.sys = errno;
        report.checked = check && check();
        _exit(write(ends[1], &report, sizeof report) == sizeof report ? 0 : 1);
    }
    close(ends[1]);
    assert_int_equal(read(ends[0], &report, sizeof report), sizeof report);
    close(ends[0]);
    waitpid(pid, NULL, 0);
    return report;
}

/* ---- volumes ---- */

static char volumes[64];

static bool sees_the_volume(void)
{
    char path[100];
    struct statvfs st;
    snprintf(path, sizeof path, "%s/at/inside", volumes);
    return statvfs(path, &st) == 0 && st.f_flag & ST_NOSUID && st.f_flag & ST_NODEV;
}

/* Mounts PATH below the volumes, in a mount namespace of its own, as the inode of v/data, or
 * another. */
static struct report mount_volume(const char *path, uint64_t more)
{
    char data[100], target[100];
    struct stat st;
    struct hand h = { 0 };
    snprintf(data, sizeof data, "%s/v/data", volumes);
    snprintf(target, sizeof target, "%s/at", volumes);
    assert_int_equal(stat(data, &st), 0);
    add(&h, JAIL_UNSHARE, NULL, NULL, CLONE_NEWNS, 0);
    add(&h, JAIL_PRIVATE, NULL, NULL, 0, 0);
    add(&h, JAIL_CHDIR, target, NULL, 0, 0);
    add(&h, JAIL_VOLUME, volumes, path, st.st_dev, st.st_ino + more);
    h.ops[3].text[2] = h.ops[2].text[0];
    return run(&h, sees_the_volume);
}

/* It must be the inode that the host looked at, and no link may be on the way: not as a volume, not
 * in its place, not upwards. Nothing in it is a program of another user's, or a device. */
static void a_volume_is_mounted_only_if_it_is_the_one(void **state)
{
    static const char *const directories[] = { "v", "v/data", "v/data/inside", "at" };
    char path[120];
    if (geteuid() != 0) {
        print_message(
            "skipped: mounting by itself needs root; others are tried with whole sandboxes\n");
        skip();
    }
    snprintf(volumes, sizeof volumes, "/tmp/droste-enter-XXXXXX");
    assert_non_null(mkdtemp(volumes));
    for (size_t i = 0; i < array_length(directories); i++) {
        snprintf(path, sizeof path, "%s/%s", volumes, directories[i]);
        assert_int_equal(mkdir(path, 0755), 0);
    }
    snprintf(path, sizeof path, "%s/link", volumes);
    assert_int_equal(symlink("v", path), 0);
    const struct {
        const char *path;
        uint64_t more;
        int sys;
    } rows[] = { { "v/data", 0, 0 }, { "v/data", 1, ESTALE }, { "v", 0, ESTALE },
        { "link/data", 0, ELOOP }, { "../v/data", 0, EXDEV }, { "nothing", 0, ENOENT } };
    for (size_t i = 0; i < array_length(rows); i++) {
        struct report r = mount_volume(rows[i].path, rows[i].more);
        assert_int_equal(r.rc, rows[i].sys ? -1 : 0);
        assert_int_equal(r.checked, rows[i].sys == 0);
        if (rows[i].sys) {
            assert_int_equal(r.failed, 3);
            assert_int_equal(r.sys, rows[i].sys);
        }
    }
    assert_true(tree_remove(AT_FDCWD, volumes));
}

static void a_failure_gives_its_index_and_errno(void **state)
{
    static const char missing[] = "/nonexistent-droste";
    struct hand h = { 0 };
    add(&h, JAIL_NO_NEW_PRIVS, NULL, NULL, 0, 0);
    add(&h, JAIL_CHDIR, "/", NULL, 0, 0);
    add(&h, JAIL_CHDIR, missing, NULL, 0, 0);
    add(&h, JAIL_CHDIR, "/", NULL, 0, 0);
    struct report r = run(&h, NULL);
    assert_int_equal(r.rc, -1);
    assert_int_equal(r.failed, 2);
    assert_int_equal(r.sys, ENOENT);
}

static bool is_in_tmp(void)
{
    char here[64];
    return getcwd(here, sizeof here) && strcmp(here, "/tmp") == 0;
}

static void steps_after_a_failure_do_not_run(void **state)
{
    struct hand h = { 0 };
    add(&h, JAIL_CHDIR, "/nonexistent-droste", NULL, 0, 0);
    add(&h, JAIL_CHDIR, "/tmp", NULL, 0, 0);
    assert_false(run(&h, is_in_tmp).checked);
}

static void an_optional_failure_is_passed_over(void **state)
{
    struct hand h = { 0 };
    add(&h, JAIL_CHDIR, "/nonexistent-droste", NULL, 0, 0);
    h.ops[0].optional = 1;
    add(&h, JAIL_CHDIR, "/tmp", NULL, 0, 0);
    struct report r = run(&h, is_in_tmp);
    assert_int_equal(r.rc, 0);
    assert_true(r.checked);
}

static void operations_of_other_stages_are_left_alone(void **state)
{
    struct hand h = { 0 };
    add(&h, JAIL_CHDIR, "/nonexistent-droste", NULL, 0, 0);
    h.ops[0].stage = JAIL_KEEPER;
    add(&h, JAIL_CHDIR, "/tmp", NULL, 0, 0);
    struct report r = run(&h, is_in_tmp);
    assert_int_equal(r.rc, 0);
    assert_true(r.checked);
}

static void an_unknown_operation_fails(void **state)
{
    struct hand h = { 0 };
    add(&h, JAIL_OP_COUNT, NULL, NULL, 0, 0);
    struct report r = run(&h, NULL);
    assert_int_equal(r.rc, -1);
    assert_int_equal(r.sys, EINVAL);
}

static bool has_limits(void)
{
    struct rlimit files, core;
    getrlimit(RLIMIT_NOFILE, &files);
    getrlimit(RLIMIT_CORE, &core);
    return files.rlim_cur == 64 && files.rlim_max == 64 && core.rlim_max == 0;
}

static void limits_are_set_soft_and_hard(void **state)
{
    struct hand h = { 0 };
    add(&h, JAIL_LIMIT, NULL, NULL, RLIMIT_NOFILE, 64);
    add(&h, JAIL_LIMIT, NULL, NULL, RLIMIT_CORE, 0);
    struct report r = run(&h, has_limits);
    assert_int_equal(r.rc, 0);
    assert_true(r.checked);
}

/* A limit never goes up: one that is over the present hard limit leaves that in force. */
static void limits_are_never_raised(void **state)
{
    struct hand h = { 0 };
    add(&h, JAIL_LIMIT, NULL, NULL, RLIMIT_NOFILE, 64);
    add(&h, JAIL_LIMIT, NULL, NULL, RLIMIT_NOFILE, 100000);
    add(&h, JAIL_LIMIT, NULL, NULL, RLIMIT_CORE, 0);
    add(&h, JAIL_LIMIT, NULL, NULL, RLIMIT_CORE, RLIM_INFINITY);
    struct report r = run(&h, has_limits);
    assert_int_equal(r.rc, 0);
    assert_true(r.checked);
}

static bool has_cpu_limit(void)
{
    struct rlimit cpu;
    getrlimit(RLIMIT_CPU, &cpu);
    return cpu.rlim_cur == 1000 && cpu.rlim_max == 1001;
}

/* A process that ignores SIGXCPU is killed a second later. */
static void the_hard_limit_of_processor_time_is_a_second_later(void **state)
{
    struct hand h = { 0 };
    add(&h, JAIL_LIMIT, NULL, NULL, RLIMIT_CPU, 1000);
    struct report r = run(&h, has_cpu_limit);
    assert_int_equal(r.rc, 0);
    assert_true(r.checked);
}

static bool is_session_leader(void)
{
    return getsid(0) == getpid() && getpgid(0) == getpid();
}

static void a_new_session_is_the_workers_own(void **state)
{
    struct hand h = { 0 };
    add(&h, JAIL_SESSION, NULL, NULL, 0, 0);
    struct report r = run(&h, is_session_leader);
    assert_int_equal(r.rc, 0);
    assert_true(r.checked);
}

static bool is_group_leader_only(void)
{
    return getsid(0) != getpid() && getpgid(0) == getpid();
}

static void a_new_group_stays_in_the_session(void **state)
{
    struct hand h = { 0 };
    add(&h, JAIL_GROUP, NULL, NULL, 0, 0);
    struct report r = run(&h, is_group_leader_only);
    assert_int_equal(r.rc, 0);
    assert_true(r.checked);
}

/* The hexadecimal value of a line of /proc/self/status; ~0 where it is missing. */
static unsigned long long status_line(const char *name)
{
    char line[256];
    unsigned long long value = ~0ull;
    FILE *f = fopen("/proc/self/status", "re");
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, name, strlen(name)) == 0)
            value = strtoull(line + strlen(name), NULL, 16);
    if (f)
        fclose(f);
    return value;
}

static bool has_no_capabilities(void)
{
    static const char *const sets[] = { "CapInh:", "CapPrm:", "CapEff:", "CapAmb:" };
    for (size_t i = 0; i < array_length(sets); i++)
        if (status_line(sets[i]) != 0)
            return false;
    /* A process that may not drop from the bounding set had an empty one to begin with. */
    return geteuid() != 0 || status_line("CapBnd:") == 0;
}

static void all_capabilities_go(void **state)
{
    struct hand h = { 0 };
    add(&h, JAIL_DROP_BOUND, NULL, NULL, 0, 0);
    add(&h, JAIL_DROP_CAPS, NULL, NULL, 0, 0);
    struct report r = run(&h, has_no_capabilities);
    assert_int_equal(r.rc, 0);
    assert_true(r.checked);
}

static bool has_no_new_privs(void)
{
    return prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1;
}

static void no_new_privileges_are_set(void **state)
{
    struct hand h = { 0 };
    add(&h, JAIL_NO_NEW_PRIVS, NULL, NULL, 0, 0);
    struct report r = run(&h, has_no_new_privs);
    assert_int_equal(r.rc, 0);
    assert_true(r.checked);
}

static char made[64];

static bool made_directory_and_file(void)
{
    char path[128], text[16] = { 0 };
    struct stat st;
    snprintf(path, sizeof path, "%s/a", made);
    if (stat(path, &st) < 0 || st.st_mode != (S_IFDIR | 0755))
        return false;
    snprintf(path, sizeof path, "%s/a/b", made);
    if (stat(path, &st) < 0 || st.st_mode != (S_IFDIR | 0755))
        return false;
    snprintf(path, sizeof path, "%s/a/link/file", made);
    if (stat(path, &st) < 0 || st.st_mode != (S_IFREG | 0644))
        return false;
    FILE *f = fopen(path, "re");
    bool same = f && fgets(text, sizeof text, f) && strcmp(text, "hello") == 0;
    if (f)
        fclose(f);
    return same;
}

/* And all can be passed and read by others, whatever the umask is. */
static void directories_files_and_links_are_made_with_their_parents(void **state)
{
    struct hand h = { 0 };
    char path[4][128], command[160];
    snprintf(made, sizeof made, "/tmp/droste-test-XXXXXX");
    assert_non_null(mkdtemp(made));
    snprintf(path[0], sizeof path[0], "%s/a/b", made);
    snprintf(path[1], sizeof path[1], "%s/a/c/file", made);
    snprintf(path[2], sizeof path[2], "%s/a/link", made);
    add(&h, JAIL_DIRECTORY, path[0], NULL, 0755, 0);
    add(&h, JAIL_DIRECTORY, path[0], NULL, 0755, 0); /* twice is fine */
    add(&h, JAIL_FILE, path[1], "hello", 0644, 0);
    add(&h, JAIL_SYMLINK, "c", path[2], 0, 0);
    mode_t mask = umask(077);
    struct report r = run(&h, made_directory_and_file);
    umask(mask);
    snprintf(command, sizeof command, "rm -r %s", made);
    assert_int_equal(system(command), 0);
    assert_int_equal(r.rc, 0);
    assert_true(r.checked);
}

/* Files are made, never followed to. */
static void a_file_is_not_written_through_a_link(void **state)
{
    struct hand h = { 0 };
    char path[128], command[160];
    snprintf(made, sizeof made, "/tmp/droste-test-XXXXXX");
    assert_non_null(mkdtemp(made));
    snprintf(path, sizeof path, "%s/link", made);
    assert_int_equal(symlink("/dev/null", path), 0);
    add(&h, JAIL_FILE, path, "hello", 0644, 0);
    struct report r = run(&h, NULL);
    snprintf(command, sizeof command, "rm -r %s", made);
    assert_int_equal(system(command), 0);
    assert_int_equal(r.rc, -1);
    assert_int_equal(r.sys, ELOOP);
}

static bool is_nobody(void)
{
    return getuid() == JAIL_NOBODY && geteuid() == JAIL_NOBODY && getgid() == JAIL_NOBODY &&
           getgroups(0, NULL) == 0 && setuid(0) < 0;
}

static void root_can_become_nobody_and_not_come_back(void **state)
{
    struct hand h = { 0 };
    if (geteuid() != 0) {
        print_message("skipped: changing ids needs root\n");
        skip();
    }
    add(&h, JAIL_BECOME, NULL, NULL, JAIL_NOBODY, JAIL_NOBODY);
    struct report r = run(&h, is_nobody);
    assert_int_equal(r.rc, 0);
    assert_true(r.checked);
}

static void anyone_else_cannot_become_root(void **state)
{
    struct hand h = { 0 };
    if (geteuid() == 0) {
        print_message("skipped: root can become anyone\n");
        skip();
    }
    add(&h, JAIL_BECOME, NULL, NULL, 0, 0);
    struct report r = run(&h, NULL);
    assert_int_equal(r.rc, -1);
    assert_int_equal(r.sys, EPERM);
}

static bool writes_in_tmp_alone(void)
{
    char own[] = "/tmp/droste-test-XXXXXX", foreign[] = "/dev/droste-test-XXXXXX";
    int fd = mkstemp(own);
    unlink(own);
    return fd >= 0 && mkstemp(foreign) < 0 && errno == EACCES && open("/dev/null", O_WRONLY) >= 0;
}

/* The rules say all that the newest kernel controls; one with an older Landlock would refuse
 * those. */
static void rules_say_no_more_than_the_kernel_controls(void **state)
{
    if (landlock_abi() == 0) {
        print_message("# this kernel has no Landlock\n");
        skip();
    }
    for (int abi = 1; abi <= landlock_abi(); abi++) {
        struct hand h = { 0 };
        add(&h, JAIL_NO_NEW_PRIVS, NULL, NULL, 0, 0);
        add(&h, JAIL_RULESET, NULL, NULL, landlock_everything(abi).handled_fs, 0);
        add(&h, JAIL_RULE, "/", NULL, LANDLOCK_READ, 0);
        add(&h, JAIL_RULE, "/dev", NULL, LANDLOCK_DEVICES, 0);
        add(&h, JAIL_RULE, "/dev/null", NULL, LANDLOCK_IOCTL_DEV, 0);
        add(&h, JAIL_RULE, "/tmp", NULL, LANDLOCK_OWN, 0);
        add(&h, JAIL_CONFINE, NULL, NULL, 0, 0);
        struct report r = run(&h, writes_in_tmp_alone);
        if (r.rc != 0 || !r.checked)
            fail_msg("ABI %d: operation %u failed with errno %d", abi, r.failed, r.sys);
    }
}

/* What a rule is for may have been exchanged since the host looked at it: then it is for
 * nothing. */
static void a_rule_is_for_what_the_host_has_seen(void **state)
{
    struct stat st;
    if (landlock_abi() == 0) {
        print_message("# this kernel has no Landlock\n");
        skip();
    }
    assert_int_equal(stat("/tmp", &st), 0);
    for (uint64_t more = 0; more < 2; more++) {
        struct hand h = { 0 };
        add(&h, JAIL_NO_NEW_PRIVS, NULL, NULL, 0, 0);
        add(&h, JAIL_RULESET, NULL, NULL, landlock_everything(1).handled_fs, 0);
        add(&h, JAIL_RULE, "/tmp", NULL, LANDLOCK_OWN, st.st_ino + more);
        struct report r = run(&h, NULL);
        assert_int_equal(r.rc, more ? -1 : 0);
        assert_int_equal(r.failed * more, 2 * more);
        assert_int_equal(r.sys * (int)more, ESTALE * (int)more);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_volume_is_mounted_only_if_it_is_the_one),
        cmocka_unit_test(a_failure_gives_its_index_and_errno),
        cmocka_unit_test(steps_after_a_failure_do_not_run),
        cmocka_unit_test(an_optional_failure_is_passed_over),
        cmocka_unit_test(operations_of_other_stages_are_left_alone),
        cmocka_unit_test(an_unknown_operation_fails),
        cmocka_unit_test(limits_are_set_soft_and_hard),
        cmocka_unit_test(limits_are_never_raised),
        cmocka_unit_test(the_hard_limit_of_processor_time_is_a_second_later),
        cmocka_unit_test(a_new_session_is_the_workers_own),
        cmocka_unit_test(a_new_group_stays_in_the_session),
        cmocka_unit_test(all_capabilities_go),
        cmocka_unit_test(no_new_privileges_are_set),
        cmocka_unit_test(directories_files_and_links_are_made_with_their_parents),
        cmocka_unit_test(a_file_is_not_written_through_a_link),
        cmocka_unit_test(root_can_become_nobody_and_not_come_back),
        cmocka_unit_test(anyone_else_cannot_become_root),
        cmocka_unit_test(rules_say_no_more_than_the_kernel_controls),
        cmocka_unit_test(a_rule_is_for_what_the_host_has_seen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
