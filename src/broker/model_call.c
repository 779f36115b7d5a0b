/* broker/model_call.c: implements llm_query: each prompt is a model call.
 *
 * A call is reserved in the budget and recorded with its key before it starts; its end is recorded
 * before the guest gets the answer.
 */
#include "broker/model_call.h"

#include <stdio.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/text.h"
#include "broker/approval.h"
#include "broker/ask.h"
#include "broker/cost_ask.h"
#include "broker/fork_map.h"
#include "broker/prompt.h"
#include "broker/replay/replay_match.h"
#include "lm/request.h"

/* ---- the end ---- */

droste_record_call model_call_end(const struct lm_reply *r)
{
    bool failed = r->error.code != ERROR_NONE;
    return (droste_record_call){
        .status = failed ? error_code_name(r->error.code) : "ok",
        .error = failed ? lm_reply_message(r) : NULL,
        .finish = r->finish,
        .reply = { r->text, r->len },
        .input_tokens = r->usage.input_tokens,
        .output_tokens = r->usage.output_tokens,
        .estimated = r->usage.estimated,
        .cost = r->cost,
        .attempts = r->attempts,
        .seconds = r->seconds,
    };
}

static void record_end(struct item *item, const struct lm_reply *r)
{
    struct broker *b = item->ask->broker;
    bool failed = r->error.code != ERROR_NONE;
    droste_record_call end = model_call_end(r);
    struct error err = { 0 };
    if (item->record && b->options.store)
        budget_count_record(b->options.budget, end.reply.len);
    if (item->record && b->options.store &&
        store_call_end(b->options.store, item->record, &end, &err) < 0) {
        broker_unrecorded(b, &err);
        /* Withholds the answer: a later resume would pay for it again. */
        item->error = failed ? item->error : err;
    }
    item->record = 0;
}

static const char *model_of(const struct item *item)
{
    return item->ask->model ? item->ask->model : lm_name(item->ask->broker->options.lm);
}

static void model_call_tell(
    struct item *item, const char *text, size_t len, const struct lm_reply *reply)
{
    struct broker *b = item->ask->broker;
    if (!b->options.call_event || (reply && !item->notice))
        return;
    if (!reply)
        item->notice = ++b->notices;
    struct broker_call_event event = { item->notice, model_of(item), text, len, reply, NULL };
    b->options.call_event(b->options.arg, &event);
    if (reply)
        item->notice = 0;
}

static void model_call_retried(void *arg, const struct lm_retry *retry)
{
    struct item *item = arg;
    struct broker *b = item->ask->broker;
    const struct broker_call_event event = {
        .id = item->notice, .model = model_of(item), .retry = retry
    };
    if (b->options.call_event)
        b->options.call_event(b->options.arg, &event);
}

static void item_done(void *arg, const struct lm_reply *r)
{
    struct item *item = arg;
    struct broker *b = item->ask->broker;
    uint64_t begun = clock_thread_ns();
    item->call = NULL;
    budget_settle(b->options.budget, &item->hold, r);
    item->error = r->error;
    record_end(item, r);
    model_call_tell(item, NULL, 0, r);
    if (item->error.code == ERROR_NONE)
        item_keep_text(item, r->text, r->len, item->is_run);
    broker_tell_changed(b);
    item->ask->spent_ns += clock_thread_ns() - begun;
    item_over(item);
}

void model_cancel(struct item *item, const struct error *why)
{
    struct broker *b = item->ask->broker;
    struct lm_reply cancelled = { .text = "", .finish = "" };
    cost_ask_leave(&item->cost);
    item->waits = WAITS_NOT;
    if (item->call)
        lm_cancel(steal(&item->call), &cancelled);
    cancelled.error = *why;
    budget_settle(b->options.budget, &item->hold, &cancelled);
    record_end(item, &cancelled);
    model_call_tell(item, NULL, 0, &cancelled);
}

/* ---- the beginning ---- */

/* Reads the indices of prompts that are lists of messages. */
int model_take(
    struct ask *ask, struct json_object *head, struct frame_parts *rest, struct error *err)
{
    struct json_object *list = json_get_typed(head, "messages", json_type_array);
    size_t count = json_length(list);
    for (size_t i = 0; i < count; i++) {
        int64_t index = json_object_get_int64(json_object_array_get_idx(list, i));
        if (index >= 0 && (size_t)index < ask->count)
            ask->items[index].is_messages = true;
    }
    return 0;
}

int model_find(struct item *item, const char *text, size_t len, struct error *err)
{
    return replay_match_find_call(item, text, len, err);
}

/* Records the call's key before the call starts, so that a resumed run can repeat it under the
 * same key. */
