/* lm/openai.c: the client for servers that speak OpenAI's chat completions.
 *
 * An attempt is one POST. Its body is the call's head (see client.h) with our options behind it, so
 * a prompt of megabytes is written once and sent from there, again for each attempt. A stream is
 * read event by event; a server that answers with one JSON document though a stream was asked for
 * is understood as well. What may be tried again is decided here: only what cannot have been
 * charged (nothing was sent, or the server said no by its status).
 */
#include <curl/curl.h>
#include <string.h>
#include <sys/random.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "lm/client.h"
#include "lm/http.h"
#include "lm/openai_reply.h"
#include "lm/record.h"
#include "lm/sse.h"

#define OWN_HOST       "api.openai.com"
#define DEFAULT_URL    "https://" OWN_HOST "/v1"
#define RESPONSE_LIMIT ((size_t)64 << 20)
#define EVENT_LIMIT    ((size_t)16 << 20)

enum { IDEMPOTENCY_SIZE = 56 };

struct openai {
    struct http *http;
    char *url, *peer, *key, *authorization;
    bool stream;
    bool own_service; /* OpenAI's, whose newer models refuse "max_tokens" */
};

/* A call's state: made once, reset for each attempt. */
struct chat {
    struct lm_call *call;
    struct http_transfer *transfer; /* NULL between attempts */
    char idempotency[IDEMPOTENCY_SIZE];
    struct sse sse;
    struct buf body; /* of what is no event stream */
    struct openai_answer answer;
    size_t shown; /* bytes of the answer's text that were passed on */
    bool streamed;
};

static struct openai_where where_of(const struct chat *chat)
{
    const struct openai *o = chat->call->client;
    return (struct openai_where){ o->peer, chat->call->model, o->key };
}

static struct lm_usage usage_of(const struct chat *chat)
{
    const struct openai_answer *a = &chat->answer;
    if (a->input_tokens < 0)
        return lm_usage_estimate(chat->call, a->text.len);
    return (struct lm_usage){ a->input_tokens, a->output_tokens, false };
}

/* Passes on what is new of the text, up to `end`; false if the caller ended the call meanwhile. */
static bool show_text(struct chat *chat, size_t end)
{
    size_t from = chat->shown;
    if (end <= from)
        return true;
    chat->shown = end;
    return lm_attempt_delta(chat->call, chat->answer.text.data + from, end - from);
}

/* The key must not leave in two halves, so what may be its beginning waits for what follows. */
static void show_new_text(struct chat *chat)
{
    const struct openai *o = chat->call->client;
    struct buf *text = &chat->answer.text;
    size_t from = chat->shown, new = text->len - from;
    if (new == 0)
        return;
    openai_mask(text->data + from, new, o->key);
    show_text(chat, text->len - openai_held_back(text->data + from, new, o->key));
}

/* The attempt is over: nothing may be touched after. */
static void chat_end(struct chat *chat, struct lm_outcome *outcome)
{
    const struct openai *o = chat->call->client;
    struct buf *text = &chat->answer.text;
    chat->transfer = NULL;
    if (outcome->error.code == ERROR_NONE) {
        openai_mask(text->data, text->len, o->key);
        if (o->stream && !show_text(chat, text->len))
            return;
        outcome->text = buf_text(text);
        outcome->len = text->len;
        outcome->finish = chat->answer.finish;
    }
    lm_attempt_done(chat->call, outcome);
}

static int take_events(struct chat *chat, const char *p, const char *end, struct error *err)
{
    struct openai_where where = where_of(chat);
    int rc;
    while ((rc = sse_next(&chat->sse, &p, end, err)) > 0) {
        rc = openai_answer_event(
            &chat->answer, &where, buf_text(&chat->sse.data), chat->sse.data.len, err);
        if (rc < 0)
            return rc;
    }
    return rc < 0 ? error_wrap(err, "%.80s", where.peer) : 0;
}

static void on_data(void *arg, const char *data, size_t len)
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
    outcome.usage = usage_of(chat);
    chat_end(chat, &outcome);
}

/* The transfer ended, well or not, with a status of success or none. */
static void judge(struct chat *chat, const struct http_result *result, struct lm_outcome *outcome)
{
    struct openai_where where = where_of(chat);
    struct openai_answer *a = &chat->answer;
    bool whole = a->finished; /* then a server that cuts the line later does no harm */
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
        openai_answer_whole(a, &where, buf_text(&chat->body), chat->body.len, &outcome->error);
    else if (!whole)
        error_set(&outcome->error, ERROR_MODEL_CUT,
            "%.80s: the stream ended in the middle of the answer, after %zu bytes of text",
            where.peer, a->text.len);
    if (outcome->error.code == ERROR_NONE)
        openai_answer_check(a, &where, &outcome->error);
    outcome->usage = usage_of(chat);
}

