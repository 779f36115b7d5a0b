/* net/rest.c: requests with retries.
 *
 *   sent ── an answer, or none ──► answered
 *     ▲            └─ may pass ──► waiting ──┐
 *     └──────────────────────────────────────┘
 */
#include "net/rest.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/queue.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/list.h"
#include "base/text.h"
#include "net/http.h"
#include "net/retry.h"
#include "net/url.h"

#define ANSWER_LIMIT ((size_t)16 << 20)

enum {
    CONNECTIONS = 64,
    CONNECT_SECONDS = 10,
    TRIES = 7,
    TRIES_UNHEARD = 4, /* if the service never responds */
    WORDS_MOST = 150,  /* bytes of a service's message in an error */
};

struct rest_request {
    TAILQ_ENTRY(rest_request) link;
    struct rest *rest;
    char *method, *url;
    struct buf body, in;
    struct list headers;
    const char *tell_header;
    char *header; /* of the last response; NULL: none */
    bool again;
    rest_piece_fn *piece;
    rest_done_fn *done;
    void *arg;
    double seconds;
    uint64_t begun_ns;
    unsigned tries;
    struct timer *deadline, *pause; /* deadline: NULL without one */
    struct http_transfer *transfer; /* NULL during a pause */
    bool delivered_some;            /* a piece was delivered */
    bool telling, cancelled;        /* if cancelled from within `piece`, it is freed afterwards */
};
TAILQ_HEAD(request_list, rest_request);

struct rest {
    struct loop *loop;
    struct http *http;
    struct url url;
    char *name, *key_variable, *secret, *ca_file;
    size_t answer_limit;
    unsigned tries;
    struct list headers;
    struct request_list requests;
};

/* ---- a service's words ---- */

/* A string, or the first one inside: services also send lists and objects. */
static const char *first_text(struct json_object *o, int depth)
{
    static const char *const keys[] = { "message", "error", "detail", "msg", "reason" };
    const char *text = NULL;
    if (json_object_is_type(o, json_type_string))
        return json_object_get_string(o);
    if (depth == 0 || !o)
        return NULL;
    if (json_object_is_type(o, json_type_array))
        return json_length(o) > 0 ? first_text(json_object_array_get_idx(o, 0), depth - 1) : NULL;
    for (size_t i = 0; !text && i < array_length(keys); i++) {
        struct json_object *member = NULL;
        if (json_object_is_type(o, json_type_object) &&
            json_object_object_get_ex(o, keys[i], &member))
            text = first_text(member, depth - 1);
    }
    return text;
}

static void rest_explain_status(const struct rest *r, long status, struct json_object *body,
    const struct buf *in, struct error *err)
{
    cleanup_buf struct buf words = { 0 };
    const char *text = first_text(body, 3);
    if (!text && !body)
        text = buf_text(in);
    if (text && text[0])
        text_append_visible(&words, text, strnlen(text, WORDS_MOST * 2));
    else
        buf_puts(&words, "it gave no reason");
    /* Masks before truncating, which could leave half of a secret. */
    if (r->secret && words.data)
        text_mask(words.data, words.len, r->secret);
    for (size_t i = 0; i < words.len; i++)
        if (words.data[i] == '\n' || words.data[i] == '\t')
            words.data[i] = ' ';
    words.len = text_utf8_floor(
        buf_text(&words), words.len, words.len < WORDS_MOST ? words.len : WORDS_MOST);
    const char *message = words.data ? words.data : "";
    int n = (int)words.len;
    if (status == 401)
        error_set(err, ERROR_PERMISSION, "%s rejects the key: check %s: %.*s", r->name,
            r->key_variable, n, message);
    else if (status == 402 || status == 403)
        error_set(err, ERROR_PERMISSION, "%s refused the request (%ld): %.*s", r->name, status, n,
            message);
    else if (status == 404)
        error_set(err, ERROR_NOT_FOUND, "%s: %.*s", r->name, n, message);
    else
        error_set(err, ERROR_ENVIRONMENT, "%s answered with status %ld: %.*s", r->name, status, n,
            message);
}

