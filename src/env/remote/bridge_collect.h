/* env/remote/bridge_collect.h: has a bridge remove the sandboxes that dead hosts left: its messages,
 * in the order of env/common/orphans.h. */
#ifndef DROSTE_ENV_REMOTE_BRIDGE_COLLECT_H
#define DROSTE_ENV_REMOTE_BRIDGE_COLLECT_H

#include "base/buf.h"
#include "env/common/orphans.h"

/* All zero but for the title: none is under way. */
struct collecting {
    struct orphans orphans;
    const char *title; /* of the bridge, in errors */
    int64_t number;    /* of the last question: never used again */
    struct buf *out;   /* where questions go */
    struct timer *over;
};

/* Begins, with a question in `out`. */
int collecting_start(struct collecting *c, struct loop *loop, struct buf *out,
    environment_collected_fn *done, void *arg, struct error *err);
/* False for what is no answer. The next question goes to `out`. */
bool collecting_take(struct collecting *c, struct json_object *o);
/* It is over, and `done` is told; nothing happens where none is under way. ERROR_NONE: all was asked. */
void collecting_end(struct collecting *c, const struct error *why);

/* Why something failed, as a bridge says it: "why" and "kind". Nothing where it does not. */
void bridge_told_why(const char *title, struct json_object *o, struct error *why);

#endif