static void on_done(void *arg, const struct http_result *result)
{
    struct chat *chat = arg;
    struct openai_where where = where_of(chat);
    struct lm_outcome outcome = { .retry_after = result->retry_after };
    bool refused = result->status != 0 && result->status != 200;
    if (refused)
        outcome.retry = openai_status_error(
            &where, result->status, buf_text(&chat->body), chat->body.len, &outcome.error);
    else
        judge(chat, result, &outcome);
    chat_end(chat, &outcome);
}

static const struct http_handler handler = { on_data, on_done };

static void openai_attempt(struct lm_call *call)
{
    struct openai *o = call->client;
    struct chat *chat = call->own;
    const char *headers[] = { "Content-Type: application/json",
        o->stream ? "Accept: text/event-stream, application/json" : "Accept: application/json",
        chat->idempotency, o->authorization };
    struct http_request request = { o->url, headers, o->authorization ? 4 : 3, call->body.data,
        call->body.len };
    struct lm_outcome outcome = { 0 };
    sse_free(&chat->sse);
    chat->sse = (struct sse){ .limit = EVENT_LIMIT };
    buf_clear(&chat->body);
    openai_answer_reset(&chat->answer);
    chat->shown = 0;
    chat->streamed = false;
    if (http_send(o->http, &request, &handler, chat, &chat->transfer, &outcome.error) < 0)
        chat_end(chat, &outcome);
}

static struct lm_usage openai_abort(struct lm_call *call)
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

static void openai_release(struct lm_call *call)
{
    struct chat *chat = call->own;
    if (!chat)
        return;
    sse_free(&chat->sse);
    buf_free(&chat->body);
    openai_answer_free(&chat->answer);
    free(chat);
}

/* The same for each attempt, so that a server which knows the header answers a call once. */
static int make_idempotency(char out[IDEMPOTENCY_SIZE], struct error *err)
{
    unsigned char random[16];
    if (getrandom(random, sizeof random, 0) != sizeof random)
        return error_set_errno(err, ERROR_IO, "reading random bytes");
    int n = snprintf(out, IDEMPOTENCY_SIZE, "Idempotency-Key: ");
    for (size_t i = 0; i < sizeof random; i++)
        n += snprintf(out + n, IDEMPOTENCY_SIZE - (size_t)n, "%02x", random[i]);
    return 0;
}

static int openai_prepare(struct lm_call *call, const struct lm_request *request, struct error *err)
{
    const struct openai *o = call->client;
    struct buf *b = &call->body;
    if (request->max_tokens > 0)
        buf_printf(b, ",\"%s\":%lld", o->own_service ? "max_completion_tokens" : "max_tokens",
            (long long)request->max_tokens);
    if (request->temperature >= 0) {
        buf_puts(b, ",\"temperature\":");
        record_append_number(b, request->temperature);
    }
    if (o->stream)
        buf_puts(b, ",\"stream\":true,\"stream_options\":{\"include_usage\":true}");
    buf_putc(b, '}');
    struct chat *chat = calloc(1, sizeof *chat);
    call->own = chat;
    if (!chat || buf_failed(b))
        return error_memory(err);
    chat->call = call;
    return make_idempotency(chat->idempotency, err);
}

static void cleanup_curl_url(CURLU **url)
{
    curl_url_cleanup(*url);
}

static void cleanup_curl_text(char **text)
{
    curl_free(*text);
}
#define cleanup_url  __attribute__((cleanup(cleanup_curl_url)))
#define cleanup_text __attribute__((cleanup(cleanup_curl_text)))

/* BASE/chat/completions, with BASE's trailing slashes dropped and its query kept. */
static int make_url(struct openai *o, CURLU *url, struct error *err)
{
    cleanup_text char *path = NULL, *whole = NULL;
    cleanup_buf struct buf longer = { 0 };
    if (curl_url_get(url, CURLUPART_PATH, &path, 0) != CURLUE_OK)
        return error_memory(err);
    size_t n = strlen(path);
    while (n > 0 && path[n - 1] == '/')
        n--;
    buf_append(&longer, path, n);
    buf_puts(&longer, "/chat/completions");
    if (buf_failed(&longer) || curl_url_set(url, CURLUPART_PATH, longer.data, 0) != CURLUE_OK ||
        curl_url_get(url, CURLUPART_URL, &whole, 0) != CURLUE_OK || !(o->url = strdup(whole)))
        return error_memory(err);
    return 0;
}

static bool url_has(CURLU *url, CURLUPart part)
{
    cleanup_text char *text = NULL;
    return curl_url_get(url, part, &text, 0) == CURLUE_OK;
}

