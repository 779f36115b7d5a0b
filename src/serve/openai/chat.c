/* serve/openai/chat.c: POST /v1/chat/completions: from messages to a run, and from its record to a
 * completion or its chunks. Steps of the run are told as reasoning. */
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/json/fields.h"
#include "base/text.h"
#include "serve/openai/functions.h"
#include "serve/openai/openai.h"
#include "serve/sandbox/sandbox.h"
#include "serve/options.h"

/* Of what a cell has printed. */
enum { CHAT_OUTPUT_MAX = 2000 };

/* ---- the request ---- */

static bool chat_refuse(struct request *r, const char *param, const char *text)
{
    openai_refuse(r,
        &(struct openai_error){ .status = 400, .code = "unsupported_parameter", .param = param },
        "'%s' %s", param, text);
    return false;
}

/* What would change the answer, and a run cannot do. Sampling is the operator's. */
static bool chat_check(struct request *r)
{
    static const char *const objects[] = { "audio", "web_search_options" };
    struct json_object *tools = json_get_typed(r->json, "tools", json_type_array);
    for (size_t i = 0; i < json_length(tools); i++)
        if (strcmp(json_get_string(json_object_array_get_idx(tools, i), "type", ""), "function") !=
            0)
            return chat_refuse(
                r, "tools", "are functions for models that answer with a run: no other kind");
    if (json_length(json_get_typed(r->json, "functions", json_type_array)) > 0)
        return chat_refuse(r, "functions", "are called 'tools' now; their old form is not taken");
    for (size_t i = 0; i < array_length(objects); i++)
        if (json_get_typed(r->json, objects[i], json_type_object))
            return chat_refuse(r, objects[i], "is not supported by models that answer with a run");
    if (json_get_int(r->json, "n", 1) != 1)
        return chat_refuse(r, "n", "is 1 for models that answer with a run");
    if (json_get_bool(r->json, "logprobs", false))
        return chat_refuse(r, "logprobs", "are not supported by models that answer with a run");
    return functions_check(r);
}

static bool chat_ask(struct openai_ask *a)
{
    struct json_object *messages = json_get_typed(a->r->json, "messages", json_type_array);
    size_t count = json_length(messages), last = count;
    for (size_t i = 0; i < count; i++)
        if (strcmp(json_get_string(json_object_array_get_idx(messages, i), "role", ""), "user") ==
            0)
            last = i;
    if (last == count) {
        openai_refuse(a->r,
            &(struct openai_error){ .status = 400, .code = "no_question", .param = "messages" },
            "a run needs a message of the user, which it answers");
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        struct json_object *message = json_object_array_get_idx(messages, i), *content = NULL;
        struct json_object *calls = json_get_typed(message, "tool_calls", json_type_array);
        json_object_object_get_ex(message, "content", &content);
        if (i == last ? !openai_ask_question(a, content)
                      : !openai_ask_add(a, json_get_string(message, "role", ""), content))
            return false;
        for (size_t k = 0; k < json_length(calls); k++)
            if (!functions_ask_call(a, json_object_array_get_idx(calls, k)))
                return false;
    }
    return openai_ask_finish(a) && functions_put_choice(a->r, &a->question);
}

bool openai_put_schema(
    struct request *r, struct json_object *format, struct json_object *holder, struct buf *words)
{
    const char *type = json_get_string(format, "type", "text");
    struct json_object *schema = json_get_typed(holder, "schema", json_type_object);
    if (strcmp(type, "json_schema") == 0 && schema)
        sandbox_setting(words, "answer-schema", json_text(schema, NULL));
    else if (strcmp(type, "json_object") == 0)
        sandbox_setting(words, "answer-schema", "{\"type\": \"object\"}");
    else if (strcmp(type, "text") != 0)
        return chat_refuse(r, "response_format", "has no such type, or no schema");
    return true;
}

static bool chat_settings(struct request *r, const char *run, struct buf *words)
{
    struct json_object *format = json_get_typed(r->json, "response_format", json_type_object);
    functions_put_settings(r, words);
    return openai_put_schema(
        r, format, json_get_typed(format, "json_schema", json_type_object), words);
}

/* ---- the answer ---- */

