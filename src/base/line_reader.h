/* base/line_reader.h: a file of lines, read one at a time. */
#ifndef DROSTE_BASE_LINE_READER_H
#define DROSTE_BASE_LINE_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/error.h"

enum { LINE_READER_MAX = 256 << 20 }; /* bytes of a line */

struct line {
    const char *text; /* followed by a NUL; there may be others in it */
    size_t len;       /* without its end */
    off_t at;         /* where it begins */
    size_t number;    /* from 1 */
    bool whole;       /* it has an end: the last one may have none */
};

/* True if there is nothing in it but blanks. */
bool line_is_blank(const struct line *line);

/* Hands out all lines from the beginning of the file, wherever its offset is, or all that come from a
 * pipe; a negative return stops that and is the result. `name` is for errors: ERROR_IO, ERROR_ARGUMENT
 * (a line is too long). */
typedef int line_fn(void *arg, const struct line *line, struct error *err);
int line_reader_read(int fd, const char *name, line_fn *fn, void *arg, struct error *err);

#endif
