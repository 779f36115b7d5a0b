/* serve/openai/functions.c: see functions.h. */
#include "serve/openai/functions.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/json/fields.h"
#include "base/text.h"
#include "serve/http/relay.h"
#include "serve/sandbox/sandbox.h"
#include "serve/options.h"

enum { FUNCTIONS_MAX = 512 };
/* Calls of several threads come one after the other: the answer waits for the last one. */
enum { FUNCTIONS_SETTLE_MS = 100 };
/* A run that waits for results keeps its sandbox for so many times --detach. */
enum { FUNCTIONS_HELD = 10 };
#define FAR_NS (30ull * 86400 * 1000000000)

static const char module[] = "functions."; /* of the guest */

/* ---- the functions of a request ---- */

/* Of chat completions a member, of responses the tool itself. NULL: no function. */
static struct json_object *functions_about(struct json_object *tool)
{
    struct json_object *inner = json_get_typed(tool, "function", json_type_object);
    return strcmp(json_get_string(tool, "type", ""), "function") == 0 ? (inner ? inner : tool)
                                                                      : NULL;
}

static const char *functions_choice(struct json_object *asked)
{
    struct json_object *choice = json_get_typed(asked, "tool_choice", json_type_object);
    if (!choice)
        return json_get_string(asked, "tool_choice", "auto");
    return json_get_string(choice, "type", "");
}

/* The list that a choice allows, or NULL for all. */
static struct json_object *functions_allowed(struct json_object *asked)
{
    struct json_object *choice = json_get_typed(asked, "tool_choice", json_type_object);
    struct json_object *inner = json_get_typed(choice, "allowed_tools", json_type_object);
    return strcmp(functions_choice(asked), "allowed_tools") == 0
               ? json_get_typed(inner ? inner : choice, "tools", json_type_array)
               : NULL;
}

static bool functions_allow(struct json_object *allowed, const char *name)
{
    for (size_t i = 0; i < json_length(allowed); i++) {
        struct json_object *about = functions_about(json_object_array_get_idx(allowed, i));
        if (about && strcmp(json_get_string(about, "name", ""), name) == 0)
            return true;
    }
    return !allowed;
}

/* A name that Python can have, and that no function before has. */
static bool functions_put_name(
    struct json_object *list, struct json_object *one, const char *wanted)
{
    cleanup_buf struct buf name = { 0 }, free_name = { 0 };
    text_append_identifier(&name, wanted);
    buf_puts(&free_name, buf_text(&name));
    for (unsigned n = 2;; n++) {
        size_t i = 0;
        while (i < json_length(list) &&
               strcmp(json_get_string(json_object_array_get_idx(list, i), "name", ""),
                   buf_text(&free_name)) != 0)
            i++;
        if (i == json_length(list))
            break;
        buf_clear(&free_name);
        buf_printf(&free_name, "%.58s_%u", buf_text(&name), n);
    }
    return !buf_failed(&free_name) && json_put_text(one, "name", buf_text(&free_name));
}

/* The functions as the setting has them, each with the client's name as "title". The caller frees
 * the list; NULL: there are none, or memory ran out. */
static struct json_object *functions_of(struct json_object *asked)
{
    struct json_object *tools = json_get_typed(asked, "tools", json_type_array);
    struct json_object *allowed = functions_allowed(asked);
    cleanup_json struct json_object *list = json_object_new_array();
    bool is_off = strcmp(functions_choice(asked), "none") == 0;
    for (size_t i = 0; !is_off && i < json_length(tools); i++) {
        struct json_object *about = functions_about(json_object_array_get_idx(tools, i));
        struct json_object *parameters = json_get_typed(about, "parameters", json_type_object);
        const char *title = json_get_string(about, "name", "");
        if (!about || !functions_allow(allowed, title))
            continue;
        struct json_object *one = json_object_new_object();
        bool fine = one && functions_put_name(list, one, title) &&
                    json_put_text(one, "title", title) &&
                    json_put_text(one, "description", json_get_string(about, "description", "")) &&
                    (!parameters || json_put(one, "parameters", json_object_get(parameters)));
        if (!fine || json_object_array_add(list, one) < 0) {
            json_object_put(one);
            return NULL;
        }
    }
    return json_length(list) > 0 ? steal(&list) : NULL;
}

