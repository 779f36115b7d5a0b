/* api/run_api.c: runs, with their events in the public form: new ones, or some of the record to go on
 * with; started, or waited for as well.
 *
 * Each has its own copy of the settings, as those of the droste may change while it is under way. The
 * end of a run comes from the middle of a callback of its session, so it is told from a timer of no
 * time, when the run is gone. */
#include "api/api.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "api/contexts.h"
#include "api/stage.h"
#include "api/tool_facts.h"
#include "base/cleanup.h"
#include "base/text.h"

static const char *const kind_names[] = {
    [RLM_EVENT_STARTED] = "started",
    [RLM_EVENT_CONTEXT] = "context",
    [RLM_EVENT_TURN] = "turn",
    [RLM_EVENT_DELTA] = "delta",
    [RLM_EVENT_REPLY] = "reply",
    [RLM_EVENT_CELL] = "cell",
    [RLM_EVENT_OUTPUT] = "output",
    [RLM_EVENT_RESULT] = "result",
    [RLM_EVENT_CALLS] = "calls",
    [RLM_EVENT_NOTICE] = "notice",
    [RLM_EVENT_REQUEST] = "request",
    [RLM_EVENT_CALL] = "call",
    [RLM_EVENT_CALLED] = "called",
    [RLM_EVENT_CHILD] = "child",
    [RLM_EVENT_CHILD_END] = "child_end",
};

static void skip_recorded_event(void *arg, const struct rlm_event *e)
{
    droste_running *r = arg;
    droste_event event = {
        .kind = kind_names[e->kind],
        .text = e->text,
        .len = e->len,
        .turn = e->turn,
        .turns = e->turns,
        .stream = e->stream,
        .status = e->cell ? cell_status_name(e->cell->status) : NULL,
        .seconds = e->cell ? e->cell->seconds : 0,
        .pending = e->pending,
        .calls = e->budget->spent.calls,
        .input_tokens = e->budget->spent.input_tokens,
        .output_tokens = e->budget->spent.output_tokens,
        .run = e->run,
        .depth = e->depth,
        .call = e->call,
        .model = e->model,
    };
    cleanup_buf struct buf cell = { 0 };
    if (e->cell && r->all_events) {
        result_put_told(&cell, e->cell);
        event.text = buf_text(&cell);
        event.len = cell.len;
    }
    if (e->used) {
        event.status = e->status;
        event.seconds = e->seconds;
        event.calls = e->used_calls;
        event.input_tokens = e->used->input_tokens;
        event.output_tokens = e->used->output_tokens;
    }
    r->telling++;
    r->event(r->arg, &event);
    r->telling--;
}

/* ---- the end ---- */

void api_running_free(droste_running *r)
{
    if (!r)
        return;
    staging_drop(r->staging);
    rlm_close(r->run);
    stored_run_free(&r->stored_run);
    free(r->question);
    free(r->batch);
    free(r->task);
    tools_free(r->tools);
    api_models_close(&r->models);
    contexts_free(&r->contexts);
    session_parts_free(&r->session);
    settings_free(&r->settings);
    buf_free(&r->instructions);
    buf_free(&r->system_prompt);
    buf_free(&r->tool_facts);
    buf_free(&r->saved);
    droste_result_free(r->result);
    free(r);
}

static void tell_result(droste_running *r, droste_result *result)
{
    droste *d = r->d;
    r->result = result;
    r->finishing = NULL;
    r->over = true;
    TAILQ_REMOVE(&d->runs, r, link);
    TAILQ_INSERT_TAIL(&d->ended, r, link);
    timer_start(d->tell, 0, 0);
}

static void run_over(droste_running *r, const struct rlm_result *result)
{
    tell_result(r, result_of_run(result));
}

/* It was to begin behind its staging, and did not. */
static void run_unbegun(droste_running *r, enum rlm_status status, const struct error *why)
{
    r->unbegun = true;
    tell_result(r, result_of_failure(status, why));
}

static void run_finished(void *arg, const struct error *why)
{
    droste_running *r = arg;
    run_over(r, r->finishing);
}

