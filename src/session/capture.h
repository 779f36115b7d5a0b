/* session/capture.h: keeps the beginning and the end of a stream of any length. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

struct capture {
    size_t limit; /* bytes to keep: half from the beginning, half from the end */
    struct buf head;
    struct buf tail; /* once it has half the limit, its oldest byte is at tail_at */
    size_t tail_at;
    uint64_t total;
};

void capture_add(struct capture *c, const char *data, size_t len);
/* Moves the captured text to `out` as UTF-8, with a line in the middle that counts missing
 * bytes, and starts anew. Returns the number of bytes left out. */
uint64_t capture_take(struct capture *c, struct buf *out);
void capture_free(struct capture *c);
