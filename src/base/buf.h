/* base/buf.h: a growing byte buffer, always followed by a NUL that is not counted.
 *
 * Running out of memory is sticky: later appends do nothing, and the caller asks once, at the end
 * (`buf_failed`). A zeroed buf is an empty one.
 */
#pragma once

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

struct buf {
    char *data; /* NULL while nothing was ever appended */
    size_t len;
    size_t cap;
    bool failed;
};

/* Makes room for `extra` more bytes (and the NUL); false without memory. */
bool buf_reserve(struct buf *b, size_t extra);
void buf_append(struct buf *b, const void *data, size_t len);
void buf_puts(struct buf *b, const char *text);
void buf_putc(struct buf *b, char c);
void buf_printf(struct buf *b, const char *format, ...) __attribute__((format(printf, 2, 3)));
void buf_vprintf(struct buf *b, const char *format, va_list args)
    __attribute__((format(printf, 2, 0)));

/* Drops the first n bytes. */
void buf_consume(struct buf *b, size_t n);
/* Empties the buffer and keeps its memory. */
void buf_clear(struct buf *b);
void buf_free(struct buf *b);

static inline bool buf_failed(const struct buf *b)
{
    return b->failed;
}

/* The text, "" for an empty buffer. */
static inline const char *buf_text(const struct buf *b)
{
    return b->data ? b->data : "";
}

/* Hands the memory to the caller (free), or NULL if an append failed; the buf is empty
 * afterwards. */
char *buf_steal(struct buf *b);

#define cleanup_buf __attribute__((cleanup(buf_free)))
