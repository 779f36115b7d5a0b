/* lm/forward.c: see forward.h. */
#include "lm/forward.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/json/span.h"
#include "base/text.h"
#include "lm/dialect.h"
#include "lm/lm.h"
#include "lm/prices.h"
#include "lm/provider.h"
#include "lm/server.h"
#include "net/sse.h"
#include "net/url.h"

enum { FORWARD_EVENT_MAX = 16 << 20 };

struct forwarder {
    struct server *server;
    struct prices *prices;
    char *model;       /* the provider's name for it */
    char *name;        /* with the provider's, for prices */
    bool has_own_host; /* the provider's own server, whose prices are known */
};

struct forward {
    struct forwarder *forwarder;
    const struct forward_handler *handler;
    void *arg;
    struct json_object *request;
    const char *body; /* the request's text, which belongs to it */
    size_t body_len;
    struct http_transfer *transfer; /* NULL: it is over */
    struct sse sse;
    struct buf whole;  /* of an answer in one piece */
    struct buf tail;   /* the end of the text so far, which may be the beginning of the key */
    struct buf held;   /* events that wait until that is known, each with its length */
    bool hides_usage;  /* the client did not ask for it */
    bool has_key;      /* the answer has this server's key */
    bool begun;        /* a stream has */
    bool finished;     /* it has said so */
    bool *ended;       /* set when the request ends during an event; NULL otherwise */
    size_t text_bytes; /* of the answer */
    struct lm_usage usage;
    bool has_usage;
};

/* ---- the model ---- */

void forwarder_close(struct forwarder *fw)
{
    if (fw->server)
        server_close(fw->server);
    prices_close(fw->prices);
    free(fw->model);
    free(fw->name);
    free(fw);
}

static int forwarder_fill(
    struct forwarder *fw, struct loop *loop, const struct lm_options *options, struct error *err)
{
    const struct provider *p;
    const char *rest;
    if (!lm_is_of_provider(options->model))
        return error_set(err, ERROR_UNSUPPORTED,
            "this model is not a provider's, so requests cannot be passed to it");
    int rc = provider_find(options, options->model, &p, &rest, err);
    if (rc < 0)
        return rc;
    if (p->dialect != &dialect_openai)
        return error_set(err, ERROR_UNSUPPORTED,
            "%s has a protocol of its own, so requests in OpenAI's cannot be passed to it",
            p->title);
    fw->model = strdup(rest);
    fw->name = text_printf("%s/%s", p->name, rest);
    fw->has_own_host = provider_account(p, options).base_url[0] == '\0';
    if (!fw->model || !fw->name)
        return error_memory(err);
    rc = prices_open(options->prices, &fw->prices, err);
    return rc < 0 ? rc : server_open(loop, options, &fw->server, err);
}

int forwarder_open(
    struct loop *loop, const struct lm_options *options, struct forwarder **out, struct error *err)
{
    struct forwarder *fw = calloc(1, sizeof *fw);
    if (!fw)
        return error_memory(err);
    int rc = forwarder_fill(fw, loop, options, err);
    if (rc < 0) {
        forwarder_close(fw);
        return rc;
    }
    *out = fw;
    return 0;
}

/* ---- the end ---- */

static void forward_free(struct forward *f)
{
    json_object_put(f->request);
    sse_free(&f->sse);
    buf_free(&f->whole);
    buf_free(&f->tail);
    buf_free(&f->held);
    free(f);
}

/* What the provider reported, or an estimate: a token for 4 bytes. */
static struct lm_usage forward_usage(const struct forward *f)
{
    return f->has_usage ? f->usage
                        : (struct lm_usage){ .input_tokens = (int64_t)((f->body_len + 3) / 4),
                              .output_tokens = (int64_t)((f->text_bytes + 3) / 4),
                              .estimated = true };
}

static double forward_cost(const struct forward *f, const struct lm_usage *usage)
{
    const struct forwarder *fw = f->forwarder;
    return prices_cost(fw->prices, fw->name, fw->has_own_host, usage);
}

bool forwarder_is_priced(const struct forwarder *forwarder)
{
    const struct lm_usage one = { .input_tokens = 1 };
    return prices_cost(forwarder->prices, forwarder->name, forwarder->has_own_host, &one) >= 0;
}

void forward_cancel(struct forward *f, struct lm_usage *usage, double *cost)
{
    bool was_sent = !f->transfer || http_sent(f->transfer);
    *usage = was_sent ? forward_usage(f) : (struct lm_usage){ 0 };
    *cost = forward_cost(f, usage);
    if (f->transfer)
        http_cancel(f->transfer);
    if (f->ended)
        *f->ended = true;
    forward_free(f);
}

