/* env/common/orphans.c: the state machine of a collection: list pages, then remove one by one. */
#include "env/common/orphans.h"

#include "env/common/owner_labels.h"

enum { PAGES_MOST = 1000 };

void orphans_cancel(struct orphans *o)
{
    list_clear(&o->ids);
    *o = (struct orphans){ 0 };
}

void orphans_end(struct orphans *o, const struct error *why)
{
    environment_collected_fn *done = o->done;
    void *arg = o->done_arg;
    unsigned removed = o->removed;
    struct error cause = *why;
    if (!o->ops)
        return;
    orphans_cancel(o);
    if (done)
        done(arg, removed, &cause);
}

void orphans_note(struct orphans *o, const char *id, const char *owner, const char *machine)
{
    if (*id && owner_labels_are_orphan(owner, machine))
        list_add(&o->ids, id, &o->why);
}

void orphans_note_labels(struct orphans *o, const char *id, struct json_object *labels)
{
    orphans_note(o, id, json_get_string(labels, LABEL_OWNER, ""),
        json_get_string(labels, LABEL_MACHINE, ""));
}

static void orphans_remove_next(struct orphans *o)
{
    struct error err = o->why;
    if (o->next == o->ids.count || o->ops->remove(o->arg, o->ids.items[o->next++], &err) < 0)
        orphans_end(o, &err);
}

void orphans_removed(struct orphans *o, const struct error *why)
{
    if (why->code == ERROR_NONE)
        o->removed++;
    else if (why->code != ERROR_NOT_FOUND && o->why.code == ERROR_NONE)
        o->why = *why;
    if (why->code == ERROR_LOST)
        orphans_end(o, why);
    else
        orphans_remove_next(o);
}

void orphans_listed(struct orphans *o, const struct error *why, const char *cursor)
{
    struct error err = *why;
    bool more = cursor && *cursor && ++o->pages < PAGES_MOST;
    if (err.code == ERROR_NONE && more && o->ops->list(o->arg, cursor, &err) == 0)
        return;
    if (err.code == ERROR_NONE)
        orphans_remove_next(o);
    else
        orphans_end(o, &err);
}

int orphans_collect(struct orphans *o, const struct orphans_ops *ops, void *arg,
    environment_collected_fn *done, void *done_arg, struct error *err)
{
    if (o->done)
        return error_set(
            err, ERROR_ARGUMENT, "another process is already removing sandboxes of dead hosts");
    bool active = o->ops;
    o->done = done;
    o->done_arg = done_arg;
    if (active)
        return 0;
    o->ops = ops;
    o->arg = arg;
    int rc = ops->list(arg, NULL, err);
    if (rc < 0)
        orphans_cancel(o);
    return rc;
}
