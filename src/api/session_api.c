/* api/session_api.c: opening a session, with its settings, models and tools, and closing it. */
#include "api/session_api.h"

#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "api/approval_api.h"
#include "api/environment_api.h"
#include "api/mcp_api.h"
#include "api/packages.h"
#include "api/result.h"
#include "api/session_ops.h"
#include "api/templates.h"
#include "api/tool_api.h"
#include "base/cleanup.h"
#include "base/json/schema.h"
#include "broker/broker.h"
#include "broker/network_ask.h"
#include "broker/tools.h"
#include "session/context.h"

enum session_use { SESSION_OF_USER, SESSION_PLAIN, SESSION_OF_VOLUME };

void api_interrupt_sessions(droste *d)
{
    for (struct droste_session *s = d->sessions; s; s = s->next)
        droste_session_interrupt(s);
}

void api_drop_session_stagings(droste *d)
{
    for (struct droste_session *s = d->sessions; s; s = s->next)
        staging_drop(steal(&s->staging));
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

static void session_api_guest_display(
    void *arg, struct session *inner, const struct bundles *results)
{
    droste_session *s = arg;
    if (s->display)
        s->display(s->display_arg, result_bundles(results), (size_t)results->latest);
}

static bool session_api_guest_approve(
    void *arg, struct session *inner, droste_network_request *request)
{
    droste_session *s = arg;
    return s->broker && network_ask(s->broker, inner, request);
}

static const struct session_events events = { .call = session_api_guest_call,
    .call_dropped = session_api_guest_call_dropped,
    .output = session_api_guest_output,
    .display = session_api_guest_display,
    .approve = session_api_guest_approve };

/* ---- child runs ---- */

/* Opens the record with the first child run, because most sessions start none. */
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
    droste_session *s = session_api_origin(arg);
    int rc = session_api_open_record(s, err);
    return rc < 0 ? rc : rlm_children()->start(s->place, child, done, done_arg, out, err);
}

static void session_api_cancel_child(struct child *child, const struct error *why)
{
    rlm_children()->cancel(child, why);
}

static const struct broker_children children = { .start = session_api_start_child,
    .cancel = session_api_cancel_child };

/* A child run waits for an approval, and with it the cell that began it. */
static void session_api_wait(void *arg, bool on)
{
    const droste_session *s = arg;
    if (s->session)
        session_hold(s->session, on);
}

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
    o.session.timeout = 0; /* child runs end with this session */
    o.ask.show = s->d->ask_fn ? api_approve_run : NULL;
    o.ask.arg = s->d;
    o.waits = session_api_wait;
    o.waits_arg = s;
    o.instructions = buf_text(&s->instructions);
    o.system_prompt = buf_text(&s->system_prompt);
    return rc < 0 ? rc : rlm_open_place(s->d->loop, &o, &s->place, err);
}

static int session_api_open_broker(droste_session *s, struct error *err)
{
    struct droste_session *origin = session_api_origin(s);
    struct broker_options options = { .lm = origin->models.at[1],
        .children = s->plain || s->settings.max_recursion_depth == 0 ? NULL : &children,
        .children_arg = s,
        .tools = s->tools,
        .tool_timeout = s->settings.tool_timeout,
        .ask = api_ask_rules(&s->settings),
        .budget = rlm_budget(origin->place),
        .call_timeout = s->settings.call_timeout,
        .loop = s->d->loop,
        .traceparent = s->trace,
        .answer_timeout = api_broker_timeout(&s->settings),
        .max_tokens = settings_sub_max_tokens(&s->settings),
        .depth = 1 };
    options.ask.show = s->d->ask_fn ? api_approve_session : NULL;
    options.ask.arg = s;
    return broker_open(&options, &s->broker, err);
}

/* Opens the session after its staging. */
static int open_staged(droste_session *s, struct error *err)
{
    droste *d = s->d;
    struct environment *env = d->env; /* which cannot change: the session counts as its user */
    struct session_options *options = &s->options;
    int rc = s->plain ? 0 : api_mcp_add(d, &s->settings, s->tools, err);
    tools_offer(s->tools, options);
    if (rc == 0)
        rc = api_models(d, &s->settings, false, &s->models, err);
    if (rc == 0)
        rc = open_place(s, env, err);
    if (rc == 0)
        rc = session_api_open_broker(s, err);
    if (rc == 0)
        rc = session_open(env, options, &events, s, &s->session, err);
    /* The zygote of preloaded packages has ended: the next session makes another image. */
    if (rc < 0 && options->template && api_packages_forget_image(d, options->template)) {
        options->template = NULL;
        rc = session_open(env, options, &events, s, &s->session, err);
    }
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
        staged_parts_use(s->d, parts, &s->settings, &s->parts, &s->options);
    bool failed = why || open_staged(s, &err) < 0;
    if (!s->session)
        session_api_leave_environment(s);
    if (failed || s->operation == OPERATION_NONE)
        session_api_opened(s, &err);
}

