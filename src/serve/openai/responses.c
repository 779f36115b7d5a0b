/* serve/openai/responses.c: POST /v1/responses: the events of a stream, and the object. */
#include "serve/openai/functions.h"
#include "serve/openai/responses.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/json/fields.h"
#include "base/text.h"

/* Of what a cell has printed. */
enum { RESPONSE_OUTPUT_MAX = 64 << 10 };

/* ---- the object ---- */

/* OpenAI's word for the status of a run. */
static const char *response_status(const droste_record_run *run)
{
    static const struct {
        const char *ours, *theirs;
    } words[] = { { "running", "in_progress" }, { "answered", "completed" },
        { "exhausted", "incomplete" }, { "budget", "incomplete" }, { "timeout", "incomplete" },
        { "cancelled", "cancelled" } };
    for (size_t i = 0; i < array_length(words); i++)
        if (strcmp(words[i].ours, run->status) == 0)
            return words[i].theirs;
    return "failed";
}

/* Members that the client may set, as it set them, or what they are otherwise. */
static void response_put_asked(struct buf *out, struct json_object *asked)
{
    static const struct {
        const char *name, *otherwise;
    } members[] = { { "model", "\"\"" }, { "instructions", "null" },
        { "previous_response_id", "null" }, { "background", "false" },
        { "max_output_tokens", "null" }, { "max_tool_calls", "null" }, { "metadata", "{}" },
        { "parallel_tool_calls", "true" }, { "prompt_cache_key", "null" },
        { "safety_identifier", "null" }, { "reasoning", "{\"effort\": null, \"summary\": null}" },
        { "store", "true" }, { "temperature", "1.0" }, { "top_p", "1.0" },
        { "presence_penalty", "0.0" }, { "frequency_penalty", "0.0" }, { "top_logprobs", "0" },
        { "service_tier", "\"default\"" }, { "text", "{\"format\": {\"type\": \"text\"}}" },
        { "tool_choice", "\"auto\"" }, { "tools", "[]" }, { "truncation", "\"disabled\"" } };
    for (size_t i = 0; i < array_length(members); i++) {
        struct json_object *value = NULL;
        json_object_object_get_ex(asked, members[i].name, &value);
        if (strcmp(members[i].name, "tools") == 0) {
            functions_put_tools(out, value);
            continue;
        }
        field_json(out, members[i].name, value ? json_text(value, NULL) : members[i].otherwise);
    }
}

static void response_put_usage(
    struct buf *out, const struct response *p, const droste_record_run *run)
{
    if (!run || run->ended_ms == 0 || p->until > 0) {
        field_null(out, "usage");
        return;
    }
    field_open(out, "usage", '{');
    field_int(out, "input_tokens", run->input_tokens);
    field_json(out, "input_tokens_details", "{\"cached_tokens\": 0, \"cache_write_tokens\": 0}");
    field_int(out, "output_tokens", run->output_tokens);
    field_json(out, "output_tokens_details", "{\"reasoning_tokens\": 0}");
    field_int(out, "total_tokens", run->input_tokens + run->output_tokens);
    field_close(out, '}');
}

static void response_put_end(struct buf *out, const droste_record_run *run, const char *status)
{
    bool failed = strcmp(status, "failed") == 0;
    if (run && run->ended_ms > 0 && strcmp(status, "completed") == 0)
        field_int(out, "completed_at", run->ended_ms / 1000);
    else
        field_null(out, "completed_at");
    field_json(out, "incomplete_details",
        strcmp(status, "incomplete") == 0 ? "{\"reason\": \"max_output_tokens\"}" : "null");
    if (!failed) {
        field_null(out, "error");
        return;
    }
    field_open(out, "error", '{');
    field_string(out, "code", "server_error");
    field_string(out, "message", run && run->error ? run->error : "the run was interrupted");
    field_close(out, '}');
}

void response_put(
    struct buf *out, const struct response *p, const droste_record_run *run, const char *status)
{
    char id[RESPONSE_ID_SIZE];
    response_id(id, p->run, p->from);
    status = status ? status : p->until > 0 ? "completed" : response_status(run);
    buf_putc(out, '{');
    field_string(out, "id", id);
    field_string(out, "object", "response");
    field_int(out, "created_at", run ? run->started_ms / 1000 : p->answer->created_ms / 1000);
    field_string(out, "status", status);
    response_put_end(out, p->until > 0 ? NULL : run, status);
    response_put_asked(out, p->asked);
    field_open(out, "output", '[');
    buf_append(out, buf_text(&p->items), p->items.len);
    field_close(out, ']');
    response_put_usage(out, p, run);
    field_close(out, '}');
}

