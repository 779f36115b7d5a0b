/* api/running.c: the events of a run in the public form, and its end.
 *
 * The end of a run comes from within a callback of its session, so it is reported by a timer, when
 * the run is gone.
 */
#include "api/running.h"

#include <stdlib.h>

#include "api/api.h"
#include "api/result.h"
#include "base/cleanup.h"
#include "base/loop.h"
#include "broker/tools.h"

static const char *const kind_names[] = {
    [RLM_EVENT_STARTED] = "started",
    [RLM_EVENT_CONTEXT] = "context",
    [RLM_EVENT_TURN] = "turn",
    [RLM_EVENT_DELTA] = "delta",
    [RLM_EVENT_REPLY] = "reply",
    [RLM_EVENT_CELL] = "cell",
    [RLM_EVENT_OUTPUT] = "output",
    [RLM_EVENT_DISPLAY] = "display",
    [RLM_EVENT_RESULT] = "result",
    [RLM_EVENT_CALLS] = "calls",
    [RLM_EVENT_NOTICE] = "notice",
    [RLM_EVENT_APPROVAL] = "approval",
    [RLM_EVENT_RETRY] = "retry",
    [RLM_EVENT_REQUEST] = "request",
    [RLM_EVENT_CALL] = "call",
    [RLM_EVENT_CALLED] = "called",
    [RLM_EVENT_CHILD] = "child",
    [RLM_EVENT_CHILD_END] = "child_end",
};

void running_event(void *arg, const struct rlm_event *e)
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
        .results = result_bundles(e->results),
        .result = e->kind == RLM_EVENT_DISPLAY ? (size_t)e->results->latest : 0,
        .cost = spent_cost(&e->budget->spent),
    };
    if (e->approval) {
        event.status = e->status;
        event.approval = e->approval;
    }
    if (e->retry) {
        event.status = e->status;
        event.seconds = e->retry->pause;
        event.attempt = e->retry->attempt;
        event.attempts = e->retry->attempts;
    }
    cleanup_buf struct buf cell = { 0 };
    if (e->cell && r->all_events) {
        result_put_event(&cell, e->cell);
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

void running_free(droste_running *r)
{
    if (!r)
        return;
    staging_drop(r->staging);
    hold_leave(&r->end_held);
    rlm_close(r->run);
    timer_free(r->log_flush);
    store_log_close(r->log);
    stored_run_free(&r->stored_run);
    free(r->question);
    free(r->batch);
    free(r->task);
    free(r->id);
    free(r->account);
    tools_free(r->tools);
    api_models_close(&r->models);
    contexts_free(&r->contexts);
    session_parts_free(&r->session);
    settings_free(&r->settings);
    buf_free(&r->instructions);
    buf_free(&r->system_prompt);
    buf_free(&r->tool_facts);
    buf_free(&r->saved);
    free(r->artifacts_dir);
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

static void run_end_kept(void *arg)
{
    droste_running *r = arg;
    tell_result(r, result_of_run(r->finishing));
}

/* A run that is suspended, or lost, has no end to keep. */
static void run_over(droste_running *r, const struct rlm_result *result)
{
    struct hold *hold = r->log && !r->ends_suspended ? store_log_hold(r->log) : NULL;
    r->finishing = result;
    if (hold_pass(hold, &r->end_held, run_end_kept, r))
        run_end_kept(r);
}

void running_fail(droste_running *r, enum rlm_status status, const struct error *why)
{
    r->unbegun = true;
    tell_result(r, result_of_failure(status, why));
}

static void run_finished(void *arg, const struct error *why)
{
    droste_running *r = arg;
    run_over(r, r->finishing);
}

/* The session of a conversation continues, and a suspended run is not waited for. */
static void running_finish(void *arg)
{
    droste_running *r = arg;
    r->saving = false;
    if (r->kept || r->ends_suspended || !r->run || !rlm_finish(r->run, run_finished, r))
        run_over(r, r->finishing);
}

void running_done(void *arg, const struct rlm_result *result)
{
    droste_running *r = arg;
    r->finishing = result;
    r->saving = !r->ends_suspended && r->run && rlm_save_artifacts(r->run, running_finish, r);
    if (!r->saving)
        running_finish(r);
}

static void end_staging(droste_running *r)
{
    struct error why = { 0 };
    error_set(&why, ERROR_CANCELLED, "interrupted while %s",
        r->staging->wants_workspace && r->settings.repo_url ? "the repository was staged"
                                                            : "the files of the run were read");
    staging_drop(steal(&r->staging));
    running_fail(
        r, r->ends_suspended ? RLM_INTERRUPTED : RLM_CANCELLED, r->ends_suspended ? &r->why : &why);
}

/* Whether the log has the end is not known. */
static void end_unkept(droste_running *r)
{
    struct error why = { 0 };
    hold_leave(&r->end_held);
    error_set(&why, ERROR_CANCELLED, "the run was cancelled before its end was kept");
    tell_result(r, result_of_failure(RLM_INTERRUPTED, r->ends_suspended ? &r->why : &why));
}

static void running_end(droste_running *r)
{
    if (r->end_held.hold)
        end_unkept(r);
    else if (r->staging)
        end_staging(r);
    else if (r->saving)
        rlm_save_artifacts_cancel(r->run);
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
            running_end(r);
            return true;
        }
    }
    return false;
}

