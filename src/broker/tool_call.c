/* broker/tool_call.c: calls the host's tools.
 *
 * An item of an ask (ask.h) is one call. It is counted in the budget, recorded before the tool
 * is called, and its end is recorded before the guest gets the answer. A resumed run answers it
 * from the record if the record has its end; otherwise the call is repeated. An exception of a tool
 * is recorded as {"type", "message"} in place of the reply.
 */
#include "broker/tool_call.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/hold.h"
#include "base/json/fields.h"
#include "base/loop.h"
#include "base/text.h"
#include "broker/approval.h"
#include "broker/ask.h"
#include "broker/fork_map.h"
#include "broker/replay/replay_match.h"
#include "broker/tool_schema.h"
#include "broker/tools.h"
#include "store/store.h"
#include "wire/values.h"

enum { MESSAGE_MAX = 100000, TYPE_MAX = 100 };

/* Bounds the arguments' values, so that the host's tree is not much larger than the text. */
static const struct json_limits argument_limits = { 16 << 20, 64, 200000 };

static const char status_failed[] = "failed";

struct tool_call {
    struct item *item; /* NULL: cancelled */
    uint64_t start_ns;
    tool_cancel_fn *on_cancel;
    void *cancel_arg;
    bool *answered;            /* set while the tool's function runs */
    struct loop *far_loop;     /* marks work in other threads or programs */
    struct approval *approval; /* it waits for this; NULL: it does not */
    struct hold_wait held;     /* or for this */
    char *asked;               /* its arguments meanwhile */
    size_t asked_len;
};

/* ---- the end ---- */

static char *failure_json(const char *type, const char *message)
{
    struct buf out = { 0 };
    size_t len = strlen(message);
    buf_putc(&out, '{');
    field_text(&out, "type", type, strnlen(type, TYPE_MAX));
    field_text(&out, "message", message, len < MESSAGE_MAX ? len : MESSAGE_MAX);
    buf_putc(&out, '}');
    return buf_steal(&out);
}

/* Detaches the item of a completed call; NULL if it was cancelled. */
static struct item *take_item(struct tool_call *call)
{
    struct item *item = call->item;
    if (call->answered)
        *call->answered = true;
    if (call->far_loop)
        loop_far(call->far_loop, false);
    free(call->asked);
    free(call);
    if (item)
        item->tool = NULL;
    return item;
}

static void record_tool_end(struct item *item, const droste_record_call *end)
{
    struct broker *b = item->ask->broker;
    struct error err = { 0 };
    if (item->record && b->options.store)
        budget_count_record(b->options.budget, end->reply.len + end->reply_values.len);
    if (item->record && b->options.store &&
        store_call_end(b->options.store, item->record, end, &err) < 0) {
        broker_unrecorded(b, &err);
        if (item->error.code == ERROR_NONE) { /* withholds the answer, as for models */
            item->error = err;
            free(steal(&item->failure));
        }
    }
    item->record = 0;
}

static double tool_call_seconds_of(const struct tool_call *call)
{
    return clock_seconds_since(call->start_ns);
}

static void fail_item(struct item *item, const char *type, const char *message, double seconds)
{
    cleanup_buf struct buf text = { 0 };
    buf_printf(&text, "%.100s: %.300s", type, message);
    cleanup_buf struct buf clean = { 0 };
    text_append_utf8(&clean, buf_text(&text), text.len);
    item_keep_failure(item, failure_json(type, message));
    droste_record_call end = { .status = status_failed,
        .error = buf_text(&clean),
        .reply = store_text(item->failure),
        .attempts = 1,
        .seconds = seconds };
    record_tool_end(item, &end);
    item_over(item);
}

