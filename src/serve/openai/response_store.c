/* serve/openai/response_store.c: responses that were stored: for the next question, and to be
 * retrieved, cancelled and deleted. Data of attached files is not stored. */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/json/fields.h"
#include "base/text.h"
#include "serve/http/relay.h"
#include "serve/openai/functions.h"
#include "serve/openai/response.h"

enum { RESPONSE_KEPT_SECONDS = 30 * 86400 };

/* ---- storing ---- */

/* A part as it is kept: of a file with its data, that there was one. */
static struct json_object *response_keep_part(struct json_object *part)
{
    bool is_image = strncmp(json_get_string(part, "image_url", ""), "data:", 5) == 0;
    if (!json_get_typed(part, "file_data", json_type_string) && !is_image)
        return json_object_get(part);
    struct json_object *kept = json_object_new_object();
    cleanup_free char *text = is_image ? strdup("[an image was attached]")
                                       : text_printf("[a file '%.200s' was attached]",
                                             json_get_string(part, "filename", "file"));
    if (kept && text && json_put_text(kept, "type", "input_text") &&
        json_put_text(kept, "text", text))
        return kept;
    json_object_put(kept);
    return NULL;
}

/* An item with an id and a list of parts, as OpenAI lists them; NULL without memory. */
static struct json_object *response_keep_item(
    struct json_object *item, const char *run, size_t index)
{
    struct json_object *kept = json_object_new_object(), *parts = json_object_new_array();
    struct json_object *content = NULL, *part = NULL;
    const char *role = json_get_string(item, "role", "user");
    cleanup_free char *id = text_printf("msg_%s_%zu", run, index);
    bool fine = kept && parts && id && json_put_text(kept, "type", "message") &&
                json_put_text(kept, "id", id) && json_put_text(kept, "role", role) &&
                json_put_text(kept, "status", "completed");
    if (json_object_is_type(item, json_type_string))
        content = item;
    else
        json_object_object_get_ex(item, "content", &content);
    if (json_object_is_type(content, json_type_string)) {
        part = json_object_new_object();
        fine = fine && part &&
               json_put_text(
                   part, "type", strcmp(role, "assistant") == 0 ? "output_text" : "input_text") &&
               json_put(part, "text", json_object_get(content)) &&
               json_object_array_add(parts, part) == 0;
    }
    for (size_t i = 0; fine && i < json_length(content); i++) {
        part = response_keep_part(json_object_array_get_idx(content, i));
        fine = part && json_object_array_add(parts, part) == 0;
    }
    if (fine && json_put(kept, "content", parts))
        return kept;
    json_object_put(kept);
    return NULL;
}

/* A call of a function, or a result, as it came, with an id; NULL without memory. */
static struct json_object *response_keep_call(
    struct json_object *item, const char *run, size_t index)
{
    struct json_object *kept = NULL;
    cleanup_free char *id = text_printf("fc_%s_%zu", run, index);
    if (json_object_deep_copy(item, &kept, NULL) == 0 && id && json_put_text(kept, "id", id) &&
        json_put_text(kept, "status", "completed"))
        return kept;
    json_object_put(kept);
    return NULL;
}

static bool response_is_call(const char *type)
{
    return strcmp(type, "function_call") == 0 || strcmp(type, "function_call_output") == 0;
}

static struct json_object *response_keep_input(struct json_object *input, const char *run)
{
    struct json_object *kept = json_object_new_array();
    bool is_text = json_object_is_type(input, json_type_string);
    size_t count = is_text ? 1 : json_length(input);
    for (size_t i = 0; kept && i < count; i++) {
        struct json_object *item = is_text ? input : json_object_array_get_idx(input, i);
        const char *type = is_text ? "message" : json_get_string(item, "type", "message");
        if (!response_is_call(type) && strcmp(type, "message") != 0)
            continue;
        item = response_is_call(type) ? response_keep_call(item, run, i)
                                      : response_keep_item(item, run, i);
        if (!item || json_object_array_add(kept, item) < 0) {
            json_object_put(item);
            json_object_put(kept);
            return NULL;
        }
    }
    return kept;
}

