/* rlm/run_broker.c: opens the broker that answers the calls of a run's code, and passes on what its
 * session reports.
 */
#include <string.h>

#include "broker/network_ask.h"
#include "broker/network_log.h"
#include "rlm/run.h"

bool run_has_tools(const struct rlm_run *r)
{
    return !r->place.parent || r->tree->o.sub_tools;
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

/* The guest must not go on with an error that a resumed run would not have. */
static void run_call_unrecorded(void *arg, const struct error *why)
{
    struct rlm_run *r = arg;
    if (!r->tree->root->finished)
        run_unrecorded(r, why);
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
        .recorded_only = o->again,
        .recorded = r->resume ? resume_recorded(r->resume) : NULL,
        .diverged = run_diverged,
        .unrecorded = run_call_unrecorded,
        .changed = run_calls_changed,
        .call_event = o->event && o->all_events ? run_tell_call : NULL,
        .arg = owner,
    };
    return broker_open(&broker, &r->broker, err);
}

/* ---- what the session reports ---- */

static void run_guest_call(void *arg, struct session *s, const struct session_call *call)
{
    struct rlm_run *r = arg;
    if (r->broker)
        broker_call(r->broker, s, call);
}

static void run_guest_call_dropped(void *arg, struct session *s, uint64_t id)
{
    struct rlm_run *r = arg;
    if (r->broker)
        broker_drop(r->broker, s, id);
}

static void run_guest_output(void *arg, struct session *s, int stream, const char *data, size_t len)
{
    struct rlm_run *r = arg;
    struct rlm_event event = {
        .kind = RLM_EVENT_OUTPUT, .stream = stream, .text = data, .len = len
    };
    if (!r->finished)
        run_tell_event(r, &event);
}

static void run_guest_display(void *arg, struct session *s, const struct bundles *results)
{
    struct rlm_run *r = arg;
    struct rlm_event event = { .kind = RLM_EVENT_DISPLAY, .text = "", .results = results };
    if (!r->finished && r->in_cell)
        run_tell_event(r, &event);
}

static bool run_guest_request(void *arg, struct session *s, const struct egress_request *request)
{
    struct rlm_run *r = arg;
    return !r->broker || network_log_add(r->broker, request);
}

static bool run_guest_approve(void *arg, struct session *s, struct droste_network_request *request)
{
    struct rlm_run *r = arg;
    return r->broker && network_ask(r->broker, s, request);
}

const struct session_events run_guest_events = { run_guest_call, run_guest_call_dropped,
    run_guest_output, run_guest_display, run_guest_request, run_guest_approve };
