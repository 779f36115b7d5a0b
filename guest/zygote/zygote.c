/* guest/zygote/zygote.c: the helper that turns a warm Python interpreter into a zygote.
 *
 * Theory of operation. The guest (guest/python), in the user's own interpreter, loads this object
 * with ctypes.PyDLL. It does not use Python.h; the three CPython symbols that it needs are looked
 * up by name. The guest then calls zygote_serve, which holds the interpreter still,
 * single-threaded, and waits for requests. For a CLONE request it starts
 *
 *   keeper   in the plan's namespaces (pid 1 if there is a pid namespace). It mounts what the plan
 *            says, forks the worker, drops all privileges, and then becomes a small program that
 *            only waits: it reaps orphans, forwards interrupts, and ends with the worker, taking
 *            all other processes with it. Until then it runs in the zygote's memory, while the
 *            zygote waits.
 *   worker   the keeper's child, a copy of the zygote's memory that shares its pages until it
 *            writes. It executes the rest of the plan and returns into Python, where the guest's
 *            code will run.
 *   standby  a copy of the zygote's memory that is made while the zygote is idle, and handles the
 *            next request: the keeper is cloned within that copy, and the worker takes it over.
 *            Copying is most of the cost of a start, so a start with a standby takes little more
 *            than half as long. A standby serves once and exits at once. It is identical to the
 *            zygote, and no guest code has run in it.
 *
 *   copy     a second zygote, made on request (ZYGOTE_COPY) and served by a socket of its own.
 *
 * The zygote itself never runs guest code and holds no secrets. If the host dies, the control
 * socket closes and the zygote exits; if the zygote exits, the kernel kills the keepers; a pid
 * namespace dies with its keeper, and without one the keeper kills what is left of its tree.
 *
 * After a raw clone, the C library's copy of the thread id is stale, and abort() and recursive
 * locks need it. The kernel is asked to write the new id to its address (find_tid_address).
 */
#include "base/os/ancillary.h"
#include "zygote.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#if __has_include(<sys/rseq.h>)
#include <sys/rseq.h>
#endif
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* The functions that Python calls, in this order. */
__attribute__((visibility("default"))) int zygote_hello(
    int control, int keeper, const char *facts, int facts_len, int hooks, int standbys);
__attribute__((visibility("default"))) int zygote_try(void);
__attribute__((visibility("default"))) int zygote_serve(void);
__attribute__((visibility("default"))) const char *zygote_scratch_dir(void);

/* Results of zygote_serve. */
enum {
    SERVE_END = 0,
    SERVE_WORKER = 1,
    SERVE_WORKER_AMONG_FILES = 2, /* without a private root directory */
};

/* From a standby: it handles the request with this number. Its other events are those for the
 * host. */
enum { STANDBY_TAKES = 0xF000 };

struct zygote zygote;

char keeper_stack[CLONE_STACK] __attribute__((aligned(64)));

static char message[ZYGOTE_MESSAGE_MAX] __attribute__((aligned(16)));

static void send_event(int to, const struct zygote_event *event, int fd)
{
    struct iovec iov = { (void *)(uintptr_t)event, sizeof *event };
    ANCILLARY(1) room = { { 0 } };
    struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };
    if (fd >= 0)
        ancillary_put(&m, &room, &fd, 1);
    /* Errors are ignored: they mean that the host is gone. */
    (void)!sendmsg(to, &m, MSG_NOSIGNAL);
}

static void zygote_say(uint32_t kind, uint32_t id, int sys, uint32_t op)
{
    struct zygote_event event = { .kind = kind, .id = id, .sys = sys, .op = op };
    send_event(zygote.control, &event, -1);
}

/* The zygote may have reported the clone already, so its failure is reported as its status. */
__attribute__((noreturn)) static void fail(const struct clone_job *job, uint32_t op)
{
    struct zygote_status status = { .tag = job->tag, .sys = errno, .op = op, .wait_status = -1 };
    (void)!write(job->status, &status, sizeof status);
    _exit(125);
}

