/* broker/cost_ask.c: see cost_ask.h. */
#include "broker/cost_ask.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/json/fields.h"
#include "base/json/json.h"
#include "base/loop.h"
#include "broker/approval.h"
#include "broker/ask.h"
#include "store/store.h"

/* ---- the gate ---- */

/* The gate that the call needs: the next one, or a later one if the call is so expensive. */
static double cost_ask_next(const struct budget *b, double spent, double more)
{
    double step = b->limits.ask_cost;
    double steps = ceil((spent + more - b->gate.limit) / step);
    return b->gate.limit + step * (steps > 1 ? steps : 1);
}

bool cost_ask_is_due(const struct budget *b, const struct budget_call *call)
{
    double more;
    return b->limits.ask_cost > 0 && !b->gate.denied && budget_may_hold(b, call, &more) &&
           budget_used_cost(b) + more > b->gate.limit;
}

static void cost_ask_deny(struct cost_gate *gate, const char *why)
{
    gate->denied = true;
    snprintf(gate->why, sizeof gate->why, "%.599s", why);
}

/* ---- the question ---- */

static void put_dollars(struct buf *out, const char *key, double dollars)
{
    field_number(out, key, round(dollars * 1e9) / 1e9);
}

/* {"model": …, "spent": …, "call": …, "limit": …, "then": …}, in dollars */
static void cost_ask_describe(
    struct buf *out, const struct budget *b, const struct budget_call *call, double then)
{
    double more = 0;
    budget_may_hold(b, call, &more);
    field_open(out, NULL, '{');
    field_string(out, "model", call->model);
    put_dollars(out, "spent", budget_used_cost(b));
    put_dollars(out, "call", more);
    put_dollars(out, "limit", b->gate.limit);
    put_dollars(out, "then", then);
    field_close(out, '}');
}

static void cost_ask_decided(void *arg, bool approved, const char *why)
{
    struct cost_gate *gate = arg;
    const struct broker_options *o = &gate->asker->broker->options;
    struct error err = { 0 };
    gate->asker = NULL;
    if (!approved)
        cost_ask_deny(gate, why);
    else if (gate->question && o->store && store_call_go(o->store, gate->question, &err) < 0)
        cost_ask_deny(gate, err.text);
    else
        gate->limit = gate->then;
    gate->question = 0;
    timer_start(gate->look, 0, 0);
}

static bool cost_ask_has_record(const struct cost_wait *w)
{
    return w->broker->options.store && w->record;
}

/* Asks for the first call that waits. */
static int cost_ask_start(struct budget *b, struct error *err)
{
    struct cost_gate *gate = &b->gate;
    struct cost_wait *w = TAILQ_FIRST(&gate->waits);
    const struct broker_options *o = &w->broker->options;
    cleanup_buf struct buf text = { 0 };
    double more = 0;
    budget_may_hold(b, &w->call, &more);
    if (!cost_ask_has_record(w) && !o->ask.show && !approval_has_hook(w->broker))
        return error_set(err, ERROR_BUDGET_COST,
            "spending more than $%g asks for an approval (ask-cost), but this session has no "
            "record, and nothing that answers: see docs/approvals.md",
            gate->limit);
    if (!gate->question || !approval_is_recorded(o->store, gate->question)) {
        gate->question = w->record;
        gate->then = cost_ask_next(b, budget_used_cost(b), more);
    }
    cost_ask_describe(&text, b, &w->call, gate->then);
    if (buf_failed(&text))
        return error_memory(err);
    const struct approval_call call = {
        .broker = w->broker, .session = w->session, .tool = COST_TOOL, .record = gate->question
    };
    gate->asker = w;
    int rc = approval_ask(
        &call, buf_text(&text), text.len, cost_ask_decided, gate, &gate->approval, err);
    if (rc < 0)
        gate->asker = NULL;
    return rc;
}

/* ---- waiting ---- */

static void cost_ask_end(struct cost_wait *w)
{
    TAILQ_REMOVE(&w->budget->gate.waits, w, link);
    approval_hold(w->broker, w->session, false);
    w->budget = NULL;
}

/* The timer's: lets calls go that need not wait any more, and asks for the others. */
static void cost_ask_look(void *arg)
{
    struct budget *b = arg;
    struct cost_gate *gate = &b->gate;
    struct cost_wait *w;
    struct error err = { 0 };
    unsigned round = ++gate->round;
    do {
        TAILQ_FOREACH(w, &gate->waits, link)
        if (w->round != round)
            break;
        if (!w)
            break;
        w->round = round;
        if (w == gate->asker || cost_ask_is_due(b, &w->call))
            continue;
        cost_ask_end(w);
        w->go(w->arg); /* may end others */
    } while (!TAILQ_EMPTY(&gate->waits));
    if (TAILQ_EMPTY(&gate->waits) || gate->asker || cost_ask_start(b, &err) == 0)
        return;
    cost_ask_deny(gate, err.text);
    timer_start(gate->look, 0, 0);
}

int cost_ask_begin(struct cost_wait *w, struct budget *b, struct error *err)
{
    struct cost_gate *gate = &b->gate;
    if (!gate->look && !(gate->look = timer_new(w->broker->options.loop, cost_ask_look, b)))
        return error_memory(err);
    w->budget = b;
    TAILQ_INSERT_TAIL(&gate->waits, w, link);
    approval_hold(w->broker, w->session, true);
    if (!gate->asker)
        timer_start(gate->look, 0, 0);
    return 0;
}

void cost_ask_leave(struct cost_wait *w)
{
    struct cost_gate *gate = w->budget ? &w->budget->gate : NULL;
    if (!gate)
        return;
    if (gate->asker == w) {
        gate->asker = NULL;
        gate->question = 0;
        if (gate->approval)
            approval_cancel(gate->approval);
        timer_start(gate->look, 0, 0);
    }
    cost_ask_end(w);
}

/* ---- a run that is resumed ---- */

static int cost_ask_take(void *arg, const droste_approval *a, struct error *err)
{
    struct cost_gate *gate = arg;
    cleanup_json struct json_object *o = NULL;
    (void)err;
    if (json_parse(a->arguments, a->len, &json_limits_small, &o, NULL) < 0)
        return 0; /* the file may have been changed */
    double then = json_get_double(o, "then", 0);
    if (!isfinite(then) || then <= gate->limit)
        return 0;
    if (a->decision && strcmp(a->decision, "approved") == 0) {
        gate->limit = then;
    } else if (!a->ended) { /* it waits, or finds the denial */
        gate->question = a->id;
        gate->then = then;
    }
    return 0;
}

int cost_ask_resume(struct budget *b, struct store *store, const char *root, struct error *err)
{
    return b->limits.ask_cost > 0 ? store_cost_questions(store, root, cost_ask_take, &b->gate, err)
                                  : 0;
}
