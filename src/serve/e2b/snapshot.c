/* serve/e2b/snapshot.c: requests for snapshots and forks (image.h).
 *
 *   request ─► commands are listed ─► the turn in a context ─► files packed ─► template saved
 *           ─► a row of the list, or for forks: sandboxes created one by one from the image
 */

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "serve/e2b/contexts.h"
#include "serve/e2b/create.h"
#include "serve/e2b/image.h"

enum { FORKS_MOST = 100 };

/* ---- a request ---- */

static void snapshot_on_free(struct request *r)
{
    struct e2b_snapshot *s = r->state;
    r->state = NULL;
    if (!s)
        return;
    s->r = NULL;
    /* Forks whose client has gone would run until their deadline: no client knows their ids. */
    for (size_t i = 0; !r->reply && i < json_length(s->answers); i++) {
        struct json_object *one = json_object_array_get_idx(s->answers, i);
        const char *id =
            json_get_string(json_get_typed(one, "sandbox", json_type_object), "sandboxID", NULL);
        struct sandbox *sb = id ? sandbox_find(s->server, id) : NULL;
        if (sb)
            sandbox_close(sb);
    }
    e2b_snapshot_release(s);
}

/* ---- the steps ---- */

static void snapshot_on_saved(struct e2b_snapshot *s, struct e2b_sandbox *e)
{
    s->image = e2b_image_new(e, steal(&s->made));
    if (!s->r)
        return;
    if (!s->image)
        request_refuse_memory(s->r);
    else if (s->answers)
        e2b_forks_begin(s, e);
    else
        e2b_snapshot_keep(s->r, steal(&s->image), s->id);
}

/* ---- the routes ---- */

/* The context whose variables are kept; NULL: the request was refused. */
static struct e2b_context *snapshot_context(struct e2b_snapshot *s, struct e2b_sandbox *e)
{
    bool with_memory = json_get_bool(s->r->json, "memory", true);
    struct e2b_context *c = with_memory ? e2b_context_default(e, "python") : e2b_context_hidden(e);
    if (!c)
        request_refuse_memory(s->r);
    for (struct e2b_context *other = e->contexts; c && with_memory && other; other = other->next)
        if (other != c && other->session && other->count > 0) {
            e2b_snapshot_fail(s, 400,
                "a snapshot keeps the variables of one code context, and another one has run code; "
                "remove that first");
            return NULL;
        }
    return c && e2b_context_has_room(s->r, c, 0) ? c : NULL;
}

static void snapshot_queue(struct e2b_snapshot *s, struct e2b_sandbox *e)
{
    struct e2b_context *c = snapshot_context(s, e);
    struct e2b_execution *x = c ? calloc(1, sizeof *x) : NULL;
    if (c && !x)
        request_refuse_memory(s->r);
    if (!x)
        return;
    s->references++;
    x->snapshot = s;
    e2b_context_queue(c, x);
}

/* Commands would be missing. */
static void snapshot_on_list(void *arg, const droste_command_reply *reply, const droste_error *err)
{
    struct e2b_snapshot *s = arg;
    struct sandbox *sb = s->r ? sandbox_find(s->server, s->id) : NULL;
    size_t running = 0;
    for (size_t i = 0; reply && i < reply->count; i++)
        running += !reply->commands[i].ended;
    if (s->r && (err || !sb))
        e2b_snapshot_fail(s, err ? 400 : 404, err ? err->text : "the sandbox has ended");
    else if (s->r && running > 0)
        e2b_snapshot_fail(s, 400,
            "a command is running in the sandbox, which a snapshot cannot keep; end it first");
    else if (s->r)
        snapshot_queue(s, sb->e2b);
    e2b_snapshot_release(s);
}

static struct e2b_snapshot *snapshot_new(struct request *r, struct e2b_sandbox *e)
{
    struct e2b_snapshot *s = request_alloc(r, sizeof *s);
    if (!s)
        return NULL;
    s->references = 1;
    s->r = r;
    s->server = r->server;
    s->on_saved = snapshot_on_saved;
    memcpy(s->id, e->sandbox->id, sizeof s->id);
    r->state = s;
    r->on_free = snapshot_on_free;
    return s;
}

static void snapshot_start(struct request *r, struct e2b_sandbox *e, size_t forks)
{
    static const droste_command_request list = { .op = "list" };
    droste_error err;
    if (e->paused) {
        request_refuse(r, 409, "paused", "the sandbox is paused; resume it first");
        return;
    }
    if (!e->has_root) {
        request_refuse(r, 400, "unsupported",
            "snapshots and forks need sandboxes with a writable root (isolation full or light)");
        return;
    }
    struct e2b_snapshot *s = snapshot_new(r, e);
    if (!s)
        return;
    s->count = forks;
    s->answers = forks ? json_object_new_array() : NULL;
    s->references++;
    if (droste_command_start(e->sandbox->session, &list, snapshot_on_list, s, &err) < 0)
        snapshot_on_list(s, NULL, &err);
}

void e2b_handle_snapshot(struct request *r)
{
    struct e2b_sandbox *e = e2b_control_sandbox(r);
    if (e && e2b_snapshot_may_be_named(r, json_get_string(r->json, "name", "")) &&
        e2b_snapshots_have_room(r))
        snapshot_start(r, e, 0);
}

void e2b_handle_fork(struct request *r)
{
    struct e2b_sandbox *e = e2b_control_sandbox(r);
    int64_t count = json_get_int(r->json, "count", 1);
    double seconds;
    if (e && (count < 1 || count > FORKS_MOST))
        request_refuse(r, 400, "argument", "count must be a number from 1 to %d", FORKS_MOST);
    else if (e && e2b_take_timeout(r, E2B_FORK_SECONDS, &seconds))
        snapshot_start(r, e, (size_t)count);
}
