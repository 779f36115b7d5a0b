/* env/local/fork.c: forks of a sandbox: further workers in its namespaces, with its memory.
 *
 * The guest copies itself (guest/zygote/fork.c); the host only lends descriptors. A fork has a
 * keeper and ports like any sandbox, and belongs to the *family* of the sandbox that was first: it
 * shares its namespaces, user, cgroup, files and mounts, which therefore stay until the last member
 * is closed. The first sandbox's keeper is told to stay when its worker ends.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/os/ancillary.h"
#include "env/local/sandbox.h"

#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83
#endif

/* The socket on which the fork's keeper reports, in place of a sandbox's status pipe. It first
 * carries the fork's descriptors. */
static int fork_make_status(struct sandbox *s, int theirs[PORT_COUNT], struct error *err)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return error_set_errno(err, ERROR_ENVIRONMENT, "making a socket for the fork");
    s->fds[PORT_STATUS] = pair[0];
    theirs[PORT_STATUS] = pair[1];
    if (fcntl(pair[0], F_SETFL, O_NONBLOCK) < 0 ||
        setsockopt(pair[0], SOL_SOCKET, SO_PASSCRED, &(int){ 1 }, sizeof(int)) < 0)
        return error_set_errno(err, ERROR_ENVIRONMENT, "preparing a socket for the fork");
    /* The host would have to close what is sent. Not possible before Linux 6.16. */
    (void)!setsockopt(pair[0], SOL_SOCKET, SO_PASSRIGHTS, &(int){ 0 }, sizeof(int));
    return 0;
}

/* The fork's filter does not let its keeper make itself non-dumpable. The kernel does that to a
 * program that may be executed but not read (would_dump in fs/exec.c), so /proc shows nothing of
 * the keeper to the fork's code. */
static int fork_keeper_program(struct error *err)
{
    cleanup_fd int keeper = zygote_keeper_program(err);
    if (keeper >= 0 && fchmod(keeper, 0111) < 0)
        return error_set_errno(err, ERROR_ENVIRONMENT, "preparing the fork's keeper");
    return steal_fd(&keeper);
}

static int fork_lend(struct sandbox *s, const int theirs[PORT_COUNT], struct error *err)
{
    cleanup_fd int keeper = fork_keeper_program(err);
    if (keeper < 0)
        return keeper;
    int fds[ZYGOTE_FORK_FDS] = { theirs[PORT_CHANNEL], theirs[PORT_OUT], theirs[PORT_ERR], keeper };
    ANCILLARY(ZYGOTE_FORK_FDS) room = { { 0 } };
    struct iovec iov = { (char[]){ 0 }, 1 };
    struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };
    ancillary_put(&m, &room, fds, ZYGOTE_FORK_FDS);
    if (sendmsg(s->fds[PORT_STATUS], &m, MSG_NOSIGNAL) < 0)
        return error_set_errno(err, ERROR_ENVIRONMENT, "lending descriptors to the fork");
    return 0;
}

static int fork_watch_memory(struct sandbox *s, struct error *err)
{
    return s->family->cgroup ? 0 : local_watch_memory(s, s->family->memory_limit, err);
}

static int fork_start(struct sandbox *s, struct sandbox *parent, const struct iovec *frame,
    int count, struct error *err)
{
    int theirs[PORT_COUNT] = { -1, -1, -1, -1 };
    int rc = fork_watch_memory(s, err);
    if (rc == 0)
        rc = ports_make(s, theirs, err);
    if (rc == 0)
        rc = fork_make_status(s, theirs, err);
    if (rc == 0)
        rc = fork_lend(s, theirs, err);
    if (rc == 0)
        rc = ports_watch(s, err);
    if (rc == 0)
        rc = ports_send(parent, frame, count, steal_fd(&theirs[PORT_STATUS]), err);
    for (enum port p = 0; p < PORT_COUNT; p++)
        close_fd(&theirs[p]);
    return rc;
}

int local_fork(struct sandbox *parent, const struct iovec *frame, int count,
    const struct sandbox_events *events, void *arg, struct sandbox **out, struct error *err)
{
    struct sandbox *first = parent->family ? parent->family : parent;
    struct sandbox *s = local_sandbox_new(parent->env, parent->zygote, events, arg);
    if (!s)
        return error_memory(err);
    s->isolation = parent->isolation;
    s->family = first;
    first->forks++;
    s->next_fork = first->next_fork;
    first->next_fork = s;
    memcpy(s->usage.means, first->usage.means, sizeof s->usage.means);
    s->in_use = true;
    s->env->cpu_priorities.sandboxes++;
    if (!first->has_forked)
        local_announce_forks(first);
    int rc = fork_start(s, parent, frame, count, err);
    if (rc < 0) {
        local_close(s);
        return rc;
    }
    *out = s;
    return 0;
}

void local_rebind(struct sandbox *s, void *arg)
{
    s->arg = arg;
}

uint64_t local_memory(const struct sandbox *s)
{
    return s->family && s->pidfd >= 0 && !s->ended ? memory_of_fork(s->keeper) : 0;
}