static void chat_put_head(struct buf *out, const struct openai_answer *a, const char *object)
{
    cleanup_free char *id = text_printf("chatcmpl-%s", a->f.r->id);
    field_open(out, NULL, '{');
    field_string(out, "id", id);
    field_string(out, "object", object);
    field_int(out, "created", a->created_ms / 1000);
    field_string(out, "model", json_get_string(a->f.r->json, "model", ""));
    field_null(out, "system_fingerprint");
}

static void chat_put_usage(struct buf *out, const droste_record_run *run)
{
    field_open(out, "usage", '{');
    field_int(out, "prompt_tokens", run->input_tokens);
    field_int(out, "completion_tokens", run->output_tokens);
    field_int(out, "total_tokens", run->input_tokens + run->output_tokens);
    field_json(out, "prompt_tokens_details", "{\"cached_tokens\": 0, \"audio_tokens\": 0}");
    field_json(out, "completion_tokens_details",
        "{\"reasoning_tokens\": 0, \"audio_tokens\": 0, \"accepted_prediction_tokens\": 0, "
        "\"rejected_prediction_tokens\": 0}");
    field_close(out, '}');
}

static bool chat_wants_usage(const struct openai_answer *a)
{
    return json_get_bool(
        json_get_typed(a->f.r->json, "stream_options", json_type_object), "include_usage", false);
}

/* A chunk with these members of a delta. */
static void chat_push_delta(struct openai_answer *a, const char *delta, const char *finish)
{
    cleanup_buf struct buf out = { 0 };
    chat_put_head(&out, a, "chat.completion.chunk");
    field_open(&out, "choices", '[');
    field_open(&out, NULL, '{');
    field_int(&out, "index", 0);
    field_json(&out, "delta", delta);
    field_null(&out, "logprobs");
    field_string(&out, "finish_reason", finish);
    field_close(&out, '}');
    field_close(&out, ']');
    if (chat_wants_usage(a))
        field_null(&out, "usage");
    field_close(&out, '}');
    openai_push(a, NULL, buf_text(&out), out.len);
}

/* A chunk with one member of a delta; NULL: none. */
static void chat_push(
    struct openai_answer *a, const char *member, const char *text, size_t len, const char *finish)
{
    cleanup_buf struct buf delta = { 0 };
    field_open(&delta, NULL, '{');
    if (member)
        field_text(&delta, member, text, len);
    field_close(&delta, '}');
    chat_push_delta(a, buf_text(&delta), finish);
}

static void chat_begin(struct openai_answer *a)
{
    chat_push(a, "role", "assistant", strlen("assistant"), NULL);
}

static void chat_call(struct openai_answer *a, const droste_record_call *call)
{
    if (strcmp(call->kind, "root") != 0 || !call->reply.data || call->reply.len == 0)
        return;
    chat_push(a, "reasoning_content", call->reply.data, call->reply.len, NULL);
    chat_push(a, "reasoning_content", "\n\n", 2, NULL);
}

static void chat_cell(struct openai_answer *a, const droste_record_cell *cell)
{
    cleanup_buf struct buf text = { 0 };
    const char *output = cell->standard_output.data;
    size_t len = cell->standard_output.len;
    if (!output || len == 0)
        return;
    size_t shown = len > CHAT_OUTPUT_MAX ? text_utf8_floor(output, len, CHAT_OUTPUT_MAX) : len;
    buf_puts(&text, "Output:\n");
    buf_append(&text, output, shown);
    buf_puts(&text, shown < len ? "…\n\n" : "\n\n");
    chat_push(a, "reasoning_content", buf_text(&text), text.len, NULL);
}

static void chat_push_usage(struct openai_answer *a, const droste_record_run *run)
{
    cleanup_buf struct buf out = { 0 };
    chat_put_head(&out, a, "chat.completion.chunk");
    field_json(&out, "choices", "[]");
    chat_put_usage(&out, run);
    field_close(&out, '}');
    openai_push(a, NULL, buf_text(&out), out.len);
}

/* The message is a text, or calls, which are a list with members for `tool_calls`; its run goes on
 * (`run` NULL) and has no usage yet. */
