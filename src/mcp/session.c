/* mcp/session.c: Python sessions by name, whose calls run one after the other. */
#include "mcp/session.h"

#include <stddef.h>
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

static const struct mcp_host *session_host(const struct mcp_session *s)
{
    return s->mcp->server->host;
}

static void session_begin_next(struct mcp_session *s)
{
    while (s->queue && s->session && !s->is_busy && !session_host(s)->is_busy(s->held)) {
        struct mcp_call *c = s->queue;
        s->queue = c->queued;
        c->queued = NULL;
        c->begin(c);
    }
}

void mcp_session_idle(struct mcp_session *s)
{
    session_begin_next(s);
}

static void session_fail(struct mcp_session *s, const char *why);

void mcp_session_done(struct mcp_session *s, droste_result *result, const droste_error *err)
{
    struct mcp_call *c = s->running;
    if (s->is_opening && err) {
        session_fail(s, err->text);
        return;
    }
    s->is_busy = s->is_opening = false;
    s->running = NULL;
    if (c) {
        c->session = NULL;
        c->cancel = NULL;
    }
    if (s->done)
        s->done(s, c, result, err);
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

static void session_queue(struct mcp_session *s, struct mcp_call *c)
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
    session_host(s)->begin(s->held, c->stream);
}

/* ---- opening and closing ---- */

static struct mcp_session *session_add(struct mcp *mcp, const char *name)
{
    struct mcp_session *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->mcp = mcp;
    s->place.mcp = mcp;
    snprintf(s->name, sizeof s->name, "%s", name);
    s->next = mcp->sessions;
    mcp->sessions = s;
    mcp->session_count++;
    return s;
}

/* Answers its calls, and forgets it. */
static void session_drop(struct mcp_session *s, const char *why)
{
    struct mcp *mcp = s->mcp;
    for (struct mcp_session **at = &mcp->sessions; *at; at = &(*at)->next)
        if (*at == s) {
            *at = s->next;
            break;
        }
    mcp->session_count--;
    if (s->running)
        mcp_tool_fail(s->running, "%s", why);
    while (s->queue) {
        struct mcp_call *c = s->queue;
        s->queue = c->queued;
        mcp_tool_fail(c, "%s", why);
    }
    if (s->place.host)
        session_host(s)->leave(&s->place);
    free(s);
}

static void session_drop_closed(struct mcp_session *s)
{
    char why[SESSION_NAME_SIZE + 64];
    snprintf(why, sizeof why, "the session '%s' was closed meanwhile", s->name);
    session_drop(s, why);
}

void mcp_session_lost(struct mcp_session *s)
{
    s->held = NULL;
    session_drop_closed(s);
}

static void mcp_session_close(struct mcp_session *s)
{
    const struct mcp_host *host = session_host(s);
    void *held = s->held;
    if (s->session)
        droste_session_on_output(s->session, NULL, NULL);
    s->held = NULL;
    session_drop_closed(s);
    if (held)
        host->close(held);
}

void mcp_sessions_free(struct mcp *mcp)
{
    while (mcp->sessions)
        mcp_session_close(mcp->sessions);
}

/* Takes over what was opened in the session's place; false: the session was dropped. */
static bool session_hold(struct mcp_session *s, droste_session *session)
{
    s->held = session_host(s)->add(&s->place, s, session);
    if (!s->held) {
        session_drop(s, "out of memory");
        return false;
    }
    s->session = session;
    return true;
}

/* It did not open. */
static void session_fail(struct mcp_session *s, const char *why)
{
    const struct mcp_host *host = session_host(s);
    void *held = steal(&s->held);
    session_drop(s, why);
    if (held)
        host->close(held);
}

