/* rlm/run.c: a run, from its start to its end.
 *
 *   open a session ─► set the contexts ─► turn: ask the model ─► run the reply's blocks one by one
 *        ▲                               ▲                        │
 *        │ (the sandbox died)            └── feed the output back ┘─► an answer ─► end
 *
 * Each arrow is a callback from a lower layer. A session must not be closed within its own
 * callback, so a zero-delay timer replaces a dead one. `run_end` is the only end: it ends the child
 * runs, closes the record and calls the caller, once. run_session.c leads to the first turn, turn.c
 * has the turns.
 */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/cleanup.h"
#include "base/text.h"
#include "rlm/run.h"
#include "session/submission.h"

/* A run whose calls wait for approvals looks at its time limit at least so rarely. */
#define HELD_LOOK_SECONDS 0.25

static const char *const status_names[] = { "answered", "exhausted", "budget", "timeout",
    "cancelled", "error", "interrupted" };

const char *rlm_status_name(enum rlm_status status)
{
    return status_names[status];
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
        .text = retry->why->text,
        .len = strlen(retry->why->text),
        .status = error_code_name(retry->why->code),
        .retry = retry };
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
        event.text = failed ? reply->error.text : reply->text;
        event.len = failed ? strlen(reply->error.text) : reply->len;
        event.status = failed ? error_code_name(reply->error.code) : "ok";
        event.seconds = reply->seconds;
        event.used_calls = 1;
        event.used = &reply->usage;
    }
    run_tell_event(arg, &event);
}

/* ---- the end ---- */

/* Cancels calls of threads in a session that outlives the run. */
static void give_up_waiting(struct rlm_run *r)
{
    struct error why = { 0 };
    error_set(&why, ERROR_CANCELLED, "the run that made this call has ended");
    broker_give_up(r->broker, r->session, &why);
}

void run_end(struct rlm_run *r, enum rlm_status status, const struct error *why)
{
    if (r->finished)
        return;
    r->finished = true;
    /* A call that a larger budget refused can be repeated once that budget grows. */
    if (status == RLM_BUDGET && budget_is_refused_above(&r->tree->budget))
        status = RLM_INTERRUPTED;
    if (why && why->code == ERROR_STORE)
        run_unrecorded(r, why);
    bool again = r->tree->o.again, back = !again && replay_goes_back(r, status);
    if (again || back)
        replay_go_back(r);
    model_call_cancel(r);
    candidates_end(r, rlm_status_name(status));
    if (r->reserved)
        budget_unreserve(&r->tree->budget, 1);
    if (r->tree->o.keep && r->broker && r->session)
        give_up_waiting(r);
    broker_close(steal(&r->broker));
    run_record_cell_lost(r, rlm_status_name(status));
    r->result.status = status;
    if (why)
        r->result.error = *why;
    r->result.seconds = clock_seconds_since(r->start_ns);
    timer_stop(r->deadline);
    timer_stop(r->later);
    timer_stop(r->step);
    replay_tell(r);
    if (back)
        run_record_release(r);
    else if (!again)
        run_record_end(r);
    if (r->done)
        r->done(r->done_arg, &r->result);
}

static void run_time_is_up(void *arg)
{
    struct rlm_run *r = arg;
    struct error err = { 0 };
    double left = budget_seconds_left(&r->tree->budget);
    if (left > 0) { /* it waits for approvals, or has */
        double least = r->tree->budget.time_holds > 0 ? HELD_LOOK_SECONDS : 0.001;
        timer_start(r->deadline, (uint64_t)((left > least ? left : least) * 1000), 0);
        return;
    }
    error_set(&err, ERROR_TIMEOUT, "the run reached its time limit of %g s (--timeout)",
        r->tree->o.limits.seconds);
    run_end(r, RLM_TIMEOUT, &err);
}

static void end_badly(struct rlm_run *r, const struct error *why)
{
    /* The budget may notice the deadline before the timer fires. */
    if (error_is_budget(why->code) && budget_seconds_left(&r->tree->budget) <= 0) {
        run_time_is_up(r);
        return;
    }
    enum rlm_status status = error_is_budget(why->code)     ? RLM_BUDGET
                             : why->code == ERROR_CANCELLED ? RLM_CANCELLED
                                                            : RLM_ERROR;
    run_end(r, status, why);
}

