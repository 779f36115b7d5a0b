/* cli/terminal/lines.h: reads lines from a terminal or a pipe, and handles signals meanwhile. */
#pragma once

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

/* Reads standard input, with editing and history if it and standard output are a terminal. From now
 * on this module handles SIGINT, SIGTERM and SIGHUP. */
int lines_open(struct lines **out, struct error *err);
/* Gives what the word may become, a line each. */
typedef void lines_complete_fn(void *arg, const char *word, size_t len, struct buf *out);
/* On a terminal, Tab completes words with it. */
void lines_complete_with(struct lines *l, lines_complete_fn *fn, void *arg);
/* Adds a text of several lines to the history, which has its lines already. */
void lines_remember(struct lines *l, const struct buf *text);
/* Keeps the history. NULL is fine. */
void lines_close(struct lines *l);
bool lines_is_terminal(const struct lines *l);

/* Reads the next line, without its newline, into the empty buf. Shows the prompt only on a
 * terminal. */
enum lines_event lines_read(struct lines *l, const char *prompt, struct buf *line);

/* Between the two calls, signals interrupt the operation of `d`; lines_busy_end returns the last
 * one (LINES_LINE: none came). */
void lines_busy(struct lines *l, droste *d);
enum lines_event lines_busy_end(struct lines *l);
