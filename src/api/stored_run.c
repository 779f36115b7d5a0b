/* api/stored_run.c: see stored_run.h. */
#include "api/stored_run.h"

#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "api/result.h"
#include "api/settings.h"
#include "base/json/json.h"

void stored_run_free(struct stored_run *stored_run)
{
    buf_free(&stored_run->question);
    buf_free(&stored_run->settings);
    buf_free(&stored_run->tool_facts);
    buf_free(&stored_run->context_data);
    json_object_put(stored_run->context);
}

static int take_stored_run(void *arg, const droste_record_run *run, struct error *err)
{
    struct stored_run *stored_run = arg;
    struct buf context = { 0 };
    if (run->parent)
        return error_set(err, ERROR_ARGUMENT, "run '%.64s' is part of run '%.64s': resume that one",
            run->id, run->parent);
    if (run->depth > 0)
        return error_set(err, ERROR_UNSUPPORTED,
            "run '%.64s' was started by the code of a session (rlm_query), which is gone: it "
            "cannot be resumed",
            run->id);
    if (!run->settings.hash)
        return error_set(err, ERROR_UNSUPPORTED,
            "run '%.64s' was recorded by a Droste (%.20s) that did not keep its settings: it "
            "cannot be resumed",
            run->id, run->version);
    snprintf(stored_run->previous, sizeof stored_run->previous, "%s",
        run->previous ? run->previous : "");
    snprintf(stored_run->status, sizeof stored_run->status, "%s", run->status);
    int rc = store_value_read(stored_run->store, &run->question, SIZE_MAX, store_append_piece,
        &stored_run->question, err);
    if (rc == 0)
        rc = store_value_read(stored_run->store, &run->tools, SIZE_MAX, store_append_piece,
            &stored_run->tool_facts, err);
    if (rc == 0)
        rc = store_value_read(stored_run->store, &run->settings, SIZE_MAX, store_append_piece,
            &stored_run->settings, err);
    if (rc == 0)
        rc = store_value_read(stored_run->store, &run->context_data, SIZE_MAX, store_append_piece,
            &stored_run->context_data, err);
    if (rc == 0)
        rc = store_value_read(
            stored_run->store, &run->context, SIZE_MAX, store_append_piece, &context, err);
    if (rc == 0 && context.len > 0)
        rc = json_parse(
            buf_text(&context), context.len, &json_limits_large, &stored_run->context, err);
    buf_free(&context);
    return rc;
}

int stored_run_find(droste *d, const char *run, struct stored_run *stored_run, struct error *err)
{
    static const struct store_visitor visitor = { .run = take_stored_run, .lazy = true };
    int rc = api_store(d, &stored_run->store, err);
    if (rc == 0 && !stored_run->store)
        rc = error_set(err, ERROR_CONFIG, "the record is turned off (database = none)");
    if (rc == 0)
        rc = store_run_find(stored_run->store, run, stored_run->id, err);
    return rc < 0 ? rc
                  : store_run_visit(stored_run->store, stored_run->id, &visitor, stored_run, err);
}

int stored_run_settings(
    const droste *d, const struct stored_run *stored_run, struct settings *out, struct error *err)
{
    int rc = settings_init(out, err);
    if (rc == 0)
        rc = settings_restore(out, buf_text(&stored_run->settings), stored_run->settings.len, err);
    return rc < 0 ? rc : settings_take_secrets(out, &d->settings, err);
}

/* ---- one that has ended ---- */

struct ended {
    struct store *store;
    struct budget budget;
    struct rlm_result result;
    struct buf answer;
    bool found;
};

enum rlm_status stored_run_status(const char *name)
{
    for (int s = RLM_ANSWERED; s <= RLM_INTERRUPTED; s++)
        if (strcmp(name, rlm_status_name((enum rlm_status)s)) == 0)
            return (enum rlm_status)s;
    return RLM_ERROR;
}

