/* wire/mux.c: decodes a supervisor's messages and passes long payloads on in pieces. */
#include "wire/mux.h"

#include <endian.h>
#include <stdbool.h>
#include <string.h>

#include "base/cleanup.h"

void mux_write_header(
    unsigned char out[MUX_HEADER_SIZE], enum mux_kind kind, uint32_t worker, size_t len)
{
    uint32_t number = htole32(worker), length = htole32((uint32_t)len);
    memset(out, 0, MUX_HEADER_SIZE);
    out[0] = (unsigned char)kind;
    memcpy(out + 4, &number, 4);
    memcpy(out + 8, &length, 4);
}

/* What the host accepts, one row per kind. */
static const struct rule {
    uint8_t kind;
    bool piecemeal;
    bool of_worker;
    size_t max;
} rules[] = {
    { MUX_HELLO, false, false, MUX_JSON_MAX },
    { MUX_BYTES, true, true, MUX_PIECE_MAX },
    { MUX_OUTPUT, true, true, MUX_PIECE_MAX },
    { MUX_EXIT, false, true, MUX_JSON_MAX },
    { MUX_CREDIT_MORE, false, true, 4 },
};

static const struct rule *rule_of(uint8_t kind)
{
    for (size_t i = 0; i < array_length(rules); i++)
        if (rules[i].kind == kind)
            return &rules[i];
    return NULL;
}

static int open_header(struct mux_decoder *d, struct error *err)
{
    uint32_t worker, len;
    memcpy(&worker, d->header + 4, 4);
    memcpy(&len, d->header + 8, 4);
    d->message = (struct mux_message){
        .kind = d->header[0], .stream = d->header[1], .worker = le32toh(worker)
    };
    d->left = le32toh(len);
    const struct rule *rule = rule_of(d->message.kind);
    if (!rule || d->left > rule->max || rule->of_worker != (d->message.worker != 0) ||
        (d->message.kind == MUX_OUTPUT && d->message.stream != 1 && d->message.stream != 2))
        return error_set(err, ERROR_PROTOCOL, "the supervisor sent an invalid message");
    return 0;
}

static size_t fill_header(struct mux_decoder *d, const char *data, size_t len)
{
    size_t want = MUX_HEADER_SIZE - d->header_len;
    size_t n = len < want ? len : want;
    memcpy(d->header + d->header_len, data, n);
    d->header_len += n;
    return n;
}

/* Consumes bytes of the payload, and passes on pieces or the whole message. */
static int mux_take_payload(
    struct mux_decoder *d, const char *data, size_t n, mux_fn *fn, void *arg, struct error *err)
{
    int rc = 0;
    d->left -= n;
    d->message.data = data;
    d->message.len = n;
    bool piecemeal = rule_of(d->message.kind)->piecemeal;
    if (!piecemeal) {
        buf_append(&d->body, data, n);
        if (buf_failed(&d->body))
            return error_memory(err);
        d->message.data = buf_text(&d->body);
        d->message.len = d->body.len;
    }
    if (piecemeal ? n > 0 : d->left == 0)
        rc = fn(arg, &d->message, err);
    if (d->left == 0) {
        d->header_len = 0;
        buf_clear(&d->body);
    }
    return rc;
}

int mux_feed(
    struct mux_decoder *d, const char *data, size_t len, mux_fn *fn, void *arg, struct error *err)
{
    int rc = 0;
    while (rc == 0 && len > 0) {
        size_t n = 0;
        if (d->header_len < MUX_HEADER_SIZE) {
            n = fill_header(d, data, len);
            data += n;
            len -= n;
            if (d->header_len < MUX_HEADER_SIZE)
                break;
            rc = open_header(d, err);
        }
        n = len < d->left ? len : d->left;
        if (rc == 0 && (n > 0 || d->left == 0))
            rc = mux_take_payload(d, data, n, fn, arg, err);
        data += n;
        len -= n;
    }
    return rc;
}

void mux_decoder_free(struct mux_decoder *d)
{
    buf_free(&d->body);
}
