/* api/run_api.c: a run, waited for, with its events in the public form. */
#include "api/api.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"

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

struct waiting {
    bool done;
    droste_event_fn *fn;
    void *arg;
    droste_result *result;
};

static void pass_event(void *arg, const struct rlm_event *e)
{
    struct waiting *w = arg;
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
    struct waiting *w = arg;
    w->result = result_of_run(result);
    w->done = true;
}

/* What a run is made of. */
struct parts {
    struct context *context;
    struct models models;
    struct store *store; /* the context's */
};

static void free_parts(struct parts *p)
{
    api_models_close(&p->models);
    context_free(p->context);
}

static int make_parts(droste *d, const char *context, struct parts *p, struct error *err)
{
    const struct settings *s = &d->settings;
    struct context_filter filter = api_filter(d);
    enum value_kind kind;
    int rc = context_kind_parse(s->context_type ? s->context_type : "auto", &kind, err);
    if (rc == 0)
        rc = api_models(d, true, &p->models, err);
    if (rc == 0 && context)
        rc = context_load(context, kind, &filter, &p->context, err);
    if (rc == 0)
        rc = api_store(d, &p->store, err);
    return rc;
}

static int fill_options(droste *d, const char *question, const struct parts *p,
    struct rlm_options *o, struct error *err)
{
    const struct settings *s = &d->settings;
    *o = (struct rlm_options){
        .question = question,
        .context = p->context,
        .models = p->models.at,
        .model_count = array_length(p->models.at),
        .limits = {
            .calls = s->max_llm_calls,
            .input_tokens = s->max_input_tokens,
            .output_tokens = s->max_output_tokens,
            .total_tokens = s->max_total_tokens,
            .seconds = s->timeout,
            .cost = s->max_cost,
            .depth = (unsigned)s->max_recursion_depth,
            .children = (unsigned)s->max_children,
        },
        .call_timeout = s->call_timeout,
        .answer_timeout = api_broker_timeout(d),
        .max_tokens = s->max_tokens,
        .max_iterations = (unsigned)s->max_iterations,
        .child_iterations = (unsigned)s->delegate_max_iterations,
        .max_output_chars = (size_t)s->max_output_chars,
        .store = p->store,
        .instructions = s->instructions,
    };
    int rc = api_environment(d, &o->env, err);
    if (rc == 0)
        rc = api_session_options(d, &o->session, err);
    o->env_name = d->env_name;
    o->session.timeout = 0; /* the run's own limit covers it */
    return rc;
}

static int run(
    droste *d, const char *question, const struct parts *p, struct waiting *w, struct error *err)
{
    struct rlm_options options;
    int rc = fill_options(d, question, p, &options, err);
    if (rc < 0)
        return rc;
    if (w->fn) {
        options.event = pass_event;
        options.arg = w;
    }
    rc = rlm_start(d->loop, &options, run_done, w, &d->run, err);
    if (rc < 0)
        return rc;
    rc = loop_run_until(d->loop, &w->done, err);
    rlm_close(steal(&d->run));
    if (rc == 0 && !w->result)
        rc = error_memory(err);
    return rc;
}

int droste_run(droste *d, const char *question, const char *context, droste_event_fn *fn, void *arg,
    droste_result **out, droste_error *err)
{
    struct error why = { 0 };
    struct parts parts = { 0 };
    struct waiting w = { .fn = fn, .arg = arg };
    int rc = 0;
    api_forget_interrupt(d);
    if (d->run)
        rc = error_set(&why, ERROR_ARGUMENT, "a run is under way in this context already");
    else if (!question || !question[0])
        rc = error_set(&why, ERROR_ARGUMENT, "a run needs a question");
    if (rc == 0)
        rc = make_parts(d, context, &parts, &why);
    if (rc == 0)
        rc = run(d, question, &parts, &w, &why);
    free_parts(&parts);
    if (rc < 0) {
        droste_result_free(w.result);
        return api_fail(err, &why, rc);
    }
    *out = w.result;
    return 0;
}
