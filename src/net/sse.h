/* net/sse.h: an incremental parser for event streams (WHATWG HTML, "Server-sent events").
 *
 * The caller pulls: it passes in the bytes that arrived and takes one event after another, so that
 * it may stop, or free the parser, between any two. Its users need only `data`; other fields and
 * comments are dropped. A zeroed sse with a limit and a code is a new one.
 */
#pragma once

#include "base/buf.h"
#include "base/error.h"

struct sse {
    size_t limit;         /* bytes of one event, including its incomplete line */
    enum error_code code; /* of the error of a longer one */
    struct buf line;      /* the incomplete line */
    struct buf data;      /* the event so far; complete when sse_next returned 1 */
    bool has_data;        /* a data field was seen, possibly empty */
    bool ready;           /* `data` was returned and is cleared in the next call */
    bool after_cr;        /* an LF now belongs to the preceding CR */
    bool begun;           /* past a possible byte order mark */
};

/* Reads from *p and advances it. 1: an event, in s->data until the next call; 0: all bytes were
 * consumed and more are needed; negative: s->code (over the limit) or ERROR_MEMORY. */
int sse_next(struct sse *s, const char **p, const char *end, struct error *err);
void sse_free(struct sse *s);