/* Tells the keeper what contains its processes: p, a pid namespace; d, a Landlock domain. */
static char *mark_of(const struct jail_plan *plan)
{
    static char namespace[] = "p", domain[] = "d";
    if (plan->clone_flags & CLONE_NEWPID)
        return namespace;
    for (uint32_t i = 0; i < plan->count; i++)
        if (plan->ops[i].kind == JAIL_CONFINE && plan->ops[i].stage == JAIL_KEEPER)
            return domain;
    return NULL;
}

/* The descriptor table is this process's own; only the memory is shared. The program gets the
 * status descriptor, the end of `settled` and, only to hold it, standard error; the program file's
 * own descriptor closes on exec. */
void zygote_exec_keeper(const struct clone_job *job, int keeper, pid_t worker, char *mark)
{
    static char name[] = "keeper";
    static char none[] = "";
    char pid[16], tag[24];
    char *argv[] = { name, pid, mark ? mark : none, tag, NULL };
    char *envp[] = { NULL };
    snprintf(pid, sizeof pid, "%d", (int)worker);
    snprintf(tag, sizeof tag, "%llu", (unsigned long long)job->tag);
    int program = fcntl(keeper, F_DUPFD_CLOEXEC, 3); /* RLIMIT_NOFILE may be low */
    int settled = fcntl(job->settled[1], F_DUPFD_CLOEXEC, 3);
    int err = fcntl(job->err, F_DUPFD_CLOEXEC, 3);
    if (program >= 0 && settled >= 0 && err >= 0 && dup2(job->status, 0) == 0 &&
        dup2(settled, 1) == 1 && dup2(err, 2) == 2 &&
        (program == 3 || syscall(SYS_close_range, 3, (unsigned)program - 1, 0) == 0) &&
        syscall(SYS_close_range, (unsigned)program + 1, ~0U, 0) == 0)
        syscall(SYS_execveat, program, "", argv, envp, AT_EMPTY_PATH);
}

/* In the keeper, after the fork: everything but the status descriptor is the worker's. A small
 * program (guest/zygote/keeper.c) replaces this process and releases the memory shared with the
 * zygote. */
__attribute__((noreturn)) static void keep(const struct clone_job *job, pid_t worker)
{
    uint32_t failed = 0;
    if (jail_enter(job->plan, JAIL_GUARD, &failed) < 0)
        fail(job, failed);
    zygote_exec_keeper(job, zygote.keeper, worker, mark_of(job->plan));
    struct zygote_status status = {
        .tag = job->tag, .sys = errno, .op = ZYGOTE_NO_OP, .wait_status = -1
    };
    (void)!write(0, &status, sizeof status);
    _exit(125);
}

/* All clones would share the flags, owners and locks of the zygote's /dev/null, and could use them
 * to leave messages for each other. */
int zygote_open_null(void)
{
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (null < 0 || dup2(null, 0) < 0)
        return -1;
    return close(null);
}

/* The descriptors of a worker: 0 is /dev/null, 1 and 2 are pipes, 3 is the channel. */
static int arrange_descriptors(const struct clone_job *job)
{
    int from[3] = { job->out, job->err, job->channel };
    for (int i = 0; i < 3; i++) {
        from[i] = fcntl(from[i], F_DUPFD, ZYGOTE_CHANNEL_FD + 1); /* RLIMIT_NOFILE may be low */
        if (from[i] < 0)
            return -1;
    }
    for (int i = 0; i < 3; i++)
        if (dup2(from[i], i + 1) < 0)
            return -1;
    fcntl(ZYGOTE_CHANNEL_FD, F_SETFD, FD_CLOEXEC);
    return (int)syscall(SYS_close_range, ZYGOTE_CHANNEL_FD + 1, ~0U, 0);
}

/* No guest code may run before the keeper has replaced itself: until then the zygote waits for it,
 * and its descriptors are visible in /proc, or the keeper and the standby use this memory. */
void zygote_wait_for_keeper(struct clone_job *job)
{
    char none;
    close(job->settled[1]);
    while (read(job->settled[0], &none, 1) < 0 && errno == EINTR)
        ;
}

