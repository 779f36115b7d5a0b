/* wire/frame.c: encodes frames and their parts; decodes frames from a hostile guest's stream. */
#include "wire/frame.h"

#include <endian.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "wire/little_endian.h"

void frame_write_header(unsigned char out[FRAME_HEADER_SIZE], const struct frame *frame)
{
    uint16_t flags = htole16(frame->flags);
    uint32_t head = htole32((uint32_t)frame->head_len);
    uint64_t id = htole64(frame->id), blob = htole64(frame->blob_len);
    out[0] = FRAME_VERSION;
    out[1] = frame->type;
    memcpy(out + 2, &flags, 2);
    memcpy(out + 4, &head, 4);
    memcpy(out + 8, &id, 8);
    memcpy(out + 16, &blob, 8);
}

static const struct frame_rule *find_rule(const struct frame_decoder *d, uint8_t type)
{
    for (size_t i = 0; i < d->rule_count; i++)
        if (d->rules[i].type == type)
            return &d->rules[i];
    return NULL;
}

void frame_take_fd(struct frame_decoder *d, int fd)
{
    if (d->fd_count < FRAME_FDS_MAX)
        d->fds[d->fd_count++] = fd;
    else
        close(fd);
}

/* Closes descriptors that no frame has announced. */
static void frame_drop_fds(struct frame_decoder *d)
{
    while (d->fd_count > 0)
        close(d->fds[--d->fd_count]);
}

/* Maps the blob from the first descriptor: they come in the order of their frames. */
static int frame_map(
    struct frame_decoder *d, const struct frame_rule *rule, size_t len, struct error *err)
{
    if (!rule->by_fd)
        return error_set(err, ERROR_PROTOCOL, "frame of type %u with a descriptor", rule->type);
    if (d->fd_count == 0)
        return error_set(err, ERROR_PROTOCOL, "frame without the descriptor that it announces");
    cleanup_fd int fd = d->fds[0];
    memmove(d->fds, d->fds + 1, --d->fd_count * sizeof *d->fds);
    return sealed_map(fd, len, d->total, &d->mapped, err);
}

/* The header is complete: decides whether its body is allowed. */
static int check_header(struct frame_decoder *d, struct error *err)
{
    const unsigned char *h = d->header;
    const struct frame_rule *rule = find_rule(d, h[1]);
    uint64_t head = wire_get32(h + 4), blob = wire_get64(h + 16);
    unsigned flags = h[2] | (unsigned)h[3] << 8;
    if (h[0] != FRAME_VERSION)
        return error_set(err, ERROR_PROTOCOL, "frame of version %u, not %u", h[0], FRAME_VERSION);
    if (!rule)
        return error_set(err, ERROR_PROTOCOL, "frame of unexpected type %u", h[1]);
    if (flags & ~(unsigned)FRAME_FD)
        return error_set(err, ERROR_PROTOCOL, "frame with unknown flags");
    if (head > rule->head_max || blob > rule->blob_max)
        return error_set(err, ERROR_PROTOCOL,
            "frame of type %u with %llu + %llu bytes, over %zu + %zu", h[1],
            (unsigned long long)head, (unsigned long long)blob, rule->head_max, rule->blob_max);
    d->head_len = (size_t)head;
    d->blob_len = (size_t)blob;
    return flags & FRAME_FD ? frame_map(d, rule, (size_t)blob, err) : 0;
}

static int frame_deliver(struct frame_decoder *d, frame_fn *fn, void *arg, struct error *err)
{
    struct frame frame = {
        .type = d->header[1],
        .id = wire_get64(d->header + 8),
        .head = buf_text(&d->body),
        .head_len = d->head_len,
        .blob = d->mapped.data ? d->mapped.data : buf_text(&d->body) + d->head_len,
        .blob_len = d->blob_len,
        .body = &d->body,
        .mapped = &d->mapped,
    };
    int rc = fn(arg, &frame, err);
    sealed_unmap(&d->mapped);
    d->header_len = 0;
    /* Keeps the memory of small frames for the next one, and frees that of a large one. */
    if (d->body.cap > 4 * FRAME_MEMFD_MIN)
        buf_free(&d->body);
    else
        buf_clear(&d->body);
    return rc;
}

