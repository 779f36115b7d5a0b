/* net/protobuf.h: the wire format of protocol buffers, for messages of numbers, bytes and messages.
 *
 * The reader processes untrusted bytes without memory or recursion: it checks each length and skips
 * unknown fields.
 *
 * Why not a library: protobuf-c needs a .proto compiler for the build and unpacks each message into
 * a tree on the heap; the two services here take 120 lines and no allocation.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/error.h"

struct protobuf_reader {
    const char *at, *end;
};

struct protobuf_field {
    uint32_t number;
    bool is_bytes;    /* bytes, a string or a message; otherwise a number */
    uint64_t value;   /* of a number, including fixed width */
    const char *data; /* points into the input */
    size_t len;
};

/* Returns 1 for a field, 0 at the end, or ERROR_PROTOCOL. */
int protobuf_next(struct protobuf_reader *r, struct protobuf_field *field, struct error *err);

void protobuf_put_number(struct buf *out, uint32_t number, uint64_t value);
void protobuf_put_bytes(struct buf *out, uint32_t number, const void *data, size_t len);
void protobuf_put_text(struct buf *out, uint32_t number, const char *text);
/* Appends the head of a field; its `len` bytes follow. */
void protobuf_put_head(struct buf *out, uint32_t number, size_t len);
