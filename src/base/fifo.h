/* base/fifo.h: bytes that come at one end and go at the other, in one piece of memory. Each byte is moved
 * a few times at most, however small the pieces are in which it goes. A zeroed fifo is an empty one.
 */
#ifndef DROSTE_BASE_FIFO_H
#define DROSTE_BASE_FIFO_H

#include "base/buf.h"

struct fifo {
    struct buf bytes;
    size_t at; /* those before it have gone */
};

/* Like buf_append: no memory is sticky. */
void fifo_add(struct fifo *f, const void *data, size_t len);
/* The first n bytes go. */
void fifo_drop(struct fifo *f, size_t n);
void fifo_free(struct fifo *f);

static inline size_t fifo_len(const struct fifo *f)
{
    return f->bytes.len - f->at;
}

/* The first of them; valid until something comes or goes. */
static inline const char *fifo_data(const struct fifo *f)
{
    return buf_text(&f->bytes) + f->at;
}

static inline bool fifo_failed(const struct fifo *f)
{
    return buf_failed(&f->bytes);
}

#endif
