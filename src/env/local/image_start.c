/* env/local/image_start.c: see image_start.h.
 *
 * The interpreter of an image is not trusted, and it must find its libraries: the root directory is
 * prepared, and privileges are given up, before it is executed. So the zygote's plan is carried out
 * by copies of this process, with plain system calls, since other threads may hold locks:
 *
 *   outside   makes the namespaces. The next one is this process's child, too (CLONE_PARENT).
 *   init      the first process of the pid namespace. It carries out the plan, starts the
 *             interpreter, and becomes the keeper program (guest/zygote/keeper.c), which ends with
 *             it. It also ends when the host does: the host has the other end of its lifeline, and
 *             closing that raises SIGTERM (F_SETSIG). The kernel ends the namespace with it. A
 *             parent-death signal would not do: it comes when the host's *thread* ends, and the
 *             interpreter could cancel its own.
 *   interpreter   the zygote, once it has loaded the guest.
 *
 * Each tells the host on one pipe what it could not do; that all of them have executed their
 * programs is its end of file.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "env/local/image_start.h"

enum { REPORT_TIMEOUT_MS = 30000 };

enum report_kind { REPORT_PID, REPORT_PLAN, REPORT_EXECUTE };

struct start_report {
    uint32_t kind, op;
    int32_t sys;
    pid_t pid;
};

struct starter {
    const struct image_start *s;
    int report, lifeline; /* the ends of these processes */
};

static void start_say(const struct starter *t, enum report_kind kind, uint32_t op, pid_t pid)
{
    struct start_report report = { .kind = kind, .op = op, .sys = errno, .pid = pid };
    (void)!write(t->report, &report, sizeof report);
}

static pid_t start_copy(long flags)
{
    return (pid_t)syscall(SYS_clone, flags, NULL, NULL, NULL, 0L);
}

/* With the descriptors from[0] to from[count - 1] as the first ones, and no others but `report`,
 * which closes on exec. */
static bool start_arrange(int from[], int count, int *report)
{
    int high = fcntl(*report, F_DUPFD_CLOEXEC, count);
    for (int i = 0; i < count; i++)
        if (dup2(from[i], i) != i)
            return false;
    if (high < 0 || syscall(SYS_close_range, (unsigned)high + 1, ~0U, 0) < 0 ||
        (high > count && syscall(SYS_close_range, (unsigned)count, (unsigned)high - 1, 0) < 0))
        return false;
    *report = high;
    return true;
}

__attribute__((noreturn)) static void be_interpreter(struct starter *t)
{
    const struct image_start *s = t->s;
    sigset_t none;
    int fds[IMAGE_START_FDS];
    sigemptyset(&none);
    memcpy(fds, s->fds, sizeof fds);
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (setsid() >= 0 && start_arrange(fds, IMAGE_START_FDS, &t->report))
        execve(s->executable, s->argv, s->envp);
    start_say(t, REPORT_EXECUTE, 0, 0);
    _exit(125);
}

/* The signal comes to the program, too, because all are blocked. */
static bool start_hold_lifeline(int fd)
{
    struct pollfd host = { .fd = fd };
    return fcntl(fd, F_SETOWN, getpid()) == 0 && fcntl(fd, F_SETSIG, SIGTERM) == 0 &&
           fcntl(fd, F_SETFL, O_NONBLOCK | O_ASYNC) == 0 && poll(&host, 1, 0) == 0;
}

__attribute__((noreturn)) static void start_become_keeper(struct starter *t, pid_t interpreter)
{
    static char name[] = "keeper", mark[] = "p";
    char pid[16];
    char *argv[] = { name, pid, mark, NULL }, *envp[] = { NULL };
    int fds[] = { t->s->fds[0], t->s->fds[0], t->s->fds[0], t->lifeline, t->s->keeper };
    enum { KEEPER = array_length(fds) - 1 };
    snprintf(pid, sizeof pid, "%d", (int)interpreter);
    if (start_arrange(fds, array_length(fds), &t->report) &&
        fcntl(KEEPER, F_SETFD, FD_CLOEXEC) == 0)
        syscall(SYS_execveat, KEEPER, "", argv, envp, AT_EMPTY_PATH);
    start_say(t, REPORT_PLAN, UINT32_MAX, 0);
    _exit(125);
}

