/* api/run_api.c: starts runs, and waits for them (run_api.h). */
#include "api/run_api.h"

#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "api/approval_api.h"
#include "api/artifacts_api.h"
#include "api/environment_api.h"
#include "api/mcp_api.h"
#include "api/result.h"
#include "api/running.h"
#include "api/templates.h"
#include "api/tool_api.h"
#include "api/tool_facts.h"
#include "base/cleanup.h"
#include "base/json/schema.h"
#include "volume/workspace.h"
#include "wire/values.h"

/* An empty standard input usually means that the command before the pipe has failed; the run would
 * only cost money. */
static int check_input(const struct contexts *all, struct error *err)
{
    for (size_t i = 0; i < all->count; i++)
        if (all->items[i]->len == 0 && strcmp(all->items[i]->source, "standard input") == 0)
            return error_set(err, ERROR_ARGUMENT,
                "standard input is empty, but a context was expected: did the command before the "
                "pipe fail?");
    return 0;
}

static int want_data(droste_running *r, const droste_value *data, struct error *err)
{
    struct context *context = NULL;
    enum value_kind kind;
    int rc = api_context_kind(&r->settings, &kind, err);
    if (rc == 0)
        rc = context_from_memory(data->data, data->len, kind, &context, err);
    return rc == 0 ? contexts_add(&r->staging->parts.contexts, context, err) : rc;
}

static int want_contexts(droste_running *r, const droste_request *q, struct error *err)
{
    const droste_value first = { q->data, q->len };
    int rc = !q->context && q->data ? want_data(r, &first, err) : 0;
    for (size_t i = 0; rc == 0 && i < q->part_count; i++)
        rc = want_data(r, &q->parts[i], err);
    return rc < 0 ? rc : staging_want_contexts(r->staging, r->d, q->context, q->contexts, err);
}

/* Fills in the options that need no staging. */
static int fill_options(droste_running *r, struct error *err)
{
    droste *d = r->d;
    const struct settings *s = &r->settings;
    struct rlm_options *o = &r->options;
    int rc = api_instructions(s, &r->instructions, err);
    if (rc == 0)
        rc = api_system_prompt(s, &r->system_prompt, err);
    *o = api_run_options(s);
    o->models = r->models.at;
    o->model_count = array_length(r->models.at);
    o->limits.seconds = s->timeout;
    o->part_of = r->part_of;
    o->after = r->link_to.after;
    o->previous = r->link_to.previous;
    o->again = r->link_to.again;
    o->keep = r->kept;
    o->store = r->store;
    o->resume = r->resume[0] ? r->resume : NULL;
    o->instructions = buf_text(&r->instructions);
    o->system_prompt = buf_text(&r->system_prompt);
    o->event = r->event ? running_event : NULL;
    o->all_events = r->all_events;
    o->ask.show = d->ask_fn ? api_approve_run : NULL;
    o->ask.arg = d;
    o->values = r->values ? VALUES_VERSION : 0;
    o->arg = r;
    if (rc == 0)
        rc = api_environment(d, s, &o->env, err);
    if (rc == 0)
        rc = api_session_options(d, s, &r->session, &o->session, err);
    if (rc == 0)
        rc = api_template_image(d, s, r->session.packages, &r->session.template, err);
    o->session.template = r->session.template;
    if (rc == 0)
        rc = running_log_open(r, err);
    if (rc == 0 && r->link_to.workspace)
        r->session.workspace = workspace_hold(r->link_to.workspace);
    if (rc == 0)
        rc = staging_want_session(r->staging, &o->session, o->env, r->session.workspace, err);
    if (rc == 0)
        staging_want_image(r->staging, d, &o->session, o->env);
    if (rc == 0)
        rc = api_tools(d, s, &r->tools, &r->tool_facts, err);
    if (rc == 0)
        rc = api_ask_check_rules(s, err);
    if (rc == 0 && s->mcp_server.count == 0) /* otherwise the tools are not known yet */
        rc = api_ask_check(s, r->tools, err);
    if (rc == 0)
        staging_want_mcp(r->staging, d);
    if (rc == 0)
        rc = api_select(d, s, o, err);
    if (rc == 0)
        rc = api_traceparent(s, &o->traceparent, err);
    o->tools = r->tools;
    o->tool_facts = r->tool_facts.len > 0 ? buf_text(&r->tool_facts) : NULL;
    o->env_name = d->env_name;
    o->session.timeout = 0; /* the run's own limit covers it */
    o->question = r->question;
    o->contexts = &r->contexts;
    o->batch = r->batch;
    o->task = r->task;
    o->id = r->id;
    o->account = r->account;
    o->artifacts = &s->artifacts;
    o->image_urls = &s->image_url;
    if (rc == 0)
        rc = api_check_image_urls(s, err);
    if (rc == 0)
        rc = artifacts_directory(s->artifacts_dir, r->task, &r->artifacts_dir, err);
    o->artifacts_dir = r->artifacts_dir;
    return rc;
}

