/* guest/zygote.c: the helper that turns a warm Python interpreter into a zygote.
 *
 * Theory of operation. The guest (guest/py), in the user's own interpreter, loads this object with
 * ctypes.PyDLL (no Python.h: the three symbols of CPython that are needed are looked up) and calls
 * zygote_serve, which holds the interpreter still, single-threaded, and waits for requests. For a
 * CLONE it starts
 *
 *   keeper   in the plan's namespaces (pid 1 where there is a pid namespace). It mounts what the plan
 *            says, forks the worker, drops everything, and then becomes a small program that only
 *            waits: it reaps orphans, passes interrupts on, ends when the worker ends and takes all
 *            else with it. Until then it runs in the zygote's memory, while the zygote stands still.
 *   worker   the keeper's child, a copy of the zygote's memory that shares its pages until it writes.
 *            It carries out the rest of the plan and returns into Python, where the guest's code
 *            will run.
 *
 * The zygote itself never runs the guest's code and holds no secret. If the host dies, the control
 * socket closes and the zygote ends; if the zygote ends, the kernel kills the keepers; a pid namespace
 * dies with its keeper, and without one the keeper kills what is left of its tree.
 *
 * After a raw clone glibc's copy of the thread id is stale, and abort() and recursive locks need
 * it: the kernel is asked to write the new one where the old one is (PR_GET_TID_ADDRESS).
 */
#include "base/ancillary.h"
#include "jail/plan.h"
#include "jail/zygote_wire.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* What Python calls, in this order. */
__attribute__((visibility("default"))) int zygote_hello(
    int control, int keeper, const char *facts, int facts_len, int hooks);
__attribute__((visibility("default"))) int zygote_try(void);
__attribute__((visibility("default"))) int zygote_serve(void);
__attribute__((visibility("default"))) const char *zygote_nest(void);

/* What zygote_serve returns to Python. */
enum {
    SERVE_END = 0,
    SERVE_WORKER = 1,
    SERVE_WORKER_AMONG_FILES = 2, /* without a root directory of its own */
};

static struct {
    int control;
    int keeper;  /* the program, guest/keeper.c */
    int life[2]; /* the write end closes when the zygote dies, however it dies */
    void *tid_address;
    bool hooks; /* the interpreter's functions around a fork are to be called */
    void (*before_fork)(void);
    void (*after_fork_parent)(void);
    void (*after_fork_child)(void);
} zygote;

struct clone_job {
    uint32_t id;
    const struct jail_plan *plan;
    int channel, out, err, status;
    int cgroup; /* the directory to clone into, or -1 */
    int pidfd;
    int settled[2]; /* a pipe whose end closes when the keeper's program has begun */
    sigset_t old_mask;
    void *resume[5]; /* where the worker goes on: __builtin_setjmp's */
};

static void say(uint32_t kind, uint32_t id, int pid, int sys, uint32_t op, int fd)
{
    struct zygote_event event = { .kind = kind, .id = id, .pid = pid, .sys = sys, .op = op };
    struct iovec iov = { &event, sizeof event };
    ANCILLARY(1) room = { { 0 } };
    struct msghdr message = { .msg_iov = &iov, .msg_iovlen = 1 };
    if (fd >= 0)
        ancillary_put(&message, &room, &fd, 1);
    /* If the host is gone there is nobody to tell. */
    (void)!sendmsg(zygote.control, &message, MSG_NOSIGNAL);
}

/* A copy of this process, as by fork(), without the C library's part of it. */
static pid_t clone_copy(void)
{
    long flags = CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID | SIGCHLD;
#if defined(__x86_64__)
    return (pid_t)syscall(SYS_clone, flags, NULL, NULL, zygote.tid_address, 0L);
#else /* the last two change places, clone(2) */
    return (pid_t)syscall(SYS_clone, flags, NULL, NULL, 0L, zygote.tid_address);
#endif
}

/* The zygote may have said already that the clone is there, so that why it ends at once is told
 * where its end is. */
__attribute__((noreturn)) static void fail(const struct clone_job *job, uint32_t op)
{
    struct zygote_status status = { .sys = errno, .op = op, .wait_status = -1 };
    (void)!write(job->status, &status, sizeof status);
    _exit(125);
}

/* Tells the keeper what holds its processes together: p, a pid namespace; d, a Landlock domain. */
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

/* In the keeper, after the fork: everything but the status pipe is the worker's. What is left to do
 * is the work of a small program (guest/keeper.c), which takes this process over and lets go of the
 * memory that it shared with the zygote. */