/* The session of a conversation goes on; a run that is put aside is not waited for. */
static void run_api_run_done(void *arg, const struct rlm_result *result)
{
    droste_running *r = arg;
    r->finishing = result;
    if (r->kept || r->ends_suspended || !r->run || !rlm_finish(r->run, run_finished, r))
        run_over(r, result);
}

static void end_staging(droste_running *r)
{
    struct error why = { 0 };
    error_set(&why, ERROR_CANCELLED, "interrupted while %s",
        r->staging->wants_workspace && r->settings.repo_url ? "the repository was staged"
                                                            : "the files of the run were read");
    staging_drop(steal(&r->staging));
    run_unbegun(
        r, r->ends_suspended ? RLM_INTERRUPTED : RLM_CANCELLED, r->ends_suspended ? &r->why : &why);
}

static void run_api_end(droste_running *r)
{
    if (r->staging)
        end_staging(r);
    else if (r->finishing)
        rlm_finish_cancel(r->run);
    else if (r->ends_suspended)
        rlm_suspend(r->run, &r->why);
    else
        rlm_cancel(r->run);
}

static bool end_one(droste *d)
{
    droste_running *r;
    TAILQ_FOREACH(r, &d->runs, link)
    {
        if (r->ends && r->telling == 0) {
            run_api_end(r);
            return true;
        }
    }
    return false;
}

/* The run is in the middle of what it tells of: who ends it from within waits until it is not. */
static void end_outside(droste_running *r)
{
    if (r->over || r->ends)
        return;
    if (r->telling == 0) {
        run_api_end(r);
        return;
    }
    r->ends = true;
    timer_start(r->d->tell, 0, 0);
}

/* Whoever is told may start others, and end them. */
static void tell_all(droste *d)
{
    droste_running *r;
    api_tell_sessions(d);
    while (end_one(d))
        ;
    while ((r = TAILQ_FIRST(&d->ended))) {
        droste_done_fn *done = r->done;
        droste_result *result = steal(&r->result);
        void *done_arg = r->arg;
        TAILQ_REMOVE(&d->ended, r, link);
        d->run_count--;
        if (r->chat)
            chat_advance(r->chat, r->unbegun ? NULL : r, result ? result->run : "");
        if (r->unbegun || (!r->chat && !r->kept))
            api_running_free(r);
        done(done_arg, result);
    }
}

void api_tell(void *arg)
{
    droste *d = arg;
    loop_wake(d->loop);
    tell_all(d);
}

void api_drop_runs(droste *d)
{
    struct running_list *lists[] = { &d->runs, &d->ended };
    for (size_t i = 0; i < array_length(lists); i++) {
        droste_running *r;
        while ((r = TAILQ_FIRST(lists[i]))) {
            TAILQ_REMOVE(lists[i], r, link);
            d->run_count--;
            api_running_free(r);
        }
    }
}

void api_drop_staged_runs(droste *d)
{
    droste_running *r;
    TAILQ_FOREACH(r, &d->runs, link)
    staging_drop(steal(&r->staging));
}

void api_cancel_runs(droste *d)
{
    droste_running *r;
    while ((r = TAILQ_FIRST(&d->runs)))
        run_api_end(r);
}

void droste_cancel(droste_running *r)
{
    end_outside(r);
}

void api_suspend(droste_running *r, const struct error *why)
{
    if (r->over || r->ends)
        return;
    r->ends_suspended = true;
    r->why = *why;
    end_outside(r);
}

void droste_suspend(droste_running *r)
{
    struct error why = { 0 };
    error_set(&why, ERROR_CANCELLED, "the run was suspended");
    api_suspend(r, &why);
}

/* ---- the beginning ---- */

/* A run costs money: where the command before a pipe has failed, there is nothing to ask about. */
static int check_input(const struct contexts *all, struct error *err)
{
    for (size_t i = 0; i < all->count; i++)
        if (all->items[i]->len == 0 && strcmp(all->items[i]->source, "standard input") == 0)
            return error_set(err, ERROR_ARGUMENT,
                "standard input is empty, and it was to be a context: did the command before the "
                "pipe fail?");
    return 0;
}

