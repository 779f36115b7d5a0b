/* lm/gemini.c: Gemini's generateContent, complete and streamed.
 *
 * Differences from the others: the model is in the URL; the assistant is called "model"; a prompt
 * may be blocked before there is a candidate; a candidate may be stopped because of its content;
 * thoughts are counted separately from the answer but cost the same. Each event of a stream is a
 * reply with the next piece; the last one contains the finish reason.
 */
#include <string.h>

#include "lm/dialect.h"

static const struct finish_word finishes[] = {
    { "STOP", "stop" },
    { "MAX_TOKENS", "length" },
    { "SAFETY", "content_filter" },
    { "RECITATION", "content_filter" },
    { "BLOCKLIST", "content_filter" },
    { "PROHIBITED_CONTENT", "content_filter" },
    { "SPII", "content_filter" },
    { "IMAGE_SAFETY", "content_filter" },
    { "LANGUAGE", "content_filter" },
    { NULL, NULL },
};

static void write_part(struct buf *b, const struct lm_part *part)
{
    if (part->kind == LM_PART_TEXT) {
        buf_puts(b, "{\"text\":");
        json_append_string(b, part->data, part->len);
        buf_putc(b, '}');
        return;
    }
    buf_printf(b, "{\"inlineData\":{\"mimeType\":\"%s\",\"data\":\"", part->media_type);
    json_append_base64(b, part->data, part->len);
    buf_puts(b, "\"}}");
}

static size_t write_contents(struct buf *b, const struct lm_request *request, bool *system)
{
    size_t written = 0;
    for (size_t i = 0; i < request->message_count; i++) {
        const struct lm_message *m = &request->messages[i];
        struct lm_part room;
        size_t count;
        *system = *system || dialect_is_system(m);
        if (dialect_is_system(m))
            continue;
        buf_printf(b, "%s{\"role\":\"%s\",\"parts\":[", written++ ? "," : "",
            strcmp(m->role, "assistant") == 0 ? "model" : "user");
        const struct lm_part *parts = dialect_parts(m, &room, &count);
        for (size_t k = 0; k < count; k++) {
            if (k > 0)
                buf_putc(b, ',');
            write_part(b, &parts[k]);
        }
        buf_puts(b, "]}");
    }
    return written;
}

static void write_settings(struct buf *b, const struct lm_request *request)
{
    const char *comma = "";
    buf_puts(b, ",\"generationConfig\":{");
    if (request->max_tokens > 0) {
        buf_printf(b, "\"maxOutputTokens\":%lld", (long long)request->max_tokens);
        comma = ",";
    }
    if (request->temperature >= 0) {
        buf_printf(b, "%s\"temperature\":", comma);
        json_append_number(b, request->temperature);
        comma = ",";
    }
    buf_puts(b, request->sampling + (request->sampling[0] && !comma[0]));
    buf_puts(b, "}}");
}

static int gemini_write(const struct lm_call *call, const struct lm_request *request,
    const struct dialect_style *style, struct buf *b, struct error *err)
{
    bool system = false;
    buf_puts(b, "{\"contents\":[");
    if (write_contents(b, request, &system) == 0)
        return error_set(err, ERROR_ARGUMENT,
            "Gemini's models need a message with the role user, besides the system message");
    buf_putc(b, ']');
    if (system) {
        buf_puts(b, ",\"systemInstruction\":{\"parts\":[{\"text\":");
        dialect_append_system(b, request);
        buf_puts(b, "}]}");
    }
    write_settings(b, request);
    return buf_failed(b) ? error_memory(err) : 0;
}

static int64_t gemini_count_of(struct json_object *usage, const char *name)
{
    int64_t n = json_get_int(usage, name, 0);
    return n < 0 ? 0 : n > INT64_MAX / 4 ? INT64_MAX / 4 : n;
}

static void gemini_take_usage(struct model_answer *a, struct json_object *usage)
{
    if (!usage || !json_object_object_get_ex(usage, "promptTokenCount", NULL))
        return;
    a->input_tokens = gemini_count_of(usage, "promptTokenCount") +
                      gemini_count_of(usage, "toolUsePromptTokenCount");
    a->output_tokens = gemini_count_of(usage, "candidatesTokenCount") +
                       gemini_count_of(usage, "thoughtsTokenCount");
    a->cached_tokens = gemini_count_of(usage, "cachedContentTokenCount");
}

static void take_candidate(struct model_answer *a, struct json_object *candidate)
{
    struct json_object *parts =
        json_get_typed(reply_get(candidate, "content"), "parts", json_type_array);
    for (size_t i = 0; i < json_length(parts); i++) {
        struct json_object *part = json_object_array_get_idx(parts, i);
        struct json_object *text = reply_get(part, "text");
        if (!json_object_is_type(text, json_type_string) || json_get_bool(part, "thought", false))
            continue;
        a->choice = true;
        reply_append_text(&a->text, text);
    }
    const char *reason = json_get_string(candidate, "finishReason", NULL);
    if (!reason)
        return;
    reply_set_finish(a, finishes, reason);
    /* A text that ended by itself is an answer, even an empty one. */
    if (strcmp(a->finish, "stop") == 0 || strcmp(a->finish, "length") == 0)
        a->choice = true;
}

/* The prompt was blocked: there will be no candidate. */
static void gemini_take_block(struct model_answer *a, struct json_object *feedback)
{
    const char *reason = json_get_string(feedback, "blockReason", NULL);
    if (!reason)
        return;
    buf_clear(&a->refusal);
    buf_printf(&a->refusal, "the prompt was blocked (%s)", reason);
    a->finished = true;
}

static int gemini_take_reply(struct model_answer *a, const struct reply_where *where,
    const char *json, size_t len, bool whole, struct error *err)
{
    cleanup_json struct json_object *root = NULL;
    int rc = reply_read(a, where, json, len, &root, err);
    if (rc < 0)
        return rc;
    struct json_object *candidates = json_get_typed(root, "candidates", json_type_array);
    gemini_take_usage(a, json_get_typed(root, "usageMetadata", json_type_object));
    gemini_take_block(a, reply_get(root, "promptFeedback"));
    if (json_length(candidates) > 0)
        take_candidate(a, json_object_array_get_idx(candidates, 0));
    else if (whole && !a->finished)
        return reply_shape_error(where, "the answer has no candidates", err);
    a->finished = a->finished || whole;
    return buf_failed(&a->text) || buf_failed(&a->refusal) ? error_memory(err) : 0;
}

static int gemini_event(struct model_answer *a, const struct reply_where *where, const char *json,
    size_t len, struct error *err)
{
    return gemini_take_reply(a, where, json, len, false, err);
}

static int gemini_whole(struct model_answer *a, const struct reply_where *where, const char *json,
    size_t len, struct error *err)
{
    return gemini_take_reply(a, where, json, len, true, err);
}

const struct dialect dialect_gemini = {
    .sampling = SAMPLING_GEMINI,
    .write = gemini_write,
    .event = gemini_event,
    .whole = gemini_whole,
};
