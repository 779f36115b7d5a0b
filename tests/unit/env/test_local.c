/* Local sandboxes through the seam: starting, refusing, dying, and leaving nothing behind. */
#include "../test.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "env/environment.h"
#include "jail/landlock.h"
#include "wire/frame.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <seccomp.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

static const enum isolation levels[] = { ISOLATION_FULL, ISOLATION_LIGHT, ISOLATION_PROCESS,
    ISOLATION_LANDLOCK };

/* The last one needs a kernel that has it. */
static size_t level_count(void)
{
    return array_length(levels) - (landlock_abi() < LANDLOCK_SCOPE_ABI);
}

/* A sandbox and what it has said. */
struct box {
    struct sandbox *sandbox;
    struct frame_decoder decoder;
    unsigned ready, results;
    struct buf out;
    bool ended;
    struct sandbox_exit how;
};

static const struct frame_rule rules[] = {
    { FRAME_READY, 4096, 0 },
    { FRAME_RESULT, 1 << 20, 1 << 20 },
};

static int on_frame(void *arg, const struct frame *frame, struct error *err)
{
    struct box *b = arg;
    b->ready += frame->type == FRAME_READY;
    b->results += frame->type == FRAME_RESULT;
    return 0;
}

static bool on_bytes(void *arg, const char *data, size_t len)
{
    struct box *b = arg;
    assert_ok(frame_feed(&b->decoder, data, len, on_frame, b, err));
    return frame_is_partial(&b->decoder);
}

static void on_output(void *arg, int stream, const char *data, size_t len)
{
    buf_append(&((struct box *)arg)->out, data, len);
}

static void on_ended(void *arg, const struct sandbox_exit *how)
{
    struct box *b = arg;
    assert_false(b->ended);
    b->ended = true;
    b->how = *how;
}

static const struct sandbox_events events = { on_bytes, on_output, on_ended };

struct fixture {
    struct loop *loop;
    struct environment *env;
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    assert_ok(loop_open(&f->loop, err));
    assert_ok(environment_open("local", f->loop, &f->env, err));
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    environment_close(f->env);
    loop_close(f->loop);
    free(f);
    return 0;
}

static struct sandbox_spec spec_of(enum isolation isolation)
{
    return (struct sandbox_spec){ .isolation = isolation, .limits = jail_default_limits };
}

static int open_box(
    struct fixture *f, const struct sandbox_spec *spec, struct box *b, struct error *err)
{
    *b = (struct box){ .decoder = { .rules = rules, .rule_count = array_length(rules) } };
    return environment_ops_of(f->env)->open(f->env, spec, &events, b, &b->sandbox, err);
}

static void open_at(struct fixture *f, enum isolation isolation, struct box *b)
{
    struct sandbox_spec spec = spec_of(isolation);
    assert_ok(open_box(f, &spec, b, err));
}

static void close_box(struct box *b)
{
    if (b->sandbox)
        sandbox_ops_of(b->sandbox)->close(b->sandbox);
    frame_decoder_free(&b->decoder);
    buf_free(&b->out);
    *b = (struct box){ 0 };
}

static void send_to(struct box *b, uint8_t type, const char *head, const char *blob, size_t len)
{
    unsigned char header[FRAME_HEADER_SIZE];
    struct frame frame = { .type = type, .id = 1, .head_len = strlen(head), .blob_len = len };
    struct iovec iov[3] = { { header, sizeof header }, { (void *)(uintptr_t)head, frame.head_len },
        { (void *)(uintptr_t)blob, len } };
    frame_write_header(header, &frame);
    assert_ok(sandbox_ops_of(b->sandbox)->send(b->sandbox, iov, 3, -1, err));
}

static void exec_in(struct box *b, const char *code)
{
    send_to(b, FRAME_EXEC, "{}", code, strlen(code));
}

