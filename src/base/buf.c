/* base/buf.c: a buffer that grows by half, so that appending stays linear. */
#include "base/buf.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool buf_reserve(struct buf *b, size_t extra)
{
    if (b->failed)
        return false;
    if (extra > SIZE_MAX / 2 - b->len - 1) {
        b->failed = true;
        return false;
    }
    size_t need = b->len + extra + 1;
    if (need <= b->cap)
        return true;
    size_t cap = b->cap + b->cap / 2;
    if (cap < need)
        cap = need < 64 ? 64 : need;
    char *data = realloc(b->data, cap);
    if (!data) {
        b->failed = true;
        return false;
    }
    b->data = data;
    b->cap = cap;
    b->data[b->len] = '\0';
    return true;
}

void buf_append(struct buf *b, const void *data, size_t len)
{
    if (len == 0 || !buf_reserve(b, len))
        return;
    memcpy(b->data + b->len, data, len);
    b->len += len;
    b->data[b->len] = '\0';
}

void buf_puts(struct buf *b, const char *text)
{
    buf_append(b, text, strlen(text));
}

void buf_putc(struct buf *b, char c)
{
    buf_append(b, &c, 1);
}

void buf_vprintf(struct buf *b, const char *format, va_list args)
{
    enum { GUESS = 60 }; /* most formatted texts are shorter and need one call */
    va_list again;
    va_copy(again, args);
    size_t room = buf_reserve(b, GUESS) ? b->cap - b->len : 0;
    int n = vsnprintf(room ? b->data + b->len : NULL, room, format, again);
    va_end(again);
    if (n < 0)
        b->failed = true;
    else if ((size_t)n >= room && buf_reserve(b, (size_t)n))
        vsnprintf(b->data + b->len, (size_t)n + 1, format, args);
    if (!b->failed)
        b->len += (size_t)n;
    else if (b->data)
        b->data[b->len] = '\0';
}

void buf_printf(struct buf *b, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    buf_vprintf(b, format, args);
    va_end(args);
}

void buf_consume(struct buf *b, size_t n)
{
    if (n > b->len)
        n = b->len;
    if (n == 0)
        return;
    memmove(b->data, b->data + n, b->len - n);
    b->len -= n;
    b->data[b->len] = '\0';
}

void buf_clear(struct buf *b)
{
    b->len = 0;
    b->failed = false;
    if (b->data)
        b->data[0] = '\0';
}

void buf_free(struct buf *b)
{
    free(b->data);
    *b = (struct buf){ 0 };
}

char *buf_steal(struct buf *b)
{
    char *data = NULL;
    if (!b->failed && buf_reserve(b, 0)) {
        data = b->data;
        b->data = NULL;
    }
    buf_free(b);
    return data;
}