static int stored_run_take_end(void *arg, const droste_record_run *run, struct error *err)
{
    struct ended *e = arg;
    struct rlm_result *r = &e->result;
    const char *isolation = run->isolation;
    if (run->parent)
        return 0;
    r->status = stored_run_status(run->status);
    r->seconds = run->seconds;
    r->iterations = (unsigned)run->iterations;
    snprintf(r->run, sizeof r->run, "%s", run->id);
    if (isolation && isolation_parse(isolation, &r->isolation, NULL) < 0)
        r->isolation = ISOLATION_AUTO;
    if (run->error)
        error_set(&r->error, error_code_named(run->code, ERROR_MODEL), "%s", run->error);
    return store_value_read(e->store, &run->answer, SIZE_MAX, store_append_piece, &e->answer, err);
}

static int stored_run_take_call(void *arg, const droste_record_call *call, struct error *err)
{
    struct ended *e = arg;
    struct lm_reply reply = {
        .usage = { call->input_tokens, call->output_tokens, call->estimated },
        .cost = call->cost,
        .attempts = (unsigned)call->attempts,
    };
    if (call->ended_ms == 0 || strcmp(call->kind, "tool") == 0)
        return 0;
    return budget_recall(&e->budget, call->model, (unsigned)call->depth, NULL, &reply, err);
}

int stored_run_result(droste *d, const char *run, droste_result **out, struct error *err)
{
    static const struct store_visitor visitor = {
        .end = stored_run_take_end, .call = stored_run_take_call, .children = true, .lazy = true
    };
    static const struct budget_limits none = { 0 };
    struct ended e = { 0 };
    budget_init(&e.budget, &none);
    int rc = api_store(d, &e.store, err);
    if (rc == 0)
        rc = store_run_visit(e.store, run, &visitor, &e, err);
    e.result.answer = e.answer.len > 0 ? e.answer.data : NULL;
    e.result.budget = &e.budget;
    *out = rc == 0 ? result_of_run(&e.result) : NULL;
    if (rc == 0 && !*out)
        rc = error_memory(err);
    budget_free(&e.budget);
    buf_free(&e.answer);
    return rc;
}

/* The description has the message of an error alone. */
static enum error_code stored_run_code(enum rlm_status status)
{
    return status == RLM_CANCELLED ? ERROR_CANCELLED
           : status == RLM_TIMEOUT ? ERROR_TIMEOUT
                                   : ERROR_MODEL;
}

int stored_run_read(struct json_object *run, droste_result **out, struct error *err)
{
    const char *status = json_get_string(run, "status", NULL);
    const char *why = json_get_string(run, "error", NULL);
    struct json_object *used = json_get_typed(run, "usage", json_type_object), *cost = NULL;
    struct json_object *answer = NULL;
    struct budget budget = { .spent = { .calls = json_get_int(used, "calls", 0),
                                 .attempts = json_get_int(used, "calls", 0),
                                 .input_tokens = json_get_int(used, "input_tokens", 0),
                                 .output_tokens = json_get_int(used, "output_tokens", 0),
                                 .cost = json_get_double(used, "cost", 0) } };
    if (!status)
        return error_set(err, ERROR_ARGUMENT, "it is not the description of a run");
    json_object_object_get_ex(used, "cost", &cost);
    json_object_object_get_ex(run, "answer", &answer);
    budget.spent.unpriced = cost ? 0 : budget.spent.calls;
    struct rlm_result result = { .status = stored_run_status(status),
        .answer = answer ? (char *)(uintptr_t)json_text(answer, NULL) : NULL,
        .budget = &budget,
        .seconds = json_get_double(used, "seconds", 0),
        .iterations = (unsigned)json_get_int(run, "iterations", 0) };
    snprintf(result.run, sizeof result.run, "%s", json_get_string(run, "run", ""));
    if (why)
        error_set(&result.error, stored_run_code(result.status), "%s", why);
    *out = result_of_run(&result);
    return *out ? 0 : error_memory(err);
}