/* Runs the loop until the condition holds; a minute is for a machine under load. */
#define wait_until(f, condition)                                                                   \
    do {                                                                                           \
        uint64_t start_ = clock_ns();                                                              \
        while (!(condition)) {                                                                     \
            if (clock_seconds_since(start_) > 60)                                                  \
                fail_msg("%s did not come true", #condition);                                      \
            loop_run_ready((f)->loop);                                                             \
            usleep(200);                                                                           \
        }                                                                                          \
    } while (0)

/* A sandbox that has carried out a cell. */
static void open_working(struct fixture *f, enum isolation isolation, struct box *b)
{
    open_at(f, isolation, b);
    exec_in(b, "x = 1");
    wait_until(f, b->results == 1);
}

/* ---- processes, as /proc shows them ---- */

struct process {
    pid_t pid, parent;
    char state;
    unsigned long long started;
};

static bool read_process(pid_t pid, struct process *p)
{
    char path[64], text[1024], *end;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "re");
    size_t n = file ? fread(text, 1, sizeof text - 1, file) : 0;
    if (file)
        fclose(file);
    text[n] = '\0';
    end = strrchr(text, ')');
    *p = (struct process){ .pid = pid };
    int parent;
    if (!end || sscanf(end + 1,
                    " %c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d "
                    "%*d %*d %*d %llu",
                    &p->state, &parent, &p->started) != 3)
        return false;
    p->parent = parent;
    return true;
}

enum { PROCESSES_MAX = 4096 };

/* All living processes below `root`, itself not among them. */
static size_t descendants(pid_t root, struct process *out, size_t max)
{
    static struct process all[PROCESSES_MAX];
    size_t count = 0, found = 0;
    DIR *dir = opendir("/proc");
    for (struct dirent *e; (e = readdir(dir));)
        if (e->d_name[0] >= '1' && e->d_name[0] <= '9' && count < PROCESSES_MAX &&
            read_process(atoi(e->d_name), &all[count]))
            count++;
    closedir(dir);
    for (bool more = true; more;) {
        more = false;
        for (size_t i = 0; i < count; i++) {
            bool below = all[i].pid > 0 && all[i].parent == root;
            for (size_t j = 0; j < found && !below; j++)
                below = all[i].pid > 0 && all[i].parent == out[j].pid;
            if (!below || all[i].state == 'Z' || found == max)
                continue;
            out[found++] = all[i];
            all[i].pid = 0;
            more = true;
        }
    }
    return found;
}

static size_t count_descendants(pid_t root)
{
    static struct process list[PROCESSES_MAX];
    return descendants(root, list, PROCESSES_MAX);
}

static bool is_left(const struct process *p)
{
    struct process now;
    return read_process(p->pid, &now) && now.started == p->started && now.state != 'Z';
}

static size_t count_zombies(pid_t parent)
{
    size_t zombies = 0;
    struct process p;
    DIR *dir = opendir("/proc");
    for (struct dirent *e; (e = readdir(dir));)
        if (e->d_name[0] >= '1' && e->d_name[0] <= '9' && read_process(atoi(e->d_name), &p))
            zombies += p.parent == parent && p.state == 'Z';
    closedir(dir);
    return zombies;
}

static size_t count_fds(void)
{
    size_t count = 0;
    DIR *dir = opendir("/proc/self/fd");
    while (readdir(dir))
        count++;
    closedir(dir);
    return count;
}

/* The zygote: the only child of this process. */
static pid_t zygote_pid(void)
{
    struct process list[64];
    size_t n = descendants(getpid(), list, array_length(list));
    for (size_t i = 0; i < n; i++)
        if (list[i].parent == getpid())
            return list[i].pid;
    fail_msg("there is no zygote");
    return -1;
}

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
    assert_non_null(strstr(err.text, "no_such_module_of_droste"));
}

static void environments_of_other_versions_are_refused_by_name(void **state)
{
    struct fixture *f = *state;
    struct environment *env = NULL;
    assert_fails(ERROR_UNSUPPORTED, environment_open("docker", f->loop, &env, err));
    assert_fails(ERROR_ARGUMENT, environment_open("locale", f->loop, &env, err));
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

/* Puts this process into a user namespace that may have none below it. Root keeps all its ids,
 * which only somebody outside can map. */
static bool forbid_user_namespaces(void)
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
    ok = waitpid(mapper, &status, 0) == mapper && status == 0 && ok;
    return ok && write_text("/proc/sys/user/max_user_namespaces", "0");
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
    if (!landlock && rc != -(int)ERROR_UNSUPPORTED)
        return 2; /* never `process` by itself */
    if (landlock &&
        (rc < 0 || sandbox_ops_of(b.sandbox)->isolation(b.sandbox) != ISOLATION_LANDLOCK))
        return 3;
    if (landlock)
        close_box(&b);
    open_working(f, ISOLATION_PROCESS, &b);
    bool right = sandbox_ops_of(b.sandbox)->isolation(b.sandbox) == ISOLATION_PROCESS;
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
        _exit(forbid_user_namespaces() ? try_without_namespaces() : 77);
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

/* The child's part: 0 if a sandbox works, or if it was in a cgroup and says that it needs clone3. */
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
    sandbox_ops_of(b.sandbox)->usage(b.sandbox, &usage);
    bool cgroup = usage.means[LIMIT_MEMORY] == LIMIT_BY_CGROUP;
    bool refused = b.ended && strstr(b.how.error.text, "clone3 is forbidden here");
    close_box(&b);
    teardown((void **)&f);
    return refused == cgroup ? 0 : 2;
}

