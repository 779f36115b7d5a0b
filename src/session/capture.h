/* session/capture.h: the beginning and the end of a stream of any length. */
#ifndef DROSTE_SESSION_CAPTURE_H
#define DROSTE_SESSION_CAPTURE_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

struct capture {
    size_t limit; /* bytes that are kept: half from the beginning, half from the end */
    struct buf head, tail;
    uint64_t total;
};

void capture_add(struct capture *c, const char *data, size_t len);
/* Moves what was captured to `out` as UTF-8, with a line that says how much is missing in the
 * middle, and starts anew. Returns the number of bytes left out. */
uint64_t capture_take(struct capture *c, struct buf *out);
void capture_free(struct capture *c);

#endif
