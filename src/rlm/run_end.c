/* rlm/run_end.c: `run_end` is the only end of a run: it ends the child runs, closes the record and
 * calls the caller, once.
 */
#include "base/clock.h"
#include "base/cleanup.h"
#include "rlm/run.h"

/* A run whose calls wait for approvals looks at its time limit at least so rarely. */
#define HELD_LOOK_SECONDS 0.25

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
