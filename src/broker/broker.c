/* broker/broker.c: see broker.h.
 *
 * An `ask` is one call of a guest, its `items` the prompts. An item's model call begins in the
 * record before it is started and ends there before its answer goes to the guest.
 */
#include "broker/broker.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/text.h"

enum {
    MESSAGES_MAX = 10000,
    UNDER_WAY_MAX = 64 << 20, /* bytes of prompts that wait for answers when one more call comes */
};

struct item {
    struct ask *ask;
    struct lm_call *call; /* NULL once it ended, or before it began */
    int64_t record;       /* its id there; 0: none */
    struct budget_hold hold;
    char *text;
    size_t len;
    bool is_messages;
    struct error error;
};

struct ask {
    struct ask *next;
    struct broker *broker;
    struct session *session;
    uint64_t id;
    size_t count, done;
    size_t bytes;           /* of its prompts */
    bool starting;          /* within broker_call: the reply waits for its end */
    struct timer *patience; /* until the guest is told that no answer comes; NULL: for ever */
    struct item items[];
};

struct broker {
    struct broker_options options;
    int64_t turn, cell;
    unsigned pending;
    size_t under_way; /* bytes of prompts in `asks` */
    struct ask *asks;
};

int broker_open(const struct broker_options *options, struct broker **out, struct error *err)
{
    struct broker *b = calloc(1, sizeof *b);
    if (!b)
        return error_memory(err);
    b->options = *options;
    *out = b;
    return 0;
}

void broker_place(struct broker *b, int64_t turn, int64_t cell)
{
    b->turn = turn;
    b->cell = cell;
}

unsigned broker_pending(const struct broker *b)
{
    return b->pending;
}

/* ---- errors, as guests get them ---- */

static struct json_object *error_object(const struct error *e)
{
    struct json_object *o = json_object_new_object();
    cleanup_buf struct buf text = { 0 };
    text_append_utf8(&text, e->text, strlen(e->text));
    if (!o)
        return NULL;
    json_put_text(o, "code", error_code_name(e->code));
    json_put_text(o, "message", buf_text(&text));
    if (e->code == ERROR_ARGUMENT)
        json_put_text(o, "type", "ValueError");
    return o;
}

static void refuse(struct session *s, uint64_t id, const struct error *why)
{
    cleanup_json struct json_object *head = json_object_new_object();
    if (head && json_put(head, "error", error_object(why)))
        session_reply(s, id, head, NULL, 0, NULL);
}

/* ---- the end of an ask ---- */

static void unlink_ask(struct ask *ask)
{
    ask->broker->under_way -= ask->bytes;
    for (struct ask **at = &ask->broker->asks; *at; at = &(*at)->next) {
        if (*at != ask)
            continue;
        *at = ask->next;
        return;
    }
}

static void free_ask(struct ask *ask)
{
    timer_free(ask->patience);
    for (size_t i = 0; i < ask->count; i++)
        free(ask->items[i].text);
    free(ask);
}

static struct json_object *reply_head(const struct ask *ask)
{
    struct json_object *head = json_object_new_object(), *errors = NULL;
    for (size_t i = 0; head && i < ask->count; i++) {
        char key[24];
        if (ask->items[i].error.code == ERROR_NONE)
            continue;
        if (!errors) {
            errors = json_object_new_object();
            json_put(head, "errors", errors);
        }
        snprintf(key, sizeof key, "%zu", i);
        json_put(errors, key, error_object(&ask->items[i].error));
    }
    return head;
}

static void reply(struct ask *ask)
{
    cleanup_json struct json_object *head = reply_head(ask);
    cleanup_free struct session_part *parts = calloc(ask->count, sizeof *parts);
    struct error err = { 0 };
    unlink_ask(ask);
    for (size_t i = 0; parts && i < ask->count; i++)
        parts[i] = (struct session_part){ ask->items[i].text ? ask->items[i].text : "",
            ask->items[i].len };
    if (!parts || session_reply(ask->session, ask->id, head, parts, ask->count, &err) < 0)
        refuse(ask->session, ask->id, &err);
    free_ask(ask);
}

/* ---- one prompt ---- */

static void item_over(struct item *item)
{
    struct ask *ask = item->ask;
    ask->done++;
    if (ask->done == ask->count && !ask->starting)
        reply(ask);
}

struct store_call_end broker_call_end(const struct lm_reply *r)
{
    bool failed = r->error.code != ERROR_NONE;
    return (struct store_call_end){
        .status = failed ? error_code_name(r->error.code) : "ok",
        .error = failed ? r->error.text : NULL,
        .finish = r->finish,
        .reply = { r->text, r->len },
        .input_tokens = r->usage.input_tokens,
        .output_tokens = r->usage.output_tokens,
        .estimated = r->usage.estimated,
        .attempts = r->attempts,
        .seconds = r->seconds,
    };
}

