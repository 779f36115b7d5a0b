/* api/session_api.c: opening a session, with its settings, models and tools, and closing it. */
#include "api/session_api.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "session/context.h"

void api_interrupt_sessions(droste *d)
{
    for (struct droste_session *s = d->sessions; s; s = s->next)
        droste_session_interrupt(s);
}

void api_drop_stagings(droste *d)
{
    for (struct droste_session *s = d->sessions; s; s = s->next)
        staging_drop(steal(&s->staging));
    api_drop_staged_runs(d);
}

bool api_has_sessions(const droste *d)
{
    for (const struct droste_session *s = d->sessions; s; s = s->next)
        if (s->session || s->staging)
            return true;
    return false;
}

static void session_api_guest_call(
    void *arg, struct session *inner, const struct session_call *call)
{
    broker_call(((droste_session *)arg)->broker, inner, call);
}

static void session_api_guest_call_dropped(void *arg, struct session *inner, uint64_t id)
{
    droste_session *s = arg;
    if (s->broker)
        broker_drop(s->broker, inner, id);
}

static void session_api_guest_output(
    void *arg, struct session *inner, int stream, const char *data, size_t len)
{
    droste_session *s = arg;
    if (s->output)
        s->output(s->output_arg, stream, data, len);
}

static const struct session_events events = { session_api_guest_call,
    session_api_guest_call_dropped, session_api_guest_output };

/* ---- child runs ---- */

/* The record is opened when there is something to be recorded: most sessions start no run. */
static int session_api_open_record(droste_session *s, struct error *err)
{
    struct store *store = NULL;
    int rc = s->recorded ? 0 : api_store_at(s->d, s->settings.database, &store, err);
    if (rc < 0 || !store)
        return rc;
    s->recorded = true;
    s->d->store_users++;
    rlm_record_in(s->place, store);
    return 0;
}

static int session_api_start_child(void *arg, const struct broker_child *child,
    broker_child_fn *done, void *done_arg, struct child **out, struct error *err)
{
    droste_session *s = arg;
    int rc = session_api_open_record(s, err);
    return rc < 0 ? rc : rlm_children()->start(s->place, child, done, done_arg, out, err);
}

static void session_api_cancel_child(struct child *child, const struct error *why)
{
    rlm_children()->cancel(child, why);
}

static const struct broker_children children = { .start = session_api_start_child,
    .cancel = session_api_cancel_child };

static int open_place(droste_session *s, struct environment *env, struct error *err)
{
    struct rlm_options o = api_run_options(&s->settings);
    int rc = s->plain ? 0 : api_instructions(&s->settings, &s->instructions, err);
    if (rc == 0 && !s->plain)
        rc = api_system_prompt(&s->settings, &s->system_prompt, err);
    o.models = s->models.at;
    o.model_count = array_length(s->models.at);
    o.env = env;
    o.env_name = s->d->env_name;
    o.tools = s->tools;
    o.session = s->options;
    o.session.timeout = 0; /* they end with this session */
    o.instructions = buf_text(&s->instructions);
    o.system_prompt = buf_text(&s->system_prompt);
    return rc < 0 ? rc : rlm_open_place(s->d->loop, &o, &s->place, err);
}

/* Behind its staging. */
static int open_staged(droste_session *s, struct error *err)
{
    droste *d = s->d;
    struct environment *env;
    struct session_options *options = &s->options;
    tools_offer(s->tools, options);
    int rc = api_environment(d, &s->settings, &env, err);
    if (rc == 0)
        rc = api_models(d, &s->settings, false, &s->models, err);
    if (rc == 0)
        rc = open_place(s, env, err);
    if (rc < 0)
        return rc;
    struct broker_options broker = { .lm = s->models.at[1],
        .children = s->plain || s->settings.max_recursion_depth == 0 ? NULL : &children,
        .children_arg = s,
        .tools = s->tools,
        .tool_timeout = s->settings.tool_timeout,
        .budget = rlm_budget(s->place),
        .call_timeout = s->settings.call_timeout,
        .loop = d->loop,
        .answer_timeout = api_broker_timeout(&s->settings),
        .max_tokens = settings_sub_max_tokens(&s->settings),
        .depth = 1 };
    rc = broker_open(&broker, &s->broker, err);
    if (rc == 0)
        rc = session_open(env, options, &events, s, &s->session, err);
    if (rc == 0 && prepare_is_needed(s->session, options, false))
        rc = session_api_prepare(s, err);
    return rc;
}

