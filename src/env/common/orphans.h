/* env/common/orphans.h: removes the remote sandboxes that killed hosts of this machine left behind.
 *
 * An environment implements listing and removing. This code decides by labels whether a sandbox's
 * host is dead (owner_labels.h), removes such sandboxes one at a time, and reports the outcome. A
 * sandbox that has disappeared in the meantime is not an error. Otherwise the first error is
 * reported after all removals were tried; only an unreachable service ends the collection early.
 */
#pragma once

#include "base/json/json.h"
#include "base/list.h"
#include "env/common/environment.h"

struct orphans_ops {
    /* Requests a page of the list; NULL: the first. Must call orphans_listed later, not from
     * within. */
    int (*list)(void *arg, const char *cursor, struct error *err);
    /* Requests the removal of one. Must call orphans_removed later, not from within. */
    int (*remove)(void *arg, const char *id, struct error *err);
};

/* All zero: idle. */
struct orphans {
    const struct orphans_ops *ops; /* NULL: idle */
    void *arg;
    environment_collected_fn *done; /* NULL: no caller waits */
    void *done_arg;
    struct list ids;
    size_t next;
    unsigned removed, pages;
    struct error why;
};

/* Calls `done` once, later. If a collection without a caller is running, reports that one's end.
 * ERROR_ARGUMENT if another caller is waiting. */
int orphans_collect(struct orphans *o, const struct orphans_ops *ops, void *arg,
    environment_collected_fn *done, void *done_arg, struct error *err);
/* Adds a sandbox of the list; it will be removed if its host is dead. */
void orphans_note(struct orphans *o, const char *id, const char *owner, const char *machine);
/* The same, from its labels: {NAME: VALUE, …}. */
void orphans_note_labels(struct orphans *o, const char *id, struct json_object *labels);
/* A page is complete, or failed. The list continues at `cursor` unless it is NULL. */
void orphans_listed(struct orphans *o, const struct error *why, const char *cursor);
void orphans_removed(struct orphans *o, const struct error *why);
/* Ends the collection and calls `done`; does nothing when idle. */
void orphans_end(struct orphans *o, const struct error *why);
/* Ends the collection without calling `done`. */
void orphans_cancel(struct orphans *o);