/* ---- a request's life ---- */

static void rest_request_free(struct rest_request *q)
{
    TAILQ_REMOVE(&q->rest->requests, q, link);
    timer_free(q->deadline);
    timer_free(q->pause);
    buf_free(&q->body);
    buf_free(&q->in);
    list_clear(&q->headers);
    free(q->header);
    free(q->method);
    free(q->url);
    free(q);
}

void rest_cancel(struct rest_request *q)
{
    if (!q)
        return;
    if (q->transfer)
        http_cancel(steal(&q->transfer));
    q->cancelled = true;
    if (!q->telling)
        rest_request_free(q);
}

static void rest_tell(struct rest_request *q, struct rest_answer *answer)
{
    struct buf in = q->in; /* what it reports must stay valid until `done` returns */
    cleanup_free char *header = steal(&q->header);
    answer->header = header;
    rest_done_fn *done = q->done;
    void *arg = q->arg;
    q->in = (struct buf){ 0 };
    if (q->rest->secret)
        text_mask(answer->error.text, strlen(answer->error.text), q->rest->secret);
    rest_request_free(q);
    done(arg, answer);
    buf_free(&in);
}

static void rest_too_late(void *arg)
{
    struct rest_request *q = arg;
    struct rest_answer answer = { 0 };
    error_set(
        &answer.error, ERROR_TIMEOUT, "%s did not answer within %g s", q->rest->name, q->seconds);
    if (q->transfer)
        http_cancel(steal(&q->transfer));
    rest_tell(q, &answer);
}

/* The seconds until the next try; negative: none. */
static double pause_before_next(const struct rest_request *q, const struct http_result *result)
{
    static const long transient[] = { 500, 502, 503, 504, 524 };
    bool may = result->error.code != ERROR_NONE && (result->unsent || q->again);
    may |= result->error.code == ERROR_NONE && result->status == 429;
    for (size_t i = 0; i < array_length(transient); i++)
        may |= q->again && result->error.code == ERROR_NONE && result->status == transient[i];
    bool answered = result->error.code == ERROR_NONE;
    unsigned most = answered || q->rest->tries < TRIES_UNHEARD ? q->rest->tries : TRIES_UNHEARD;
    if (!may || result->hopeless || q->delivered_some || q->tries >= most)
        return -1;
    double left = q->deadline ? q->seconds - clock_seconds_since(q->begun_ns) : INFINITY;
    return retry_pause_seconds(q->tries, result->retry_after, left);
}

static void rest_on_head(void *arg, struct http_transfer *transfer)
{
    struct rest_request *q = arg;
    const char *value = q->tell_header ? http_header(transfer, q->tell_header) : NULL;
    free(q->header);
    q->header = value ? strdup(value) : NULL;
}

static void rest_on_data(void *arg, const char *data, size_t len)
{
    struct rest_request *q = arg;
    if (!q->piece || http_status(q->transfer) >= 400) {
        /* One byte more than allowed reveals excess data. */
        size_t room = q->rest->answer_limit + 1 - q->in.len;
        buf_append(&q->in, data, len < room ? len : room);
        return;
    }
    q->delivered_some = q->telling = true;
    q->piece(q->arg, data, len);
    q->telling = false;
    if (q->cancelled)
        rest_request_free(q);
}

