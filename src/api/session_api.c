/* api/session_api.c: sessions, waiting for each operation. */
#include "api/api.h"

#include <stdlib.h>
#include <string.h>

#include "api/contexts.h"
#include "base/cleanup.h"
#include "broker/broker.h"
#include "session/context.h"
#include "session/prepare.h"

struct droste_session {
    droste *d;
    struct droste_session *next;
    struct session *session;
    struct session_parts parts;
    struct models models;
    struct tools *tools;
    struct session_options options;
    struct prepare prepare;
    struct error prepared; /* what went wrong with it */
    struct broker *broker;
    struct budget budget;
    droste_output_fn *output;
    void *output_arg;
    char *notice; /* about the last load, or NULL */
    bool plain;   /* for our own use: without rules, setup code, types */
    bool rules;   /* in force */
    bool started; /* an operation has ended: the sandbox is there */
    /* the operation that is being waited for */
    bool done;
    struct cell_result result;
};

void api_interrupt_sessions(droste *d)
{
    for (struct droste_session *s = d->sessions; s; s = s->next)
        session_interrupt(s->session);
}

static void guest_call(void *arg, struct session *inner, const struct session_call *call)
{
    broker_call(((droste_session *)arg)->broker, inner, call);
}

static void guest_call_dropped(void *arg, struct session *inner, uint64_t id)
{
    droste_session *s = arg;
    if (s->broker)
        broker_drop(s->broker, inner, id);
}

static void guest_output(void *arg, struct session *inner, int stream, const char *data, size_t len)
{
    droste_session *s = arg;
    if (s->output)
        s->output(s->output_arg, stream, data, len);
}

static const struct session_events events = { guest_call, guest_call_dropped, guest_output };

static int wait_for(droste_session *s, int rc, struct error *err);

static void prepared(void *arg, const struct error *why)
{
    droste_session *s = arg;
    if (why)
        s->prepared = *why;
    s->done = true;
}

static int prepare(droste_session *s, struct error *err)
{
    s->done = false;
    int rc = prepare_start(&s->prepare, s->session, &s->options, false, prepared, s, err);
    rc = wait_for(s, rc, err);
    if (rc < 0 || s->prepared.code == ERROR_NONE)
        return rc;
    if (err)
        *err = s->prepared;
    return -(int)s->prepared.code;
}

static int set_up(droste_session *s, struct error *err)
{
    droste *d = s->d;
    struct environment *env;
    struct budget_limits limits = {
        .calls = d->settings.max_llm_calls,
        .tool_calls = d->settings.max_tool_calls,
        .input_tokens = d->settings.max_input_tokens,
        .output_tokens = d->settings.max_output_tokens,
        .total_tokens = d->settings.max_total_tokens,
        .cost = d->settings.max_cost,
    };
    budget_init(&s->budget, &limits);
    struct session_options *options = &s->options;
    int rc = api_session_options(d, &d->settings, &s->parts, options, err);
    if (rc == 0 && !s->plain)
        rc = api_tools(d, &d->settings, &s->tools, err);
    tools_offer(s->tools, options);
    if (s->plain) {
        options->rules = false;
        options->setup = NULL;
        options->answer = NULL;
    }
    s->rules = options->rules;
    if (rc == 0)
        rc = api_environment(d, &env, err);
    if (rc == 0)
        rc = api_models(d, &d->settings, false, &s->models, err);
    if (rc < 0)
        return rc;
    struct broker_options broker = { .lm = s->models.at[1],
        .tools = s->tools,
        .tool_timeout = d->settings.tool_timeout,
        .budget = &s->budget,
        .call_timeout = d->settings.call_timeout,
        .loop = d->loop,
        .answer_timeout = api_broker_timeout(&d->settings),
        .max_tokens = d->settings.max_tokens,
        .depth = 1 };
    rc = broker_open(&broker, &s->broker, err);
    if (rc == 0)
        rc = session_open(env, options, &events, s, &s->session, err);
    if (rc == 0 && prepare_is_needed(options, false))
        rc = prepare(s, err);
    return rc;
}

static int open_session(droste *d, bool plain, droste_session **out, droste_error *err)
{
    struct error why = { 0 };
    droste_session *s = calloc(1, sizeof *s);
    if (!s)
        return api_fail(err, &why, error_memory(&why));
    s->d = d;
    s->plain = plain;
    s->next = d->sessions;
    d->sessions = s;
    int rc = set_up(s, &why);
    if (rc < 0) {
        droste_session_close(s);
        return api_fail(err, &why, rc);
    }
    *out = s;
    return 0;
}

int droste_session_open(droste *d, droste_session **out, droste_error *err)
{
    return open_session(d, false, out, err);
}

int api_session_open_plain(droste *d, droste_session **out, droste_error *err)
{
    return open_session(d, true, out, err);
}

