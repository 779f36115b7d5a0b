/* Local sandboxes through the interface of environments: starting, refusing, and cleaning up. */
#include "fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <seccomp.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/os/file.h"
#include "env/common/send_queue.h"

/* ---- what is refused ---- */

static void programs_that_are_no_python_are_refused(void **state)
{
    static const char *const programs[] = { "/bin/ls", "/bin/cat", "/bin/true", "/bin/sleep" };
    struct fixture *f = *state;
    for (size_t i = 0; i < array_length(programs); i++) {
        struct box b;
        struct error err = { 0 };
        struct sandbox_spec spec = spec_of(ISOLATION_FULL);
        spec.python = programs[i];
        int rc = open_box(f, &spec, &b, &err);
        if (rc != -(int)ERROR_ENVIRONMENT || !strstr(err.text, programs[i]) ||
            !strstr(err.text, "--python PATH"))
            fail_msg("%s gave %d: %s", programs[i], rc, err.text);
        assert_null(b.sandbox);
    }
    assert_int_equal(count_descendants(getpid()), 0);
    assert_int_equal(count_zombies(getpid()), 0);
}

static void a_module_that_is_not_there_is_named(void **state)
{
    struct fixture *f = *state;
    static const char *const preload[] = { "no_such_module_of_droste" };
    struct box b;
    struct error err = { 0 };
    struct sandbox_spec spec = spec_of(ISOLATION_PROCESS);
    spec.preload = preload;
    spec.preload_count = 1;
    assert_int_equal(open_box(f, &spec, &b, &err), -(int)ERROR_ENVIRONMENT);
    assert_non_null(strstr(err.text, "preload 'no_such_module_of_droste'"));
    assert_non_null(strstr(err.text, "python"));
    assert_non_null(strstr(err.text, "ModuleNotFoundError"));
    assert_non_null(strstr(err.text, "--python PATH"));
}

static void environments_of_other_versions_are_refused_by_name(void **state)
{
    struct fixture *f = *state;
    struct environment *env = NULL;
    assert_fails(ERROR_ARGUMENT, environment_open("locale", f->loop, NULL, &env, err));
    assert_null(env);
}

static void read_paths_must_be_absolute_and_fit(void **state)
{
    struct fixture *f = *state;
    static const char *many[4096];
    const char *relative[] = { "data" };
    struct box b;
    struct sandbox_spec spec = spec_of(ISOLATION_FULL);
    spec.read_paths = relative;
    spec.read_path_count = 1;
    assert_fails(ERROR_ARGUMENT, open_box(f, &spec, &b, err));
    for (size_t i = 0; i < array_length(many); i++)
        many[i] = "/nonexistent/a/path/of/some/length";
    spec.read_paths = many;
    spec.read_path_count = array_length(many);
    assert_fails(ERROR_ARGUMENT, open_box(f, &spec, &b, err));
}

static bool write_text(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    bool ok = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    if (fd >= 0)
        close(fd);
    return ok;
}

static bool forbid_user_namespaces(void)
{
    return write_text("/proc/sys/user/max_user_namespaces", "0");
}

/* Puts this process into a user namespace. Root keeps all its ids, which only somebody outside can
 * map. */
static bool enter_user_namespace(void)
{
    uid_t uid = geteuid();
    int go[2], status;
    char path[64], map[64], byte;
    if (pipe(go) < 0)
        return false;
    pid_t host = getpid(), mapper = fork();
    if (mapper == 0) {
        bool ok = read(go[0], &byte, 1) == 1;
        snprintf(map, sizeof map, uid == 0 ? "0 0 65536" : "%u %u 1", uid, uid);
        snprintf(path, sizeof path, "/proc/%d/setgroups", (int)host);
        ok = ok && (uid == 0 || write_text(path, "deny"));
        snprintf(path, sizeof path, "/proc/%d/uid_map", (int)host);
        ok = ok && write_text(path, map);
        snprintf(path, sizeof path, "/proc/%d/gid_map", (int)host);
        _exit(ok && write_text(path, map) ? 0 : 1);
    }
    bool ok = unshare(CLONE_NEWUSER) == 0 && write(go[1], "x", 1) == 1;
    return waitpid(mapper, &status, 0) == mapper && status == 0 && ok;
}

