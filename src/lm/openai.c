/* lm/openai.c: OpenAI's chat completions, which many other servers implement.
 *
 * The request's head, {"model":…,"messages":[…], is also the middle of a recorded line (record.c),
 * so a prompt of megabytes is written only once.
 */
#include <string.h>

#include "base/json/span.h"
#include "lm/dialect.h"

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
    buf_puts(b, request->sampling);
    if (style->stream)
        buf_puts(b, ",\"stream\":true,\"stream_options\":{\"include_usage\":true}");
    buf_putc(b, '}');
    return buf_failed(b) ? error_memory(err) : 0;
}

/* A message's text: a string, or a list of parts, of which the texts count. */
static void openai_append_content(struct buf *out, struct json_span content)
{
    json_span_append(out, content);
    for (struct json_span part = json_span_first(content); part.from;
         part = json_span_next(part, content))
        json_span_append(out, json_span_member(part, "text"));
}

static void openai_take_finish(struct model_answer *a, struct json_span reason)
{
    static const struct finish_word own[] = { { NULL, NULL } }; /* Droste's words are OpenAI's */
    cleanup_buf struct buf word = { 0 };
    if (!json_span_is(reason, '"'))
        return;
    json_span_append(&word, reason);
    reply_set_finish(a, own, buf_text(&word));
}

static void take_choice(struct model_answer *a, struct json_span choice, const char *member)
{
    const char *const outer[] = { member, "finish_reason" };
    static const char *const inner[] = { "content", "refusal" };
    struct json_span parts[2], fields[2];
    json_span_members(choice, outer, parts, 2);
    json_span_members(parts[0], inner, fields, 2);
    openai_append_content(&a->text, fields[0]);
    json_span_append(&a->refusal, fields[1]);
    /* An empty text is an answer; null is not. */
    if (json_span_is(fields[0], '"') || json_span_is(fields[0], '['))
        a->choice = true;
    openai_take_finish(a, parts[1]);
}

bool openai_read_usage(struct json_span usage, struct lm_usage *out)
{
    static const char *const names[] = { "prompt_tokens", "completion_tokens",
        "prompt_tokens_details" };
    struct json_span fields[3];
    json_span_members(usage, names, fields, 3);
    *out = (struct lm_usage){ .input_tokens = json_span_int(fields[0], -1),
        .output_tokens = json_span_int(fields[1], -1),
        .cached_tokens = json_span_int(json_span_member(fields[2], "cached_tokens"), 0) };
    return out->input_tokens >= 0 && out->output_tokens >= 0;
}

static void openai_take_usage(struct model_answer *a, struct json_span usage)
{
    struct lm_usage reported;
    if (!openai_read_usage(usage, &reported))
        return;
    a->input_tokens = reported.input_tokens;
    a->output_tokens = reported.output_tokens;
    a->cached_tokens = reported.cached_tokens;
}

static int openai_take_error(struct model_answer *a, const struct reply_where *where,
    const char *json, size_t len, struct error *err)
{
    cleanup_json struct json_object *root = NULL;
    int rc = reply_parse(where, json, len, &root, err);
    return rc < 0 ? rc : reply_broke_off(a, where, root, json, len, err);
}

/* Builds no tree: answers are frequent, and only these few members matter. */
static int openai_take_reply(struct model_answer *a, const struct reply_where *where,
    const char *json, size_t len, const char *member, struct error *err)
{
    int rc = reply_check(where, json, len, err);
    if (rc < 0)
        return rc;
    static const char *const names[] = { "error", "choices", "usage" };
    struct json_span found[3];
    json_span_members(json_span_of(json, len), names, found, 3);
    if (found[0].from && !json_span_is(found[0], 'n'))
        return openai_take_error(a, where, json, len, err);
    struct json_span choices = found[1], choice = json_span_first(choices);
    openai_take_usage(a, found[2]);
    if (choice.from)
        take_choice(a, choice, member);
    else if (strcmp(member, "message") == 0)
        return reply_shape_error(where,
            json_span_is(choices, '[') ? "the answer's list of choices is empty"
                                       : "the answer has no choices",
            err);
    return buf_failed(&a->text) || buf_failed(&a->refusal) ? error_memory(err) : 0;
}

static int openai_event(struct model_answer *a, const struct reply_where *where, const char *json,
    size_t len, struct error *err)
{
    if (len == 6 && memcmp(json, "[DONE]", 6) == 0) {
        a->finished = true;
        return 0;
    }
    return openai_take_reply(a, where, json, len, "delta", err);
}

static int openai_whole(struct model_answer *a, const struct reply_where *where, const char *json,
    size_t len, struct error *err)
{
    int rc = openai_take_reply(a, where, json, len, "message", err);
    a->finished = rc == 0;
    return rc;
}

const struct dialect dialect_openai = {
    .sampling = SAMPLING_OPENAI,
    .has_head = true,
    .reads_urls = true,
    .write = openai_write,
    .event = openai_event,
    .whole = openai_whole,
};
