/* serve/openai/response.c: a run as a response: the object, its items, the events of a stream. */
#include "serve/openai/response.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/json/fields.h"
#include "base/text.h"
#include "serve/openai/functions.h"

/* Of what a cell has printed. */
enum { RESPONSE_OUTPUT_MAX = 64 << 10 };

/* ---- the object ---- */

const char *response_status(const droste_record_run *run)
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

void response_event(struct response *p, struct buf *out, const char *type)
{
    buf_clear(out);
    buf_putc(out, '{');
    field_string(out, "type", type);
    field_int(out, "sequence_number", p->sequence++);
}

void response_push(struct response *p, struct buf *out, const char *type)
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

void response_push_whole(
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

void response_add_call(struct response *p, const droste_record_call *call)
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

void response_add_cell(struct response *p, const droste_record_cell *cell)
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
