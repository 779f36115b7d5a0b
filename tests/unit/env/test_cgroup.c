/* Finding a cgroup that may be divided, in trees of plain files. A virtual machine tests the
 * kernel's part (scripts/check-vm). */
#include "../test.h"

#include "base/cleanup.h"
#include "base/os/file.h"
#include "base/os/owner.h"
#include "env/local/cgroup.h"
#include "env/local/cgroup_tree.h"
#include "env/local/cpu_group.h"

#include <fcntl.h>
#include <ftw.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

struct fixture {
    struct loop *loop;
    char path[64];
    int root;
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    assert_ok(loop_open(&f->loop, err));
    strcpy(f->path, "/tmp/droste-cgroup-XXXXXX");
    assert_non_null(mkdtemp(f->path));
    f->root = open(f->path, O_PATH | O_DIRECTORY);
    assert_true(f->root >= 0);
    *state = f;
    return 0;
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    chmod(path, 0700);
    return remove(path);
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    close(f->root);
    nftw(f->path, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    loop_close(f->loop);
    free(f);
    return 0;
}

/* ---- making a tree ---- */

static void put(struct fixture *f, const char *path, const char *text)
{
    char parent[256];
    for (const char *p = path; (p = strchr(p, '/')); p++) {
        snprintf(parent, sizeof parent, "%.*s", (int)(p - path), path);
        mkdirat(f->root, parent, 0755);
    }
    int fd = openat(f->root, path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
}

/* A cgroup with these controllers, which it gives to its children if `given`. */
static void make_cgroup(
    struct fixture *f, const char *path, const char *controllers, bool delegated)
{
    char file[256];
    snprintf(file, sizeof file, "%s/cgroup.controllers", path);
    put(f, file, controllers);
    snprintf(file, sizeof file, "%s/cgroup.procs", path);
    put(f, file, "");
    snprintf(file, sizeof file, "%s/cgroup.subtree_control", path);
    /* Without the file it cannot be written, as where a cgroup holds processes itself. */
    if (delegated)
        put(f, file, controllers);
}

/* What /proc says: one cgroup2 mount with this root and point, and the own cgroup. */
static void make_proc(struct fixture *f, const char *root, const char *point, const char *own)
{
    char text[512];
    snprintf(text, sizeof text,
        "22 1 0:20 / /proc rw - proc proc rw\n"
        "30 22 0:26 / /sys/fs/cgroup/memory rw shared:9 - cgroup cgroup rw,memory\n"
        "31 22 0:27 %s %s rw,nosuid shared:4 master:1 - cgroup2 cgroup2 rw,nsdelegate\n",
        root, point);
    put(f, "proc/self/mountinfo", text);
    snprintf(text, sizeof text, "4:memory:/elsewhere\n0::%s\n", own);
    put(f, "proc/self/cgroup", text);
}

/* Opens and gives why that failed: it must, because these files do nothing. A place that was chosen
 * is named by it. */
static const char *reason(struct fixture *f)
{
    static struct error err;
    struct cgroups *c = NULL;
    err = (struct error){ 0 };
    assert_int_equal(cgroups_open(f->loop, f->root, &c, &err), -(int)ERROR_UNSUPPORTED);
    assert_null(c);
    return err.text;
}

#define assert_reason(f, part)                                                                     \
    do {                                                                                           \
        const char *text_ = reason(f);                                                             \
        if (!strstr(text_, part))                                                                  \
            fail_msg("'%s' does not say '%s'", text_, part);                                       \
    } while (0)

/* ---- where cgroups are ---- */

static void without_a_mount_the_reason_says_so(void **state)
{
    struct fixture *f = *state;
    put(f, "proc/self/mountinfo", "22 1 0:20 / /proc rw - proc proc rw\n");
    put(f, "proc/self/cgroup", "0::/\n");
    assert_reason(f, "cgroup v2 is not mounted");
}

static void without_proc_the_reason_says_so(void **state)
{
    assert_reason(*state, "reading /proc/self/mountinfo");
}

static void a_hybrid_machine_has_no_controllers(void **state)
{
    struct fixture *f = *state;
    make_proc(f, "/", "/sys/fs/cgroup/unified", "/");
    make_cgroup(f, "sys/fs/cgroup/unified", "", true);
    assert_reason(
        f, "/sys/fs/cgroup/unified: this process has no memory and pids controllers there");
    make_cgroup(f, "sys/fs/cgroup/unified", "cpu pids memory_not\n", true);
    assert_reason(f, "this process has no memory and pids controllers there");
}

static void a_cgroup_outside_the_namespace_is_refused(void **state)
{
    struct fixture *f = *state;
    make_proc(f, "/", "/sys/fs/cgroup", "/../other");
    make_cgroup(f, "sys/fs/cgroup", "memory pids", true);
    assert_reason(f, "does not show this process's cgroup");
}

static void a_mount_of_another_part_of_the_tree_is_refused(void **state)
{
    struct fixture *f = *state;
    make_proc(f, "/box", "/sys/fs/cgroup", "/boxes/own");
    make_cgroup(f, "sys/fs/cgroup", "memory pids", true);
    assert_reason(f, "does not show this process's cgroup");
}

/* A container that sees its own part as the whole, and a mount point with a blank in it. */
static void a_mount_of_the_own_part_is_used(void **state)
{
    struct fixture *f = *state;
    make_proc(f, "/box", "/my\\040groups", "/box/own");
    make_cgroup(f, "my groups/own", "memory pids", true);
    assert_reason(f, "creating a cgroup in /my groups/own/:");
}

static void a_kernel_without_version_2_is_refused(void **state)
{
    struct fixture *f = *state;
    make_proc(f, "/", "/sys/fs/cgroup", "/");
    put(f, "proc/self/cgroup", "4:memory:/elsewhere\n");
    assert_reason(f, "does not show this process's cgroup");
}

/* ---- which one ---- */

static void the_own_cgroup_comes_first(void **state)
{
    struct fixture *f = *state;
    make_proc(f, "/", "/sys/fs/cgroup", "/user.slice/app.slice");
    make_cgroup(f, "sys/fs/cgroup", "cpu memory pids", true);
    make_cgroup(f, "sys/fs/cgroup/user.slice", "cpu memory pids", true);
    make_cgroup(f, "sys/fs/cgroup/user.slice/app.slice", "memory pids", true);
    assert_reason(f, "creating a cgroup in /sys/fs/cgroup/user.slice/app.slice/:");
}

/* The own one holds this process, so that it cannot be divided; its parent has other work. */
static void the_nearest_that_can_be_divided_is_taken(void **state)
{
    struct fixture *f = *state;
    make_proc(f, "/", "/sys/fs/cgroup", "/user.slice/app.slice/run.scope");
    make_cgroup(f, "sys/fs/cgroup", "cpu memory pids", true);
    make_cgroup(f, "sys/fs/cgroup/user.slice", "cpu memory pids", true);
    make_cgroup(f, "sys/fs/cgroup/user.slice/app.slice", "pids", true);
    make_cgroup(f, "sys/fs/cgroup/user.slice/app.slice/run.scope", "memory pids", false);
    assert_reason(f, "creating a cgroup in /sys/fs/cgroup/user.slice/:");
}

static void the_root_is_the_last(void **state)
{
    struct fixture *f = *state;
    make_proc(f, "/", "/sys/fs/cgroup", "/a/b");
    make_cgroup(f, "sys/fs/cgroup", "cpu memory pids", true);
    make_cgroup(f, "sys/fs/cgroup/a/b", "memory pids", false);
    assert_reason(f, "creating a cgroup in /sys/fs/cgroup/:");
}

static void where_all_hold_processes_the_reason_says_so(void **state)
{
    struct fixture *f = *state;
    make_proc(f, "/", "/sys/fs/cgroup", "/");
    make_cgroup(f, "sys/fs/cgroup", "cpu memory pids", false);
    assert_reason(f, "contain processes");
}

static void where_all_belong_to_others_the_reason_says_so(void **state)
{
    struct fixture *f = *state;
    if (geteuid() == 0) {
        print_message("skipped: root may write everywhere; an ordinary user runs this too\n");
        skip();
    }
    make_proc(f, "/", "/sys/fs/cgroup", "/user");
    make_cgroup(f, "sys/fs/cgroup/user", "cpu memory pids", true);
    make_cgroup(f, "sys/fs/cgroup", "cpu memory pids", true);
    assert_int_equal(fchmodat(f->root, "sys/fs/cgroup/user", 0555, 0), 0);
    assert_int_equal(fchmodat(f->root, "sys/fs/cgroup/cgroup.procs", 0444, 0), 0);
    assert_reason(f, "systemd-run --user --scope");
}

/* ---- what is there already ---- */

static bool is_there(struct fixture *f, const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "sys/fs/cgroup/%s", name);
    return faccessat(f->root, path, F_OK, 0) == 0;
}

static void make_directory(struct fixture *f, const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "sys/fs/cgroup/%s", name);
    assert_int_equal(mkdirat(f->root, path, 0755), 0);
}

