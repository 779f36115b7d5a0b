/* wire/link.c: the protocol of link.h as a state machine.
 *
 *   cut ── begin ──► live          cut ── resume ──► resuming ── RESUME with the nonce ──► live
 *   any ── cut ──► cut
 *
 * `queue` holds the unacknowledged bytes to the other side, from offset `acked`; those before
 * `next` are in flight. `top` is the highest offset ever sent, which no ack may exceed.
 */
#include "wire/link.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fifo.h"
#include "base/json/json.h"

enum {
    NONCE_SIZE = 8,
    /* input is processed in pieces, which bounds what is buffered */
    PIECE = 65536,
    LINE_MAX_ = (LINK_RECORD_MAX + 2) / 3 * 4 + 2, /* of LINK_TEXT, without the mark */
    /* resend requests allowed at once; received bytes allow more */
    GAPS_FREE = 64,
};

static const unsigned char magic[4] = { 0x1E, 'D', 'L', 1 };

struct link {
    struct link_options options;
    struct link_events events;
    void *arg;
    enum { STATE_CUT, STATE_RESUMING, STATE_LIVE } state;
    uint64_t nonce;

    struct fifo queue;
    uint64_t acked, next, top;
    uint64_t repeated; /* bytes sent again at the other side's request */

    uint64_t received;     /* everything before this offset has arrived */
    uint64_t acked_offset; /* the offset last acknowledged to the other side */
    uint64_t asked;        /* `received` when a resend was requested, or ASKED_NOTHING */
    uint64_t gaps;         /* number of those requests */
    struct buf in;         /* the incomplete record or line */
    bool in_line;          /* LINK_TEXT: the mark was read */
};

#define ASKED_NOTHING UINT64_MAX

struct record {
    uint8_t kind, flags;
    uint64_t seq, ack;
    const char *payload;
    size_t len;
};

/* ---- out ---- */

static void link_put_line(
    struct link *l, const unsigned char *header, const char *payload, size_t len)
{
    static const char mark = LINK_MARK;
    cleanup_buf struct buf raw = { 0 };
    cleanup_buf struct buf line = { 0 };
    buf_append(&raw, header, LINK_HEADER_SIZE);
    buf_append(&raw, payload, len);
    buf_putc(&line, mark);
    json_append_base64(&line, buf_text(&raw), raw.len);
    buf_putc(&line, '\n');
    struct iovec iov = { line.data, line.len };
    if (!buf_failed(&raw) && !buf_failed(&line)) /* otherwise it is lost, as it may be in transit */
        l->events.write(l->arg, &iov, 1);
}

static void put_record(
    struct link *l, enum link_kind kind, uint8_t flags, const char *payload, size_t len)
{
    unsigned char header[LINK_HEADER_SIZE];
    uint16_t length = htole16((uint16_t)len);
    uint64_t seq = htole64(l->next), ack = htole64(l->received);
    memcpy(header, magic, 4);
    header[4] = (unsigned char)kind;
    header[5] = flags;
    memcpy(header + 6, &length, 2);
    memcpy(header + 8, &seq, 8);
    memcpy(header + 16, &ack, 8);
    uLong crc = crc32(0, header, 24);
    if (len > 0) /* with no bytes, zlib would restart the sum */
        crc = crc32_z(crc, (const Bytef *)payload, len);
    uint32_t sum = htole32((uint32_t)crc);
    memcpy(header + 24, &sum, 4);
    l->acked_offset = l->received;
    if (l->options.form == LINK_TEXT) {
        link_put_line(l, header, payload, len);
        return;
    }
    struct iovec iov[2] = { { header, sizeof header }, { (void *)(uintptr_t)payload, len } };
    l->events.write(l->arg, iov, len ? 2 : 1);
}