/* All members of the request but its input and context. */
static struct json_object *response_keep(struct request *r, int64_t from)
{
    struct json_object *kept = json_object_new_object(), *input = NULL;
    json_object_object_foreach(r->json, name, value)
    {
        if (strcmp(name, "input") != 0 && strcmp(name, "context") != 0 && kept &&
            json_object_object_add(kept, name, json_object_get(value)) < 0) {
            json_object_put(kept);
            return NULL;
        }
    }
    json_object_object_get_ex(r->json, "input", &input);
    struct json_object *items = response_keep_input(input, r->id);
    if (kept && items && json_put(kept, "input", items) && json_put_text(kept, "run", r->id) &&
        json_put(kept, "from", json_object_new_int64(from)) &&
        json_put(kept, "until", json_object_new_int64(0)) &&
        json_put(kept, "expires_at",
            json_object_new_int64(clock_wall_ms() / 1000 + RESPONSE_KEPT_SECONDS)))
        return kept;
    json_object_put(kept);
    return NULL;
}

bool response_store(struct request *r, int64_t from)
{
    char id[RESPONSE_ID_SIZE];
    size_t len = 0, files = 0;
    uint64_t quota = (uint64_t)r->server->options->files_quota_mib << 20;
    cleanup_json struct json_object *kept = response_keep(r, from);
    cleanup_fd int directory = kept ? file_store_open(r) : -1;
    if (r->reply)
        return false;
    response_id(id, r->id, from);
    if (!kept || !json_text(kept, &len))
        request_refuse_memory(r);
    else if (len > RESPONSE_STORED_MAX || file_store_used(directory, &files) + len > quota)
        openai_refuse(r,
            &(struct openai_error){
                .status = 413, .code = "quota", .param = "store", .is_final = true },
            "the response does not fit into what this key may store; send long inputs as files or "
            "context, or with store = false");
    else if (file_store_write(directory, id, kept) < 0)
        request_refuse(r, 503, "storage", "the response cannot be stored");
    return !r->reply;
}

/* ---- asking ---- */

static bool response_refuse_item(struct openai_ask *a, const char *type)
{
    openai_refuse(a->r,
        &(struct openai_error){ .status = 400, .code = "unsupported_item", .param = "input" },
        "models that answer with a run take messages, not items of type '%.64s'", type);
    return false;
}

/* Items that this server made itself come back from clients that keep a conversation themselves. */
static bool response_is_own(const char *type)
{
    return strcmp(type, "reasoning") == 0 || strcmp(type, "code_interpreter_call") == 0 ||
           strcmp(type, "mcp_approval_request") == 0 || strcmp(type, "mcp_approval_response") == 0;
}

bool response_ask_input(struct openai_ask *a, struct json_object *input, bool has_question)
{
    size_t count = json_length(input), last = count;
    if (json_object_is_type(input, json_type_string))
        return openai_ask_question(a, input);
    for (size_t i = 0; has_question && i < count; i++)
        if (strcmp(json_get_string(json_object_array_get_idx(input, i), "role", ""), "user") == 0)
            last = i;
    if (has_question && last == count) {
        openai_refuse(a->r,
            &(struct openai_error){ .status = 400, .code = "no_question", .param = "input" },
            "a run needs a message of the user, which it answers");
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        struct json_object *item = json_object_array_get_idx(input, i), *content = NULL;
        const char *type = json_get_string(item, "type", "message");
        json_object_object_get_ex(item, "content", &content);
        if (response_is_own(type))
            continue;
        if (response_is_call(type)) {
            if (!functions_ask_call(a, item))
                return false;
            continue;
        }
        if (strcmp(type, "message") != 0)
            return response_refuse_item(a, type);
        if (i == last ? !openai_ask_question(a, content)
                      : !openai_ask_add(a, json_get_string(item, "role", "user"), content))
            return false;
    }
    return true;
}

struct response_previous {
    struct openai_ask *a;
    bool fine;
};

