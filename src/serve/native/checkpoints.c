/* serve/native/checkpoints.c: the routes for checkpoints: kept states of a sandbox's session. */
#include <stdlib.h>

#include "serve/native/native.h"

/* The id that the path names; 0: it is none, and the request was refused. */
static unsigned checkpoint_named(struct request *r)
{
    char *end = NULL;
    unsigned long id = strtoul(r->name, &end, 10);
    if (*end == '\0' && r->name[0] >= '0' && r->name[0] <= '9' && id > 0 && id <= UINT32_MAX)
        return (unsigned)id;
    request_refuse(r, 400, "argument", "a checkpoint has a positive number, not '%s'", r->name);
    return 0;
}

/* ---- create ---- */

static void checkpoint_on_made(
    struct sandbox *sb, struct request *r, droste_result *result, const droste_error *err)
{
    struct json_object *o = r && !err ? json_object_new_object() : NULL;
    if (o && json_put(o, "id", json_object_new_int64(sb->checkpoint))) {
        request_reply_json(r, 201, o);
        return;
    }
    json_object_put(o);
    if (r && err)
        request_fail(r, err);
    else if (r)
        request_refuse(r, 503, "memory", "out of memory");
}

void handle_checkpoint_create(struct request *r)
{
    struct sandbox *sb = sandbox_idle_of(r);
    droste_error err;
    if (!sb)
        return;
    int rc = droste_session_checkpoint_start(sb->session, &sb->checkpoint, &err);
    sandbox_await(sb, r, rc, &err, checkpoint_on_made);
}

/* ---- list and remove ---- */

static struct json_object *checkpoint_json(const droste_checkpoint *c)
{
    struct json_object *o = json_object_new_object();
    if (o && json_put(o, "id", json_object_new_int64(c->id)) &&
        json_put(o, "parent", json_object_new_int64(c->parent)) &&
        json_put(o, "cell", json_object_new_int64((int64_t)c->cell)) &&
        json_put(o, "memory", json_object_new_int64((int64_t)c->memory)) &&
        json_put(o, "current", json_object_new_boolean(c->current)))
        return o;
    json_object_put(o);
    return NULL;
}

void handle_checkpoint_list(struct request *r)
{
    struct sandbox *sb = sandbox_of(r);
    if (!sb)
        return;
    size_t count = droste_session_checkpoints(sb->session, NULL, 0);
    droste_checkpoint *all = calloc(count + 1, sizeof *all);
    struct json_object *list = json_object_new_array();
    if (all)
        droste_session_checkpoints(sb->session, all, count);
    for (size_t i = 0; all && list && i < count; i++)
        json_object_array_add(list, checkpoint_json(&all[i]));
    free(all);
    request_reply_list(r, "checkpoints", list);
}

void handle_checkpoint_remove(struct request *r)
{
    struct sandbox *sb = sandbox_idle_of(r);
    unsigned id = sb ? checkpoint_named(r) : 0;
    droste_error err;
    if (id == 0)
        return;
    if (droste_session_forget(sb->session, id, &err) < 0)
        request_fail(r, &err);
    else
        request_reply(r, 204, NULL, NULL, 0);
}

/* ---- go on from one ---- */

static void rollback_on_done(
    struct sandbox *sb, struct request *r, droste_result *result, const droste_error *err)
{
    if (r && err)
        request_fail(r, err);
    else if (r)
        request_reply(r, 204, NULL, NULL, 0);
}

void handle_rollback(struct request *r)
{
    struct sandbox *sb = sandbox_idle_of(r);
    unsigned id = sb ? checkpoint_named(r) : 0;
    droste_error err;
    if (id > 0) {
        int rc = droste_session_rollback_start(sb->session, id, &err);
        sandbox_await(sb, r, rc, &err, rollback_on_done);
    }
}

static void checkpoint_start_fork(struct request *r)
{
    struct sandbox *sb = sandbox_idle_of(r);
    unsigned id = sb ? checkpoint_named(r) : 0;
    droste_error err;
    if (id > 0) {
        int rc = droste_session_at_start(sb->session, id, &sb->forked, &err);
        sandbox_await(sb, r, rc, &err, fork_on_done);
    }
}

void handle_checkpoint_fork(struct request *r)
{
    struct sandbox *sb = sandbox_idle_of(r);
    if (sb && checkpoint_named(r) > 0)
        admission_ask(r, checkpoint_start_fork);
}