/* In the worker; returns only when everything is done. */
static void become_worker(struct clone_job *job)
{
    uint32_t failed = ZYGOTE_NO_OP;
    struct sigaction plain = { .sa_handler = SIG_DFL };
    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    if (zygote.is_copy)
        prctl(PR_SET_NAME, zygote.name, 0, 0, 0);
    sigaction(SIGCHLD, &plain, NULL);
    if (zygote_open_null() < 0)
        fail(job, ZYGOTE_NO_OP);
    if (jail_enter(job->plan, JAIL_WORKER, &failed) < 0)
        fail(job, failed);
    zygote_wait_for_keeper(job);
    if (arrange_descriptors(job) < 0)
        fail(job, ZYGOTE_NO_OP);
    sigprocmask(SIG_SETMASK, &job->old_mask, NULL);
}

/* For the kernel, a clone within a memory is a thread, with its own area for restartable sequences
 * (rseq(2)); glibc relies on the registration. */
void zygote_register_sequences(void)
{
#ifdef RSEQ_SIG
    struct rseq *area = (void *)zygote.sequences;
    if (area && syscall(SYS_rseq, area, sizeof *area, 0, RSEQ_SIG) < 0)
        area->cpu_id = (uint32_t)RSEQ_CPU_ID_REGISTRATION_FAILED;
#endif
}

static void find_sequences(void)
{
#ifdef RSEQ_SIG
    const ptrdiff_t *offset = dlsym(RTLD_DEFAULT, "__rseq_offset");
    const unsigned *size = dlsym(RTLD_DEFAULT, "__rseq_size");
    if (offset && size && *size > 0)
        zygote.sequences = (char *)__builtin_thread_pointer() + *offset;
#endif
}

/* The worker's first steps in the memory that it takes over. */
static int zygote_take_over(void *arg)
{
    struct clone_job *job = arg;
    _longjmp(job->resume, 1);
}

pid_t zygote_clone_taker(struct clone_job *job)
{
    static char stack[CLONE_STACK] __attribute__((aligned(64)));
    struct clone_args args = {
        .flags = CLONE_VM | CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID,
        .child_tid = (uint64_t)(uintptr_t)zygote.tid_address,
        .exit_signal = SIGCHLD,
        .stack = (uint64_t)(uintptr_t)stack,
    };
    return clone_onto(&args, zygote_take_over, job);
}

/* The start of the keeper. It runs on its own stack in the zygote's memory, while the zygote waits
 * (as with vfork), so that entering namespaces costs no copy of that memory. The only copy is the
 * worker, which continues where the zygote stopped. A standby's memory is such a copy already, and
 * goes to the worker: as long as both use it, the keeper and the worker write only to their own
 * stacks, and to errno after a failure. */
static int become_keeper(void *arg)
{
    struct clone_job *job = arg;
    uint32_t failed = ZYGOTE_NO_OP;
    bool pid_namespace = job->plan->clone_flags & CLONE_NEWPID;
    struct sigaction plain = { .sa_handler = SIG_DFL };
    struct pollfd life = { .fd = zygote.life[0], .events = POLLIN };
    close(zygote.life[1]);
    sigaction(SIGCHLD, &plain, NULL);
    if (!pid_namespace)
        prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    if (job->standby >= 0)
        close(job->standby);
    else if (pipe2(job->settled, O_CLOEXEC) < 0)
        fail(job, ZYGOTE_NO_OP);
    if (jail_enter(job->plan, JAIL_KEEPER, &failed) < 0)
        fail(job, failed);
    /* Set only now, because a change of ids would reset it. The zygote may have died before it took
     * effect. */
    prctl(PR_SET_PDEATHSIG, pid_namespace ? SIGKILL : SIGTERM, 0, 0, 0);
    if (poll(&life, 1, 0) != 0)
        _exit(125);
    pid_t worker = job->standby >= 0 ? zygote_clone_taker(job) : clone_copy(zygote.tid_address);
    if (worker < 0)
        fail(job, ZYGOTE_NO_OP);
    if (worker == 0)
        _longjmp(job->resume, 1);
    keep(job, worker);
}

/* Starts the keeper, in the sandbox's cgroup from its first instruction: moving it later is slower,
 * and its usage until then would be charged elsewhere. In a standby, it becomes the zygote's child,
 * and gets the memory to itself at once. */
