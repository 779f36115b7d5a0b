/* base/line_reader.h: reads a file line by line. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/error.h"

enum { LINE_READER_MAX = 256 << 20 }; /* bytes of the longest line */

struct line {
    const char *text; /* followed by a NUL; may contain others */
    size_t len;       /* without its newline */
    off_t at;         /* offset of its first byte */
    size_t number;    /* from 1 */
    bool whole;       /* ends with a newline: the last line may not */
};

/* True if the line contains only white space. */
bool line_is_blank(const struct line *line);

/* Calls `fn` for each line: of a file from its beginning, whatever its offset is; of a pipe until
 * its end. A negative return of `fn` stops and is the result. `name` is for errors: ERROR_IO,
 * ERROR_ARGUMENT (a line is too long). */
typedef int line_fn(void *arg, const struct line *line, struct error *err);
int line_reader_read(int fd, const char *name, line_fn *fn, void *arg, struct error *err);
