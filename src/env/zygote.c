/* env/zygote.c: starts zygotes and speaks with them.
 *
 * Start and setup are answered at once or not at all, so they block; clones are asked for and
 * answered through the loop. One thing is told about each clone: its pidfd, or why not.
 *
 * The zygote's end of the control socket blocks when it is full, this one does not take more. Only so
 * many requests are under way as they and their answers surely fit; the others wait here.
 */
#include "env/zygote.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "base/json.h"
#include "env/embedded.h"
#include "env/interpreter.h"

enum {
    START_TIMEOUT_MS = 30000,
    LAST_WORDS_MS = 1000, /* for a program that has closed the control socket to end */
    UNDER_WAY_MAX = 32,   /* the default buffers hold about as many plans */
};

/* A clone that was asked for and is not answered. In the order in which they were asked for. */
struct pending {
    struct pending *next;
    uint32_t id;
    zygote_fn *fn;
    void *arg;
    const struct jail_plan *plan;
    int fds[ZYGOTE_CLONE_FDS]; /* -1 once it is under way */
    int cgroup;                /* the receiver's, or -1 */
    bool sent;
};

struct zygote {
    struct loop *loop;
    pid_t pid;
    int control;
    int errors; /* its standard error while it starts, -1 after */
    struct watch *watch;
    enum isolation isolation, asked; /* `asked` may be ISOLATION_AUTO */
    char *wanted;                    /* spec->python, or NULL */
    char *executable;
    char *words; /* preload and read paths, as one text, to compare specs by */
    char python[64];
    struct jail_plan *plan;
    struct nest *nest; /* where its sandboxes have no root of their own */
    uint32_t last_id;
    struct pending *first, **last;
    unsigned under_way; /* sent and not answered, forgotten ones too */
    bool dead, telling;
};

/* Stand-in for the interpreter's boot: runs the embedded source as a module of its own. */
static const char loader[] =
    "import os,sys\n"
    "with os.fdopen(4,'rb') as f: s=f.read()\n"
    "m=type(os)('droste_guest');m.__file__='<droste>';sys.modules['droste_guest']=m\n"
    "exec(compile(s,'<droste>','exec'),m.__dict__)\n"
    "m.boot(3,5,6,sys.argv[1:])\n";

/* Nothing of the caller's environment: keys live there. One thread in numeric libraries, because a
 * zygote must have one thread. */
static const char *const guest_environment[] = { "PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/tmp",
    "TMPDIR=/tmp", "USER=guest", "LOGNAME=guest", "LANG=C.UTF-8", "LC_ALL=C.UTF-8", "TERM=dumb",
    "OPENBLAS_NUM_THREADS=1", "OMP_NUM_THREADS=1", "MKL_NUM_THREADS=1", NULL };

static void add_words(struct buf *b, const char *const *words, size_t count)
{
    for (size_t i = 0; i < count; i++)
        buf_printf(b, "%s\n", words[i]);
    buf_putc(b, '\n');
}

static char *words_of(const struct sandbox_spec *spec)
{
    struct buf b = { 0 };
    add_words(&b, spec->preload, spec->preload_count);
    add_words(&b, spec->read_paths, spec->read_path_count);
    return buf_steal(&b);
}