static pid_t clone_keeper(struct clone_job *job, int (*run)(void *))
{
    bool in_standby = job->standby >= 0;
    int cgroup = job->extra[ZYGOTE_CGROUP];
    struct clone_args args = {
        .flags = job->plan->clone_flags | CLONE_VM | CLONE_PIDFD |
                 (in_standby ? CLONE_PARENT : CLONE_VFORK) | (cgroup >= 0 ? CLONE_INTO_CGROUP : 0),
        .pidfd = (uint64_t)(uintptr_t)&job->pidfd,
        .exit_signal = in_standby ? 0 : SIGCHLD, /* otherwise it is the standby's child; clone(2) */
        .stack = (uint64_t)(uintptr_t)keeper_stack,
        .cgroup = cgroup >= 0 ? (uint64_t)cgroup : 0,
    };
    jail_lend(job->extra + ZYGOTE_VOLUME);
    if (jail_lend_user(job->plan, cgroup >= 0) < 0)
        return -1;
    return clone_onto(&args, run, job);
}

static void zygote_tell_outcome(int to, const struct clone_job *job, pid_t pid, int sys)
{
    struct zygote_event event = { .kind = pid < 0 ? ZYGOTE_FAILED : ZYGOTE_STARTED,
        .id = job->id,
        .pid = pid < 0 ? 0 : pid,
        .sys = pid < 0 ? sys : 0,
        .op = pid < 0 ? ZYGOTE_NO_OP : 0 };
    send_event(to, &event, pid < 0 ? -1 : job->pidfd);
}

/* Clones; true in the worker. */
static bool serve_clone(struct clone_job *job)
{
    sigset_t all;
    sigfillset(&all);
    /* A clone that copies much memory restarts endlessly if signals keep arriving. */
    sigprocmask(SIG_SETMASK, &all, &job->old_mask);
    if (zygote.hooks)
        zygote.before_fork();
    if (_setjmp(job->resume)) {
        become_worker(job);
        if (zygote.hooks)
            zygote.after_fork_child();
        return true;
    }
    job->pidfd = job->settled[0] = job->settled[1] = -1;
    pid_t pid = clone_keeper(job, become_keeper);
    int sys = errno;
    if (jail_take_user_back(job->plan) < 0)
        _exit(125); /* it would run as a sandbox's user, with capabilities that no sandbox has */
    if (zygote.hooks)
        zygote.after_fork_parent();
    sigprocmask(SIG_SETMASK, &job->old_mask, NULL);
    zygote_tell_outcome(zygote.control, job, pid, sys);
    if (pid >= 0)
        close(job->pidfd);
    return false;
}

static char scratch_dir[4096];

/* The scratch directory, once the zygote's plan has changed to it; else NULL. */
const char *zygote_scratch_dir(void)
{
    return scratch_dir[0] ? scratch_dir : NULL;
}

static void remember_scratch_dir(const struct jail_plan *plan)
{
    for (uint32_t i = 0; i < plan->count; i++)
        if (plan->ops[i].kind == JAIL_PIVOT)
            return;
    for (uint32_t i = 0; i < plan->count; i++)
        if (plan->ops[i].kind == JAIL_CHDIR && plan->ops[i].stage == JAIL_ZYGOTE)
            snprintf(scratch_dir, sizeof scratch_dir, "%s", jail_plan_text(plan, &plan->ops[i], 0));
}

static void serve_setup(uint32_t id, const struct jail_plan *plan)
{
    uint32_t failed = 0;
    if (jail_enter(plan, JAIL_ZYGOTE, &failed) < 0) {
        zygote_say(ZYGOTE_FAILED, id, errno, failed);
        return;
    }
    remember_scratch_dir(plan);
    zygote.is_set_up = true;
    zygote_say(ZYGOTE_DONE, id, 0, 0);
}

/* Executes a sandbox's plan in the zygote's memory, while the zygote waits, and ends. */
static int be_trial(void *arg)
{
    struct clone_job *job = arg;
    bool passed = jail_enter(job->plan, JAIL_KEEPER, &job->op) == 0 &&
                  jail_enter(job->plan, JAIL_WORKER, &job->op) == 0;
    job->sys = passed ? 0 : errno;
    _exit(0);
}

