/* Compiled plans as data: their operations and the order of these. Needs no privileges. */
#include "plans.h"

#include "jail/landlock.h"

#include <linux/mount.h>
#include <sched.h>
#include <sys/resource.h>

static const enum isolation walls[] = { ISOLATION_FULL, ISOLATION_LIGHT, ISOLATION_LANDLOCK };

/* The operation of a kind on a target (text 1); it must be there. */
static int find_on(const struct jail_plan *plan, enum jail_op_kind kind, const char *target)
{
    for (int i = find(plan, kind, 0); i >= 0; i = find(plan, kind, i + 1))
        if (strcmp(text(plan, i, 1), target) == 0)
            return i;
    fail_msg("no operation of kind %d on %s", kind, target);
    return -1;
}

static void root_needs_no_user_namespace_for_the_zygote(void **state)
{
    cleanup_free struct jail_plan *plan = zygote_plan(ISOLATION_FULL, 0);
    assert_int_equal(plan->ops[0].kind, JAIL_UNSHARE);
    assert_int_equal(plan->ops[0].a, CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS);
    assert_int_equal(find(plan, JAIL_MAP_SELF, 0), -1);
}

static void anyone_else_starts_with_a_user_namespace(void **state)
{
    cleanup_free struct jail_plan *plan = zygote_plan(ISOLATION_FULL, 1000);
    assert_int_equal(plan->ops[0].kind, JAIL_UNSHARE);
    assert_int_equal(
        plan->ops[0].a, CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS);
    assert_int_equal(plan->ops[1].kind, JAIL_MAP_SELF);
    assert_int_equal(find(plan, JAIL_BECOME, 0), -1);
}

/* Mounts must not reach the host, so propagation ends before the first of them. */
static void mounts_are_private_before_the_first_mount(void **state)
{
    for (uid_t uid = 0; uid <= 1000; uid += 1000) {
        cleanup_free struct jail_plan *plan = zygote_plan(ISOLATION_FULL, uid);
        int private = find(plan, JAIL_PRIVATE, 0);
        assert_true(private > 0);
        assert_true(private < find(plan, JAIL_MOUNT, 0));
        assert_true(private < find(plan, JAIL_BIND, 0));
    }
}

static void proc_comes_before_the_old_root_goes(void **state)
{
    for (uid_t uid = 0; uid <= 1000; uid += 1000) {
        cleanup_free struct jail_plan *plan = zygote_plan(ISOLATION_FULL, uid);
        assert_true(find_on(plan, JAIL_BIND, "/new/proc") < find(plan, JAIL_DETACH, 0));
    }
}

/* After the last bind: the new root is made read-only, entered, and the old one goes. */
static void the_old_root_goes_for_good(void **state)
{
    for (uid_t uid = 0; uid <= 1000; uid += 1000) {
        cleanup_free struct jail_plan *plan = zygote_plan(ISOLATION_FULL, uid);
        int first = find(plan, JAIL_PIVOT, 0), second = find(plan, JAIL_PIVOT, first + 1);
        int detach = find(plan, JAIL_DETACH, 0), read_only = find(plan, JAIL_READ_ONLY, 0);
        assert_true(first < find(plan, JAIL_BIND, 0));
        assert_true(read_only > 0 && read_only < second);
        assert_string_equal(text(plan, read_only, 0), "/new");
        assert_string_equal(text(plan, second, 0), "/new");
        assert_int_equal(detach, second + 1);
        assert_int_equal(find(plan, JAIL_BIND, second), -1);
        assert_int_equal(find(plan, JAIL_MOUNT, second), -1);
        assert_int_equal(plan->ops[detach + 1].kind, JAIL_CHDIR);
        assert_string_equal(text(plan, detach + 1, 0), "/");
    }
}

/* As root: the binds need root to be found, everything after must not have it. */
static void root_becomes_nobody_last(void **state)
{
    static const enum jail_op_kind after[] = { JAIL_KEYRING, JAIL_NO_NEW_PRIVS, JAIL_FILTER };
    for (size_t level = 0; level < array_length(walls); level++) {
        cleanup_free struct jail_plan *plan = zygote_plan(walls[level], 0);
        int at = find(plan, JAIL_BECOME, 0);
        assert_true(at >= 0);
        assert_int_equal(plan->ops[at].a, JAIL_NOBODY);
        assert_int_equal(plan->ops[at].b, JAIL_NOBODY);
        assert_int_equal(plan->ops[at].optional, 0);
        for (size_t i = 0; i < array_length(after); i++) {
            while (plan->ops[++at].stage != JAIL_ZYGOTE)
                ;
            assert_int_equal(plan->ops[at].kind, after[i]);
        }
        assert_int_equal(at, plan->count - 1);
    }
}

