/* rlm/model_call.c: calls a run's model with all messages, under the budget, the record and a key
 * of its own. Takes recorded replies from the record (replay.c).
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "lm/request.h"
#include "rlm/run.h"

/* Reserves a call: the root's turns are bounded by their number, a child's count as calls of its
 * parent's guest. A call that was open in an earlier process is already counted. */
static int64_t model_call_count_place(const struct rlm_run *r, const struct recorded_call *recorded)
{
    return r->place.parent && !recorded ? 1 : 0;
}

static int reserve_call(struct rlm_run *r, int64_t calls, struct error *err)
{
    if (r->reserved && calls > 0) {
        r->reserved = false;
        return 0;
    }
    return budget_reserve(&r->tree->budget, calls, err);
}

static void model_delta(void *arg, const char *text, size_t len)
{
    run_tell(arg, RLM_EVENT_DELTA, text, len);
}

static void model_failed(struct rlm_run *r, const struct error *why)
{
    const struct lm_reply failed = { .error = *why, .text = "", .finish = "" };
    r->replied(r, &failed);
}

static void model_replied(void *arg, const struct lm_reply *reply)
{
    struct rlm_run *r = arg;
    struct error err = { 0 };
    r->call = NULL;
    budget_settle(&r->tree->budget, &r->hold, reply);
    if (run_record_call_end(r, reply, &err) < 0 && reply->error.code == ERROR_NONE)
        model_failed(r, &err);
    else
        r->replied(r, reply);
}

static void model_retried(void *arg, const struct lm_retry *retry)
{
    const struct rlm_run *r = arg;
    run_tell_retry(arg, 0, r->model, retry);
}

/* Returns the messages that are new to the model. */
static void tell_request(struct rlm_run *r)
{
    cleanup_buf struct buf messages = { 0 };
    if (!r->tree->o.event || !r->tree->o.all_events)
        return;
    run_record_messages(r, &messages);
    run_tell(r, RLM_EVENT_REQUEST, buf_text(&messages), messages.len);
}

int model_call_ask(struct rlm_run *r, const struct budget_call *call, const char *key,
    void (*go)(void *run), struct error *err)
{
    snprintf(r->asked_key, sizeof r->asked_key, "%s", key);
    r->cost = (struct cost_wait){ .call = *call,
        .broker = r->broker ? r->broker : run_owner(r)->broker,
        .session = r->session,
        .record = r->call_record,
        .go = go,
        .arg = r };
    return cost_ask_begin(&r->cost, &r->tree->budget, err);
}

static void model_call_go(void *run);

static int start_call(
    struct rlm_run *r, const struct lm_request *request, size_t bytes, struct error *err)
{
    struct lm_request keyed = *request;
    keyed.retry = model_retried;
    keyed.hold = r->tree->o.hold;
    char key[LM_KEY_SIZE];
    bool streamed = r->tree->o.event && !r->of && !r->place.parent && !r->compacting;
    const struct budget_call call = { .model = r->model ? r->model : lm_name(r->lm),
        .depth = r->place.depth,
        .prompt_bytes = bytes,
        .max_tokens = request->max_tokens,
        .lm = r->lm,
        .lm_model = r->model,
        .account = &r->account };
    bool asks = cost_ask_is_due(&r->tree->budget, &call), asked = r->asked_key[0] != '\0';
    int rc = asks ? 0 : budget_hold(&r->tree->budget, &call, &r->hold, err);
    if (rc == 0 && !keyed.key) {
        rc = lm_key(key, err);
        keyed.key = key;
    }
    if (rc == 0 && !asked)
        rc = run_record_call(r, keyed.key, err);
    if (rc == 0 && asks)
        return model_call_ask(r, &call, keyed.key, model_call_go, err);
    r->asked_key[0] = '\0';
    if (rc == 0)
        tell_request(r);
    run_owner(r)->recorded = run_owner(r)->message_count;
    if (rc == 0)
        rc =
            lm_start(r->lm, &keyed, model_replied, streamed ? model_delta : NULL, r, &r->call, err);
    return rc;
}