static void session_staged(void *arg, struct staged_parts *parts, const struct error *why)
{
    droste_session *s = arg;
    struct error err = { 0 };
    s->staging = NULL;
    s->operation = OPERATION_NONE;
    if (why)
        err = *why;
    else
        staged_parts_use(parts, &s->settings, &s->parts, &s->options);
    if (why || open_staged(s, &err) < 0 || s->operation == OPERATION_NONE)
        session_api_opened(s, &err);
}

static int session_api_set_up(droste_session *s, struct error *err)
{
    droste *d = s->d;
    struct environment *env;
    cleanup_buf struct buf facts = { 0 };
    struct staged_parts nothing = { 0 };
    struct session_options *options = &s->options;
    struct workspace *workspace = steal(&s->parts.workspace);
    int rc = api_session_options(d, &s->settings, &s->parts, options, err);
    s->parts.workspace = workspace;
    s->parts.container.volume_there = s->of_volume;
    if (s->plain && !s->of_volume)
        s->parts.container.volume = NULL;
    if (rc == 0)
        rc = api_environment(d, &s->settings, &env, err);
    if (rc == 0)
        rc = staging_new(&s->settings, &s->staging, err);
    if (rc == 0 && !s->plain)
        rc = staging_want_session(s->staging, options, env, workspace, err);
    if (rc == 0 && !s->plain)
        rc = api_tools(d, &s->settings, &s->tools, &facts, err);
    if (rc == 0 && !s->tools)
        rc = tools_new(&s->tools, err); /* some may come later */
    if (s->plain) {
        options->rules = false;
        options->setup = NULL;
        options->answer = NULL;
    }
    s->rules = options->rules;
    if (rc < 0)
        return rc;
    if (staging_is_needed(s->staging))
        return session_api_stage(s, session_staged, err);
    staging_drop(steal(&s->staging));
    staged_parts_use(&nothing, &s->settings, &s->parts, options);
    return open_staged(s, err);
}

static int session_api_take_settings(
    droste_session *s, const char *const *settings, struct error *err)
{
    int rc = settings_copy(&s->settings, &s->d->settings, err);
    return rc == 0 ? api_settings_set(&s->settings, settings, err) : rc;
}

/* Takes the workspace, if there is one. */
static int start_session(droste *d, enum session_use use, const char *const *settings,
    struct workspace *workspace, droste_session **out, struct error *err)
{
    droste_session *s = calloc(1, sizeof *s);
    if (!s) {
        workspace_release(workspace);
        return error_memory(err);
    }
    s->d = d;
    s->plain = use != SESSION_OF_USER;
    s->of_volume = use == SESSION_OF_VOLUME;
    s->parts.workspace = workspace;
    s->next = d->sessions;
    d->sessions = s;
    int rc = session_api_take_settings(s, settings, err);
    if (rc == 0)
        rc = session_api_set_up(s, err);
    if (rc < 0) {
        droste_session_close(s);
        return rc;
    }
    *out = s;
    return 0;
}

int droste_session_start(
    droste *d, const char *const *settings, droste_session **out, droste_error *err)
{
    struct error why = { 0 };
    return api_fail(err, &why, start_session(d, SESSION_OF_USER, settings, NULL, out, &why));
}

static int session_api_open_session(droste *d, enum session_use use, struct workspace *workspace,
    droste_session **out, droste_error *err)
{
    struct error why = { 0 };
    droste_session *s = NULL;
    api_forget_interrupt(d);
    int rc = start_session(d, use, NULL, workspace, &s, &why);
    if (rc == 0)
        rc = session_api_finish(s, 0, NULL, &why);
    if (rc < 0) {
        droste_session_close(s);
        return api_fail(err, &why, rc);
    }
    *out = s;
    return 0;
}

int droste_session_open(droste *d, droste_session **out, droste_error *err)
{
    return session_api_open_session(d, SESSION_OF_USER, NULL, out, err);
}

int api_session_open_staged(
    droste *d, struct workspace *workspace, droste_session **out, droste_error *err)
{
    return session_api_open_session(d, SESSION_OF_USER, workspace, out, err);
}