static int save_settings(droste_running *r, struct error *err)
{
    const struct settings *s = &r->settings;
    struct rlm_options *o = &r->options;
    cleanup_buf struct buf template = { 0 };
    int rc = api_template_saved(s, &template, err);
    if (rc < 0)
        return rc;
    struct settings_texts texts = { o->session.setup, o->instructions, o->system_prompt,
        o->session.answer ? schema_text(o->session.answer) : NULL, NULL, NULL };
    if (r->session.workspace && workspace_staged(r->session.workspace)->repo)
        texts.commit = workspace_staged(r->session.workspace)->commit;
    texts.template = buf_text(&template);
    settings_save(s, &texts, &r->saved);
    o->settings = buf_text(&r->saved);
    return buf_failed(&r->saved) ? error_memory(err) : 0;
}

static int run_api_take_settings(droste_running *r, const droste_request *q, struct error *err)
{
    const struct settings *from = r->link_to.settings;
    int rc = settings_copy(&r->settings, from ? from : &r->d->settings, err);
    if (rc == 0)
        rc = settings_set_all(&r->settings, q->settings, err);
    if (rc == 0 && q->kind)
        rc = settings_set(&r->settings, "context-type", q->kind, "the context's kind", err);
    return rc < 0 ? rc : api_template_settings(&r->settings, err);
}

static int take_request(droste_running *r, const droste_request *q, struct error *err)
{
    const char *question = q->resume ? buf_text(&r->stored_run.question) : q->question;
    const struct {
        const char *from;
        char **to;
    } texts[] = { { question, &r->question }, { q->batch, &r->batch }, { q->task, &r->task },
        { q->id, &r->id }, { q->account, &r->account } };
    for (size_t i = 0; i < array_length(texts); i++) {
        *texts[i].to = texts[i].from ? strdup(texts[i].from) : NULL;
        if (texts[i].from && !*texts[i].to)
            return error_memory(err);
    }
    return 0;
}

static int begin_new(droste_running *r, const droste_request *q, struct error *err)
{
    if (!q->question || !q->question[0])
        return error_set(err, ERROR_ARGUMENT, "a run needs a question");
    int rc = api_models(r->d, &r->settings, true, &r->models, err);
    if (rc == 0)
        rc = staging_new(&r->settings, &r->staging, err);
    if (rc == 0)
        rc = want_contexts(r, q, err);
    return rc < 0 ? rc : api_store(r->d, &r->store, err);
}

/* Replaces the settings of the droste by those of the recorded run. */
static int restore_settings(
    droste_running *r, const struct stored_run *stored_run, struct error *err)
{
    settings_free(&r->settings);
    return stored_run_settings(r->d, stored_run, &r->settings, err);
}

static int asked_otherwise(const struct stored_run *stored_run, const char *what, struct error *err)
{
    return error_set(err, ERROR_ARGUMENT, "run '%.64s' was started with %s", stored_run->id, what);
}

/* The first question of a conversation has prepared the session for later ones, and a replayed run
 * calls no tool. */
static int check_tools(
    const droste_running *r, const struct stored_run *stored_run, struct error *err)
{
    struct tool_facts_then then = { .run = stored_run->id,
        .json = &stored_run->tool_facts,
        .prepared = !r->link_to.after,
        .called = !r->link_to.again };
    return tool_facts_check(&then, &r->tool_facts, err);
}

static const struct settings *settings_for_models(const droste_running *r)
{
    return r->link_to.again ? r->link_to.settings : &r->settings;
}

static int begin_again(droste_running *r, const droste_request *q, struct error *err)
{
    struct stored_run *stored_run = &r->stored_run;
    r->same = q->question != NULL; /* otherwise everything comes from the record */
    if (r->same && strcmp(q->question, buf_text(&stored_run->question)) != 0)
        return asked_otherwise(stored_run, "another question", err);
    int rc = r->same ? 0 : restore_settings(r, stored_run, err);
    if (rc == 0)
        rc = api_models(r->d, settings_for_models(r), true, &r->models, err);
    if (rc == 0)
        rc = staging_new(&r->settings, &r->staging, err);
    if (rc == 0 && r->same)
        rc = want_contexts(r, q, err);
    if (rc < 0)
        return rc;
    struct staging *st = r->staging;
    if (r->same && stored_run->context && st->paths.list.count + st->parts.contexts.count == 0)
        return asked_otherwise(stored_run, "a context", err);
    st->again = stored_run->context || st->paths.list.count + st->parts.contexts.count > 0;
    r->store = stored_run->store;
    snprintf(r->resume, sizeof r->resume, "%s", stored_run->id);
    return 0;
}

