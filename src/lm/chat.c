/* lm/chat.c: the client for model servers over HTTP, for all dialects.
 *
 * An attempt is one POST. Its body is written once, when the call is made, and sent again for each
 * attempt. A stream is read event by event; a server may also answer a request for a stream with
 * one JSON document. This file decides what may be retried: only what cannot have been charged,
 * because nothing was sent, or the server refused by its status or by an error in place of the
 * first word.
 */
#include <string.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "base/traceparent.h"
#include "lm/client.h"
#include "lm/provider.h"
#include "lm/record.h"
#include "lm/server.h"
#include "net/sse.h"
#include "net/url.h"

#define EVENT_LIMIT ((size_t)16 << 20)

enum { IDEMPOTENCY_SIZE = 56, TRACE_FIELD_SIZE = 13 + TRACEPARENT_SIZE };

/* The state of a call: created once, reset for each attempt. */
struct chat {
    struct lm_call *call;
    struct http_transfer *transfer; /* NULL between attempts */
    const char *url;                /* the server's or `own_url` */
    char *own_url;
    struct buf own;            /* the request, unless it begins with the call's head */
    const struct buf *request; /* `own` or the call's body */
    char idempotency[IDEMPOTENCY_SIZE];
    char trace[TRACE_FIELD_SIZE]; /* "": none */
    struct sse sse;
    struct buf body; /* of a response that is not an event stream */
    struct model_answer answer;
    size_t shown; /* bytes of the answer's text passed on */
    bool streamed;
};

static struct reply_where where_of(const struct chat *chat)
{
    const struct server *s = chat->call->client;
    return (struct reply_where){ s->peer, chat->call->model, s->key, s->provider->key_variable };
}

static struct lm_usage usage_of(const struct chat *chat)
{
    struct lm_usage usage, estimate = lm_usage_estimate(chat->call, chat->answer.text.len);
    if (!model_answer_usage(&chat->answer, &usage))
        return estimate;
    if (chat->answer.finished)
        return usage;
    /* Anthropic also reports usage at the beginning, before there is output. */
    usage.estimated = true;
    if (usage.output_tokens < estimate.output_tokens)
        usage.output_tokens = estimate.output_tokens;
    return usage;
}

/* Passes on new text up to `end`; false if the caller ended the call meanwhile. */
static bool show_text(struct chat *chat, size_t end)
{
    size_t from = chat->shown;
    if (end <= from)
        return true;
    chat->shown = end;
    return lm_attempt_delta(chat->call, chat->answer.text.data + from, end - from);
}

/* A streamed key must not slip through in two halves: what may begin it waits for what follows. */
static void show_new_text(struct chat *chat)
{
    const struct server *s = chat->call->client;
    struct buf *text = &chat->answer.text;
    size_t from = chat->shown, new = text->len - from;
    if (new == 0)
        return;
    text_mask(text->data + from, new, s->key);
    show_text(chat, text->len - reply_held_back(text->data + from, new, s->key));
}

/* The attempt is over: nothing may be touched afterwards. */
static void chat_end(struct chat *chat, struct lm_outcome *outcome)
{
    const struct server *s = chat->call->client;
    struct buf *text = &chat->answer.text;
    chat->transfer = NULL;
    if (outcome->error.code == ERROR_NONE) {
        text_mask(text->data, text->len, s->key);
        if (s->style.stream && !show_text(chat, text->len))
            return;
        outcome->text = buf_text(text);
        outcome->len = text->len;
        outcome->finish = chat->answer.finish;
    } else if (chat->answer.message.len > 0) {
        outcome->message = buf_text(&chat->answer.message);
    }
    lm_attempt_done(chat->call, outcome);
}

static int take_events(struct chat *chat, const char *p, const char *end, struct error *err)
{
    const struct server *s = chat->call->client;
    struct reply_where where = where_of(chat);
    int rc;
    while ((rc = sse_next(&chat->sse, &p, end, err)) > 0) {
        rc = s->provider->dialect->event(
            &chat->answer, &where, buf_text(&chat->sse.data), chat->sse.data.len, err);
        if (rc < 0)
            return rc;
    }
    return rc < 0 ? error_wrap(err, "%.80s", where.peer) : 0;
}