int api_session_open_volume(
    droste *d, struct workspace *workspace, droste_session **out, droste_error *err)
{
    return session_api_open_session(d, SESSION_OF_VOLUME, workspace, out, err);
}

int droste_session_open_plain(droste *d, droste_session **out, droste_error *err)
{
    return session_api_open_session(d, SESSION_PLAIN, NULL, out, err);
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
    session_api_tell_nobody(s);
    staging_drop(s->staging);
    broker_close(steal(&s->broker));
    session_close(s->session);
    if (s->d->env)
        environment_settle(s->d->env); /* what is far away costs money as long as it is there */
    rlm_close(s->place);
    s->d->store_users -= s->recorded;
    prepare_free(&s->prepare);
    tools_free(s->tools);
    session_parts_free(&s->parts);
    api_models_close(&s->models);
    buf_free(&s->instructions);
    buf_free(&s->system_prompt);
    buf_free(&s->plan);
    cell_result_free(&s->result);
    context_free(s->context);
    settings_free(&s->settings);
    free(s->notice);
    free(s);
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

void droste_session_interrupt(droste_session *s)
{
    if (s->staging)
        staging_cancel(s->staging);
    if (s->session)
        session_interrupt(s->session);
}

int droste_session_is_alive(const droste_session *s)
{
    return s->staging || (s->session && session_is_alive(s->session));
}

const char *droste_session_isolation(const droste_session *s)
{
    return isolation_name(s->session ? session_isolation(s->session) : s->options.spec.isolation);
}

const char *droste_session_sandbox(const droste_session *s)
{
    return s->session ? session_sandbox_id(s->session) : NULL;
}

const char *droste_session_workspace(const droste_session *s)
{
    return s->session ? session_workspace(s->session) : NULL;
}

const char *droste_session_plan(droste_session *s, size_t *len)
{
    buf_clear(&s->plan);
    if (s->session)
        session_describe(s->session, &s->plan);
    *len = s->plan.len;
    return buf_failed(&s->plan) ? NULL : buf_text(&s->plan);
}

/* ---- tools and types of a session that is open, or is being opened: then HELLO has them ---- */

/* Takes the text. */
static int offer(droste_session *s, struct buf *json, struct error *err)
{
    int rc = buf_failed(json) ? error_memory(err)
             : s->session     ? session_offer(s->session, json->data, json->len, err)
                              : 0;
    buf_free(json);
    return rc;
}

int droste_session_tool_add(droste_session *s, const char *name, const char *description,
    const char *parameters, droste_tool_fn *fn, void *arg, droste_error *err)
{
    struct error why = { 0 };
    struct buf json = { 0 };
    int rc = tool_api_add(s->tools, name, description, parameters, true, fn, arg, &why);
    if (rc < 0)
        return api_fail(err, &why, rc);
    buf_puts(&json, "{\"tools\":[");
    tools_describe(tools_find(s->tools, name), &json);
    buf_puts(&json, "]}");
    rc = offer(s, &json, &why);
    if (rc < 0)
        tools_remove(s->tools, name);
    return api_fail(err, &why, rc);
}

int droste_session_tool_remove(droste_session *s, const char *name, droste_error *err)
{
    struct error why = { 0 };
    struct buf json = { 0 };
    if (!tools_remove(s->tools, name))
        return api_fail(
            err, &why, error_set(&why, ERROR_NOT_FOUND, "the session has no tool '%.64s'", name));
    buf_printf(&json, "{\"gone\":[\"%s\"]}", name);
    int rc = offer(s, &json, &why);
    return api_fail(err, &why, rc);
}

int droste_session_expect(droste_session *s, const char *schema, droste_error *err)
{
    struct error why = { 0 };
    struct schema *answer = NULL;
    int rc = schema ? schema_parse(schema, strlen(schema), &answer, &why) : 0;
    if (rc < 0)
        return api_fail(err, &why, error_wrap(&why, "the schema of the answer"));
    if (!s->session) {
        schema_drop(s->parts.answer);
        s->options.answer = s->parts.answer = answer;
        return 0;
    }
    rc = session_expect(s->session, answer, &why);
    schema_drop(answer);
    return api_fail(err, &why, rc);
}