void run_fail(struct rlm_run *r, const struct error *why)
{
    if (r->of) {
        candidate_failed(r, why);
        return;
    }
    if (why->code == ERROR_STORE && r->place.parent)
        run_unrecorded(r, why);
    if (!r->tree->root->diverged.code) /* that ends the whole tree */
        end_badly(r, why);
}

/* ---- the beginning ---- */

static bool run_has_tools(const struct rlm_run *r)
{
    return !r->place.parent || r->tree->o.sub_tools;
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

/* The cells of the runs above wait, too. */
static void run_waits(void *arg, bool on)
{
    const struct rlm_run *r = arg;
    const struct rlm_options *o = &r->tree->o;
    for (const struct rlm_run *up = r->place.parent; up; up = up->place.parent)
        if (up->session)
            session_hold(up->session, on);
    if (r->tree->root->is_place && o->waits)
        o->waits(o->waits_arg, on);
}

/* Of child runs, too: a person is asked for all. */
static void run_tell_approval(
    void *arg, const struct droste_approval *approval, const char *status, const char *text)
{
    struct rlm_run *r = arg;
    struct rlm_event event = { .kind = RLM_EVENT_APPROVAL,
        .text = text,
        .len = strlen(text),
        .status = status,
        .approval = approval };
    run_tell_event(r->tree->root, &event);
}

int run_open_broker(struct rlm_run *r, struct error *err)
{
    struct rlm_run *owner = run_owner(r); /* which keeps the broker, if the candidate is kept */
    const struct rlm_options *o = &r->tree->o;
    struct broker_options broker = {
        .tools = run_has_tools(r) ? o->tools : NULL,
        .tool_timeout = o->tool_timeout,
        .ask = o->ask,
        .waits = run_waits,
        .waits_arg = owner,
        .approval_event = run_tell_approval,
        .lm = tree_lm(r->tree, r->place.depth + 1),
        .children = run_may_have_children(r) ? &run_children : NULL,
        .children_arg = owner,
        .budget = &r->tree->budget,
        .account = &owner->account,
        .call_timeout = o->call_timeout,
        .traceparent = o->traceparent,
        .loop = r->tree->loop,
        .answer_timeout = o->answer_timeout,
        .max_tokens = o->sub_max_tokens,
        .depth = r->place.depth + 1,
        .store = o->store,
        .hold = o->hold,
        .run = owner->result.run,
        .root = r->tree->root ? r->tree->root->result.run : owner->result.run,
        .asks_nobody = o->again,
        .recorded = r->resume ? resume_recorded(r->resume) : NULL,
        .diverged = run_diverged,
        .changed = run_calls_changed,
        .call_event = o->event && o->all_events ? run_tell_call : NULL,
        .arg = owner,
    };
    return broker_open(&broker, &r->broker, err);
}

struct rlm_run *run_before(const struct rlm_run *r)
{
    return r->place.parent ? NULL : r->tree->o.after;
}

/* The session was opened for one type of answers. */
static int check_type(const struct rlm_run *r, const struct rlm_run *last, struct error *err)
{
    const struct schema *now = run_answer_type(r), *then = run_answer_type(last);
    if (now == then || (now && then && strcmp(schema_text(now), schema_text(then)) == 0))
        return 0;
    return error_set(err, ERROR_ARGUMENT,
        "the type of the answers (answer-schema, answer-field) cannot change within a "
        "conversation; "
        "begin another");
}

/* What the question before this one and its model have said, without the system prompt. */
static int keep_said(struct rlm_run *r, const struct rlm_run *last, struct error *err)
{
    int rc = chat_begin_said(&r->chat, err);
    for (size_t i = last->shortened ? 0 : last->inherited; rc == 0 && i < last->message_count;
         i++) {
        const struct message *m = &last->messages[i];
        if (strcmp(m->role, "system") != 0)
            rc = chat_add_said(&r->chat, m->role, m->text, m->len, err);
    }
    return rc;
}

/* Messages of earlier questions, and their number. */
static int begin_chat(struct rlm_run *r, struct error *err)
{
    struct rlm_run *last = run_before(r);
    if (!last)
        return chat_begin(&r->chat, r->place.contexts, err);
    int rc = chat_go_on(
        &r->chat, &last->chat, last->question, last->result.answer, r->place.contexts, err);
    if (rc == 0)
        rc = keep_said(r, last, err);
    if (rc == 0)
        rc = check_type(r, last, err);
    compact_take_over(r, last);
    for (size_t i = 0; rc == 0 && i < last->message_count; i++) {
        const struct message *m = &last->messages[i];
        rc = message_add(r, m->role, text_copy(m->text, m->len), m->len, err);
        if (rc == 0)
            rc = images_copy(&r->messages[r->message_count - 1].images, &m->images, err);
    }
    r->recorded = r->inherited = r->message_count;
    return rc;
}

static int run_set_up(struct rlm_run *r, struct error *err)
{
    double seconds = r->tree->o.limits.seconds;
    r->session_options = r->tree->o.session;
    tools_offer(run_has_tools(r) ? r->tree->o.tools : NULL, &r->session_options);
    r->deadline = timer_new(r->tree->loop, run_time_is_up, r);
    r->later = timer_new(r->tree->loop, run_session_restart, r);
    r->step = timer_new(r->tree->loop, replay_step, r);
    if (!r->deadline || !r->later || !r->step || !r->question || (r->place.model && !r->model))
        return error_memory(err);
    int rc = begin_chat(r, err);
    if (rc == 0)
        rc = r->place.resume ? replay_open(r, err) : run_record_begin(r, err);
    if (rc == 0)
        rc = run_open_broker(r, err);
    if (rc < 0)
        return rc;
    run_tell(r, RLM_EVENT_STARTED, r->result.run, strlen(r->result.run));
    if (r->submitted.len > 0) {
        timer_start(r->step, 0, 0);
        return 0;
    }
    rc = run_session_start(r, err);
    if (rc == 0 && seconds > 0 && !r->place.parent) /* it ends the others */
        timer_start(r->deadline, (uint64_t)(budget_seconds_left(&r->tree->budget) * 1000), 0);
    return rc;
}

static struct rlm_run *new_run(
    struct tree *tree, const struct run_place *place, rlm_done_fn *done, void *arg)
{
    struct rlm_run *r = calloc(1, sizeof *r);
    if (!r)
        return NULL;
    *r = (struct rlm_run){ .tree = tree,
        .place = *place,
        .question = strdup(place->question),
        .model = place->model ? strdup(place->model) : NULL,
        .lm = tree_lm(tree, place->depth),
        .account = { .up = place->parent ? &place->parent->account : NULL },
        .reserved = place->reserved,
        .done = done,
        .done_arg = arg,
        .start_ns = clock_ns(),
        .result = { .rules = tree->o.session.rules,
            .workspace = tree->o.session.spec.workspace,
            .budget = &tree->budget } };
    for (size_t i = 0; i < run_context_count(r); i++)
        r->result.left_out += place->contexts->items[i]->left_out;
    return r;
}

int run_start(struct tree *tree, const struct run_place *place, rlm_done_fn *done, void *arg,
    struct rlm_run **out, struct error *err)
{
    struct error why = { 0 };
    struct rlm_run *r = new_run(tree, place, done, arg);
    if (!r) {
        budget_unreserve(&tree->budget, place->reserved);
        return error_memory(err);
    }
    if (!place->parent)
        tree->root = r;
    int rc = run_set_up(r, &why);
    if (rc < 0) {
        /* The caller gets the error as the return value; the record needs it, too. */
        r->done = NULL;
        end_badly(r, &why);
        run_free(r);
        if (err)
            *err = why;
        return rc;
    }
    *out = r;
    return 0;
}

void run_free(struct rlm_run *r)
{
    if (!r)
        return;
    artifacts_free(r->artifacts);
    artifact_list_free(&r->result.artifacts);
    candidates_free(r);
    session_close(r->session);
    prepare_free(&r->prepared);
    chat_free(&r->chat);
    timer_free(r->deadline);
    timer_free(r->later);
    timer_free(r->step);
    resume_free(r->resume);
    for (size_t i = 0; i < r->message_count; i++)
        message_free(&r->messages[i]);
    free(r->messages);
    images_drop(r);
    free(r->question);
    free(r->model);
    free(r->result.answer);
    submission_free(r->result.submit);
    free(r->result.resumed);
    json_object_put(r->variables);
    buf_free(&r->reply);
    buf_free(&r->feedback);
    buf_free(&r->submitted);
    free(r);
}