static void name_of(const struct owner *o, char out[128])
{
    snprintf(out, 128, "droste-%lld-%lld-%lld-0", (long long)o->pid, (long long)o->start,
        (long long)o->space);
}

static void what_a_host_that_is_gone_has_left_is_removed(void **state)
{
    struct fixture *f = *state;
    char gone[128], child[160];
    struct owner other;
    owner_self(&other);
    other.start += 1; /* the same pid, reused */
    name_of(&other, gone);
    make_proc(f, "/", "/sys/fs/cgroup", "/");
    make_cgroup(f, "sys/fs/cgroup", "memory pids", true);
    make_directory(f, gone);
    snprintf(child, sizeof child, "%s/sandbox-1", gone);
    make_directory(f, child);
    reason(f);
    assert_false(is_there(f, gone));
}

static void what_is_in_use_or_not_ours_stays(void **state)
{
    struct fixture *f = *state;
    static const char *const strangers[] = { "user.slice", "droste-", "droste-1-2",
        "droste-x-1-1-0" };
    char parent[128], elsewhere[128];
    struct owner self, other;
    owner_self(&self);
    other = self;
    other.space += 1; /* its pids are not ours: it may live */
    other.pid = 999999999;
    name_of(&other, elsewhere);
    make_proc(f, "/", "/sys/fs/cgroup", "/");
    make_cgroup(f, "sys/fs/cgroup", "memory pids", true);
    for (size_t i = 0; i < array_length(strangers); i++)
        make_directory(f, strangers[i]);
    make_directory(f, elsewhere);
    name_of(&self, parent); /* another environment of this process */
    make_directory(f, parent);
    reason(f);
    for (size_t i = 0; i < array_length(strangers); i++)
        assert_true(is_there(f, strangers[i]));
    assert_true(is_there(f, elsewhere));
    assert_true(is_there(f, parent));
}