__attribute__((noreturn)) static void keep(const struct clone_job *job, pid_t worker)
{
    static char name[] = "keeper";
    char pid[16];
    char *argv[] = { name, pid, mark_of(job->plan), NULL };
    char *envp[] = { NULL };
    uint32_t failed = 0;
    if (jail_enter(job->plan, JAIL_GUARD, &failed) < 0)
        fail(job, failed);
    snprintf(pid, sizeof pid, "%d", (int)worker);
    /* The table of descriptors is this process's own; only the memory is shared. What the program gets is
     * the status pipe and the end of `settled`; it is itself open until it runs. */
    int program = fcntl(zygote.keeper, F_DUPFD_CLOEXEC, 64);
    int settled = fcntl(job->settled[1], F_DUPFD_CLOEXEC, 64);
    if (program >= 0 && settled >= 0 && dup2(job->status, 0) == 0 && dup2(settled, 1) == 1 &&
        syscall(SYS_close_range, 2, (unsigned)program - 1, 0) == 0 &&
        syscall(SYS_close_range, (unsigned)program + 1, ~0U, 0) == 0)
        syscall(SYS_execveat, program, "", argv, envp, AT_EMPTY_PATH);
    struct zygote_status status = { .sys = errno, .op = ZYGOTE_NO_OP, .wait_status = -1 };
    (void)!write(0, &status, sizeof status);
    _exit(125);
}

/* The zygote's own /dev/null has one set of flags, owners and locks for all its clones, where they could
 * leave each other notes. */
static int open_own_null(void)
{
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (null < 0 || dup2(null, 0) < 0)
        return -1;
    return close(null);
}

/* The descriptors of a worker: 0 is /dev/null, 1 and 2 are pipes, 3 the channel. */
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

/* No code of the guest's before the keeper is on its own and small: until then the zygote stands still with
 * it, and what it holds is to be seen in /proc. */
static void wait_for_keeper(struct clone_job *job)
{
    char none;
    close(job->settled[1]);
    while (read(job->settled[0], &none, 1) < 0 && errno == EINTR)
        ;
}

/* In the worker; comes back only when all is done. */
static void become_worker(struct clone_job *job)
{
    uint32_t failed = ZYGOTE_NO_OP;
    struct sigaction plain = { .sa_handler = SIG_DFL };
    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    sigaction(SIGCHLD, &plain, NULL);
    if (open_own_null() < 0)
        fail(job, ZYGOTE_NO_OP);
    if (jail_enter(job->plan, JAIL_WORKER, &failed) < 0)
        fail(job, failed);
    wait_for_keeper(job);
    if (arrange_descriptors(job) < 0)
        fail(job, ZYGOTE_NO_OP);
    sigprocmask(SIG_SETMASK, &job->old_mask, NULL);
}

/* The keeper's beginning. It runs on a stack of its own in the zygote's memory, while the zygote
 * stands still (as with vfork), so that the namespaces cost no copy of that memory; the one copy is
 * the worker, which goes on where the zygote stood. */
static int become_keeper(void *arg)
{
    struct clone_job *job = arg;
    uint32_t failed = ZYGOTE_NO_OP;
    bool pid_namespace = job->plan->clone_flags & CLONE_NEWPID;
    struct sigaction plain = { .sa_handler = SIG_DFL };
    struct pollfd life = { .fd = zygote.life[0], .events = POLLIN };
    close(zygote.life[1]);
    prctl(PR_SET_PDEATHSIG, pid_namespace ? SIGKILL : SIGTERM, 0, 0, 0);
    /* The zygote may have died before that was in force. */
    if (poll(&life, 1, 0) != 0)
        _exit(125);
    sigaction(SIGCHLD, &plain, NULL);
    if (!pid_namespace)
        prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    if (pipe2(job->settled, O_CLOEXEC) < 0)
        fail(job, ZYGOTE_NO_OP);
    if (jail_enter(job->plan, JAIL_KEEPER, &failed) < 0)
        fail(job, failed);
    pid_t worker = clone_copy();
    if (worker < 0)
        fail(job, ZYGOTE_NO_OP);
    if (worker == 0)
        __builtin_longjmp(job->resume, 1);
    keep(job, worker);
}

/* clone3(2) for a child that runs fn(arg) on the stack in `args` and ends with what it returns. glibc
 * has no wrapper, and syscall(2) cannot be used: the child would return on the caller's stack. */
