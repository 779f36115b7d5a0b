/* mcp/run.c: the tool `ask`: runs over contexts, with progress and cancellation. */
#include "mcp/run.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/list.h"
#include "base/text.h"
#include "mcp/session.h"

/* Runs that are over and stay in the list of resources. */
enum { RUNS_KEPT = 100, CONTEXTS_MAX = 64 };

static void run_free(struct mcp_run *run)
{
    for (struct mcp_run **at = &run->mcp->runs; *at; at = &(*at)->next)
        if (*at == run) {
            *at = run->next;
            break;
        }
    free(run->question);
    free(run);
}

static void run_on_cancel(struct mcp_call *c)
{
    struct mcp_run *run = c->state;
    run->call = NULL;
    if (run->running)
        droste_cancel(run->running);
    mcp_call_drop(c);
}

static void run_on_event(void *arg, const droste_event *e)
{
    struct mcp_run *run = arg;
    if (strcmp(e->kind, "started") == 0 && e->len < sizeof run->id) {
        memcpy(run->id, e->text, e->len);
        run->id[e->len] = '\0';
    }
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
    run->running = NULL;
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

/* The paths that the argument "contexts" names, as the library takes them. */
static int run_read_contexts(struct mcp_call *c, struct list *out)
{
    struct json_object *array = json_get_typed(c->arguments, "contexts", json_type_array);
    if (json_length(array) > CONTEXTS_MAX) {
        mcp_tool_fail(c, "there are more than %d contexts", CONTEXTS_MAX);
        return -1;
    }
    for (size_t i = 0; i < json_length(array); i++) {
        char *path = mcp_path(c, json_object_get_string(json_object_array_get_idx(array, i)));
        if (!path)
            return -1;
        if (list_take(out, path, NULL) < 0) {
            mcp_call_fail(c, RPC_INTERNAL, "out of memory");
            return -1;
        }
    }
    if (list_add_end(out, NULL) == 0)
        return 0;
    mcp_call_fail(c, RPC_INTERNAL, "out of memory");
    return -1;
}

void mcp_tool_ask(struct mcp_call *c)
{
    struct mcp *mcp = c->peer->mcp;
    struct list paths = { 0 };
    droste_error err;
    if (run_read_contexts(c, &paths) < 0) {
        list_clear(&paths);
        return;
    }
    struct mcp_run *run = calloc(1, sizeof *run);
    const char *question = json_get_string(c->arguments, "question", "");
    if (!run || !(run->question = strdup(question))) {
        free(run);
        list_clear(&paths);
        mcp_call_fail(c, RPC_INTERNAL, "out of memory");
        return;
    }
    run->mcp = mcp;
    run->call = c;
    run->next = mcp->runs;
    mcp->runs = run;
    c->state = run;
    c->cancel = run_on_cancel;
    droste_request request = { .question = question,
        .context = paths.items[0],
        .contexts = (const char *const *)paths.items + (paths.items[0] ? 1 : 0),
        .event = run_on_event,
        .done = run_on_done,
        .arg = run };
    int rc = droste_start(mcp->d, &request, &run->running, &err);
    list_clear(&paths);
    if (rc < 0) {
        run_free(run);
        c->state = NULL;
        c->cancel = NULL;
        mcp_tool_fail_error(c, &err);
    }
}

void mcp_runs_free(struct mcp *mcp)
{
    for (struct mcp_run *run = mcp->runs; run; run = run->next)
        if (run->running)
            droste_cancel(run->running);
    while (mcp->runs) {
        bool active = false;
        for (struct mcp_run *run = mcp->runs; run && !active; run = run->next)
            active = run->running != NULL;
        if (!active || droste_turn(mcp->d, 1000, NULL) < 0)
            break;
    }
    while (mcp->runs)
        run_free(mcp->runs);
}
