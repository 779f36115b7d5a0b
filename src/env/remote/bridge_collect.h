/* env/remote/bridge_collect.h: has a bridge remove the sandboxes that dead hosts have left. It lists, we judge, one after the other is removed. */
#ifndef DROSTE_ENV_REMOTE_BRIDGE_COLLECT_H
#define DROSTE_ENV_REMOTE_BRIDGE_COLLECT_H

#include "base/buf.h"
#include "base/json/json.h"
#include "env/common/environment.h"

/* All zero: none is under way. */
struct collecting {
    bool active;
    const char *title;              /* of the bridge, in errors */
    int64_t number;                 /* of the last question: never used again */
    environment_collected_fn *done; /* may be NULL */
    void *arg;
    struct json_object *found;
    size_t at;
    unsigned removed;
    struct error why;
    struct timer *over;
};

/* Begins, with a question in `out`; where one is under way, this is told of its end in the place of who has asked before. */
int collecting_start(struct collecting *c, struct loop *loop, struct buf *out,
    environment_collected_fn *done, void *arg, struct error *err);
/* False for what is no answer. The next question goes to `out`. */
bool collecting_take(struct collecting *c, struct json_object *o, struct buf *out);
/* It is over, and `done` is told; nothing happens where none is under way. ERROR_NONE: all was asked. */
void collecting_end(struct collecting *c, const struct error *why);

/* Why something failed, as a bridge says it: "why" and "kind". Nothing where it does not. */
void bridge_told_why(const char *title, struct json_object *o, struct error *why);

#endif