static int check_url(CURLU *url, const char *text, struct error *err)
{
    cleanup_text char *scheme = NULL;
    if (curl_url_set(url, CURLUPART_URL, text, CURLU_NON_SUPPORT_SCHEME) != CURLUE_OK ||
        curl_url_get(url, CURLUPART_SCHEME, &scheme, 0) != CURLUE_OK ||
        (strcmp(scheme, "http") != 0 && strcmp(scheme, "https") != 0))
        return error_set(err, ERROR_CONFIG,
            "the base URL '%.100s' is none: it must be like http://host:port/v1 or https://host/v1",
            text);
    if (url_has(url, CURLUPART_USER) || url_has(url, CURLUPART_PASSWORD))
        return error_set(err, ERROR_CONFIG,
            "the base URL must hold no user and no password: give "
            "the key as OPENAI_API_KEY");
    return 0;
}

static bool is_own_service(CURLU *url)
{
    cleanup_text char *host = NULL;
    return curl_url_get(url, CURLUPART_HOST, &host, 0) == CURLUE_OK && strcmp(host, OWN_HOST) == 0;
}

static int open_http(struct openai *o, struct loop *loop, const struct lm_options *options,
    CURLU *url, struct error *err)
{
    cleanup_text char *host = NULL, *port = NULL;
    cleanup_buf struct buf peer = { 0 };
    if (curl_url_get(url, CURLUPART_HOST, &host, 0) != CURLUE_OK ||
        curl_url_get(url, CURLUPART_PORT, &port, CURLU_DEFAULT_PORT) != CURLUE_OK)
        return error_memory(err);
    buf_puts(&peer, host);
    if (url_has(url, CURLUPART_PORT))
        buf_printf(&peer, ":%s", port);
    o->peer = buf_steal(&peer);
    if (!o->peer)
        return error_memory(err);
    struct http_options http = {
        .host = host,
        .port = (unsigned)strtoul(port, NULL, 10),
        .peer = o->peer,
        .ca_file = options->ca_file && options->ca_file[0] ? options->ca_file : NULL,
        .connections = options->concurrency,
        .connect_timeout = options->connect_timeout,
        .first_timeout = options->first_timeout,
        .stall_timeout = options->stall_timeout,
        .response_limit = RESPONSE_LIMIT,
    };
    if (http.ca_file && access(http.ca_file, R_OK) < 0)
        return error_set_errno(
            err, ERROR_CONFIG, "the ca_file %.120s cannot be read", http.ca_file);
    return http_open(loop, &http, &o->http, err);
}

/* A line break in a key would be a header of its own. */
static int take_key(struct openai *o, const struct lm_options *options, struct error *err)
{
    o->key = strdup(options->api_key ? options->api_key : "");
    if (!o->key)
        return error_memory(err);
    if (o->key[0] == '\0')
        return o->own_service ? error_set(err, ERROR_CONFIG,
                                    "no key for OpenAI: set OPENAI_API_KEY, or a base URL of a "
                                    "server that needs none")
                              : 0;
    for (const unsigned char *p = (const unsigned char *)o->key; *p; p++)
        if (*p <= ' ' || *p >= 0x7F)
            return error_set(err, ERROR_CONFIG,
                "the API key holds a space or an odd character: check OPENAI_API_KEY");
    cleanup_buf struct buf header = { 0 };
    buf_printf(&header, "Authorization: Bearer %s", o->key);
    o->authorization = buf_steal(&header);
    return o->authorization ? 0 : error_memory(err);
}

static void openai_close(void *client)
{
    struct openai *o = client;
    http_close(o->http);
    free(o->url);
    free(o->peer);
    free(o->key);
    free(o->authorization);
    free(o);
}

static int openai_fill(
    struct openai *o, struct loop *loop, const struct lm_options *options, struct error *err)
{
    cleanup_url CURLU *url = curl_url();
    bool given = options->base_url && options->base_url[0];
    int rc;
    if (!url)
        return error_memory(err);
    o->stream = options->stream;
    if ((rc = check_url(url, given ? options->base_url : DEFAULT_URL, err)) < 0)
        return rc;
    o->own_service = is_own_service(url);
    if ((rc = take_key(o, options, err)) < 0 || (rc = make_url(o, url, err)) < 0)
        return rc;
    return open_http(o, loop, options, url, err);
}

static int openai_open(struct loop *loop, const struct lm_options *options, const char *model,
    void **client, struct error *err)
{
    struct openai *o = calloc(1, sizeof *o);
    if (!o)
        return error_memory(err);
    int rc = openai_fill(o, loop, options, err);
    if (rc < 0) {
        openai_close(o);
        return rc;
    }
    *client = o;
    return 0;
}

const struct lm_client_ops lm_openai = {
    .needs_body = true,
    .open = openai_open,
    .close = openai_close,
    .prepare = openai_prepare,
    .release = openai_release,
    .attempt = openai_attempt,
    .abort = openai_abort,
};