bool functions_are_in(struct json_object *asked)
{
    cleanup_json struct json_object *list = functions_of(asked);
    return list != NULL;
}

static bool functions_refuse(struct request *r, const char *param, const char *text)
{
    openai_refuse(r,
        &(struct openai_error){ .status = 400, .code = "invalid_value", .param = param }, "%s",
        text);
    return false;
}

static bool functions_name_is_fine(const char *name)
{
    size_t n = strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-");
    return n > 0 && n <= 64 && name[n] == '\0';
}

static bool functions_check_choice(struct request *r)
{
    static const char *const words[] = { "none", "auto", "required", "allowed_tools", "function" };
    const char *choice = functions_choice(r->json);
    struct json_object *one = json_get_typed(r->json, "tool_choice", json_type_object);
    bool is_word = false;
    for (size_t i = 0; i < array_length(words); i++)
        is_word = is_word || strcmp(choice, words[i]) == 0;
    if (!is_word)
        return functions_refuse(r, "tool_choice", "there is no such choice here");
    if (strcmp(choice, "function") != 0)
        return true;
    struct json_object *about = functions_about(one);
    cleanup_json struct json_object *list = functions_of(r->json);
    for (size_t i = 0; i < json_length(list); i++)
        if (strcmp(json_get_string(json_object_array_get_idx(list, i), "title", ""),
                json_get_string(about, "name", "")) == 0)
            return true;
    return functions_refuse(r, "tool_choice", "'tools' has no function of this name");
}

bool functions_check(struct request *r)
{
    struct json_object *tools = json_get_typed(r->json, "tools", json_type_array);
    size_t count = json_length(tools);
    if (count > FUNCTIONS_MAX)
        return functions_refuse(r, "tools", "a request has at most 512 tools");
    for (size_t i = 0; i < count; i++) {
        struct json_object *about = functions_about(json_object_array_get_idx(tools, i));
        const char *name = json_get_string(about, "name", "");
        if (about && !functions_name_is_fine(name))
            return functions_refuse(
                r, "tools", "a function has a name of at most 64 letters, digits, '_' and '-'");
        for (size_t k = 0; about && k < i; k++) {
            struct json_object *before = functions_about(json_object_array_get_idx(tools, k));
            if (before && strcmp(json_get_string(before, "name", ""), name) == 0)
                return functions_refuse(r, "tools", "two functions have the same name");
        }
    }
    return functions_check_choice(r);
}

void functions_put_settings(struct request *r, struct buf *words)
{
    cleanup_json struct json_object *list = functions_of(r->json);
    if (list)
        sandbox_setting(words, "client-tools", json_text(list, NULL));
}

/* A run's code calls functions, which no provider can force: the model is asked to. */
bool functions_put_choice(struct request *r, struct buf *question)
{
    struct json_object *asked = r->json;
    const char *choice = functions_choice(asked);
    struct json_object *one = json_get_typed(asked, "tool_choice", json_type_object);
    struct json_object *inner = json_get_typed(one, "allowed_tools", json_type_object);
    bool is_required = strcmp(choice, "required") == 0 ||
                       strcmp(json_get_string(inner ? inner : one, "mode", ""), "required") == 0;
    if (!functions_are_in(asked))
        return true;
    if (strcmp(choice, "function") == 0) {
        cleanup_buf struct buf name = { 0 };
        text_append_identifier(&name, json_get_string(functions_about(one), "name", ""));
        buf_printf(question, "\n\nCall `%s%s` before you answer.", module, buf_text(&name));
    } else if (is_required) {
        buf_printf(
            question, "\n\nCall at least one of the functions of `functions` before you answer.");
    }
    if (buf_failed(question))
        request_refuse_memory(r);
    return !r->reply;
}

void functions_put_tools(struct buf *out, struct json_object *tools)
{
    static const char *const members[] = { "description", "parameters", "strict" };
    field_open(out, "tools", '[');
    for (size_t i = 0; i < json_length(tools); i++) {
        struct json_object *tool = json_object_array_get_idx(tools, i);
        cleanup_json struct json_object *whole = NULL;
        if (json_object_deep_copy(tool, &whole, NULL) < 0)
            continue;
        for (size_t k = 0; functions_about(tool) && k < array_length(members); k++)
            if (!json_object_object_get_ex(tool, members[k], NULL))
                json_object_object_add(whole, members[k], NULL);
        field_json(out, NULL, json_text(whole, NULL));
    }
    field_close(out, ']');
}

