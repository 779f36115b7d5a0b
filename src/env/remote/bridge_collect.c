/* env/remote/bridge_collect.c: sends list and remove requests to a bridge and reads the answers. */
#include "env/remote/bridge_collect.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/json/fields.h"
#include "env/common/owner_labels.h"

enum { ANSWER_MS = 120000 };

void bridge_read_error(const char *title, struct json_object *o, struct error *why)
{
    const char *text = json_get_string(o, "why", NULL);
    if (text)
        error_set(why, error_code_named(json_get_string(o, "kind", NULL), ERROR_ENVIRONMENT),
            "%.60s: %.170s", title, text);
}

void collecting_end(struct collecting *c, const struct error *why)
{
    timer_free(steal(&c->over));
    orphans_end(&c->orphans, why);
}

static void too_long(void *arg)
{
    struct collecting *c = arg;
    struct error why = { 0 };
    error_set(&why, ERROR_TIMEOUT, "%s did not list its sandboxes", c->title);
    collecting_end(c, &why);
}

static int bridge_orphans_list(void *arg, const char *cursor, struct error *err)
{
    struct collecting *c = arg;
    cleanup_buf struct buf owner = { 0 }, machine = { 0 };
    owner_labels(&owner, &machine);
    buf_printf(c->out, "{\"list\":%lld,\"labels\":{\"" LABEL_MACHINE "\":", (long long)++c->number);
    json_append_string(c->out, buf_text(&machine), machine.len);
    buf_puts(c->out, "}}\n");
    timer_start(c->over, ANSWER_MS, 0);
    return 0;
}

static int bridge_orphan_remove(void *arg, const char *id, struct error *err)
{
    struct collecting *c = arg;
    buf_putc(c->out, '{');
    field_int(c->out, "remove", ++c->number);
    field_string(c->out, "id", id);
    buf_puts(c->out, "}\n");
    timer_start(c->over, ANSWER_MS, 0);
    return 0;
}

static void bridge_orphans_listed(
    struct collecting *c, struct json_object *sandboxes, const struct error *why)
{
    for (size_t i = 0; sandboxes && i < json_length(sandboxes); i++) {
        struct json_object *one = json_object_array_get_idx(sandboxes, i);
        orphans_note_labels(&c->orphans, json_get_string(one, "id", ""),
            json_get_typed(one, "labels", json_type_object));
    }
    orphans_listed(&c->orphans, why, NULL);
}

bool collecting_take(struct collecting *c, struct json_object *o)
{
    int64_t listed = json_get_int(o, "listed", 0), removed = json_get_int(o, "removed", 0);
    struct error why = { 0 };
    if (listed <= 0 && removed <= 0)
        return false;
    if (!c->orphans.ops || (listed > 0 ? listed : removed) != c->number)
        return true;
    bridge_read_error(c->title, o, &why);
    if (listed > 0)
        bridge_orphans_listed(c, json_get_typed(o, "sandboxes", json_type_array), &why);
    else
        orphans_removed(&c->orphans, &why);
    if (!c->orphans.ops)
        timer_free(steal(&c->over));
    return true;
}

int collecting_start(struct collecting *c, struct loop *loop, struct buf *out,
    environment_collected_fn *done, void *arg, struct error *err)
{
    static const struct orphans_ops ops = { bridge_orphans_list, bridge_orphan_remove };
    c->out = out;
    if (!c->over)
        c->over = timer_new(loop, too_long, c);
    if (!c->over)
        return error_memory(err);
    return orphans_collect(&c->orphans, &ops, c, done, arg, err);
}