static void chat_reply(struct openai_answer *a, const droste_record_run *run,
    const struct buf *text, const char *calls)
{
    cleanup_buf struct buf out = { 0 };
    chat_put_head(&out, a, "chat.completion");
    field_open(&out, "choices", '[');
    field_open(&out, NULL, '{');
    field_int(&out, "index", 0);
    field_open(&out, "message", '{');
    field_string(&out, "role", "assistant");
    if (calls)
        field_null(&out, "content");
    else
        field_text(&out, "content", buf_text(text), text->len);
    field_null(&out, "refusal");
    field_json(&out, "annotations", "[]");
    if (calls)
        field_json(&out, "tool_calls", calls);
    field_close(&out, '}');
    field_null(&out, "logprobs");
    field_string(&out, "finish_reason", calls ? "tool_calls" : "stop");
    field_close(&out, '}');
    field_close(&out, ']');
    if (run)
        chat_put_usage(&out, run);
    field_close(&out, '}');
    request_reply_written(a->f.r, 200, &out);
    request_header(a->f.r, "X-Droste-Run", a->f.r->id);
}

static void chat_end(struct openai_answer *a, const droste_record_run *run)
{
    cleanup_buf struct buf text = { 0 };
    openai_answer_text(&text, run);
    if (!a->streams) {
        chat_reply(a, run, &text, NULL);
        return;
    }
    chat_push(a, "content", buf_text(&text), text.len, NULL);
    chat_push(a, NULL, NULL, 0, "stop");
    if (chat_wants_usage(a))
        chat_push_usage(a, run);
    openai_push(a, NULL, "[DONE]", strlen("[DONE]"));
}

static void chat_fail(struct openai_answer *a, const struct openai_error *error, const char *text)
{
    cleanup_buf struct buf out = { 0 };
    field_open(&out, NULL, '{');
    field_key(&out, "error");
    openai_put_error(&out, error, text);
    field_close(&out, '}');
    openai_push(a, NULL, buf_text(&out), out.len);
}

/* The calls as members of `tool_calls`; of a stream, with their places. */
static void chat_put_calls(struct buf *out, struct json_object *calls, int64_t at, bool streams)
{
    field_open(out, NULL, '[');
    for (size_t i = 0; i < json_length(calls); i++) {
        struct json_object *call = json_object_array_get_idx(calls, i);
        char id[FUNCTION_ID_SIZE];
        functions_call_id(id, call, at);
        field_open(out, NULL, '{');
        if (streams)
            field_int(out, "index", (int64_t)i);
        field_string(out, "id", id);
        field_string(out, "type", "function");
        field_open(out, "function", '{');
        field_string(out, "name", json_get_string(call, "name", ""));
        field_string(out, "arguments", json_get_string(call, "arguments", ""));
        field_close(out, '}');
        field_close(out, '}');
    }
    field_close(out, ']');
}

/* Functions wait for the client: the completion ends with their calls, and the run waits. */
static void chat_tick(struct openai_answer *a)
{
    struct request *r = a->f.r;
    droste_record *record = r->server->record;
    uint64_t wait_ns;
    cleanup_buf struct buf list = { 0 }, delta = { 0 };
    cleanup_json struct json_object *calls = functions_waiting(r, r->id, r->json, false, &wait_ns);
    if (!calls || openai_answer_read(a, record) < 0)
        return;
    runs_attend(r->server, r->id, clock_ns() + wait_ns);
    chat_put_calls(&list, calls, a->f.at, a->streams);
    if (!a->streams) {
        chat_reply(a, NULL, NULL, buf_text(&list));
        return;
    }
    field_open(&delta, NULL, '{');
    field_json(&delta, "tool_calls", buf_text(&list));
    field_close(&delta, '}');
    chat_push_delta(a, buf_text(&delta), NULL);
    chat_push(a, NULL, NULL, 0, "tool_calls");
    if (chat_wants_usage(a)) /* the end of the run has all of it */
        chat_push_usage(a, &(droste_record_run){ 0 });
    openai_push(a, NULL, "[DONE]", strlen("[DONE]"));
    request_end(r);
}

static int64_t chat_from(struct request *r)
{
    return functions_from(r->json);
}

const struct openai_form openai_chat_form = { .ask = chat_ask,
    .settings = chat_settings,
    .from = chat_from,
    .tick = chat_tick,
    .begin = chat_begin,
    .call = chat_call,
    .cell = chat_cell,
    .end = chat_end,
    .fail = chat_fail };

void openai_handle_chat(struct request *r)
{
    struct openai_model model;
    if (!openai_model_of(r, &model))
        return;
    if (!model.is_run)
        openai_forward(r, model.name);
    else if (!chat_check(r))
        return;
    else if (functions_have_results(r->json))
        functions_take_results(r);
    else
        openai_answer(r);
}