static int record_begin(struct item *item, const char *model, const char *key, const char *text,
    size_t len, struct error *err)
{
    struct broker *b = item->ask->broker;
    if (item->record) /* started by an earlier process, or asked for its costs there */
        return approval_is_recorded(b->options.store, item->record)
                   ? 0
                   : store_call_repeat(b->options.store, item->record, err);
    droste_record_call begin = {
        .run = b->options.run,
        .turn = b->turn,
        .cell = b->cell,
        .fork = fork_map_path(b, item->ask->session),
        .depth = b->options.depth,
        .kind = item->is_run ? "plain" : "sub",
        .model = model,
        .request = { text, len },
        .key = key,
    };
    item_recorded(item);
    return b->options.store ? store_call_begin(b->options.store, &begin, &item->record, err) : 0;
}

/* All prompts of a call share random bytes: one request to the kernel instead of ten thousand. */
static int make_key(const struct item *item, char out[LM_KEY_SIZE], struct error *err)
{
    enum { RANDOM_DIGITS = LM_KEY_SIZE - 1 - 8 };
    struct ask *ask = item->ask;
    int rc = ask->key[0] ? 0 : lm_key(ask->key, err);
    if (rc == 0)
        snprintf(
            out, LM_KEY_SIZE, "%.*s%08x", RANDOM_DIGITS, ask->key, (unsigned)(item - ask->items));
    return rc;
}

static void model_call_go(void *arg)
{
    item_start_again(arg);
}

/* Waits for an approval of its costs; it is recorded already. */
static int model_ask_cost(struct item *item, const struct budget_call *call, struct error *err)
{
    struct broker *b = item->ask->broker;
    item->kept = text_copy(item->asked, item->asked_len);
    if (!item->kept)
        return error_memory(err);
    item->asks = true;
    item->waits = WAITS_FOR_COST;
    item->cost = (struct cost_wait){ .call = *call,
        .broker = b,
        .session = item->ask->session,
        .record = item->record,
        .go = model_call_go,
        .arg = item };
    return cost_ask_begin(&item->cost, b->options.budget, err);
}

/* Makes the call: a new one, or that of item->record once more, with its key. */
static int model_begin(struct item *item, const struct lm_request *request,
    const struct budget_call *call, const char *text, size_t len, struct error *err)
{
    struct broker *b = item->ask->broker;
    struct lm_request keyed = *request;
    keyed.hold = b->options.hold;
    char key[LM_KEY_SIZE];
    int rc = replay_match_may_ask(item, err);
    bool asks = cost_ask_is_due(b->options.budget, call);
    if (rc == 0 && !asks)
        rc = budget_hold(b->options.budget, call, &item->hold, err);
    if (rc == 0 && !keyed.key) {
        rc = make_key(item, key, err);
        keyed.key = key;
    }
    if (rc == 0 && !item->asks)
        rc = record_begin(item, call->model, keyed.key, text, len, err);
    if (rc == 0 && asks)
        rc = model_ask_cost(item, call, err);
    else if (rc == 0)
        rc = lm_start(b->options.lm, &keyed, item_done, NULL, item, &item->call, err);
    if (rc < 0) {
        budget_release(b->options.budget, &item->hold);
        struct lm_reply never = { .error = *err, .text = "", .finish = "" };
        if (budget_is_refused_above(b->options.budget))
            item->record = 0;
        record_end(item, &never);
        return rc;
    }
    if (!asks)
        model_call_tell(item, text, len, NULL);
    return 0;
}

static int start_request(
    struct item *item, struct lm_request *request, const char *text, size_t len, struct error *err)
{
    struct broker_options *o = &item->ask->broker->options;
    double left = budget_seconds_left(o->budget);
    request->model = item->ask->model;
    request->depth = o->depth;
    request->temperature = -1;
    request->max_tokens = o->max_tokens;
    request->traceparent = o->traceparent;
    request->is_recorded = o->store != NULL;
    request->timeout = o->call_timeout;
    if (request->timeout <= 0 || request->timeout > left)
        request->timeout = left < 1e9 ? left : request->timeout;
    const struct budget_call call = { .model = request->model ? request->model : lm_name(o->lm),
        .depth = request->depth,
        .prompt_bytes = request_weight(request),
        .max_tokens = request->max_tokens,
        .lm = o->lm,
        .lm_model = request->model,
        .account = o->account };
    int rc = o->recorded ? replay_match_start(item, request, &call, err) : 0;
    if (rc == 0)
        rc = model_begin(item, request, &call, text, len, err);
    return rc < 0 ? rc : 0;
}

int model_ask(struct item *item, const char *text, size_t len, bool is_messages, struct error *err)
{
    struct prompt prompt;
    int rc = prompt_open(&prompt, text, len, is_messages, &item->ask->limits, err);
    if (rc < 0)
        return rc;
    struct lm_request request = {
        .messages = prompt.messages, .message_count = prompt.count, .retry = model_call_retried
    };
    rc = start_request(item, &request, text, len, err);
    prompt_close(&prompt);
    return rc;
}

int model_start(struct item *item, const char *text, size_t len, struct error *err)
{
    return model_ask(item, text, len, item->is_messages, err);
}
