/* session/capture.c: keeps the beginning and the end of a stream. Trims the tail only when it has
 * doubled, so a flood of output costs one copy per byte.
 */
#include "session/capture.h"

#include <inttypes.h>

#include "base/text.h"

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
        buf_clear(&c->tail);
    }
    buf_append(&c->tail, data, len);
    if (c->tail.len > 2 * half)
        buf_consume(&c->tail, c->tail.len - half);
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
        /* Cut at character boundaries, so that no character is broken. */
        size_t extra = c->tail.len > half ? c->tail.len - half : 0;
        buf_consume(&c->tail, extra);
        buf_consume(&c->tail, capture_continuation(buf_text(&c->tail), c->tail.len));
        c->head.len -= capture_unfinished(buf_text(&c->head), c->head.len);
        left_out = c->total - c->head.len - c->tail.len;
        text_append_utf8(out, buf_text(&c->head), c->head.len);
        buf_printf(out, "\n... [%" PRIu64 " bytes left out] ...\n", left_out);
        text_append_utf8(out, buf_text(&c->tail), c->tail.len);
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
    c->total = 0;
}
