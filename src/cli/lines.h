/* cli/lines.h: lines of code from a terminal or a pipe, and the signals that come meanwhile. */
#ifndef DROSTE_CLI_LINES_H
#define DROSTE_CLI_LINES_H

#include <stdbool.h>

#include "base/buf.h"
#include "base/error.h"
#include "droste.h"

struct lines;

enum lines_event {
    LINES_LINE,
    LINES_END,       /* the end of the input, or Ctrl-D */
    LINES_INTERRUPT, /* Ctrl-C */
    LINES_LEAVE,     /* SIGTERM or SIGHUP */
};

/* Reads standard input; with editing and history where that and standard output are a terminal.
 * From here on SIGINT, SIGTERM and SIGHUP are this module's. */
int lines_open(struct lines **out, struct error *err);
/* Keeps the history. NULL is fine. */
void lines_close(struct lines *l);
bool lines_is_terminal(const struct lines *l);

/* The next line, without its newline, into the empty buf. The prompt is shown on a terminal only. */
enum lines_event lines_read(struct lines *l, const char *prompt, struct buf *line);

/* Between the two, signals interrupt what `d` does; lines_busy_end gives the last one (LINES_LINE:
 * none came). */
void lines_busy(struct lines *l, droste *d);
enum lines_event lines_busy_end(struct lines *l);

#endif