/* ---- events ---- */

/* Begins an event's data; the caller adds members, and response_push ends it. */
static void response_event(struct response *p, struct buf *out, const char *type)
{
    buf_clear(out);
    buf_putc(out, '{');
    field_string(out, "type", type);
    field_int(out, "sequence_number", p->sequence++);
}

static void response_push(struct response *p, struct buf *out, const char *type)
{
    field_close(out, '}');
    if (p->answer)
        openai_push(p->answer, type, buf_text(out), out->len);
}

/* An event about the item that is being added. */
static void response_push_about(struct response *p, const char *type, const char *id,
    const char *index, const char *member, const char *text, size_t len)
{
    cleanup_buf struct buf out = { 0 };
    response_event(p, &out, type);
    field_string(&out, "item_id", id);
    field_int(&out, "output_index", p->count);
    if (index)
        field_int(&out, index, 0);
    if (member)
        field_text(&out, member, text, len);
    if (strncmp(type, "response.output_text.", 21) == 0)
        field_json(&out, "logprobs", "[]");
    response_push(p, &out, type);
}

static void response_push_part(
    struct response *p, const char *type, const char *id, const char *index, const char *part)
{
    cleanup_buf struct buf out = { 0 };
    response_event(p, &out, type);
    field_string(&out, "item_id", id);
    field_int(&out, "output_index", p->count);
    field_int(&out, index, 0);
    field_json(&out, "part", part);
    response_push(p, &out, type);
}

static void response_push_item(struct response *p, const char *type, const char *item)
{
    cleanup_buf struct buf out = { 0 };
    response_event(p, &out, type);
    field_int(&out, "output_index", p->count);
    field_json(&out, "item", item);
    response_push(p, &out, type);
}

/* The item is complete. */
static void response_add(struct response *p, const char *item)
{
    response_push_item(p, "response.output_item.done", item);
    buf_puts(&p->items, p->count > 0 ? ", " : "");
    buf_puts(&p->items, item);
    p->count++;
}

static void response_push_whole(
    struct response *p, const char *type, const droste_record_run *run, const char *status)
{
    cleanup_buf struct buf out = { 0 }, object = { 0 };
    response_put(&object, p, run, status);
    response_event(p, &out, type);
    field_json(&out, "response", buf_text(&object));
    response_push(p, &out, type);
}

/* ---- items ---- */

static void response_put_text(
    struct buf *out, const char *type, const char *text, size_t len, const char *annotations)
{
    buf_clear(out);
    buf_putc(out, '{');
    field_string(out, "type", type);
    field_text(out, "text", text, len);
    if (strcmp(type, "output_text") == 0) {
        field_open(out, "annotations", '[');
        buf_puts(out, annotations);
        field_close(out, ']');
        field_json(out, "logprobs", "[]");
    }
    field_close(out, '}');
}

/* An item with one text in a list. */
static void response_put_item(struct buf *out, const char *id, const char *type, const char *status,
    const char *list, const char *text)
{
    buf_clear(out);
    buf_putc(out, '{');
    field_string(out, "id", id);
    field_string(out, "type", type);
    field_string(out, "status", status);
    if (strcmp(type, "message") == 0)
        field_string(out, "role", "assistant");
    field_open(out, list, '[');
    buf_puts(out, text);
    field_close(out, ']');
    field_close(out, '}');
}

static void response_add_call(struct response *p, const droste_record_call *call)
{
    const char *text = call->reply.data;
    size_t len = call->reply.len;
    char id[SERVE_ID_SIZE + 32];
    cleanup_buf struct buf part = { 0 }, item = { 0 };
    if (strcmp(call->kind, "root") != 0 || !text || len == 0)
        return;
    snprintf(id, sizeof id, "rs_%s_%lld", p->run, (long long)call->id);
    response_put_item(&item, id, "reasoning", "in_progress", "summary", "");
    response_push_item(p, "response.output_item.added", buf_text(&item));
    response_put_text(&part, "summary_text", "", 0, "");
    response_push_part(
        p, "response.reasoning_summary_part.added", id, "summary_index", buf_text(&part));
    response_push_about(
        p, "response.reasoning_summary_text.delta", id, "summary_index", "delta", text, len);
    response_push_about(
        p, "response.reasoning_summary_text.done", id, "summary_index", "text", text, len);
    response_put_text(&part, "summary_text", text, len, "");
    response_push_part(
        p, "response.reasoning_summary_part.done", id, "summary_index", buf_text(&part));
    response_put_item(&item, id, "reasoning", "completed", "summary", buf_text(&part));
    response_add(p, buf_text(&item));
}