static bool same(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

/* Asks the kernel, because the loop may not have run since. */
static bool is_dead(const struct zygote *z)
{
    struct pollfd p = { .fd = z->control };
    return z->dead || (poll(&p, 1, 0) > 0 && (p.revents & (POLLHUP | POLLERR)));
}

bool zygote_is_gone(const struct zygote *z)
{
    return z->dead && !z->telling;
}

bool zygote_serves(const struct zygote *z, const struct sandbox_spec *spec)
{
    cleanup_free char *words = words_of(spec);
    bool isolation = spec->isolation == z->isolation || spec->isolation == z->asked;
    return !is_dead(z) && isolation && same(spec->python, z->wanted) && same(words, z->words);
}

enum isolation zygote_isolation(const struct zygote *z)
{
    return z->isolation;
}

const char *zygote_python(const struct zygote *z)
{
    return z->python;
}

struct nest *zygote_nest(const struct zygote *z)
{
    return z->nest;
}

const struct jail_plan *zygote_plan(const struct zygote *z)
{
    return z->plan;
}

void zygote_describe(const struct zygote *z, struct buf *out)
{
    jail_print(z->plan, out);
}

/* A memory file with these bytes; executable as the helper must be. */
static int memfd_with(const char *name, const void *data, size_t len, struct error *err)
{
    cleanup_fd int fd = (int)memfd_create(name, MFD_CLOEXEC | 0x0010U /* MFD_EXEC, Linux 6.3 */);
    if (fd < 0 && errno == EINVAL)
        fd = memfd_create(name, MFD_CLOEXEC);
    if (fd < 0 || file_write_all(fd, data, len) < 0 || lseek(fd, 0, SEEK_SET) < 0)
        return error_set_errno(err, ERROR_ENVIRONMENT, "making the memory file '%s'", name);
    return steal_fd(&fd);
}

struct start_fds {
    int control, source, helper, keeper, errors;
};

static void close_start_fds(struct start_fds *fds)
{
    close_fd(&fds->control);
    close_fd(&fds->source);
    close_fd(&fds->helper);
    close_fd(&fds->keeper);
    close_fd(&fds->errors);
}

/* Descriptors for the new process, all above the ones it will have them as. */
static int lift(int *fd)
{
    int high = fcntl(*fd, F_DUPFD_CLOEXEC, 16);
    if (high < 0)
        return -1;
    close(*fd);
    *fd = high;
    return 0;
}

static int spawn_process(
    struct zygote *z, const struct sandbox_spec *spec, struct start_fds *fds, struct error *err)
{
    const char *argv[64] = { z->executable, "-I", "-B", "-c", loader };
    size_t argc = 5;
    for (size_t i = 0; i < spec->preload_count && argc < array_length(argv) - 1; i++)
        argv[argc++] = spec->preload[i];
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDWR, 0);
    posix_spawn_file_actions_adddup2(&actions, 0, 1);
    posix_spawn_file_actions_adddup2(&actions, fds->errors, 2);
    posix_spawn_file_actions_adddup2(&actions, fds->control, ZYGOTE_CONTROL_FD);
    posix_spawn_file_actions_adddup2(&actions, fds->source, ZYGOTE_SOURCE_FD);
    posix_spawn_file_actions_adddup2(&actions, fds->helper, ZYGOTE_HELPER_FD);
    posix_spawn_file_actions_adddup2(&actions, fds->keeper, ZYGOTE_KEEPER_FD);
    posix_spawn_file_actions_addclosefrom_np(&actions, ZYGOTE_KEEPER_FD + 1);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(
        &attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSID);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    /* POSIX promises not to write to either; its prototype is older than const. */
    int rc = posix_spawn(&z->pid, z->executable, &actions, &attributes,
        (char *const *)(uintptr_t)argv, (char *const *)(uintptr_t)guest_environment);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    if (rc == 0)
        return 0;
    z->pid = -1;
    errno = rc;
    return error_set_errno(err, ERROR_ENVIRONMENT, "starting '%.100s'", z->executable);
}

static int spawn(struct zygote *z, const struct sandbox_spec *spec, struct error *err)
{
    struct start_fds fds = { -1, -1, -1, -1, -1 };
    int pair[2] = { -1, -1 }, ends[2] = { -1, -1 };
    int rc = 0;
    fds.source = memfd_with("guest.py", embedded_guest, embedded_guest_size, err);
    fds.helper = memfd_with("zygote.so", embedded_helper, embedded_helper_size, err);
    fds.keeper = memfd_with("keeper", embedded_keeper, embedded_keeper_size, err);
    if (fds.source < 0 || fds.helper < 0 || fds.keeper < 0) {
        rc = -(int)ERROR_ENVIRONMENT;
    } else if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0 ||
               pipe2(ends, O_CLOEXEC) < 0) {
        rc = error_set_errno(err, ERROR_ENVIRONMENT, "making the zygote's channels");
    } else {
        z->control = pair[0];
        z->errors = ends[0];
    }
    fds.control = pair[1];
    fds.errors = ends[1];
    if (rc == 0 && (lift(&fds.control) < 0 || lift(&fds.source) < 0 || lift(&fds.helper) < 0 ||
                       lift(&fds.keeper) < 0 || lift(&fds.errors) < 0))
        rc = error_set_errno(err, ERROR_ENVIRONMENT, "making the zygote's channels");
    if (rc == 0)
        rc = spawn_process(z, spec, &fds, err);
    close_start_fds(&fds);
    return rc;
}

