/* serve/openai/response_approvals.c: calls of tools that wait for an approval, as items.
 *
 * A client that lists the tool {"type": "mcp", "server_label": …} can answer. Where calls of its
 * run wait, its response is completed with an item mcp_approval_request for each, and the run goes
 * on waiting. The client's next request has the answers, mcp_approval_response items, and is
 * another response of the same run, which tells what follows. ID.json says which part of a run a
 * response tells: the events after `from`, up to `until` (0: the end), and the items that waited
 * then.
 */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "serve/openai/functions.h"
#include "serve/openai/response.h"

static const char request_prefix[] = "mcpr_", answer_type[] = "mcp_approval_response";

const char *response_label(struct json_object *asked)
{
    struct json_object *tools = json_get_typed(asked, "tools", json_type_array);
    for (size_t i = 0; i < json_length(tools); i++) {
        struct json_object *tool = json_object_array_get_idx(tools, i);
        if (strcmp(json_get_string(tool, "type", ""), "mcp") == 0 &&
            strcmp(json_get_string(tool, "require_approval", ""), "never") != 0)
            return json_get_string(tool, "server_label", "");
    }
    return NULL;
}

/* ---- the calls that wait ---- */

/* NULL without memory. */
static struct json_object *response_item(struct json_object *call, const char *label, int64_t at)
{
    struct json_object *item = json_object_new_object();
    char call_id[FUNCTION_ID_SIZE];
    bool is_function = json_get_bool(call, "is_function", false);
    cleanup_free char *id = text_printf(
        "%s%lld", is_function ? "fc_" : request_prefix, (long long)json_get_int(call, "number", 0));
    functions_call_id(call_id, call, at);
    bool fine =
        item && id && json_put_text(item, "id", id) &&
        json_put_text(item, "type", is_function ? "function_call" : "mcp_approval_request") &&
        json_put_text(item, "arguments", json_get_string(call, "arguments", "")) &&
        json_put_text(item, "name", json_get_string(call, "name", "")) &&
        json_put_text(
            item, is_function ? "call_id" : "server_label", is_function ? call_id : label) &&
        (!is_function || json_put_text(item, "status", "completed"));
    if (fine)
        return item;
    json_object_put(item);
    return NULL;
}

struct json_object *response_items(struct json_object *calls, struct json_object *asked, int64_t at)
{
    const char *label = response_label(asked);
    cleanup_json struct json_object *items = json_object_new_array();
    for (size_t i = 0; items && i < json_length(calls); i++) {
        struct json_object *item =
            response_item(json_object_array_get_idx(calls, i), label ? label : "", at);
        if (!item || json_object_array_add(items, item) < 0) {
            json_object_put(item);
            return NULL;
        }
    }
    return steal(&items);
}

bool response_pause(struct request *r, const struct response *p, int64_t until,
    struct json_object *items, struct json_object *stored)
{
    char id[RESPONSE_ID_SIZE];
    cleanup_fd int directory = file_store_open(r);
    response_id(id, p->run, p->from);
    cleanup_json struct json_object *read =
        stored || directory < 0 ? NULL : file_store_read(directory, id);
    struct json_object *kept = stored ? stored : read;
    return directory >= 0 && kept && json_put(kept, "until", json_object_new_int64(until)) &&
           json_put(kept, "waiting", json_object_get(items)) &&
           file_store_write(directory, id, kept) == 0;
}

/* ---- the answers ---- */

bool response_has_approvals(struct json_object *asked)
{
    struct json_object *input = json_get_typed(asked, "input", json_type_array);
    for (size_t i = 0; i < json_length(input); i++)
        if (strcmp(json_get_string(json_object_array_get_idx(input, i), "type", ""), answer_type) ==
            0)
            return true;
    return false;
}

static bool approvals_refuse(struct request *r, unsigned status, const char *code, const char *text)
{
    const char *param = strcmp(code, "previous_response_not_found") == 0 ? "previous_response_id"
                        : strcmp(code, "forbidden") == 0                 ? NULL
                                                                         : "input";
    if (!r->reply)
        openai_refuse(r,
            &(struct openai_error){
                .status = status, .code = code, .param = param, .is_final = true },
            "%s", text);
    return false;
}