/* Ends a record that the other side may be in the middle of. */
static void put_beginning(struct link *l)
{
    enum { BLOCK = 1024, BLOCKS = (LINK_RECORD_MAX + BLOCK - 1) / BLOCK };
    static const char zeros[BLOCK];
    static const char newline = '\n';
    struct iovec iov[BLOCKS];
    if (l->options.form == LINK_TEXT) {
        iov[0] = (struct iovec){ (void *)(uintptr_t)&newline, 1 };
        l->events.write(l->arg, iov, 1);
        return;
    }
    for (int i = 0; i < BLOCKS; i++)
        iov[i] = (struct iovec){ (void *)(uintptr_t)zeros, BLOCK };
    l->events.write(l->arg, iov, BLOCKS);
}

static void put_resume(struct link *l, uint8_t flags)
{
    uint64_t nonce = htole64(l->nonce);
    put_beginning(l);
    put_record(l, LINK_RESUME, flags, (const char *)&nonce, sizeof nonce);
}

/* Sends what the window allows. */
static void link_pump(struct link *l)
{
    uint64_t end = l->acked + fifo_len(&l->queue);
    uint64_t window_end = l->acked + l->options.send_window;
    if (window_end < end)
        end = window_end;
    while (l->state == STATE_LIVE && l->next < end) {
        const char *data = fifo_data(&l->queue) + (l->next - l->acked);
        size_t len = end - l->next < LINK_PAYLOAD_MAX ? (size_t)(end - l->next) : LINK_PAYLOAD_MAX;
        put_record(l, LINK_DATA, 0, data, len);
        l->next += len;
        if (l->next > l->top)
            l->top = l->next;
    }
}

/* ---- in ---- */

static int link_broken(struct error *err, const char *what)
{
    return error_set(err, ERROR_PROTOCOL, "the link to the guest: %s", what);
}

static int ask_again(struct link *l, bool once, struct error *err)
{
    if (once && l->asked == l->received)
        return 0;
    /* Each costs this side a record, which piles up if the guest does not read. */
    if (++l->gaps > GAPS_FREE + l->received / (l->options.receive_window / 4))
        return link_broken(err, "it keeps requesting a new request");
    l->asked = l->received;
    put_record(l, LINK_ACK, LINK_RESEND, NULL, 0);
    return 0;
}

static int link_take_data(struct link *l, const struct record *r, struct error *err)
{
    if (r->len == 0)
        return link_broken(err, "an empty data record");
    if (r->seq > l->received)
        return ask_again(l, true, err);
    uint64_t known = l->received - r->seq;
    if (known >= r->len)
        return 0; /* already received: it was sent again */
    l->received += r->len - known;
    l->asked = ASKED_NOTHING;
    int rc = l->events.bytes(l->arg, r->payload + known, r->len - (size_t)known, err);
    if (rc == 0 && l->state == STATE_LIVE &&
        l->received - l->acked_offset >= l->options.receive_window / 4)
        put_record(l, LINK_ACK, 0, NULL, 0);
    return rc;
}

static void link_go_back(struct link *l, uint64_t to)
{
    l->next = to;
}

/* The other side has received everything before this offset. */
static void take_ack(struct link *l, uint64_t ack)
{
    if (ack <= l->acked)
        return;
    fifo_drop(&l->queue, (size_t)(ack - l->acked));
    l->acked = ack;
    if (l->next < ack)
        l->next = ack;
}

static int take_resend(struct link *l, const struct record *r, struct error *err)
{
    if (r->ack < l->acked)
        return 0; /* an old one */
    l->repeated += l->next - r->ack;
    /* Within one attachment, only noise on a terminal loses anything. */
    if (!l->options.answers && l->repeated > 4 * l->options.send_window + l->acked)
        return link_broken(err, "it requests the same data again and again");
    link_go_back(l, r->ack);
    return 0;
}