static int session_api_set_up(droste_session *s, struct error *err)
{
    droste *d = s->d;
    struct environment *env;
    cleanup_buf struct buf facts = { 0 };
    struct session_options *options = &s->options;
    struct workspace *workspace = steal(&s->parts.workspace);
    struct template *template = steal(&s->parts.template);
    int rc = api_session_options(d, &s->settings, &s->parts, options, err);
    s->parts.workspace = workspace;
    s->parts.template = template;
    if (rc == 0 && !s->plain && !template)
        rc = api_template_image(d, &s->settings, s->parts.packages, &s->parts.template, err);
    options->template = s->parts.template;
    s->parts.container.volume_there = s->of_volume;
    if (s->plain && !s->of_volume)
        s->parts.container.volume = NULL;
    if (rc == 0)
        rc = api_environment(d, &s->settings, &env, err);
    s->uses_env = rc == 0;
    d->env_sessions += s->uses_env;
    if (rc == 0)
        rc = staging_new(&s->settings, &s->staging, err);
    if (rc == 0 && !s->plain)
        rc = staging_want_session(s->staging, options, env, workspace, err);
    if (rc == 0)
        staging_want_image(s->staging, d, options, env);
    if (rc == 0 && !s->plain)
        rc = api_tools(d, &s->settings, &s->tools, &facts, err);
    if (rc == 0)
        rc = api_ask_check_rules(&s->settings, err);
    if (rc == 0 && !s->tools)
        rc = tools_new(&s->tools, err); /* for droste_session_tool_add */
    if (s->plain) {
        options->rules = false;
        options->checkpoint_each = false;
        options->setup = NULL;
        options->answer = NULL;
    }
    s->rules = options->rules;
    if (rc < 0)
        return rc;
    if (!s->plain)
        staging_want_mcp(s->staging, d);
    if (staging_is_needed(s->staging))
        return session_api_stage(s, session_staged, err);
    staged_parts_use(d, &s->staging->parts, &s->settings, &s->parts, options);
    staging_drop(steal(&s->staging));
    return open_staged(s, err);
}

/* Only runs have an end at which files are saved; ignoring the setting would lose them. */
static int refuse_artifacts(const char *const *settings, struct error *err)
{
    for (; settings && settings[0] && settings[1]; settings += 2)
        if (strcmp(settings[0], "artifacts") == 0 || strcmp(settings[0], "artifacts-dir") == 0)
            return error_set(err, ERROR_ARGUMENT,
                "%s: a session saves no artifacts, runs do; download its files instead",
                settings[0]);
    return 0;
}

/* How a session starts; all but `use` may be NULL. */
struct session_start {
    enum session_use use;
    const struct settings *settings; /* instead of the droste's */
    const char *const *words;        /* further settings */
    struct workspace *workspace;     /* taken */
    struct template *template;       /* taken; instead of the one that the settings name */
};

static int session_api_take_settings(
    droste_session *s, const struct session_start *start, struct error *err)
{
    int rc = refuse_artifacts(start->words, err);
    if (rc == 0)
        rc = settings_copy(&s->settings, start->settings ? start->settings : &s->d->settings, err);
    if (rc == 0)
        rc = settings_set_all(&s->settings, start->words, err);
    if (rc < 0 || s->plain || s->parts.template)
        return rc;
    return api_template_settings(&s->settings, err);
}

static int start_session(
    droste *d, const struct session_start *start, droste_session **out, struct error *err)
{
    droste_session *s = calloc(1, sizeof *s);
    if (!s) {
        workspace_release(start->workspace);
        template_drop(start->template);
        return error_memory(err);
    }
    s->d = d;
    s->plain = start->use != SESSION_OF_USER;
    s->of_volume = start->use == SESSION_OF_VOLUME;
    s->parts.workspace = start->workspace;
    s->parts.template = start->template;
    s->next = d->sessions;
    d->sessions = s;
    int rc = session_api_take_settings(s, start, err);
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
    struct session_start start = { .words = settings };
    return start_session(d, &start, out, api_error(err));
}

