/* egress/body.h: where the body of a message ends (RFC 9112, 6).
 *
 * The bytes pass unchanged. Chunks are checked on the way: no extensions, no trailers.
 */
#ifndef DROSTE_EGRESS_BODY_H
#define DROSTE_EGRESS_BODY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum egress_framing { BODY_NONE, BODY_LENGTH, BODY_CHUNKED, BODY_UNTIL_CLOSE };

struct egress_body {
    enum egress_framing framing;
    uint64_t left; /* of the length, or of the chunk */
    unsigned state, digits;
};

/* How many of the bytes belong to the body. *bad: the next one is malformed. */
size_t egress_body_take(struct egress_body *body, const char *data, size_t len, bool *bad);
bool egress_body_has_ended(const struct egress_body *body);

#endif