/* ---- calls that wait ---- */

struct waiting {
    struct json_object *calls, *functions;
    bool with_approvals, has_approvals, failed;
    int64_t asked_ms, until_ms; /* of the last one; of the one that waits longest */
};

/* The client's name of functions.NAME; NULL: the request has no such function. */
static const char *functions_title(struct json_object *functions, const char *tool)
{
    for (size_t i = 0; i < json_length(functions); i++) {
        struct json_object *one = json_object_array_get_idx(functions, i);
        if (strcmp(json_get_string(one, "name", ""), tool + sizeof module - 1) == 0)
            return json_get_string(one, "title", "");
    }
    return NULL;
}

static int waiting_on_listed(void *arg, const droste_approval *a, droste_error *err)
{
    struct waiting *w = arg;
    const char *name = a->wants_result ? functions_title(w->functions, a->tool) : a->tool;
    if (!name || (!a->wants_result && !w->with_approvals))
        return 0;
    struct json_object *call = json_object_new_object();
    bool fine = call && json_put_text(call, "run", a->root) &&
                json_put(call, "number", json_object_new_int64(a->id)) &&
                json_put_text(call, "name", name) &&
                json_put_string(call, "arguments", a->arguments, a->len) &&
                json_put(call, "is_function", json_object_new_boolean(a->wants_result));
    if (!fine || json_object_array_add(w->calls, call) < 0) {
        json_object_put(call);
        w->failed = true;
    }
    w->has_approvals = w->has_approvals || !a->wants_result;
    w->asked_ms = a->asked_ms > w->asked_ms ? a->asked_ms : w->asked_ms;
    w->until_ms = a->until_ms == 0 || a->until_ms > w->until_ms ? a->until_ms : w->until_ms;
    return 0;
}

struct json_object *functions_waiting(struct request *r, const char *run, struct json_object *asked,
    bool with_approvals, uint64_t *wait_ns)
{
    droste_record *record = r->server->record;
    cleanup_json struct json_object *functions = functions_of(asked);
    struct waiting w = { .with_approvals = with_approvals, .functions = functions };
    if (!record || (!functions && !with_approvals))
        return NULL;
    w.calls = json_object_new_array();
    cleanup_json struct json_object *calls = w.calls;
    int64_t now_ms = clock_wall_ms();
    if (!calls || droste_record_approvals(record, run, NULL, waiting_on_listed, &w, NULL) < 0 ||
        w.failed || json_length(calls) == 0)
        return NULL;
    bool is_single = functions && !json_get_bool(asked, "parallel_tool_calls", true);
    if (is_single)
        json_object_array_del_idx(calls, 1, json_length(calls) - 1);
    else if (functions && now_ms - w.asked_ms < FUNCTIONS_SETTLE_MS && now_ms >= w.asked_ms)
        return NULL;
    int64_t left_ms = w.until_ms - now_ms;
    *wait_ns = w.until_ms == 0 || left_ms < 0 || (uint64_t)left_ms * 1000000 > FAR_NS
                   ? FAR_NS
                   : (uint64_t)left_ms * 1000000;
    uint64_t held_ns = (uint64_t)(r->server->options->detach_seconds * FUNCTIONS_HELD * 1e9);
    if (!w.has_approvals && held_ns < *wait_ns)
        *wait_ns = held_ns;
    return steal(&calls);
}

void functions_call_id(char out[FUNCTION_ID_SIZE], struct json_object *call, int64_t at)
{
    snprintf(out, FUNCTION_ID_SIZE, "call_%.32s_%lld_%lld", json_get_string(call, "run", ""),
        (long long)json_get_int(call, "number", 0), (long long)at);
}

/* ---- results ---- */

struct function_id {
    char run[SERVE_ID_SIZE];
    int64_t number, at;
};

