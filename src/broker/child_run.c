/* broker/child_run.c: implements rlm_query: each prompt, optionally with a context, is a run of its
 * own, or a model call if no child run may start.
 */
#include "broker/child_run.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/hash.h"
#include "base/text.h"
#include "broker/ask.h"
#include "broker/fork_map.h"
#include "broker/model_call.h"
#include "broker/prompt.h"
#include "broker/replay/replay_log.h"
#include "broker/replay/replay_match.h"
#include "broker/shared_value.h"
#include "session/session.h"

enum { PROMPT_MAX = 32000 }; /* bytes of a prompt that the child's model sees */

/* A longer prompt without a context becomes the context itself, because it would fill the
 * model's context window. */
static const char large_prompt[] =
    "Your task is too long to be shown here: it is the str `context`, what is to be done together "
    "with what it is to be done with. Read its beginning and its end first, and do what it asks.";

static void child_done(void *arg, const char *json, size_t len, const struct error *error)
{
    struct item *item = arg;
    struct broker *b = item->ask->broker;
    item->child = NULL;
    item->error = *error;
    if (json)
        item_keep_text(item, json, len, false);
    broker_tell_changed(b);
    item_over(item);
}

void child_cancel(struct item *item, const struct error *why)
{
    item->ask->broker->options.children->cancel(steal(&item->child), why);
}

int child_take(
    struct ask *ask, struct json_object *head, struct frame_parts *parts, struct error *err)
{
    struct json_object *kinds = json_get_typed(head, "kinds", json_type_array);
    struct json_object *of = json_get_typed(head, "of", json_type_array);
    size_t count = json_length(kinds), len;
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
        struct shared_value *value = shared_value_new(kind, data, len);
        if (!value)
            return error_memory(err);
        ask->contexts[ask->context_count] = value;
    }
    for (size_t i = 0; i < ask->count && i < json_length(of); i++) {
        int64_t index = json_object_get_int64(json_object_array_get_idx(of, i));
        if (index >= 0 && (size_t)index < ask->context_count)
            ask->items[i].context = ask->contexts[index];
    }
    return 0;
}

static const char context_mark[] = "\n\nContext:\n";

/* Appends the context to the prompt. */
static int child_run_plain_text(
    const struct item *item, const char *prompt, size_t len, struct buf *out, struct error *err)
{
    size_t n = 0;
    const char *context = item->context ? shared_value_bytes(item->context, &n) : NULL;
    buf_append(out, prompt, len);
    if (context) {
        buf_puts(out, context_mark);
        buf_append(out, context, n);
    }
    return buf_failed(out) ? error_memory(err) : 0;
}

static bool is_large(const struct item *item, size_t len)
{
    return !item->context && len > PROMPT_MAX;
}

/* Does not record a child run's context: the parent's code produces it again. */
size_t child_record_bytes(const struct item *item, size_t len)
{
    size_t n = 0;
    if (item->ask->broker->options.children)
        return is_large(item, len) ? strlen(large_prompt) : len;
    if (item->context)
        shared_value_bytes(item->context, &n);
    return item->context ? len + strlen(context_mark) + n : len;
}

/* Computes the request as child_start will send it. */
int child_find(struct item *item, const char *text, size_t len, struct error *err)
{
    cleanup_buf struct buf whole = { 0 };
    char hash[HASH_TEXT_SIZE] = "";
    if (!item->ask->broker->options.children) {
        int rc = child_run_plain_text(item, text, len, &whole, err);
        return rc < 0 ? rc : replay_match_find_call(item, buf_text(&whole), whole.len, err);
    }
    if (is_large(item, len)) {
        int rc = hash_sha256(text, len, hash, err);
        return rc < 0 ? rc
                      : replay_match_find_run(item, large_prompt, strlen(large_prompt), hash, err);
    }
    const char *context = item->context ? shared_value_hash(item->context, err) : hash;
    return context ? replay_match_find_run(item, text, len, context, err) : -(int)ERROR_IO;
}

/* Asks a model instead of starting a child run. */
static int start_plain(struct item *item, const char *prompt, size_t len, struct error *err)
{
    cleanup_buf struct buf whole = { 0 };
    size_t n = 0;
    const char *context = item->context ? shared_value_bytes(item->context, &n) : "";
    if (!text_is_utf8(context, n, NULL))
        return error_set(err, ERROR_ARGUMENT,
            "a context of bytes needs a child run, but the recursion limit does not allow one "
            "here (max-recursion-depth)");
    int rc = child_run_plain_text(item, prompt, len, &whole, err);
    return rc < 0 ? rc : model_ask(item, whole.data, whole.len, false, err);
}

/* Begins a child run, or continues the one that was open in the record. */
static int child_begin(struct item *item, const char *prompt, size_t len, struct error *err)
{
    struct broker *b = item->ask->broker;
    struct recorded_run *recorded = item->replay_run;
    int may = replay_match_may_ask(item, err);
    if (may < 0)
        return may;
    struct shared_value *large =
        is_large(item, len) ? shared_value_new(VALUE_TEXT, prompt, len) : NULL;
    struct broker_child child = { .prompt = large ? large_prompt : prompt,
        .len = large ? strlen(large_prompt) : len,
        .context = large ? large : item->context,
        .model = item->ask->model,
        .cell = b->cell,
        .fork = fork_map_path(b, item->ask->session),
        .resume = recorded ? recorded->id : NULL,
        .reserved = !recorded || !recorded->begun };
    if (is_large(item, len) && !large)
        return error_memory(err);
    int rc = b->options.children->start(
        b->options.children_arg, &child, child_done, item, &item->child, err);
    if (rc == 0)
        item_recorded(item);
    if (recorded)
        recorded->on = rc == 0;
    shared_value_drop(large);
    return rc;
}

int child_start(struct item *item, const char *prompt, size_t len, struct error *err)
{
    struct broker_options *o = &item->ask->broker->options;
    item->is_run = true;
    int rc = prompt_check(prompt, len, err);
    if (rc == 0 && memchr(prompt, '\0', len))
        rc = error_set(err, ERROR_ARGUMENT, "the prompt of a child run contains a zero byte");
    if (rc < 0)
        return rc;
    if (!o->children)
        return start_plain(item, prompt, len, err);
    rc = o->recorded ? replay_match_start_run(item, err) : 0;
    if (rc == 0)
        rc = child_begin(item, prompt, len, err);
    return rc < 0 ? rc : 0;
}
