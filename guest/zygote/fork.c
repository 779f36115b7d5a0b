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
 *   worker   takes the copied memory over, with descriptors of its own, and returns into Python at
 *            its first operation.
 *
 * Python writes to some 160 pages before it has begun to wait for an operation, each of which the
 * kernel then copies. So the new worker waits here, and shares all but a few pages until there is
 * something to do: a checkpoint mostly has nothing to do but to be forked, which needs no Python
 * either. For the same reason the parent handles requests that have arrived meanwhile, and answers
 * them, before it returns.
 *
 * As with fork(2), the open files, the working directory and the limits are those of the parent.
 */
#include "base/os/ancillary.h"
#include "zygote.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* What zygote_fork returns: these bits, and the errno of a request that failed above them. */
enum {
    FORK_IS_COPY = 1,    /* this is the fork */
    FORK_UNANSWERED = 2, /* the last request has no RESULT yet */
    FORK_ERRNO = 256,
};

/* Called by Python, with the GIL and no other thread. Closes `status`. `id` is that of the request;
 * 0: Python answers it, and those that have arrived after it have to wait. */
__attribute__((visibility("default"))) int zygote_fork(int status, uint64_t id);
/* The id of the last request. */
__attribute__((visibility("default"))) uint64_t zygote_fork_asked(void);

struct fork_job {
    struct clone_job clone;
    int keeper;   /* the keeper program */
    int begun[2]; /* a pipe on which the keeper says that the worker exists */
    int sys;      /* errno of a failure, or 0; valid when the opener has ended */
};

static int fork_receive(struct fork_job *job, int status)
{
    int fds[ZYGOTE_FORK_FDS], count = 0;
    char none;
    if (status < 0)
        return -EMFILE; /* it did not arrive */
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
    close(job->begun[0]);
    close(job->begun[1]);
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
    struct zygote_status status = { .op = ZYGOTE_FORKED, .wait_status = -1 };
    unsigned tries = 0;
    pid_t worker;
    do
        worker = zygote_clone_taker(&job->clone);
    while (worker < 0 && fork_may_repeat(&tries));
    if (worker > 0 && write(job->begun[1], "", 1) == 1 &&
        write(job->clone.status, &status, sizeof status) == (ssize_t)sizeof status)
        zygote_exec_keeper(&job->clone, job->keeper, worker, mark);
    status = (struct zygote_status){ .sys = errno, .op = ZYGOTE_NO_OP, .wait_status = -1 };
    (void)!write(job->clone.status, &status, sizeof status);
    _exit(125);
}

static int fork_open(void *arg)
{
    struct fork_job *job = arg;
    unsigned tries = 0;
    pid_t keeper;
    setsid(); /* the host may close the parent at once, which ends its process group */
    /* The kernel would clear the worker's thread id when the keeper leaves the memory. */
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
}

static int fork_start(struct fork_job *job)
{
    struct clone_args args = {
        .flags = CLONE_VM | CLONE_VFORK,
        .stack = (uint64_t)(uintptr_t)keeper_stack,
    };
    char none;
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
    close(job->begun[1]);
    job->begun[1] = -1;
    if (job->sys == 0 && read(job->begun[0], &none, 1) != 1)
        job->sys = EAGAIN;
    return -job->sys;
}

/* Forks once: 1 in the fork, 0 in the parent, a negative errno if there is no fork. */
static int fork_once(int status)
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
        .begun = { -1, -1 },
        .sys = EIO };
    int rc = fork_receive(&job, status);
    if (rc == 0 && (pipe2(job.clone.settled, O_CLOEXEC) < 0 || pipe2(job.begun, O_CLOEXEC) < 0))
        rc = -errno;
    if (rc < 0) {
        fork_close_all(&job);
        return rc;
    }
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &job.clone.old_mask);
    if (_setjmp(job.clone.resume)) {
        fork_begin(&job);
        return 1;
    }
    rc = fork_start(&job);
    sigprocmask(SIG_SETMASK, &job.clone.old_mask, NULL);
    fork_close_all(&job);
    return rc;
}

static struct fork_request {
    uint64_t id;
    int status;
} fork_request;

/* The header of a frame (wire/frame.h, core/frames.py). All machines that Droste runs on are
 * little-endian. */
enum { FRAME_VERSION = 1, FRAME_FORK = 10, FRAME_READY = 17, FRAME_RESULT = 20 };

struct fork_frame {
    uint8_t version, type;
    uint16_t flags;
    uint32_t head_len;
    uint64_t id, blob_len;
};

static bool fork_say(uint8_t type, const char *head)
{
    struct fork_frame frame = { .version = FRAME_VERSION,
        .type = type,
        .id = fork_request.id,
        .head_len = (uint32_t)strlen(head) };
    char bytes[64];
    memcpy(bytes, &frame, sizeof frame);
    memcpy(bytes + sizeof frame, head, frame.head_len);
    size_t len = sizeof frame + frame.head_len;
    return send(ZYGOTE_CHANNEL_FD, bytes, len, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)len;
}

/* False if Python has to answer. */
static bool fork_answer(int rc)
{
    if (rc < 0)
        return false;
    if (rc == 0)
        return fork_request.id != 0 && fork_say(FRAME_RESULT, "{\"status\":\"ok\"}");
    fork_request.id = 0;
    fork_say(FRAME_READY, ""); /* the first bytes in a new socket, which has room for them */
    return true;
}

/* Takes the next frame from the channel if it is a request for a fork of the session; one with a
 * head is for a fork of a call. */
static bool fork_take_request(void)
{
    struct fork_frame frame;
    int count;
    if (recv(ZYGOTE_CHANNEL_FD, &frame, sizeof frame, MSG_PEEK | MSG_DONTWAIT) !=
            (ssize_t)sizeof frame ||
        frame.type != FRAME_FORK || frame.head_len > 0)
        return false;
    fork_request = (struct fork_request){ .id = frame.id, .status = -1 };
    return ancillary_receive(ZYGOTE_CHANNEL_FD, &frame, sizeof frame, 0, &fork_request.status, 1,
               &count) == (ssize_t)sizeof frame;
}

/* In a fork that has done nothing yet. A signal's handler may have something to do. */
static bool fork_wait_for_request(void)
{
    struct pollfd channel = { .fd = ZYGOTE_CHANNEL_FD, .events = POLLIN };
    return poll(&channel, 1, -1) > 0 && fork_take_request();
}

int zygote_fork(int status, uint64_t id)
{
    int rc, became = 0;
    bool answered;
    fork_request = (struct fork_request){ .id = id, .status = status };
    zygote.before_fork();
    do {
        rc = fork_once(fork_request.status);
        if (rc > 0)
            became = FORK_IS_COPY;
        answered = fork_answer(rc);
    } while (answered && (became ? fork_wait_for_request() : fork_take_request()));
    if (became)
        zygote.after_fork_child();
    else
        zygote.after_fork_parent();
    return became | (answered ? 0 : FORK_UNANSWERED) | (rc < 0 ? -rc * FORK_ERRNO : 0);
}

uint64_t zygote_fork_asked(void)
{
    return fork_request.id;
}
