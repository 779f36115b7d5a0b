/* env/common/send_queue.c: sends to a non-blocking UNIX socket with descriptors. */
#include "env/common/send_queue.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <linux/sockios.h>

#include "base/os/ancillary.h"
#include "base/cleanup.h"

struct unsent {
    struct unsent *next;
    int fd; /* travels with the first byte; -1: none, or sent */
    size_t at, len;
    char data[];
};

/* Sends one piece, with its descriptor if it has one. Returns like write(2). */
static ssize_t send_piece(int channel, const struct iovec *iov, int count, int fd)
{
    ANCILLARY(1) room = { { 0 } };
    struct msghdr m = { .msg_iov = (struct iovec *)(uintptr_t)iov, .msg_iovlen = (size_t)count };
    if (fd >= 0)
        ancillary_put(&m, &room, &fd, 1);
    ssize_t n;
    do
        n = sendmsg(channel, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    return n;
}

/* True if the socket is full; any other error means that the reader is gone. */
static bool is_full(ssize_t n)
{
    return n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS);
}

void send_queue_drop(struct send_queue *box)
{
    while (box->first) {
        struct unsent *u = box->first;
        box->first = u->next;
        close_fd(&u->fd);
        free(u);
    }
    box->last = NULL;
    box->bytes = 0;
}

bool send_queue_flush(struct send_queue *box, int socket)
{
    while (box->first && !box->is_held) {
        struct unsent *u = box->first;
        struct iovec iov = { u->data + u->at, u->len - u->at };
        ssize_t n = send_piece(socket, &iov, 1, u->fd);
        if (is_full(n))
            return false;
        if (n < 0) {
            send_queue_drop(box);
            return true;
        }
        close_fd(&u->fd);
        u->at += (size_t)n;
        box->bytes -= (size_t)n;
        if (u->at < u->len)
            return false;
        box->bytes -= sizeof *u;
        box->first = u->next;
        if (!box->first)
            box->last = NULL;
        free(u);
    }
    return !box->first;
}

bool send_queue_waits(const struct send_queue *box)
{
    return box->first && !box->is_held;
}

/* SIOCOUTQ of a UNIX socket counts bytes that the other end has not read, unix(7). */
bool send_queue_is_clear(const struct send_queue *box, int socket)
{
    int queued = 0;
    return !box->first && ioctl(socket, SIOCOUTQ, &queued) == 0 && queued == 0;
}

/* Queues everything after the first `sent` bytes. */
static int send_queue_keep(struct send_queue *box, const struct iovec *iov, int count, size_t total,
    size_t sent, int *fd, struct error *err)
{
    struct unsent *u = malloc(sizeof *u + total - sent);
    if (!u)
        return error_memory(err);
    *u = (struct unsent){ .fd = steal_fd(fd), .len = total - sent };
    size_t at = 0;
    for (int i = 0; i < count; i++) {
        size_t skip = sent < iov[i].iov_len ? sent : iov[i].iov_len;
        sent -= skip;
        if (iov[i].iov_len == skip) /* its base may be NULL */
            continue;
        memcpy(u->data + at, (const char *)iov[i].iov_base + skip, iov[i].iov_len - skip);
        at += iov[i].iov_len - skip;
    }
    if (box->last)
        box->last->next = u;
    else
        box->first = u;
    box->last = u;
    box->bytes += sizeof *u + u->len;
    return 0;
}

int send_queue_send(struct send_queue *box, int socket, const struct iovec *iov, int count,
    int fd_given, struct error *err)
{
    cleanup_fd int fd = fd_given;
    size_t total = 0;
    ssize_t n = 0;
    for (int i = 0; i < count; i++)
        total += iov[i].iov_len;
    if (!box->first && !box->is_held && socket >= 0) {
        n = send_piece(socket, iov, count, fd);
        if (n < 0 && errno == ETOOMANYREFS)
            return error_set(err, ERROR_UNSUPPORTED,
                "too many descriptors of this user are in flight through sockets; try again later");
        if (n < 0 && !is_full(n))
            return 0;
        if (n < 0)
            n = 0;
        else
            close_fd(&fd);
    }
    return (size_t)n == total ? 0 : send_queue_keep(box, iov, count, total, (size_t)n, &fd, err);
}
