/* env/local/keeper.c: what the host knows of a sandbox's keeper, and how it reaches it.
 *
 * A pid may be reused once its process has ended, so signals go to a pidfd. Most sandboxes have
 * none: it is opened when it is needed.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "env/local/sandbox.h"

bool local_has_keeper(const struct sandbox *s)
{
    return s->pidfd >= 0 || (s->report_tag && s->keeper > 0);
}

/* Opens a pidfd of the keeper. The keeper holds the sandbox's standard error until it dies, and its
 * pid cannot be reused before: if it is still open afterwards, the descriptor is the keeper's. */
static int local_open_keeper(const struct sandbox *s)
{
    struct pollfd life = { .fd = s->fds[PORT_ERR] };
    if (!s->report_tag || s->keeper <= 0 || life.fd < 0)
        return -1;
    cleanup_fd int pidfd = (int)syscall(SYS_pidfd_open, s->keeper, 0);
    return pidfd >= 0 && poll(&life, 1, 0) == 0 ? steal_fd(&pidfd) : -1;
}

/* Opens it for as long as the sandbox exists. */
void local_keep_pidfd(struct sandbox *s)
{
    if (s->pidfd < 0)
        s->pidfd = local_open_keeper(s);
}

void local_signal_keeper(const struct sandbox *s, int signal)
{
    cleanup_fd int opened = s->pidfd < 0 ? local_open_keeper(s) : -1;
    int pidfd = s->pidfd < 0 ? opened : s->pidfd;
    if (pidfd >= 0)
        syscall(SYS_pidfd_send_signal, pidfd, signal, NULL, 0);
}

/* Whether the keeper has mounted everything and become its program. A process that joined the
 * namespaces earlier would see the files of the host. This is asked again every millisecond until
 * then, only for a session that opens files or commands right after its start: an event would be
 * one more message of every keeper, at every start. */
bool local_is_set_up(const struct sandbox *s)
{
    char path[48], name[sizeof KEEPER_NAME] = "";
    snprintf(path, sizeof path, "/proc/%d/comm", (int)s->keeper);
    cleanup_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
    return fd >= 0 && read(fd, name, sizeof name) == (ssize_t)sizeof name &&
           memcmp(name, KEEPER_NAME, sizeof name - 1) == 0 && name[sizeof name - 1] == '\n';
}

bool local_waits(const struct sandbox *s)
{
    return room_has(s->env->room, s);
}

const struct jail_plan *local_plan(const struct sandbox *s)
{
    return s->family ? s->family->plan : s->plan;
}

void local_read_cgroup(const struct sandbox *s, struct sandbox_usage *out, bool *out_of_memory)
{
    struct cgroup_usage used;
    if (!s->cgroup)
        return;
    cgroup_read(s->cgroup, &used);
    if (used.memory_peak)
        out->memory_peak = used.memory_peak;
    if (used.cpu_seconds > 0)
        out->cpu_seconds = used.cpu_seconds;
    *out_of_memory = used.out_of_memory;
}

void local_explain_failure(struct sandbox *s, uint32_t op, int sys)
{
    cleanup_buf struct buf what = { 0 };
    if (op == ZYGOTE_NO_OP && sys == ENOSYS && s->cgroup) {
        error_set(&s->how.error, ERROR_ENVIRONMENT,
            "starting a sandbox in a cgroup: the system call clone3 is forbidden here; allow it "
            "in the container's seccomp profile, or run the container without its own cgroup");
        return;
    }
    /* The keeper was the last process that the family may have; the guest says the same of it. */
    if (op == ZYGOTE_NO_OP && sys == EAGAIN && s->family) {
        error_set(&s->how.error, ERROR_ARGUMENT,
            "forking the session: its sandbox and the forks have as many processes as they may; "
            "close some, or raise --processes");
        return;
    }
    jail_print_op(local_plan(s), op, &what);
    error_set(&s->how.error, ERROR_ENVIRONMENT,
        "starting a sandbox with isolation '%s': %.80s: %s; see `droste doctor`",
        isolation_name(s->isolation), buf_text(&what), strerror(sys));
}