void tool_call_answer(struct tool_call *call, const char *json, size_t len)
{
    struct error why = { 0 };
    double seconds = tool_call_seconds_of(call);
    struct item *item = take_item(call);
    if (!item)
        return;
    if (json_check(json, len, &json_limits_large, &why) < 0) {
        error_wrap(&why, "the tool's answer is not JSON");
        fail_item(item, "RuntimeError", why.text, seconds);
        return;
    }
    droste_record_call end = { .status = "ok",
        .reply = { json, len },
        .reply_values = { item->values, item->values_len },
        .attempts = 1,
        .seconds = seconds };
    record_tool_end(item, &end);
    if (item->error.code == ERROR_NONE)
        item_keep_text(item, json, len, false);
    item_over(item);
}

void tool_call_answer_values(
    struct tool_call *call, const char *json, size_t len, const char *values, size_t values_len)
{
    if (call->item && values)
        item_keep_values(call->item, values, values_len);
    tool_call_answer(call, json, len);
}

const char *tool_call_values(const struct tool_call *call, size_t *len)
{
    const struct ask *ask = call->item ? call->item->ask : NULL;
    *len = ask ? ask->values_len : 0;
    return ask ? ask->values : NULL;
}

void tool_call_fail(struct tool_call *call, const char *type, const char *message)
{
    double seconds = tool_call_seconds_of(call);
    struct item *item = take_item(call);
    if (!item)
        return;
    fail_item(item, type && type[0] ? type : "RuntimeError", message ? message : "", seconds);
}

bool tool_call_is_cancelled(const struct tool_call *call)
{
    return !call->item;
}

void tool_call_on_cancel(struct tool_call *call, tool_cancel_fn *fn, void *arg)
{
    call->on_cancel = fn;
    call->cancel_arg = arg;
}

void tool_cancel(struct item *item)
{
    struct tool_call *call = steal(&item->tool);
    droste_record_call end = { .status = error_code_name(item->error.code),
        .error = item->error.text,
        .attempts = 1,
        .seconds = tool_call_seconds_of(call) };
    record_tool_end(item, &end);
    if (call->approval || call->held.hold) { /* the tool does not know of it */
        hold_leave(&call->held);
        if (call->approval)
            approval_cancel(call->approval);
        free(call->asked);
        free(call);
        return;
    }
    call->item = NULL;
    if (call->far_loop)
        loop_far(steal(&call->far_loop), false);
    if (call->on_cancel)
        call->on_cancel(call->cancel_arg, call);
}

/* ---- the beginning ---- */

/* Calls the tool's function. If that does not answer at once, a thread, task or program does,
 * which needs a processor: on a machine with two, polling by both host and guest would leave
 * none for it. */
static void call_function(struct tool_call *call, const struct tool *tool, const char *text,
    size_t len, struct loop *loop)
{
    bool answered = false;
    call->answered = &answered;
    tool->fn(tool->arg, call, text, len);
    if (answered)
        return;
    call->answered = NULL;
    if (!loop || !call->item)
        return;
    call->far_loop = loop;
    loop_far(loop, true);
}

static const struct tool *tool_of(const struct ask *ask)
{
    return ask->network ? ask->network->tool : tools_find(ask->broker->options.tools, ask->model);
}

static void tool_call_run(void *arg)
{
    struct tool_call *call = arg;
    struct item *item = call->item;
    const struct tool *tool = tool_of(item->ask);
    cleanup_free char *asked = steal(&call->asked);
    if (!tool) {
        tool_call_fail(call, "RuntimeError", "the host does not have this tool any more");
        return;
    }
    call->start_ns = clock_ns();
    call_function(call, tool, asked, call->asked_len, item->ask->broker->options.loop);
}

/* The parts after the arguments follow each other, so together they are one container. */
static int take_values(
    struct ask *ask, struct json_object *head, struct frame_parts *rest, struct error *err)
{
    const char *data = NULL, *part;
    size_t total = 0, len;
    for (int64_t i = json_get_int(head, "pieces", 0); i > 0; i--) {
        if (!frame_parts_next(rest, &part, &len))
            return error_set(err, ERROR_ARGUMENT, "a call names a part that is not there");
        data = data ? data : part;
        total += len;
    }
    if (!data)
        return 0;
    struct error why = { 0 };
    if (values_check(data, total, &why) < 0)
        return error_set(err, ERROR_ARGUMENT, "the arguments cannot be read: %s", why.text);
    ask->values = text_copy(data, total);
    ask->values_len = total;
    return ask->values ? 0 : error_memory(err);
}