/* The response before, which is this account's and ended with calls that wait; NULL: the request
 * was refused. */
static struct json_object *approvals_previous(struct request *r)
{
    const char *id = json_get_string(r->json, "previous_response_id", "");
    cleanup_fd int directory = file_store_open(r);
    struct json_object *one =
        directory >= 0 && response_is_id(id) ? file_store_read(directory, id) : NULL;
    if (one && json_get_int(one, "until", 0) > 0)
        return one;
    json_object_put(one);
    approvals_refuse(r, 400, "previous_response_not_found",
        "previous_response_id names no response in which calls wait for an approval");
    return NULL;
}

int64_t response_from(struct request *r)
{
    if (!response_has_approvals(r->json))
        return functions_from(r->json);
    cleanup_json struct json_object *previous = approvals_previous(r);
    return previous ? json_get_int(previous, "until", 0) : -1;
}

struct decided {
    bool is_of_run, approved, denied;
    const char *run;
};

static int approvals_on_found(void *arg, const droste_approval *a, droste_error *err)
{
    struct decided *d = arg;
    d->is_of_run = strcmp(a->root, d->run) == 0;
    d->approved = a->decision && strcmp(a->decision, "approved") == 0;
    d->denied = a->decision && !d->approved;
    return 0;
}

/* Decides one, or finds that it was decided in the same way before: by an earlier try. */
static bool approvals_decide(
    struct request *r, droste_record *record, const char *run, struct json_object *item)
{
    const char *id = json_get_string(item, "approval_request_id", "");
    const char *number = strncmp(id, request_prefix, 5) == 0 ? id + 5 : "";
    struct json_object *approve = json_get_typed(item, "approve", json_type_boolean);
    const char *by = r->account->key.name[0] ? r->account->key.name : "a client of the server";
    struct decided found = { .run = run };
    droste_error err = { 0 };
    size_t n = strlen(number);
    if (strcmp(json_get_string(item, "type", ""), answer_type) != 0 || !approve)
        return approvals_refuse(r, 400, "unsupported_item",
            "answers to approval requests are alone in their input, each with 'approve'");
    bool yes = json_object_get_boolean(approve);
    int64_t call =
        n > 0 && n < 19 && strspn(number, "0123456789") == n ? strtoll(number, NULL, 10) : 0;
    if (!call || droste_record_approval(record, call, approvals_on_found, &found, NULL) < 0 ||
        !found.is_of_run)
        return approvals_refuse(r, 400, "approval_not_found",
            "'approval_request_id' names no approval request of the previous response");
    if (yes ? found.approved : found.denied)
        return true;
    int rc =
        droste_record_decide(record, call, yes, by, json_get_string(item, "reason", NULL), &err);
    return rc == 0 || approvals_refuse(r, 409, "decided", err.text);
}

void response_take_approvals(struct request *r)
{
    struct json_object *input = json_get_typed(r->json, "input", json_type_array);
    struct runs_state of = { .r = r };
    if (!(r->account->key.scopes & (SCOPE_APPROVALS | SCOPE_ADMIN))) {
        approvals_refuse(r, 403, "forbidden", "deciding needs a key with the scope 'approvals'");
        return;
    }
    cleanup_json struct json_object *previous = approvals_previous(r);
    droste_record *record = previous ? runs_record(r) : NULL;
    const char *run = json_get_string(previous, "run", "");
    if (!record || droste_record_get(record, run, runs_on_state, &of, NULL) < 0 || !of.is_mine) {
        approvals_refuse(r, 400, "previous_response_not_found",
            "the run of the previous response is no longer in the record");
        return;
    }
    for (size_t i = 0; i < json_length(input); i++)
        if (!approvals_decide(r, record, run, json_object_array_get_idx(input, i)))
            return;
    snprintf(r->id, sizeof r->id, "%s", run);
    openai_answer_again(r, of.is_interrupted);
}
