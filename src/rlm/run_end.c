/* rlm/run_end.c: `run_end` is the only end of a run: it ends the child runs, closes the record and
 * calls the caller, once.
 */
#include "base/array.h"
#include "base/clock.h"
#include "base/cleanup.h"
#include "rlm/candidate.h"
#include "rlm/run.h"

/* A run whose calls wait for approvals looks at its time limit at least so rarely. */
#define HELD_LOOK_SECONDS 0.25

/* ---- what ends with a run ---- */

static void end_call(struct rlm_run *r, struct lm_call **call)
{
    struct lm_reply cancelled = { .text = "", .finish = "" };
    if (*call)
        lm_cancel(steal(call), &cancelled);
    error_set(&cancelled.error, ERROR_CANCELLED, "the run ended");
    budget_settle(&r->tree->budget, &r->hold, &cancelled);
    run_record_call_end(r, &cancelled, NULL);
}

static void end_model_call(struct rlm_run *r)
{
    if (!r->call && !r->cost.budget)
        return;
    cost_ask_leave(&r->cost);
    end_call(r, &r->call);
}

void candidate_end(struct rlm_run *c, const char *by)
{
    c->finished = true;
    timer_stop(c->step);
    end_model_call(c);
    broker_close(steal(&c->broker));
    run_record_cell_lost(c, by);
}

/* Their calls end, and their cells are lost. */
static void end_candidates(struct rlm_run *r, const char *by)
{
    struct candidates *all = r->candidates;
    if (!all)
        return;
    timer_stop(all->step);
    if (all->choice)
        all->choice->run = NULL;
    if (all->call)
        end_call(r, &all->call);
    for (size_t i = 0; i < all->count; i++) {
        if (r->tree->o.again || r->tree->back)
            replay_go_back(all->items[i]);
        candidate_end(all->items[i], by);
    }
}

/* Cancels calls of threads in a session that outlives the run. */
static void give_up_waiting(struct rlm_run *r)
{
    struct error why = { 0 };
    error_set(&why, ERROR_CANCELLED, "the run that made this call has ended");
    broker_give_up(r->broker, r->session, &why);
}

/* ---- ends ---- */

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
    end_model_call(r);
    end_candidates(r, rlm_status_name(status));
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

void run_time_is_up(void *arg)
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

void run_end_badly(struct rlm_run *r, const struct error *why)
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

void candidate_note_cell(struct rlm_run *c, struct cell_result *result)
{
    if (!array_room(c->tried, c->tried_count, &c->tried_cap)) {
        cell_result_free(result);
        return;
    }
    c->tried[c->tried_count++] =
        (struct tried_cell){ c->code ? steal(&c->code) : strdup(""), *result };
    *result = (struct cell_result){ 0 };
}

void candidate_over(struct rlm_run *c)
{
    struct candidates *all = c->of->candidates;
    if (c->over)
        return;
    c->over = true;
    c->order = (unsigned)++all->over;
    bool first = c->tree->o.select == SELECT_FIRST && candidate_has_submitted(c);
    if (all->over == all->count || first)
        timer_start(all->step, 0, 0);
}

/* It has no reply, or cannot go on. */
static void candidate_failed(struct rlm_run *c, const struct error *why)
{
    if (why->code == ERROR_STORE) {
        run_fail(c->of, why);
        return;
    }
    c->result.error = *why;
    c->failed = true;
    candidate_over(c);
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
        run_end_badly(r, why);
}

void run_answered(struct rlm_run *r, char *json, enum rlm_status status)
{
    struct error err = { 0 };
    r->result.answer = json;
    if (r->of && json) {
        candidate_over(r);
        return;
    }
    if (!json) {
        error_memory(&err);
        run_fail(r, &err);
        return;
    }
    run_end(r, status, NULL);
}

/* If a volume could not be written back, the result becomes an error but keeps its answer.
 * Earlier questions of a conversation have ended before, so only the last one reports it. */
static void run_written_back(void *arg, const struct error *why)
{
    struct rlm_run *r = arg;
    struct rlm_result *result = &r->result;
    if (why->code != ERROR_NONE && result->error.code == ERROR_NONE && !r->tree->o.keep) {
        result->status = RLM_ERROR;
        result->error = *why;
        run_record_failed(r);
    }
    r->written_back(r->written_back_arg, why);
}

bool rlm_finish(struct rlm_run *r, session_finished_fn *done, void *arg)
{
    r->written_back = done;
    r->written_back_arg = arg;
    return r->session && session_finish(r->session, run_written_back, r);
}
