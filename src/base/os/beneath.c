/* base/os/beneath.c: openat2(2), and opening what its own mode forbids. */
#include "base/os/beneath.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"

int open_beneath(int directory, const char *path, int flags, mode_t mode)
{
    struct open_how how = {
        .flags = (uint64_t)(unsigned)flags | O_CLOEXEC | (flags & O_PATH ? 0 : O_NONBLOCK),
        .mode = flags & (O_CREAT | O_TMPFILE) ? mode : 0,
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
    };
    long fd;
    do /* EAGAIN: a concurrent rename prevented the kernel from resolving the path */
        fd = syscall(SYS_openat2, directory, path, &how, sizeof how);
    while (fd < 0 && (errno == EINTR || errno == EAGAIN));
    return (int)fd;
}

int open_anyway(int directory, const char *name, int flags)
{
    char self[32];
    struct stat st;
    int fd = openat(directory, name, flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd >= 0 || errno != EACCES)
        return fd;
    cleanup_fd int held = openat(directory, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (held < 0 || fstat(held, &st) < 0)
        return -1;
    snprintf(self, sizeof self, "/proc/self/fd/%d", held);
    if (chmod(self, (st.st_mode & 07777) | 0700) < 0)
        return -1;
    fd = open(self, flags | O_NONBLOCK | O_CLOEXEC);
    int saved = errno;
    (void)!chmod(self, st.st_mode & 07777);
    errno = saved;
    return fd;
}

DIR *open_listing(int directory, const char *name)
{
    cleanup_fd int fd = open_anyway(directory, name, O_RDONLY | O_DIRECTORY);
    DIR *listing = fd < 0 ? NULL : fdopendir(fd);
    if (listing)
        fd = -1;
    return listing;
}

const char *next_listed(DIR *listing)
{
    const struct dirent *e;
    do
        e = listing ? readdir(listing) : NULL;
    while (e && (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0));
    return e ? e->d_name : NULL;
}
