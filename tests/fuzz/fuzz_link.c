/* A link, and the messages in it, under a hostile guest. The input is a script; each step begins
 * with a byte that says what happens: raw bytes of the guest's; a record of its with a right sum,
 * whose fields are the input's; the host sends, pings, or has the transport cut and joined. What
 * comes out of the link are bytes that the guest said under the right offset, each once; what the
 * host writes stays within what the guest can have honestly.
 */
#include "fuzz.h"

#include <endian.h>
#include <zlib.h>

#include "base/json/json.h"
#include "wire/link.h"
#include "wire/mux.h"

enum { STREAM = 1 << 20, WRITTEN_MAX = 64 << 20 };

struct host {
    struct link *link;
    struct mux_decoder decoder;
    enum link_form form;
    uint64_t nonce;
    size_t sent, written, received;
    bool refused;
};

/* Each byte of the guest's stream is known by its offset, so that one in the wrong place is
 * seen. */
static char byte_at(uint64_t offset)
{
    return (char)(offset * 11400714819323198485u >> 56);
}

static void on_write(void *arg, const struct iovec *iov, int count)
{
    struct host *h = arg;
    for (int i = 0; i < count; i++) {
        h->written += iov[i].iov_len;
        expect(iov[i].iov_len == 0 || iov[i].iov_base);
    }
}

static int on_message(void *arg, const struct mux_message *m, struct error *err)
{
    expect(m->len == 0 || m->data);
    expect(m->kind == MUX_BYTES || m->kind == MUX_OUTPUT || m->len <= MUX_JSON_MAX);
    return 0;
}

static int on_bytes(void *arg, const char *data, size_t len, struct error *err)
{
    struct host *h = arg;
    struct error why = { 0 };
    for (size_t i = 0; i < len; i++)
        expect(data[i] == byte_at(h->received + i));
    h->received += len;
    int rc = h->refused ? 0 : mux_feed(&h->decoder, data, len, on_message, h, &why);
    if (rc < 0) /* the stream is not made for it; what counts is that it says so */
        expect_error(rc, &why);
    h->refused = h->refused || rc < 0;
    return 0;
}

/* A record of the guest's. */
static void say_record(struct host *h, struct input *in, struct buf *out)
{
    unsigned char header[LINK_HEADER_SIZE] = { 0x1E, 'D', 'L', 1 };
    char payload[256];
    struct buf raw = { 0 };
    uint64_t base = input_byte(in) & 1 ? h->received : 0;
    uint64_t seq = base + input_byte(in) + (uint64_t)(input_byte(in) & 7) * 65536;
    uint64_t ack = input_byte(in) + (uint64_t)(input_byte(in) & 7) * 65536;
    size_t len = input_byte(in);
    header[4] = input_byte(in) % 5;
    header[5] = input_byte(in) & 3;
    if (header[4] == LINK_RESUME)
        len = 8;
    header[6] = (unsigned char)len;
    for (size_t i = 0; i < len; i++)
        payload[i] = byte_at(seq + i);
    uint64_t nonce = htole64(h->nonce - (input_byte(in) & 1));
    if (header[4] == LINK_RESUME)
        memcpy(payload, &nonce, sizeof nonce);
    seq = htole64(seq);
    ack = htole64(ack);
    memcpy(header + 8, &seq, 8);
    memcpy(header + 16, &ack, 8);
    uint32_t sum = htole32(
        (uint32_t)crc32_z(crc32(0, header, sizeof header - 4), (const Bytef *)payload, len));
    memcpy(header + 24, &sum, 4);
    buf_append(&raw, header, sizeof header);
    buf_append(&raw, payload, len);
    if (h->form == LINK_TEXT) {
        buf_putc(out, LINK_MARK);
        json_append_base64(out, raw.data, raw.len);
        buf_putc(out, '\n');
    } else {
        buf_append(out, raw.data, raw.len);
    }
    buf_free(&raw);
}

/* One step of the script; negative: the link has refused the guest. */
static int step(struct host *h, struct input *in, struct error *err)
{
    struct buf records = { 0 };
    uint8_t what = input_byte(in);
    size_t len = 0;
    char *piece = NULL;
    int rc = 0;
    switch (what % 8) {
    case 0:
        piece = input_piece(in, input_byte(in), &len);
        rc = link_feed(h->link, piece, len, err);
        break;
    case 1: {
        struct iovec iov = { (char[1000]){ 0 }, (size_t)input_byte(in) * 3 };
        h->sent += iov.iov_len;
        expect(h->sent > STREAM || link_send(h->link, &iov, 1, err) == 0);
        break;
    }
    case 2:
        link_ping(h->link);
        break;
    case 3:
        link_cut(h->link);
        link_resume(h->link, ++h->nonce);
        expect(!link_is_live(h->link));
        break;
    default:
        say_record(h, in, &records);
        rc = link_feed(h->link, buf_text(&records), records.len, err);
    }
    free(piece);
    buf_free(&records);
    return rc;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct link_events events = { on_write, on_bytes };
    struct input in = { data, size };
    struct host h = { .form = input_byte(&in) & 1 ? LINK_TEXT : LINK_BARE };
    struct link_options options = { .form = h.form };
    struct error err = { 0 };
    int rc = 0;
    expect(link_open(&options, &events, &h, &h.link, &err) == 0);
    link_begin(h.link);
    while (rc == 0 && in.left > 0)
        rc = step(&h, &in, &err);
    if (rc < 0)
        expect_error(rc, &err);
    expect(rc == 0 || err.code == ERROR_PROTOCOL);
    expect(h.written < WRITTEN_MAX);
    link_free(h.link);
    mux_decoder_free(&h.decoder);
    return 0;
}