/* Some containers' filters answer it with ENOSYS. A limit is not dropped silently for that. */
static void without_clone3_sandboxes_start_where_there_is_no_cgroup(void **state)
{
    for (size_t i = 0; i < array_length(levels); i++) {
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
    for (size_t i = 0; i < array_length(levels); i++) {
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
        sandbox_ops_of(b.sandbox)->usage(b.sandbox, &usage);
        assert_int_equal(usage.means[LIMIT_CPUS], LIMIT_BY_CGROUP);
        close_box(&b);
    }
}

/* Three descriptors leave no room for the channel: the keeper or the worker cannot carry on, after
 * the zygote has said already that the sandbox is there. */
static void why_a_sandbox_could_not_start_is_told(void **state)
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

/* ---- death ---- */

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

static size_t count_entries(const char *path)
{
    size_t count = 0;
    DIR *dir = opendir(path);
    for (struct dirent *e; (e = readdir(dir));)
        count += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
    closedir(dir);
    return count;
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
        for (int tries = 0; tries < 200 && left > 0; tries++) {
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
        assert_false(b.how.known);
        open_working(f, levels[i], &next);
        close_box(&next);
        close_box(&b);
        environment_close(f->env);
        assert_ok(environment_open("local", f->loop, &f->env, err));
        assert_int_equal(count_zombies(getpid()), 0);
    }
}

/* The loop has not run since: nobody has told the environment that its zygote is dead. */
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
    assert_in_range(count_zombies(getpid()), 0, 1);
}

static void kill_is_told_and_leaves_no_process(void **state)
{
    struct fixture *f = *state;
    for (size_t i = 0; i < level_count(); i++) {
        struct box b;
        open_at(f, levels[i], &b);
        exec_in(&b, busy_code);
        wait_until(f, b.out.len > 0);
        pid_t zygote = zygote_pid();
        assert_true(count_descendants(zygote) >= 3);
        sandbox_ops_of(b.sandbox)->kill(b.sandbox);
        wait_until(f, b.ended);
        assert_false(b.how.known);
        wait_until(f, count_descendants(zygote) == 0);
        close_box(&b);
        environment_close(f->env);
        assert_ok(environment_open("local", f->loop, &f->env, err));
    }
}

static void how_a_worker_ended_is_told(void **state)
{
    struct fixture *f = *state;
    for (size_t i = 0; i < level_count(); i++) {
        struct box b;
        open_at(f, levels[i], &b);
        exec_in(&b, "sum(range(10**6)); import os; os._exit(9)");
        wait_until(f, b.ended);
        assert_true(b.how.known);
        assert_true(WIFEXITED(b.how.wait_status));
        assert_int_equal(WEXITSTATUS(b.how.wait_status), 9);
        struct sandbox_usage usage;
        sandbox_ops_of(b.sandbox)->usage(b.sandbox, &usage);
        assert_true(usage.memory_peak > 1 << 20);
        assert_true(usage.cpu_seconds > 0);
        close_box(&b);
    }
}

/* The keeper and the guest are the same user there, and only Landlock is between them (ABI 6). It may be
 * given up before the host knows of it. */
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
        wait_until(f, count_descendants(zygote) == 0);
    }
}

/* The cell is in the channel already when the sandbox is given up; nobody would end it. */
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
        wait_until(f, count_descendants(zygote) == 0);
        /* and once more, so that the last of them surely is not still on its way */
        open_working(f, levels[i], &warm);
        close_box(&warm);
        wait_until(f, count_descendants(zygote) == 0);
        environment_close(f->env);
        assert_ok(environment_open("local", f->loop, &f->env, err));
    }
}

