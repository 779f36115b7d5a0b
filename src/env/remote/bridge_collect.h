/* env/remote/bridge_collect.h: the messages by which a bridge removes dead hosts' sandboxes, for
 * env/common/orphans.h.
 */
#pragma once

#include "base/buf.h"
#include "env/common/orphans.h"

/* Idle when all zero but for the title. */
struct collecting {
    struct orphans orphans;
    const char *title; /* of the bridge, in errors */
    int64_t number;    /* of the last request; never reused */
    struct buf *out;   /* receives requests */
    struct timer *over;
};

/* Starts with a request in `out`. */
int collecting_start(struct collecting *c, struct loop *loop, struct buf *out,
    environment_collected_fn *done, void *arg, struct error *err);
/* False if the message is not an answer. Writes the next request to `out`. */
bool collecting_take(struct collecting *c, struct json_object *o);
/* Ends the collection and calls `done`; does nothing when idle. ERROR_NONE: complete. */
void collecting_end(struct collecting *c, const struct error *why);

/* Reads the reason of a failure from "why" and "kind", if present. */
void bridge_read_error(const char *title, struct json_object *o, struct error *why);
