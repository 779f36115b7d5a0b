/* cli/terminal/screen.h: text in a terminal's columns, and lines at its bottom that are
 * rewritten. */
#pragma once

#include <stdbool.h>
#include <stdio.h>

#include "base/buf.h"
#include "base/fifo.h"

struct screen {
    FILE *out;
    bool moves, paints; /* as cli_terminal_moves, cli_terminal_paints */
    bool utf8;          /* the locale has line drawing characters */
    bool visible;       /* `out` is a terminal, which texts of others must not control */
    struct buf log;     /* text to stay above the lines that are rewritten */
    struct buf shown;   /* the columns of each line that is there now, as size_t */
    struct buf next;    /* the lines to show, and their columns */
    struct buf next_columns;
    struct fifo waiting; /* of the last screen_draw; `out` has not taken it yet */
    bool lost;           /* of the log, which nothing has read */
};

void screen_open(struct screen *s, FILE *out);
/* Waits a second for a reader that has stopped; what it does not read by then is lost. */
void screen_close(struct screen *s);

/* The size of the terminal now; 80 and 24 where there is none. */
size_t screen_columns(const struct screen *s);
size_t screen_rows(const struct screen *s);
/* `code` if there are colours, else "". */
const char *screen_paint(const struct screen *s, const char *code);
/* The second text in a locale without UTF-8. */
const char *screen_mark(const struct screen *s, const char *utf8, const char *ascii);

/* Appends text of a guest or a model in at most `columns` columns, on one line and harmless;
 * what does not fit ends with an ellipsis. Returns the columns used. */
size_t screen_fit(
    const struct screen *s, struct buf *out, const char *text, size_t len, size_t columns);
/* How many of these bytes of one line, with words left whole, fit into the columns; all of them
 * may. At least one character. */
size_t screen_break(const char *text, size_t len, size_t columns);

/* Prints lines; on a terminal harmless, and broken between words within its width. */
void screen_print_text(FILE *out, const char *text);

/* Appends text of a guest or a model, harmless if it goes to a terminal. */
void screen_put_text(const struct screen *s, struct buf *out, const char *text, size_t len);

/* Adds a line to those that screen_draw shows; `columns` is its width without escapes. */
void screen_add(struct screen *s, const char *line, size_t columns);
/* Prints `log` and replaces the shown lines by the added ones; none remove them. Never waits: until
 * `out` has taken what was drawn before, `log` grows, and the lines stay as they are. */
void screen_draw(struct screen *s);
