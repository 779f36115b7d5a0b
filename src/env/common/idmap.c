/* env/common/idmap.c: creates an idmapped mount through a short-lived user namespace.
 *
 * The kernel reads the id map from a user namespace, which a process that does nothing creates; the
 * mount keeps the namespace. The process shares this one's memory, which may be large, and touches
 * only its own stack. waitpid(-1) does not report it, so a program that embeds the library does not
 * see an unknown child.
 */
#include "env/common/idmap.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"

static int idmap_wait_for_end(void *arg)
{
    for (;;)
        syscall(SYS_ppoll, NULL, 0, NULL, NULL, 0); /* pause(2) is not a call of every machine */
    return 0;
}

static int idmap_write(pid_t pid, const char *file, uid_t inside, uid_t outside)
{
    char path[48], line[48];
    snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, file);
    int n = snprintf(line, sizeof line, "%u %u 1", inside, outside);
    cleanup_fd int fd = open(path, O_WRONLY | O_CLOEXEC);
    return fd >= 0 && write(fd, line, (size_t)n) == n ? 0 : -1;
}

/* The user namespace of that process, mapping `inside` to this process's `outside`. */
static int idmap_namespace_of(pid_t pid, uid_t inside, uid_t outside)
{
    char path[48];
    snprintf(path, sizeof path, "/proc/%d/ns/user", (int)pid);
    if (idmap_write(pid, "uid_map", inside, outside) < 0 ||
        idmap_write(pid, "gid_map", inside, outside) < 0)
        return -1;
    return open(path, O_RDONLY | O_CLOEXEC);
}

static int idmap_namespace(uid_t inside, uid_t outside)
{
    _Alignas(64) char stack[16384];
    sigset_t all, before;
    sigfillset(&all);
    /* The child inherits this mask, so that no signal handler of the program runs in it. */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pid_t pid = clone(idmap_wait_for_end, stack + sizeof stack, CLONE_VM | CLONE_NEWUSER, NULL);
    int fd = pid < 0 ? -1 : idmap_namespace_of(pid, inside, outside), saved = errno;
    if (pid > 0) {
        kill(pid, SIGKILL);
        while (waitpid(pid, NULL, __WALL) < 0 && errno == EINTR)
            ;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = saved;
    return fd;
}

int idmap_mount(int directory, uid_t owner, uid_t user)
{
    cleanup_fd int space = idmap_namespace(owner, user);
    if (space < 0)
        return -1;
    struct mount_attr attr = {
        .attr_set = MOUNT_ATTR_IDMAP | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV,
        .userns_fd = (uint64_t)space,
    };
    const unsigned flags = AT_EMPTY_PATH | AT_RECURSIVE;
    cleanup_fd int mount =
        (int)syscall(SYS_open_tree, directory, "", flags | OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
    if (mount < 0 || syscall(SYS_mount_setattr, mount, "", flags, &attr, sizeof attr) < 0)
        return -1;
    return steal_fd(&mount);
}
