/* lm/anthropic.c: Anthropic's Messages interface, version 2023-06-01.
 *
 * Differences from the others: system texts are separate from the messages; a limit of the answer
 * is required; tokens of the prompt are counted in three parts (fresh, written to the provider's
 * cache, read from it); and a stream is a sequence of typed events, each with the total of output
 * tokens so far.
 */
#include <string.h>

#include "lm/dialect.h"
#include "lm/request.h"

/* The default limit of an answer: what each family of models allows, within reason. The first
 * matching prefix counts. */
static const struct answer_limit {
    const char *prefix;
    int64_t tokens;
} limits[] = {
    { "claude-3-5", 8192 },
    { "claude-3-7", 16384 },
    { "claude-3-", 4096 },
    { "claude-2", 4096 },
    { "", 16384 },
};

static const struct finish_word finishes[] = {
    { "end_turn", "stop" },
    { "stop_sequence", "stop" },
    { "max_tokens", "length" },
    { "model_context_window_exceeded", "length" },
    { "refusal", "content_filter" },
    { "tool_use", "tool_calls" },
    { NULL, NULL },
};

static int64_t default_limit(const char *model)
{
    const struct answer_limit *limit = limits;
    while (strncmp(model, limit->prefix, strlen(limit->prefix)) != 0)
        limit++;
    return limit->tokens;
}

static int anthropic_write_file(struct buf *b, const struct lm_part *part, struct error *err)
{
    if (part->kind == LM_PART_IMAGE_URL) {
        buf_puts(b, "{\"type\":\"image\",\"source\":{\"type\":\"url\",\"url\":");
        json_append_string(b, part->data, part->len);
        buf_puts(b, "}}");
        return 0;
    }
    bool plain = strcmp(part->media_type, "text/plain") == 0;
    if (part->kind == LM_PART_DOCUMENT && !plain &&
        strcmp(part->media_type, "application/pdf") != 0)
        return dialect_refuse_part(part, "images, PDF and text/plain", err);
    buf_printf(b, "{\"type\":\"%s\",\"source\":{\"type\":\"%s\",\"media_type\":\"%s\",\"data\":",
        part->kind == LM_PART_IMAGE ? "image" : "document", plain ? "text" : "base64",
        part->media_type);
    if (plain) {
        json_append_string(b, part->data, part->len);
    } else {
        buf_putc(b, '"');
        json_append_base64(b, part->data, part->len);
        buf_putc(b, '"');
    }
    buf_puts(b, "}}");
    return 0;
}

static int write_content(struct buf *b, const struct lm_message *message, struct error *err)
{
    if (message->part_count == 0) {
        json_append_string(b, message->text, message->len);
        return 0;
    }
    for (size_t i = 0; i < message->part_count; i++) {
        const struct lm_part *part = &message->parts[i];
        int rc = 0;
        buf_putc(b, i ? ',' : '[');
        if (part->kind == LM_PART_TEXT) {
            buf_puts(b, "{\"type\":\"text\",\"text\":");
            json_append_string(b, part->data, part->len);
            buf_putc(b, '}');
        } else {
            rc = anthropic_write_file(b, part, err);
        }
        if (rc < 0)
            return rc;
    }
    buf_putc(b, ']');
    return 0;
}

static int write_messages(
    struct buf *b, const struct lm_request *request, bool *system, struct error *err)
{
    size_t written = 0;
    for (size_t i = 0; i < request->message_count; i++) {
        const struct lm_message *m = &request->messages[i];
        *system = *system || dialect_is_system(m);
        if (dialect_is_system(m))
            continue;
        buf_printf(b, "%s{\"role\":\"%s\",\"content\":", written++ ? "," : "", lm_role(m->role));
        int rc = write_content(b, m, err);
        if (rc < 0)
            return rc;
        buf_putc(b, '}');
    }
    if (written == 0)
        return error_set(err, ERROR_ARGUMENT,
            "Anthropic's models need a message with the role user, besides the system message");
    return 0;
}

