/* serve/sandbox/calls.h: calls of a sandbox's code that its client answers. */
#ifndef DROSTE_SERVE_CALLS_H
#define DROSTE_SERVE_CALLS_H

#include "serve/sandbox/sandbox.h"

/* From now on, models that are "callback" are answered by clients. */
void calls_open(struct server *s);
/* The sandbox has a stream: it tells of the calls that waited for one. */
void calls_tell(struct sandbox *sb);
/* The client has left. */
void calls_fail(struct sandbox *sb);
/* A fork has the model of the first sandbox, and no tools until its client sets them. */
void calls_inherit(struct sandbox *fork, const struct sandbox *of);
void calls_close(struct sandbox *sb);

/* ---- cells.c ---- */

/* Sends an event in the stream of a cell. */
void cell_event(struct request *r, const char *name, const struct buf *data);
/* Appends one form of a rich result as a value of JSON: bytes in base64. */
void cell_append_media(struct buf *out, const droste_media *media);

#endif