static bool response_includes_outputs(const struct response *p)
{
    struct json_object *include = json_get_typed(p->asked, "include", json_type_array);
    for (size_t i = 0; i < json_length(include); i++) {
        struct json_object *one = json_object_array_get_idx(include, i);
        if (json_object_is_type(one, json_type_string) &&
            strcmp(json_object_get_string(one), "code_interpreter_call.outputs") == 0)
            return true;
    }
    return false;
}

static void response_put_cell(struct buf *out, const struct response *p, const char *id,
    const droste_record_cell *cell, bool is_done)
{
    cleanup_buf struct buf logs = { 0 };
    const droste_value *streams[] = { &cell->standard_output, &cell->standard_error };
    for (size_t i = 0; i < array_length(streams); i++)
        if (streams[i]->data)
            text_append_utf8(&logs, streams[i]->data,
                text_utf8_floor(streams[i]->data, streams[i]->len,
                    streams[i]->len < RESPONSE_OUTPUT_MAX ? streams[i]->len : RESPONSE_OUTPUT_MAX));
    buf_clear(out);
    buf_putc(out, '{');
    field_string(out, "id", id);
    field_string(out, "type", "code_interpreter_call");
    field_string(out, "status",
        !is_done                                                                    ? "in_progress"
        : strcmp(cell->status, "ok") == 0 || strcmp(cell->status, "submitted") == 0 ? "completed"
                                                                                    : "failed");
    field_text(out, "code", cell->code.data ? cell->code.data : "", is_done ? cell->code.len : 0);
    field_string(out, "container_id", p->container);
    if (is_done && response_includes_outputs(p)) {
        field_open(out, "outputs", '[');
        if (logs.len > 0) {
            field_open(out, NULL, '{');
            field_string(out, "type", "logs");
            field_text(out, "logs", buf_text(&logs), logs.len);
            field_close(out, '}');
        }
        field_close(out, ']');
    } else {
        field_null(out, "outputs");
    }
    field_close(out, '}');
}

static void response_add_cell(struct response *p, const droste_record_cell *cell)
{
    char id[SERVE_ID_SIZE + 32];
    const char *code = cell->code.data ? cell->code.data : "";
    cleanup_buf struct buf item = { 0 };
    if (!container_tool(p->asked))
        return;
    snprintf(id, sizeof id, "ci_%s_%lld", p->run, (long long)cell->id);
    response_put_cell(&item, p, id, cell, false);
    response_push_item(p, "response.output_item.added", buf_text(&item));
    response_push_about(p, "response.code_interpreter_call.in_progress", id, NULL, NULL, NULL, 0);
    response_push_about(
        p, "response.code_interpreter_call_code.delta", id, NULL, "delta", code, cell->code.len);
    response_push_about(
        p, "response.code_interpreter_call_code.done", id, NULL, "code", code, cell->code.len);
    response_push_about(p, "response.code_interpreter_call.interpreting", id, NULL, NULL, NULL, 0);
    response_push_about(p, "response.code_interpreter_call.completed", id, NULL, NULL, NULL, 0);
    response_put_cell(&item, p, id, cell, true);
    response_add(p, buf_text(&item));
}

static void response_push_annotations(struct response *p, const char *id, const char *list)
{
    cleanup_free char *text = text_printf("[%s]", list);
    cleanup_json struct json_object *all = NULL;
    if (!p->answer || !text || json_parse(text, strlen(text), &json_limits_large, &all, NULL) < 0)
        return;
    for (size_t i = 0; i < json_length(all); i++) {
        cleanup_buf struct buf out = { 0 };
        response_event(p, &out, "response.output_text.annotation.added");
        field_string(&out, "item_id", id);
        field_int(&out, "output_index", p->count);
        field_int(&out, "content_index", 0);
        field_int(&out, "annotation_index", (int64_t)i);
        field_json(&out, "annotation", json_text(json_object_array_get_idx(all, i), NULL));
        response_push(p, &out, "response.output_text.annotation.added");
    }
}