static int want_contexts(droste_running *r, const droste_request *q, struct error *err)
{
    struct context *context = NULL;
    enum value_kind kind;
    int rc = 0;
    if (!q->context && q->data) {
        rc = api_context_kind(&r->settings, &kind, err);
        if (rc == 0)
            rc = context_from_memory(q->data, q->len, kind, &context, err);
        if (rc == 0)
            rc = contexts_add(&r->staging->parts.contexts, context, err);
    }
    return rc < 0 ? rc : api_contexts_want(r->d, q->context, q->contexts, r->staging, err);
}

struct rlm_options api_run_options(const struct settings *s)
{
    return (struct rlm_options){
        .limits = {
            .calls = s->max_llm_calls,
            .tool_calls = s->max_tool_calls,
            .record_bytes = s->max_record_size,
            .input_tokens = s->max_input_tokens,
            .output_tokens = s->max_output_tokens,
            .total_tokens = s->max_total_tokens,
            .cost = s->max_cost,
            .depth = (unsigned)s->max_recursion_depth,
            .children = (unsigned)s->max_children,
        },
        .sub_tools = s->sub_tools,
        .tool_timeout = s->tool_timeout,
        .call_timeout = s->call_timeout,
        .answer_timeout = api_broker_timeout(s),
        .max_tokens = s->max_tokens,
        .sub_max_tokens = settings_sub_max_tokens(s),
        .max_iterations = (unsigned)s->max_iterations,
        .child_iterations = (unsigned)s->delegate_max_iterations,
        .compaction = s->compaction,
        .window = s->model_window,
        .max_output_chars = (size_t)s->max_output_chars,
        .max_errors = (unsigned)s->max_errors,
    };
}

static int prose_setting(const char *value, const char *name, struct buf *out, struct error *err)
{
    int rc = value ? api_text(value, name, out, err) : 0;
    if (rc == 0 && !text_is_utf8(buf_text(out), out->len, NULL))
        rc = error_set(err, ERROR_ARGUMENT, "the %s: not UTF-8", name);
    return rc;
}

int api_instructions(const struct settings *s, struct buf *out, struct error *err)
{
    return prose_setting(s->instructions, "instructions", out, err);
}

int api_system_prompt(const struct settings *s, struct buf *out, struct error *err)
{
    return prose_setting(s->system_prompt, "system prompt", out, err);
}

/* What needs no staging. */
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
    o->part_of = d->part_of;
    o->after = r->link_to.after;
    o->previous = r->link_to.previous;
    o->again = r->link_to.again;
    o->keep = r->kept;
    o->store = r->store;
    o->resume = r->resume[0] ? r->resume : NULL;
    o->instructions = buf_text(&r->instructions);
    o->system_prompt = buf_text(&r->system_prompt);
    o->event = r->event ? skip_recorded_event : NULL;
    o->all_events = r->all_events;
    o->arg = r;
    if (rc == 0)
        rc = api_environment(d, s, &o->env, err);
    if (rc == 0)
        rc = api_session_options(d, s, &r->session, &o->session, err);
    if (rc == 0 && r->link_to.workspace)
        r->session.workspace = workspace_hold(r->link_to.workspace);
    if (rc == 0)
        rc = staging_want_session(r->staging, &o->session, o->env, r->session.workspace, err);
    if (rc == 0)
        rc = api_tools(d, s, &r->tools, &r->tool_facts, err);
    o->tools = r->tools;
    o->tool_facts = r->tool_facts.len > 0 ? buf_text(&r->tool_facts) : NULL;
    o->env_name = d->env_name;
    o->session.timeout = 0; /* the run's own limit covers it */
    o->question = r->question;
    o->contexts = &r->contexts;
    o->batch = r->batch;
    o->task = r->task;
    return rc;
}

static int save_settings(droste_running *r, struct error *err)
{
    const struct settings *s = &r->settings;
    struct rlm_options *o = &r->options;
    struct settings_texts texts = { o->session.setup, o->instructions, o->system_prompt,
        o->session.answer ? schema_text(o->session.answer) : NULL, NULL };
    if (r->session.workspace && workspace_staged(r->session.workspace)->repo)
        texts.commit = workspace_staged(r->session.workspace)->commit;
    settings_save(s, &texts, &r->saved);
    o->settings = buf_text(&r->saved);
    return buf_failed(&r->saved) ? error_memory(err) : 0;
}

