/* egress/body.h: where the body of a message ends (RFC 9112, 6).
 *
 * Chunks are checked on the way: no extensions, no trailers, unless it is a server that sends them.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum egress_framing { BODY_NONE, BODY_LENGTH, BODY_CHUNKED, BODY_UNTIL_CLOSE };

struct egress_body {
    enum egress_framing framing;
    bool is_lenient; /* chunks may have extensions, and trailers may follow */
    uint64_t left;   /* of the length, or of the chunk */
    unsigned state, digits;
};

/* How many of the bytes belong to the body. *bad: the next one is malformed. */
size_t egress_body_take(struct egress_body *body, const char *data, size_t len, bool *bad);
/* The same up to the end of one stretch of contents, which is *content, maybe empty. Less than
 * `len` taken, and neither ended nor *bad: there is more. */
size_t egress_body_next(struct egress_body *body, const char *data, size_t len,
    const char **content, size_t *content_len, bool *bad);
bool egress_body_has_ended(const struct egress_body *body);