static int response_on_previous(void *arg, const droste_record_run *run, droste_error *err)
{
    struct response_previous *previous = arg;
    cleanup_buf struct buf text = { 0 };
    if (!runs_is_mine(previous->a->r, run) || strcmp(run->status, "answered") != 0)
        return 0;
    openai_answer_text(&text, run);
    cleanup_json struct json_object *content =
        json_object_new_string_len(buf_text(&text), (int)text.len);
    previous->fine = content && openai_ask_add(previous->a, "assistant", content);
    return 0;
}

static bool response_refuse_previous(struct openai_ask *a, const char *id)
{
    if (!a->r->reply)
        openai_refuse(a->r,
            &(struct openai_error){ .status = 400,
                .code = "previous_response_not_found",
                .param = "previous_response_id" },
            "Previous response with id '%.80s' not found, or it has no answer.", id);
    return false;
}

/* One response's messages and answer, behind those of the ones before it. */
static bool response_ask_chain(
    struct openai_ask *a, int directory, droste_record *record, const char *id, unsigned depth)
{
    cleanup_json struct json_object *one =
        response_is_id(id) && depth < RESPONSE_CHAIN_MAX ? file_store_read(directory, id) : NULL;
    const char *before = json_get_string(one, "previous_response_id", NULL);
    struct response_previous previous = { .a = a };
    if (!one || (before && !response_ask_chain(a, directory, record, before, depth + 1)))
        return response_refuse_previous(a, id);
    if (!response_ask_input(a, json_get_typed(one, "input", json_type_array), false))
        return false;
    if (json_get_int(one, "until", 0) > 0 && depth > 0) /* the answer is in the next response */
        return response_ask_input(a, json_get_typed(one, "waiting", json_type_array), false);
    if (json_get_int(one, "until", 0) == 0)
        droste_record_get(
            record, json_get_string(one, "run", ""), response_on_previous, &previous, NULL);
    return previous.fine || response_refuse_previous(a, id);
}

bool response_ask_previous(struct openai_ask *a, const char *previous)
{
    cleanup_fd int directory = file_store_open(a->r);
    droste_record *record = directory < 0 ? NULL : runs_record(a->r);
    if (!record)
        return response_refuse_previous(a, previous);
    return response_ask_chain(a, directory, record, previous, 0);
}

bool response_is_elsewhere(struct request *r, const char *id)
{
    cleanup_fd int directory = response_is_id(id) ? file_store_open(r) : -1;
    cleanup_json struct json_object *one = directory < 0 ? NULL : file_store_read(directory, id);
    return r->reply || (directory >= 0 && !one && relay_elsewhere(r, "response", id));
}

/* ---- retrieving ---- */

/* What the request's response was asked; NULL: the request was refused. */
static struct json_object *response_of(struct request *r, int *directory)
{
    *directory = file_store_open(r);
    struct json_object *one =
        *directory >= 0 && response_is_id(r->name) ? file_store_read(*directory, r->name) : NULL;
    if (one || r->reply || (response_is_id(r->name) && relay_elsewhere(r, "response", r->name)))
        return one;
    openai_refuse(r, &(struct openai_error){ .status = 404, .code = "not_found", .param = "id" },
        "Response with id '%.80s' not found.", r->name);
    return one;
}

struct response_found {
    struct request *r;
    struct response p;
    struct json_object *asked;
    droste_record *record;
    bool is_cancelled;
    int64_t at; /* the last event that was read */
    struct buf out;
};

static int response_on_found(void *arg, const droste_record_run *run, droste_error *err)
{
    struct response_found *found = arg;
    bool is_running = strcmp(run->status, "running") == 0;
    if (found->p.until > 0)
        response_add_waiting(&found->p, json_get_typed(found->asked, "waiting", json_type_array));
    else
        response_add_answer(&found->p, run);
    response_put(
        &found->out, &found->p, run, found->is_cancelled && is_running ? "cancelled" : NULL);
    return 0;
}

