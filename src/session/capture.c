/* session/capture.c: keeps the beginning and the end of a stream. The end is a ring, so that the
 * memory is that of the limit, and a flood of output costs one copy per byte.
 */
#include "session/capture.h"

#include <inttypes.h>
#include <string.h>

#include "base/text.h"

/* Adds at most `half` bytes, over the oldest ones. */
static void capture_add_tail(struct capture *c, size_t half, const char *data, size_t len)
{
    size_t room = half - c->tail.len;
    size_t first = len < room ? len : room;
    buf_append(&c->tail, data, first);
    data += first;
    len -= first;
    if (len == 0 || buf_failed(&c->tail))
        return;
    first = half - c->tail_at < len ? half - c->tail_at : len;
    memcpy(c->tail.data + c->tail_at, data, first);
    memcpy(c->tail.data, data + first, len - first);
    c->tail_at = (c->tail_at + len) % half;
}

void capture_add(struct capture *c, const char *data, size_t len)
{
    size_t half = c->limit / 2;
    c->total += len;
    if (c->head.len < half) {
        size_t n = half - c->head.len < len ? half - c->head.len : len;
        buf_append(&c->head, data, n);
        data += n;
        len -= n;
    }
    if (len > half) {
        data += len - half;
        len = half;
    }
    capture_add_tail(c, half, data, len);
}

/* Counts leading bytes that continue an earlier character. */
static size_t capture_continuation(const char *data, size_t len)
{
    size_t n = 0;
    while (n < len && n < 3 && ((unsigned char)data[n] & 0xC0) == 0x80)
        n++;
    return n;
}

/* Counts trailing bytes of an incomplete character. */
static size_t capture_unfinished(const char *data, size_t len)
{
    for (size_t back = 1; back <= 3 && back <= len; back++) {
        unsigned char c = (unsigned char)data[len - back];
        if ((c & 0xC0) == 0x80)
            continue;
        size_t need = c >= 0xF0 ? 4 : c >= 0xE0 ? 3 : c >= 0xC0 ? 2 : 1;
        return need > back ? back : 0;
    }
    return 0;
}

uint64_t capture_take(struct capture *c, struct buf *out)
{
    size_t half = c->limit / 2;
    uint64_t left_out = 0;
    if (c->total > c->head.len + half) {
        cleanup_buf struct buf tail = { 0 };
        buf_append(&tail, buf_text(&c->tail) + c->tail_at, c->tail.len - c->tail_at);
        buf_append(&tail, buf_text(&c->tail), c->tail_at);
        /* Cut at character boundaries, so that no character is broken. */
        size_t broken = capture_continuation(buf_text(&tail), tail.len);
        c->head.len -= capture_unfinished(buf_text(&c->head), c->head.len);
        left_out = c->total - c->head.len - (tail.len - broken);
        text_append_utf8(out, buf_text(&c->head), c->head.len);
        buf_printf(out, "\n... [%" PRIu64 " bytes left out] ...\n", left_out);
        text_append_utf8(out, buf_text(&tail) + broken, tail.len - broken);
    } else {
        buf_append(&c->head, buf_text(&c->tail), c->tail.len);
        text_append_utf8(out, buf_text(&c->head), c->head.len);
    }
    capture_free(c);
    return left_out;
}

void capture_free(struct capture *c)
{
    buf_free(&c->head);
    buf_free(&c->tail);
    c->tail_at = 0;
    c->total = 0;
}
