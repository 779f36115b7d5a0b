/* cli/terminal/children.h: the child runs of a cell, as a tree. */
#pragma once

#include "cli/terminal/screen.h"
#include "droste.h"

struct children;

struct children *children_new(void);
/* NULL is fine. */
void children_free(struct children *c);
/* Takes the events of child runs; false if this is none. */
bool children_take(struct children *c, const droste_event *e);

/* Gives each line of the tree, at most `rows` of them (active runs first), each in at most
 * `columns` columns without its escapes. */
typedef void children_line_fn(void *arg, const char *line, size_t columns);
void children_draw(struct children *c, const struct screen *s, size_t rows, size_t columns,
    children_line_fn *fn, void *arg);
/* Forgets all of them. */
void children_clear(struct children *c);
