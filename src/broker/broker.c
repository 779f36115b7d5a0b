/* broker/broker.c: see broker.h.
 *
 * An `ask` is one call of a guest, its `items` the prompts. An item's model call begins in the
 * record before it is started and ends there before its answer goes to the guest. In a run that is
 * resumed, an item is first looked for in the record (ask_record).
 */
#include "broker/broker.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/text.h"

enum {
    MESSAGES_MAX = 10000,
    UNDER_WAY_MAX = 64 << 20, /* bytes of prompts that wait for answers when one more call comes */
    DOUBT_MS = 2000, /* how long threads may take to come in the order in which they came before */
    SHOWN_MAX = 40,  /* bytes of a prompt in an error */
};

/* Of an item in a run that is resumed. */
enum waits {
    WAITS_NOT,
    WAITS_FOR_OTHERS, /* the record has calls of this cell that should come, and not this one */
    WAITS_FOR_CELL,   /* its answer came after the end of the cell, and must not come before now */
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
    enum waits waits;
    char *prompt, *model; /* of one that waits for others */
    size_t prompt_len;
    struct recorded_call *known; /* of one that waits for its cell */
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
    struct timer *doubt; /* about items that wait for others */
    bool parked;         /* there may be such */
};

static void doubt_is_over(void *arg);
static void start_waiting(struct broker *b, enum waits most);

int broker_open(const struct broker_options *options, struct broker **out, struct error *err)
{
    struct broker *b = calloc(1, sizeof *b);
    if (!b)
        return error_memory(err);
    b->options = *options;
    if (options->recorded && !(b->doubt = timer_new(options->loop, doubt_is_over, b))) {
        free(b);
        return error_memory(err);
    }
    *out = b;
    return 0;
}

void broker_abandon(struct broker *b)
{
    b->options.store = NULL;
}

