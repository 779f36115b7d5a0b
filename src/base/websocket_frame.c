/* base/websocket_frame.c: an incremental parser of frames, and the encoder. */
#include "base/websocket_frame.h"

#include <string.h>

#include "base/hash.h"
#include "base/json/json.h"
#include "base/text.h"

enum {
    FIN = 0x80,
    RESERVED = 0x70,
    OPCODE = 0x0F,
    MASKED = 0x80,
    LENGTH = 0x7F,
    LENGTH_16 = 126, /* values of the length field: the length is in the next two or eight bytes */
    LENGTH_64 = 127,
    UNMASKED_AT_ONCE = 4096,
};

/* ---- from the other side ---- */

static int websocket_frame_wrong(struct websocket_decoder *d, const char *what, struct error *err)
{
    d->over = true;
    return error_set(err, ERROR_PROTOCOL, "a WebSocket frame %s", what);
}

static bool is_control(enum websocket_opcode opcode)
{
    return opcode >= WEBSOCKET_CLOSE;
}

/* The length of the header without a mask, from its second byte. */
static size_t header_size(unsigned char second)
{
    switch (second & LENGTH) {
    case LENGTH_16:
        return 4;
    case LENGTH_64:
        return 10;
    default:
        return 2;
    }
}

static uint64_t read_length(const unsigned char *header)
{
    uint64_t length = 0;
    size_t size = header_size(header[1]);
    if (size == 2)
        return header[1] & LENGTH;
    for (size_t i = 2; i < size; i++)
        length = length << 8 | header[i];
    return length;
}

/* What is wrong with the first two bytes; NULL: nothing. */
static const char *websocket_frame_complaint(const struct websocket_decoder *d)
{
    unsigned opcode = d->header[0] & OPCODE, length = d->header[1] & LENGTH;
    bool last = d->header[0] & FIN;
    if (d->header[0] & RESERVED)
        return "has reserved bits";
    if ((d->header[1] & MASKED) && !d->from_client)
        return "of a server is masked";
    if (!(d->header[1] & MASKED) && d->from_client)
        return "of a client is not masked";
    if ((opcode > WEBSOCKET_BINARY && opcode < WEBSOCKET_CLOSE) || opcode > WEBSOCKET_PONG)
        return "is of no kind";
    if (is_control(opcode))
        return !last                            ? "of control is a part"
               : length > WEBSOCKET_CONTROL_MAX ? "of control is too large"
                                                : NULL;
    if (opcode == WEBSOCKET_CONTINUATION && d->kind == WEBSOCKET_CONTINUATION)
        return "goes on with nothing";
    if (opcode != WEBSOCKET_CONTINUATION && d->kind != WEBSOCKET_CONTINUATION)
        return "begins within another message";
    return NULL;
}

/* The header is complete. */
static int websocket_frame_begin(
    struct websocket_decoder *d, enum websocket_status *status, struct error *err)
{
    uint64_t length = read_length(d->header);
    size_t size = header_size(d->header[1]);
    if ((size == 4 && length < LENGTH_16) || (size == 10 && length <= 0xFFFF))
        return websocket_frame_wrong(d, "has a length in more bytes than it needs", err);
    d->opcode = d->header[0] & OPCODE;
    d->end = d->header[0] & FIN;
    d->left = length;
    d->in_payload = true;
    d->header_len = d->header_size = 0;
    d->payload_at = 0;
    d->control_len = 0;
    if (is_control(d->opcode))
        return 0;
    if (d->opcode != WEBSOCKET_CONTINUATION) {
        d->kind = d->opcode;
        d->message_len = 0;
    }
    if (length > d->message_max || d->message_len + length > d->message_max) {
        *status = WEBSOCKET_TOO_LARGE;
        return websocket_frame_wrong(d, "is too large", err);
    }
    d->message_len += length;
    return 0;
}

/* Processes one byte of the header. */
static int take_header(
    struct websocket_decoder *d, char byte, enum websocket_status *status, struct error *err)
{
    d->header[d->header_len++] = (unsigned char)byte;
    if (d->header_len < 2)
        return 0;
    if (d->header_len == 2) {
        const char *what = websocket_frame_complaint(d);
        if (what)
            return websocket_frame_wrong(d, what, err);
        d->header_size = header_size(d->header[1]) + (d->from_client ? WEBSOCKET_MASK_SIZE : 0);
    }
    return d->header_len == d->header_size ? websocket_frame_begin(d, status, err) : 0;
}

/* Delivers `len` bytes of the payload, possibly the last. */
static void websocket_frame_take_payload(
    struct websocket_decoder *d, const char *data, size_t len, websocket_piece_fn *piece, void *arg)
{
    bool more = true;
    d->left -= len;
    d->in_payload = d->left > 0;
    if (is_control(d->opcode)) {
        memcpy(d->control + d->control_len, data, len);
        d->control_len += len;
        if (d->left > 0)
            return;
        d->over = d->opcode == WEBSOCKET_CLOSE;
        more = piece(arg, d->opcode, true, d->control, d->control_len);
    } else {
        enum websocket_opcode kind = d->kind;
        bool end = d->end && d->left == 0;
        if (end)
            d->kind = WEBSOCKET_CONTINUATION;
        if (len > 0 || end)
            more = piece(arg, kind, end, data, len);
    }
    if (!more)
        d->over = true;
}

