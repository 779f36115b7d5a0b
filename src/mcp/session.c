/* mcp/session.c: Python sessions by name, whose calls run one after the other. */
#include "mcp/session.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/text.h"

static struct mcp_session *session_find(struct mcp *mcp, const char *name)
{
    for (struct mcp_session *s = mcp->sessions; s; s = s->next)
        if (strcmp(s->name, name) == 0)
            return s;
    return NULL;
}

static void session_begin_next(struct mcp_session *s)
{
    while (s->queue && !s->is_busy) {
        struct mcp_call *c = s->queue;
        s->queue = c->queued;
        c->queued = NULL;
        c->begin(c);
    }
}

static void session_on_done(
    void *arg, droste_session *session, droste_result *result, const droste_error *err)
{
    struct mcp_session *s = arg;
    struct mcp_call *c = s->running;
    (void)session;
    s->is_busy = false;
    s->running = NULL;
    if (c) {
        c->session = NULL;
        c->cancel = NULL;
    }
    if (s->done)
        s->done(s, c, result, err);
    droste_result_free(result);
    session_begin_next(s);
}

/* Its client does not wait any more: a cell is interrupted, the session continues. */
static void session_on_cancel(struct mcp_call *c)
{
    struct mcp_session *s = c->session;
    if (s->running == c) {
        s->running = NULL;
        droste_session_interrupt(s->session);
    }
    for (struct mcp_call **at = &s->queue; *at; at = &(*at)->queued)
        if (*at == c) {
            *at = c->queued;
            break;
        }
    mcp_call_drop(c);
}

void mcp_session_queue(struct mcp_session *s, struct mcp_call *c)
{
    struct mcp_call **at = &s->queue;
    while (*at)
        at = &(*at)->queued;
    *at = c;
    c->session = s;
    c->cancel = session_on_cancel;
    session_begin_next(s);
}

void mcp_session_await(struct mcp_session *s, struct mcp_call *c, int rc, const droste_error *err,
    void (*done)(
        struct mcp_session *s, struct mcp_call *c, droste_result *result, const droste_error *err))
{
    if (rc < 0) {
        mcp_tool_fail_error(c, err);
        return;
    }
    c->session = s;
    c->cancel = session_on_cancel;
    s->is_busy = true;
    s->running = c;
    s->done = done;
}

struct mcp_session *mcp_session_add(struct mcp_call *c, const char *name, droste_session *session)
{
    struct mcp *mcp = c->peer->mcp;
    struct mcp_session *s = calloc(1, sizeof *s);
    if (!s) {
        droste_session_close(session);
        mcp_call_fail(c, RPC_INTERNAL, "out of memory");
        return NULL;
    }
    s->mcp = mcp;
    snprintf(s->name, sizeof s->name, "%s", name);
    s->session = session;
    s->next = mcp->sessions;
    mcp->sessions = s;
    mcp->session_count++;
    droste_session_on_done(session, session_on_done, s);
    return s;
}

struct mcp_session *mcp_session_of(struct mcp_call *c, bool open)
{
    struct mcp *mcp = c->peer->mcp;
    const char *name = json_get_string(c->arguments, "session", "main");
    struct mcp_session *s = session_find(mcp, name);
    droste_session *session = NULL;
    droste_error err;
    if (s && !s->is_busy && !droste_session_is_alive(s->session)) {
        mcp_session_close(s); /* a new one begins, and its `variables` tell that it is empty */
        s = NULL;
    }
    if (s)
        return s;
    if (!open)
        mcp_tool_fail(c, "there is no session '%s'; run_python creates it", name);
    else if (!text_is_name(name))
        mcp_tool_fail(c, "'%s' is not a name: up to 64 letters, digits, '.', '_' and '-'", name);
    else if (mcp->session_count >= mcp->max_sessions)
        mcp_tool_fail(
            c, "there are %zu sessions, the most; end one with close_session", mcp->session_count);
    else if (droste_session_start(mcp->d, NULL, &session, &err) < 0)
        mcp_tool_fail_error(c, &err);
    else
        return mcp_session_add(c, name, session);
    return NULL;
}

void mcp_session_close(struct mcp_session *s)
{
    struct mcp *mcp = s->mcp;
    for (struct mcp_session **at = &mcp->sessions; *at; at = &(*at)->next)
        if (*at == s) {
            *at = s->next;
            break;
        }
    mcp->session_count--;
    droste_session_on_output(s->session, NULL, NULL);
    droste_session_on_done(s->session, NULL, NULL);
    if (s->running)
        mcp_tool_fail(s->running, "the session '%s' was closed meanwhile", s->name);
    while (s->queue) {
        struct mcp_call *c = s->queue;
        s->queue = c->queued;
        mcp_tool_fail(c, "the session '%s' was closed meanwhile", s->name);
    }
    droste_session_close(s->session);
    free(s);
}