static void a_failure_leaves_no_directory(void **state)
{
    struct fixture *f = *state;
    char own[128];
    struct owner self;
    owner_self(&self);
    name_of(&self, own);
    make_proc(f, "/", "/sys/fs/cgroup", "/");
    make_cgroup(f, "sys/fs/cgroup", "memory pids", true);
    reason(f);
    assert_false(is_there(f, own));
}

/* ---- one group of version 1 for all sandboxes ---- */

/* A mount of version 1 with these controllers, and the own group in it. */
static void make_version_1(struct fixture *f, const char *controllers, const char *own)
{
    char text[512];
    snprintf(text, sizeof text,
        "30 22 0:26 / /sys/fs/cgroup/cpuset rw shared:9 - cgroup cgroup rw,cpuset\n"
        "31 22 0:27 / /sys/fs/cgroup/cpu rw,nosuid shared:4 - cgroup cgroup rw,%s\n",
        controllers);
    put(f, "proc/self/mountinfo", text);
    snprintf(text, sizeof text, "5:cpuset:/elsewhere\n4:%s:/%s\n0::/\n", controllers, own);
    put(f, "proc/self/cgroup", text);
    put(f, "sys/fs/cgroup/cpu/own/tasks", "");
}

static void assert_text(struct fixture *f, const char *path, const char *expected)
{
    char text[16];
    file_peek(f->root, path, text, sizeof text);
    assert_string_equal(text, expected);
}