/* The same for what may be masked; *len becomes what was taken. */
static void websocket_frame_unmask_payload(struct websocket_decoder *d, const char *data,
    size_t *len, websocket_piece_fn *piece, void *arg)
{
    char plain[UNMASKED_AT_ONCE];
    /* The header stays where it was until the next frame begins. */
    const unsigned char *mask = d->header + header_size(d->header[1]);
    if (!d->from_client) {
        websocket_frame_take_payload(d, data, *len, piece, arg);
        return;
    }
    if (*len > sizeof plain)
        *len = sizeof plain;
    for (size_t i = 0; i < *len; i++)
        plain[i] = (char)(data[i] ^ mask[d->payload_at++ & 3]);
    websocket_frame_take_payload(d, plain, *len, piece, arg);
}

int websocket_decode(struct websocket_decoder *d, const char *data, size_t len,
    websocket_piece_fn *piece, void *arg, enum websocket_status *status, struct error *err)
{
    int rc = 0;
    *status = WEBSOCKET_WRONG;
    while (rc == 0 && len > 0 && !d->over) {
        size_t n = 1;
        if (!d->in_payload) {
            rc = take_header(d, *data, status, err);
        } else {
            n = d->left < len ? (size_t)d->left : len;
            websocket_frame_unmask_payload(d, data, &n, piece, arg);
        }
        data += n;
        len -= n;
        /* An empty frame ends with its header. */
        if (rc == 0 && !d->over && d->in_payload && d->left == 0)
            websocket_frame_take_payload(d, data, 0, piece, arg);
    }
    return rc;
}

static bool websocket_frame_is_status(unsigned status)
{
    return (status >= 1000 && status <= 1003) || (status >= 1007 && status <= 1014) ||
           (status >= 3000 && status <= 4999);
}

int websocket_read_close(const char *data, size_t len, unsigned *status, const char **reason,
    size_t *reason_len, struct error *err)
{
    const unsigned char *p = (const unsigned char *)data;
    *status = WEBSOCKET_NO_STATUS;
    *reason = "";
    *reason_len = 0;
    if (len == 0)
        return 0;
    if (len == 1 || !websocket_frame_is_status((unsigned)p[0] << 8 | p[1]))
        return error_set(err, ERROR_PROTOCOL, "a WebSocket is closed with a status that is none");
    if (!text_is_utf8(data + 2, len - 2, NULL))
        return error_set(err, ERROR_PROTOCOL, "a WebSocket is closed with words that are not text");
    *status = (unsigned)p[0] << 8 | p[1];
    *reason = data + 2;
    *reason_len = len - 2;
    return 0;
}

/* ---- to the other side ---- */

static void websocket_frame_write_header(
    struct buf *out, enum websocket_opcode opcode, bool masked, size_t len)
{
    unsigned char header[WEBSOCKET_HEADER_MAX] = { (unsigned char)(FIN | opcode) };
    size_t size = len < LENGTH_16 ? 2 : len <= 0xFFFF ? 4 : 10;
    header[1] = (unsigned char)((masked ? MASKED : 0) | (size == 2      ? len
                                                            : size == 4 ? LENGTH_16
                                                                        : LENGTH_64));
    for (size_t i = size; i > 2; i--, len >>= 8)
        header[i - 1] = (unsigned char)len;
    buf_append(out, header, size);
}

void websocket_encode(struct buf *out, enum websocket_opcode opcode, const unsigned char *mask,
    const struct iovec *iov, int count)
{
    static const unsigned char none[WEBSOCKET_MASK_SIZE];
    size_t len = 0, at = 0;
    for (int i = 0; i < count; i++)
        len += iov[i].iov_len;
    websocket_frame_write_header(out, opcode, mask != NULL, len);
    if (mask)
        buf_append(out, mask, WEBSOCKET_MASK_SIZE);
    if (!buf_reserve(out, len))
        return;
    for (int i = 0; i < count; i++) {
        const unsigned char *from = iov[i].iov_base;
        for (size_t k = 0; k < iov[i].iov_len; k++, at++)
            out->data[out->len + at] = (char)(from[k] ^ (mask ? mask : none)[at & 3]);
    }
    out->len += len;
    out->data[out->len] = '\0';
}

int websocket_accept(const char *key, struct buf *out, struct error *err)
{
    unsigned char digest[HASH_SHA1_SIZE];
    cleanup_buf struct buf text = { 0 };
    buf_printf(&text, "%s258EAFA5-E914-47DA-95CA-C5AB0DC85B11", key); /* RFC 6455, section 1.3 */
    if (buf_failed(&text))
        return error_memory(err);
    int rc = hash_sha1(text.data, text.len, digest, err);
    if (rc == 0)
        json_append_base64(out, digest, sizeof digest);
    return rc == 0 && buf_failed(out) ? error_memory(err) : rc;
}