/* ---- leaving nothing behind ---- */

static size_t resident_bytes(void)
{
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    if (!file || fscanf(file, "%*u %lu", &pages) != 1)
        pages = 0;
    if (file)
        fclose(file);
    return pages * 4096;
}

static void three_hundred_sandboxes_leave_nothing(void **state)
{
    struct fixture *f = *state;
    for (size_t i = 0; i < level_count(); i++) {
        struct box b;
        for (int n = 0; n < 20; n++) {
            open_working(f, levels[i], &b);
            close_box(&b);
        }
        loop_run_ready(f->loop);
        size_t fds = count_fds(), resident = resident_bytes();
        for (int n = 0; n < 300; n++) {
            open_working(f, levels[i], &b);
            close_box(&b);
        }
        loop_run_ready(f->loop);
        assert_int_equal(count_fds(), fds);
#ifndef __SANITIZE_ADDRESS__ /* which keeps freed memory; it looks for leaks itself */
        assert_in_range(resident_bytes(), 0, resident + (4u << 20));
#else
        (void)resident;
#endif
        assert_int_equal(count_zombies(getpid()), 0);
        wait_until(f, count_descendants(zygote_pid()) == 0);
        environment_close(f->env);
        assert_ok(environment_open("local", f->loop, &f->env, err));
    }
}

/* Asked for in one go, without the loop running in between: neither side may wait for the other. */
static void many_sandboxes_can_be_asked_for_at_once(void **state)
{
    enum { MANY = 400 };
    struct fixture *f = *state;
    static struct box boxes[MANY];
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    rlim_t old = limit.rlim_cur;
    limit.rlim_cur = limit.rlim_max < 8192 ? limit.rlim_max : 8192;
    if (limit.rlim_cur < 10 * MANY) {
        print_message("skipped: needs %d descriptors\n", 10 * MANY);
        skip();
    }
    setrlimit(RLIMIT_NOFILE, &limit);
    for (int i = 0; i < MANY; i++) {
        open_at(f, ISOLATION_FULL, &boxes[i]);
        exec_in(&boxes[i], "x = 1");
    }
    for (int i = 0; i < MANY; i++) {
        wait_until(f, boxes[i].results == 1 || boxes[i].ended);
        assert_false(boxes[i].ended);
    }
    for (int i = 0; i < MANY; i++)
        close_box(&boxes[i]);
    limit.rlim_cur = old;
    setrlimit(RLIMIT_NOFILE, &limit);
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
    open_at(f, ISOLATION_FULL, &b);
    exec_in(&b, "import time; time.sleep(0.1)"); /* the zygote has answered too */
    wait_until(f, b.results == 1);
    exec_in(&b, "import os; os.write(1, b'up')\nwhile True: pass");
    wait_until(f, b.out.len > 0);
    size_t fds = count_fds();
    for (size_t sent = 0; sent < 20u << 20; sent += sizeof piece)
        send_to(&b, FRAME_SET, "{\"kind\":\"bytes\",\"names\":[\"x\"]}", piece, sizeof piece);
    for (int i = 0; i < 100; i++)
        loop_run_ready(f->loop);
    assert_int_equal(b.results, 1);
    assert_int_equal(count_fds(), fds);
    close_box(&b); /* a leak is ASan's to find */
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
        cmocka_unit_test(without_clone3_sandboxes_start_where_there_is_no_cgroup),
        T(cpus_are_refused_by_name_without_a_cgroup),
        T(why_a_sandbox_could_not_start_is_told),
        T(few_descriptors_are_enough),
        cmocka_unit_test(a_killed_host_leaves_no_process_and_no_directory),
        T(a_killed_zygote_ends_its_sandboxes_and_is_replaced),
        T(an_open_right_after_the_zygotes_death_works),
        T(dead_zygotes_do_not_pile_up),
        T(kill_is_told_and_leaves_no_process),
        T(how_a_worker_ended_is_told),
        T(a_guest_that_stops_its_keeper_is_killed_all_the_same),
        T(a_sandbox_closed_before_it_started_does_not_run_on),
        T(three_hundred_sandboxes_leave_nothing),
        T(many_sandboxes_can_be_asked_for_at_once),
        T(the_working_directory_of_process_is_removed),
        T(what_a_deaf_guest_does_not_take_is_freed),
        T(what_a_slow_guest_takes_later_arrives_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