void droste_session_close(droste_session *s)
{
    if (!s)
        return;
    for (struct droste_session **at = &s->d->sessions; *at; at = &(*at)->next) {
        if (*at != s)
            continue;
        *at = s->next;
        break;
    }
    broker_close(steal(&s->broker));
    session_close(s->session);
    prepare_free(&s->prepare);
    tools_free(s->tools);
    session_parts_free(&s->parts);
    api_models_close(&s->models);
    budget_free(&s->budget);
    cell_result_free(&s->result);
    free(s->notice);
    free(s);
}

static void operation_done(void *arg, struct cell_result *result)
{
    droste_session *s = arg;
    s->result = *result;
    s->done = true;
}

/* Waits for an operation whose start returned rc. While a sandbox is being made, others need the
 * processors more. */
static int wait_for(droste_session *s, int rc, struct error *err)
{
    if (rc < 0)
        return rc;
    rc = s->started ? api_wait_soon(s->d, &s->done, err) : api_wait(s->d, &s->done, err);
    s->started = true;
    return rc;
}

int droste_session_exec(droste_session *s, const char *code, size_t len, int flags,
    droste_result **out, droste_error *err)
{
    struct error why = { 0 };
    struct session_cell cell = {
        .code = code, .len = len, .echo = flags & DROSTE_ECHO, .execute_timeout = -1
    };
    s->done = false;
    api_forget_interrupt(s->d);
    int rc = session_exec(s->session, &cell, operation_done, s, &why);
    rc = wait_for(s, rc, &why);
    if (rc < 0)
        return api_fail(err, &why, rc);
    struct cell_result result = s->result;
    s->result = (struct cell_result){ 0 };
    if (result.reason.code == ERROR_ENVIRONMENT) {
        why = result.reason;
        cell_result_free(&result);
        return api_fail(err, &why, -(int)ERROR_ENVIRONMENT);
    }
    *out = result_of_cell(&result, s->session, s->rules);
    return *out ? 0 : api_fail(err, &why, error_memory(&why));
}

static int set_context(droste_session *s, const struct context *context, const char *const *names,
    size_t count, struct error *err)
{
    s->done = false;
    int rc =
        wait_for(s, context_set(context, s->session, names, count, operation_done, s, err), err);
    if (rc < 0)
        return rc;
    struct cell_result *r = &s->result;
    if (r->status != CELL_OK)
        rc = context_refused(context, r, err);
    cell_result_free(r);
    return rc;
}

int droste_session_set(droste_session *s, const char *name, const char *kind, const void *data,
    size_t len, droste_error *err)
{
    struct error why = { 0 };
    struct context *context = NULL;
    enum value_kind value;
    int rc = context_kind_parse(kind, &value, &why);
    if (rc == 0)
        rc = context_from_memory(data, len, value, &context, &why);
    if (rc == 0)
        rc = set_context(s, context, &name, 1, &why);
    context_free(context);
    return api_fail(err, &why, rc);
}

int droste_session_load(
    droste_session *s, const char *name, const char *kind, const char *path, droste_error *err)
{
    struct error why = { 0 };
    struct context *context = NULL;
    enum value_kind value;
    struct context_filter filter = api_filter(&s->d->settings);
    const char *setting = s->d->settings.context_type;
    free(steal(&s->notice));
    int rc = context_kind_parse(kind ? kind : setting ? setting : "auto", &value, &why);
    if (rc == 0)
        rc = context_load(path, value, &filter, &context, &why);
    if (rc == 0)
        rc = set_context(s, context, &name, 1, &why);
    if (rc == 0)
        s->notice = context_notice(context);
    context_free(context);
    return api_fail(err, &why, rc);
}

/* The notices one after the other, on a line. */
static int add_notice(droste_session *s, const struct context *context, struct error *err)
{
    cleanup_free char *notice = context_notice(context), *before = steal(&s->notice);
    struct buf all = { 0 };
    if (!notice) {
        s->notice = steal(&before);
        return 0;
    }
    buf_printf(&all, "%s%s%s", before ? before : "", before ? "; " : "", notice);
    s->notice = buf_steal(&all);
    return s->notice ? 0 : error_memory(err);
}

int droste_session_load_contexts(droste_session *s, droste_error *err)
{
    struct error why = { 0 };
    struct contexts all = { 0 };
    free(steal(&s->notice));
    int rc = api_contexts_load(s->d, &s->d->settings, NULL, &all, &why);
    for (size_t i = 0; rc == 0 && i < all.count; i++) {
        struct context_names names;
        context_names(all.items[i], i, &names);
        rc = set_context(s, all.items[i], names.names, names.count, &why);
        if (rc == 0)
            rc = add_notice(s, all.items[i], &why);
    }
    contexts_free(&all);
    return api_fail(err, &why, rc);
}

const char *droste_session_notice(const droste_session *s)
{
    return s->notice;
}

void droste_session_on_output(droste_session *s, droste_output_fn *fn, void *arg)
{
    s->output = fn;
    s->output_arg = arg;
}

const char *droste_session_isolation(const droste_session *s)
{
    return isolation_name(session_isolation(s->session));
}

void api_session_describe(const droste_session *s, struct buf *out)
{
    session_describe(s->session, out);
}