static void chat_on_data(void *arg, const char *data, size_t len)
{
    struct chat *chat = arg;
    struct lm_outcome outcome = { 0 };
    if (http_status(chat->transfer) != 200 || !http_is_type(chat->transfer, "text/event-stream")) {
        buf_append(&chat->body, data, len);
        return;
    }
    chat->streamed = true;
    if (take_events(chat, data, data + len, &outcome.error) == 0) {
        show_new_text(chat);
        return;
    }
    http_cancel(chat->transfer);
    outcome.retry = chat->answer.retry;
    if (!outcome.retry)
        outcome.usage = usage_of(chat);
    chat_end(chat, &outcome);
}

/* The transfer ended, successfully or not, with a successful status or none. */
static void chat_judge(
    struct chat *chat, const struct http_result *result, struct lm_outcome *outcome)
{
    const struct server *s = chat->call->client;
    struct reply_where where = where_of(chat);
    struct model_answer *a = &chat->answer;
    bool whole = a->finished; /* then it does not matter that the server cuts the connection */
    if (result->error.code != ERROR_NONE && !whole) {
        outcome->error = result->error;
        outcome->retry = result->unsent || result->unanswered;
        if (!result->unsent)
            outcome->usage = usage_of(chat);
        return;
    }
    if (buf_failed(&chat->body))
        error_memory(&outcome->error);
    else if (!chat->streamed)
        s->provider->dialect->whole(
            a, &where, buf_text(&chat->body), chat->body.len, &outcome->error);
    else if (!whole)
        error_set(&outcome->error, ERROR_MODEL_CUT,
            "%.80s: the stream ended in the middle of the answer, after %zu bytes of text",
            where.peer, a->text.len);
    if (outcome->error.code == ERROR_NONE)
        model_answer_check(a, &where, &outcome->error);
    outcome->retry = outcome->error.code != ERROR_NONE && a->retry;
    if (!outcome->retry)
        outcome->usage = usage_of(chat);
}

static void chat_on_done(void *arg, const struct http_result *result)
{
    struct chat *chat = arg;
    struct reply_where where = where_of(chat);
    struct lm_outcome outcome = { .retry_after = result->retry_after };
    bool refused = result->status != 0 && result->status != 200;
    if (refused)
        outcome.retry = reply_status_error(&chat->answer, &where, result->status,
            buf_text(&chat->body), chat->body.len, &outcome.retry_after, &outcome.error);
    else
        chat_judge(chat, result, &outcome);
    chat_end(chat, &outcome);
}

static const char *header_of(void *transfer, const char *name)
{
    return http_header(transfer, name);
}

static void chat_on_head(void *arg, struct http_transfer *transfer)
{
    struct chat *chat = arg;
    lm_attempt_headers(chat->call, header_of, transfer);
}

static const struct http_handler handler = { chat_on_head, chat_on_data, chat_on_done };

static void chat_attempt(struct lm_call *call)
{
    struct server *s = call->client;
    struct chat *chat = call->own;
    const struct dialect *dialect = s->provider->dialect;
    const char *headers[7] = { "Content-Type: application/json", chat->idempotency };
    struct http_request request = { .url = chat->url,
        .headers = headers,
        .header_count = 2,
        .body = chat->request->data,
        .body_len = chat->request->len };
    struct lm_outcome outcome = { 0 };
    if (s->style.stream)
        headers[request.header_count++] = "Accept: text/event-stream, application/json";
    for (size_t i = 0; i < array_length(dialect->headers) && dialect->headers[i]; i++)
        headers[request.header_count++] = dialect->headers[i];
    if (s->key_header)
        headers[request.header_count++] = s->key_header;
    if (chat->trace[0])
        headers[request.header_count++] = chat->trace;
    sse_free(&chat->sse);
    chat->sse = (struct sse){ .limit = EVENT_LIMIT, .code = ERROR_MODEL_REPLY };
    buf_clear(&chat->body);
    model_answer_reset(&chat->answer);
    chat->shown = 0;
    chat->streamed = false;
    if (http_send(s->http, &request, &handler, chat, &chat->transfer, &outcome.error) < 0)
        chat_end(chat, &outcome);
}

static struct lm_usage chat_abort(struct lm_call *call)
{
    struct chat *chat = call->own;
    struct lm_usage usage = { 0 };
    if (!chat->transfer) /* cancelled by the last delta */
        return usage_of(chat);
    if (http_sent(chat->transfer))
        usage = usage_of(chat);
    http_cancel(chat->transfer);
    chat->transfer = NULL;
    return usage;
}