static void record_end(struct item *item, const struct lm_reply *r)
{
    struct broker *b = item->ask->broker;
    bool failed = r->error.code != ERROR_NONE;
    struct store_call_end end = broker_call_end(r);
    struct error err = { 0 };
    /* An answer that could not be recorded is not given: a later resume would pay for it again. */
    if (item->record && store_call_end(b->options.store, item->record, &end, &err) < 0 && !failed)
        item->error = err;
    item->record = 0;
}

static void item_done(void *arg, const struct lm_reply *r)
{
    struct item *item = arg;
    struct broker *b = item->ask->broker;
    item->call = NULL;
    b->pending--;
    budget_settle(b->options.budget, &item->hold, &r->usage);
    item->error = r->error;
    record_end(item, r);
    if (item->error.code == ERROR_NONE) {
        item->text = text_copy(r->text, r->len);
        item->len = item->text ? r->len : 0;
        if (!item->text)
            error_memory(&item->error);
    }
    if (b->options.changed)
        b->options.changed(b->options.arg);
    item_over(item);
}

static int record_begin(
    struct item *item, const char *model, const char *text, size_t len, struct error *err)
{
    struct broker *b = item->ask->broker;
    struct store_call_begin begin = {
        .run = b->options.run,
        .turn = b->turn,
        .cell = b->cell,
        .depth = b->options.depth,
        .kind = "sub",
        .model = model ? model : lm_name(b->options.lm),
        .request = { text, len },
    };
    return b->options.store ? store_call_begin(b->options.store, &begin, &item->record, err) : 0;
}

static int start_request(
    struct item *item, struct lm_request *request, const char *text, size_t len, struct error *err)
{
    struct broker *b = item->ask->broker;
    double left = budget_seconds_left(b->options.budget);
    request->depth = b->options.depth;
    request->temperature = -1;
    request->max_tokens = b->options.max_tokens;
    request->timeout = b->options.call_timeout;
    if (request->timeout <= 0 || request->timeout > left)
        request->timeout = left < 1e9 ? left : request->timeout;
    int rc = budget_hold(b->options.budget, len, &item->hold, err);
    if (rc == 0)
        rc = record_begin(item, request->model, text, len, err);
    if (rc == 0)
        rc = lm_start(b->options.lm, request, item_done, NULL, item, &item->call, err);
    if (rc < 0) {
        budget_release(b->options.budget, &item->hold);
        struct lm_reply never = { .error = *err, .text = "", .finish = "" };
        record_end(item, &never);
        return rc;
    }
    b->pending++;
    return 0;
}

/* A prompt that is a list of messages, as JSON. */
static int start_messages(
    struct item *item, const char *model, const char *text, size_t len, struct error *err)
{
    cleanup_json struct json_object *list = NULL;
    int rc = json_parse(text, len, &json_limits_large, &list, err);
    if (rc < 0)
        return rc;
    size_t count = json_object_is_type(list, json_type_array) ? json_object_array_length(list) : 0;
    if (count == 0 || count > MESSAGES_MAX)
        return error_set(
            err, ERROR_ARGUMENT, "a prompt is a text or a list of 1 to %d messages", MESSAGES_MAX);
    cleanup_free struct lm_message *messages = calloc(count, sizeof *messages);
    if (!messages)
        return error_memory(err);
    for (size_t i = 0; i < count; i++) {
        struct json_object *m = json_object_array_get_idx(list, i), *content = NULL;
        json_object_object_get_ex(m, "content", &content);
        messages[i].role = json_get_string(m, "role", "");
        messages[i].text = json_get_string(m, "content", "");
        messages[i].len = content ? (size_t)json_object_get_string_len(content) : 0;
        if (strcmp(messages[i].role, "user") && strcmp(messages[i].role, "assistant") &&
            strcmp(messages[i].role, "system"))
            return error_set(err, ERROR_ARGUMENT,
                "the role of message %zu is '%.20s'; use system, user or assistant", i,
                messages[i].role);
    }
    struct lm_request request = { .model = model, .messages = messages, .message_count = count };
    return start_request(item, &request, text, len, err);
}

static int start_item(
    struct item *item, const char *model, const char *text, size_t len, struct error *err)
{
    struct lm_message message = { "user", text, len };
    struct lm_request request = { .model = model, .messages = &message, .message_count = 1 };
    size_t bad;
    if (item->is_messages)
        return start_messages(item, model, text, len, err);
    if (len == 0)
        return error_set(err, ERROR_ARGUMENT, "prompt cannot be empty");
    if (!text_is_utf8(text, len, &bad))
        return error_set(err, ERROR_ARGUMENT, "the prompt is not UTF-8 at byte %zu", bad);
    return start_request(item, &request, text, len, err);
}

/* ---- one call of a guest ---- */

