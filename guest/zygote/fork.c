/* guest/zygote/fork.c: forks a worker while it serves a session.
 *
 * Theory of operation. The host sends descriptors for the fork through a socket (the fork's status
 * socket), and the guest calls zygote_fork between two operations. Three processes take part, all
 * with the restrictions of the worker, since none of them can be undone:
 *
 *   opener   shares the worker's memory, while the worker waits, and exits at once. The fork is its
 *            child, so it becomes an orphan, a child of the sandbox's keeper: code that waits for
 *            the children of its own process never sees it.
 *   keeper   a copy of the worker's memory, which is the expensive step, as in fork(2). It reports
 *            itself on the status socket, where the kernel adds its pid, starts the new worker in
 *            its memory, and becomes the program keeper.c, which reports how the new worker ends.
 *   worker   takes the copied memory over and returns into Python, with descriptors of its own.
 *
 * As with fork(2), the open files, the working directory and the limits are those of the parent.
 */
#include "base/os/ancillary.h"
#include "zygote.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Called by Python, with the GIL and no other thread: 1 in the fork, 0 in the parent, a negative
 * errno if there is no fork. Closes `status` in both. */
__attribute__((visibility("default"))) int zygote_fork(int status);

struct fork_job {
    struct clone_job clone;
    int keeper; /* the keeper program */
    int sys;    /* errno of a failure, or 0; valid when the opener has ended */
};

static int fork_receive(struct fork_job *job, int status)
{
    int fds[ZYGOTE_FORK_FDS], count = 0;
    char none;
    ssize_t n = ancillary_receive(status, &none, 1, MSG_DONTWAIT, fds, ZYGOTE_FORK_FDS, &count);
    if (n == 1 && count == ZYGOTE_FORK_FDS) {
        job->clone.channel = fds[0];
        job->clone.out = fds[1];
        job->clone.err = fds[2];
        job->keeper = fds[3];
        return 0;
    }
    int sys = n < 0 ? errno : EMFILE;
    for (int i = 0; i < count; i++)
        close(fds[i]);
    return -sys;
}

static void fork_close_all(const struct fork_job *job)
{
    close(job->clone.channel);
    close(job->clone.out);
    close(job->clone.err);
    close(job->keeper);
    close(job->clone.status);
    close(job->clone.settled[0]);
    close(job->clone.settled[1]);
}

/* After a clone that failed: true if it should be tried again. Processes of forks that were closed
 * a moment ago count until their parents have waited for them. */
static bool fork_may_repeat(unsigned *tries)
{
    enum { TRIES = 12, PAUSE_NS = 5000000 };
    const struct timespec pause = { .tv_nsec = PAUSE_NS };
    if (errno != EAGAIN || ++*tries >= TRIES)
        return false;
    nanosleep(&pause, NULL);
    errno = EAGAIN;
    return true;
}

/* In the copied memory, on the opener's stack. */
__attribute__((noreturn)) static void fork_keep(struct fork_job *job)
{
    static char mark[] = "f";
    setsid(); /* the parent may be a fork, whose end is that of its process group */
    struct zygote_status status = { .op = ZYGOTE_FORKED, .wait_status = -1 };
    if (write(job->clone.status, &status, sizeof status) == (ssize_t)sizeof status) {
        unsigned tries = 0;
        pid_t worker;
        do
            worker = zygote_clone_taker(&job->clone);
        while (worker < 0 && fork_may_repeat(&tries));
        if (worker > 0)
            zygote_exec_keeper(&job->clone, job->keeper, worker, mark);
        status = (struct zygote_status){ .sys = errno, .op = ZYGOTE_NO_OP, .wait_status = -1 };
        (void)!write(job->clone.status, &status, sizeof status);
    }
    _exit(125);
}

static int fork_open(void *arg)
{
    struct fork_job *job = arg;
    /* The kernel would clear the worker's thread id when the keeper leaves the memory. */
    unsigned tries = 0;
    pid_t keeper;
    do
        keeper = clone_copy(NULL);
    while (keeper < 0 && fork_may_repeat(&tries));
    if (keeper == 0)
        fork_keep(job);
    job->sys = keeper < 0 ? errno : 0;
    _exit(0);
}

/* In the fork. The parent's descriptors for standard output, error and the channel are replaced. */
static void fork_begin(struct fork_job *job)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    zygote_register_sequences();
    setsid(); /* its processes can be ended together */
    zygote_wait_for_keeper(&job->clone);
    job->clone.settled[1] = -1;
    zygote_open_null();
    dup2(job->clone.out, 1);
    dup2(job->clone.err, 2);
    dup2(job->clone.channel, ZYGOTE_CHANNEL_FD);
    fcntl(ZYGOTE_CHANNEL_FD, F_SETFD, FD_CLOEXEC);
    fork_close_all(job);
    sigprocmask(SIG_SETMASK, &job->clone.old_mask, NULL);
    zygote.after_fork_child();
}

static int fork_start(struct fork_job *job)
{
    struct clone_args args = {
        .flags = CLONE_VM | CLONE_VFORK,
        .stack = (uint64_t)(uintptr_t)keeper_stack,
    };
    int ended;
    unsigned tries = 0;
    pid_t opener;
    do
        opener = clone_onto(&args, fork_open, job);
    while (opener < 0 && fork_may_repeat(&tries));
    if (opener < 0)
        return -errno;
    while (waitpid(opener, &ended, __WALL) < 0 && errno == EINTR)
        ;
    /* The host may close the parent at once, which ends its process group. */
    zygote_wait_for_keeper(&job->clone);
    job->clone.settled[1] = -1;
    return -job->sys;
}

int zygote_fork(int status)
{
    static struct fork_job job;
    sigset_t all;
    job = (struct fork_job){ .clone = { .channel = -1,
                                 .out = -1,
                                 .err = -1,
                                 .status = status,
                                 .settled = { -1, -1 },
                                 .standby = -1 },
        .keeper = -1,
        .sys = EIO };
    int rc = fork_receive(&job, status);
    if (rc == 0 && pipe2(job.clone.settled, O_CLOEXEC) < 0)
        rc = -errno;
    if (rc < 0) {
        fork_close_all(&job);
        return rc;
    }
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &job.clone.old_mask);
    zygote.before_fork();
    if (_setjmp(job.clone.resume)) {
        fork_begin(&job);
        return 1;
    }
    rc = fork_start(&job);
    zygote.after_fork_parent();
    sigprocmask(SIG_SETMASK, &job.clone.old_mask, NULL);
    fork_close_all(&job);
    return rc;
}
