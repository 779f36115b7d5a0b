/* api/contexts.h: the contexts of a run or session. */
#ifndef DROSTE_API_CONTEXTS_H
#define DROSTE_API_CONTEXTS_H

#include "base/buf.h"
#include "base/json.h"
#include "droste.h"
#include "session/context.h"

/* `first` (PATH or NAME=PATH, or NULL), then those that were added to the droste. */
int api_contexts_load(droste *d, const char *first, struct contexts *out, struct error *err);
/* Those of a run of the record, which must be as they were: `was` is what the record says of them, NULL
 * of none, and `data` the bytes that it keeps. */
int api_contexts_again(droste *d, struct json_object *was, const struct buf *data,
    struct contexts *out, struct error *err);

#endif