static int take_resume(struct link *l, const struct record *r, struct error *err)
{
    uint64_t nonce;
    if (r->len != NONCE_SIZE || l->state == STATE_CUT)
        return 0;
    memcpy(&nonce, r->payload, sizeof nonce);
    nonce = le64toh(nonce);
    if (l->options.answers ? r->flags & LINK_ANSWER
                           : l->state != STATE_RESUMING || nonce != l->nonce)
        return 0; /* the answer to a duplicate, or an echo */
    if (r->ack < l->acked || r->ack > l->top)
        return link_broken(err, "it requests data that was discarded, or never sent");
    take_ack(l, r->ack);
    link_go_back(l, r->ack);
    l->asked = ASKED_NOTHING;
    l->state = STATE_LIVE;
    l->nonce = nonce;
    if (l->options.answers)
        put_resume(l, LINK_ANSWER);
    return 0;
}

/* A complete record while the link is live. */
static int take_live(struct link *l, const struct record *r, struct error *err)
{
    bool asked_for = r->kind == LINK_PING || r->flags & LINK_ANSWER;
    int rc = 0;
    if (r->ack > l->top)
        return link_broken(err, "it acknowledges data that was never sent");
    if (r->seq > l->received + l->options.receive_window)
        return link_broken(err, "it sends more than the window allows");
    take_ack(l, r->ack);
    if (r->kind == LINK_DATA)
        rc = link_take_data(l, r, err);
    else if (r->seq > l->received)
        rc = ask_again(l, !asked_for, err);
    if (rc == 0 && r->kind == LINK_ACK && r->flags & LINK_RESEND)
        rc = take_resend(l, r, err);
    if (rc == 0 && r->kind == LINK_PING && l->options.answers)
        put_record(l, LINK_ACK, LINK_ANSWER, NULL, 0);
    return rc;
}

static int take_record(struct link *l, const struct record *r, struct error *err)
{
    int rc = 0;
    if (r->kind == LINK_RESUME)
        rc = take_resume(l, r, err);
    else if (l->state == STATE_LIVE)
        rc = take_live(l, r, err);
    if (rc == 0)
        link_pump(l);
    return rc;
}

/* The length of the record with this header; 0 if the header is invalid. */
static size_t record_size(const char *data)
{
    uint16_t len;
    memcpy(&len, data + 6, 2);
    len = le16toh(len);
    bool known = data[4] >= LINK_DATA && data[4] <= LINK_PING && len <= LINK_PAYLOAD_MAX;
    return memcmp(data, magic, sizeof magic) == 0 && known ? LINK_HEADER_SIZE + (size_t)len : 0;
}

/* Processes a complete record if its checksum matches. */
static int link_take_bytes(struct link *l, const char *data, size_t size, struct error *err)
{
    struct record r = { .kind = (uint8_t)data[4],
        .flags = (uint8_t)data[5],
        .payload = data + LINK_HEADER_SIZE,
        .len = size - LINK_HEADER_SIZE };
    uint32_t checksum;
    uLong sum = crc32(0, (const Bytef *)data, 24);
    memcpy(&checksum, data + 24, 4);
    if (crc32_z(sum, (const Bytef *)r.payload, r.len) != le32toh(checksum))
        return 0;
    memcpy(&r.seq, data + 8, 8);
    memcpy(&r.ack, data + 16, 8);
    r.seq = le64toh(r.seq);
    r.ack = le64toh(r.ack);
    return take_record(l, &r, err);
}

static int feed_bare(struct link *l, const char *data, size_t len, struct error *err)
{
    size_t at = 0, size;
    int rc = 0;
    buf_append(&l->in, data, len);
    if (buf_failed(&l->in))
        return error_memory(err);
    for (; rc == 0 && l->in.len - at >= LINK_HEADER_SIZE; at += size) {
        const char *here = l->in.data + at;
        size = record_size(here);
        if (size > l->in.len - at)
            break;
        if (size) {
            rc = link_take_bytes(l, here, size, err);
            continue;
        }
        const char *next = memmem(here + 1, l->in.len - at - 1, magic, sizeof magic);
        /* The last bytes may begin the magic. */
        size = next ? (size_t)(next - here) : l->in.len - at - (sizeof magic - 1);
    }
    buf_consume(&l->in, at);
    return rc;
}