/* A zygote that lends users is nobody too, and keeps what it takes; the sandbox's plan says who it
 * is, and at each level its worker and its keeper give up all that they got of the zygote. */
static void a_sandbox_may_be_a_user_of_its_own(void **state)
{
    struct jail_host host = { .lends_users = true };
    const struct jail_mount own = { .workdir = "/work", .user = 70007 };
    for (size_t i = 0; i < array_length(walls); i++) {
        cleanup_free struct jail_plan *zygote = NULL, *plan = NULL;
        cleanup_buf struct buf made = { 0 }, out = { 0 };
        assert_ok(jail_compile_zygote(walls[i], &host, &zygote, err));
        assert_ok(jail_compile_sandbox(walls[i], zygote, &jail_default_limits, &own, &plan, err));
        assert_int_equal(find(zygote, JAIL_BECOME, 0), -1);
        int become = find(zygote, JAIL_BECOME_LENDER, 0);
        assert_true(become >= 0 && become < find(zygote, JAIL_FILTER, 0));
        assert_int_equal(zygote->ops[become].a, JAIL_NOBODY);
        assert_int_equal(zygote->user, 0);
        assert_int_equal(plan->user, 70007);
        assert_int_equal(plan->group, 70007);
        assert_true(find_stage(plan, JAIL_WORKER, JAIL_DROP_CAPS, 0) >= 0);
        assert_true(find_stage(plan, JAIL_GUARD, JAIL_DROP_CAPS, 0) >= 0);
        jail_print(zygote, &made);
        jail_print(plan, &out);
        assert_non_null(strstr(buf_text(&made), "become uid 65534 gid 65534, able to have each"));
        assert_non_null(strstr(buf_text(&out), "as uid 70007 gid 70007 outside"));
    }
    cleanup_free struct jail_plan *shared = sandbox_plan(ISOLATION_FULL);
    assert_int_equal(shared->user, 0);
}

static bool starts_with(const char *text, const char *start)
{
    return strncmp(text, start, strlen(start)) == 0;
}

static bool is_expected_source(const char *source)
{
    static const char *const expected[] = { "/old/usr", "/old/bin", "/old/sbin", "/old/lib",
        "/old/etc/ld.so.", "/old/etc/alternatives", "/old/etc/localtime", "/old/etc/timezone",
        "/old/etc/mime.types", "/old/etc/fonts", "/old/etc/python3", "/old/dev/null",
        "/old/dev/zero", "/old/dev/full", "/old/dev/random", "/old/dev/urandom", "/old/proc",
        "/old/data/set", "/old/home/ann/venv/bin", "/old/home/ann/venv/lib",
        "/old/home/ann/venv/include", "/old/home/ann/venv/share", "/old/home/ann/venv/pyvenv.cfg",
        "/old/opt/python-3.12/bin", "/old/opt/python-3.12/lib", "/old/opt/python-3.12/include",
        "/old/opt/python-3.12/share", "/old/opt/python-3.12/pyvenv.cfg" };
    for (size_t i = 0; i < array_length(expected); i++)
        if (starts_with(source, expected[i]))
            return true;
    return false;
}

/* What is bound is on this list, under its own name, and read-only, without devices or set-user-id
 * files; only proc and the five devices are not read-only. */
static void only_what_is_needed_is_shown_and_all_of_it_read_only(void **state)
{
    for (uid_t uid = 0; uid <= 1000; uid += 1000) {
        cleanup_free struct jail_plan *plan = zygote_plan(ISOLATION_FULL, uid);
        int binds = 0;
        for (int i = find(plan, JAIL_BIND, 0); i >= 0; i = find(plan, JAIL_BIND, i + 1)) {
            const char *source = text(plan, i, 0), *target = text(plan, i, 1);
            uint64_t attributes = plan->ops[i].a;
            if (!is_expected_source(source))
                fail_msg("'%s' is bound", source);
            assert_true(starts_with(target, "/new/"));
            assert_string_equal(source + 4, target + 4);
            assert_true(attributes & MOUNT_ATTR_NOSUID);
            if (starts_with(source, "/old/dev/")) {
                assert_true(attributes & MOUNT_ATTR_NOEXEC);
                continue;
            }
            assert_true(attributes & MOUNT_ATTR_NODEV);
            if (strcmp(source, "/old/proc") != 0)
                assert_true(attributes & MOUNT_ATTR_RDONLY);
            binds++;
        }
        assert_true(binds > 10);
    }
}

