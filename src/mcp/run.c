/* mcp/run.c: the tool `ask`: runs over contexts, with progress and cancellation. */
#include "mcp/run.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/os/random.h"
#include "base/text.h"
#include "mcp/session.h"

/* Runs that are over and stay in the list of resources. */
enum { RUNS_KEPT = 100, CONTEXTS_MAX = 64 };

static void contexts_free(char **paths)
{
    for (char **at = paths; at && *at; at++)
        free(*at);
    free(paths);
}

static void run_free(struct mcp_run *run)
{
    for (struct mcp_run **at = &run->mcp->runs; *at; at = &(*at)->next)
        if (*at == run) {
            *at = run->next;
            break;
        }
    if (run->place.host)
        run->mcp->server->host->leave(&run->place);
    contexts_free(run->contexts);
    free(run->question);
    free(run);
}

static void run_on_cancel(struct mcp_call *c)
{
    struct mcp_run *run = c->state;
    run->call = NULL;
    if (run->running)
        droste_cancel(run->running);
    else
        run_free(run); /* it waited for room */
    mcp_call_drop(c);
}

static void run_notify(struct mcp_run *run)
{
    char uri[sizeof RUN_URI + DROSTE_RUN_ID_SIZE];
    snprintf(uri, sizeof uri, RUN_URI "%s", run->id);
    mcp_notify_updated(run->mcp, uri);
}

static void run_log_retry(struct mcp_call *c, const droste_event *e)
{
    cleanup_free char *text = text_printf("attempt %u of %u in %.0f s: %.*s", e->attempt,
        e->attempts, e->seconds, (int)e->len, e->text);
    if (text)
        mcp_call_log(c, "warning", "ask", json_object_new_string(text));
}

static void run_on_event(void *arg, const droste_event *e)
{
    struct mcp_run *run = arg;
    if (strcmp(e->kind, "started") == 0 && e->len < sizeof run->id) {
        memcpy(run->id, e->text, e->len);
        run->id[e->len] = '\0';
        mcp_notify_list(run->mcp, "resources");
    }
    if (strcmp(e->kind, "result") == 0)
        run_notify(run);
    if (run->call && strcmp(e->kind, "retry") == 0)
        run_log_retry(run->call, e);
    if (!run->call || !run->call->progress_token)
        return;
    cleanup_buf struct buf text = { 0 };
    if (strcmp(e->kind, "turn") == 0)
        buf_printf(&text, "turn %u of %u", e->turn, e->turns);
    else if (strcmp(e->kind, "result") == 0)
        buf_printf(&text, "turn %u: the cell ended with %s; %lld calls, %lld tokens", e->turn,
            e->status ? e->status : "?", (long long)e->calls,
            (long long)(e->input_tokens + e->output_tokens));
    else if (strcmp(e->kind, "retry") == 0)
        buf_printf(&text, "attempt %u of %u in %.0f s: %.*s", e->attempt, e->attempts, e->seconds,
            (int)e->len, e->text);
    if (text.len > 0 && !buf_failed(&text))
        mcp_call_progress(run->call, text.data, text.len);
}

/* The answer as text: a string as it is, another value as JSON. */
static void run_add_answer(struct json_object *result, struct json_object *answer)
{
    size_t len = 0;
    const char *text =
        json_object_is_type(answer, json_type_string) ? json_object_get_string(answer) : NULL;
    if (text)
        len = (size_t)json_object_get_string_len(answer);
    else
        text = json_text(answer, &len);
    if (text)
        mcp_result_add_text(result, text, len);
}

static void run_answer(struct mcp_call *c, droste_result *r)
{
    cleanup_json struct json_object *all = NULL;
    struct json_object *answer = NULL, *error = NULL, *found;
    size_t len = 0;
    const char *json = r ? droste_result_json(r, &len) : NULL;
    struct json_object *result = mcp_result(), *data = json_object_new_object();
    if (!json || !result || !data || json_parse(json, len, &json_limits_large, &all, NULL) < 0) {
        json_object_put(result);
        json_object_put(data);
        mcp_call_fail(c, RPC_INTERNAL, "out of memory");
        return;
    }
    static const char *const names[] = { "run", "status", "answer", "iterations", "usage",
        "error" };
    for (size_t i = 0; i < array_length(names); i++) {
        json_object_object_get_ex(all, names[i], &found);
        json_put(data, names[i], found ? json_object_get(found) : NULL);
    }
    json_object_object_get_ex(all, "answer", &answer);
    json_object_object_get_ex(all, "error", &error);
    if (answer)
        run_add_answer(result, answer);
    if (error)
        mcp_result_add_text(result, json_get_string(error, "message", "the run failed"),
            strlen(json_get_string(error, "message", "the run failed")));
    mcp_result_set_data(result, data);
    json_put(result, "isError", json_object_new_boolean(!answer));
    mcp_call_answer(c, result);
}

static void runs_trim(struct mcp *mcp)
{
    size_t n = 0;
    struct mcp_run *last = NULL;
    for (struct mcp_run *run = mcp->runs; run; run = run->next) {
        n++;
        last = run->running ? last : run;
    }
    if (n > RUNS_KEPT && last)
        run_free(last);
}

