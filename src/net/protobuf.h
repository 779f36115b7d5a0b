/* net/protobuf.h: protocol buffers' wire format, as much of it as messages of numbers, bytes and
 * messages need.
 *
 * The reader goes through a stranger's bytes without memory or recursion: each length is checked, and
 * fields with other numbers are passed over.
 *
 * Why not a library: protobuf-c needs a compiler of .proto files for the build, and unpacks each
 * message into a tree on the heap; the two services here take 120 lines and no allocation.
 */
#ifndef DROSTE_NET_PROTOBUF_H
#define DROSTE_NET_PROTOBUF_H

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
    bool is_bytes;    /* bytes, a text or a message; else a number */
    uint64_t value;   /* of a number, also one of fixed width */
    const char *data; /* into what is read */
    size_t len;
};

/* 1: a field; 0: there is none behind the last; ERROR_PROTOCOL. */
int protobuf_next(struct protobuf_reader *r, struct protobuf_field *field, struct error *err);
/* The number of a sint32 or sint64. */
int64_t protobuf_signed(uint64_t value);

void protobuf_put_number(struct buf *out, uint32_t number, uint64_t value);
void protobuf_put_bytes(struct buf *out, uint32_t number, const void *data, size_t len);
void protobuf_put_text(struct buf *out, uint32_t number, const char *text);
/* The head of a field of so many bytes, which are to follow. */
void protobuf_put_head(struct buf *out, uint32_t number, size_t len);

#endif