/* In a child: what is to be had where user namespaces are forbidden. */
static int try_without_namespaces(void)
{
    struct fixture *f;
    struct box b;
    struct error err = { 0 };
    struct sandbox_spec spec = spec_of(ISOLATION_FULL);
    bool landlock = landlock_abi() >= LANDLOCK_SCOPE_ABI;
    setup((void **)&f);
    for (; spec.isolation <= ISOLATION_LIGHT; spec.isolation++) {
        int rc = open_box(f, &spec, &b, &err);
        if (rc != -(int)ERROR_UNSUPPORTED || !strstr(err.text, isolation_name(spec.isolation)) ||
            !strstr(err.text, strerror(ENOSPC)))
            return 1;
    }
    spec.isolation = ISOLATION_AUTO;
    int rc = open_box(f, &spec, &b, &err);
    if (!landlock && rc != -(int)ERROR_UNSUPPORTED) {
        print_message("# auto gave %d: %s\n", rc, err.text);
        return 2; /* never `process` by itself */
    }
    if (landlock && (rc < 0 || b.ops->isolation(b.sandbox) != ISOLATION_LANDLOCK))
        return 3;
    if (landlock)
        close_box(&b);
    open_working(f, ISOLATION_PROCESS, &b);
    bool right = b.ops->isolation(b.sandbox) == ISOLATION_PROCESS;
    close_box(&b);
    teardown((void **)&f);
    return right ? 0 : 4;
}

static void without_user_namespaces_auto_takes_landlock_and_the_others_say_why_not(void **state)
{
    int status;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0)
        _exit(enter_user_namespace() && forbid_user_namespaces() ? try_without_namespaces() : 77);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
        print_message("skipped: user namespaces cannot be limited here\n");
        skip();
    }
    assert_int_equal(status, 0);
}

/* In a child: a zygote that worked cannot clone any more. */
static int try_clones_that_fail(void)
{
    struct fixture *f;
    struct box b;
    struct error err = { 0 };
    const struct sandbox_spec spec = spec_of(ISOLATION_FULL);
    int explained = 0, tries = 50;
    setup((void **)&f);
    if (open_box(f, &spec, &b, &err) < 0 || !forbid_user_namespaces())
        return 77;
    close_box(&b);
    for (int i = 0; i < tries; i++) {
        if (open_box(f, &spec, &b, &err) < 0)
            return 1;
        wait_until(f, b.ended);
        explained += b.how.error.code == ERROR_ENVIRONMENT &&
                     strstr(b.how.error.text, strerror(ENOSPC)) != NULL;
        close_box(&b);
    }
    teardown((void **)&f);
    print_message("# %d of %d were told why\n", explained, tries);
    return explained == tries ? 0 : 2;
}

/* The end of its status pipe may be seen before the zygote's answer, and says nothing. */
static void the_reason_of_a_failed_clone_is_reported_each_time(void **state)
{
    int status;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0)
        _exit(enter_user_namespace() ? try_clones_that_fail() : 77);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
        print_message("skipped: user namespaces cannot be limited here\n");
        skip();
    }
    assert_int_equal(status, 0);
}

static bool forbid_clone3(void)
{
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
    bool done = filter &&
                seccomp_rule_add(filter, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0) == 0 &&
                seccomp_load(filter) == 0;
    seccomp_release(filter);
    return done;
}

/* The child's part: 0 if a sandbox works, or if it was in a cgroup and says that it needs
 * clone3. */
