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
    rlm_close(r->run);
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

static void run_over(droste_running *r, const struct rlm_result *result)
{
    tell_result(r, result_of_run(result));
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

static void running_end(droste_running *r)
{
    if (r->staging)
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

void droste_suspend(droste_running *r)
{
    struct error why = { 0 };
    error_set(&why, ERROR_CANCELLED, "the run was suspended");
    api_suspend(r, &why);
}
