/* net/websocket_frame.h: the frames of RFC 6455 as a client has them: what a server says is taken apart strictly, what goes to
 * it is masked. It does no I/O: bytes in, bytes out.
 */
#ifndef DROSTE_NET_WEBSOCKET_FRAME_H
#define DROSTE_NET_WEBSOCKET_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "base/buf.h"
#include "base/error.h"

enum {
    WEBSOCKET_CONTROL_MAX = 125, /* bytes of a control frame (section 5.5) */
    WEBSOCKET_HEADER_MAX = 10,   /* of a server's frame, which has no mask */
};

enum websocket_opcode {
    WEBSOCKET_CONTINUATION = 0,
    WEBSOCKET_TEXT = 1,
    WEBSOCKET_BINARY = 2,
    WEBSOCKET_CLOSE = 8,
    WEBSOCKET_PING = 9,
    WEBSOCKET_PONG = 10,
};

/* What a close frame says is wrong (section 7.4.1). */
enum websocket_status {
    WEBSOCKET_NORMAL = 1000,
    WEBSOCKET_WRONG = 1002,
    WEBSOCKET_NO_STATUS = 1005, /* none was said; never sent */
    WEBSOCKET_NO_TEXT = 1007,
    WEBSOCKET_TOO_LARGE = 1009,
};

/* Of a message, in pieces as they come: `kind` is TEXT or BINARY, `end` says that this is its last piece, which may be empty. Of a
 * control frame, whole, with its opcode. False: stop here. */
typedef bool websocket_piece_fn(
    void *arg, enum websocket_opcode kind, bool end, const char *data, size_t len);

/* A zeroed one with its limit is new. */
struct websocket_decoder {
    size_t message_max; /* bytes of a message */
    unsigned char header[WEBSOCKET_HEADER_MAX];
    size_t header_len, header_size; /* so far; in all, 0: not known yet */
    uint64_t left;                  /* of this frame's payload */
    bool in_payload, end;           /* the frame is the last of its message */
    enum websocket_opcode opcode;   /* of this frame */
    enum websocket_opcode kind;     /* of the message that is under way; CONTINUATION: none is */
    uint64_t message_len;
    char control[WEBSOCKET_CONTROL_MAX];
    size_t control_len;
    bool over; /* a close frame came, or something wrong, or `piece` said stop */
};

/* ERROR_PROTOCOL: `status` is what the server is to be told. Nothing is taken after that, after a close frame, or after
 * `piece` has said stop. */
int websocket_decode(struct websocket_decoder *d, const char *data, size_t len,
    websocket_piece_fn *piece, void *arg, enum websocket_status *status, struct error *err);

/* The status and the words of a close frame; ERROR_PROTOCOL where it is none. */
int websocket_read_close(const char *data, size_t len, unsigned *status, const char **reason,
    size_t *reason_len, struct error *err);

/* Appends one frame, which is a whole message, masked with these four bytes. */
void websocket_encode(struct buf *out, enum websocket_opcode opcode, const unsigned char mask[4],
    const struct iovec *iov, int count);

#endif