static void run_on_done(void *arg, droste_result *result)
{
    struct mcp_run *run = arg;
    struct mcp_call *c = run->call;
    run->call = NULL;
    const struct mcp_host *host = run->mcp->server->host;
    run->running = NULL;
    if (host->ran && run->id[0])
        host->ran(run->mcp->user, run->id);
    if (run->place.host)
        host->leave(&run->place);
    if (run->id[0])
        run_notify(run);
    if (c) {
        c->state = NULL;
        c->cancel = NULL;
        run_answer(c, result);
    }
    droste_result_free(result);
    if (!run->id[0])
        run_free(run);
    else
        runs_trim(run->mcp);
}

/* The paths that the argument "contexts" names. NULL: the call was answered. */
static char **run_read_contexts(struct mcp_call *c)
{
    struct json_object *array = json_get_typed(c->arguments, "contexts", json_type_array);
    char **paths = calloc(json_length(array) + 1, sizeof *paths);
    if (!paths || json_length(array) > CONTEXTS_MAX) {
        free(paths);
        mcp_tool_fail(c, "there are more than %d contexts", CONTEXTS_MAX);
        return NULL;
    }
    for (size_t i = 0; i < json_length(array); i++)
        if (!(paths[i] =
                    mcp_path(c, json_object_get_string(json_object_array_get_idx(array, i))))) {
            contexts_free(paths);
            return NULL;
        }
    return paths;
}

/* The settings of the host, and the model. NULL without memory. */
static const char **run_settings(const struct mcp_run *run, char model[40])
{
    const struct mcp_server *server = run->mcp->server;
    cleanup_free const char **given = server->host->settings(&run->place);
    size_t n = 0;
    while (given && given[n])
        n++;
    const char **all = given ? calloc(n + 3, sizeof *all) : NULL;
    if (!all)
        return NULL;
    memcpy(all, given, n * sizeof *all);
    if (run->samples) {
        snprintf(model, 40, "callback:mcp-%016llx", (unsigned long long)run->number);
        all[n] = "model";
        all[n + 1] = model;
    }
    return all;
}

static void run_fail(struct mcp_run *run, const droste_error *err)
{
    struct mcp_call *c = run->call;
    run_free(run);
    c->state = NULL;
    c->cancel = NULL;
    mcp_tool_fail_error(c, err);
}

static void run_on_place(struct mcp_place *place, const droste_error *why)
{
    struct mcp_run *run = (struct mcp_run *)((char *)place - offsetof(struct mcp_run, place));
    const struct mcp_host *host = run->mcp->server->host;
    char model[40], id[DROSTE_RUN_ID_SIZE] = "";
    droste_error err = { .code = DROSTE_ERROR_MEMORY, .text = "out of memory" };
    if (why) {
        run_fail(run, why);
        return;
    }
    cleanup_free const char **settings = run_settings(run, model);
    bool ok = settings && (!host->make_run_id || host->make_run_id(run->mcp->user, id) == 0);
    droste_request request = { .question = run->question,
        .context = run->contexts[0],
        .contexts = (const char *const *)run->contexts + (run->contexts[0] ? 1 : 0),
        .settings = settings,
        .id = id[0] ? id : NULL,
        .account = host->account ? host->account(run->mcp->user) : NULL,
        .event = run_on_event,
        .done = run_on_done,
        .arg = run };
    if (!ok || droste_start(run->mcp->server->d, &request, &run->running, &err) < 0) {
        run->running = NULL;
        run_fail(run, &err);
        return;
    }
    if (run->place.host)
        host->settle(&run->place);
    contexts_free(steal(&run->contexts));
}

static void run_begin(struct mcp_call *c)
{
    struct mcp *mcp = c->peer->mcp;
    const char *model = droste_get(mcp->server->d, "model");
    char **contexts = run_read_contexts(c);
    if (!contexts)
        return;
    struct mcp_run *run = calloc(1, sizeof *run);
    if (!run || random_bytes(&run->number, sizeof run->number, NULL) < 0 ||
        !(run->question = strdup(json_get_string(c->arguments, "question", "")))) {
        free(run);
        contexts_free(contexts);
        mcp_call_fail(c, RPC_INTERNAL, "out of memory");
        return;
    }
    run->mcp = run->place.mcp = mcp;
    run->place.is_run = true;
    run->contexts = contexts;
    run->samples = (!model || !model[0]) && mcp_call_can(c, "sampling");
    run->call = c;
    run->next = mcp->runs;
    mcp->runs = run;
    c->state = run;
    c->cancel = run_on_cancel;
    run->place.go = run_on_place;
    mcp->server->host->ask(mcp->user, &run->place);
}

void mcp_tool_ask(struct mcp_call *c)
{
    const struct mcp *mcp = c->peer->mcp;
    if (!mcp->server->host->may_run(mcp->user))
        mcp_tool_fail(c, "this key has no scope that allows runs");
    else if (json_length(json_get_typed(c->arguments, "contexts", json_type_array)) > 0)
        mcp_roots_need(c, run_begin);
    else
        run_begin(c);
}

void mcp_runs_free(struct mcp *mcp)
{
    bool is_local = mcp->server->host == &mcp_own_host;
    for (struct mcp_run *run = mcp->runs; run; run = run->next)
        if (run->running && is_local)
            droste_cancel(run->running);
        else if (run->running)
            droste_suspend(run->running); /* it can be resumed from the record */
    while (mcp->runs) {
        bool active = false;
        for (struct mcp_run *run = mcp->runs; run && !active; run = run->next)
            active = run->running != NULL;
        if (!active || droste_turn(mcp->server->d, 1000, NULL) < 0)
            break;
    }
    while (mcp->runs)
        run_free(mcp->runs);
}