static int link_take_line(struct link *l, struct error *err)
{
    size_t len = l->in.len, size = 0;
    if (len > 0 && l->in.data[len - 1] == '\r')
        len--;
    cleanup_free char *record = json_base64_bytes(buf_text(&l->in), len, &size);
    if (!record || size < LINK_HEADER_SIZE || record_size(record) != size)
        return 0;
    return link_take_bytes(l, record, size, err);
}

/* Keeps what follows the last mark, unless the line is too long. */
static void gather_line(struct link *l, const char *data, size_t len)
{
    const char *mark = memrchr(data, LINK_MARK, len);
    if (mark) {
        l->in_line = true;
        buf_clear(&l->in);
        len -= (size_t)(mark + 1 - data);
        data = mark + 1;
    }
    if (l->in_line && l->in.len + len > LINE_MAX_)
        l->in_line = false;
    if (l->in_line)
        buf_append(&l->in, data, len);
}

static int feed_text(struct link *l, const char *data, size_t len, struct error *err)
{
    int rc = 0;
    while (rc == 0 && len > 0) {
        const char *end = memchr(data, '\n', len);
        size_t part = end ? (size_t)(end - data) : len;
        gather_line(l, data, part);
        if (end && l->in_line)
            rc = link_take_line(l, err);
        if (end)
            l->in_line = false;
        part += end != NULL;
        data += part;
        len -= part;
    }
    return rc;
}

int link_feed(struct link *l, const char *data, size_t len, struct error *err)
{
    int rc = 0;
    while (rc == 0 && len > 0 && l->state != STATE_CUT) {
        size_t part = len < PIECE ? len : PIECE;
        rc = l->options.form == LINK_TEXT ? feed_text(l, data, part, err)
                                          : feed_bare(l, data, part, err);
        data += part;
        len -= part;
    }
    return rc;
}

/* ---- the rest ---- */

int link_send(struct link *l, const struct iovec *iov, int count, struct error *err)
{
    for (int i = 0; i < count; i++)
        fifo_add(&l->queue, iov[i].iov_base, iov[i].iov_len);
    if (fifo_failed(&l->queue))
        return error_memory(err);
    link_pump(l);
    return 0;
}

void link_ping(struct link *l)
{
    if (l->state == STATE_RESUMING)
        put_resume(l, 0);
    else if (l->state == STATE_LIVE)
        put_record(l, LINK_PING, 0, NULL, 0);
}

static void link_forget_input(struct link *l)
{
    buf_clear(&l->in);
    l->in_line = false;
}

void link_begin(struct link *l)
{
    link_forget_input(l);
    l->state = STATE_LIVE;
    link_pump(l);
}

void link_resume(struct link *l, uint64_t nonce)
{
    link_forget_input(l);
    l->state = STATE_RESUMING;
    l->nonce = nonce;
    put_resume(l, 0);
}

void link_cut(struct link *l)
{
    l->state = STATE_CUT;
}

bool link_is_live(const struct link *l)
{
    return l->state == STATE_LIVE;
}

size_t link_unacknowledged(const struct link *l)
{
    return fifo_len(&l->queue);
}

int link_open(const struct link_options *options, const struct link_events *events, void *arg,
    struct link **out, struct error *err)
{
    struct link *l = calloc(1, sizeof *l);
    if (!l)
        return error_memory(err);
    l->options = *options;
    l->events = *events;
    l->arg = arg;
    l->asked = ASKED_NOTHING;
    if (!l->options.send_window)
        l->options.send_window = LINK_TO_GUEST;
    if (!l->options.receive_window)
        l->options.receive_window = l->options.form == LINK_TEXT ? LINK_TO_HOST_TEXT : LINK_TO_HOST;
    *out = l;
    return 0;
}

void link_free(struct link *l)
{
    if (!l)
        return;
    fifo_free(&l->queue);
    buf_free(&l->in);
    free(l);
}