/* Passes on the events that were held back; false if the client's function ended the request. */
static bool forward_release(struct forward *f)
{
    bool ended = false;
    size_t at = 0, len;
    cleanup_buf struct buf held = f->held;
    f->held = (struct buf){ 0 };
    f->ended = &ended;
    while (!ended && at < held.len) {
        memcpy(&len, held.data + at, sizeof len);
        at += sizeof len;
        f->handler->event(f->arg, held.data + at, len);
        at += len;
    }
    if (!ended)
        f->ended = NULL;
    return !ended;
}

/* A stream broke off: what was said is passed on, but for a good part of the key. */
static bool forward_release_rest(struct forward *f)
{
    const char *key = f->forwarder->server->key;
    return f->has_key ||
           reply_held_back(buf_text(&f->tail), f->tail.len, key) >= TEXT_SECRET_LEAST ||
           forward_release(f);
}

/* The transfer is over; the client's function is the last. */
static void forward_finish(struct forward *f, struct forward_end *end)
{
    bool refused = end->error.code == ERROR_NONE && end->status != 200;
    if (!refused)
        end->usage = forward_usage(f);
    end->cost = forward_cost(f, &end->usage);
    if (f->ended)
        *f->ended = true;
    f->handler->end(f->arg, end);
    forward_free(f);
}

/* ---- the answer ---- */

static void forward_take_usage(struct forward *f, struct json_span usage)
{
    struct lm_usage reported;
    if (!openai_read_usage(usage, &reported))
        return;
    f->has_usage = true;
    f->usage = reported;
}

/* Appends the text of all choices of an event. */
static void forward_append_text(struct buf *out, struct json_span choices)
{
    for (struct json_span c = json_span_first(choices); c.from; c = json_span_next(c, choices))
        json_span_append(out, json_span_member(json_span_member(c, "delta"), "content"));
}

/* A key in the text of several events must not pass in pieces: what may begin it waits. */
static int forward_hold(struct forward *f, struct json_span choices, struct error *err)
{
    const char *key = f->forwarder->server->key;
    size_t before = f->tail.len, n = strlen(key);
    forward_append_text(&f->tail, choices);
    f->text_bytes += f->tail.len - before;
    f->has_key =
        n >= TEXT_SECRET_LEAST && f->tail.len > 0 && memmem(f->tail.data, f->tail.len, key, n);
    if (f->has_key)
        return error_set(err, ERROR_MODEL_REPLY, "%.80s: the answer has the key of this server",
            f->forwarder->server->peer);
    if (f->tail.len > n)
        buf_consume(&f->tail, f->tail.len - n);
    return 0;
}

static int forward_take_event(struct forward *f, struct error *err)
{
    static const char *const names[] = { "choices", "usage" };
    const struct server *s = f->forwarder->server;
    struct buf *data = &f->sse.data;
    struct json_span found[2] = { { NULL, NULL } };
    bool is_last = data->len == 6 && memcmp(data->data, "[DONE]", 6) == 0;
    if (!is_last && json_check(data->data, data->len, &json_limits_large, err) < 0)
        return error_set(err, ERROR_MODEL_REPLY, "%.80s: an event is not JSON", s->peer);
    f->finished = f->finished || is_last;
    if (!is_last)
        json_span_members(json_span_of(data->data, data->len), names, found, 2);
    if (json_span_is(found[1], '{'))
        forward_take_usage(f, found[1]);
    int rc = forward_hold(f, found[0], err);
    if (rc < 0)
        return rc;
    bool is_usage = json_span_is(found[1], '{') && !json_span_first(found[0]).from;
    if (!is_usage || !f->hides_usage) {
        text_mask(data->data, data->len, s->key);
        buf_append(&f->held, &data->len, sizeof data->len);
        buf_append(&f->held, data->data, data->len);
    }
    return buf_failed(&f->held) || buf_failed(&f->tail) ? error_memory(err) : 0;
}

/* False if the request has ended. */
static bool forward_take(struct forward *f, const char *p, const char *end)
{
    const char *key = f->forwarder->server->key;
    struct forward_end broken = { .status = 200 };
    int rc = 1;
    while (rc > 0) {
        rc = sse_next(&f->sse, &p, end, &broken.error);
        if (rc <= 0)
            break;
        if (forward_take_event(f, &broken.error) < 0)
            rc = -1;
        else if ((f->finished || reply_held_back(buf_text(&f->tail), f->tail.len, key) == 0) &&
                 !forward_release(f))
            return false;
    }
    if (rc == 0)
        return true;
    if (!forward_release_rest(f))
        return false;
    http_cancel(f->transfer);
    f->transfer = NULL;
    forward_finish(f, &broken);
    return false;
}

static void forward_on_head(void *arg, struct http_transfer *transfer)
{
}

