/* serve/sandbox/cell_events.h: what the streams of cells consist of, in every protocol. */
#pragma once

#include "serve/http/request.h"

/* Sends a server-sent event, whose data is JSON. */
void cell_event(struct request *r, const char *name, const struct buf *data);
/* Appends one form of a rich result as a value of JSON: bytes in base64. */
void cell_append_media(struct buf *out, const droste_media *media);