/* Of a response that no client follows. */
static void response_find_waiting(struct response_found *found)
{
    uint64_t wait_ns;
    cleanup_json struct json_object *calls = functions_waiting(
        found->r, found->p.run, found->asked, response_label(found->asked), &wait_ns);
    cleanup_json struct json_object *items =
        calls ? response_items(calls, found->asked, found->at) : NULL;
    if (items && response_pause(found->r, &found->p, found->at, items, found->asked)) {
        found->p.until = found->at;
        runs_attend(found->r->server, found->p.run, clock_ns() + wait_ns);
    }
}

static void response_reply(struct request *r, struct json_object *asked, bool is_cancelled)
{
    struct response_found found = { .r = r,
        .p.from = json_get_int(asked, "from", 0),
        .p.until = json_get_int(asked, "until", 0),
        .asked = asked,
        .record = runs_record(r),
        .is_cancelled = is_cancelled };
    response_open(&found.p, r, asked, json_get_string(asked, "run", ""));
    if (found.record)
        found.at = response_add_steps(&found.p, found.record);
    if (found.record && found.p.until == 0)
        response_find_waiting(&found);
    if (!found.record ||
        droste_record_get(found.record, found.p.run, response_on_found, &found, NULL) < 0)
        openai_refuse(r, &(struct openai_error){ .status = 404, .code = "run_removed" },
            "the run of this response is no longer in the record");
    else if (buf_failed(&found.out) || buf_failed(&found.p.items))
        request_refuse_memory(r);
    else
        request_reply(r, 200, "application/json", found.out.data, found.out.len);
    buf_free(&found.out);
    buf_free(&found.p.items);
}

void openai_handle_response_get(struct request *r)
{
    cleanup_fd int directory = -1;
    const char *stream = request_query(r, "stream", "false");
    cleanup_json struct json_object *asked = stream ? response_of(r, &directory) : NULL;
    if (!asked)
        return;
    if (strcmp(stream, "true") == 0)
        openai_refuse(r,
            &(struct openai_error){
                .status = 400, .code = "unsupported_parameter", .param = "stream" },
            "a stored response is not streamed again; its run has /v1/runs/%s/events",
            json_get_string(asked, "run", ""));
    else
        response_reply(r, asked, false);
}

void openai_handle_response_cancel(struct request *r)
{
    cleanup_fd int directory = -1;
    cleanup_json struct json_object *asked = response_of(r, &directory);
    if (!asked)
        return;
    bool is_cancelled = runs_cancel(r->server, json_get_string(asked, "run", ""));
    response_reply(r, asked, is_cancelled);
}

void openai_handle_response_delete(struct request *r)
{
    cleanup_fd int directory = -1;
    cleanup_json struct json_object *asked = response_of(r, &directory);
    cleanup_buf struct buf out = { 0 };
    if (!asked)
        return;
    runs_cancel(r->server, json_get_string(asked, "run", ""));
    file_store_remove(directory, r->name);
    buf_putc(&out, '{');
    field_string(&out, "id", r->name);
    field_string(&out, "object", "response");
    field_bool(&out, "deleted", true);
    field_close(&out, '}');
    request_reply_written(r, 200, &out);
}

void openai_handle_response_items(struct request *r)
{
    cleanup_fd int directory = -1;
    cleanup_buf struct buf out = { 0 };
    const char *order = request_query(r, "order", "desc");
    cleanup_json struct json_object *asked = order ? response_of(r, &directory) : NULL;
    struct json_object *items = json_get_typed(asked, "input", json_type_array);
    size_t count = json_length(items);
    const char *first = NULL, *last = NULL;
    if (!asked)
        return;
    buf_putc(&out, '{');
    field_string(&out, "object", "list");
    field_open(&out, "data", '[');
    for (size_t i = 0; i < count; i++) {
        struct json_object *item =
            json_object_array_get_idx(items, strcmp(order, "asc") == 0 ? i : count - 1 - i);
        last = json_get_string(item, "id", "");
        first = first ? first : last;
        field_json(&out, NULL, json_text(item, NULL));
    }
    field_close(&out, ']');
    field_bool(&out, "has_more", false);
    field_string(&out, "first_id", first);
    field_string(&out, "last_id", last);
    field_close(&out, '}');
    request_reply_written(r, 200, &out);
}