static int anthropic_write(const struct lm_call *call, const struct lm_request *request,
    const struct dialect_style *style, struct buf *b, struct error *err)
{
    bool system = false;
    int64_t limit = request->max_tokens > 0 ? request->max_tokens : default_limit(call->model);
    buf_puts(b, "{\"model\":");
    json_append_string(b, call->model, strlen(call->model));
    buf_printf(b, ",\"max_tokens\":%lld,\"messages\":[", (long long)limit);
    int rc = write_messages(b, request, &system, err);
    if (rc < 0)
        return rc;
    buf_putc(b, ']');
    if (system) {
        buf_puts(b, ",\"system\":");
        dialect_append_system(b, request);
    }
    if (request->temperature >= 0) {
        buf_puts(b, ",\"temperature\":");
        json_append_number(b, request->temperature);
    }
    buf_puts(b, request->sampling);
    if (style->stream)
        buf_puts(b, ",\"stream\":true");
    buf_putc(b, '}');
    return buf_failed(b) ? error_memory(err) : 0;
}

/* A later event replaces the counts that it contains. */
static void anthropic_take_usage(struct model_answer *a, struct json_object *usage)
{
    int64_t fresh = json_get_int(usage, "input_tokens", -1);
    int64_t out = json_get_int(usage, "output_tokens", -1);
    int64_t most = INT64_MAX / 4;
    if (fresh >= 0) {
        int64_t written = json_get_int(usage, "cache_creation_input_tokens", 0);
        int64_t read = json_get_int(usage, "cache_read_input_tokens", 0);
        written = written < 0 || written > most ? 0 : written;
        read = read < 0 || read > most ? 0 : read;
        a->input_tokens = (fresh > most ? most : fresh) + written + read;
        a->cached_tokens = read;
    }
    if (out >= 0)
        a->output_tokens = out;
}

static void anthropic_take_finish(struct model_answer *a, struct json_object *holder)
{
    const char *reason = json_get_string(holder, "stop_reason", NULL);
    if (reason)
        reply_set_finish(a, finishes, reason);
    /* A text that ended by itself is an answer, even an empty one. */
    if (reason && strcmp(a->finish, "tool_calls") != 0 && strcmp(reason, "refusal") != 0)
        a->choice = true;
}

static void anthropic_take_block(
    struct model_answer *a, struct json_object *block, const char *type)
{
    if (strcmp(json_get_string(block, "type", ""), type) != 0)
        return;
    a->choice = true;
    reply_append_text(&a->text, reply_get(block, "text"));
}

static void anthropic_take_event(struct model_answer *a, struct json_object *root)
{
    const char *type = json_get_string(root, "type", "");
    if (strcmp(type, "message_start") == 0) {
        anthropic_take_usage(a, reply_get(reply_get(root, "message"), "usage"));
    } else if (strcmp(type, "content_block_start") == 0) {
        anthropic_take_block(a, reply_get(root, "content_block"), "text");
    } else if (strcmp(type, "content_block_delta") == 0) {
        anthropic_take_block(a, reply_get(root, "delta"), "text_delta");
    } else if (strcmp(type, "message_delta") == 0) {
        anthropic_take_finish(a, reply_get(root, "delta"));
        anthropic_take_usage(a, reply_get(root, "usage"));
    } else if (strcmp(type, "message_stop") == 0) {
        a->finished = true;
    } /* pings, ends of blocks and unknown events do not affect the text */
}

static int anthropic_event(struct model_answer *a, const struct reply_where *where,
    const char *json, size_t len, struct error *err)
{
    cleanup_json struct json_object *root = NULL;
    int rc = reply_read(a, where, json, len, &root, err);
    if (rc < 0)
        return rc;
    anthropic_take_event(a, root);
    return buf_failed(&a->text) ? error_memory(err) : 0;
}

static int anthropic_whole(struct model_answer *a, const struct reply_where *where,
    const char *json, size_t len, struct error *err)
{
    cleanup_json struct json_object *root = NULL;
    int rc = reply_read(a, where, json, len, &root, err);
    if (rc < 0)
        return rc;
    struct json_object *content = json_get_typed(root, "content", json_type_array);
    if (!content)
        return reply_shape_error(where, "the answer has no content", err);
    for (size_t i = 0; i < json_object_array_length(content); i++)
        anthropic_take_block(a, json_object_array_get_idx(content, i), "text");
    anthropic_take_finish(a, root);
    anthropic_take_usage(a, reply_get(root, "usage"));
    a->finished = true;
    return buf_failed(&a->text) ? error_memory(err) : 0;
}

const struct dialect dialect_anthropic = {
    .sampling = SAMPLING_ANTHROPIC,
    .reads_urls = true,
    .headers = { "anthropic-version: 2023-06-01" },
    .write = anthropic_write,
    .event = anthropic_event,
    .whole = anthropic_whole,
};