/* Reports by name what this machine denies to sandboxes. */
static void serve_trial(uint32_t id, const struct jail_plan *plan)
{
    struct clone_job job = { .plan = plan,
        .extra = { -1, -1, -1, -1, -1 },
        .standby = -1,
        .sys = ECHILD,
        .op = ZYGOTE_NO_OP };
    if (clone_keeper(&job, be_trial) < 0)
        job.sys = errno;
    else
        close(job.pidfd);
    if (jail_take_user_back(plan) < 0)
        _exit(125);
    zygote_say(job.sys ? ZYGOTE_FAILED : ZYGOTE_DONE, id, job.sys, job.op);
}

static ssize_t guest_zygote_receive(int fds[ZYGOTE_CLONE_FDS_MAX], int *fd_count)
{
    return ancillary_receive(
        zygote.control, message, sizeof message, 0, fds, ZYGOTE_CLONE_FDS_MAX, fd_count);
}

/* Parses a message into a job; false if it is not a valid clone request. */
static bool read_clone(size_t len, const int *fds, int fd_count, struct clone_job *out)
{
    struct zygote_request request;
    memcpy(&request, message, sizeof request);
    if (len < sizeof request + sizeof(struct jail_plan) || request.kind != ZYGOTE_CLONE ||
        fd_count < ZYGOTE_CLONE_FDS)
        return false;
    out->id = request.id;
    out->tag = request.tag;
    out->plan = (const void *)(message + sizeof request);
    out->channel = fds[0];
    out->out = fds[1];
    out->err = fds[2];
    out->status = fds[3];
    for (int i = 0, next = ZYGOTE_CLONE_FDS; i < ZYGOTE_EXTRA_COUNT; i++)
        out->extra[i] = request.extras >> i & 1 && next < fd_count ? fds[next++] : -1;
    return true;
}

static int kind_of_worker(const struct clone_job *job)
{
    return job->plan->clone_flags ? SERVE_WORKER : SERVE_WORKER_AMONG_FILES;
}

/* A second zygote, for a host that wants more sandboxes than one starts: each is busy for as long
 * as the kernel copies its memory and makes namespaces. It ends with its control socket. Its
 * sandboxes then end, too, as children of the first zygote, which waits for them if it tidies up.
 */
static void serve_copy(int control)
{
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    if (zygote.hooks || clone_copy(zygote.tid_address) != 0)
        return;
    close(zygote.life[0]);
    close(zygote.life[1]);
    if (pipe2(zygote.life, O_CLOEXEC) < 0 || dup2(control, zygote.control) < 0)
        _exit(125);
    fcntl(zygote.control, F_SETFD, FD_CLOEXEC);
    prctl(PR_SET_NAME, "zygote copy", 0, 0, 0);
    zygote.is_copy = zygote.has_no_standbys = true;
    pages_pin();
    zygote_say(ZYGOTE_DONE, 0, 0, 0);
}

/* Handles one request. In a worker, returns its kind; otherwise SERVE_END. */
static int serve_one(size_t len, const int *fds, int fd_count)
{
    struct zygote_request request;
    struct clone_job job = { .standby = -1 };
    if (len < sizeof request)
        return SERVE_END;
    memcpy(&request, message, sizeof request);
    if (request.kind == ZYGOTE_COPY && fd_count == 1)
        serve_copy(fds[0]);
    if (len < sizeof request + sizeof(struct jail_plan))
        return SERVE_END;
    if (request.kind == ZYGOTE_SETUP)
        serve_setup(request.id, (const void *)(message + sizeof request));
    else if (request.kind == ZYGOTE_TRY)
        serve_trial(request.id, (const void *)(message + sizeof request));
    else if (read_clone(len, fds, fd_count, &job) && serve_clone(&job))
        return kind_of_worker(&job);
    return SERVE_END;
}

/* ---- standby copies ---- */

/* Waits for the next message without consuming it. True if it is a clone request; `id` is its
 * number. */
static bool clone_is_next(uint32_t *id)
{
    struct zygote_request request = { 0 };
    ssize_t n;
    do
        n = recv(zygote.control, &request, sizeof request, MSG_PEEK);
    while (n < 0 && errno == EINTR);
    *id = request.id;
    return n == (ssize_t)sizeof request && request.kind == ZYGOTE_CLONE;
}

/* The standby, on its own stack, so that the stack on which the worker continues stays unchanged.
 * It announces the request that it handles, and leaves everything else to the zygote. */