/* One datagram from the zygote, with the descriptor that may come along. Returns its length. */
static ssize_t receive(int control, void *data, size_t size, int *fd)
{
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } ancillary;
    struct iovec iov = { data, size };
    struct msghdr m = {
        .msg_iov = &iov,
        .msg_iovlen = 1,
        .msg_control = ancillary.bytes,
        .msg_controllen = sizeof ancillary.bytes,
    };
    ssize_t n;
    do
        n = recvmsg(control, &m, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    *fd = -1;
    if (n <= 0)
        return n;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c))
        if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
            memcpy(fd, CMSG_DATA(c), sizeof *fd);
    return n;
}

/* What the interpreter said on its standard error, the last line of it. */
static void last_words(int fd, char *out, size_t size)
{
    char text[4096];
    size_t len = 0;
    ssize_t n;
    struct pollfd p = { .fd = fd, .events = POLLIN };
    while (len < sizeof text - 1 && poll(&p, 1, LAST_WORDS_MS) > 0 &&
           (n = read(fd, text + len, sizeof text - 1 - len)) > 0)
        len += (size_t)n;
    while (len > 0 && (unsigned char)text[len - 1] <= ' ')
        len--;
    text[len] = '\0';
    char *line = strrchr(text, '\n');
    snprintf(out, size, "%.*s", (int)size - 1, line ? line + 1 : text);
}

static int not_a_python(struct zygote *z, struct error *err)
{
    char words[128];
    close_fd(&z->control);
    last_words(z->errors, words, sizeof words);
    return error_set(err, ERROR_ENVIRONMENT,
        "'%.80s' did not start as a Python interpreter%s%s; give CPython 3.8 or newer with "
        "--python PATH",
        z->executable, words[0] ? ": " : "", words);
}

/* Waits for one event while the zygote starts. */
static int await(
    struct zygote *z, uint32_t kind, char *data, size_t size, size_t *len, struct error *err)
{
    uint64_t start = clock_ns();
    for (;;) {
        struct pollfd p = { .fd = z->control, .events = POLLIN };
        int left = START_TIMEOUT_MS - (int)(clock_seconds_since(start) * 1000);
        int rc = left > 0 ? poll(&p, 1, left) : 0;
        if (rc < 0 && errno == EINTR)
            continue;
        if (rc <= 0)
            return error_set(err, ERROR_ENVIRONMENT,
                "'%.100s' did not start as a Python interpreter within %d s", z->executable,
                START_TIMEOUT_MS / 1000);
        int fd;
        ssize_t n = receive(z->control, data, size, &fd);
        close_fd(&fd);
        struct zygote_event event;
        if (n < (ssize_t)sizeof event)
            return not_a_python(z, err);
        memcpy(&event, data, sizeof event);
        *len = (size_t)n;
        if (event.kind == kind || event.kind == ZYGOTE_FAILED)
            return 0;
    }
}

static int check_facts(struct zygote *z, struct json_object *facts, struct error *err)
{
    const char *version = json_get_string(facts, "python", "");
    const char *implementation = json_get_string(facts, "implementation", "");
    int major = 0, minor = 0;
    sscanf(version, "%d.%d", &major, &minor);
    if (strcmp(implementation, "cpython") != 0 || major != 3 || minor < 8)
        return error_set(err, ERROR_ENVIRONMENT,
            "'%.100s' is %.20s %.20s; Droste needs CPython 3.8 or newer", z->executable,
            implementation, version);
    snprintf(z->python, sizeof z->python, "CPython %s", version);
    return 0;
}

static int refuse_isolation(
    struct zygote *z, const struct jail_plan *plan, uint32_t op, int sys, struct error *err)
{
    cleanup_buf struct buf what = { 0 };
    jail_print_op(plan, op, &what);
    return error_set(err, ERROR_UNSUPPORTED,
        "isolation '%s' cannot be had here: %.60s: %s. `droste doctor` says what is missing; for "
        "code that you trust, --isolation process",
        isolation_name(z->isolation), buf_text(&what), strerror(sys));
}

