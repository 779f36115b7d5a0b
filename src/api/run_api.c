/* api/run_api.c: a run, waited for, with its events in the public form; a new one, or one of the
 * record to go on with. */
#include "api/run_parts.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/json.h"
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
};

static void pass_event(void *arg, const struct rlm_event *e)
{
    struct run_waiting *w = arg;
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
    };
    w->fn(w->arg, &event);
}

static void run_done(void *arg, const struct rlm_result *result)
{
    struct run_waiting *w = arg;
    w->result = result_of_run(result);
    snprintf(w->run, sizeof w->run, "%s", result->run);
    w->error = result->error;
    w->done = true;
}

void run_parts_free(struct run_parts *p)
{
    if (!p->shared)
        api_models_close(&p->models);
    tools_free(p->tools);
    context_free(p->context);
    buf_free(&p->instructions);
    buf_free(&p->settings);
}

static int load_context(droste *d, const char *path, struct run_parts *p, struct error *err)
{
    struct context_filter filter = api_filter(d);
    enum value_kind kind;
    int rc = api_context_kind(d, &kind, err);
    return rc == 0 && path ? context_load(path, kind, &filter, &p->context, err) : rc;
}

int run_parts_make(droste *d, const char *context, struct run_parts *p, struct error *err)
{
    int rc = p->shared ? 0 : api_models(d, true, &p->models, err);
    if (rc == 0)
        rc = load_context(d, context, p, err);
    if (rc == 0)
        rc = api_store(d, &p->store, err);
    return rc;
}

static int fill_options(
    droste *d, const char *question, struct run_parts *p, struct rlm_options *o, struct error *err)
{
    const struct settings *s = &d->settings;
    int rc = s->instructions ? api_text(s->instructions, "instructions", &p->instructions, err) : 0;
    if (rc == 0 && !text_is_utf8(buf_text(&p->instructions), p->instructions.len, NULL))
        rc = error_set(err, ERROR_ARGUMENT, "the instructions are not UTF-8");
    *o = (struct rlm_options){
        .question = question,
        .context = p->context,
        .models = p->models.at,
        .model_count = array_length(p->models.at),
        .limits = {
            .calls = s->max_llm_calls,
            .tool_calls = s->max_tool_calls,
            .input_tokens = s->max_input_tokens,
            .output_tokens = s->max_output_tokens,
            .total_tokens = s->max_total_tokens,
            .seconds = s->timeout,
            .cost = s->max_cost,
            .depth = (unsigned)s->max_recursion_depth,
            .children = (unsigned)s->max_children,
        },
        .sub_tools = s->sub_tools,
        .tool_timeout = s->tool_timeout,
        .call_timeout = s->call_timeout,
        .answer_timeout = api_broker_timeout(d),
        .max_tokens = s->max_tokens,
        .max_iterations = (unsigned)s->max_iterations,
        .child_iterations = (unsigned)s->delegate_max_iterations,
        .max_output_chars = (size_t)s->max_output_chars,
        .store = p->store,
        .resume = p->resume,
        .after = p->after,
        .previous = p->previous,
        .again = p->again,
        .keep = p->keep,
        .instructions = buf_text(&p->instructions),
        .max_errors = (unsigned)s->max_errors,
    };
    if (rc == 0)
        rc = api_environment(d, &o->env, err);
    if (rc == 0)
        rc = api_session_options(d, &o->session, err);
    if (rc == 0)
        rc = api_tools(d, &p->tools, err);
    o->tools = p->tools;
    o->env_name = d->env_name;
    o->session.timeout = 0; /* the run's own limit covers it */
    return rc;
}

int run_and_wait(droste *d, const char *question, struct run_parts *p, struct run_waiting *w,
    struct rlm_run **out, struct error *err)
{
    struct rlm_options options;
    int rc = fill_options(d, question, p, &options, err);
    if (rc < 0)
        return rc;
    struct settings_texts texts = { options.session.setup, options.instructions };
    settings_save(&d->settings, &texts, &p->settings);
    if (buf_failed(&p->settings))
        return error_memory(err);
    options.settings = buf_text(&p->settings);
    if (w->fn) {
        options.event = pass_event;
        options.arg = w;
    }
    rc = rlm_start(d->loop, &options, run_done, w, &d->run, err);
    if (rc < 0)
        return rc;
    rc = loop_run_until(d->loop, &w->done, err);
    *out = steal(&d->run);
    if (rc == 0 && !w->result)
        rc = error_memory(err);
    return rc;
}

static int run(
    droste *d, const char *question, struct run_parts *p, struct run_waiting *w, struct error *err)
{
    struct rlm_run *done = NULL;
    int rc = run_and_wait(d, question, p, w, &done, err);
    rlm_close(done);
    return rc;
}

/* ---- a run of the record ---- */

void run_past_free(struct run_past *past)
{
    buf_free(&past->question);
    buf_free(&past->settings);
    buf_free(&past->context_data);
    json_object_put(past->context);
}

static int add_piece(void *arg, const char *data, size_t len, struct error *err)
{
    buf_append(arg, data, len);
    return buf_failed(arg) ? error_memory(err) : 0;
}