static void rest_judge(struct rest_request *q, const struct http_result *result)
{
    const struct rest *r = q->rest;
    cleanup_json struct json_object *body = NULL;
    struct rest_answer answer = { .error = result->error, .status = result->status };
    if (buf_failed(&q->in))
        error_memory(&answer.error);
    else if (q->in.len > r->answer_limit)
        error_set(&answer.error, ERROR_ENVIRONMENT, "%s: an answer of more than %zu bytes", r->name,
            r->answer_limit);
    else if (result->error.code != ERROR_NONE)
        error_wrap(&answer.error, "%s does not answer", r->name);
    if (answer.error.code == ERROR_NONE && q->in.len > 0)
        json_parse(q->in.data, q->in.len, &json_limits_large, &body, NULL);
    if (answer.error.code == ERROR_NONE && result->status >= 400)
        rest_explain_status(r, result->status, body, &q->in, &answer.error);
    answer.body = body;
    answer.data = buf_text(&q->in);
    answer.len = q->in.len;
    rest_tell(q, &answer);
}

static void rest_on_done(void *arg, const struct http_result *result)
{
    struct rest_request *q = arg;
    q->transfer = NULL;
    double pause = pause_before_next(q, result);
    if (pause < 0) {
        rest_judge(q, result);
        return;
    }
    buf_clear(&q->in);
    timer_start(q->pause, (uint64_t)(pause * 1000) + 1, 0);
}

static int rest_transmit(struct rest_request *q, struct error *err)
{
    static const struct http_handler handler = { rest_on_head, rest_on_data, rest_on_done };
    struct rest *r = q->rest;
    struct http_request request = { .method = q->method,
        .url = q->url,
        .headers = (const char *const *)q->headers.items,
        .header_count = q->headers.count,
        .body = buf_text(&q->body),
        .body_len = q->body.len,
        .once = !q->again };
    q->tries++;
    return http_send(r->http, &request, &handler, q, &q->transfer, err);
}

static void try_again(void *arg)
{
    struct rest_request *q = arg;
    struct rest_answer answer = { 0 };
    if (rest_transmit(q, &answer.error) < 0)
        rest_tell(q, &answer);
}

static int add_headers(struct rest_request *q, const struct rest_ask *ask, struct error *err)
{
    cleanup_buf struct buf type = { 0 };
    int rc = list_add_all(&q->headers, &q->rest->headers, err);
    buf_printf(&type, "Content-Type: %s", ask->type ? ask->type : "application/json");
    if (rc == 0 && (ask->body || ask->type))
        rc = list_add(&q->headers, buf_text(&type), err);
    for (size_t i = 0; rc == 0 && i < ask->header_count; i++)
        rc = list_add(&q->headers, ask->headers[i], err);
    return rc;
}

static int rest_request_new(
    struct rest *r, const struct rest_ask *ask, struct rest_request **out, struct error *err)
{
    struct rest_request *q = calloc(1, sizeof *q);
    if (!q)
        return error_memory(err);
    *q = (struct rest_request){ .rest = r,
        .method = strdup(ask->method),
        .url = text_printf("%s%s", r->url.base, ask->path),
        .again = ask->again,
        .piece = ask->piece,
        .tell_header = ask->tell_header,
        .done = ask->done,
        .arg = ask->arg,
        .seconds = ask->seconds,
        .begun_ns = clock_ns(),
        .deadline = ask->seconds > 0 ? timer_new(r->loop, rest_too_late, q) : NULL,
        .pause = timer_new(r->loop, try_again, q) };
    TAILQ_INSERT_TAIL(&r->requests, q, link);
    if (ask->body)
        buf_puts(&q->body, json_text(ask->body, NULL));
    else
        buf_append(&q->body, ask->data, ask->len);
    int rc = add_headers(q, ask, err);
    if (rc == 0 && (!q->method || !q->url || !q->pause || (ask->seconds > 0 && !q->deadline) ||
                       buf_failed(&q->body)))
        rc = error_memory(err);
    if (rc < 0)
        rest_request_free(q);
    else
        *out = q;
    return rc;
}

int rest_send(
    struct rest *r, const struct rest_ask *ask, struct rest_request **out, struct error *err)
{
    struct rest_request *q = NULL;
    int rc = rest_request_new(r, ask, &q, err);
    if (rc < 0)
        return rc;
    rc = rest_transmit(q, err);
    if (rc < 0) {
        rest_request_free(q);
        return rc;
    }
    if (q->deadline)
        timer_start(q->deadline, (uint64_t)(q->seconds * 1000), 0);
    *out = q;
    return 0;
}

