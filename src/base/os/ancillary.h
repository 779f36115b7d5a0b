/* base/os/ancillary.h: passing descriptors with a message, unix(7). */
#ifndef DROSTE_BASE_OS_ANCILLARY_H
#define DROSTE_BASE_OS_ANCILLARY_H

#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Room for `most` descriptors, aligned as the kernel requires. */
#define ANCILLARY(most)                                                                            \
    union {                                                                                        \
        char bytes[CMSG_SPACE((most) * sizeof(int))];                                              \
        struct cmsghdr align;                                                                      \
    }

/* Adds `count` descriptors, at least one, to a message. `room` is zeroed, large enough, and
 * lives until the message is sent. */
static inline void ancillary_put(struct msghdr *m, void *room, const int *fds, size_t count)
{
    m->msg_control = room;
    m->msg_controllen = CMSG_SPACE(count * sizeof *fds);
    struct cmsghdr *c = CMSG_FIRSTHDR(m);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(count * sizeof *fds);
    memcpy(CMSG_DATA(c), fds, count * sizeof *fds);
}

/* Takes up to `most` descriptors that came with a message and closes the rest: because of
 * alignment, the kernel may deliver more than there is room for. Returns their number. */
static inline size_t ancillary_take(struct msghdr *m, int *fds, size_t most)
{
    size_t taken = 0;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
        bool ours = c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS;
        size_t count = ours ? (c->cmsg_len - CMSG_LEN(0)) / sizeof *fds : 0;
        for (size_t i = 0; i < count; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
            if (taken < most)
                fds[taken++] = fd;
            else
                close(fd);
        }
    }
    return taken;
}

#endif