void broker_place(struct broker *b, int64_t turn, int64_t cell)
{
    b->turn = turn;
    b->cell = cell;
    if (b->options.recorded)
        start_waiting(b, WAITS_FOR_CELL);
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
    for (size_t i = 0; i < ask->count; i++) {
        free(ask->items[i].text);
        free(ask->items[i].prompt);
        free(ask->items[i].model);
    }
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
    if (item->record && b->options.store &&
        store_call_end(b->options.store, item->record, &end, &err) < 0 && !failed)
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

/* The call's key is in the record before the call is made, so that it can be made again as itself. */
static int record_begin(struct item *item, const char *model, const char *key, const char *text,
    size_t len, struct error *err)
{
    struct broker *b = item->ask->broker;
    if (item->record) /* it began in an earlier life of the run */
        return store_call_repeat(b->options.store, item->record, err);
    struct store_call_begin begin = {
        .run = b->options.run,
        .turn = b->turn,
        .cell = b->cell,
        .depth = b->options.depth,
        .kind = "sub",
        .model = model ? model : lm_name(b->options.lm),
        .request = { text, len },
        .key = key,
    };
    return b->options.store ? store_call_begin(b->options.store, &begin, &item->record, err) : 0;
}

static int begin_request(
    struct item *item, struct lm_request *request, const char *text, size_t len, struct error *err)
{
    struct broker *b = item->ask->broker;
    char key[LM_KEY_SIZE];
    int rc = budget_hold(b->options.budget, len, &item->hold, err);
    if (rc == 0 && !request->key) {
        rc = lm_key(key, err);
        request->key = key;
    }
    if (rc == 0)
        rc = record_begin(item, request->model, request->key, text, len, err);
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

/* ---- what the record knows of it ---- */

static void give_known(struct item *item, const struct recorded_call *call)
{
    struct broker *b = item->ask->broker;
    struct buf text = { 0 };
    item->error = call->error;
    if (item->error.code == ERROR_NONE &&
        recorded_read(b->options.recorded, &call->reply, &text, &item->error) == 0) {
        item->len = text.len;
        item->text = buf_steal(&text);
    }
    buf_free(&text);
    item_over(item);
}

static int take_known(struct item *item, struct recorded_call *call, struct lm_request *request,
    const char *text, size_t len, struct error *err)
{
    struct broker *b = item->ask->broker;
    recorded_take(b->options.recorded, call);
    if (!call->ended) {
        item->record = call->id;
        request->key = call->key[0] ? call->key : NULL;
        return begin_request(item, request, text, len, err);
    }
    int rc = lm_pass(b->options.lm, request, err);
    if (rc < 0)
        return rc;
    if (call->late) {
        item->waits = WAITS_FOR_CELL;
        item->known = call;
        return 0;
    }
    give_known(item, call);
    return 0;
}

static int wait_for_others(struct item *item, const struct lm_request *request, const char *text,
    size_t len, struct error *err)
{
    struct broker *b = item->ask->broker;
    item->prompt = text_copy(text, len);
    item->prompt_len = len;
    item->model = request->model ? strdup(request->model) : NULL;
    if (!item->prompt || (request->model && !item->model))
        return error_memory(err);
    item->waits = WAITS_FOR_OTHERS;
    b->parked = true;
    return 0;
}

/* Stops the run: the code asks for `text`, and the record knows nothing of that. */
static void diverge(struct broker *b, const char *text, size_t len)
{
    struct recorded *r = b->options.recorded;
    struct recorded_cell *cell = recorded_cell_find(r, b->cell);
    struct recorded_call *unasked = recorded_unasked(r, b->cell);
    cleanup_buf struct buf shown = { 0 };
    struct error why = { 0 };
    size_t n = len > SHOWN_MAX ? text_utf8_floor(text, len, SHOWN_MAX) : len;
    text_append_visible(&shown, text, n);
    for (size_t i = 0; i < shown.len; i++)
        if (shown.data[i] == '\n')
            shown.data[i] = ' ';
    error_set(&why, ERROR_MODEL_REPLAY,
        "turn %lld, cell %lld, call %lld: the code asks for '%.80s%s', which is not what the "
        "record "
        "says; the run cannot be resumed",
        (long long)b->turn, (long long)(cell ? cell->number : 0),
        (long long)(unasked ? unasked->number : recorded_asked(r, b->cell) + 1), buf_text(&shown),
        n < len ? "…" : "");
    b->options.diverged(b->options.arg, &why);
}

/* 1: the item is taken care of; 0: it is to be begun, as the record knows nothing of it. */
static int ask_record(
    struct item *item, struct lm_request *request, const char *text, size_t len, struct error *err)
{
    struct broker *b = item->ask->broker;
    struct recorded *r = b->options.recorded;
    char hash[HASH_TEXT_SIZE];
    if (!r)
        return 0;
    int rc = hash_sha256(text, len, hash, err);
    if (rc < 0)
        return rc;
    struct recorded_call *call =
        recorded_find(r, b->cell, request->model, lm_name(b->options.lm), hash);
    struct recorded_cell *cell = recorded_cell_find(r, b->cell);
    if (call)
        rc = take_known(item, call, request, text, len, err);
    else if (!cell || (!cell->ended && cell->calls == 0))
        return 0;
    else if (cell->calls > 0) {
        rc = wait_for_others(item, request, text, len, err);
        timer_start(b->doubt, DOUBT_MS, 0);
    } else {
        /* It may have been refused then, and is again: the record has what was begun only. */
        rc = budget_hold(b->options.budget, len, &item->hold, err);
        if (rc < 0)
            return rc;
        budget_release(b->options.budget, &item->hold);
        rc = wait_for_others(item, request, text, len, err);
        diverge(b, text, len);
    }
    return rc < 0 ? rc : 1;
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
    int rc = ask_record(item, request, text, len, err);
    if (rc == 0)
        rc = begin_request(item, request, text, len, err);
    return rc < 0 ? rc : 0;
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

static void start_again(struct item *item)
{
    enum waits waited = item->waits;
    cleanup_free char *prompt = steal(&item->prompt), *model = steal(&item->model);
    item->waits = WAITS_NOT;
    if (waited == WAITS_FOR_CELL)
        give_known(item, item->known);
    else if (start_item(item, model, prompt, item->prompt_len, &item->error) < 0)
        item_over(item);
}

/* Items that wait for no more than this look again. */
static void start_waiting(struct broker *b, enum waits most)
{
    b->parked = false;
    for (struct ask *ask = b->asks, *next; ask; ask = next) {
        next = ask->next;
        ask->starting = true;
        for (size_t i = 0; i < ask->count; i++)
            if (ask->items[i].waits != WAITS_NOT && ask->items[i].waits <= most)
                start_again(&ask->items[i]);
        ask->starting = false;
        if (ask->done == ask->count)
            reply(ask);
    }
}

/* Whoever should have come first has not come. */
static void doubt_is_over(void *arg)
{
    struct broker *b = arg;
    for (struct ask *ask = b->asks; ask; ask = ask->next)
        for (size_t i = 0; i < ask->count; i++) {
            if (ask->items[i].waits != WAITS_FOR_OTHERS)
                continue;
            diverge(b, ask->items[i].prompt, ask->items[i].prompt_len);
            return;
        }
}

/* How many of the call's prompts the record knows nothing of: the others were reserved before. */
static int64_t count_new(struct broker *b, const struct session_call *call)
{
    struct recorded *r = b->options.recorded;
    size_t known = 0, count = call->parts.count;
    const char *model = json_get_string(call->head, "model", NULL), *text;
    size_t len;
    struct frame_parts parts = call->parts;
    cleanup_free struct recorded_call **taken = r ? calloc(count, sizeof *taken) : NULL;
    while (taken && frame_parts_next(&parts, &text, &len)) {
        char hash[HASH_TEXT_SIZE];
        if (hash_sha256(text, len, hash, NULL) < 0)
            break;
        taken[known] = recorded_find(r, b->cell, model, lm_name(b->options.lm), hash);
        if (taken[known])
            recorded_take(r, taken[known++]);
    }
    for (size_t i = known; i-- > 0;)
        recorded_untake(r, taken[i]);
    return (int64_t)(count - known);
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
    int64_t fresh = count_new(b, call);
    return fresh > 0 ? budget_reserve(b->options.budget, fresh, err) : 0;
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
    if (b->parked)
        start_waiting(b, WAITS_FOR_OTHERS);
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
    timer_free(b->doubt);
    free(b);
}