void response_add_answer(struct response *p, const droste_record_run *run)
{
    char id[SERVE_ID_SIZE + 32];
    cleanup_buf struct buf text = { 0 }, part = { 0 }, item = { 0 }, files = { 0 };
    if (strcmp(run->status, "answered") != 0)
        return;
    openai_answer_text(&text, run);
    snprintf(id, sizeof id, "msg_%s", p->run);
    response_put_item(&item, id, "message", "in_progress", "content", "");
    response_push_item(p, "response.output_item.added", buf_text(&item));
    if (p->container[0])
        container_cite(&files, p->r, p->container, buf_text(&text), text.len);
    response_put_text(&part, "output_text", "", 0, "");
    response_push_part(p, "response.content_part.added", id, "content_index", buf_text(&part));
    response_push_about(
        p, "response.output_text.delta", id, "content_index", "delta", buf_text(&text), text.len);
    response_push_about(
        p, "response.output_text.done", id, "content_index", "text", buf_text(&text), text.len);
    response_push_annotations(p, id, buf_text(&files));
    response_put_text(&part, "output_text", buf_text(&text), text.len, buf_text(&files));
    response_push_part(p, "response.content_part.done", id, "content_index", buf_text(&part));
    response_put_item(&item, id, "message", "completed", "content", buf_text(&part));
    response_add(p, buf_text(&item));
}

static int response_on_call(void *arg, const droste_record_call *call, droste_error *err)
{
    if (call->ended_ms > 0)
        response_add_call(arg, call);
    return 0;
}

static int response_on_cell(void *arg, const droste_record_cell *cell, droste_error *err)
{
    if (cell->ended_ms > 0)
        response_add_cell(arg, cell);
    return 0;
}

struct response_steps {
    struct response *p;
    int64_t at;
};

/* Steps after `until` belong to the response that follows. */
static int response_on_step_call(void *arg, const droste_record_call *call, droste_error *err)
{
    struct response_steps *steps = arg;
    bool is_later = steps->p->until > 0 && steps->at > steps->p->until;
    return is_later ? -1 : response_on_call(steps->p, call, err);
}

static int response_on_step_cell(void *arg, const droste_record_cell *cell, droste_error *err)
{
    struct response_steps *steps = arg;
    bool is_later = steps->p->until > 0 && steps->at > steps->p->until;
    return is_later ? -1 : response_on_cell(steps->p, cell, err);
}

void response_open(
    struct response *p, struct request *r, struct json_object *asked, const char *run)
{
    p->r = r;
    p->asked = asked;
    snprintf(p->run, sizeof p->run, "%s", run);
    if (container_tool(asked))
        container_of(p->container, r, asked, run);
}

int64_t response_add_steps(struct response *p, droste_record *record)
{
    static const droste_record_visitor visitor = { .call = response_on_step_call,
        .cell = response_on_step_cell };
    struct response_steps steps = { p, p->from };
    droste_record_follow(record, p->run, &steps.at, 0, &visitor, &steps, NULL);
    return steps.at;
}

/* The beginning of an item; a function's has its arguments in events of their own. */
static void response_push_waiting(struct response *p, struct json_object *item)
{
    struct json_object *arguments = json_get_typed(item, "arguments", json_type_string);
    const char *text = json_object_get_string(arguments), *id = json_get_string(item, "id", "");
    size_t len = (size_t)json_object_get_string_len(arguments);
    cleanup_json struct json_object *begun = NULL;
    if (strcmp(json_get_string(item, "type", ""), "function_call") != 0) {
        response_push_item(p, "response.output_item.added", json_text(item, NULL));
        return;
    }
    if (json_object_deep_copy(item, &begun, NULL) < 0 || !json_put_text(begun, "arguments", "") ||
        !json_put_text(begun, "status", "in_progress"))
        return;
    response_push_item(p, "response.output_item.added", json_text(begun, NULL));
    response_push_about(p, "response.function_call_arguments.delta", id, NULL, "delta", text, len);
    response_push_about(
        p, "response.function_call_arguments.done", id, NULL, "arguments", text, len);
}

void response_add_waiting(struct response *p, struct json_object *items)
{
    for (size_t i = 0; i < json_length(items); i++) {
        const char *item = json_text(json_object_array_get_idx(items, i), NULL);
        response_push_waiting(p, json_object_array_get_idx(items, i));
        response_add(p, item);
    }
}

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
    return openai_put_schema(r, format, format, words) && functions_put_settings(r, words) &&
           container_put_settings(r, run, words);
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
    if (!openai_model_of(r, &model))
        return;
    if (!model.is_run)
        openai_refuse(r,
            &(struct openai_error){ .status = 400, .code = "unsupported_model", .param = "model" },
            "responses are of models that answer with a run (droste/NAME); for others this server "
            "has chat completions");
    else if (!responses_check(r) || !container_check(r))
        return;
    else if (response_has_approvals(r->json))
        response_take_approvals(r);
    else if (functions_have_results(r->json))
        functions_take_results(r);
    else if (!container_prepare(r, responses_answer))
        responses_answer(r);
}