static int be_standby(void *arg)
{
    struct clone_job *job = arg;
    struct pollfd life = { .fd = zygote.life[0], .events = POLLIN };
    struct zygote_event taken = { .kind = STANDBY_TAKES };
    int fds[ZYGOTE_CLONE_FDS_MAX], fd_count;
    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    prctl(PR_SET_NAME, "standby", 0, 0, 0);
    close(zygote.life[1]);
    zygote.life[1] = -1;
    if (poll(&life, 1, 0) != 0 || !clone_is_next(&taken.id))
        _exit(0);
    send_event(job->standby, &taken, -1);
    ssize_t n = guest_zygote_receive(fds, &fd_count);
    if (n <= 0 || !read_clone((size_t)n, fds, fd_count, job))
        _exit(0);
    pid_t pid = pipe2(job->settled, O_CLOEXEC) < 0 ? -1 : clone_keeper(job, become_keeper);
    zygote_tell_outcome(job->standby, job, pid, errno);
    _exit(0);
}

/* After the end of a standby that did not serve. */
static void standby_died(bool had_taken, uint32_t id)
{
    struct pollfd control = { .fd = zygote.control, .events = POLLIN };
    uint32_t next = 0;
    if (!had_taken)
        return;
    if (poll(&control, 1, 0) == 1 && clone_is_next(&next) && next == id)
        return; /* the zygote must still handle it */
    zygote_say(ZYGOTE_FAILED, id, ESRCH, ZYGOTE_NO_OP);
}

/* Forwards the standby's events to the host, until it has served or is gone. */
static void standby_forward_events(int from)
{
    struct zygote_event event;
    int fds[ZYGOTE_CLONE_FDS_MAX], count;
    bool had_taken = false;
    uint32_t id = 0;
    while (ancillary_receive(from, &event, sizeof event, 0, fds, ZYGOTE_CLONE_FDS_MAX, &count) ==
           (ssize_t)sizeof event) {
        if (event.kind != STANDBY_TAKES) {
            send_event(zygote.control, &event, count > 0 ? fds[0] : -1);
            if (count > 0)
                close(fds[0]);
            return;
        }
        had_taken = true;
        id = event.id;
    }
    standby_died(had_taken, id);
}

/* Has a standby handle the next request. In the worker, returns its kind; otherwise SERVE_END. */
static int serve_by_standby(void)
{
    static struct clone_job job;
    static char stack[CLONE_STACK] __attribute__((aligned(64)));
    struct clone_args args = { .exit_signal = SIGCHLD, .stack = (uint64_t)(uintptr_t)stack };
    int ends[2];
    sigset_t all;
    sigfillset(&all);
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0) {
        zygote.has_no_standbys = true;
        return SERVE_END;
    }
    job = (struct clone_job){ .standby = ends[1], .pidfd = -1, .settled = { -1, -1 } };
    sigprocmask(SIG_SETMASK, &all, &job.old_mask);
    if (zygote.hooks)
        zygote.before_fork();
    if (_setjmp(job.resume)) {
        prctl(PR_SET_NAME, zygote.name, 0, 0, 0);
        zygote_register_sequences();
        become_worker(&job);
        if (zygote.hooks)
            zygote.after_fork_child();
        return kind_of_worker(&job);
    }
    pid_t pid = clone_onto(&args, be_standby, &job);
    if (zygote.hooks)
        zygote.after_fork_parent();
    sigprocmask(SIG_SETMASK, &job.old_mask, NULL);
    close(job.standby);
    if (pid < 0)
        zygote.has_no_standbys = true;
    else
        standby_forward_events(ends[0]);
    close(ends[0]);
    return SERVE_END;
}

/* True if a copy would be identical to later clones, and no request is waiting. */
static bool has_time_for_standby(void)
{
    struct pollfd control = { .fd = zygote.control, .events = POLLIN };
    return zygote.is_set_up && !zygote.has_no_standbys && poll(&control, 1, 0) == 0;
}

/* Where the C library keeps the id of this thread. glibc had the kernel clear that place at the
 * thread's end, so the kernel knows it. Newer ones (Debian testing's) have it clear another word,
 * and musl a lock, which no thread could take any more if an id were written to it; there, the id
 * is in the thread's descriptor: among the first words with musl, at 720 bytes with glibc on
 * x86-64. */