static int start_without_clone3(enum isolation isolation)
{
    struct fixture *f;
    struct box b;
    struct sandbox_usage usage;
    if (!forbid_clone3())
        return 1;
    setup((void **)&f);
    open_at(f, isolation, &b);
    exec_in(&b, "x = 1");
    wait_until(f, b.results == 1 || b.ended);
    b.ops->usage(b.sandbox, &usage);
    bool cgroup = usage.means[LIMIT_MEMORY] == LIMIT_BY_CGROUP;
    bool refused = b.ended && strstr(b.how.error.text, "clone3 is forbidden here");
    if (refused != cgroup)
        print_message("# level %d, %s, %s: %s\n", isolation,
            cgroup ? "in a cgroup" : "without its own cgroup", b.ended ? "ended" : "runs",
            b.ended ? b.how.error.text : "");
    close_box(&b);
    teardown((void **)&f);
    return refused == cgroup ? 0 : 2;
}

/* Some containers' filters answer it with ENOSYS. A limit is not dropped silently for that. */
static void without_clone3_sandboxes_start_where_there_is_no_cgroup(void **state)
{
    for (size_t i = 0; i < level_count(); i++) {
        int status;
        fflush(NULL);
        pid_t pid = fork();
        if (pid == 0)
            _exit(start_without_clone3(levels[i]));
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
    }
}

static void cpus_are_refused_by_name_without_a_cgroup(void **state)
{
    struct fixture *f = *state;
    for (size_t i = 0; i < level_count(); i++) {
        struct box b;
        struct error err = { 0 };
        struct sandbox_usage usage;
        struct sandbox_spec spec = spec_of(levels[i]);
        spec.limits.cpus = 0.5;
        if (open_box(f, &spec, &b, &err) < 0) {
            assert_int_equal(err.code, ERROR_UNSUPPORTED);
            assert_non_null(strstr(err.text, "--cpus needs a cgroup: "));
            continue;
        }
        b.ops->usage(b.sandbox, &usage);
        assert_int_equal(usage.means[LIMIT_CPUS], LIMIT_BY_CGROUP);
        close_box(&b);
    }
}

/* Three descriptors leave no room for the channel: the keeper or the worker cannot carry on, after
 * the zygote has said already that the sandbox is there. */
static void the_reason_of_a_failed_start_is_reported(void **state)
{
    struct fixture *f = *state;
    for (size_t i = 0; i < level_count(); i++) {
        struct box b;
        struct sandbox_spec spec = spec_of(levels[i]);
        spec.limits.open_files = 3;
        assert_ok(open_box(f, &spec, &b, err));
        wait_until(f, b.ended);
        assert_int_equal(b.how.error.code, ERROR_ENVIRONMENT);
        assert_non_null(strstr(b.how.error.text, isolation_name(levels[i])));
        assert_non_null(strstr(b.how.error.text, strerror(EINVAL)));
        close_box(&b);
    }
}

static void few_descriptors_are_enough(void **state)
{
    struct fixture *f = *state;
    for (size_t i = 0; i < level_count(); i++) {
        struct box b;
        struct sandbox_spec spec = spec_of(levels[i]);
        spec.limits.open_files = 16;
        assert_ok(open_box(f, &spec, &b, err));
        exec_in(&b, "open('/dev/null').close()");
        wait_until(f, b.results == 1 || b.ended);
        assert_false(b.ended);
        close_box(&b);
    }
}
/* ---- leaving nothing behind ---- */

static void a_hundred_sandboxes_leave_nothing(void **state)
{
    struct fixture *f = *state;
    for (size_t i = 0; i < level_count(); i++) {
        struct box b;
        for (int n = 0; n < 20; n++) {
            open_settled(f, levels[i], &b);
            close_box(&b);
        }
        loop_turn(f->loop, 0);
        size_t fds = count_fds(), resident = resident_bytes();
        for (int n = 0; n < 100; n++) {
            open_settled(f, levels[i], &b);
            close_box(&b);
        }
        loop_turn(f->loop, 0);
        assert_int_equal(count_fds(), fds);
#ifndef __SANITIZE_ADDRESS__ /* which keeps freed memory; it looks for leaks itself */
        assert_in_range(resident_bytes(), 0, resident + (1u << 20));
#else
        (void)resident;
#endif
        assert_int_equal(count_zombies(getpid()), 0);
        wait_until(f, count_sandboxed(zygote_pid()) == 0);
        environment_close(f->env);
        assert_ok(environment_open("local", f->loop, NULL, &f->env, err));
    }
}

