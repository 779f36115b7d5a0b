/* A session of a real guest whose code calls tools of the host: what tests of tools share. */
#pragma once

#include "../test.h"

#include "base/cleanup.h"
#include "broker/broker.h"
#include "broker/budget.h"
#include "broker/tools.h"
#include "session/session.h"

struct tool_session {
    struct loop *loop;
    struct environment *env;
    struct tools *tools;
    struct budget budget;
    struct broker *broker;
    struct session *session; /* NULL: not open yet */
    struct cell_result last;
    bool done;
};

static inline void tool_session_begin(struct tool_session *s)
{
    assert_ok(loop_open(&s->loop, err));
    assert_ok(environment_open("local", s->loop, NULL, &s->env, err));
    assert_ok(tools_new(&s->tools, err));
}

static inline void tool_session_end(struct tool_session *s)
{
    broker_close(steal(&s->broker)); /* calls that it ends find none */
    session_close(s->session);
    tools_free(s->tools);
    environment_close(s->env);
    loop_close(s->loop);
    budget_free(&s->budget);
    cell_result_free(&s->last);
}

static inline void tool_session_call(void *arg, struct session *s, const struct session_call *call)
{
    broker_call(((struct tool_session *)arg)->broker, s, call);
}

static inline void tool_session_drop(void *arg, struct session *s, uint64_t id)
{
    struct tool_session *t = arg;
    if (t->broker)
        broker_drop(t->broker, s, id);
}

/* `broker`: what the test sets of its options; the rest is filled in. */
static inline void tool_session_open_limited(
    struct tool_session *s, struct broker_options broker, struct budget_limits limits)
{
    static const struct session_events events = { tool_session_call, tool_session_drop, NULL };
    struct session_options options;
    broker.tools = s->tools;
    broker.budget = &s->budget;
    broker.depth = 1;
    broker.loop = s->loop;
    session_options_init(&options);
    options.grace = 10; /* a busy machine must not turn a timeout into a kill */
    tools_offer(s->tools, &options);
    budget_init(&s->budget, &limits);
    assert_ok(broker_open(&broker, &s->broker, err));
    assert_ok(session_open(s->env, &options, &events, s, &s->session, err));
}

static inline void tool_session_open(struct tool_session *s, struct broker_options broker)
{
    tool_session_open_limited(s, broker, (struct budget_limits){ .calls = -1, .tool_calls = -1 });
}

static inline void tool_session_took(void *arg, struct cell_result *result)
{
    struct tool_session *s = arg;
    cell_result_free(&s->last);
    s->last = *result;
    s->done = true;
}

static inline void tool_session_start(struct tool_session *s, const char *code, double limit)
{
    struct session_cell cell = { .code = code, .len = strlen(code), .execute_timeout = limit };
    s->done = false;
    assert_ok(session_exec(s->session, &cell, tool_session_took, s, err));
}

/* The cell that was started submits this. */
static inline void tool_session_finish(struct tool_session *s, const char *json)
{
    assert_ok(loop_run_until(s->loop, &s->done, err));
    if (!s->last.submit)
        fail_msg("status %s: %s", cell_status_name(s->last.status),
            s->last.error.message ? s->last.error.message : s->last.reason.text);
    assert_string_equal(submission_json(s->last.submit, NULL), json);
}

/* The cell submits this. */
static inline void tool_session_submits(struct tool_session *s, const char *code, const char *json)
{
    tool_session_start(s, code, 0);
    tool_session_finish(s, json);
}
