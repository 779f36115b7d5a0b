/* session/capture.c: see capture.h. The tail is trimmed only when it has doubled, so that a flood
 * costs one copy of each byte. */
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

/* The number of bytes at the start that continue a character begun before. */
static size_t capture_continuation(const char *data, size_t len)
{
    size_t n = 0;
    while (n < len && n < 3 && ((unsigned char)data[n] & 0xC0) == 0x80)
        n++;
    return n;
}

/* The number of bytes at the end that begin a character and do not end it. */
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
        /* Cut where characters begin, so that the cut adds no broken ones. */
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