/* The indices that the head lists are prompts of several messages. */
static void mark_messages(struct ask *ask, struct json_object *list)
{
    size_t count = list ? json_object_array_length(list) : 0;
    for (size_t i = 0; i < count; i++) {
        int64_t index = json_object_get_int64(json_object_array_get_idx(list, i));
        if (index >= 0 && (size_t)index < ask->count)
            ask->items[index].is_messages = true;
    }
}

static int check_call(struct broker *b, const struct session_call *call, struct error *err)
{
    const char *name = json_get_string(call->head, "name", "");
    if (strcmp(name, "llm_query") != 0)
        return error_set(err, ERROR_ARGUMENT, "the host has no function '%.64s'", name);
    if (!b->options.lm)
        return error_set(err, ERROR_CONFIG,
            "no model is configured: give one with --model, DROSTE_MODEL or config.ini");
    if (call->parts.count == 0)
        return error_set(err, ERROR_ARGUMENT, "a call without a prompt");
    if (b->under_way > UNDER_WAY_MAX)
        return error_set(err, ERROR_BUDGET,
            "prompts of %zu MiB wait for their answers already; ask again when some have come",
            b->under_way >> 20);
    return budget_reserve(b->options.budget, (int64_t)call->parts.count, err);
}

/* Ends an item's call that nobody waits for any more; what it has cost is settled. */
static void cancel_item(struct item *item, const struct error *why)
{
    struct broker *b = item->ask->broker;
    struct lm_reply cancelled = { .text = "", .finish = "", .error = *why };
    lm_cancel(steal(&item->call), &cancelled.usage);
    b->pending--;
    budget_settle(b->options.budget, &item->hold, &cancelled.usage);
    item->error = *why;
    record_end(item, &cancelled);
}

static void patience_is_over(void *arg)
{
    struct ask *ask = arg;
    struct broker *b = ask->broker;
    struct error why = { 0 };
    error_set(&why, ERROR_TIMEOUT, "no answer within %g s (broker-timeout); the call was cancelled",
        b->options.answer_timeout);
    for (size_t i = 0; i < ask->count; i++)
        if (ask->items[i].call)
            cancel_item(&ask->items[i], &why);
    reply(ask);
    if (b->options.changed)
        b->options.changed(b->options.arg);
}

static int begin_patience(struct ask *ask, struct error *err)
{
    struct broker_options *o = &ask->broker->options;
    if (o->answer_timeout <= 0)
        return 0;
    ask->patience = timer_new(o->loop, patience_is_over, ask);
    if (!ask->patience)
        return error_memory(err);
    timer_start(ask->patience, (uint64_t)(o->answer_timeout * 1000 + 0.5), 0);
    return 0;
}

static size_t count_bytes(struct frame_parts parts)
{
    const char *text;
    size_t len, bytes = 0;
    while (frame_parts_next(&parts, &text, &len))
        bytes += len;
    return bytes;
}

void broker_call(struct broker *b, struct session *s, const struct session_call *call)
{
    struct error err = { 0 };
    if (check_call(b, call, &err) < 0) {
        refuse(s, call->id, &err);
        return;
    }
    struct ask *ask = calloc(1, sizeof *ask + call->parts.count * sizeof(struct item));
    if (!ask) {
        error_memory(&err);
        refuse(s, call->id, &err);
        return;
    }
    *ask = (struct ask){ .next = b->asks,
        .broker = b,
        .session = s,
        .id = call->id,
        .count = call->parts.count,
        .bytes = count_bytes(call->parts),
        .starting = true };
    if (begin_patience(ask, &err) < 0) {
        refuse(s, call->id, &err);
        free(ask);
        return;
    }
    b->asks = ask;
    b->under_way += ask->bytes;
    const char *model = json_get_string(call->head, "model", NULL);
    mark_messages(ask, json_get_typed(call->head, "messages", json_type_array));
    struct frame_parts parts = call->parts;
    const char *text;
    size_t len;
    for (size_t i = 0; frame_parts_next(&parts, &text, &len); i++) {
        struct item *item = &ask->items[i];
        item->ask = ask;
        if (start_item(item, model, text, len, &item->error) < 0)
            item_over(item);
    }
    ask->starting = false;
    if (ask->done == ask->count)
        reply(ask);
}

static void cancel_ask(struct ask *ask)
{
    struct error why = { 0 };
    error_set(&why, ERROR_CANCELLED, "nobody waits for the answer any more");
    unlink_ask(ask);
    for (size_t i = 0; i < ask->count; i++)
        if (ask->items[i].call)
            cancel_item(&ask->items[i], &why);
    free_ask(ask);
}

void broker_drop(struct broker *b, struct session *s, uint64_t id)
{
    for (struct ask *ask = b->asks; ask; ask = ask->next) {
        if (ask->session != s || ask->id != id)
            continue;
        cancel_ask(ask);
        return;
    }
}

void broker_close(struct broker *b)
{
    if (!b)
        return;
    while (b->asks)
        cancel_ask(b->asks);
    free(b);
}