/* A prefix may be somebody's home: its parts are shown, it is not. */
static void a_prefix_is_not_shown_whole(void **state)
{
    cleanup_free struct jail_plan *plan = zygote_plan(ISOLATION_FULL, 1000);
    int parts = 0;
    for (int i = find(plan, JAIL_BIND, 0); i >= 0; i = find(plan, JAIL_BIND, i + 1)) {
        assert_string_not_equal(text(plan, i, 0), "/old/home/ann/venv");
        assert_string_not_equal(text(plan, i, 0), "/old/home/ann");
        assert_string_not_equal(text(plan, i, 0), "/old/home");
        assert_string_not_equal(text(plan, i, 0), "/old/");
        parts += starts_with(text(plan, i, 0), "/old/home/ann/venv/");
    }
    assert_int_equal(parts, 6); /* once, though the prefix was named twice */
    find_on(plan, JAIL_BIND, "/new/home/ann/venv/lib");
    find_on(plan, JAIL_BIND, "/new/data/set");
}

/* Nothing in the host's own file system is written, made or mounted over. */
static void everything_is_made_below_the_new_root(void **state)
{
    cleanup_free struct jail_plan *plan = zygote_plan(ISOLATION_FULL, 0);
    int pivot = find(plan, JAIL_PIVOT, 0), made = 0;
    for (int i = pivot; i < (int)plan->count; i++) {
        const struct jail_op *op = &plan->ops[i];
        if (op->kind == JAIL_DIRECTORY || op->kind == JAIL_FILE)
            assert_true(starts_with(text(plan, i, 0), "/new/"));
        else if (op->kind == JAIL_SYMLINK || op->kind == JAIL_MOUNT)
            assert_true(starts_with(text(plan, i, 1), "/new"));
        else
            continue;
        made++;
    }
    assert_true(made > 10);
    for (int i = 0; i < pivot; i++)
        if (plan->ops[i].kind == JAIL_DIRECTORY)
            assert_true(starts_with(text(plan, i, 0), "/tmp/"));
}

static void a_full_sandbox_has_namespaces_of_its_own(void **state)
{
    cleanup_free struct jail_plan *plan = sandbox_plan(ISOLATION_FULL);
    assert_int_equal(plan->clone_flags,
        CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS);
    int map = find_stage(plan, JAIL_KEEPER, JAIL_MAP_SELF, 0);
    assert_int_equal(map, 0);
    assert_int_equal(plan->ops[map].a, JAIL_INSIDE_UID);
}

static void every_private_mount_is_limited(void **state)
{
    cleanup_free struct jail_plan *plan = sandbox_plan(ISOLATION_FULL);
    int mounts = 0;
    for (int i = 0; (i = find_stage(plan, JAIL_KEEPER, JAIL_MOUNT, i)) >= 0; i++) {
        assert_int_equal(plan->ops[i].a & 6, 6); /* MS_NOSUID, MS_NODEV */
        mounts++;
        if (strcmp(text(plan, i, 0), "tmpfs") != 0)
            continue;
        assert_non_null(strstr(text(plan, i, 2), "size=268435456"));
        assert_non_null(strstr(text(plan, i, 2), "nr_inodes="));
    }
    assert_int_equal(mounts, 3);
}

/* A worker's last words before the guest's code, and all of a guard's: no way back up. */
static void privileges_are_dropped_at_the_end(void **state)
{
    for (enum isolation level = ISOLATION_FULL; level <= ISOLATION_PROCESS; level++) {
        cleanup_free struct jail_plan *plan = sandbox_plan(level);
        for (enum jail_stage stage = JAIL_WORKER; stage <= JAIL_GUARD; stage++) {
            int nnp = find_stage(plan, stage, JAIL_NO_NEW_PRIVS, 0);
            int drop = find_stage(plan, stage, JAIL_DROP_CAPS, 0);
            assert_true(nnp >= 0);
            assert_true(drop > nnp);
            assert_int_equal(plan->ops[nnp].optional, 0);
            assert_int_equal(plan->ops[drop].optional, 0);
        }
        int last = find_stage(plan, JAIL_WORKER, JAIL_DROP_CAPS, 0);
        if (level != ISOLATION_PROCESS) {
            assert_int_equal(plan->ops[++last].kind, JAIL_FILTER);
            assert_int_equal(plan->ops[last].optional, 0);
        }
        assert_int_not_equal(plan->ops[last + 1].stage, JAIL_WORKER);
    }
}

