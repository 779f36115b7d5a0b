/* broker/broker.c: see broker.h.
 *
 * An `ask` is one call of a guest, its `items` the prompts. An item's model call begins in the
 * record before it is started and ends there before its answer goes to the guest; a child run keeps
 * its own record. In a run that is resumed, an item is first looked for in the record (known.c).
 *
 * What a call says in its head: `name`, the function; `model`, for all prompts; for llm_query
 * `messages`, the indices of prompts that are lists of messages as JSON; for rlm_query `kinds`, what
 * the parts behind the prompts are (contexts), and `of`, for each prompt the index of its context,
 * or -1. The answers of rlm_query are JSON. For tool it is `tool`, the name, and the one part are the
 * arguments, a JSON object (tool_call.c).
 */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "broker/internal.h"
#include "broker/prompt.h"
#include "lm/request.h"

enum {
    UNDER_WAY_MAX = 64 << 20, /* bytes of prompts that wait for answers when one more call comes */
    PROMPT_MAX = 32000,       /* bytes of a child run's prompt that its model is shown */
};

/* A longer one, without a context, is itself the context: a model cannot be told to read what fills
 * its window. */
static const char large_prompt[] =
    "Your task is too long to be shown here: it is the str `context`, what is to be done together "
    "with what it is to be done with. Read its beginning and its end first, and do what it asks.";