/* The call did not start. */
static void give_call_up(struct rlm_run *r, int64_t place, const struct error *why)
{
    struct lm_reply never = { .error = *why, .text = "", .finish = "" };
    budget_release(&r->tree->budget, &r->hold);
    budget_unreserve(&r->tree->budget, place);
    if (budget_is_refused_above(&r->tree->budget))
        r->call_record = 0;
    run_record_call_end(r, &never, NULL);
}

static int begin_call(struct rlm_run *r, struct lm_request *request, size_t bytes,
    const struct recorded_call *recorded, struct error *err)
{
    int64_t place = model_call_count_place(r, recorded);
    int rc = reserve_call(r, place, err);
    if (rc < 0)
        return rc;
    r->asked_key[0] = '\0';
    if (recorded) {
        r->call_record = recorded->id;
        request->key = recorded->key[0] ? recorded->key : NULL;
    }
    rc = start_call(r, request, bytes, err);
    if (rc < 0)
        give_call_up(r, place, err);
    return rc;
}

/* The conversation as a request; its memory is that of `messages` and `parts`. */
static int build_request(struct rlm_run *r, struct lm_message **out_messages,
    struct lm_part **out_parts, struct lm_request *out, size_t *bytes, struct error *err)
{
    const struct rlm_run *owner = run_owner(r); /* has the conversation */
    size_t part_count = 0;
    for (size_t i = 0; i < owner->message_count; i++)
        part_count += owner->messages[i].images.count > 0 ? 1 + owner->messages[i].images.count : 0;
    struct lm_message *messages = *out_messages = calloc(owner->message_count, sizeof *messages);
    struct lm_part *next = *out_parts = calloc(part_count + 1, sizeof *next);
    if (!messages || !next)
        return error_memory(err);
    *bytes = 0;
    for (size_t i = 0; i < owner->message_count; i++) {
        messages[i] = (struct lm_message){ .role = owner->messages[i].role,
            .text = owner->messages[i].text,
            .len = owner->messages[i].len };
        if (owner->messages[i].images.count > 0) {
            messages[i].parts = next;
            messages[i].part_count = images_parts(&owner->messages[i], next);
            next += messages[i].part_count;
        }
        *bytes += owner->messages[i].len + LM_IMAGE_WEIGHT * owner->messages[i].images.count;
    }
    *out = (struct lm_request){ .model = r->model,
        .messages = messages,
        .message_count = owner->message_count,
        .depth = r->place.depth,
        .sample = r->candidate,
        .timeout = r->tree->o.call_timeout,
        .traceparent = r->tree->o.traceparent,
        .is_recorded = true,
        .max_tokens = r->place.parent ? r->tree->o.sub_max_tokens : r->tree->o.max_tokens,
        .temperature = -1 };
    return 0;
}

/* Its costs were approved, or denied: then the budget refuses it. */
static void model_call_go(void *arg)
{
    struct rlm_run *r = arg;
    cleanup_free struct lm_message *messages = NULL;
    cleanup_free struct lm_part *parts = NULL;
    struct lm_request request;
    struct error err = { 0 };
    char key[LM_KEY_SIZE];
    size_t bytes;
    int rc = build_request(r, &messages, &parts, &request, &bytes, &err);
    snprintf(key, sizeof key, "%s", r->asked_key);
    request.key = key;
    if (rc == 0)
        rc = start_call(r, &request, bytes, &err);
    if (rc == 0)
        return;
    give_call_up(r, 0, &err);
    model_failed(r, &err);
}

int model_call_begin(struct rlm_run *r, struct error *err)
{
    cleanup_free struct lm_message *messages = NULL;
    cleanup_free struct lm_part *parts = NULL;
    struct lm_request request;
    struct recorded_call *recorded = NULL;
    size_t bytes = 0;
    int rc = r->resume ? replay_next_call(r, &recorded, err) : 0;
    if (rc == 0)
        rc = build_request(r, &messages, &parts, &request, &bytes, err);
    if (rc < 0)
        return rc;
    return recorded && recorded->ended ? replay_reply(r, recorded, &request, err)
                                       : begin_call(r, &request, bytes, recorded, err);
}