/* The list itself is in the zygote, loaded once; a sandbox adds a small part. */
static void a_wall_has_both_parts_of_the_filter(void **state)
{
    for (size_t i = 0; i < array_length(walls); i++) {
        cleanup_free struct jail_plan *zygote = zygote_plan(walls[i], 1000);
        cleanup_free struct jail_plan *plan = sandbox_plan(walls[i]);
        int list = find(zygote, JAIL_FILTER, 0),
            own = find_stage(plan, JAIL_WORKER, JAIL_FILTER, 0);
        assert_true(zygote->ops[list].a >= 100 * 8); /* instructions of eight bytes */
        assert_int_equal(zygote->ops[list].optional, 0);
        assert_true(plan->ops[own].a >= 10 * 8);
        assert_true(plan->ops[own].a < zygote->ops[list].a);
    }
}

static bool has_landlock(void)
{
    if (landlock_abi() >= LANDLOCK_SCOPE_ABI)
        return true;
    print_message("# this kernel has no Landlock of ABI %d\n", LANDLOCK_SCOPE_ABI);
    return false;
}

/* Files, TCP, abstract sockets and signals; after the last mount, which Landlock would refuse. */
static void a_wall_has_a_landlock_domain(void **state)
{
    if (!has_landlock())
        skip();
    for (size_t i = 0; i < array_length(walls); i++) {
        cleanup_free struct jail_plan *plan = sandbox_plan(walls[i]);
        int begin = find_stage(plan, JAIL_WORKER, JAIL_RULESET, 0);
        int rule = find_stage(plan, JAIL_WORKER, JAIL_RULE, 0);
        int enter = find_stage(plan, JAIL_WORKER, JAIL_CONFINE, 0);
        assert_true(begin >= 0 && begin < rule && rule < enter);
        assert_int_equal(plan->ops[enter].optional, 0);
        assert_int_equal(plan->ops[begin].a & 0x7FFF, 0x7FFF);
        assert_int_equal(plan->ops[begin].b, 3ull << 32 | (walls[i] == ISOLATION_LANDLOCK ? 3 : 0));
    }
}

/* The right to make a file, by path. */
static void only_the_guests_own_directories_are_writable(void **state)
{
    static const char *const own[][2] = { { "/dev/shm", "/tmp" }, { "/dev/shm", "/tmp" },
        { "/work", NULL } };
    if (!has_landlock())
        skip();
    for (size_t i = 0; i < array_length(walls); i++) {
        cleanup_free struct jail_plan *plan = sandbox_plan(walls[i]);
        int found = 0;
        for (int at = -1; (at = find_stage(plan, JAIL_WORKER, JAIL_RULE, at + 1)) >= 0;) {
            if (!(plan->ops[at].a & LANDLOCK_MAKE_REG))
                continue;
            assert_string_equal(text(plan, at, 0), own[i][found]);
            found++;
        }
        assert_int_equal(found, own[i][1] ? 2 : 1);
    }
}

/* Among the host's files: what a root of its own would have shown, and no more. */
static void landlock_shows_what_a_root_would(void **state)
{
    static const char *const more[] = { "/work", "/proc/cpuinfo", "/proc/meminfo",
        "/proc/self/auxv", "/proc/self/cmdline", "/proc/self/comm", "/proc/self/environ",
        "/proc/self/fd", "/proc/self/fdinfo", "/proc/self/io", "/proc/self/limits",
        "/proc/self/maps", "/proc/self/smaps", "/proc/self/smaps_rollup", "/proc/self/stat",
        "/proc/self/statm", "/proc/self/status", "/proc/self/task", "/proc/stat", "/proc/uptime",
        "/proc/loadavg", "/proc/version", "/proc/filesystems" };
    int rules = 0;
    if (!has_landlock())
        skip();
    cleanup_free struct jail_plan *plan = sandbox_plan(ISOLATION_LANDLOCK);
    for (int at = -1; (at = find_stage(plan, JAIL_WORKER, JAIL_RULE, at + 1)) >= 0; rules++) {
        char old[300];
        bool expected = false;
        snprintf(old, sizeof old, "/old%s", text(plan, at, 0));
        for (size_t i = 0; i < array_length(more); i++)
            expected = expected || strcmp(old + 4, more[i]) == 0;
        if (!expected && !is_expected_source(old))
            fail_msg("'%s' is allowed", old + 4);
    }
    assert_true(rules > 20);
}