void mcp_sessions_free(struct mcp *mcp)
{
    while (mcp->sessions)
        mcp_session_close(mcp->sessions);
}

/* ---- tools ---- */

static void answer_data(struct mcp_call *c, struct json_object *data)
{
    struct json_object *result = data ? mcp_result() : NULL;
    if (result)
        mcp_result_set_data(result, data);
    else
        json_object_put(data);
    mcp_call_answer(c, result);
}

void mcp_tool_sessions_list(struct mcp_call *c)
{
    struct json_object *list = json_object_new_array(), *o = json_object_new_object();
    bool ok = list && o;
    for (struct mcp_session *s = c->peer->mcp->sessions; ok && s; s = s->next) {
        struct json_object *item = json_object_new_object();
        const char *state = s->is_busy                            ? "executing"
                            : droste_session_is_alive(s->session) ? "idle"
                                                                  : "ended";
        ok = item && json_put_text(item, "session", s->name) &&
             json_put_text(item, "state", state) &&
             json_put_text(item, "isolation", droste_session_isolation(s->session)) &&
             json_object_array_add(list, item) == 0;
        if (!ok)
            json_object_put(item);
    }
    if (ok)
        ok = json_put(o, "sessions", list);
    else
        json_object_put(list);
    if (!ok) {
        json_object_put(o);
        o = NULL;
    }
    answer_data(c, o);
}

static struct json_object *session_data(const char *name)
{
    struct json_object *o = json_object_new_object();
    if (o && json_put_text(o, "session", name))
        return o;
    json_object_put(o);
    return NULL;
}

void mcp_tool_session_close(struct mcp_call *c)
{
    struct mcp_session *s = mcp_session_of(c, false);
    if (!s)
        return;
    struct json_object *data = session_data(s->name);
    mcp_session_close(s);
    answer_data(c, data);
}

void mcp_tool_session_interrupt(struct mcp_call *c)
{
    struct mcp_session *s = mcp_session_of(c, false);
    if (!s)
        return;
    struct json_object *data = session_data(s->name);
    droste_session_interrupt(s->session);
    answer_data(c, data);
}

/* A fork that its parent is making. */
struct fork {
    droste_session *session;
    char name[SESSION_NAME_SIZE];
};

static void fork_free(void *state)
{
    struct fork *f = state;
    if (f && f->session)
        droste_session_close(f->session);
    free(f);
}

static void fork_on_done(
    struct mcp_session *s, struct mcp_call *c, droste_result *result, const droste_error *err)
{
    (void)s;
    (void)result;
    if (!c)
        return; /* the state of the call, with the fork, is gone */
    struct fork *f = c->state;
    if (err) {
        mcp_tool_fail_error(c, err);
        return;
    }
    struct mcp_session *made = mcp_session_add(c, f->name, f->session);
    f->session = NULL;
    if (made)
        answer_data(c, session_data(made->name));
}

static void fork_begin(struct mcp_call *c)
{
    struct mcp_session *s = c->session;
    struct fork *f = c->state;
    droste_error err;
    int rc = droste_session_fork_start(s->session, &f->session, &err);
    if (rc < 0)
        f->session = NULL;
    mcp_session_await(s, c, rc, &err, fork_on_done);
}

void mcp_tool_session_fork(struct mcp_call *c)
{
    struct mcp *mcp = c->peer->mcp;
    const char *name = json_get_string(c->arguments, "name", "");
    struct mcp_session *s = mcp_session_of(c, false);
    if (!s)
        return;
    if (!text_is_name(name))
        mcp_tool_fail(c, "'%s' is not a name: up to 64 letters, digits, '.', '_' and '-'", name);
    else if (session_find(mcp, name))
        mcp_tool_fail(c, "there is a session '%s' already", name);
    else if (mcp->session_count >= mcp->max_sessions)
        mcp_tool_fail(
            c, "there are %zu sessions, the most; end one with close_session", mcp->session_count);
    else {
        struct fork *f = calloc(1, sizeof *f);
        if (!f) {
            mcp_call_fail(c, RPC_INTERNAL, "out of memory");
            return;
        }
        snprintf(f->name, sizeof f->name, "%s", name);
        c->state = f;
        c->free_state = fork_free;
        c->begin = fork_begin;
        mcp_session_queue(s, c);
    }
}
