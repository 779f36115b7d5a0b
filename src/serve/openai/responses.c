/* serve/openai/responses.c: POST /v1/responses: what may be asked, and the form of its answer. */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/json/fields.h"
#include "base/text.h"
#include "serve/openai/functions.h"
#include "serve/openai/response.h"

/* ---- the answer to a request ---- */

static void responses_free(struct openai_answer *a)
{
    struct response *p = a->state;
    buf_free(&p->items);
    free(p);
}

/* The request's response; NULL without memory. */
static struct response *responses_of(struct openai_answer *a)
{
    struct response *p = a->state;
    if (p)
        return p;
    p = calloc(1, sizeof *p);
    if (!p)
        return NULL;
    response_open(p, a->f.r, a->f.r->json, a->f.r->id);
    p->answer = a->streams ? a : NULL;
    p->from = a->from;
    a->state = p;
    a->free_state = responses_free;
    return p;
}

static void responses_begin(struct openai_answer *a)
{
    struct response *p = responses_of(a);
    if (!p) {
        request_cut(a->f.r);
        return;
    }
    response_push_whole(p, "response.created", NULL, "in_progress");
    response_push_whole(p, "response.in_progress", NULL, "in_progress");
}

static void responses_call(struct openai_answer *a, const droste_record_call *call)
{
    struct response *p = responses_of(a);
    if (p)
        response_add_call(p, call);
}

static void responses_cell(struct openai_answer *a, const droste_record_cell *cell)
{
    struct response *p = responses_of(a);
    if (p)
        response_add_cell(p, cell);
}

static int responses_on_paused(void *arg, const droste_record_run *run, droste_error *err)
{
    struct openai_answer *a = arg;
    struct response *p = a->state;
    cleanup_buf struct buf out = { 0 };
    if (a->streams) {
        response_push_whole(p, "response.completed", run, NULL);
        request_end(a->f.r);
        return 0;
    }
    response_put(&out, p, run, NULL);
    request_reply_written(a->f.r, 200, &out);
    request_header(a->f.r, "X-Droste-Run", a->f.r->id);
    return 0;
}

/* Calls wait for what the client can give: the response ends, and the run waits. */
static void responses_tick(struct openai_answer *a)
{
    struct request *r = a->f.r;
    droste_record *record = r->server->record;
    uint64_t wait_ns;
    cleanup_json struct json_object *calls =
        functions_waiting(r, r->id, r->json, response_label(r->json), &wait_ns);
    struct response *p = calls ? responses_of(a) : NULL;
    if (!p || openai_answer_read(a, record) < 0)
        return;
    cleanup_json struct json_object *items = response_items(calls, r->json, a->f.at);
    bool is_stored = json_get_bool(r->json, "store", true);
    if (!items || (is_stored && !response_pause(r, p, a->f.at, items, NULL)))
        return;
    p->until = a->f.at;
    runs_attend(r->server, r->id, clock_ns() + wait_ns);
    response_add_waiting(p, items);
    droste_record_get(record, r->id, responses_on_paused, a, NULL);
}

static void responses_end(struct openai_answer *a, const droste_record_run *run)
{
    struct request *r = a->f.r;
    struct response *p = responses_of(a);
    cleanup_buf struct buf out = { 0 };
    if (!p) {
        request_refuse_memory(r);
        return;
    }
    response_add_answer(p, run);
    const char *status = response_status(run);
    if (a->streams) {
        cleanup_free char *type =
            text_printf("response.%s", strcmp(status, "cancelled") == 0 ? "failed" : status);
        response_push_whole(p, type ? type : "response.failed", run, status);
        return;
    }
    response_put(&out, p, run, NULL);
    request_reply_written(r, 200, &out);
    request_header(r, "X-Droste-Run", r->id);
}

/* Of a run that the record does not tell the end of. */
static void responses_fail(
    struct openai_answer *a, const struct openai_error *error, const char *text)
{
    struct response *p = responses_of(a);
    cleanup_buf struct buf out = { 0 };
    if (!p)
        return;
    response_event(p, &out, "error");
    field_string(&out, "code", error->code);
    field_string(&out, "message", text);
    field_string(&out, "param", error->param);
    response_push(p, &out, "error");
}

/* ---- the request ---- */

