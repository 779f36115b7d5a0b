/* env/remote/bridge_collect.c: see bridge_collect.h. */
#include "env/remote/bridge_collect.h"

#include <string.h>

#include "base/cleanup.h"
#include "env/common/owner_labels.h"

enum { ANSWER_MS = 120000 };

void bridge_told_why(const char *title, struct json_object *o, struct error *why)
{
    const char *text = json_get_string(o, "why", NULL);
    if (text)
        error_set(why, error_code_named(json_get_string(o, "kind", NULL), ERROR_ENVIRONMENT),
            "%.60s: %.170s", title, text);
}

void collecting_end(struct collecting *c, const struct error *why)
{
    environment_collected_fn *done = c->done;
    void *arg = c->arg;
    unsigned removed = c->removed;
    struct error told = *why;
    if (!c->active)
        return;
    timer_free(c->over);
    json_object_put(c->found);
    *c = (struct collecting){ .number = c->number, .title = c->title };
    if (done)
        done(arg, removed, &told);
}

static void too_long(void *arg)
{
    struct collecting *c = arg;
    struct error why = { 0 };
    error_set(&why, ERROR_TIMEOUT, "%s does not say which sandboxes there are", c->title);
    collecting_end(c, &why);
}

static bool bridge_collect_is_orphan(struct json_object *sandbox)
{
    struct json_object *labels = json_get_typed(sandbox, "labels", json_type_object);
    return owner_labels_are_orphan(
        json_get_string(labels, LABEL_OWNER, ""), json_get_string(labels, LABEL_MACHINE, ""));
}

static void bridge_collect_remove_next(struct collecting *c, struct buf *out)
{
    while (c->at < json_length(c->found)) {
        struct json_object *sandbox = json_object_array_get_idx(c->found, c->at++);
        const char *id = json_get_string(sandbox, "id", "");
        if (!*id || !bridge_collect_is_orphan(sandbox))
            continue;
        buf_printf(out, "{\"remove\":%lld,\"id\":", (long long)++c->number);
        json_append_string(out, id, strlen(id));
        buf_puts(out, "}\n");
        timer_start(c->over, ANSWER_MS, 0);
        return;
    }
    struct error why = c->why;
    collecting_end(c, &why);
}

bool collecting_take(struct collecting *c, struct json_object *o, struct buf *out)
{
    int64_t listed = json_get_int(o, "listed", 0), removed = json_get_int(o, "removed", 0);
    if (listed <= 0 && removed <= 0)
        return false;
    if (!c->active || (listed > 0 ? listed : removed) != c->number)
        return true;
    if (c->why.code == ERROR_NONE)
        bridge_told_why(c->title, o, &c->why);
    if (listed > 0 && !c->found)
        c->found = json_object_get(json_get_typed(o, "sandboxes", json_type_array));
    else if (removed > 0 && !json_get_string(o, "why", NULL))
        c->removed++;
    bridge_collect_remove_next(c, out);
    return true;
}

int collecting_start(struct collecting *c, struct loop *loop, struct buf *out,
    environment_collected_fn *done, void *arg, struct error *err)
{
    cleanup_buf struct buf owner = { 0 }, machine = { 0 };
    c->done = done;
    c->arg = arg;
    if (c->active)
        return 0;
    c->over = timer_new(loop, too_long, c);
    if (!c->over)
        return error_memory(err);
    timer_start(c->over, ANSWER_MS, 0);
    c->active = true;
    owner_labels(&owner, &machine);
    buf_printf(out, "{\"list\":%lld,\"labels\":{\"" LABEL_MACHINE "\":", (long long)++c->number);
    json_append_string(out, buf_text(&machine), machine.len);
    buf_puts(out, "}}\n");
    return 0;
}
