/* base/os/ancillary.h: passing descriptors with a message, unix(7). */
#pragma once

#include <errno.h>
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

/* Receives one message and up to `most` descriptors, close-on-exec, whose number goes to `count`.
 * Returns the length, 0 at the end, or -1 with errno. */
static inline ssize_t ancillary_receive(
    int from, void *data, size_t size, int flags, int *fds, int most, int *count)
{
    ANCILLARY(9) room;
    struct iovec iov = { data, size };
    struct msghdr m = {
        .msg_iov = &iov,
        .msg_iovlen = 1,
        .msg_control = room.bytes,
        .msg_controllen = sizeof room.bytes,
    };
    ssize_t n;
    do
        n = recvmsg(from, &m, MSG_CMSG_CLOEXEC | flags);
    while (n < 0 && errno == EINTR);
    *count = n > 0 ? (int)ancillary_take(&m, fds, (size_t)most) : 0;
    return n;
}