static void light_shares_what_the_filter_keeps_out_of_reach(void **state)
{
    cleanup_free struct jail_plan *plan = sandbox_plan(ISOLATION_LIGHT);
    assert_int_equal(plan->clone_flags, CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS);
    assert_int_equal(find_stage(plan, JAIL_KEEPER, JAIL_HOSTNAME, 0), -1);
    assert_true(find_stage(plan, JAIL_KEEPER, JAIL_MOUNT, 0) >= 0);
}

static void landlock_has_no_mounts_and_no_namespaces(void **state)
{
    cleanup_free struct jail_plan *zygote = zygote_plan(ISOLATION_LANDLOCK, 1000);
    cleanup_free struct jail_plan *plan = sandbox_plan(ISOLATION_LANDLOCK);
    assert_int_equal(plan->clone_flags, 0);
    assert_int_equal(plan->ops[0].kind, JAIL_DROP_BOUND);
    assert_int_equal(plan->ops[1].kind, JAIL_RULESET); /* the keeper's, for signals alone */
    assert_int_equal(plan->ops[1].a, LANDLOCK_REFER);
    assert_int_equal(plan->ops[1].b, (uint64_t)LANDLOCK_SCOPE_SIGNALS << 32);
    assert_int_equal(plan->ops[3].kind, JAIL_CONFINE);
    assert_int_equal(plan->ops[4].stage, JAIL_WORKER);
    assert_int_equal(zygote->ops[0].kind, JAIL_SCHEDULE);
    assert_int_equal(zygote->ops[1].kind, JAIL_DROP_BOUND);
    assert_int_equal(zygote->ops[2].kind, JAIL_KEYRING);
    assert_int_equal(zygote->ops[3].kind, JAIL_NO_NEW_PRIVS);
    assert_string_equal(text(plan, find_stage(plan, JAIL_WORKER, JAIL_CHDIR, 0), 0), "/work");
}

static void process_has_no_mounts_and_no_namespaces(void **state)
{
    cleanup_free struct jail_plan *zygote = zygote_plan(ISOLATION_PROCESS, 0);
    cleanup_free struct jail_plan *plan = sandbox_plan(ISOLATION_PROCESS);
    assert_int_equal(zygote->count, 2);
    assert_int_equal(zygote->ops[0].kind, JAIL_SCHEDULE);
    assert_int_equal(zygote->ops[1].kind, JAIL_NO_NEW_PRIVS);
    assert_int_equal(plan->clone_flags, 0);
    for (uint32_t i = 0; i < plan->count; i++) {
        static const enum jail_op_kind none[] = { JAIL_UNSHARE, JAIL_MAP_SELF, JAIL_BECOME,
            JAIL_PRIVATE, JAIL_MOUNT, JAIL_BIND, JAIL_READ_ONLY, JAIL_PIVOT, JAIL_DETACH,
            JAIL_HOSTNAME };
        for (size_t j = 0; j < array_length(none); j++)
            assert_int_not_equal(plan->ops[i].kind, none[j]);
    }
    int chdir = find_stage(plan, JAIL_WORKER, JAIL_CHDIR, 0);
    assert_string_equal(text(plan, chdir, 0), "/work");
}

/* What the interpreter needs from the host's /tmp is under the same path in the private one, and
 * nothing else of the host's is. */
