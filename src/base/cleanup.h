/* base/cleanup.h: variables that release what they own at the end of their scope.
 *
 * `cleanup_fd int fd = -1;` closes at the end of the block; `return steal_fd(&fd);` hands the
 * descriptor over. A variable that owns nothing is -1 or NULL.
 */
#pragma once

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static inline void cleanup_free_fn(void *p)
{
    free(*(void **)p);
}

static inline void cleanup_fd_fn(int *fd)
{
    if (*fd >= 0) {
        int saved = errno;
        close(*fd); /* never retried: on Linux the descriptor is gone even after EINTR */
        errno = saved;
    }
}

#define cleanup_free __attribute__((cleanup(cleanup_free_fn)))
/* `unused`: some descriptors are only held until the end of their block. */
#define cleanup_fd __attribute__((cleanup(cleanup_fd_fn), unused))

static inline int steal_fd(int *fd)
{
    int taken = *fd;
    *fd = -1;
    return taken;
}

/* Closes *fd if it is open, and sets it to -1. */
static inline void close_fd(int *fd)
{
    cleanup_fd_fn(fd);
    *fd = -1;
}

static inline void *steal_pointer(void *pp)
{
    void **p = pp;
    void *taken = *p;
    *p = NULL;
    return taken;
}
#define steal(pp) ((__typeof__(*(pp)))steal_pointer(pp))

#define array_length(a) (sizeof(a) / sizeof((a)[0]))
