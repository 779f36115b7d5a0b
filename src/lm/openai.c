/* lm/openai.c: OpenAI's chat completions, which many other servers speak as well.
 *
 * The request's head, {"model":…,"messages":[…], is also the middle of a recorded line (record.c),
 * so a prompt of megabytes is written once for both.
 */
#include <string.h>

#include "base/cleanup.h"
#include "lm/dialect.h"
#include "lm/record.h"

static int check_parts(const struct lm_request *request, struct error *err)
{
    for (size_t i = 0; i < request->message_count; i++)
        for (size_t k = 0; k < request->messages[i].part_count; k++) {
            const struct lm_part *part = &request->messages[i].parts[k];
            if (part->kind == LM_PART_DOCUMENT && strcmp(part->media_type, "application/pdf") != 0)
                return dialect_refuse_part(part, "images and PDF", err);
        }
    return 0;
}

static int openai_write(const struct lm_call *call, const struct lm_request *request,
    const struct dialect_style *style, struct buf *b, struct error *err)
{
    int rc = check_parts(request, err);
    if (rc < 0)
        return rc;
    if (request->max_tokens > 0)
        buf_printf(b, ",\"%s\":%lld",
            style->new_limit_name ? "max_completion_tokens" : "max_tokens",
            (long long)request->max_tokens);
    if (request->temperature >= 0) {
        buf_puts(b, ",\"temperature\":");
        json_append_number(b, request->temperature);
    }
    if (style->stream)
        buf_puts(b, ",\"stream\":true,\"stream_options\":{\"include_usage\":true}");
    buf_putc(b, '}');
    return buf_failed(b) ? error_memory(err) : 0;
}

/* The text of a message: a string, or a list of parts of which the texts count. */
static void append_content(struct buf *out, struct json_object *content)
{
    reply_append_text(out, content);
    if (!json_object_is_type(content, json_type_array))
        return;
    for (size_t i = 0; i < json_object_array_length(content); i++)
        reply_append_text(out, reply_get(json_object_array_get_idx(content, i), "text"));
}

static void take_choice(struct model_answer *a, struct json_object *choice, const char *member)
{
    static const struct finish_word own[] = { { NULL, NULL } }; /* the house's words are these */
    struct json_object *message = reply_get(choice, member);
    struct json_object *content = reply_get(message, "content");
    append_content(&a->text, content);
    reply_append_text(&a->refusal, reply_get(message, "refusal"));
    /* An empty text is an answer; a null is none. */
    if (json_object_is_type(content, json_type_string) ||
        json_object_is_type(content, json_type_array))
        a->choice = true;
    const char *finish = json_get_string(choice, "finish_reason", NULL);
    if (finish)
        reply_set_finish(a, own, finish);
}

static void take_usage(struct model_answer *a, struct json_object *usage)
{
    int64_t in = json_get_int(usage, "prompt_tokens", -1);
    int64_t out = json_get_int(usage, "completion_tokens", -1);
    if (in < 0 || out < 0)
        return;
    a->input_tokens = in;
    a->output_tokens = out;
    a->cached_tokens = json_get_int(reply_get(usage, "prompt_tokens_details"), "cached_tokens", 0);
}

static int take_reply(struct model_answer *a, const struct reply_where *where, const char *json,
    size_t len, const char *member, struct error *err)
{
    cleanup_json struct json_object *root = NULL;
    int rc = reply_parse(where, json, len, &root, err);
    if (rc < 0)
        return rc;
    if (reply_get(root, "error"))
        return reply_broke_off(a, where, root, json, len, err);
    struct json_object *choices = json_get_typed(root, "choices", json_type_array);
    take_usage(a, json_get_typed(root, "usage", json_type_object));
    if (json_length(choices) > 0)
        take_choice(a, json_object_array_get_idx(choices, 0), member);
    else if (strcmp(member, "message") == 0)
        return reply_shape_error(
            where, choices ? "its list of choices is empty" : "its answer has no choices", err);
    return buf_failed(&a->text) || buf_failed(&a->refusal) ? error_memory(err) : 0;
}

static int openai_event(struct model_answer *a, const struct reply_where *where, const char *json,
    size_t len, struct error *err)
{
    if (len == 6 && memcmp(json, "[DONE]", 6) == 0) {
        a->finished = true;
        return 0;
    }
    return take_reply(a, where, json, len, "delta", err);
}

static int openai_whole(struct model_answer *a, const struct reply_where *where, const char *json,
    size_t len, struct error *err)
{
    int rc = take_reply(a, where, json, len, "message", err);
    a->finished = rc == 0;
    return rc;
}

const struct dialect dialect_openai = {
    .has_head = true,
    .write = openai_write,
    .event = openai_event,
    .whole = openai_whole,
};
