/* env/common/orphans.h: removes the sandboxes that killed hosts of this machine left elsewhere.
 *
 * An environment says how to list its sandboxes and how to remove one; here it is judged whose they
 * are (owner_labels.h), one after the other is removed, and the outcome is told. A sandbox that is
 * gone meanwhile is no failure. Of other failures the first is told, after the rest was tried; only
 * where the service is lost that is the end.
 */
#ifndef DROSTE_ENV_COMMON_ORPHANS_H
#define DROSTE_ENV_COMMON_ORPHANS_H

#include "base/json/json.h"
#include "base/list.h"
#include "env/common/environment.h"

struct orphans_ops {
    /* Asks for a page of the list, the first for NULL; orphans_listed follows, not from within. */
    int (*list)(void *arg, const char *cursor, struct error *err);
    /* Asks to remove one; orphans_removed follows, not from within. */
    int (*remove)(void *arg, const char *id, struct error *err);
};

/* All zero: nothing is under way. */
struct orphans {
    const struct orphans_ops *ops; /* NULL: nothing is under way */
    void *arg;
    environment_collected_fn *done; /* NULL: no caller waits */
    void *done_arg;
    struct list ids;
    size_t next;
    unsigned removed, pages;
    struct error why;
};

/* `done` comes later, once. If a collection is under way that has no caller, its end is told.
 * ERROR_ARGUMENT where another caller waits for it. */
int orphans_collect(struct orphans *o, const struct orphans_ops *ops, void *arg,
    environment_collected_fn *done, void *done_arg, struct error *err);
/* One of the list. It is removed later if its host is gone. */
void orphans_note(struct orphans *o, const char *id, const char *owner, const char *machine);
/* The same with its labels: {NAME: VALUE, …}. */
void orphans_note_labels(struct orphans *o, const char *id, struct json_object *labels);
/* A page is over, or failed; the list goes on at the cursor, if there is one. */
void orphans_listed(struct orphans *o, const struct error *why, const char *cursor);
void orphans_removed(struct orphans *o, const struct error *why);
/* It is over, and `done` is told; nothing happens where nothing is under way. */
void orphans_end(struct orphans *o, const struct error *why);
/* It is over without `done`. */
void orphans_cancel(struct orphans *o);

#endif
