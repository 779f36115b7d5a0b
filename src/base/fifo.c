/* base/fifo.c: a byte queue that compacts itself when half of it is consumed. */
#include "base/fifo.h"

#include <errno.h>
#include <sys/socket.h>

enum { KEPT = 1 << 18 }; /* capacity that an empty queue keeps */

void fifo_add(struct fifo *f, const void *data, size_t len)
{
    /* Compacting now moves no more bytes than were consumed since the last time: amortised O(1). */
    if (f->at > f->bytes.len / 2) {
        buf_consume(&f->bytes, f->at);
        f->at = 0;
    }
    buf_append(&f->bytes, data, len);
}

void fifo_drop(struct fifo *f, size_t n)
{
    f->at += n < fifo_len(f) ? n : fifo_len(f);
    if (f->at < f->bytes.len)
        return;
    f->at = 0;
    if (f->bytes.cap > KEPT)
        buf_free(&f->bytes);
    else
        buf_clear(&f->bytes);
}

void fifo_free(struct fifo *f)
{
    buf_free(&f->bytes);
    f->at = 0;
}

bool fifo_send(struct fifo *f, int fd, uint64_t *sent)
{
    while (fifo_len(f) > 0 && !fifo_failed(f)) {
        ssize_t n = send(fd, fifo_data(f), fifo_len(f), MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno == EAGAIN;
        fifo_drop(f, (size_t)n);
        if (sent)
            *sent += (uint64_t)n;
    }
    return !fifo_failed(f);
}