static bool functions_read_id(const char *id, struct function_id *out)
{
    char number[24];
    const char *text = strncmp(id, "call_", 5) == 0 ? id + 5 : "";
    size_t run = strcspn(text, "_"), n = text[run] ? strcspn(text + run + 1, "_") : 0;
    if (run != SERVE_ID_SIZE - 1 || n == 0 || n >= sizeof number || text[run + 1 + n] != '_')
        return false;
    snprintf(out->run, sizeof out->run, "%s", text);
    snprintf(number, sizeof number, "%.*s", (int)n, text + run + 1);
    out->number = run_parse_number(number);
    out->at = run_parse_number(text + run + 1 + n + 1);
    return out->number > 0 && out->at >= 0;
}

/* Messages of the role "tool" have an id of their own kind. */
static const char *functions_result_id(struct json_object *item)
{
    if (strcmp(json_get_string(item, "type", ""), "function_call_output") == 0)
        return json_get_string(item, "call_id", "");
    return strcmp(json_get_string(item, "role", ""), "tool") == 0
               ? json_get_string(item, "tool_call_id", "")
               : NULL;
}

static struct json_object *functions_items(struct json_object *asked)
{
    struct json_object *messages = json_get_typed(asked, "messages", json_type_array);
    return messages ? messages : json_get_typed(asked, "input", json_type_array);
}

bool functions_have_results(struct json_object *asked)
{
    struct json_object *items = functions_items(asked);
    size_t count = json_length(items);
    return count > 0 && functions_result_id(json_object_array_get_idx(items, count - 1));
}

/* The first item behind the last message of the user: results after it belong to one run. */
static size_t functions_first(struct json_object *items)
{
    size_t at = json_length(items);
    while (at > 0 && strcmp(json_get_string(json_object_array_get_idx(items, at - 1), "role", ""),
                         "user") != 0)
        at--;
    return at;
}

int64_t functions_from(struct json_object *asked)
{
    struct json_object *items = functions_items(asked);
    struct function_id found;
    int64_t from = 0;
    for (size_t i = functions_first(items); i < json_length(items); i++) {
        const char *id = functions_result_id(json_object_array_get_idx(items, i));
        if (id && functions_read_id(id, &found) && found.at > from)
            from = found.at;
    }
    return from;
}

static bool functions_put_image(struct buf *out, const char *url)
{
    const char *comma = strncmp(url, "data:", 5) == 0 ? strchr(url, ',') : NULL;
    if (!comma || comma - url < 12 || strncmp(comma - 7, ";base64", 7) != 0)
        return false;
    field_open(out, NULL, '{');
    field_string(out, "type", "image");
    field_text(out, "mimeType", url + 5, (size_t)(comma - 7 - url - 5));
    field_string(out, "data", comma + 1);
    field_close(out, '}');
    return true;
}

static bool functions_put_part(struct buf *out, struct json_object *part)
{
    struct json_object *text = json_get_typed(part, "text", json_type_string);
    if (!text)
        return functions_put_image(out, json_get_string(part, "image_url", ""));
    field_open(out, NULL, '{');
    field_string(out, "type", "text");
    field_text(out, "text", json_object_get_string(text), (size_t)json_object_get_string_len(text));
    field_close(out, '}');
    return true;
}

/* The result as a function of an MCP server gives it: a text, or a list of parts. */
static bool functions_put_result(struct buf *out, struct json_object *item)
{
    struct json_object *value = NULL;
    if (!json_object_object_get_ex(item, "output", &value))
        json_object_object_get_ex(item, "content", &value);
    field_open(out, NULL, '{');
    field_open(out, "content", '[');
    bool fine = true;
    if (json_object_is_type(value, json_type_array)) {
        for (size_t i = 0; fine && i < json_length(value); i++)
            fine = functions_put_part(out, json_object_array_get_idx(value, i));
    } else {
        const char *text = value ? json_object_get_string(value) : "";
        bool is_text = json_object_is_type(value, json_type_string);
        field_open(out, NULL, '{');
        field_string(out, "type", "text");
        field_text(
            out, "text", text, is_text ? (size_t)json_object_get_string_len(value) : strlen(text));
        field_close(out, '}');
    }
    field_close(out, ']');
    field_close(out, '}');
    return fine;
}

struct functions_call {
    const struct buf *result;
    const char *run; /* of the results before; "": none */
    char root[SERVE_ID_SIZE];
    bool is_function, is_decided, is_same;
};