static long clone3_onto_stack(struct clone_args *args, int (*fn)(void *), void *arg)
{
#if defined(__x86_64__)
    long result;
    __asm__ volatile("syscall\n"
                     " test %%rax, %%rax\n"
                     " jnz 1f\n"
                     " mov %[arg], %%rdi\n"
                     " call *%[fn]\n"
                     " mov %%eax, %%edi\n"
                     " mov %[exit], %%eax\n"
                     " syscall\n"
                     "1:\n"
                     : "=a"(result)
                     : "a"(SYS_clone3), "D"(args),
                     "S"(sizeof *args), [fn] "r"(fn), [arg] "r"(arg), [exit] "i"(SYS_exit)
                     : "rcx", "r11", "memory", "cc");
#elif defined(__aarch64__)
    register long x8 __asm__("x8") = SYS_clone3;
    register long result __asm__("x0") = (long)args;
    register long size __asm__("x1") = sizeof *args;
    __asm__ volatile("svc 0\n"
                     " cbnz x0, 1f\n"
                     " mov x0, %[arg]\n"
                     " blr %[fn]\n"
                     " mov x8, %[exit]\n"
                     " svc 0\n"
                     "1:\n"
                     : "+r"(result)
                     : "r"(x8), "r"(size), [fn] "r"(fn), [arg] "r"(arg), [exit] "i"(SYS_exit)
                     : "memory", "cc");
#else
#error "write the system call of this machine here"
#endif
    if (result >= 0)
        return result;
    errno = (int)-result;
    return -1;
}

/* Starts the keeper, in the sandbox's cgroup from its first instruction on: a move afterwards is
 * slower, and what was used before it would count elsewhere. */
static pid_t clone_keeper(struct clone_job *job)
{
    enum { STACK = 64 * 1024, FLAGS = CLONE_VM | CLONE_VFORK | CLONE_PIDFD };
    static char stack[STACK] __attribute__((aligned(64)));
    struct clone_args args = {
        .flags = job->plan->clone_flags | FLAGS | (job->cgroup >= 0 ? CLONE_INTO_CGROUP : 0),
        .pidfd = (uint64_t)(uintptr_t)&job->pidfd,
        .exit_signal = SIGCHLD,
        .stack = (uint64_t)(uintptr_t)stack,
        .stack_size = STACK,
        .cgroup = job->cgroup >= 0 ? (uint64_t)job->cgroup : 0,
    };
    long pid = clone3_onto_stack(&args, become_keeper, job);
    /* Some containers' filters know no clone3. The older call can do all of this but the cgroup. */
    if (pid < 0 && errno == ENOSYS && job->cgroup < 0)
        pid = clone(become_keeper, stack + STACK, (int)job->plan->clone_flags | FLAGS | SIGCHLD,
            job, &job->pidfd);
    return (pid_t)pid;
}

/* Clones; true in the worker. */
static bool serve_clone(struct clone_job *job)
{
    sigset_t all;
    sigfillset(&all);
    /* A clone that copies much memory restarts for ever if signals keep coming. */
    sigprocmask(SIG_SETMASK, &all, &job->old_mask);
    if (zygote.hooks)
        zygote.before_fork();
    if (__builtin_setjmp(job->resume)) {
        become_worker(job);
        if (zygote.hooks)
            zygote.after_fork_child();
        return true;
    }
    job->pidfd = job->settled[0] = job->settled[1] = -1;
    pid_t pid = clone_keeper(job);
    int sys = errno;
    if (zygote.hooks)
        zygote.after_fork_parent();
    sigprocmask(SIG_SETMASK, &job->old_mask, NULL);
    if (pid < 0) {
        say(ZYGOTE_FAILED, job->id, 0, sys, ZYGOTE_NO_OP, -1);
        return false;
    }
    say(ZYGOTE_STARTED, job->id, pid, 0, 0, job->pidfd);
    close(job->pidfd);
    return false;
}

static char nest[4096];

/* The directory of the sandboxes' own, once the zygote's plan has led there; else NULL. */
const char *zygote_nest(void)
{
    return nest[0] ? nest : NULL;
}

static void remember_nest(const struct jail_plan *plan)
{
    for (uint32_t i = 0; i < plan->count; i++)
        if (plan->ops[i].kind == JAIL_PIVOT)
            return;
    for (uint32_t i = 0; i < plan->count; i++)
        if (plan->ops[i].kind == JAIL_CHDIR && plan->ops[i].stage == JAIL_ZYGOTE)
            snprintf(nest, sizeof nest, "%s", jail_plan_text(plan, &plan->ops[i], 0));
}

