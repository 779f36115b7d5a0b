/* env/local/fork_status.c: reads the socket on which a fork's keeper reports.
 *
 * Nothing that arrives is trusted more than the guest itself. The kernel adds the pid of the sender
 * to the first record, so a guest can at most name a process of its own sandbox, and have that one
 * interrupted and killed.
 */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "env/local/process_list.h"
#include "env/local/sandbox.h"

enum { PARENTS_MAX = 8 }; /* between a fork's keeper and the first one, while it starts */

/* Walks up to this process. *broken: a process on the way has ended, and its children have another
 * parent now. */
static bool fork_descends(pid_t pid, pid_t from, bool *broken)
{
    *broken = false;
    for (int i = 0; i < PARENTS_MAX && pid > 1; i++) {
        pid_t parent = process_parent(pid);
        if (parent == from)
            return true;
        *broken = i > 0 && parent == 0;
        pid = parent;
    }
    return false;
}

/* Whether the process is in the sandbox of this keeper. */
static bool fork_is_within(pid_t pid, pid_t keeper)
{
    bool broken = true;
    for (int i = 0; i < PARENTS_MAX && broken; i++)
        if (fork_descends(pid, keeper, &broken))
            return true;
    return false;
}

/* Takes the pid that the kernel has added; it may have ended, and the number reused, so the check
 * comes after the pidfd. */
static void fork_take_keeper(struct sandbox *s, pid_t pid)
{
    cleanup_fd int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    s->keeper = pid;
    if (pidfd < 0 || !fork_is_within(pid, s->family->keeper))
        return;
    s->pidfd = steal_fd(&pidfd);
    memory_watch_begin(s->memory_watch, pid);
    if (!s->family->cgroup || !s->env->weighs)
        cpu_priority_open(
            s->env->base.loop, pid, NULL, &s->env->cpu_priorities, &s->cpu_priority, NULL);
    cpu_priority_of_fork(s->cpu_priority, s->family->keeper);
    if (s->wants_kill)
        local_kill(s);
    else if (s->wants_interrupt)
        local_interrupt(s);
}

enum status_read fork_read_status(struct sandbox *s, struct zygote_status *out)
{
    union {
        char bytes[CMSG_SPACE(sizeof(struct ucred))];
        struct cmsghdr align;
    } room;
    struct iovec iov = { out, sizeof *out };
    struct msghdr m = { .msg_iov = &iov,
        .msg_iovlen = 1,
        .msg_control = room.bytes,
        .msg_controllen = sizeof room.bytes };
    struct ucred sender = { 0 };
    ssize_t n;
    do
        n = recvmsg(s->fds[PORT_STATUS], &m, MSG_CMSG_CLOEXEC);
    while (n < 0 && errno == EINTR);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        return STATUS_PENDING;
    if (n != (ssize_t)sizeof *out)
        return STATUS_ENDED;
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_CREDENTIALS)
        memcpy(&sender, CMSG_DATA(c), sizeof sender);
    if (out->op != ZYGOTE_FORKED)
        return STATUS_RECORD;
    /* A second one comes from a guest that keeps the socket, and could come without end. */
    if (s->keeper || sender.pid <= 0)
        return STATUS_ENDED;
    fork_take_keeper(s, sender.pid);
    return STATUS_PENDING;
}