static int find_tid_address(void **out)
{
    enum { WORDS = 32, GLIBC_WORDS = 256 };
    unsigned words = dlsym(RTLD_DEFAULT, "gnu_get_libc_version") ? GLIBC_WORDS : WORDS;
    pid_t id = (pid_t)syscall(SYS_gettid), *at = NULL, *descriptor;
    if (prctl(PR_GET_TID_ADDRESS, &at, 0, 0, 0) < 0)
        return -errno;
    descriptor = (pid_t *)(uintptr_t)pthread_self();
    for (unsigned i = 0; i < words && (!at || *at != id); i++)
        at = &descriptor[i];
    *out = at;
    return *at == id ? 0 : -ENOSYS;
}

static int zygote_prepare(int control, int keeper, bool hooks)
{
    struct sigaction reap_none = { .sa_handler = SIG_IGN, .sa_flags = SA_NOCLDWAIT };
    zygote.control = control;
    zygote.keeper = keeper;
    zygote.hooks = hooks;
    zygote.before_fork = (void (*)(void))dlsym(RTLD_DEFAULT, "PyOS_BeforeFork");
    zygote.after_fork_parent = (void (*)(void))dlsym(RTLD_DEFAULT, "PyOS_AfterFork_Parent");
    zygote.after_fork_child = (void (*)(void))dlsym(RTLD_DEFAULT, "PyOS_AfterFork_Child");
    if (!zygote.before_fork || !zygote.after_fork_parent || !zygote.after_fork_child)
        return -ENOSYS;
    int rc = find_tid_address(&zygote.tid_address);
    if (rc < 0)
        return rc;
    if (pipe2(zygote.life, O_CLOEXEC) < 0)
        return -errno;
    find_sequences();
    prctl(PR_GET_NAME, zygote.name, 0, 0, 0);
    /* The keepers report how sandboxes ended; the zygote does not wait for its children. */
    sigaction(SIGCHLD, &reap_none, NULL);
    return 0;
}

/* Sends HELLO; the host then compiles a plan, which leaves time for other work. 0, or a negative
 * errno: the zygote cannot work. `keeper` is the descriptor of the keeper program, `facts` JSON
 * about the interpreter. `hooks`: whether to call the interpreter's functions around a fork (locks,
 * os.register_at_fork). With one thread, which continues at the same address in the copy, they have
 * nothing to repair unless a module registered its own. `standbys`: whether to prepare for the next
 * request. */
int zygote_hello(int control, int keeper, const char *facts, int facts_len, int hooks, int standbys)
{
    struct zygote_event hello = { .kind = ZYGOTE_HELLO, .abi = ZYGOTE_ABI, .pid = getpid() };
    struct iovec iov[2] = { { &hello, sizeof hello },
        { (void *)(uintptr_t)facts, (size_t)facts_len } };
    struct msghdr m = { .msg_iov = iov, .msg_iovlen = 2 };
    int rc = zygote_prepare(control, keeper, hooks);
    zygote.has_no_standbys = !standbys;
    if (rc < 0)
        return rc;
    return sendmsg(control, &m, MSG_NOSIGNAL) < 0 ? -errno : 0;
}

/* Copies this process for a trial: its pid, 0 in the copy. */
int zygote_try(void)
{
    if (zygote.hooks)
        zygote.before_fork();
    pid_t pid = clone_copy(zygote.tid_address);
    if (zygote.hooks && pid == 0)
        zygote.after_fork_child();
    else if (zygote.hooks)
        zygote.after_fork_parent();
    return pid;
}

/* Handles requests until the host closes the control socket (SERVE_END), and returns another value
 * in each worker. */
int zygote_serve(void)
{
    for (;;) {
        int fds[ZYGOTE_CLONE_FDS_MAX], fd_count = 0, became;
        if (has_time_for_standby())
            became = serve_by_standby();
        else {
            ssize_t n = guest_zygote_receive(fds, &fd_count);
            if (n <= 0 && zygote.is_copy)
                _exit(0);
            if (n <= 0)
                return SERVE_END;
            became = serve_one((size_t)n, fds, fd_count);
        }
        if (became != SERVE_END)
            return became;
        for (int i = 0; i < fd_count; i++)
            close(fds[i]);
    }
}
