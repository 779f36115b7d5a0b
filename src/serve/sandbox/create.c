/* serve/sandbox/create.c: a sandbox from its admission to the end of its first cell.
 *
 *   admission ─► settings ─► session starts ─► prepared ─► an empty cell ─► ready
 *
 * What the steps are for a protocol, its `sandbox_maker` says. The life of the sandbox begins when
 * it is ready: until then only the session's own limits end it.
 */
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "serve/sandbox/sandbox.h"
#include "serve/options.h"

/* The first cell, which is empty, tells whether the sandbox has started. */
static void create_on_started(
    struct sandbox *sb, struct request *r, droste_result *result, const droste_error *err)
{
    bool ok = !err && result && strcmp(droste_result_status(result), "ok") == 0;
    if (ok && r) {
        const struct sandbox_maker *maker = steal(&sb->maker);
        sb->created_ms = clock_wall_ms();
        sb->created_ns = clock_ns();
        maker->ready(sb, r, result);
        return;
    }
    if (r && err)
        request_fail(r, err);
    else if (r)
        request_refuse(r, 503, "environment", "the sandbox ended while it started: %s",
            droste_result_status(result));
    sandbox_close(sb); /* also that of a client which has gone: nothing else has its id */
}

static void create_on_prepared(
    struct sandbox *sb, struct request *r, droste_result *result, const droste_error *err)
{
    droste_error why;
    if (!r || err) {
        if (r)
            request_fail(r, err);
        sandbox_close(sb);
        return;
    }
    int rc = droste_session_exec_start(sb->session, "", 0, 0, -1, &why);
    sandbox_await(sb, r, rc, &why, create_on_started);
    if (rc < 0)
        sandbox_close(sb);
}

static void create_start(struct request *r)
{
    struct server *s = r->server;
    cleanup_buf struct buf words = { 0 };
    droste_session *session = NULL;
    droste_error err;
    if (!r->maker->settings(r, &words))
        return;
    sandbox_put_limits(r, &words);
    cleanup_free const char **settings = sandbox_list_settings(&words);
    if (!settings) {
        request_refuse_memory(r);
        return;
    }
    droste_template *from = r->maker->from ? r->maker->from(r) : NULL;
    if (r->reply)
        return;
    int started = from ? droste_session_start_from(from, settings, &session, &err)
                       : droste_session_start(s->d, settings, &session, &err);
    if (started < 0) {
        request_fail(r, &err);
        return;
    }
    struct sandbox *sb = sandbox_add(s, &r->admission, r->account, session);
    if (!sb) {
        request_refuse_memory(r);
        return;
    }
    table_count(s->figures, COUNT_CREATED, 1);
    sb->maker = r->maker;
    if (!sb->maker->prepare(sb, r)) {
        sandbox_close(sb);
        return;
    }
    droste_result *none = NULL;
    int rc = droste_session_wait(session, 0, &none, &err);
    if (rc == 1)
        sandbox_await(sb, r, 0, NULL, create_on_prepared);
    else
        create_on_prepared(sb, r, NULL, rc < 0 ? &err : NULL);
}

void sandbox_create(struct request *r, const struct sandbox_maker *maker)
{
    r->maker = maker;
    admission_ask(r, create_start);
}