__attribute__((noreturn)) static void be_init(struct starter *t)
{
    char go;
    uint32_t op = UINT32_MAX;
    if (read(t->lifeline, &go, 1) != 1 || !start_hold_lifeline(t->lifeline))
        _exit(125); /* the host has ended */
    if (jail_enter(t->s->plan, JAIL_ZYGOTE, &op) < 0) {
        start_say(t, REPORT_PLAN, op, 0);
        _exit(125);
    }
    pid_t pid = start_copy(SIGCHLD);
    if (pid == 0)
        be_interpreter(t);
    if (pid > 0)
        start_become_keeper(t, pid);
    start_say(t, REPORT_PLAN, UINT32_MAX, 0);
    _exit(125);
}

__attribute__((noreturn)) static void be_outside(struct starter *t)
{
    uint32_t op = UINT32_MAX;
    for (int i = 1; i < NSIG; i++)
        signal(i, SIG_DFL);
    if (jail_enter(t->s->plan, JAIL_OUTSIDE, &op) < 0) {
        start_say(t, REPORT_PLAN, op, 0);
        _exit(125);
    }
    pid_t pid = start_copy(CLONE_PARENT | SIGCHLD);
    if (pid == 0)
        be_init(t);
    if (pid < 0)
        start_say(t, REPORT_PLAN, UINT32_MAX, 0);
    else
        start_say(t, REPORT_PID, 0, pid);
    _exit(0);
}

/* ---- the host ---- */

/* 1: a report; 0: the end. */
static int start_read(int from, struct start_report *out, struct error *err)
{
    struct pollfd p = { .fd = from, .events = POLLIN };
    int rc;
    do
        rc = poll(&p, 1, REPORT_TIMEOUT_MS);
    while (rc < 0 && errno == EINTR);
    ssize_t n = rc > 0 ? read(from, out, sizeof *out) : -1;
    if (n == 0 || n == (ssize_t)sizeof *out)
        return n > 0;
    return error_set(err, ERROR_ENVIRONMENT, "starting the image's interpreter: no answer");
}

static void start_note_failure(struct image_start *s, const struct start_report *report)
{
    s->sys = report->sys;
    s->op = report->op;
    s->executes = report->kind == REPORT_EXECUTE;
}

int image_start_begin(struct image_start *s, struct error *err)
{
    int reports[2] = { -1, -1 }, lifeline[2] = { -1, -1 };
    struct start_report report;
    sigset_t all, before;
    s->pid = -1;
    s->lifeline = s->report = -1;
    if (pipe2(reports, O_CLOEXEC) < 0 || pipe2(lifeline, O_CLOEXEC) < 0) {
        close_fd(&reports[0]);
        close_fd(&reports[1]);
        return error_set_errno(err, ERROR_ENVIRONMENT, "creating the zygote's channels");
    }
    s->report = reports[0];
    s->lifeline = lifeline[1];
    struct starter t = { .s = s, .report = reports[1], .lifeline = lifeline[0] };
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &before);
    pid_t outside = start_copy(SIGCHLD);
    if (outside == 0) {
        close(lifeline[1]);
        be_outside(&t);
    }
    sigprocmask(SIG_SETMASK, &before, NULL);
    close(reports[1]);
    close(lifeline[0]);
    if (outside < 0)
        return error_set_errno(err, ERROR_ENVIRONMENT, "copying this process for the zygote");
    int rc = start_read(s->report, &report, err);
    while (waitpid(outside, NULL, 0) < 0 && errno == EINTR)
        ;
    if (rc < 0)
        return rc;
    if (rc == 0)
        return error_set(err, ERROR_ENVIRONMENT, "starting the image's interpreter: it was killed");
    if (report.kind == REPORT_PID)
        s->pid = report.pid;
    else
        start_note_failure(s, &report);
    return 0;
}

int image_start_finish(struct image_start *s, struct error *err)
{
    struct start_report report;
    if (write(s->lifeline, "g", 1) != 1)
        return error_set_errno(err, ERROR_ENVIRONMENT, "starting the image's interpreter");
    int rc = start_read(s->report, &report, err);
    if (rc > 0)
        start_note_failure(s, &report);
    return rc < 0 ? rc : 0;
}

void image_start_free(struct image_start *s)
{
    close_fd(&s->report);
}