/* Ends the run, or, from within its event function, as soon as that has returned. */
static void end_outside(droste_running *r)
{
    if (r->over || r->ends)
        return;
    if (r->telling == 0) {
        running_end(r);
        return;
    }
    r->ends = true;
    timer_start(r->d->tell, 0, 0);
}

/* The functions of the program may start runs, and end them. */
void api_tell_runs(droste *d)
{
    droste_running *r;
    while (end_one(d))
        ;
    while ((r = TAILQ_FIRST(&d->ended))) {
        droste_done_fn *done = r->done;
        droste_result *result = steal(&r->result);
        void *done_arg = r->arg;
        TAILQ_REMOVE(&d->ended, r, link);
        d->run_count--;
        if (r->link_to.ended)
            r->link_to.ended(r->link_to.chat, r->unbegun ? NULL : r, result ? result->run : "");
        if (r->unbegun || !r->kept)
            running_free(r);
        done(done_arg, result);
    }
}

void api_drop_runs(droste *d)
{
    struct running_list *lists[] = { &d->runs, &d->ended };
    for (size_t i = 0; i < array_length(lists); i++) {
        droste_running *r;
        while ((r = TAILQ_FIRST(lists[i]))) {
            TAILQ_REMOVE(lists[i], r, link);
            d->run_count--;
            running_free(r);
        }
    }
}

void api_drop_run_stagings(droste *d)
{
    droste_running *r;
    TAILQ_FOREACH(r, &d->runs, link)
    staging_drop(steal(&r->staging));
}

void api_cancel_runs(droste *d)
{
    droste_running *r;
    while ((r = TAILQ_FIRST(&d->runs)))
        running_end(r);
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

/* ---- the log ---- */

static void running_log_flush(void *arg)
{
    droste_running *r = arg;
    cleanup_buf struct buf unit = { 0 };
    struct error why = { 0 };
    r->log_flushes = false;
    if (r->lost)
        return;
    if (store_log_take(r->log, &unit)) {
        r->log_to.append(r->log_to.arg, r, unit.data, unit.len);
    } else if (buf_failed(&unit)) {
        error_memory(&why);
        api_suspend(r, &why);
    }
}

/* What is written within some milliseconds goes together, as an answer and the next call, unless
 * something waits for it: each unit costs the nodes and servers of a cluster two messages. */
static void running_log_wake(void *arg)
{
    enum { GATHER_MS = 10 };
    droste_running *r = arg;
    bool is_awaited = !TAILQ_EMPTY(&store_log_hold(r->log)->waits);
    if (!r->log_flushes || is_awaited)
        timer_start(r->log_flush, is_awaited ? 0 : GATHER_MS, 0);
    r->log_flushes = true;
}

int running_log_open(droste_running *r, struct error *err)
{
    struct rlm_options *o = &r->options;
    const char *continues = r->resume[0] ? r->resume : NULL;
    if (!r->log_to.append)
        return 0;
    if (!r->store)
        return error_set(err, ERROR_CONFIG, "a log needs a record (database = none)");
    r->log_flush = timer_new(r->d->loop, running_log_flush, r);
    if (!r->log_flush)
        return error_memory(err);
    int rc = store_log_open(r->store, continues, running_log_wake, r, &r->log, err);
    if (rc < 0)
        return rc;
    o->store = store_log_store(r->log);
    o->hold = store_log_hold(r->log);
    return 0;
}

void droste_log_kept(droste_running *r)
{
    if (!r->lost)
        store_log_kept(r->log);
}

void droste_log_lost(droste_running *r, const droste_error *why)
{
    struct error lost = { 0 };
    error_set(&lost, ERROR_LOST, "%s", why->text);
    r->lost = true;
    api_suspend(r, &lost);
}

void droste_suspend(droste_running *r)
{
    struct error why = { 0 };
    error_set(&why, ERROR_CANCELLED, "the run was suspended");
    api_suspend(r, &why);
}