static void a_thread_enters_the_group_and_leaves_it(void **state)
{
    static const char *const sets[] = { "cpu", "cpu,cpuacct" };
    struct fixture *f = *state;
    for (size_t i = 0; i < array_length(sets); i++) {
        struct cpu_group *group = NULL;
        struct owner self;
        char name[128], path[256];
        owner_self(&self);
        make_version_1(f, sets[i], "own");
        assert_ok(cpu_group_open(f->root, &group, err));
        name_of(&self, name);
        snprintf(path, sizeof path, "sys/fs/cgroup/cpu/own/%s/tasks", name);
        assert_fails(ERROR_ENVIRONMENT, cpu_group_enter(group, err)); /* no file yet */
        cpu_group_leave(group);
        assert_text(f, "sys/fs/cgroup/cpu/own/tasks", "");
        put(f, path, "");
        assert_ok(cpu_group_enter(group, err));
        assert_text(f, path, "0");
        assert_text(f, "sys/fs/cgroup/cpu/own/tasks", "");
        cpu_group_leave(group);
        assert_text(f, "sys/fs/cgroup/cpu/own/tasks", "0");
        assert_int_equal(unlinkat(f->root, path, 0), 0);
        cpu_group_close(group);
        assert_int_equal(unlinkat(f->root, "sys/fs/cgroup/cpu/own/tasks", 0), 0);
        assert_int_equal(unlinkat(f->root, "sys/fs/cgroup/cpu/own", AT_REMOVEDIR), 0); /* empty */
    }
}

static void without_the_controller_there_is_no_group(void **state)
{
    struct fixture *f = *state;
    struct cpu_group *group = NULL;
    make_version_1(f, "cpuacct", "own");
    assert_fails(ERROR_UNSUPPORTED, cpu_group_open(f->root, &group, err));
    make_version_1(f, "cpu", "gone");
    assert_fails(ERROR_UNSUPPORTED, cpu_group_open(f->root, &group, err));
    assert_null(group);
}

static void the_group_of_a_host_that_is_gone_is_removed(void **state)
{
    struct fixture *f = *state;
    struct cpu_group *group = NULL;
    char gone[128], path[200];
    struct owner other;
    owner_self(&other);
    other.start += 1;
    name_of(&other, gone);
    make_version_1(f, "cpu", "own");
    snprintf(path, sizeof path, "cpu/own/%s", gone);
    make_directory(f, path);
    assert_ok(cpu_group_open(f->root, &group, err));
    assert_false(is_there(f, path));
    cpu_group_close(group);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(without_a_mount_the_reason_says_so),
        T(without_proc_the_reason_says_so),
        T(a_hybrid_machine_has_no_controllers),
        T(a_cgroup_outside_the_namespace_is_refused),
        T(a_mount_of_another_part_of_the_tree_is_refused),
        T(a_mount_of_the_own_part_is_used),
        T(a_kernel_without_version_2_is_refused),
        T(the_own_cgroup_comes_first),
        T(the_nearest_that_can_be_divided_is_taken),
        T(the_root_is_the_last),
        T(where_all_hold_processes_the_reason_says_so),
        T(where_all_belong_to_others_the_reason_says_so),
        T(what_a_host_that_is_gone_has_left_is_removed),
        T(what_is_in_use_or_not_ours_stays),
        T(a_failure_leaves_no_directory),
        T(a_thread_enters_the_group_and_leaves_it),
        T(without_the_controller_there_is_no_group),
        T(the_group_of_a_host_that_is_gone_is_removed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
