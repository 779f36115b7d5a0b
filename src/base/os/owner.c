/* base/os/owner.c: reads start times, namespaces and the boot's id from /proc. */
#include "base/os/owner.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"

/* Reads the first line of a small file in /proc. -1 with errno. */
static int read_line(const char *path, char *out, size_t size)
{
    cleanup_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    ssize_t n = read(fd, out, size - 1);
    if (n < 0)
        return -1;
    out[n] = '\0';
    out[strcspn(out, "\n")] = '\0';
    return 0;
}

/* The state and start time of a process. -1 with errno; ESRCH if it ended while it was read. */
static int read_stat(int64_t pid, char *state, int64_t *start)
{
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%lld/stat", (long long)pid);
    if (read_line(path, text, sizeof text) < 0)
        return -1;
    /* The name, in parentheses, may contain anything; the last ')' ends it (proc(5)). */
    const char *p = strrchr(text, ')');
    unsigned long long ticks = 0;
    if (!p || sscanf(p + 1,
                  " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d "
                  "%*d %*d %llu",
                  state, &ticks) != 2) {
        errno = EIO;
        return -1;
    }
    *start = (int64_t)ticks;
    return 0;
}

void owner_self(struct owner *self)
{
    char state;
    struct stat space;
    *self = (struct owner){ .pid = getpid() };
    if (read_stat(self->pid, &state, &self->start) < 0)
        self->start = 0;
    if (stat("/proc/self/ns/pid", &space) == 0)
        self->space = (int64_t)space.st_ino;
    if (read_line("/proc/sys/kernel/random/boot_id", self->boot, sizeof self->boot) < 0)
        self->boot[0] = '\0';
}

bool owner_is_gone(const struct owner *other, const struct owner *self)
{
    if (other->boot[0] == '\0' || self->boot[0] == '\0')
        return false;
    if (strcmp(other->boot, self->boot) != 0)
        return true;
    if (other->start == 0 || other->space == 0 || other->space != self->space)
        return false;
    char state;
    int64_t start;
    if (read_stat(other->pid, &state, &start) < 0)
        return errno == ENOENT || errno == ESRCH;
    return start != other->start || state == 'Z' || state == 'X';
}
