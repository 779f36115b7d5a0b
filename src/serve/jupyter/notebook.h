/* serve/jupyter/notebook.h: notebooks as files, and as clients see them. */
#pragma once

#include "base/json/json.h"

/* The text of a file as a notebook's JSON for clients: lists of lines joined, and without marks of
 * trust, which no file may give itself. False: it is not a notebook, for this reason. */
bool notebook_read(const char *text, size_t len, struct buf *out, struct error *err);
/* A notebook as the text of a file: one line of its cells a line, sorted. Changes the tree. */
bool notebook_write(struct json_object *notebook, struct buf *out, struct error *err);