static void forward_on_data(void *arg, const char *data, size_t len)
{
    struct forward *f = arg;
    bool is_stream =
        http_status(f->transfer) == 200 && http_is_type(f->transfer, "text/event-stream");
    if (!is_stream) {
        buf_append(&f->whole, data, len);
        return;
    }
    if (!f->begun) {
        bool ended = false;
        f->begun = true;
        f->ended = &ended;
        f->handler->begin(f->arg);
        if (ended)
            return;
        f->ended = NULL;
    }
    forward_take(f, data, data + len);
}

static void forward_on_done(void *arg, const struct http_result *result)
{
    struct forward *f = arg;
    const struct server *s = f->forwarder->server;
    struct forward_end end = { .status = result->status, .retry_after = result->retry_after };
    f->transfer = NULL;
    if (f->begun && f->finished) { /* it does not matter then how the connection ends */
        forward_finish(f, &end);
        return;
    }
    if (f->begun && !forward_release_rest(f))
        return;
    if (result->error.code != ERROR_NONE)
        end.error = result->error;
    else if (buf_failed(&f->whole))
        error_memory(&end.error);
    else if (f->begun)
        error_set(&end.error, ERROR_MODEL_CUT, "%.80s: the stream ended before its end", s->peer);
    else if (result->status == 200 &&
             json_check(buf_text(&f->whole), f->whole.len, &json_limits_large, &end.error) < 0)
        error_set(&end.error, ERROR_MODEL_REPLY, "%.80s: the answer is not JSON", s->peer);
    if (end.error.code == ERROR_NONE) {
        text_mask(f->whole.data, f->whole.len, s->key);
        end.body = buf_text(&f->whole);
        end.len = f->whole.len;
    }
    if (end.error.code == ERROR_NONE && result->status == 200)
        forward_take_usage(f, json_span_member(json_span_of(end.body, end.len), "usage"));
    f->text_bytes += f->whole.len;
    forward_finish(f, &end);
}

void forward_pause(struct forward *f, bool on)
{
    if (f->transfer)
        http_pause(f->transfer, on);
}

/* ---- the request ---- */

/* Asks for the usage of a stream. */
static bool forward_ask_usage(struct forward *f)
{
    struct json_object *options = json_get_typed(f->request, "stream_options", json_type_object);
    if (!json_get_bool(f->request, "stream", false) ||
        json_get_bool(options, "include_usage", false))
        return true;
    f->hides_usage = true;
    if (!options) {
        options = json_object_new_object();
        if (!json_put(f->request, "stream_options", options))
            return false;
    }
    return json_put(options, "include_usage", json_object_new_boolean(1));
}

/* What was parsed is written again: of a member that comes twice, the provider sees only the one
 * that was looked at here. */
static int forward_write(struct forward *f, const char *body, size_t len, struct error *err)
{
    if (json_parse(body, len, &json_limits_large, &f->request, err) < 0 ||
        !json_object_is_type(f->request, json_type_object))
        return error_set(err, ERROR_ARGUMENT, "the request is not a JSON object");
    if (!json_put_text(f->request, "model", f->forwarder->model) || !forward_ask_usage(f))
        return error_memory(err);
    f->body = json_text(f->request, &f->body_len);
    return f->body ? 0 : error_memory(err);
}

static int forward_send(struct forward *f, const char *traceparent, struct error *err)
{
    static const struct http_handler handler = { forward_on_head, forward_on_data,
        forward_on_done };
    const struct server *s = f->forwarder->server;
    cleanup_buf struct buf url = { 0 };
    const char *headers[3] = { "Content-Type: application/json" };
    size_t count = 1;
    cleanup_free char *trace = traceparent ? text_printf("traceparent: %s", traceparent) : NULL;
    if (s->key_header)
        headers[count++] = s->key_header;
    if (trace)
        headers[count++] = trace;
    buf_puts(&url, s->url_before && s->model_in_url ? s->url_before : "");
    if (s->model_in_url)
        url_escape(&url, f->forwarder->model);
    buf_puts(&url, s->url_after);
    if (buf_failed(&url))
        return error_memory(err);
    struct http_request request = { .url = url.data,
        .headers = headers,
        .header_count = count,
        .body = f->body,
        .body_len = f->body_len };
    return http_send(s->http, &request, &handler, f, &f->transfer, err);
}

int forward_start(struct forwarder *forwarder, const char *body, size_t len,
    const char *traceparent, const struct forward_handler *handler, void *arg, struct forward **out,
    struct error *err)
{
    struct forward *f = calloc(1, sizeof *f);
    if (!f)
        return error_memory(err);
    *f = (struct forward){ .forwarder = forwarder,
        .handler = handler,
        .arg = arg,
        .sse = { .limit = FORWARD_EVENT_MAX, .code = ERROR_MODEL_REPLY } };
    int rc = forward_write(f, body, len, err);
    if (rc == 0)
        rc = forward_send(f, traceparent, err);
    if (rc < 0) {
        forward_free(f);
        return rc;
    }
    *out = f;
    return 0;
}