static void serve_setup(uint32_t id, const struct jail_plan *plan)
{
    uint32_t failed = 0;
    if (jail_enter(plan, JAIL_ZYGOTE, &failed) < 0) {
        say(ZYGOTE_FAILED, id, 0, errno, failed, -1);
        return;
    }
    remember_nest(plan);
    say(ZYGOTE_DONE, id, 0, 0, 0, -1);
}

/* Receives one request and its descriptors. The length, 0 at the end, -1 on failure. */
static ssize_t receive(char *message, int fds[ZYGOTE_CLONE_FDS_MAX], int *fd_count)
{
    ANCILLARY(ZYGOTE_CLONE_FDS_MAX) room;
    struct iovec iov = { message, ZYGOTE_MESSAGE_MAX };
    struct msghdr m = {
        .msg_iov = &iov,
        .msg_iovlen = 1,
        .msg_control = room.bytes,
        .msg_controllen = sizeof room.bytes,
    };
    ssize_t n;
    do
        n = recvmsg(zygote.control, &m, MSG_CMSG_CLOEXEC);
    while (n < 0 && errno == EINTR);
    *fd_count = n > 0 ? (int)ancillary_take(&m, fds, ZYGOTE_CLONE_FDS_MAX) : 0;
    return n;
}

/* One request; in a worker, what it has become; else SERVE_END. */
static int serve_one(const char *message, size_t len, const int *fds, int fd_count)
{
    struct zygote_request request;
    if (len < sizeof request + sizeof(struct jail_plan))
        return SERVE_END;
    memcpy(&request, message, sizeof request);
    const struct jail_plan *plan = (const void *)(message + sizeof request);
    if (request.kind == ZYGOTE_SETUP) {
        serve_setup(request.id, plan);
        return SERVE_END;
    }
    if (request.kind != ZYGOTE_CLONE || fd_count < ZYGOTE_CLONE_FDS)
        return SERVE_END;
    struct clone_job job = {
        .id = request.id,
        .plan = plan,
        .channel = fds[0],
        .out = fds[1],
        .err = fds[2],
        .status = fds[3],
        .cgroup = fd_count > ZYGOTE_CLONE_FDS ? fds[4] : -1,
    };
    if (!serve_clone(&job))
        return SERVE_END;
    return plan->clone_flags ? SERVE_WORKER : SERVE_WORKER_AMONG_FILES;
}

static int prepare(int control, int keeper, bool hooks)
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
    if (prctl(PR_GET_TID_ADDRESS, &zygote.tid_address, 0, 0, 0) < 0)
        return -errno;
    if (pipe2(zygote.life, O_CLOEXEC) < 0)
        return -errno;
    /* The keepers' own reports say how a sandbox ended; nobody waits for them here. */
    sigaction(SIGCHLD, &reap_none, NULL);
    return 0;
}

/* Says hello; there is time then, until the host has made a plan. 0, or a negative errno: the zygote
 * cannot work. `keeper` is the descriptor of the keeper's program, `facts` JSON about the interpreter,
 * `hooks` whether its functions around a fork (locks, os.register_at_fork) are to be called: with one
 * thread, which goes on in the copy under the same address, there is nothing for them to mend. */
int zygote_hello(int control, int keeper, const char *facts, int facts_len, int hooks)
{
    struct zygote_event hello = { .kind = ZYGOTE_HELLO, .abi = ZYGOTE_ABI, .pid = getpid() };
    struct iovec iov[2] = { { &hello, sizeof hello },
        { (void *)(uintptr_t)facts, (size_t)facts_len } };
    struct msghdr m = { .msg_iov = iov, .msg_iovlen = 2 };
    int rc = prepare(control, keeper, hooks);
    if (rc < 0)
        return rc;
    return sendmsg(control, &m, MSG_NOSIGNAL) < 0 ? -errno : 0;
}

/* A copy of this process that is no sandbox: its pid, 0 in the copy. */
int zygote_try(void)
{
    return clone_copy();
}

/* Serves requests until the host closes the control socket (SERVE_END), and returns one of the others
 * in each worker. */
int zygote_serve(void)
{
    static char message[ZYGOTE_MESSAGE_MAX] __attribute__((aligned(16)));
    for (;;) {
        int fds[ZYGOTE_CLONE_FDS_MAX], fd_count = 0;
        ssize_t n = receive(message, fds, &fd_count);
        if (n <= 0)
            return SERVE_END;
        int became = serve_one(message, (size_t)n, fds, fd_count);
        if (became != SERVE_END)
            return became;
        for (int i = 0; i < fd_count; i++)
            close(fds[i]);
    }
}
