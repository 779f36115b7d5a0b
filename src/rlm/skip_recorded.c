/* rlm/skip_recorded.c: reports calls that were answered in an earlier process of a tree and are not
 * repeated.
 *
 * Only a recording that is replayed needs this (lm_skip_recorded): it skips the lines that it
 * answered then. The record has only the new messages of each call of the loop; their concatenation
 * is the request.
 */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/json/json.h"
#include "rlm/run.h"

static int skip_recorded_pass(const struct tree *tree, const struct recorded_call *call,
    const struct lm_message *messages, size_t count, struct error *err)
{
    struct lm *lm = tree_lm(tree, call->depth);
    struct lm_request request = { .model = call->model,
        .messages = messages,
        .message_count = count,
        .depth = call->depth,
        .max_tokens = call->depth > 0 ? tree->o.sub_max_tokens : tree->o.max_tokens,
        .temperature = -1 };
    return replay_log_is_of(call, lm, tree->o.again) ? lm_skip_recorded(lm, &request, err) : 0;
}

int skip_recorded_call(const struct tree *tree, struct replay_log *recorded,
    const struct recorded_call *call, struct error *err)
{
    cleanup_buf struct buf text = { 0 };
    if (call->tool || !lm_is_recording(tree_lm(tree, call->depth)))
        return 0;
    int rc = replay_log_read(recorded, &call->request, &text, err);
    struct lm_message message = { "user", buf_text(&text), text.len };
    return rc < 0 ? rc : skip_recorded_pass(tree, call, &message, 1, err);
}

static int forget_messages(struct json_object *messages, struct error *err)
{
    size_t count = json_object_array_length(messages);
    return count == 0 || json_object_array_del_idx(messages, 0, count) == 0 ? 0 : error_memory(err);
}

/* Appends the new messages of this call to `messages`, which is NULL at first. */
static int add_messages(struct json_object **messages, struct replay_log *recorded,
    const struct recorded_call *call, struct error *err)
{
    cleanup_buf struct buf text = { 0 };
    cleanup_json struct json_object *list = NULL;
    int rc = replay_log_read(recorded, &call->request, &text, err);
    if (rc == 0)
        rc = json_parse(buf_text(&text), text.len, &json_limits_large, &list, err);
    if (rc == 0 && !*messages && !(*messages = json_object_new_array()))
        rc = error_memory(err);
    size_t count = json_length(list);
    struct json_object *first = count > 0 ? json_object_array_get_idx(list, 0) : NULL;
    if (rc == 0 && strcmp(json_get_string(first, "role", ""), "system") == 0)
        rc = forget_messages(*messages, err); /* this call has all: the first, or after a summary */
    for (size_t i = 0; rc == 0 && i < count; i++)
        if (json_object_array_add(*messages, json_object_get(json_object_array_get_idx(list, i))) <
            0)
            rc = error_memory(err);
    return rc;
}

static int skip_recorded_messages(const struct tree *tree, struct json_object *list,
    const struct recorded_call *call, struct error *err)
{
    size_t count = json_object_array_length(list);
    cleanup_free struct lm_message *messages = calloc(count + 1, sizeof *messages);
    if (!messages)
        return error_memory(err);
    for (size_t i = 0; i < count; i++) {
        struct json_object *m = json_object_array_get_idx(list, i), *content = NULL;
        json_object_object_get_ex(m, "content", &content);
        messages[i] = (struct lm_message){ .role = json_get_string(m, "role", ""),
            .text = json_get_string(m, "content", ""),
            .len = content ? (size_t)json_object_get_string_len(content) : 0 };
    }
    return skip_recorded_pass(tree, call, messages, count, err);
}

static int skip_recorded_below(const struct tree *tree, struct replay_log *recorded,
    struct json_object **messages, const struct recorded_call *call, struct error *err)
{
    if (!call->root)
        return call->ended ? skip_recorded_call(tree, recorded, call, err) : 0;
    int rc = add_messages(messages, recorded, call, err);
    return rc == 0 && call->ended ? skip_recorded_messages(tree, *messages, call, err) : rc;
}

static bool has_recording(const struct tree *tree)
{
    for (size_t i = 0; i < tree->o.model_count; i++)
        if (lm_is_recording(tree->o.models[i]))
            return true;
    return false;
}

int skip_recorded_run(const struct tree *tree, struct replay_log *recorded,
    const struct recorded_run *run, struct error *err)
{
    const struct recorded_call *call;
    const struct recorded_run *of;
    size_t count = 0;
    int rc = 0;
    if (!has_recording(tree))
        return 0;
    while (replay_log_run_at(recorded, count))
        count++;
    cleanup_free struct json_object **messages = calloc(count + 1, sizeof *messages); /* by run */
    if (!messages)
        return error_memory(err);
    for (size_t i = 0; rc == 0 && (call = replay_log_below_at(recorded, i)); i++) {
        of = replay_log_run_at(recorded, call->run);
        if (replay_log_run_at(recorded, of->top) == run)
            rc = skip_recorded_below(tree, recorded, &messages[call->run], call, err);
    }
    for (size_t i = 0; i < count; i++)
        json_object_put(messages[i]);
    return rc;
}