int tool_take(
    struct ask *ask, struct json_object *head, struct frame_parts *rest, struct error *err)
{
    const char *name = json_get_string(head, "tool", "");
    ask->is_tool = true;
    if (ask->count != 1)
        return error_set(err, ERROR_ARGUMENT, "the call of a tool must consist of its arguments");
    if (!tools_find(ask->broker->options.tools, name))
        return error_set(err, ERROR_ARGUMENT, "the host has no tool '%.64s'", name);
    free(ask->model);
    ask->model = strdup(name);
    return ask->model ? take_values(ask, head, rest, err) : error_memory(err);
}

int tool_find(struct item *item, const char *text, size_t len, struct error *err)
{
    return replay_match_find_call(item, text, len, err);
}

static int check_arguments(const struct tool *tool, const char *text, size_t len, struct error *err)
{
    cleanup_json struct json_object *o = NULL;
    int rc = json_parse(text, len, &argument_limits, &o, err);
    if (rc == 0 && !json_object_is_type(o, json_type_object))
        rc = error_set(err, ERROR_ARGUMENT, "the arguments are not a JSON object");
    if (rc == 0)
        rc = tool_arguments_are_plain(text, len, o, err);
    if (rc == 0 && tool->schema)
        rc = tool_schema_fits(tool->schema, o, err);
    return rc;
}

static int record_tool_begin(struct item *item, const char *text, size_t len, struct error *err)
{
    struct broker *b = item->ask->broker;
    struct store *store = b->options.store;
    if (item->record) /* started by an earlier process */
        return approval_is_recorded(store, item->record)
                   ? 0
                   : store_call_repeat(store, item->record, err);
    droste_record_call tool_call_begin = { .run = b->options.run,
        .turn = b->turn,
        .cell = b->cell,
        .fork = fork_map_path(b, item->ask->session),
        .depth = b->options.depth,
        .kind = "tool",
        .model = item->ask->model,
        .request = { text, len } };
    item_recorded(item);
    return store ? store_call_begin(store, &tool_call_begin, &item->record, err) : 0;
}

static int tool_call_take_result(void *arg, const droste_approval *a, struct error *err)
{
    (void)err;
    tool_call_answer(arg, a->result ? a->result : "null", a->result ? a->result_len : 4);
    return 0;
}

/* The record has the result: the client's function was called outside. */
static void tool_call_take_answer(struct tool_call *call)
{
    const struct item *item = call->item;
    struct error err = { 0 };
    if (store_approval_read(
            item->ask->broker->options.store, item->record, tool_call_take_result, call, &err) < 0)
        tool_call_fail(call, "RuntimeError", err.text);
}

/* An approved call begins, once; then the tool has its time limit. */
static void tool_call_decided(void *arg, bool approved, const char *why)
{
    struct tool_call *call = arg;
    struct item *item = call->item;
    struct broker *b = item->ask->broker;
    struct error err = { 0 };
    int rc = 0;
    if (!approved) {
        tool_call_fail(call, "PermissionError", why);
        return;
    }
    if (tools_are_of_client(b->options.tools, item->ask->model)) {
        tool_call_take_answer(call);
        return;
    }
    if (!tool_of(item->ask))
        rc = error_set(
            &err, ERROR_NOT_FOUND, "the host has no tool '%.64s' any more", item->ask->model);
    if (rc == 0 && b->options.store && item->record)
        rc = store_call_go(b->options.store, item->record, &err);
    if (rc == 0)
        rc = b->begin_patience(item->ask, &err);
    if (rc < 0) {
        tool_call_fail(call, "RuntimeError", err.text);
        return;
    }
    if (hold_pass(b->options.hold, &call->held, tool_call_run, call))
        tool_call_run(call);
}

