/* net/sse.c: splits an event stream into lines, which end in LF, CR or CRLF, and events. */
#include "net/sse.h"

#include <string.h>

static const char *line_end(const char *p, const char *end)
{
    while (p < end && *p != '\n' && *p != '\r')
        p++;
    return p;
}

static void take_field(struct sse *s, const char *line, size_t len)
{
    static const char field[] = "data";
    size_t n = sizeof field - 1;
    if (len < n || memcmp(line, field, n) != 0 || (len > n && line[n] != ':'))
        return;
    const char *value = line + n;
    size_t left = len - n;
    if (left > 0) {
        value++;
        left--;
    }
    if (left > 0 && *value == ' ') {
        value++;
        left--;
    }
    if (s->has_data)
        buf_putc(&s->data, '\n');
    buf_append(&s->data, value, left);
    s->has_data = true;
}

/* The line is complete; true if it ended an event. */
static bool sse_take_line(struct sse *s)
{
    const char *line = buf_text(&s->line);
    size_t len = s->line.len;
    if (!s->begun && len >= 3 && memcmp(line, "\xEF\xBB\xBF", 3) == 0) {
        line += 3;
        len -= 3;
    }
    s->begun = true;
    s->ready = len == 0 && s->has_data;
    if (len > 0)
        take_field(s, line, len);
    buf_clear(&s->line);
    return s->ready;
}

int sse_next(struct sse *s, const char **p, const char *end, struct error *err)
{
    if (s->ready) {
        buf_clear(&s->data);
        s->has_data = false;
        s->ready = false;
    }
    while (*p < end) {
        if (s->after_cr && **p == '\n')
            ++*p;
        s->after_cr = false;
        const char *stop = line_end(*p, end);
        buf_append(&s->line, *p, (size_t)(stop - *p));
        *p = stop;
        if (buf_failed(&s->line) || buf_failed(&s->data))
            return error_memory(err);
        if (s->line.len + s->data.len > s->limit)
            return error_set(err, s->code, "an event of over %zu bytes", s->limit);
        if (stop == end)
            break;
        s->after_cr = *stop == '\r';
        ++*p;
        if (sse_take_line(s))
            return buf_failed(&s->data) ? error_memory(err) : 1;
    }
    return 0;
}

void sse_free(struct sse *s)
{
    buf_free(&s->line);
    buf_free(&s->data);
}