static int run_api_take_settings(droste_running *r, const droste_request *q, struct error *err)
{
    const struct settings *from = r->link_to.settings;
    int rc = settings_copy(&r->settings, from ? from : &r->d->settings, err);
    if (rc == 0)
        rc = api_settings_set(&r->settings, q->settings, err);
    if (rc == 0 && q->kind)
        rc = settings_set(&r->settings, "context-type", q->kind, "the context's kind", err);
    return rc;
}

static int take_request(droste_running *r, const droste_request *q, struct error *err)
{
    const char *question = q->resume ? buf_text(&r->stored_run.question) : q->question;
    r->question = strdup(question);
    r->batch = q->batch ? strdup(q->batch) : NULL;
    r->task = q->task ? strdup(q->task) : NULL;
    return r->question && (!q->batch || r->batch) && (!q->task || r->task) ? 0 : error_memory(err);
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

/* The run's own settings take the place of the droste's. */
static int restore_settings(
    droste_running *r, const struct stored_run *stored_run, struct error *err)
{
    settings_free(&r->settings);
    return stored_run_settings(r->d, stored_run, &r->settings, err);
}

static int asked_otherwise(const struct stored_run *stored_run, const char *what, struct error *err)
{
    return error_set(err, ERROR_ARGUMENT, "run '%.64s' was asked with %s", stored_run->id, what);
}

/* A later question of a conversation takes the session as the first one has prepared it; one that is
 * only gone over again calls no tool. */
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
    r->same = q->question != NULL; /* or else it is not to be asked for */
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
    if (r->same && stored_run->context && st->paths.count + st->parts.contexts.count == 0)
        return asked_otherwise(stored_run, "a context", err);
    st->again = stored_run->context || st->paths.count + st->parts.contexts.count > 0;
    r->store = stored_run->store;
    snprintf(r->resume, sizeof r->resume, "%s", stored_run->id);
    return 0;
}

/* Behind its staging. */
static int begin_staged(droste_running *r, struct error *err)
{
    int rc = check_input(&r->contexts, err);
    if (rc == 0)
        rc = api_contexts_check(&r->contexts, r->tools, err);
    if (rc == 0)
        rc = save_settings(r, err);
    if (rc == 0 && r->same && strcmp(buf_text(&r->saved), buf_text(&r->stored_run.settings)) != 0)
        rc = asked_otherwise(&r->stored_run, "other settings", err);
    if (rc == 0 && r->resume[0])
        rc = check_tools(r, &r->stored_run, err);
    if (rc == 0)
        rc = rlm_start(r->d->loop, &r->options, run_api_run_done, r, &r->run, err);
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
    staged_parts_use(parts, &r->settings, &r->session, &r->options.session);
}

static void run_staged(void *arg, struct staged_parts *parts, const struct error *why)
{
    droste_running *r = arg;
    struct error err = { 0 };
    r->staging = NULL;
    if (why) {
        run_unbegun(r, RLM_ERROR, why);
        return;
    }
    take_staged(r, parts);
    if (begin_staged(r, &err) < 0)
        run_unbegun(r, RLM_ERROR, &err);
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
    r->staging->parts.stored_run = r->stored_run; /* until it is over */
    r->stored_run = (struct stored_run){ 0 };
    if (staging_is_needed(r->staging))
        return staging_start(r->d->loop, &r->staging, run_staged, r, err);
    take_staged(r, &r->staging->parts);
    staging_drop(steal(&r->staging));
    return begin_staged(r, err);
}

static int run_api_start(droste *d, const droste_request *q, const struct link *link,
    droste_running **out, struct error *err)
{
    droste_running *r = calloc(1, sizeof *r);
    if (!r)
        return error_memory(err);
    *r = (droste_running){
        .d = d, .event = q->event, .all_events = q->all_events != 0, .done = q->done, .arg = q->arg
    };
    if (link)
        r->link_to = *link;
    r->kept = link && out;
    int rc = run_api_begin(r, q, err);
    if (rc < 0) {
        api_running_free(r);
        return rc;
    }
    TAILQ_INSERT_TAIL(&d->runs, r, link);
    d->run_count++;
    if (out)
        *out = r;
    return 0;
}