/* True if others than the owner can come to a path, or it is not there. */
static bool others_can_reach(const char *path)
{
    char part[4096];
    struct stat st;
    size_t len = strnlen(path, sizeof part - 1);
    memcpy(part, path, len);
    for (size_t i = 1; i <= len; i++) {
        if (i < len && path[i] != '/')
            continue;
        part[i] = '\0';
        if (stat(part, &st) < 0)
            return errno == ENOENT;
        if (!(st.st_mode & S_IROTH) && !(S_ISDIR(st.st_mode) && i < len && st.st_mode & S_IXOTH))
            return false;
        part[i] = path[i];
    }
    return true;
}

/* As root the guest is nobody. In a root of its own it is shown what it needs, whoever may see the
 * directories above; among the host's files it has to reach it. */
static int check_reach(const struct zygote *z, const struct jail_host *host, struct error *err)
{
    const char *const *lists[] = { host->prefixes, host->read_paths };
    const size_t counts[] = { host->prefix_count, host->read_path_count };
    if (z->isolation != ISOLATION_LANDLOCK || host->uid != 0)
        return 0;
    for (size_t list = 0; list < array_length(lists); list++)
        for (size_t i = 0; i < counts[list]; i++)
            if (!others_can_reach(lists[list][i]))
                return error_set(err, ERROR_UNSUPPORTED,
                    "isolation 'landlock' as root runs the guest as nobody, who cannot read "
                    "'%.100s'; give what everybody can read, or run as an ordinary user",
                    lists[list][i]);
    return 0;
}

/* Has the zygote carry out its own plan, with the directories that it said it needs. */
static int set_up(
    struct zygote *z, const struct sandbox_spec *spec, struct json_object *facts, struct error *err)
{
    const char *prefixes[16];
    struct jail_host host = { .uid = geteuid(),
        .gid = getegid(),
        .prefixes = prefixes,
        .read_paths = spec->read_paths,
        .read_path_count = spec->read_path_count,
        .workdir = z->nest ? nest_path(z->nest) : NULL };
    struct json_object *list = json_get_typed(facts, "prefixes", json_type_array);
    size_t count = list ? json_object_array_length(list) : 0;
    for (size_t i = 0; i < count && i < array_length(prefixes); i++)
        prefixes[host.prefix_count++] = json_object_get_string(json_object_array_get_idx(list, i));
    int rc = check_reach(z, &host, err);
    if (rc == 0)
        rc = jail_compile_zygote(z->isolation, &host, &z->plan, err);
    if (rc < 0)
        return rc;
    if (sizeof(struct zygote_request) + z->plan->size > ZYGOTE_MESSAGE_MAX)
        return error_set(err, ERROR_ARGUMENT, "%zu read paths are too many for one sandbox",
            spec->read_path_count);
    struct zygote_request request = { .kind = ZYGOTE_SETUP };
    struct iovec iov[2] = { { &request, sizeof request }, { z->plan, z->plan->size } };
    struct msghdr m = { .msg_iov = iov, .msg_iovlen = 2 };
    struct zygote_event event;
    size_t len;
    if (sendmsg(z->control, &m, MSG_NOSIGNAL) < 0)
        return error_set_errno(err, ERROR_ENVIRONMENT, "preparing the sandboxes' root");
    rc = await(z, ZYGOTE_DONE, (char *)&event, sizeof event, &len, err);
    if (rc == 0 && event.kind == ZYGOTE_FAILED)
        rc = refuse_isolation(z, z->plan, event.op, event.sys, err);
    return rc;
}

static int greet(struct zygote *z, const struct sandbox_spec *spec, struct error *err)
{
    static const struct json_limits limits = { 65536, 8, 5000 };
    cleanup_json struct json_object *facts = NULL;
    cleanup_free char *data = malloc(ZYGOTE_MESSAGE_MAX);
    struct zygote_event hello;
    size_t len = 0;
    if (!data)
        return error_memory(err);
    int rc = await(z, ZYGOTE_HELLO, data, ZYGOTE_MESSAGE_MAX, &len, err);
    if (rc < 0)
        return rc;
    memcpy(&hello, data, sizeof hello);
    if (hello.kind != ZYGOTE_HELLO || hello.abi != ZYGOTE_ABI)
        return not_a_python(z, err);
    rc = json_parse(data + sizeof hello, len - sizeof hello, &limits, &facts, err);
    if (rc == 0)
        rc = check_facts(z, facts, err);
    return rc < 0 ? rc : set_up(z, spec, facts, err);
}