static int functions_on_call(void *arg, const droste_approval *a, droste_error *err)
{
    struct functions_call *call = arg;
    call->is_function = a->wants_result && strlen(a->root) < sizeof call->root;
    snprintf(call->root, sizeof call->root, "%s", a->root);
    call->is_decided = a->decision != NULL;
    call->is_same = a->result && a->result_len == call->result->len &&
                    memcmp(a->result, buf_text(call->result), a->result_len) == 0;
    return 0;
}

static bool functions_refuse_result(
    struct request *r, unsigned status, const char *code, const char *text)
{
    const char *param = json_object_object_get_ex(r->json, "messages", NULL) ? "messages" : "input";
    openai_refuse(r,
        &(struct openai_error){ .status = status, .code = code, .param = param, .is_final = true },
        "%s", text);
    return false;
}

/* Keeps one result, or finds that an earlier try has. `of` is about the run of all of them. */
static bool functions_take_result(
    struct request *r, droste_record *record, struct json_object *item, struct runs_state *of)
{
    const char *by = r->account->key.name[0] ? r->account->key.name : "a client of the server";
    cleanup_buf struct buf result = { 0 };
    struct functions_call call = { .result = &result };
    droste_error err = { 0 };
    struct function_id id;
    if (!functions_put_result(&result, item) || buf_failed(&result))
        return functions_refuse_result(r, 400, "unsupported_content",
            "the result of a function is a text, or a list of texts and images with their data");
    if (!functions_read_id(functions_result_id(item), &id) || !record ||
        droste_record_approval(record, id.number, functions_on_call, &call, NULL) < 0 ||
        !call.is_function || strcmp(call.root, id.run) != 0 ||
        droste_record_get(record, call.root, runs_on_state, of, NULL) < 0 || !of->is_mine ||
        (r->id[0] && strcmp(r->id, call.root) != 0))
        return functions_refuse_result(r, 400, "call_not_found",
            "a result names no call of a function that this server has asked for, or the run of "
            "the call is no longer in the record");
    snprintf(r->id, sizeof r->id, "%s", call.root);
    if (call.is_same)
        return true;
    if (call.is_decided)
        return functions_refuse_result(
            r, 409, "decided", "the call has another result already, or its time was up");
    return droste_record_answer(record, id.number, buf_text(&result), result.len, by, &err) == 0 ||
           functions_refuse_result(r, 409, "decided", err.text);
}

/* Whether the run of the last result is on another node, which answers, or is lost. */
static bool functions_are_elsewhere(
    struct request *r, droste_record *record, struct json_object *items)
{
    struct json_object *last = json_object_array_get_idx(items, json_length(items) - 1);
    struct runs_state of = { .r = r };
    struct function_id id;
    return functions_read_id(functions_result_id(last), &id) &&
           (!record || droste_record_get(record, id.run, runs_on_state, &of, NULL) < 0) &&
           relay_elsewhere(r, "run", id.run);
}

void functions_take_results(struct request *r)
{
    struct json_object *items = functions_items(r->json);
    struct runs_state of = { .r = r };
    droste_record *record = runs_record(r);
    if (r->reply || functions_are_elsewhere(r, record, items))
        return;
    for (size_t i = functions_first(items); i < json_length(items); i++) {
        struct json_object *item = json_object_array_get_idx(items, i);
        if (functions_result_id(item) && !functions_take_result(r, record, item, &of))
            return;
    }
    openai_answer_again(r, of.is_interrupted);
}

/* ---- as a part of a conversation ---- */

bool functions_ask_call(struct openai_ask *a, struct json_object *call)
{
    struct json_object *inner = json_get_typed(call, "function", json_type_object);
    struct json_object *about = inner ? inner : call, *output = NULL;
    cleanup_buf struct buf text = { 0 };
    if (json_object_object_get_ex(call, "output", &output))
        return openai_ask_add(a, "tool", output);
    buf_printf(&text, "[calls %.64s(%s)]", json_get_string(about, "name", ""),
        json_get_string(about, "arguments", ""));
    cleanup_json struct json_object *content =
        buf_failed(&text) ? NULL : json_object_new_string_len(text.data, (int)text.len);
    return openai_ask_add(a, "assistant", content);
}