int droste_session_start_from(
    droste_template *t, const char *const *settings, droste_session **out, droste_error *err)
{
    err = api_error(err);
    struct session_start start = { .words = settings };
    if (!t->image)
        return error_set(err, ERROR_ARGUMENT, "the template was not made");
    start.template = template_hold(t->image);
    return start_session(t->d, &start, out, err);
}

static int session_api_open_session(
    droste *d, const struct session_start *start, droste_session **out, struct error *err)
{
    droste_session *s = NULL;
    api_forget_interrupt(d);
    int rc = start_session(d, start, &s, err);
    if (rc == 0)
        rc = session_api_finish(s, 0, NULL, err);
    if (rc < 0)
        droste_session_close(s);
    else
        *out = s;
    return rc;
}

/* The same in public: with the droste's settings. */
static int session_api_open_use(droste *d, enum session_use use, struct workspace *workspace,
    droste_session **out, droste_error *err)
{
    struct session_start start = { .use = use, .workspace = workspace };
    return session_api_open_session(d, &start, out, api_error(err));
}

int api_session_open_with(
    droste *d, const struct settings *s, droste_session **out, struct error *err)
{
    struct session_start start = { .settings = s };
    return session_api_open_session(d, &start, out, err);
}

int droste_session_open(droste *d, droste_session **out, droste_error *err)
{
    return session_api_open_use(d, SESSION_OF_USER, NULL, out, err);
}

int api_session_open_staged(
    droste *d, struct workspace *workspace, droste_session **out, droste_error *err)
{
    return session_api_open_use(d, SESSION_OF_USER, workspace, out, err);
}

int api_session_open_volume(
    droste *d, struct workspace *workspace, droste_session **out, droste_error *err)
{
    return session_api_open_use(d, SESSION_OF_VOLUME, workspace, out, err);
}

int droste_session_open_plain(droste *d, droste_session **out, droste_error *err)
{
    return session_api_open_use(d, SESSION_PLAIN, NULL, out, err);
}

/* Frees what forks share, and itself, once it is closed and no fork uses it. */
static void session_api_free(droste_session *s)
{
    if (!s->closed || s->forks > 0)
        return;
    droste_session *origin = s->origin;
    rlm_close(s->place);
    s->d->store_users -= s->recorded;
    prepare_free(&s->prepare);
    tools_free(s->tools);
    session_parts_free(&s->parts);
    api_models_close(&s->models);
    buf_free(&s->instructions);
    buf_free(&s->system_prompt);
    settings_free(&s->settings);
    free(s);
    if (origin) {
        origin->forks--;
        session_api_free(origin);
    }
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
    session_api_drop_end(s);
    session_api_leave_environment(s);
    staging_drop(s->staging);
    broker_close(steal(&s->broker));
    session_close(s->session);
    if (s->d->env)
        environment_settle(s->d->env); /* a remote sandbox costs money while it exists */
    s->session = NULL;
    buf_free(&s->plan);
    cell_result_free(&s->result);
    context_free(s->context);
    template_drop(s->saving);
    free(s->notice);
    free(s->script);
    s->closed = true;
    session_api_free(s);
}

/* ---- forks ---- */

/* Prepares a session that shares what is expensive or counted with the first one. */
static int session_api_new_fork(droste_session *of, droste_session **out, struct error *err)
{
    droste_session *origin = session_api_origin(of), *s = calloc(1, sizeof *s);
    if (!s)
        return error_memory(err);
    s->d = of->d;
    s->origin = origin;
    origin->forks++;
    s->plain = of->plain;
    s->rules = of->rules;
    s->next = s->d->sessions;
    s->d->sessions = s;
    s->uses_env = true;
    s->d->env_sessions++;
    int rc = settings_copy(&s->settings, &of->settings, err);
    if (rc == 0)
        rc = tools_new(&s->tools, err);
    if (rc == 0)
        rc = tools_add_all(s->tools, of->tools, err);
    if (rc == 0)
        rc = session_api_open_broker(s, err);
    if (rc < 0)
        droste_session_close(s);
    else
        *out = s;
    return rc;
}