/* The cgroup of the controller `cpu`, of version 1. */
static void read_cpu_group(pid_t pid, char *out, size_t size)
{
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%d/cgroup", (int)pid);
    assert_true(file_peek(AT_FDCWD, path, text, sizeof text));
    const char *line = strstr(text, ":cpu:");
    line = line ? line : strstr(text, ":cpu,");
    assert_non_null(line);
    snprintf(out, size, "%.*s", (int)strcspn(line, "\n"), line);
}

static void a_zygote_is_in_a_cgroup_of_version_1_and_its_host_is_not(void **state)
{
    struct fixture *f = *state;
    struct box b;
    cleanup_buf struct buf text = { 0 };
    char before[256], host[256], zygote[256];
    open_working(f, ISOLATION_FULL, &b);
    b.ops->describe(f->env, b.sandbox, &text);
    close_box(&b);
    if (!strstr(buf_text(&text), "one cgroup of version 1"))
        skip();
    environment_close(f->env);
    read_cpu_group(getpid(), before, sizeof before);
    assert_ok(environment_open("local", f->loop, NULL, &f->env, err));
    open_working(f, ISOLATION_FULL, &b);
    read_cpu_group(getpid(), host, sizeof host);
    read_cpu_group(zygote_pid(), zygote, sizeof zygote);
    close_box(&b);
    assert_string_equal(host, before);
    assert_int_equal(strncmp(zygote, host, strlen(host)), 0);
    assert_non_null(strstr(zygote + strlen(host), "droste-"));
}

/* With a pid namespace: its channel, its two outputs, and its cgroup if it has one. The keeper can
 * be signalled nevertheless. */
static void a_sandbox_costs_three_descriptors(void **state)
{
    struct fixture *f = *state;
    struct box b[2];
    struct sandbox_usage usage;
    open_settled(f, ISOLATION_FULL, &b[0]);
    b[0].ops->usage(b[0].sandbox, &usage);
    size_t own = usage.means[LIMIT_MEMORY] == LIMIT_BY_CGROUP ? 4 : 3;
    size_t before = count_entries("/proc/self/fd");
    open_settled(f, ISOLATION_FULL, &b[1]);
    assert_int_equal(count_entries("/proc/self/fd"), before + own);
    exec_in(&b[1], "import time; time.sleep(1000)");
    b[1].ops->kill(b[1].sandbox);
    wait_until(f, b[1].ended);
    close_box(&b[1]);
    assert_int_equal(count_entries("/proc/self/fd"), before);
    close_box(&b[0]);
}

/* All keepers share a socket: each end reaches its own sandbox, with its own status. */
static void each_end_is_reported_to_its_sandbox(void **state)
{
    enum { COUNT = 6 };
    struct fixture *f = *state;
    struct box b[COUNT];
    char code[64];
    for (int i = 0; i < COUNT; i++)
        open_working(f, ISOLATION_FULL, &b[i]);
    for (int i = COUNT - 1; i > 0; i--) {
        snprintf(code, sizeof code, "import os; os._exit(%d)", 10 + i);
        exec_in(&b[i], code);
    }
    for (int i = 1; i < COUNT; i++) {
        wait_until(f, b[i].ended);
        assert_true(b[i].how.has_status);
        assert_int_equal(WEXITSTATUS(b[i].how.wait_status), 10 + i);
        close_box(&b[i]);
    }
    exec_in(&b[0], "x = 1");
    wait_until(f, b[0].results == 2 || b[0].ended);
    assert_false(b[0].ended);
    close_box(&b[0]);
}

