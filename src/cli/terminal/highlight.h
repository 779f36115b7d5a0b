/* cli/terminal/highlight.h: Python in colours, line by line. */
#pragma once

#include <stddef.h>

#include "base/buf.h"

/* What a line leaves open for the next one; all zero at the beginning. */
struct highlight {
    char quote; /* of a string over several lines; 0: none */
};

/* Appends a line of code, harmless to a terminal and with colours. */
void highlight_line(struct highlight *h, struct buf *out, const char *line, size_t len);
