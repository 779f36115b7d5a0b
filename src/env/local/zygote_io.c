/* env/local/zygote_io.c: messages to a zygote and from it. */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "base/os/ancillary.h"
#include "base/cleanup.h"
#include "env/local/zygote_internal.h"

ssize_t zygote_receive(int control, void *data, size_t size, int *fd)
{
    int count;
    *fd = -1;
    return ancillary_receive(control, data, size, MSG_DONTWAIT, fd, 1, &count);
}

static int zygote_send(int control, const struct msghdr *m)
{
    ssize_t n;
    do
        n = sendmsg(control, m, MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    return n < 0 ? -1 : 0;
}

int zygote_send_copy(const struct zygote_process *to, int control)
{
    struct zygote_request request = { .kind = ZYGOTE_COPY };
    struct iovec iov = { &request, sizeof request };
    struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };
    ANCILLARY(1) room = { { 0 } };
    ancillary_put(&m, &room, &control, 1);
    return zygote_send(to->control, &m);
}

int zygote_send_clone(struct zygote_process *to, struct zygote_pending *p)
{
    struct zygote_request request = { .kind = ZYGOTE_CLONE, .id = p->id, .tag = p->tag };
    size_t count = ZYGOTE_CLONE_FDS;
    struct iovec iov[2] = { { &request, sizeof request },
        { (void *)(uintptr_t)p->plan, p->plan->size } };
    ANCILLARY(ZYGOTE_CLONE_FDS_MAX) room = { { 0 } };
    int fds[ZYGOTE_CLONE_FDS_MAX];
    memcpy(fds, p->fds, sizeof p->fds);
    for (int i = 0; i < ZYGOTE_EXTRA_COUNT; i++) {
        if (p->extra[i] < 0)
            continue;
        fds[count++] = p->extra[i];
        request.extras |= 1u << i;
    }
    struct msghdr m = { .msg_iov = iov, .msg_iovlen = 2 };
    ancillary_put(&m, &room, fds, count);
    if (zygote_send(to->control, &m) < 0)
        return -1;
    for (int i = 0; i < ZYGOTE_CLONE_FDS; i++)
        close_fd(&p->fds[i]);
    p->sent = to;
    to->under_way++;
    return 0;
}