static void a_prefix_below_tmp_is_shown_in_the_private_tmp(void **state)
{
    static const char *const below_tmp[] = { "/tmp/venv", "/tmpfoo" };
    static const char *const expected[] = { "keeper bind /tmp on /dev/shm read-only\n",
        "keeper mount tmpfs on /tmp (", "keeper bind /dev/shm/venv/lib on /tmp/venv/lib read-only",
        "keeper mount tmpfs on /dev/shm (" };
    struct jail_host host = { .prefixes = below_tmp, .prefix_count = 2 };
    cleanup_free struct jail_plan *zygote = NULL, *plan = NULL;
    cleanup_buf struct buf out = { 0 };
    assert_ok(jail_compile_zygote(ISOLATION_FULL, &host, &zygote, err));
    assert_ok(
        jail_compile_sandbox(ISOLATION_FULL, zygote, &jail_default_limits, &place, &plan, err));
    jail_print(plan, &out);
    const char *at = buf_text(&out);
    for (size_t i = 0; i < array_length(expected); i++) {
        at = strstr(at, expected[i]);
        if (!at)
            fail_msg("no '%s' in its place in:\n%s", expected[i], buf_text(&out));
    }
    assert_null(strstr(buf_text(&out), "on /tmpfoo"));
    assert_null(strstr(buf_text(&out), "shm/tmpfoo"));
}

/* A process beside a sandbox joins its namespaces instead of making some, hides before it gives up
 * its capabilities, and has the same limits, domain and filter. */
static void what_is_beside_a_sandbox_has_its_walls(void **state)
{
    for (size_t i = 0; i < array_length(walls); i++) {
        cleanup_free struct jail_plan *zygote = zygote_plan(walls[i], 0);
        cleanup_free struct jail_plan *plan = NULL, *own = sandbox_plan(walls[i]);
        assert_ok(
            jail_compile_companion(walls[i], zygote, &jail_default_limits, &place, &plan, err));
        int join = find_stage(plan, JAIL_KEEPER, JAIL_JOIN, 0);
        assert_int_equal(join >= 0, isolation_has_own_root(walls[i]));
        if (join >= 0)
            assert_int_equal(plan->ops[join].a, own->clone_flags);
        assert_int_equal(plan->clone_flags, 0);
        assert_int_equal(find_stage(plan, JAIL_KEEPER, JAIL_MOUNT, 0), -1);
        assert_int_equal(
            find_stage(plan, JAIL_KEEPER, JAIL_TERMINALS, 0), join < 0 ? -1 : join + 1);
        assert_int_equal(find_stage(own, JAIL_KEEPER, JAIL_TERMINALS, 0), -1);
        int hide = find_stage(plan, JAIL_WORKER, JAIL_HIDE, 0);
        assert_true(hide >= 0 && hide < find_stage(plan, JAIL_WORKER, JAIL_DROP_CAPS, 0));
        assert_int_equal(find_stage(own, JAIL_WORKER, JAIL_HIDE, 0), -1);
        int mine = 0, theirs = 0;
        for (uint32_t k = 0; k < plan->count; k++)
            mine += plan->ops[k].stage != JAIL_KEEPER && plan->ops[k].kind != JAIL_HIDE;
        for (uint32_t k = 0; k < own->count; k++)
            theirs += own->ops[k].stage != JAIL_KEEPER;
        assert_int_equal(mine, theirs);
    }
}

/* Without such a prefix nothing is bound in the sandbox: a start has no needless system call. */
static void other_prefixes_cost_the_sandbox_nothing(void **state)
{
    cleanup_free struct jail_plan *plan = sandbox_plan(ISOLATION_FULL);
    assert_int_equal(find_stage(plan, JAIL_KEEPER, JAIL_BIND, 0), -1);
}

/* The value of a limit in a plan; -1: it is not there. */
static int64_t limit_of(const struct jail_plan *plan, int resource)
{
    for (int i = -1; (i = find_stage(plan, JAIL_WORKER, JAIL_LIMIT, i + 1)) >= 0;)
        if (plan->ops[i].a == (uint64_t)resource)
            return (int64_t)plan->ops[i].b;
    return -1;
}

/* RLIMIT_NPROC counts all processes of the user where there is no user namespace. */
static void limits_become_operations(void **state)
{
    static const struct jail_limits limits = { .memory = 11 << 20,
        .processes = 12,
        .open_files = 13,
        .file_size = 14,
        .tmp_size = 15 << 20,
        .cpu_time = 16 };
    static const int64_t processes[] = { [ISOLATION_FULL] = 12,
        [ISOLATION_LIGHT] = 12,
        [ISOLATION_LANDLOCK] = 512,
        [ISOLATION_PROCESS] = -1 };
    for (enum isolation level = ISOLATION_FULL; level <= ISOLATION_PROCESS; level++) {
        cleanup_free struct jail_plan *plan = NULL, *zygote = zygote_plan(level, 0);
        assert_ok(jail_compile_sandbox(level, zygote, &limits, &place, &plan, err));
        assert_int_equal(limit_of(plan, RLIMIT_DATA), 11 << 20);
        assert_int_equal(limit_of(plan, RLIMIT_NOFILE), 13);
        assert_int_equal(limit_of(plan, RLIMIT_FSIZE), 14);
        assert_int_equal(limit_of(plan, RLIMIT_CORE), 1);
        assert_int_equal(limit_of(plan, RLIMIT_MEMLOCK), 8 << 20);
        assert_int_equal(limit_of(plan, RLIMIT_SIGPENDING), 1024);
        assert_int_equal(limit_of(plan, RLIMIT_CPU), 16);
        assert_int_equal(limit_of(plan, RLIMIT_NPROC), processes[level]);
    }
}

