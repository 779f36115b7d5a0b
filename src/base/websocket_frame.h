/* base/websocket_frame.h: frames of RFC 6455, for clients (net/websocket.c) and servers
 * (serve/http/socket.c): parses the other side's strictly. A client's frames are masked, a server's
 * are not. It does no I/O: bytes in, bytes out.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "base/buf.h"
#include "base/error.h"

enum {
    WEBSOCKET_CONTROL_MAX = 125, /* bytes of a control frame (section 5.5) */
    WEBSOCKET_HEADER_MAX = 14,   /* of a frame, with its mask */
    WEBSOCKET_MASK_SIZE = 4,
};

enum websocket_opcode {
    WEBSOCKET_CONTINUATION = 0,
    WEBSOCKET_TEXT = 1,
    WEBSOCKET_BINARY = 2,
    WEBSOCKET_CLOSE = 8,
    WEBSOCKET_PING = 9,
    WEBSOCKET_PONG = 10,
};

/* Statuses of close frames (section 7.4.1). */
enum websocket_status {
    WEBSOCKET_NORMAL = 1000,
    WEBSOCKET_GOING_AWAY = 1001,
    WEBSOCKET_WRONG = 1002,
    WEBSOCKET_NO_STATUS = 1005, /* no status; never sent */
    WEBSOCKET_NO_TEXT = 1007,
    WEBSOCKET_POLICY = 1008,
    WEBSOCKET_TOO_LARGE = 1009,
    WEBSOCKET_FAILED = 1011,
};

/* Receives part of a message: `kind` is TEXT or BINARY, and `end` marks the last part, which may
 * be empty. Control frames are complete, with their opcode. Return false to stop. */
typedef bool websocket_piece_fn(
    void *arg, enum websocket_opcode kind, bool end, const char *data, size_t len);

/* A zeroed decoder with its limit is new. */
struct websocket_decoder {
    size_t message_max; /* maximum length of a message */
    bool from_client;   /* frames must be masked; otherwise they must not */
    unsigned char header[WEBSOCKET_HEADER_MAX];
    size_t header_len, header_size; /* so far; in total, 0: not known yet */
    uint64_t left;                  /* remaining payload of this frame */
    size_t payload_at;              /* bytes of the payload so far, for the mask */
    bool in_payload, end;           /* the frame is the last of its message */
    enum websocket_opcode opcode;   /* of this frame */
    enum websocket_opcode kind;     /* of the incomplete message; CONTINUATION: none */
    uint64_t message_len;
    char control[WEBSOCKET_CONTROL_MAX];
    size_t control_len;
    bool over; /* after a close frame, an error, or a stop by `piece` */
};

/* ERROR_PROTOCOL: `status` is the status to send to the other side. Ignores everything after that,
 * after a close frame, or after `piece` has returned false. */
int websocket_decode(struct websocket_decoder *d, const char *data, size_t len,
    websocket_piece_fn *piece, void *arg, enum websocket_status *status, struct error *err);

/* Parses a close frame's status and reason; ERROR_PROTOCOL if it is invalid. */
int websocket_read_close(const char *data, size_t len, unsigned *status, const char **reason,
    size_t *reason_len, struct error *err);

/* Appends one frame with a complete message, masked with these four bytes; NULL: a server's. */
void websocket_encode(struct buf *out, enum websocket_opcode opcode, const unsigned char *mask,
    const struct iovec *iov, int count);

/* Appends the Sec-WebSocket-Accept of a Sec-WebSocket-Key (section 4.2.2). */
int websocket_accept(const char *key, struct buf *out, struct error *err);