/* ---- the service ---- */

static int check_secret(const struct rest *r, struct error *err)
{
    for (const char *c = r->secret; c && *c; c++)
        if (*c <= ' ' || *c >= 0x7F)
            return error_set(err, ERROR_CONFIG,
                "the key of %s contains a space or a character that keys do not have: check %s",
                r->name, r->key_variable);
    return 0;
}

static int rest_open_http(struct rest *r, const struct rest_options *o, struct error *err)
{
    struct http_options http = { .host = r->url.host,
        .port = r->url.port,
        .connect_options = { o->unix_path, r->ca_file, o->cert_file, o->key_file },
        .peer = r->url.peer,
        .codes = { ERROR_LOST, ERROR_LOST, ERROR_LOST, ERROR_ENVIRONMENT },
        .connections = o->connections ? o->connections : CONNECTIONS,
        .connect_timeout = CONNECT_SECONDS,
        .response_limit = SIZE_MAX };
    return http_open(r->loop, &http, &r->http, err);
}

static int rest_fill(struct rest *r, const struct rest_options *o, struct error *err)
{
    r->name = strdup(o->name);
    r->key_variable = strdup(o->key_variable);
    r->secret = o->secret ? strdup(o->secret) : NULL;
    r->ca_file = o->ca_file ? strdup(o->ca_file) : NULL;
    r->answer_limit = o->answer_limit ? o->answer_limit : ANSWER_LIMIT;
    r->tries = o->tries ? o->tries : TRIES;
    if (!r->name || !r->key_variable || (o->secret && !r->secret) || (o->ca_file && !r->ca_file))
        return error_memory(err);
    int rc = check_secret(r, err);
    for (size_t i = 0; rc == 0 && i < o->header_count; i++)
        rc = list_add(&r->headers, o->headers[i], err);
    if (rc == 0)
        rc = url_parse(o->base_url, o->key_variable, &r->url, err);
    return rc == 0 ? rest_open_http(r, o, err) : error_wrap(err, "%s", o->name);
}

int rest_open(
    struct loop *loop, const struct rest_options *options, struct rest **out, struct error *err)
{
    struct rest *r = calloc(1, sizeof *r);
    if (!r)
        return error_memory(err);
    r->loop = loop;
    TAILQ_INIT(&r->requests);
    int rc = rest_fill(r, options, err);
    if (rc < 0) {
        rest_close(r);
        return rc;
    }
    *out = r;
    return 0;
}

void rest_close(struct rest *r)
{
    struct rest_request *q;
    if (!r)
        return;
    while ((q = TAILQ_FIRST(&r->requests)))
        rest_cancel(q);
    http_close(r->http);
    url_free(&r->url);
    list_clear(&r->headers);
    free(r->name);
    free(r->key_variable);
    free(r->secret);
    free(r->ca_file);
    free(r);
}

const char *rest_base(const struct rest *r)
{
    return r->url.base;
}

struct loop *rest_loop(const struct rest *r)
{
    return r->loop;
}

int rest_renew(struct rest *r, const char *secret, const char *header, struct error *err)
{
    size_t name = strcspn(header, ":");
    cleanup_free char *own = strdup(secret), *line = strdup(header);
    if (!own || !line)
        return error_memory(err);
    for (size_t i = 0; i < r->headers.count; i++) {
        char **at = &r->headers.items[i];
        if (strncasecmp(*at, header, name + 1) != 0)
            continue;
        free(*at);
        *at = steal(&line);
        free(r->secret);
        r->secret = steal(&own);
        return check_secret(r, err);
    }
    return error_set(
        err, ERROR_ARGUMENT, "%s has no header like '%.*s'", r->name, (int)name, header);
}