static void stages_come_in_their_order(void **state)
{
    cleanup_free struct jail_plan *plan = sandbox_plan(ISOLATION_FULL);
    for (uint32_t i = 1; i < plan->count; i++)
        assert_true(plan->ops[i].stage >= plan->ops[i - 1].stage);
}

/* The block is one piece: its size covers it, its texts end inside it. */
static void a_plan_is_one_block(void **state)
{
    cleanup_free struct jail_plan *plan = zygote_plan(ISOLATION_FULL, 0);
    size_t head = sizeof *plan + plan->count * sizeof plan->ops[0];
    assert_true(plan->size > head);
    assert_int_equal(((char *)plan)[plan->size - 1], '\0');
    for (uint32_t i = 0; i < plan->count; i++)
        for (int t = 0; t < 3; t++)
            assert_true(plan->ops[i].text[t] < plan->size - head);
}

/* ---- words ---- */

static void every_operation_is_printed_by_its_name(void **state)
{
    static const struct {
        enum isolation isolation;
        bool zygote;
        const char *line;
    } expected[] = {
        { ISOLATION_FULL, true, "zygote unshare mount network ipc uts\n" },
        { ISOLATION_FULL, true, "zygote make mounts private\n" },
        { ISOLATION_FULL, true, "zygote mount tmpfs on /new (mode=0755,size=16m" },
        { ISOLATION_FULL, true, "zygote bind /old/usr on /new/usr read-only, if it is there\n" },
        { ISOLATION_FULL, true, "zygote bind /old/dev/null on /new/dev/null\n" },
        { ISOLATION_FULL, true, "zygote directory /new/tmp\n" },
        { ISOLATION_FULL, true, "zygote file /new/etc/hosts\n" },
        { ISOLATION_FULL, true, "zygote symlink /proc/self/fd on /new/dev/fd\n" },
        { ISOLATION_FULL, true, "zygote make read-only /new\n" },
        { ISOLATION_FULL, true, "zygote pivot root /new on .\n" },
        { ISOLATION_FULL, true, "zygote detach .\n" },
        { ISOLATION_FULL, true, "zygote change directory /\n" },
        { ISOLATION_FULL, true, "zygote become uid 65534 gid 65534\n" },
        { ISOLATION_FULL, true, "zygote new session keyring, if it is there\n" },
        { ISOLATION_FULL, true, "zygote filter system calls (" },
        { ISOLATION_PROCESS, true, "zygote no new privileges\n" },
        { ISOLATION_FULL, false, "    clone with new namespaces: user pid mount ipc uts\n" },
        { ISOLATION_FULL, false, "keeper map ids uid 1000 gid 1000\n" },
        { ISOLATION_FULL, false, "keeper mount proc on /proc\n" },
        { ISOLATION_FULL, false, "keeper host name droste\n" },
        { ISOLATION_FULL, false, "worker new session\n" },
        { ISOLATION_FULL, false, "worker limit memory to 4294967296\n" },
        { ISOLATION_FULL, false, "worker limit open files to 512\n" },
        { ISOLATION_FULL, false, "worker limit file size to 1073741824\n" },
        { ISOLATION_FULL, false, "worker limit core to 1\n" },
        { ISOLATION_FULL, false, "worker limit processes to 128\n" },
        { ISOLATION_FULL, false, "worker drop all capabilities\n" },
        { ISOLATION_FULL, false, "worker filter system calls (" },
        { ISOLATION_FULL, false, "guard  drop all capabilities\n" },
    };
    for (size_t i = 0; i < array_length(expected); i++) {
        cleanup_buf struct buf out = { 0 };
        cleanup_free struct jail_plan *plan = expected[i].zygote
                                                  ? zygote_plan(expected[i].isolation, 0)
                                                  : sandbox_plan(expected[i].isolation);
        jail_print(plan, &out);
        if (!strstr(buf_text(&out), expected[i].line))
            fail_msg("no '%s' in:\n%s", expected[i].line, buf_text(&out));
    }
}