/* A guest that closes its standard error has not ended. */
static void closing_standard_error_is_no_end(void **state)
{
    struct fixture *f = *state;
    struct box b;
    open_working(f, ISOLATION_FULL, &b);
    exec_in(&b, "import os; os.close(1); os.close(2)");
    wait_until(f, b.results == 2 || b.ended);
    exec_in(&b, "x = 1");
    wait_until(f, b.results == 3 || b.ended);
    assert_false(b.ended);
    close_box(&b);
}

/* The path of the one thing that is in a directory: that of the zygote. */
static void only_entry(const char *path, char *out, size_t size)
{
    DIR *dir = opendir(path);
    assert_int_equal(count_entries(path), 1);
    for (struct dirent *e; (e = readdir(dir));)
        if (e->d_name[0] != '.')
            snprintf(out, size, "%s/%s", path, e->d_name);
    closedir(dir);
}

/* Even while the guest's processes are still filling it. */
static void the_working_directory_of_process_is_removed(void **state)
{
    struct fixture *f = *state;
    char dir[] = "/tmp/droste-test-XXXXXX", own[300];
    assert_non_null(mkdtemp(dir));
    setenv("TMPDIR", dir, 1);
    for (int i = 0; i < 20; i++) {
        struct box b;
        open_at(f, ISOLATION_PROCESS, &b);
        exec_in(&b,
            "import os\nos.makedirs('a/b')\nos.symlink('/etc', 'a/link')\nos.fork()\n"
            "n = 0\nos.write(1, b'up')\n"
            "while True:\n    n += 1\n    open('a/b/%d-%d' % (os.getpid(), n), 'w').close()");
        wait_until(f, b.out.len >= 4);
        only_entry(dir, own, sizeof own);
        assert_int_equal(count_entries(own), 1);
        close_box(&b);
        assert_int_equal(count_entries(own), 0);
    }
    environment_close(f->env);
    f->env = NULL;
    assert_int_equal(count_entries(dir), 0);
    unsetenv("TMPDIR");
    assert_int_equal(rmdir(dir), 0);
    assert_int_equal(access("/etc/passwd", F_OK), 0);
}

static void what_a_deaf_guest_does_not_take_is_freed(void **state)
{
    struct fixture *f = *state;
    static char piece[60000];
    struct box b;
    open_settled(f, ISOLATION_FULL, &b);
    exec_in(&b, "import os; os.write(1, b'up')\nwhile True: pass");
    wait_until(f, b.out.len > 0);
    size_t fds = count_fds();
    for (size_t sent = 0; sent < 20u << 20; sent += sizeof piece)
        send_to(&b, FRAME_SET, "{\"kind\":\"bytes\",\"names\":[\"x\"]}", piece, sizeof piece);
    for (int i = 0; i < 100; i++)
        loop_turn(f->loop, 0);
    assert_int_equal(b.results, 1);
    assert_int_equal(count_fds(), fds);
    close_box(&b); /* a leak is ASan's to find */
}