static void chat_release(struct lm_call *call)
{
    struct chat *chat = call->own;
    if (!chat)
        return;
    sse_free(&chat->sse);
    buf_free(&chat->body);
    model_answer_free(&chat->answer);
    buf_free(&chat->own);
    free(chat->own_url);
    free(chat);
}

/* The same for each attempt, so that a server that supports the header answers a call once. */
static int make_idempotency(const char *wanted, char out[IDEMPOTENCY_SIZE], struct error *err)
{
    char made[LM_KEY_SIZE];
    int rc = wanted ? 0 : lm_key(made, err);
    if (rc == 0)
        snprintf(out, IDEMPOTENCY_SIZE, "Idempotency-Key: %.32s", wanted ? wanted : made);
    return rc;
}

/* A recorded call is a span of its run's trace, which the server's own spans may continue. */
static void chat_write_trace(const struct lm_request *request, char out[TRACE_FIELD_SIZE])
{
    struct traceparent parent;
    char text[TRACEPARENT_SIZE];
    const char *span =
        request->key && request->is_recorded ? traceparent_call_span(request->key) : NULL;
    if (!traceparent_parse(request->traceparent, &parent))
        return;
    traceparent_write(&parent, span ? span : parent.span, text);
    snprintf(out, TRACE_FIELD_SIZE, "traceparent: %s", text);
}

static int make_call_url(struct chat *chat, const struct lm_call *call, struct error *err)
{
    const struct server *s = call->client;
    struct buf url = { 0 };
    if (s->model_in_url && (strcmp(call->model, ".") == 0 || strcmp(call->model, "..") == 0))
        return error_set(err, ERROR_ARGUMENT, "'%s' is not a model name", call->model);
    if (!s->model_in_url) {
        chat->url = s->url_after;
        return 0;
    }
    buf_puts(&url, s->url_before);
    url_escape(&url, call->model); /* it comes from the guest and must stay one segment */
    buf_puts(&url, s->url_after);
    chat->url = chat->own_url = buf_steal(&url);
    return chat->url ? 0 : error_memory(err);
}

static int chat_check_urls(
    const struct dialect *dialect, const struct lm_request *request, struct error *err)
{
    for (size_t i = 0; !dialect->reads_urls && i < request->message_count; i++)
        for (size_t k = 0; k < request->messages[i].part_count; k++)
            if (request->messages[i].parts[k].kind == LM_PART_IMAGE_URL)
                return error_set(err, ERROR_UNSUPPORTED,
                    "this model's provider does not read images by their addresses");
    return 0;
}

static int chat_prepare(struct lm_call *call, const struct lm_request *request, struct error *err)
{
    const struct server *s = call->client;
    struct chat *chat = calloc(1, sizeof *chat);
    call->own = chat;
    if (!chat)
        return error_memory(err);
    chat->call = call;
    const struct dialect *dialect = s->provider->dialect;
    chat_write_trace(request, chat->trace);
    struct buf *out = dialect->has_head ? &call->body : &chat->own;
    chat->request = out;
    int rc = chat_check_urls(dialect, request, err);
    if (rc == 0)
        rc = make_call_url(chat, call, err);
    if (rc == 0 && dialect->has_head)
        rc = record_write_head(call, err);
    if (rc == 0)
        rc = dialect->write(call, request, &s->style, out, err);
    return rc < 0 ? rc : make_idempotency(request->key, chat->idempotency, err);
}

static const char *chat_host(const void *client)
{
    return ((const struct server *)client)->peer;
}

static void chat_describe(const void *client, struct buf *out)
{
    const struct server *s = client;
    buf_printf(out, "%s, %s", s->url, s->key[0] ? "a key is set" : "no key is set");
}

static int chat_open(struct loop *loop, const struct lm_options *options, const char *model,
    void **client, struct error *err)
{
    struct server *s = NULL;
    int rc = server_open(loop, options, &s, err);
    *client = s;
    return rc;
}

static void chat_close(void *client)
{
    server_close(client);
}

const struct lm_client_ops lm_chat = {
    .open = chat_open,
    .close = chat_close,
    .host = chat_host,
    .describe = chat_describe,
    .prepare = chat_prepare,
    .release = chat_release,
    .attempt = chat_attempt,
    .abort = chat_abort,
};