/* Begins the run after its staging. */
static int begin_staged(droste_running *r, struct error *err)
{
    int rc = check_input(&r->contexts, err);
    if (rc == 0 && r->settings.mcp_server.count > 0)
        rc = api_mcp_add(r->d, &r->settings, r->tools, err);
    if (rc == 0)
        rc = api_ask_check(&r->settings, r->tools, err);
    if (rc == 0)
        rc = api_contexts_check(&r->contexts, r->tools, err);
    if (rc == 0)
        rc = save_settings(r, err);
    if (rc == 0 && r->same && strcmp(buf_text(&r->saved), buf_text(&r->stored_run.settings)) != 0)
        rc = asked_otherwise(&r->stored_run, "other settings", err);
    if (rc == 0 && r->resume[0])
        rc = check_tools(r, &r->stored_run, err);
    if (rc == 0)
        rc = rlm_start(r->d->loop, &r->options, running_done, r, &r->run, err);
    stored_run_free(&r->stored_run);
    r->stored_run = (struct stored_run){ 0 };
    return rc;
}

static void take_staged(droste_running *r, struct staged_parts *parts)
{
    r->contexts = parts->contexts;
    parts->contexts = (struct contexts){ 0 };
    r->stored_run = parts->stored_run;
    parts->stored_run = (struct stored_run){ 0 };
    staged_parts_use(r->d, parts, &r->settings, &r->session, &r->options.session);
}

static void run_staged(void *arg, struct staged_parts *parts, const struct error *why)
{
    droste_running *r = arg;
    struct error err = { 0 };
    r->staging = NULL;
    if (why) {
        running_fail(r, RLM_ERROR, why);
        return;
    }
    take_staged(r, parts);
    if (begin_staged(r, &err) < 0)
        running_fail(r, RLM_ERROR, &err);
}

static int run_api_begin(droste_running *r, const droste_request *q, struct error *err)
{
    int rc = run_api_take_settings(r, q, err);
    if (rc == 0 && q->resume)
        rc = stored_run_find(r->d, q->resume, &r->stored_run, err);
    if (rc == 0 && r->stored_run.previous[0] && !r->kept && !r->link_to.after)
        rc = error_set(err, ERROR_ARGUMENT,
            "run '%.64s' is part of a conversation: continue it with droste_resume",
            r->stored_run.id);
    if (rc == 0)
        rc = q->resume ? begin_again(r, q, err) : begin_new(r, q, err);
    if (rc == 0)
        rc = take_request(r, q, err);
    if (rc == 0)
        rc = fill_options(r, err);
    if (rc < 0)
        return rc;
    r->staging->parts.stored_run = r->stored_run; /* until the staging ends */
    r->stored_run = (struct stored_run){ 0 };
    if (staging_is_needed(r->staging))
        return staging_start(r->d->loop, &r->staging, run_staged, r, err);
    take_staged(r, &r->staging->parts);
    staging_drop(steal(&r->staging));
    return begin_staged(r, err);
}

int api_start(droste *d, const droste_request *q, const struct run_link *link, droste_running **out,
    struct error *err)
{
    droste_running *r = calloc(1, sizeof *r);
    if (!r)
        return error_memory(err);
    *r = (droste_running){ .d = d,
        .event = q->event,
        .all_events = q->all_events != 0,
        .values = q->values != 0,
        .part_of = (struct budget *)q->budget,
        .done = q->done,
        .arg = q->arg };
    if (link)
        r->link_to = *link;
    if (q->log)
        r->log_to = *q->log;
    r->kept = link && out;
    int rc = run_api_begin(r, q, err);
    if (rc < 0) {
        running_free(r);
        return rc;
    }
    TAILQ_INSERT_TAIL(&d->runs, r, link);
    d->run_count++;
    if (out)
        *out = r;
    return 0;
}

/* ---- one, waited for ---- */

struct waiting {
    bool done;
    droste_event_fn *fn;
    void *arg;
    droste_result *result;
};

static void waiting_event(void *arg, const droste_event *event)
{
    struct waiting *w = arg;
    w->fn(w->arg, event);
}

static void waiting_done(void *arg, droste_result *result)
{
    struct waiting *w = arg;
    w->result = result;
    w->done = true;
}

int api_run(droste *d, droste_request *q, const struct run_link *link, droste_running **running,
    droste_result **out, struct error *err)
{
    struct waiting w = { .fn = q->event, .arg = q->arg };
    q->event = w.fn ? waiting_event : NULL;
    q->done = waiting_done;
    q->arg = &w;
    api_forget_interrupt(d);
    int rc = d->waits ? api_enter(d, err) : api_start(d, q, link, running, err);
    if (rc == 0)
        rc = api_wait(d, &w.done, err);
    if (rc == 0 && !w.result)
        rc = error_memory(err);
    if (w.result && w.result->unbegun) {
        *err = w.result->error;
        rc = -(int)err->code;
        droste_result_free(steal(&w.result));
    }
    *out = w.result;
    return rc;
}

int droste_run(droste *d, const char *question, const char *context, droste_event_fn *fn, void *arg,
    droste_result **out, droste_error *err)
{
    err = api_error(err);
    droste_request q = { .question = question, .context = context, .event = fn, .arg = arg };
    return api_run(d, &q, NULL, NULL, out, err);
}
