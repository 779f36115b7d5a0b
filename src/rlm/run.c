/* rlm/run.c: a run's place in its tree, and what it tells about itself. */
#include <string.h>

#include "rlm/run.h"

static const char *const status_names[] = { "answered", "exhausted", "budget", "timeout",
    "cancelled", "error", "interrupted" };

const char *rlm_status_name(enum rlm_status status)
{
    return status_names[status];
}

/* ---- its place ---- */

struct rlm_run *run_owner(struct rlm_run *r)
{
    return r->of ? r->of : r;
}

struct lm *tree_lm(const struct tree *tree, unsigned depth)
{
    size_t last = tree->o.model_count - 1;
    return tree->o.models[depth < last ? depth : last];
}

bool run_may_have_children(const struct rlm_run *r)
{
    return r->place.depth < r->tree->budget.limits.depth;
}

struct schema *run_answer_type(const struct rlm_run *r)
{
    return r->place.parent ? NULL : r->tree->o.session.answer;
}

size_t run_context_count(const struct rlm_run *r)
{
    return r->place.contexts ? r->place.contexts->count : 0;
}

struct rlm_run *run_before(const struct rlm_run *r)
{
    return r->place.parent ? NULL : r->tree->o.after;
}

/* ---- telling ---- */

void run_tell_event(struct rlm_run *r, struct rlm_event *event)
{
    const struct rlm_options *o = &r->tree->o;
    if (r->of || !o->event || (r->place.parent && !o->all_events))
        return;
    event->run = r->place.number;
    event->depth = r->place.depth;
    event->turn = r->turn;
    event->turns = r->place.iterations;
    event->budget = &r->tree->budget;
    event->pending = r->tree->budget.open;
    o->event(o->arg, event);
}

void run_tell(struct rlm_run *r, enum rlm_event_kind kind, const char *text, size_t len)
{
    struct rlm_event event = { .kind = kind, .text = text, .len = len };
    run_tell_event(r, &event);
}

const char *run_cell_complaint(const struct cell_result *c)
{
    if (c->error.traceback)
        return c->error.traceback;
    if (c->error.message)
        return c->error.message;
    return c->reason.code != ERROR_NONE ? c->reason.text : "";
}

void run_calls_changed(void *arg)
{
    struct rlm_run *r = arg;
    run_tell(r->tree->root, RLM_EVENT_CALLS, "", 0);
}

void run_tell_retry(
    struct rlm_run *r, uint64_t call, const char *model, const struct lm_retry *retry)
{
    struct rlm_event event = { .kind = RLM_EVENT_RETRY,
        .call = call,
        .model = model,
        .text = retry->message ? retry->message : retry->why->text,
        .status = error_code_name(retry->why->code),
        .retry = retry };
    event.len = strlen(event.text);
    run_tell_event(r, &event);
}

void run_tell_call(void *arg, const struct broker_call_event *call)
{
    if (call->retry) {
        run_tell_retry(arg, call->id, call->model, call->retry);
        return;
    }
    const struct lm_reply *reply = call->reply;
    struct rlm_event event = { .kind = reply ? RLM_EVENT_CALLED : RLM_EVENT_CALL,
        .call = call->id,
        .model = call->model,
        .text = call->text,
        .len = call->len };
    if (reply) {
        bool failed = reply->error.code != ERROR_NONE;
        event.text = failed ? lm_reply_message(reply) : reply->text;
        event.len = failed ? strlen(event.text) : reply->len;
        event.status = failed ? error_code_name(reply->error.code) : "ok";
        event.seconds = reply->seconds;
        event.used_calls = 1;
        event.used = &reply->usage;
    }
    run_tell_event(arg, &event);
}