/* Takes what has come; adds the descriptors that came with it. */
static size_t take(int socket, char *to, size_t room, unsigned *descriptors)
{
    char ancillary[CMSG_SPACE(sizeof(int))];
    struct iovec iov = { to, room };
    struct msghdr m = { .msg_iov = &iov,
        .msg_iovlen = 1,
        .msg_control = ancillary,
        .msg_controllen = sizeof ancillary };
    ssize_t n = recvmsg(socket, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    struct cmsghdr *c = n > 0 ? CMSG_FIRSTHDR(&m) : NULL;
    if (c) {
        int fd;
        memcpy(&fd, CMSG_DATA(c), sizeof fd);
        close(fd);
        ++*descriptors;
    }
    return n > 0 ? (size_t)n : 0;
}

/* What a socket takes only in pieces, of several parts, in several sendings and with descriptors,
 * arrives as it was, and each descriptor once; nothing is left of what is dropped. */
static void what_waits_to_be_sent_arrives_in_order(void **state)
{
    enum { PART = 150001, SENDINGS = 3 };
    size_t fds = count_fds(), got = 0, wanted = 2 * PART * SENDINGS;
    unsigned descriptors = 0;
    struct send_queue box = { 0 };
    char *parts = malloc(2 * PART), *all = malloc(wanted + 1);
    int ends[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    for (size_t i = 0; i < 2 * PART; i++)
        parts[i] = (char)(i * 31 >> 3);
    struct iovec iov[] = { { parts, PART }, { parts + PART, PART } };
    for (int round = 0; round < 2; round++) { /* and again, once it was empty */
        got = descriptors = 0;
        for (int i = 0; i < SENDINGS; i++)
            assert_ok(send_queue_send(
                &box, ends[0], iov, 2, i != 1 ? open("/dev/null", O_RDONLY | O_CLOEXEC) : -1, err));
        assert_true(send_queue_waits(&box));
        while (got < wanted) {
            size_t n = take(ends[1], all + got, wanted + 1 - got, &descriptors);
            got += n;
            send_queue_flush(&box, ends[0]);
            assert_true(n > 0);
        }
        assert_false(send_queue_waits(&box));
        for (int i = 0; i < SENDINGS; i++)
            assert_memory_equal(all + (size_t)i * 2 * PART, parts, 2 * PART);
        assert_int_equal(descriptors, SENDINGS - 1);
    }
    for (int i = 0; i < 2 * SENDINGS; i++)
        assert_ok(
            send_queue_send(&box, ends[0], iov, 2, open("/dev/null", O_RDONLY | O_CLOEXEC), err));
    send_queue_drop(&box);
    close(ends[0]);
    close(ends[1]);
    assert_int_equal(count_fds(), fds);
    free(parts);
    free(all);
}

/* The same to one that listens: all of it arrives. */
static void what_a_slow_guest_takes_later_arrives_whole(void **state)
{
    struct fixture *f = *state;
    static char piece[60000];
    struct box b;
    unsigned count = 0;
    open_at(f, ISOLATION_FULL, &b);
    exec_in(&b, "import time; time.sleep(0.1)");
    for (size_t sent = 0; sent < 20u << 20; sent += sizeof piece, count++)
        send_to(&b, FRAME_SET, "{\"kind\":\"bytes\",\"names\":[\"x\"]}", piece, sizeof piece);
    wait_until(f, b.results == count + 1);
    assert_false(b.ended);
    close_box(&b);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(programs_that_are_no_python_are_refused),
        T(a_module_that_is_not_there_is_named),
        T(environments_of_other_versions_are_refused_by_name),
        T(read_paths_must_be_absolute_and_fit),
        cmocka_unit_test(without_user_namespaces_auto_takes_landlock_and_the_others_say_why_not),
        cmocka_unit_test(the_reason_of_a_failed_clone_is_reported_each_time),
        cmocka_unit_test(without_clone3_sandboxes_start_where_there_is_no_cgroup),
        T(cpus_are_refused_by_name_without_a_cgroup),
        T(the_reason_of_a_failed_start_is_reported),
        T(few_descriptors_are_enough),
        T(a_hundred_sandboxes_leave_nothing),
        T(a_zygote_is_in_a_cgroup_of_version_1_and_its_host_is_not),
        T(a_sandbox_costs_three_descriptors),
        T(each_end_is_reported_to_its_sandbox),
        T(closing_standard_error_is_no_end),
        T(the_working_directory_of_process_is_removed),
        T(what_a_deaf_guest_does_not_take_is_freed),
        T(what_a_slow_guest_takes_later_arrives_whole),
        cmocka_unit_test(what_waits_to_be_sent_arrives_in_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