/* Its volume, setup code and MCP servers may still have to be prepared. */
static void session_opened(struct mcp_session *s)
{
    droste_result *none = NULL;
    droste_error err;
    int rc = droste_session_wait(s->session, 0, &none, &err);
    if (rc < 0) {
        session_fail(s, err.text);
        return;
    }
    if (rc == 0) {
        session_begin_next(s);
        return;
    }
    s->is_busy = s->is_opening = true;
    s->running = NULL;
    s->done = NULL;
    session_host(s)->begin(s->held, NULL);
}

static struct mcp_session *session_of_place(struct mcp_place *place)
{
    return (struct mcp_session *)((char *)place - offsetof(struct mcp_session, place));
}

static void session_on_place(struct mcp_place *place, const droste_error *why)
{
    struct mcp_session *s = session_of_place(place);
    const struct mcp_host *host = session_host(s);
    droste_session *session = NULL;
    droste_error err = { .text = "out of memory" };
    if (why) {
        session_drop(s, why->text);
        return;
    }
    cleanup_free const char **settings = host->settings(place);
    if (!settings || droste_session_start(s->mcp->server->d, settings, &session, &err) < 0)
        session_drop(s, err.text);
    else if (session_hold(s, session))
        session_opened(s);
}

static struct mcp_session *session_lookup(struct mcp_call *c, const char *name)
{
    struct mcp_session *s = session_find(c->peer->mcp, name);
    if (s && s->session && !s->is_busy && !droste_session_is_alive(s->session)) {
        mcp_session_close(s); /* a new one begins, and its `variables` tell that it is empty */
        s = NULL;
    }
    return s;
}

/* False: the call was answered. */
static bool session_may_be_made(struct mcp_call *c, const char *name)
{
    const struct mcp *mcp = c->peer->mcp;
    if (!text_is_name(name))
        mcp_tool_fail(c, "'%s' is not a name: up to 64 letters, digits, '.', '_' and '-'", name);
    else if (mcp->session_count >= mcp->server->max_sessions)
        mcp_tool_fail(
            c, "there are %zu sessions, the most; end one with close_session", mcp->session_count);
    else
        return true;
    return false;
}

/* The session that the argument "session" names ("main" without one). NULL: there is none, and the
 * call was answered. */
static struct mcp_session *mcp_session_of(struct mcp_call *c)
{
    const char *name = json_get_string(c->arguments, "session", "main");
    struct mcp_session *s = session_lookup(c, name);
    if (!s)
        mcp_tool_fail(c, "there is no session '%s'; run_python creates it", name);
    return s;
}

void mcp_session_use(struct mcp_call *c, bool at_once)
{
    const char *name = json_get_string(c->arguments, "session", "main");
    struct mcp_session *s = session_lookup(c, name);
    if (s && s->session && at_once) {
        c->session = s;
        session_host(s)->use(s->held);
        c->begin(c);
        return;
    }
    if (s) {
        session_queue(s, c);
        return;
    }
    if (!session_may_be_made(c, name))
        return;
    if (!(s = session_add(c->peer->mcp, name))) {
        mcp_call_fail(c, RPC_INTERNAL, "out of memory");
        return;
    }
    session_queue(s, c);
    s->place.go = session_on_place;
    session_host(s)->ask(s->mcp->user, &s->place);
}

/* ---- sandboxes of its own ---- */

static void own_ask(void *user, struct mcp_place *place)
{
    place->go(place, NULL);
}

static void own_leave(struct mcp_place *place)
{
    place->host = NULL;
}

static const char **own_settings(const struct mcp_place *place)
{
    return calloc(1, sizeof(char *));
}

static void own_on_done(
    void *arg, droste_session *session, droste_result *result, const droste_error *err)
{
    mcp_session_done(arg, result, err);
    droste_result_free(result);
}

static bool own_may_run(void *user)
{
    return true;
}

static void *own_add(struct mcp_place *place, struct mcp_session *s, droste_session *session)
{
    droste_session_on_done(session, own_on_done, s);
    return session;
}

static void own_close(void *held)
{
    droste_session_on_done(held, NULL, NULL);
    droste_session_close(held);
}

