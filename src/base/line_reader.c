/* base/line_reader.c: splits what it reads into lines, without seeking. */
#include "base/line_reader.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"

enum { PIECE = 65536 };

/* Passes on the complete lines in the buffer, and removes them from it. */
static int give_lines(
    struct buf *text, struct line *line, line_fn *fn, void *arg, struct error *err)
{
    size_t from = 0;
    int rc = 0;
    char *end;
    while (
        rc == 0 && from < text->len && (end = memchr(text->data + from, '\n', text->len - from))) {
        *end = '\0';
        line->text = text->data + from;
        line->len = (size_t)(end - line->text);
        line->number++;
        line->whole = true;
        rc = fn(arg, line, err);
        line->at += (off_t)line->len + 1;
        from += line->len + 1;
    }
    buf_consume(text, from);
    return rc;
}

bool line_is_blank(const struct line *line)
{
    return strspn(line->text, " \t\r") == line->len;
}

int line_reader_read(int fd, const char *name, line_fn *fn, void *arg, struct error *err)
{
    cleanup_buf struct buf text = { 0 };
    struct line line = { 0 };
    off_t at = 0;
    int rc = 0;
    while (rc == 0) {
        if (!buf_reserve(&text, PIECE))
            return error_memory(err);
        ssize_t n = pread(fd, text.data + text.len, PIECE, at);
        if (n < 0 && errno == ESPIPE)
            n = read(fd, text.data + text.len, PIECE);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return error_set_errno(err, ERROR_IO, "reading %.120s", name);
        if (n == 0)
            break;
        text.len += (size_t)n;
        text.data[text.len] = '\0';
        at += n;
        if (memchr(text.data + text.len - n, '\n', (size_t)n))
            rc = give_lines(&text, &line, fn, arg, err);
        if (rc == 0 && text.len > LINE_READER_MAX)
            return error_set(err, ERROR_ARGUMENT, "%.120s, line %zu: longer than %d MiB", name,
                line.number + 1, LINE_READER_MAX >> 20);
    }
    if (rc < 0 || text.len == 0)
        return rc;
    line.text = text.data;
    line.len = text.len;
    line.number++;
    line.whole = false;
    return fn(arg, &line, err);
}