static int keep_for_later(struct frame_decoder *d, const char *data, size_t len, struct error *err)
{
    if (len > FRAME_LATER_MAX - d->later.len)
        return error_set(
            err, ERROR_PROTOCOL, "over %d MiB while nothing is read", FRAME_LATER_MAX >> 20);
    buf_append(&d->later, data, len);
    return buf_failed(&d->later) ? error_memory(err) : 0;
}

static int frame_feed_all(struct frame_decoder *d, const char *data, size_t len, frame_fn *fn,
    void *arg, struct error *err)
{
    while (len > 0) {
        if (d->held)
            return keep_for_later(d, data, len, err);
        if (d->header_len < FRAME_HEADER_SIZE) {
            size_t n = FRAME_HEADER_SIZE - d->header_len;
            if (n > len)
                n = len;
            memcpy(d->header + d->header_len, data, n);
            d->header_len += n;
            data += n;
            len -= n;
            if (d->header_len < FRAME_HEADER_SIZE)
                return 0;
            int rc = check_header(d, err);
            if (rc < 0)
                return rc;
        }
        size_t want = d->head_len + (d->mapped.data ? 0 : d->blob_len) - d->body.len;
        size_t n = want < len ? want : len;
        buf_append(&d->body, data, n);
        if (buf_failed(&d->body))
            return error_memory(err);
        data += n;
        len -= n;
        if (n < want)
            return 0;
        int rc = frame_deliver(d, fn, arg, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

int frame_feed(struct frame_decoder *d, const char *data, size_t len, frame_fn *fn, void *arg,
    struct error *err)
{
    int rc = frame_feed_all(d, data, len, fn, arg, err);
    if (rc < 0 || (d->header_len == 0 && d->later.len == 0))
        frame_drop_fds(d);
    return rc;
}

void frame_hold(struct frame_decoder *d)
{
    d->held = true;
}

int frame_go_on(struct frame_decoder *d, frame_fn *fn, void *arg, struct error *err)
{
    cleanup_buf struct buf kept = d->later;
    d->later = (struct buf){ 0 };
    d->held = false;
    return frame_feed(d, buf_text(&kept), kept.len, fn, arg, err);
}

bool frame_is_partial(const struct frame_decoder *d)
{
    return d->header_len > 0;
}

void frame_decoder_free(struct frame_decoder *d)
{
    buf_free(&d->body);
    buf_free(&d->later);
    sealed_unmap(&d->mapped);
    frame_drop_fds(d);
    d->header_len = 0;
}

void frame_parts_begin(struct buf *out, const size_t *lengths, size_t count)
{
    uint32_t n = htole32((uint32_t)count);
    buf_append(out, &n, sizeof n);
    for (size_t i = 0; i < count; i++) {
        uint64_t length = htole64(lengths[i]);
        buf_append(out, &length, sizeof length);
    }
}

int frame_parts_open(
    const char *blob, size_t len, size_t max, struct frame_parts *parts, struct error *err)
{
    if (len < 4)
        return error_set(err, ERROR_PROTOCOL, "a list of parts without its count");
    size_t count = wire_get32(blob);
    if (count > max || count > (len - 4) / 8)
        return error_set(
            err, ERROR_PROTOCOL, "a list of %zu parts in %zu bytes, at most %zu", count, len, max);
    *parts = (struct frame_parts){
        .count = count,
        .lengths = blob + 4,
        .data = blob + 4 + 8 * count,
        .bytes = len - 4 - 8 * count,
    };
    size_t left = parts->bytes;
    for (size_t i = 0; i < count; i++) {
        uint64_t part = wire_get64(parts->lengths + 8 * i);
        if (part > left)
            return error_set(err, ERROR_PROTOCOL, "part %zu is longer than its frame", i);
        left -= (size_t)part;
    }
    if (left > 0)
        return error_set(err, ERROR_PROTOCOL, "%zu bytes after the last part", left);
    return 0;
}

bool frame_parts_next(struct frame_parts *parts, const char **data, size_t *len)
{
    if (parts->at >= parts->count)
        return false;
    *data = parts->data;
    *len = (size_t)wire_get64(parts->lengths + 8 * parts->at);
    parts->data += *len;
    parts->at++;
    return true;
}

bool frame_parts_at(const struct frame_parts *parts, int64_t index, const char **data, size_t *len)
{
    struct frame_parts at = *parts;
    if (index < 0 || (uint64_t)index >= parts->count)
        return false;
    for (int64_t i = 0; i <= index; i++)
        frame_parts_next(&at, data, len);
    return true;
}