static void own_begin(void *held, void *stream)
{
}

static void own_use(void *held)
{
}

static bool own_is_busy(void *held)
{
    return false;
}

const struct mcp_host mcp_own_host = { .ask = own_ask,
    .leave = own_leave,
    .settle = own_leave,
    .may_run = own_may_run,
    .settings = own_settings,
    .add = own_add,
    .close = own_close,
    .begin = own_begin,
    .use = own_use,
    .is_busy = own_is_busy };

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
        const char *state = !s->session                           ? "starting"
                            : s->is_busy                          ? "executing"
                            : droste_session_is_alive(s->session) ? "idle"
                                                                  : "ended";
        ok = item && json_put_text(item, "session", s->name) &&
             json_put_text(item, "state", state) &&
             (!s->session ||
                 json_put_text(item, "isolation", droste_session_isolation(s->session))) &&
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
    struct mcp_session *s = mcp_session_of(c);
    if (!s)
        return;
    struct json_object *data = session_data(s->name);
    mcp_session_close(s);
    answer_data(c, data);
}

void mcp_tool_session_interrupt(struct mcp_call *c)
{
    struct mcp_session *s = mcp_session_of(c);
    if (!s)
        return;
    struct json_object *data = session_data(s->name);
    if (s->session)
        droste_session_interrupt(s->session);
    answer_data(c, data);
}

/* A fork that its parent is making: a session that has room, and waits for its memory. */
struct fork {
    struct mcp *mcp;
    struct mcp_call *call;
    droste_session *session;
    struct mcp_place place;
    char name[SESSION_NAME_SIZE];
};

static void fork_free(void *state)
{
    struct fork *f = state;
    if (f->session)
        droste_session_close(f->session);
    if (f->place.host)
        f->mcp->server->host->leave(&f->place);
    free(f);
}

static void fork_on_done(
    struct mcp_session *parent, struct mcp_call *c, droste_result *result, const droste_error *err)
{
    (void)parent;
    (void)result;
    if (!c)
        return; /* the state of the call, with the fork, is gone */
    struct fork *f = c->state;
    struct mcp *mcp = f->mcp;
    if (err) {
        mcp_tool_fail_error(c, err);
        return;
    }
    struct mcp_session *s = session_find(mcp, f->name) ? NULL : session_add(mcp, f->name);
    if (!s) {
        mcp_tool_fail(c, "there is a session '%s' already", f->name);
        return;
    }
    s->place.host = steal(&f->place.host);
    if (session_hold(s, steal(&f->session)))
        answer_data(c, session_data(s->name));
    else
        mcp_call_fail(c, RPC_INTERNAL, "out of memory");
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

static void fork_on_place(struct mcp_place *place, const droste_error *why)
{
    struct fork *f = (struct fork *)((char *)place - offsetof(struct fork, place));
    struct mcp_call *c = f->call;
    if (why) {
        mcp_tool_fail_error(c, why);
        return;
    }
    struct mcp_session *s = mcp_session_of(c);
    if (s)
        session_queue(s, c);
}

void mcp_tool_session_fork(struct mcp_call *c)
{
    struct mcp *mcp = c->peer->mcp;
    const char *name = json_get_string(c->arguments, "name", "");
    if (!mcp_session_of(c) || !session_may_be_made(c, name))
        return;
    if (session_find(mcp, name)) {
        mcp_tool_fail(c, "there is a session '%s' already", name);
        return;
    }
    struct fork *f = calloc(1, sizeof *f);
    if (!f) {
        mcp_call_fail(c, RPC_INTERNAL, "out of memory");
        return;
    }
    f->mcp = mcp;
    f->call = c;
    f->place.mcp = mcp;
    f->place.go = fork_on_place;
    snprintf(f->name, sizeof f->name, "%s", name);
    c->state = f;
    c->free_state = fork_free;
    c->begin = fork_begin;
    mcp->server->host->ask(mcp->user, &f->place);
}