static void free_pending(struct pending *p)
{
    for (int i = 0; i < ZYGOTE_CLONE_FDS; i++)
        close_fd(&p->fds[i]);
    free(p);
}

/* Takes a request off the list; NULL where it was forgotten. */
static struct pending *take(struct zygote *z, uint32_t id)
{
    for (struct pending **at = &z->first; *at; at = &(*at)->next) {
        struct pending *found = *at;
        if (found->id != id)
            continue;
        *at = found->next;
        if (z->last == &found->next)
            z->last = at;
        return found;
    }
    return NULL;
}

static void answer(struct zygote *z, uint32_t id, struct zygote_answer *what)
{
    struct pending *p = take(z, id);
    if (p) {
        p->fn(p->arg, what);
        free_pending(p);
        return;
    }
    /* Nobody wants it any more, and what was sent to it lies in its channel: it would run alone. */
    if (what->pidfd >= 0) {
        syscall(SYS_pidfd_send_signal, what->pidfd, SIGTERM, NULL, 0);
        syscall(SYS_pidfd_send_signal, what->pidfd, SIGCONT, NULL,
            0); /* its guest may have stopped it */
    }
    close_fd(&what->pidfd);
}

static int send_clone(struct zygote *z, struct pending *p)
{
    struct zygote_request request = { .kind = ZYGOTE_CLONE, .id = p->id };
    struct iovec iov[2] = { { &request, sizeof request },
        { (void *)(uintptr_t)p->plan, p->plan->size } };
    union {
        char bytes[CMSG_SPACE(ZYGOTE_CLONE_FDS_MAX * sizeof(int))];
        struct cmsghdr align;
    } ancillary = { { 0 } };
    int fds[ZYGOTE_CLONE_FDS_MAX];
    size_t size = (p->cgroup >= 0 ? ZYGOTE_CLONE_FDS_MAX : ZYGOTE_CLONE_FDS) * sizeof(int);
    memcpy(fds, p->fds, sizeof p->fds);
    fds[ZYGOTE_CLONE_FDS] = p->cgroup;
    struct msghdr m = { .msg_iov = iov,
        .msg_iovlen = 2,
        .msg_control = ancillary.bytes,
        .msg_controllen = CMSG_SPACE(size) };
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(size);
    memcpy(CMSG_DATA(c), fds, size);
    ssize_t n;
    do
        n = sendmsg(z->control, &m, MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return -1;
    for (int i = 0; i < ZYGOTE_CLONE_FDS; i++)
        close_fd(&p->fds[i]);
    p->sent = true;
    z->under_way++;
    return 0;
}

/* Sends what may go out now. */
/* After a failed send: the zygote's queue is full, and an answer will say when it is not. */
static bool will_have_room(const struct zygote *z)
{
    return (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS) && z->under_way > 0;
}

static void send_waiting(struct zygote *z)
{
    struct pending *p = z->first;
    while (p && z->under_way < UNDER_WAY_MAX && !z->dead) {
        struct pending *next = p->next;
        if (!p->sent && send_clone(z, p) < 0) {
            if (will_have_room(z))
                return;
            struct zygote_answer what = { .pidfd = -1, .sys = errno };
            answer(z, p->id, &what);
            next = z->first; /* the receiver may have changed the list */
        }
        p = next;
    }
}

/* Waits for the end of the probe. It has no host: its worker finds the channel closed and ends. */
static int judge_probe(
    struct zygote *z, const struct jail_plan *plan, int status_fd, struct error *err)
{
    struct zygote_status status;
    struct pollfd p = { .fd = status_fd, .events = POLLIN };
    if (poll(&p, 1, START_TIMEOUT_MS) <= 0 ||
        read(status_fd, &status, sizeof status) != sizeof status)
        return error_set(err, ERROR_ENVIRONMENT, "a sandbox with isolation '%s' did not start",
            isolation_name(z->isolation));
    return status.sys ? refuse_isolation(z, plan, status.op, status.sys, err) : 0;
}

/* Starts a sandbox and lets it go, so that what this machine refuses is said now, by name, and not
 * by the first session: user namespaces may be forbidden or used up, clone3 filtered out, a mount
 * of proc not allowed in a container. */
static int probe(struct zygote *z, struct error *err)
{
    cleanup_free struct jail_plan *plan = NULL;
    cleanup_fd int host = -1, status = -1;
    int channel[2] = { -1, -1 }, ends[2] = { -1, -1 };
    struct zygote_event event = { 0 };
    size_t len;
    static const struct jail_place place = { .workdir = "/", .user_processes = 1u << 20 };
    int rc = jail_compile_sandbox(z->isolation, z->plan, &jail_default_limits, &place, &plan, err);
    if (rc < 0)
        return rc;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, channel) == 0)
        (void)!pipe2(ends, O_CLOEXEC);
    host = channel[0];
    status = ends[0];
    struct pending p = { .plan = plan, .fds = { channel[1], -1, -1, ends[1] }, .cgroup = -1 };
    p.fds[1] = open("/dev/null", O_WRONLY | O_CLOEXEC);
    p.fds[2] = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (ends[1] < 0 || p.fds[1] < 0 || p.fds[2] < 0 || send_clone(z, &p) < 0)
        rc = error_set_errno(err, ERROR_ENVIRONMENT, "trying out a sandbox");
    for (int i = 0; i < ZYGOTE_CLONE_FDS; i++)
        close_fd(&p.fds[i]);
    if (rc == 0)
        rc = await(z, ZYGOTE_STARTED, (char *)&event, sizeof event, &len, err);
    z->under_way = 0;
    if (rc == 0 && event.kind == ZYGOTE_FAILED)
        rc = refuse_isolation(z, plan, ZYGOTE_NO_OP, event.sys, err);
    close_fd(&host);
    return rc < 0 ? rc : judge_probe(z, plan, status, err);
}