static int tool_call_ask(struct tool_call *call, const char *text, size_t len, struct error *err)
{
    const struct broker_options *o = &call->item->ask->broker->options;
    call->asked = text_copy(text, len);
    call->asked_len = len;
    if (!call->asked)
        return error_memory(err);
    if (!call->item->record && tools_are_of_client(o->tools, call->item->ask->model))
        return error_set(err, ERROR_PERMISSION,
            "%.64s() waits for the answer of a client, which needs a run with a record",
            call->item->ask->model);
    if (!call->item->record && !o->ask.show && !approval_has_hook(call->item->ask->broker))
        return error_set(err, ERROR_PERMISSION,
            "calls of %.64s() ask for an approval (ask), but this session has no record, and "
            "nothing that answers: see docs/approvals.md",
            call->item->ask->model);
    const struct item *item = call->item;
    const struct approval_call asks = { .broker = item->ask->broker,
        .session = item->ask->session,
        .tool = item->ask->model,
        .record = item->record };
    return approval_ask(&asks, text, len, tool_call_decided, call, &call->approval, err);
}

static int tool_call_begin(
    struct item *item, const struct tool *tool, const char *text, size_t len, struct error *err)
{
    int may = replay_match_may_ask(item, err);
    if (may < 0)
        return may;
    struct tool_call *call = calloc(1, sizeof *call);
    int rc = call ? record_tool_begin(item, text, len, err) : error_memory(err);
    if (rc < 0) {
        free(call);
        return rc;
    }
    *call = (struct tool_call){ .item = item, .start_ns = clock_ns() };
    item->tool = call;
    if (approval_is_due(item->ask)) {
        struct error why = { 0 };
        if (tool_call_ask(call, text, len, &why) < 0)
            tool_call_fail(call, "PermissionError", why.text);
        return 0;
    }
    struct broker_options *o = &item->ask->broker->options;
    if (hold_pass(o->hold, &call->held, tool_call_run, call)) {
        call_function(call, tool, text, len, o->loop);
        return 0;
    }
    call->asked = text_copy(text, len);
    call->asked_len = len;
    if (!call->asked) {
        hold_leave(&call->held);
        tool_call_fail(call, "RuntimeError", "out of memory");
    }
    return 0;
}

/* False: the effect of the recorded call cannot be had again. */
static bool tool_call_restore(struct item *item, const struct tool *tool)
{
    const struct broker *b = item->ask->broker;
    cleanup_buf struct buf reply = { 0 };
    struct error why = { 0 };
    int rc = replay_match_read_reply(item, &reply, &why);
    if (rc == 0 && reply.len > 0)
        rc = tool->again(tool->arg, buf_text(&reply), reply.len, &why);
    if (rc < 0)
        b->options.diverged(b->options.arg, &why);
    return rc == 0;
}

int tool_start(struct item *item, const char *text, size_t len, struct error *err)
{
    struct ask *ask = item->ask;
    const struct broker_options *o = &ask->broker->options;
    const struct tool *tool = tool_of(ask);
    if (!tool)
        return error_set(err, ERROR_NOT_FOUND, "the host has no tool '%.64s'", ask->model);
    if (check_arguments(tool, text, len, err) < 0) {
        struct error why = *err;
        *err = (struct error){ 0 };
        error_wrap(&why, "%s()", ask->model);
        item_keep_failure(item, failure_json("TypeError", why.text));
        item_over(item); /* not called and not recorded */
        return 0;
    }
    if (o->recorded && tool->again && !tool_call_restore(item, tool))
        return 0; /* the run ends */
    int rc = o->recorded ? replay_match_start_tool(item, err) : 0;
    return rc == 0 ? tool_call_begin(item, tool, text, len, err) : rc < 0 ? rc : 0;
}