/* Where the host tells its sandboxes apart within one session. */
static void a_shared_session_has_groups(void **state)
{
    static const struct jail_mount shared = { .workdir = "/work", .shares_session = true };
    for (enum isolation level = ISOLATION_FULL; level <= ISOLATION_PROCESS; level++) {
        cleanup_buf struct buf out = { 0 };
        cleanup_free struct jail_plan *zygote = zygote_plan(level, 0), *plan = NULL;
        assert_ok(jail_compile_sandbox(level, zygote, &jail_default_limits, &shared, &plan, err));
        jail_print(plan, &out);
        assert_non_null(strstr(buf_text(&out), "worker new process group\n"));
        assert_null(strstr(buf_text(&out), "worker new session\n"));
    }
}

/* A failure is reported by index; the clone itself has none. */
static void a_failure_can_be_named(void **state)
{
    cleanup_free struct jail_plan *plan = sandbox_plan(ISOLATION_PROCESS);
    cleanup_buf struct buf first = { 0 }, past = { 0 };
    jail_print_op(plan, 0, &first);
    jail_print_op(plan, plan->count, &past);
    assert_string_equal(buf_text(&first), "drop the bounding set");
    assert_string_equal(buf_text(&past), "clone");
}

static void isolations_have_names(void **state)
{
    static const char *const names[] = { "auto", "full", "light", "landlock", "process" };
    for (size_t i = 0; i < array_length(names); i++) {
        enum isolation isolation;
        assert_ok(isolation_parse(names[i], &isolation, err));
        assert_string_equal(isolation_name(isolation), names[i]);
    }
    enum isolation none;
    assert_fails(ERROR_ARGUMENT, isolation_parse("ful", &none, err));
    assert_fails(ERROR_ARGUMENT, isolation_parse("", &none, err));
    assert_true(isolation_has_own_root(ISOLATION_LIGHT));
    assert_false(isolation_has_own_root(ISOLATION_LANDLOCK));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_beside_a_sandbox_has_its_walls),
        cmocka_unit_test(root_needs_no_user_namespace_for_the_zygote),
        cmocka_unit_test(anyone_else_starts_with_a_user_namespace),
        cmocka_unit_test(mounts_are_private_before_the_first_mount),
        cmocka_unit_test(proc_comes_before_the_old_root_goes),
        cmocka_unit_test(the_old_root_goes_for_good),
        cmocka_unit_test(root_becomes_nobody_last),
        cmocka_unit_test(a_sandbox_may_be_a_user_of_its_own),
        cmocka_unit_test(only_what_is_needed_is_shown_and_all_of_it_read_only),
        cmocka_unit_test(a_prefix_is_not_shown_whole),
        cmocka_unit_test(everything_is_made_below_the_new_root),
        cmocka_unit_test(a_full_sandbox_has_namespaces_of_its_own),
        cmocka_unit_test(every_private_mount_is_limited),
        cmocka_unit_test(privileges_are_dropped_at_the_end),
        cmocka_unit_test(a_wall_has_both_parts_of_the_filter),
        cmocka_unit_test(a_wall_has_a_landlock_domain),
        cmocka_unit_test(only_the_guests_own_directories_are_writable),
        cmocka_unit_test(landlock_shows_what_a_root_would),
        cmocka_unit_test(light_shares_what_the_filter_keeps_out_of_reach),
        cmocka_unit_test(landlock_has_no_mounts_and_no_namespaces),
        cmocka_unit_test(process_has_no_mounts_and_no_namespaces),
        cmocka_unit_test(a_prefix_below_tmp_is_shown_in_the_private_tmp),
        cmocka_unit_test(other_prefixes_cost_the_sandbox_nothing),
        cmocka_unit_test(limits_become_operations),
        cmocka_unit_test(stages_come_in_their_order),
        cmocka_unit_test(a_plan_is_one_block),
        cmocka_unit_test(every_operation_is_printed_by_its_name),
        cmocka_unit_test(a_shared_session_has_groups),
        cmocka_unit_test(a_failure_can_be_named),
        cmocka_unit_test(isolations_have_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