static void told(struct zygote *z, const struct zygote_event *event, int fd)
{
    struct zygote_answer what = { .pidfd = fd, .pid = event->pid, .sys = event->sys };
    if (event->kind != ZYGOTE_STARTED && event->kind != ZYGOTE_FAILED) {
        close_fd(&fd);
        return;
    }
    z->under_way--;
    answer(z, event->id, &what);
    send_waiting(z);
}

static void died(struct zygote *z)
{
    z->dead = true;
    watch_events(z->watch, 0);
    while (z->first) {
        struct zygote_answer what = { .pidfd = -1, .sys = ESRCH };
        answer(z, z->first->id, &what);
    }
}

static void read_events(struct zygote *z)
{
    struct zygote_event event;
    int fd;
    for (;;) {
        ssize_t n = receive(z->control, &event, sizeof event, &fd);
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return;
        if (n < (ssize_t)sizeof event) {
            close_fd(&fd);
            died(z);
            return;
        }
        told(z, &event, fd);
    }
}

static void readable(void *arg, int status, int events)
{
    struct zygote *z = arg;
    z->telling = true;
    read_events(z);
    z->telling = false;
}

static int check_spec(const struct sandbox_spec *spec, struct error *err)
{
    if (spec->preload_count > 48)
        return error_set(err, ERROR_ARGUMENT, "at most 48 modules can be preloaded");
    for (size_t i = 0; i < spec->read_path_count; i++)
        if (spec->read_paths[i][0] != '/')
            return error_set(
                err, ERROR_ARGUMENT, "read path '%.100s' is not absolute", spec->read_paths[i]);
    return 0;
}

