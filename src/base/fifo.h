/* base/fifo.h: a byte queue in contiguous memory. Each byte is moved a constant number of times,
 * however small the pieces are in which it is taken out. A zeroed fifo is empty.
 */
#pragma once

#include <stdint.h>

#include "base/buf.h"

struct fifo {
    struct buf bytes;
    size_t at; /* those before it have gone */
};

/* Appends; as in buf_append, running out of memory is sticky. */
void fifo_add(struct fifo *f, const void *data, size_t len);
/* Removes the first n bytes. */
void fifo_drop(struct fifo *f, size_t n);
void fifo_free(struct fifo *f);
/* Sends what the socket takes without waiting; *sent (may be NULL) grows by that. False: the other
 * end has closed, or memory ran out before. */
bool fifo_send(struct fifo *f, int fd, uint64_t *sent);

static inline size_t fifo_len(const struct fifo *f)
{
    return f->bytes.len - f->at;
}

/* The first byte; valid until the queue changes. */
static inline const char *fifo_data(const struct fifo *f)
{
    return buf_text(&f->bytes) + f->at;
}

static inline bool fifo_failed(const struct fifo *f)
{
    return buf_failed(&f->bytes);
}