/* `checkpoint`: 0: of the session as it is. */
static int start_fork(
    droste_session *s, unsigned checkpoint, droste_session **out, struct error *err)
{
    droste_session *fork = NULL;
    if (!s->session)
        return error_set(
            err, ERROR_ARGUMENT, "the session is not open yet, so it cannot be forked");
    int rc = session_api_new_fork(s, &fork, err);
    if (rc < 0)
        return rc;
    rc = checkpoint ? session_api_at(s, checkpoint, fork, &events, err)
                    : session_api_fork(s, fork, &events, err);
    if (rc < 0)
        droste_session_close(fork);
    else
        *out = fork;
    return rc;
}

int droste_session_fork_start(droste_session *s, droste_session **out, droste_error *err)
{
    return start_fork(s, 0, out, api_error(err));
}

int droste_session_at_start(
    droste_session *s, unsigned checkpoint, droste_session **out, droste_error *err)
{
    err = api_error(err);
    if (checkpoint == 0)
        return error_set(err, ERROR_NOT_FOUND, "checkpoints have numbers from 1");
    return start_fork(s, checkpoint, out, err);
}

/* Waits for a fork that was started with result rc. */
static int finish_fork(
    droste_session *s, int rc, droste_session *fork, droste_session **out, droste_error *err)
{
    if (rc < 0)
        return rc;
    rc = session_api_finish(s, 0, NULL, api_error(err));
    if (rc < 0)
        droste_session_close(fork);
    else
        *out = fork;
    return rc;
}

int droste_session_fork(droste_session *s, droste_session **out, droste_error *err)
{
    droste_session *fork = NULL;
    api_forget_interrupt(s->d);
    int rc = droste_session_fork_start(s, &fork, err);
    return finish_fork(s, rc, fork, out, err);
}

int droste_session_at(
    droste_session *s, unsigned checkpoint, droste_session **out, droste_error *err)
{
    droste_session *fork = NULL;
    api_forget_interrupt(s->d);
    int rc = droste_session_at_start(s, checkpoint, &fork, err);
    return finish_fork(s, rc, fork, out, err);
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

void droste_session_on_display(droste_session *s, droste_display_fn *fn, void *arg)
{
    s->display = fn;
    s->display_arg = arg;
}

void droste_session_interrupt(droste_session *s)
{
    if (s->staging)
        staging_cancel(s->staging);
    if (s->session)
        session_interrupt(s->session);
}

int droste_session_pause(droste_session *s, int on, droste_error *err)
{
    err = api_error(err);
    int rc = s->session ? session_pause(s->session, on, err)
                        : error_set(err, ERROR_ARGUMENT, "the session is not open yet");
    return rc;
}

int droste_session_usage(const droste_session *s, droste_usage *out, droste_error *err)
{
    struct sandbox_figures now = { 0 };
    int rc = s->session && session_figures(s->session, &now)
                 ? 0
                 : error_set(api_error(err), ERROR_UNSUPPORTED,
                       "what the sandbox uses is not known: it must be a local one, and live");
    *out = (droste_usage){ now.cpu_seconds, now.memory, now.files, now.files_limit };
    return rc;
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

/* ---- tools and schemas; before the session is open, they become part of HELLO ---- */

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
    err = api_error(err);
    struct buf json = { 0 };
    int rc = tool_api_add(s->tools, name, description, parameters, true, fn, arg, err);
    if (rc < 0)
        return rc;
    buf_puts(&json, "{\"tools\":[");
    tools_describe(tools_find(s->tools, name), &json);
    buf_puts(&json, "]}");
    rc = offer(s, &json, err);
    if (rc < 0)
        tools_remove(s->tools, name);
    return rc;
}

int droste_session_tool_remove(droste_session *s, const char *name, droste_error *err)
{
    err = api_error(err);
    struct buf json = { 0 };
    if (!tools_remove(s->tools, name))
        return error_set(err, ERROR_NOT_FOUND, "the session has no tool '%.64s'", name);
    buf_printf(&json, "{\"gone\":[\"%s\"]}", name);
    int rc = offer(s, &json, err);
    return rc;
}

int droste_session_expect(droste_session *s, const char *schema, droste_error *err)
{
    err = api_error(err);
    struct schema *answer = NULL;
    int rc = schema ? schema_parse(schema, strlen(schema), &answer, err) : 0;
    if (rc < 0)
        return error_wrap(err, "the schema of the answer");
    if (!s->session) {
        schema_drop(s->parts.answer);
        s->options.answer = s->parts.answer = answer;
        return 0;
    }
    rc = session_expect(s->session, answer, err);
    schema_drop(answer);
    return rc;
}