int droste_start(droste *d, const droste_request *q, droste_running **out, droste_error *err)
{
    struct error why = { 0 };
    struct link link = { 0 };
    droste_running *r = NULL;
    int rc = q->done ? 0 : error_set(&why, ERROR_ARGUMENT, "a run needs a callback for its end");
    if (rc == 0 && q->chat)
        rc = chat_next(q->chat, &link, &why);
    if (rc == 0)
        rc = run_api_start(
            d, q, q->chat ? &link : NULL, &r, &why); /* which is kept, as `r` is asked for */
    if (rc == 0) {
        r->chat = q->chat;
        if (out)
            *out = r;
    } else if (link.settings) {
        chat_advance(q->chat, NULL, "");
    }
    return api_fail(err, &why, rc);
}

/* ---- waiting ---- */

int api_enter(droste *d, struct error *err)
{
    if (d->waits)
        return error_set(err, ERROR_ARGUMENT,
            "this is called from within a callback of the same context, which may not wait");
    d->waits = true;
    return 0;
}

int api_wait(droste *d, const bool *done, struct error *err)
{
    int rc = api_enter(d, err);
    if (rc < 0)
        return rc;
    rc = loop_run_until(d->loop, done, err);
    d->waits = false;
    return rc;
}

int api_wait_soon(droste *d, const bool *done, const bool *soon, int ms, struct error *err)
{
    int rc = api_enter(d, err);
    if (rc < 0)
        return rc;
    rc = loop_wait_soon(d->loop, done, soon, ms, err);
    d->waits = false;
    return rc;
}

int droste_turn(droste *d, int milliseconds, droste_error *err)
{
    struct error why = { 0 };
    int rc = api_enter(d, &why);
    if (rc < 0)
        return api_fail(err, &why, rc);
    rc = loop_turn(d->loop, d->run_count > 0 || milliseconds > 0 ? milliseconds : 0, &why);
    tell_all(d);
    d->waits = false;
    if (rc < 0)
        return api_fail(err, &why, rc);
    return d->run_count < INT_MAX ? (int)d->run_count : INT_MAX;
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

int api_run(droste *d, droste_request *q, const struct link *link, droste_running **running,
    droste_result **out, struct error *err)
{
    struct waiting w = { .fn = q->event, .arg = q->arg };
    q->event = w.fn ? waiting_event : NULL;
    q->done = waiting_done;
    q->arg = &w;
    api_forget_interrupt(d);
    int rc = d->waits ? api_enter(d, err) : run_api_start(d, q, link, running, err);
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
    struct error why = { 0 };
    droste_request q = { .question = question, .context = context, .event = fn, .arg = arg };
    return api_fail(err, &why, api_run(d, &q, NULL, NULL, out, &why));
}

/* What came before it in its conversation, if it is part of one. */
static int find_before(
    droste *d, const char *run, droste_chat **chat, struct link *link, struct error *err)
{
    struct stored_run stored_run = { 0 };
    struct settings s = { 0 };
    int rc = d->waits ? 0 : stored_run_find(d, run, &stored_run, err);
    if (rc == 0 && stored_run.previous[0]) {
        rc = stored_run_settings(d, &stored_run, &s, err);
        if (rc == 0)
            rc = chat_before(d, stored_run.previous, &s, chat, link, err);
        settings_free(&s);
    }
    stored_run_free(&stored_run);
    return rc;
}

int droste_resume(droste *d, const char *run, droste_event_fn *fn, void *arg, droste_result **out,
    droste_error *err)
{
    struct error why = { 0 };
    struct link link = { 0 };
    droste_chat *chat = NULL;
    droste_request q = { .resume = run, .event = fn, .arg = arg };
    int rc = find_before(d, run, &chat, &link, &why);
    if (rc == 0)
        rc = api_run(d, &q, chat ? &link : NULL, NULL, out, &why);
    droste_chat_close(chat);
    return api_fail(err, &why, rc);
}
