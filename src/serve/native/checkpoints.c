/* serve/native/checkpoints.c: the routes for checkpoints: kept states of a sandbox's session. */
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/json/fields.h"
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
    cleanup_buf struct buf out = { 0 };
    buf_printf(&out, "{\"id\": %u}", sb->checkpoint);
    if (r && err)
        request_fail(r, err);
    else if (r)
        request_reply_written(r, 201, &out);
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

void handle_checkpoint_list(struct request *r)
{
    struct sandbox *sb = sandbox_of(r);
    cleanup_buf struct buf out = { 0 };
    if (!sb)
        return;
    size_t count = droste_session_checkpoints(sb->session, NULL, 0);
    cleanup_free droste_checkpoint *all = request_alloc(r, (count + 1) * sizeof *all);
    if (!all)
        return;
    droste_session_checkpoints(sb->session, all, count);
    field_open(&out, NULL, '{');
    field_open(&out, "checkpoints", '[');
    for (size_t i = 0; i < count; i++) {
        field_open(&out, NULL, '{');
        field_int(&out, "id", all[i].id);
        field_int(&out, "parent", all[i].parent);
        field_int(&out, "cell", (int64_t)all[i].cell);
        field_int(&out, "memory", (int64_t)all[i].memory);
        field_bool(&out, "current", all[i].current);
        field_close(&out, '}');
    }
    field_close(&out, ']');
    field_close(&out, '}');
    request_reply_written(r, 200, &out);
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