int broker_open(const struct broker_options *options, struct broker **out, struct error *err)
{
    struct broker *b = calloc(1, sizeof *b);
    if (!b)
        return error_memory(err);
    b->options = *options;
    if (options->recorded && !(b->doubt = timer_new(options->loop, known_doubt, b))) {
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

/* NULL: it has none. */
static struct json_object *item_error(const struct item *item)
{
    struct json_object *o = NULL;
    if (item->error.code != ERROR_NONE)
        return error_object(&item->error);
    if (item->failure)
        json_parse(item->failure, strlen(item->failure), &json_limits_large, &o, NULL);
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
    for (size_t i = 0; i < ask->context_count; i++)
        given_drop(ask->contexts[i]);
    free(ask->contexts);
    for (size_t i = 0; i < ask->count; i++) {
        free(ask->items[i].text);
        free(ask->items[i].kept);
        free(ask->items[i].failure);
    }
    free(ask->model);
    free(ask);
}

static struct json_object *reply_head(const struct ask *ask)
{
    struct json_object *head = json_object_new_object(), *errors = NULL;
    for (size_t i = 0; head && i < ask->count; i++) {
        char key[24];
        struct json_object *error = item_error(&ask->items[i]);
        if (!error)
            continue;
        if (!errors) {
            errors = json_object_new_object();
            json_put(head, "errors", errors);
        }
        snprintf(key, sizeof key, "%zu", i);
        json_put(errors, key, error);
    }
    return head;
}

void ask_reply(struct ask *ask)
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

void item_over(struct item *item)
{
    struct ask *ask = item->ask;
    ask->done++;
    if (ask->done == ask->count && !ask->starting)
        ask_reply(ask);
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
        .cost = r->cost,
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

static void tell_changed(struct broker *b)
{
    if (b->options.changed)
        b->options.changed(b->options.arg);
}

/* The text of an answer, in the form that its function gives it. */
void item_keep_text(struct item *item, const char *text, size_t len, bool quote)
{
    struct buf quoted = { 0 };
    if (quote) {
        json_append_string(&quoted, text, len);
        item->len = quoted.len;
        item->text = buf_steal(&quoted);
    } else {
        item->len = len;
        item->text = text_copy(text, len);
    }
    if (item->text)
        return;
    item->len = 0;
    error_memory(&item->error);
}

static void item_done(void *arg, const struct lm_reply *r)
{
    struct item *item = arg;
    struct broker *b = item->ask->broker;
    item->call = NULL;
    budget_settle(b->options.budget, &item->hold, r);
    item->error = r->error;
    record_end(item, r);
    if (item->error.code == ERROR_NONE)
        item_keep_text(item, r->text, r->len, item->is_run);
    tell_changed(b);
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
        .kind = item->is_run ? "plain" : "sub",
        .model = model,
        .request = { text, len },
        .key = key,
    };
    return b->options.store ? store_call_begin(b->options.store, &begin, &item->record, err) : 0;
}

int item_begin(struct item *item, const struct lm_request *request, const struct budget_call *call,
    const char *text, size_t len, struct error *err)
{
    struct broker *b = item->ask->broker;
    struct lm_request keyed = *request;
    char key[LM_KEY_SIZE];
    int rc = known_may_ask(item, err);
    if (rc == 0)
        rc = budget_hold(b->options.budget, call, &item->hold, err);
    if (rc == 0 && !keyed.key) {
        rc = lm_key(key, err);
        keyed.key = key;
    }
    if (rc == 0)
        rc = record_begin(item, call->model, keyed.key, text, len, err);
    if (rc == 0)
        rc = lm_start(b->options.lm, &keyed, item_done, NULL, item, &item->call, err);
    if (rc < 0) {
        budget_release(b->options.budget, &item->hold);
        struct lm_reply never = { .error = *err, .text = "", .finish = "" };
        if (budget_is_refused_above(b->options.budget))
            item->record = 0;
        record_end(item, &never);
        return rc;
    }
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
    int rc = o->recorded ? known_start(item, request, &call, text, len, err) : 0;
    if (rc == 0)
        rc = item_begin(item, request, &call, text, len, err);
    return rc < 0 ? rc : 0;
}

static int start_messages(
    struct item *item, const char *text, size_t len, bool is_messages, struct error *err)
{
    struct prompt prompt;
    int rc = prompt_open(&prompt, text, len, is_messages, err);
    if (rc < 0)
        return rc;
    struct lm_request request = { .messages = prompt.messages, .message_count = prompt.count };
    rc = start_request(item, &request, text, len, err);
    prompt_close(&prompt);
    return rc;
}

static int start_prompt(struct item *item, const char *text, size_t len, struct error *err)
{
    return start_messages(item, text, len, item->is_messages, err);
}

/* ---- one child run ---- */

static void child_done(void *arg, const char *json, size_t len, const struct error *error)
{
    struct item *item = arg;
    struct broker *b = item->ask->broker;
    item->child = NULL;
    item->error = *error;
    if (json)
        item_keep_text(item, json, len, false);
    tell_changed(b);
    item_over(item);
}

/* The prompt with the context behind it. */
static int plain_text(
    const struct item *item, const char *prompt, size_t len, struct buf *out, struct error *err)
{
    size_t n = 0;
    const char *context = item->context ? given_bytes(item->context, &n) : NULL;
    buf_append(out, prompt, len);
    if (context) {
        buf_puts(out, "\n\nContext:\n");
        buf_append(out, context, n);
    }
    return buf_failed(out) ? error_memory(err) : 0;
}

/* No child run may begin here: a model is asked. */
static int start_plain(struct item *item, const char *prompt, size_t len, struct error *err)
{
    cleanup_buf struct buf whole = { 0 };
    size_t n = 0;
    const char *context = item->context ? given_bytes(item->context, &n) : "";
    if (!text_is_utf8(context, n, NULL))
        return error_set(err, ERROR_ARGUMENT,
            "a context of bytes needs a child run, and none may begin here (max-recursion-depth)");
    int rc = plain_text(item, prompt, len, &whole, err);
    return rc < 0 ? rc : start_messages(item, whole.data, whole.len, false, err);
}

static bool is_large(const struct item *item, size_t len)
{
    return !item->context && len > PROMPT_MAX;
}

int item_begin_run(struct item *item, const char *prompt, size_t len,
    const struct recorded_run *known, struct error *err)
{
    struct broker *b = item->ask->broker;
    int may = known_may_ask(item, err);
    if (may < 0)
        return may;
    struct given *large = is_large(item, len) ? given_new(VALUE_TEXT, prompt, len) : NULL;
    struct broker_child child = { .prompt = large ? large_prompt : prompt,
        .len = large ? strlen(large_prompt) : len,
        .context = large ? large : item->context,
        .model = item->ask->model,
        .cell = b->cell,
        .resume = known ? known->id : NULL,
        .reserved = !known || !known->begun };
    if (is_large(item, len) && !large)
        return error_memory(err);
    int rc = b->options.children->start(
        b->options.children_arg, &child, child_done, item, &item->child, err);
    given_drop(large);
    return rc;
}

static int start_run(struct item *item, const char *prompt, size_t len, struct error *err)
{
    struct broker_options *o = &item->ask->broker->options;
    item->is_run = true;
    int rc = prompt_check(prompt, len, err);
    if (rc == 0 && memchr(prompt, '\0', len))
        rc = error_set(err, ERROR_ARGUMENT, "the prompt of a child run has a zero byte in it");
    if (rc < 0)
        return rc;
    if (!o->children)
        return start_plain(item, prompt, len, err);
    rc = o->recorded ? known_start_run(item, prompt, len, err) : 0;
    if (rc == 0)
        rc = item_begin_run(item, prompt, len, NULL, err);
    return rc < 0 ? rc : 0;
}

/* ---- one call of a guest ---- */

static size_t list_length(struct json_object *list)
{
    return list ? json_object_array_length(list) : 0;
}

/* The indices that the head lists are prompts of several messages. */
static int take_messages(
    struct ask *ask, struct json_object *head, struct frame_parts *contexts, struct error *err)
{
    struct json_object *list = json_get_typed(head, "messages", json_type_array);
    size_t count = list_length(list);
    for (size_t i = 0; i < count; i++) {
        int64_t index = json_object_get_int64(json_object_array_get_idx(list, i));
        if (index >= 0 && (size_t)index < ask->count)
            ask->items[index].is_messages = true;
    }
    return 0;
}

static int take_contexts(
    struct ask *ask, struct json_object *head, struct frame_parts *parts, struct error *err)
{
    struct json_object *kinds = json_get_typed(head, "kinds", json_type_array);
    struct json_object *of = json_get_typed(head, "of", json_type_array);
    size_t count = list_length(kinds), len;
    const char *data;
    ask->contexts = count ? calloc(count, sizeof *ask->contexts) : NULL;
    if (count && !ask->contexts)
        return error_memory(err);
    for (; ask->context_count < count && frame_parts_next(parts, &data, &len);
         ask->context_count++) {
        enum value_kind kind;
        const char *word =
            json_object_get_string(json_object_array_get_idx(kinds, ask->context_count));
        if (context_kind_parse(word ? word : "", &kind, err) < 0)
            return -(int)ERROR_ARGUMENT;
        struct given *given = given_new(kind, data, len);
        if (!given)
            return error_memory(err);
        ask->contexts[ask->context_count] = given;
    }
    for (size_t i = 0; i < ask->count && i < list_length(of); i++) {
        int64_t index = json_object_get_int64(json_object_array_get_idx(of, i));
        if (index >= 0 && (size_t)index < ask->context_count)
            ask->items[i].context = ask->contexts[index];
    }
    return 0;
}

/* Looks in the record for what the prompt asks. */
static int find_prompt(struct item *item, const char *text, size_t len, struct error *err)
{
    return known_find_call(item, text, len, err);
}

static int find_run(struct item *item, const char *text, size_t len, struct error *err)
{
    cleanup_buf struct buf whole = { 0 };
    char hash[HASH_TEXT_SIZE] = "";
    if (!item->ask->broker->options.children) {
        int rc = plain_text(item, text, len, &whole, err);
        return rc < 0 ? rc : known_find_call(item, buf_text(&whole), whole.len, err);
    }
    if (is_large(item, len)) {
        int rc = hash_sha256(text, len, hash, err);
        return rc < 0 ? rc : known_find_run(item, large_prompt, strlen(large_prompt), hash, err);
    }
    const char *context = item->context ? given_hash(item->context, err) : hash;
    return context ? known_find_run(item, text, len, context, err) : -(int)ERROR_IO;
}

/* What guests may ask for. */
static const struct function {
    const char *name;
    int (*start)(struct item *item, const char *text, size_t len, struct error *err);
    /* What else the head says; `rest` are the parts behind the prompts. */
    int (*take)(
        struct ask *ask, struct json_object *head, struct frame_parts *rest, struct error *err);
    int (*find)(struct item *item, const char *text, size_t len, struct error *err);
    bool needs_model;
} functions[] = {
    { "llm_query", start_prompt, take_messages, find_prompt, true },
    { "rlm_query", start_run, take_contexts, find_run, true },
    { "tool", tool_start, tool_take, tool_find, false },
};

static const struct function *find_function(const char *name)
{
    for (size_t i = 0; i < array_length(functions); i++)
        if (strcmp(functions[i].name, name) == 0)
            return &functions[i];
    return NULL;
}

/* The prompts come first, then the contexts that the head has kinds of. */
static size_t count_prompts(const struct session_call *call)
{
    size_t contexts = list_length(json_get_typed(call->head, "kinds", json_type_array));
    return contexts < call->parts.count ? call->parts.count - contexts : 0;
}

static int check_call(struct broker *b, const struct session_call *call, struct error *err)
{
    const char *name = json_get_string(call->head, "name", "");
    size_t prompts = count_prompts(call);
    const struct function *function = find_function(name);
    if (!function)
        return error_set(err, ERROR_ARGUMENT, "the host has no function '%.64s'", name);
    if (function->needs_model && !b->options.lm)
        return error_set(err, ERROR_CONFIG,
            "no model is configured: give one with --model, DROSTE_MODEL or config.ini");
    if (prompts == 0)
        return error_set(err, ERROR_ARGUMENT, "a call without a prompt");
    if (b->under_way > UNDER_WAY_MAX)
        return error_set(err, ERROR_BUDGET,
            "prompts of %zu MiB wait for their answers already; ask again when some have come",
            b->under_way >> 20);
    return 0;
}

static bool is_open(const struct item *item)
{
    return item->call || item->child || item->tool || item->waits != WAITS_NOT;
}

/* Ends an item that nobody waits for any more; what it has cost is settled. */
static void cancel_item(struct item *item, const struct error *why)
{
    struct broker *b = item->ask->broker;
    struct lm_reply cancelled = { 0 };
    item->error = *why;
    if (item->waits != WAITS_NOT) {
        known_cancel(item);
        return;
    }
    if (item->child) {
        b->options.children->cancel(steal(&item->child), why);
        return;
    }
    if (item->tool) {
        tool_cancel(item);
        return;
    }
    lm_cancel(steal(&item->call), &cancelled);
    cancelled.error = *why;
    budget_settle(b->options.budget, &item->hold, &cancelled);
    record_end(item, &cancelled);
}

/* Its open items get the error, the others what has come. */
static void give_up(struct ask *ask, const struct error *why)
{
    struct broker *b = ask->broker;
    for (size_t i = 0; i < ask->count; i++)
        if (is_open(&ask->items[i]))
            cancel_item(&ask->items[i], why);
    ask_reply(ask);
    tell_changed(b);
}

void broker_give_up(struct broker *b, struct session *s, const struct error *why)
{
    for (struct ask *ask = b->asks, *next; ask; ask = next) {
        next = ask->next;
        if (ask->session == s)
            give_up(ask, why);
    }
}

/* True where the tool has less time than any call. */
static bool waits_for_tool(const struct ask *ask)
{
    const struct broker_options *o = &ask->broker->options;
    return ask->is_tool && o->tool_timeout > 0 &&
           (o->answer_timeout <= 0 || o->tool_timeout < o->answer_timeout);
}

static double seconds_for(const struct ask *ask)
{
    const struct broker_options *o = &ask->broker->options;
    return waits_for_tool(ask) ? o->tool_timeout : o->answer_timeout;
}

static void patience_is_over(void *arg)
{
    struct ask *ask = arg;
    struct error why = { 0 };
    error_set(&why, ERROR_TIMEOUT, "no answer within %g s (%s); the call was cancelled",
        seconds_for(ask), waits_for_tool(ask) ? "tool-timeout" : "broker-timeout");
    give_up(ask, &why);
}

static int begin_patience(struct ask *ask, struct error *err)
{
    struct broker_options *o = &ask->broker->options;
    double seconds = seconds_for(ask);
    if (seconds <= 0)
        return 0;
    ask->patience = timer_new(o->loop, patience_is_over, ask);
    if (!ask->patience)
        return error_memory(err);
    timer_start(ask->patience, (uint64_t)(seconds * 1000 + 0.5), 0);
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

void item_start(struct item *item, const char *text, size_t len)
{
    item->asked = text;
    item->asked_len = len;
    if (item->ask->function->start(item, text, len, &item->error) == 0)
        return;
    budget_unreserve(item->ask->broker->options.budget, item->reserved);
    item_over(item);
}

static void start_items(struct ask *ask, struct frame_parts parts)
{
    const char *text;
    size_t len;
    for (size_t i = 0; i < ask->count && frame_parts_next(&parts, &text, &len); i++)
        item_start(&ask->items[i], text, len);
}

/* Room in the budget for the prompts that the record knows nothing of: the others had theirs. */
static int reserve(struct ask *ask, struct frame_parts parts, struct error *err)
{
    struct broker_options *o = &ask->broker->options;
    const char *text;
    size_t len;
    int64_t fresh = 0;
    int rc = 0;
    for (size_t i = 0; i < ask->count && rc == 0 && frame_parts_next(&parts, &text, &len); i++) {
        struct item *item = &ask->items[i];
        item->ask = ask;
        rc = o->recorded ? ask->function->find(item, text, len, err) : 0;
        item->reserved = item->known || item->known_run ? 0 : 1;
        fresh += item->reserved;
    }
    if (rc == 0 && fresh > 0)
        rc = ask->is_tool ? budget_reserve_tool(o->budget, err)
                          : budget_reserve(o->budget, fresh, err);
    if (ask->is_tool)
        ask->items[0].reserved = 0; /* none of a model's */
    for (size_t i = ask->count; rc < 0 && i-- > 0;)
        known_forget(&ask->items[i]);
    return rc;
}

/* What the head says of the prompts, and the time for them. */
static int prepare(struct ask *ask, const struct session_call *call, struct error *err)
{
    struct frame_parts rest = call->parts;
    const char *text;
    size_t len;
    for (size_t i = 0; i < ask->count; i++)
        frame_parts_next(&rest, &text, &len);
    int rc = ask->function->take(ask, call->head, &rest, err);
    if (rc == 0)
        rc = begin_patience(ask, err);
    return rc < 0 ? rc : reserve(ask, call->parts, err);
}

static struct ask *new_ask(
    struct broker *b, struct session *s, const struct session_call *call, struct error *err)
{
    const char *model = json_get_string(call->head, "model", NULL);
    size_t count = count_prompts(call);
    struct ask *ask = calloc(1, sizeof *ask + count * sizeof(struct item));
    if (ask)
        *ask = (struct ask){ .next = b->asks,
            .broker = b,
            .session = s,
            .id = call->id,
            .function = find_function(json_get_string(call->head, "name", "")),
            .model = model ? strdup(model) : NULL,
            .count = count,
            .bytes = count_bytes(call->parts),
            .starting = true };
    if (!ask || (model && !ask->model) || prepare(ask, call, err) < 0) {
        if (!ask || (model && !ask->model))
            error_memory(err);
        if (ask)
            free_ask(ask);
        return NULL;
    }
    return ask;
}

void broker_call(struct broker *b, struct session *s, const struct session_call *call)
{
    struct error err = { 0 };
    struct ask *ask = check_call(b, call, &err) < 0 ? NULL : new_ask(b, s, call, &err);
    if (!ask) {
        refuse(s, call->id, &err);
        return;
    }
    b->asks = ask;
    b->under_way += ask->bytes;
    start_items(ask, call->parts);
    ask->starting = false;
    if (ask->done == ask->count)
        ask_reply(ask);
    if (b->parked)
        known_start_waiting(b);
}

static void cancel_ask(struct ask *ask)
{
    struct error why = { 0 };
    error_set(&why, ERROR_CANCELLED, "nobody waits for the answer any more");
    unlink_ask(ask);
    for (size_t i = 0; i < ask->count; i++)
        if (is_open(&ask->items[i]))
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
