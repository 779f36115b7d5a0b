/* lm/sse.h: an event stream (WHATWG HTML, "Server-sent events"), parsed as its bytes arrive.
 *
 * The caller pulls: it hands over what came and takes one event after another out of it, so that
 * it may stop (or free the parser) between any two. Only `data` matters to models; other fields and
 * comments are dropped. A zeroed sse with a limit is a new one.
 */
#ifndef DROSTE_LM_SSE_H
#define DROSTE_LM_SSE_H

#include "base/buf.h"
#include "base/error.h"

struct sse {
    size_t limit;    /* bytes of one event, its unfinished line included */
    struct buf line; /* the line so far */
    struct buf data; /* the event so far; the whole event when sse_next returned 1 */
    bool has_data;   /* a data field was seen, maybe an empty one */
    bool ready;      /* `data` was given out and goes at the next call */
    bool after_cr;   /* an LF that comes now belongs to the CR before it */
    bool begun;      /* past the place of a byte order mark */
};

/* Reads from *p on, and moves it. 1: an event, in s->data until the next call; 0: all bytes were
 * taken and more are needed; negative: ERROR_MODEL_REPLY (over the limit) or ERROR_MEMORY. */
int sse_next(struct sse *s, const char **p, const char *end, struct error *err);
void sse_free(struct sse *s);

#endif