static int take_past(void *arg, const struct store_run *run, struct error *err)
{
    struct run_past *past = arg;
    const struct store_run_begin *b = &run->begin;
    struct buf context = { 0 };
    if (b->parent)
        return error_set(err, ERROR_ARGUMENT, "run '%.64s' is part of run '%.64s': resume that one",
            b->id, b->parent);
    if (!b->settings.hash)
        return error_set(err, ERROR_UNSUPPORTED,
            "run '%.64s' was recorded by a Droste (%.20s) that did not keep its settings: it "
            "cannot "
            "be resumed",
            b->id, b->version);
    snprintf(past->previous, sizeof past->previous, "%s", b->previous ? b->previous : "");
    snprintf(past->status, sizeof past->status, "%s", run->end.status);
    int rc = store_value_read(past->store, &b->question, SIZE_MAX, add_piece, &past->question, err);
    if (rc == 0)
        rc = store_value_read(past->store, &b->settings, SIZE_MAX, add_piece, &past->settings, err);
    if (rc == 0)
        rc = store_value_read(
            past->store, &b->context_data, SIZE_MAX, add_piece, &past->context_data, err);
    if (rc == 0)
        rc = store_value_read(past->store, &b->context, SIZE_MAX, add_piece, &context, err);
    if (rc == 0 && context.len > 0)
        rc = json_parse(buf_text(&context), context.len, &json_limits_large, &past->context, err);
    buf_free(&context);
    return rc;
}

int run_past_find(droste *d, const char *run, struct run_past *past, struct error *err)
{
    static const struct store_visitor visitor = { .run = take_past, .lazy = true };
    int rc = api_store(d, &past->store, err);
    if (rc == 0 && !past->store)
        rc = error_set(err, ERROR_CONFIG, "the record is turned off (database = none)");
    if (rc == 0)
        rc = store_run_find(past->store, run, past->id, err);
    return rc < 0 ? rc : store_run_visit(past->store, past->id, &visitor, past, err);
}

/* The context as it was, or an error. */
int run_past_context(droste *d, struct run_past *past, struct run_parts *p, struct error *err)
{
    const char *path = json_get_string(past->context, "path", NULL);
    const char *source = json_get_string(past->context, "source", NULL);
    const char *wanted = json_get_string(past->context, "sha256", "");
    char hash[HASH_TEXT_SIZE];
    cleanup_buf struct buf unused = { 0 };
    enum value_kind kind;
    if (!past->context)
        return 0;
    int rc = path ? load_context(d, path, p, err) : api_context_kind(d, &kind, err);
    if (rc == 0 && !path && past->context_data.len == 0 && json_get_int(past->context, "bytes", 0))
        rc = error_set(err, ERROR_NOT_FOUND,
            "the context of run '%.64s' was read from %.40s and is too large for the record to "
            "keep: "
            "the run cannot be resumed",
            past->id, source ? source : "a pipe");
    if (rc == 0 && !path)
        rc = context_from_memory(
            buf_text(&past->context_data), past->context_data.len, kind, &p->context, err);
    if (rc == 0)
        rc = context_keep(p->context, hash, &unused, err);
    if (rc < 0)
        return rc;
    if (strcmp(hash, wanted) != 0)
        return error_set(err, ERROR_ARGUMENT,
            "the context %.100s is not what it was when run '%.64s' began: put it back, or ask "
            "anew",
            path ? path : "in the record", past->id);
    free(p->context->source);
    p->context->source = strdup(source ? source : path ? path : "");
    return p->context->source ? 0 : error_memory(err);
}

static int resume(droste *d, struct run_past *past, struct run_waiting *w, struct error *err)
{
    struct run_parts parts = { .store = past->store, .resume = past->id };
    droste_chat *chat = NULL;
    int rc = past->previous[0] ? chat_before(d, past->previous, &chat, &parts, err)
                               : api_models(d, true, &parts.models, err);
    if (rc == 0)
        rc = run_past_context(d, past, &parts, err);
    if (rc == 0)
        rc = run(d, buf_text(&past->question), &parts, w, err);
    run_parts_free(&parts);
    droste_chat_close(chat);
    return rc;
}

/* With the run's own settings in the place of the droste's. */
static int resume_as_then(droste *d, const struct settings *now, struct run_past *past,
    struct run_waiting *w, struct error *err)
{
    int rc = settings_init(&d->settings, err);
    if (rc == 0)
        rc = settings_restore(&d->settings, buf_text(&past->settings), past->settings.len, err);
    if (rc == 0)
        rc = settings_take_secrets(&d->settings, now, err);
    if (rc == 0)
        rc = resume(d, past, w, err);
    settings_free(&d->settings);
    return rc;
}

int droste_resume(droste *d, const char *run_id, droste_event_fn *fn, void *arg,
    droste_result **out, droste_error *err)
{
    struct error why = { 0 };
    struct run_past past = { 0 };
    struct run_waiting w = { .fn = fn, .arg = arg };
    struct settings now = d->settings;
    api_forget_interrupt(d);
    int rc = d->run ? error_set(&why, ERROR_ARGUMENT, "a run is under way in this context already")
                    : run_past_find(d, run_id, &past, &why);
    if (rc == 0) {
        rc = resume_as_then(d, &now, &past, &w, &why);
        d->settings = now;
    }
    run_past_free(&past);
    if (rc < 0) {
        droste_result_free(w.result);
        return api_fail(err, &why, rc);
    }
    *out = w.result;
    return 0;
}

int droste_run(droste *d, const char *question, const char *context, droste_event_fn *fn, void *arg,
    droste_result **out, droste_error *err)
{
    struct error why = { 0 };
    struct run_parts parts = { 0 };
    struct run_waiting w = { .fn = fn, .arg = arg };
    int rc = 0;
    api_forget_interrupt(d);
    if (d->run)
        rc = error_set(&why, ERROR_ARGUMENT, "a run is under way in this context already");
    else if (!question || !question[0])
        rc = error_set(&why, ERROR_ARGUMENT, "a run needs a question");
    if (rc == 0)
        rc = run_parts_make(d, context, &parts, &why);
    if (rc == 0)
        rc = run(d, question, &parts, &w, &why);
    run_parts_free(&parts);
    if (rc < 0) {
        droste_result_free(w.result);
        return api_fail(err, &why, rc);
    }
    *out = w.result;
    return 0;
}