/* Servers of MCP are the operator's: a client can name them, to approve their calls. */
static bool responses_takes_tool(struct json_object *tool)
{
    const char *type = json_get_string(tool, "type", "");
    if (strcmp(type, "mcp") == 0)
        return json_get_string(tool, "server_label", "")[0] != '\0' &&
               !json_object_object_get_ex(tool, "server_url", NULL) &&
               !json_object_object_get_ex(tool, "connector_id", NULL);
    return strcmp(type, "code_interpreter") == 0 || strcmp(type, "function") == 0;
}

static bool responses_check(struct request *r)
{
    static const char *const objects[] = { "conversation", "prompt" };
    struct json_object *tools = json_get_typed(r->json, "tools", json_type_array);
    const char *param = NULL;
    for (size_t i = 0; i < json_length(tools) && !param; i++)
        if (!responses_takes_tool(json_object_array_get_idx(tools, i)))
            param = "tools";
    for (size_t i = 0; i < array_length(objects) && !param; i++)
        if (json_object_object_get_ex(r->json, objects[i], NULL))
            param = objects[i];
    if (!param && response_label(r->json) && !json_get_bool(r->json, "store", true))
        param = "store";
    if (!param)
        return functions_check(r);
    openai_refuse(r,
        &(struct openai_error){ .status = 400, .code = "unsupported_parameter", .param = param },
        "'%s' is not supported by models that answer with a run, but for the tools "
        "function, code_interpreter and mcp, the last without server_url and stored",
        param);
    return false;
}

static bool responses_ask(struct openai_ask *a)
{
    struct json_object *input = NULL, *instructions = NULL;
    const char *previous = json_get_string(a->r->json, "previous_response_id", NULL);
    json_object_object_get_ex(a->r->json, "input", &input);
    instructions = json_get_typed(a->r->json, "instructions", json_type_string);
    if (instructions && !openai_ask_add(a, "system", instructions))
        return false;
    return (!previous || response_ask_previous(a, previous)) &&
           response_ask_input(a, input, true) && openai_ask_finish(a) &&
           functions_put_choice(a->r, &a->question);
}

static bool responses_settings(struct request *r, const char *run, struct buf *words)
{
    struct json_object *text = json_get_typed(r->json, "text", json_type_object);
    struct json_object *format = json_get_typed(text, "format", json_type_object);
    functions_put_settings(r, words);
    return openai_put_schema(r, format, format, words) && container_put_settings(r, run, words);
}

/* It is in the record, and is now kept for later; a background response is answered at once. */
static bool responses_begun(struct openai_answer *a)
{
    struct request *r = a->f.r;
    if (json_get_bool(r->json, "store", true) && !response_store(r, a->from))
        return false;
    return !json_get_bool(r->json, "background", false) || json_get_bool(r->json, "stream", false);
}

static void responses_reply_early(struct openai_answer *a)
{
    struct response *p = responses_of(a);
    cleanup_buf struct buf out = { 0 };
    if (!p)
        return;
    p->answer = a; /* for the time */
    response_put(&out, p, NULL, "in_progress");
    request_reply_written(a->f.r, 200, &out);
    request_header(a->f.r, "X-Droste-Run", a->f.r->id);
}

static bool responses_is_background(struct request *r)
{
    return json_get_bool(r->json, "background", false);
}

const struct openai_form openai_responses_form = { .ask = responses_ask,
    .settings = responses_settings,
    .from = response_from,
    .begun = responses_begun,
    .tick = responses_tick,
    .reply_early = responses_reply_early,
    .is_background = responses_is_background,
    .begin = responses_begin,
    .call = responses_call,
    .cell = responses_cell,
    .end = responses_end,
    .has_steps = true,
    .has_all_ends = true,
    .fail = responses_fail };

static void responses_answer(struct request *r)
{
    openai_answer(r);
}

void openai_handle_response_create(struct request *r)
{
    struct openai_model model;
    const char *previous = json_get_string(r->json, "previous_response_id", NULL);
    if (!openai_model_of(r, &model))
        return;
    if (!model.is_run)
        openai_refuse(r,
            &(struct openai_error){ .status = 400, .code = "unsupported_model", .param = "model" },
            "responses are of models that answer with a run (droste/NAME); for others this server "
            "has chat completions");
    else if (!responses_check(r) || (previous && response_is_elsewhere(r, previous)) ||
             !container_check(r))
        return;
    else if (response_has_approvals(r->json))
        response_take_approvals(r);
    else if (functions_have_results(r->json))
        functions_take_results(r);
    else if (!container_prepare(r, responses_answer))
        responses_answer(r);
}
