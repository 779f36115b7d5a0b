/* net/protobuf.c: reads and writes fields; see protobuf.dev/programming-guides/encoding. */
#include "net/protobuf.h"

#include <string.h>

enum wire { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };

enum { VARINT_MOST = 10 };

static int protobuf_bad(struct error *err, const char *what)
{
    return error_set(err, ERROR_PROTOCOL, "a protocol buffer with %s", what);
}

static int read_varint(struct protobuf_reader *r, uint64_t *out, struct error *err)
{
    *out = 0;
    for (unsigned i = 0; i < VARINT_MOST && r->at < r->end; i++) {
        unsigned char byte = (unsigned char)*r->at++;
        if (i == VARINT_MOST - 1 && byte > 1)
            break;
        *out |= (uint64_t)(byte & 0x7F) << (7 * i);
        if (byte < 0x80)
            return 0;
    }
    return protobuf_bad(err, "a number without an end");
}

/* Little-endian. */
static int read_fixed(struct protobuf_reader *r, size_t size, uint64_t *out, struct error *err)
{
    *out = 0;
    if ((size_t)(r->end - r->at) < size)
        return protobuf_bad(err, "half a number");
    for (size_t i = 0; i < size; i++)
        *out |= (uint64_t)(unsigned char)*r->at++ << (8 * i);
    return 0;
}

static int read_bytes(struct protobuf_reader *r, struct protobuf_field *field, struct error *err)
{
    int rc = read_varint(r, &field->value, err);
    if (rc < 0)
        return rc;
    if (field->value > (uint64_t)(r->end - r->at))
        return protobuf_bad(err, "a field that is longer than its message");
    field->is_bytes = true;
    field->data = r->at;
    field->len = (size_t)field->value;
    r->at += field->len;
    return 0;
}

int protobuf_next(struct protobuf_reader *r, struct protobuf_field *field, struct error *err)
{
    uint64_t key;
    *field = (struct protobuf_field){ 0 };
    if (r->at == r->end)
        return 0;
    int rc = read_varint(r, &key, err);
    if (rc < 0)
        return rc;
    if (key >> 3 == 0 || key >> 32 != 0)
        return protobuf_bad(err, "a field without a number");
    field->number = (uint32_t)(key >> 3);
    switch (key & 7) {
    case WIRE_VARINT:
        rc = read_varint(r, &field->value, err);
        break;
    case WIRE_64:
        rc = read_fixed(r, 8, &field->value, err);
        break;
    case WIRE_32:
        rc = read_fixed(r, 4, &field->value, err);
        break;
    case WIRE_BYTES:
        rc = read_bytes(r, field, err);
        break;
    default:
        rc = protobuf_bad(err, "a field of no known type");
    }
    return rc < 0 ? rc : 1;
}

static void put_varint(struct buf *out, uint64_t value)
{
    for (; value >= 0x80; value >>= 7)
        buf_putc(out, (char)(value | 0x80));
    buf_putc(out, (char)value);
}

void protobuf_put_number(struct buf *out, uint32_t number, uint64_t value)
{
    put_varint(out, (uint64_t)number << 3 | WIRE_VARINT);
    put_varint(out, value);
}

void protobuf_put_head(struct buf *out, uint32_t number, size_t len)
{
    put_varint(out, (uint64_t)number << 3 | WIRE_BYTES);
    put_varint(out, len);
}

void protobuf_put_bytes(struct buf *out, uint32_t number, const void *data, size_t len)
{
    protobuf_put_head(out, number, len);
    buf_append(out, data, len);
}

void protobuf_put_text(struct buf *out, uint32_t number, const char *text)
{
    protobuf_put_bytes(out, number, text, strlen(text));
}