static int start_at(struct loop *loop, const struct sandbox_spec *spec, enum isolation isolation,
    struct cgroups *cgroups, struct zygote **out, struct error *err)
{
    struct zygote *z = calloc(1, sizeof *z);
    if (!z)
        return error_memory(err);
    *z = (struct zygote){ .loop = loop, .pid = -1, .control = -1, .errors = -1 };
    z->last = &z->first;
    z->isolation = isolation;
    z->asked = spec->isolation;
    z->wanted = spec->python ? strdup(spec->python) : NULL;
    z->words = words_of(spec);
    bool nobody = geteuid() == 0 && isolation != ISOLATION_PROCESS;
    int rc = isolation_has_own_root(isolation) ? 0 : nest_new(nobody, &z->nest, err);
    if (rc == 0)
        rc = interpreter_find(spec->python, &z->executable, err);
    if (rc == 0)
        rc = spawn(z, spec, err);
    if (rc == 0 && cgroups)
        rc = cgroups_adopt(cgroups, z->pid, err); /* the interpreter starts meanwhile */
    if (rc == 0)
        rc = greet(z, spec, err);
    if (rc == 0 && z->isolation != ISOLATION_PROCESS)
        rc = probe(z, err);
    close_fd(&z->errors);
    if (rc == 0 && !(z->watch = watch_new(loop, z->control, readable, z)))
        rc = error_memory(err);
    if (rc < 0) {
        zygote_stop(z);
        return rc;
    }
    watch_events(z->watch, UV_READABLE);
    *out = z;
    return 0;
}

/* The strongest that works. What is said when none does is why the strongest does not. */
static int start_strongest(struct loop *loop, const struct sandbox_spec *spec,
    struct cgroups *cgroups, struct zygote **out, struct error *err)
{
    static const enum isolation by_strength[] = { ISOLATION_FULL, ISOLATION_LIGHT,
        ISOLATION_LANDLOCK };
    struct error first = { 0 }, other = { 0 };
    int rc = -1;
    for (size_t i = 0; i < array_length(by_strength); i++) {
        rc = start_at(loop, spec, by_strength[i], cgroups, out, i == 0 ? &first : &other);
        if (rc != -(int)ERROR_UNSUPPORTED)
            break;
    }
    if (rc < 0 && err)
        *err = rc == -(int)ERROR_UNSUPPORTED ? first : other.code ? other : first;
    return rc;
}

int zygote_start(struct loop *loop, const struct sandbox_spec *spec, struct cgroups *cgroups,
    struct zygote **out, struct error *err)
{
    int rc = check_spec(spec, err);
    if (rc < 0)
        return rc;
    if (spec->isolation == ISOLATION_AUTO)
        return start_strongest(loop, spec, cgroups, out, err);
    return start_at(loop, spec, spec->isolation, cgroups, out, err);
}

int zygote_clone(struct zygote *z, const struct jail_plan *plan, int fds[ZYGOTE_CLONE_FDS],
    int cgroup, zygote_fn *fn, void *arg, uint32_t *id, struct error *err)
{
    if (z->dead)
        return error_set(err, ERROR_ENVIRONMENT, "the zygote of this sandbox has died");
    struct pending *p = calloc(1, sizeof *p);
    if (!p)
        return error_memory(err);
    *p = (struct pending){
        .id = ++z->last_id, .fn = fn, .arg = arg, .plan = plan, .cgroup = cgroup
    };
    memcpy(p->fds, fds, sizeof p->fds);
    if (z->under_way < UNDER_WAY_MAX && send_clone(z, p) < 0 && !will_have_room(z)) {
        free(p); /* the descriptors are still the caller's */
        return error_set_errno(err, ERROR_ENVIRONMENT, "asking the zygote for a sandbox");
    }
    for (int i = 0; i < ZYGOTE_CLONE_FDS; i++)
        fds[i] = -1;
    *z->last = p;
    z->last = &p->next;
    *id = p->id;
    return 0;
}

void zygote_forget(struct zygote *z, uint32_t id)
{
    struct pending *p = take(z, id);
    if (p)
        free_pending(p);
}

void zygote_stop(struct zygote *z)
{
    if (!z)
        return;
    watch_free(z->watch);
    close_fd(&z->control);
    close_fd(&z->errors);
    if (z->pid > 0) {
        kill(z->pid, SIGKILL); /* still ours to wait for, so the number cannot be another's */
        while (waitpid(z->pid, NULL, 0) < 0 && errno == EINTR)
            ;
    }
    while (z->first)
        zygote_forget(z, z->first->id);
    free(z->wanted);
    free(z->executable);
    free(z->words);
    free(z->plan);
    nest_release(z->nest);
    free(z);
}
